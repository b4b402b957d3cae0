"""Attributes of fitted estimators that only some kinds of models have."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from conddp.heads.head import Linearity
from conddp.models.result import FitResult

__all__ = ["ModelAttributes"]


class ModelAttributes:
    """Coefficients of linear models and curves of additive ones, from the results of a fit.

    An attribute that a model does not have raises an AttributeError that says what the model is and what to use
    instead, so that ``hasattr`` is False, as scikit-learn expects.

    Privacy
        Post-processing of released numbers: no cost.
    """

    results_: tuple[FitResult, ...]

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients in the original units, for linear heads; with several labels, a row for each."""
        coefficients = np.array([[value for _, value in each] for each in self._list_coefficients("coef_")])
        return np.asarray(coefficients if len(coefficients) > 1 else coefficients[0])

    @property
    def coef_names_(self) -> NDArray[Any]:
        """What each coefficient belongs to, for linear heads."""
        return np.array([name for name, _ in self._list_coefficients("coef_names_")[0]], dtype=object)

    @property
    def intercept_(self) -> Any:  # a number, or one for each label
        """Intercept in the original units, for linear heads."""
        self._list_coefficients("intercept_")
        intercepts = [each.model.compute_linear_coefficients()[2] for each in self.results_]
        return np.array(intercepts) if len(intercepts) > 1 else intercepts[0]

    def _list_coefficients(self, wanted: str) -> list[list[tuple[str, float]]]:
        """Coefficients of each label, with their names; an AttributeError if a model has none."""
        check_is_fitted(self, "results_")
        for each in self.results_:
            head = each.model.head
            if head.linear_in is not Linearity.COLUMNS:
                instead = "curves_ has the effects of its columns; for" if head.has_curves else "For"
                raise AttributeError(
                    f"there is no {wanted}: the model of '{each.guarantee.label}' is {head.name_model()}, and only "
                    f"linear models have coefficients. {instead} coefficients, fit with head='linear'."
                )
        return [each.list_coefficients() for each in self.results_]

    @property
    def curves_(self) -> Any:  # Curves, or a tuple of them
        """What each column adds to predictions, with standard deviations. No cost: post-processing."""
        check_is_fitted(self, "results_")
        curves = tuple(each.make_curves() for each in self.results_)
        return curves if len(curves) > 1 else curves[0]
