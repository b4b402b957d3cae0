"""Attributes of fitted estimators that only some kinds of models have."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from conddp.heads.head import Linearity
from conddp.models.result import FitResult
from conddp.models.summary import Summary
from conddp.models.uncertainty import CoefficientEstimates, Target

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

    @property
    def coef_std_(self) -> NDArray[np.float64]:
        """Standard errors of the coefficients as estimates for the population; with several labels, a row for each.

        They count noise, the bias from clamping and the sampling error, and belong to estimates before shrinkage, which
        :meth:`summary` shows.
        """
        self._list_coefficients("coef_std_")
        for each in self.results_:
            if not each.get_uncertainty().knows_sampling:
                raise AttributeError(
                    "there is no coef_std_: the fit did not release the size of its residuals, so the sampling error "
                    "is not known. coef_interval(of='data') gives intervals about the records of the fit."
                )
        return self._collect(lambda estimates: estimates.compute_std("population"))

    def coef_interval(self, level: float = 0.95, *, of: Target = "population") -> NDArray[np.float64]:
        """Return intervals of the coefficients, shape (number of coefficients, 2); with several labels, (q, ..., 2).

        An interval is centred on the estimate before shrinkage, not on the coefficient of the model.

        Parameters
        ----------
        level : float
            Probability with which an interval contains its target.
        of : {"population", "data"}
            "population": the coefficient of least squares on the population that the records are a sample of.
            "data": the coefficient of least squares on these records, with labels clamped to their bounds. The
            sampling error then does not count, and intervals are narrower.
        """
        self._list_coefficients("coef_interval")
        for each in self.results_:
            each.get_uncertainty().check_target(of)
        return self._collect(lambda estimates: estimates.compute_intervals(level, of))

    def summary(self, level: float = 0.95, *, of: Target | None = None) -> Any:  # Summary, or a tuple of them
        """Return a summary of a linear model: coefficients, standard errors and intervals. Print it to read it.

        Parameters
        ----------
        level : float
            Level of the intervals.
        of : {"population", "data"}, optional
            What the intervals are about, as in :meth:`coef_interval`. If None, the population if the sampling error is
            known, and otherwise the data.
        """
        self._list_coefficients("summary")
        made = tuple(Summary.of_result(each, level=level, of=of) for each in self.results_)
        return made if len(made) > 1 else made[0]

    def _collect(self, compute: Callable[[CoefficientEstimates], NDArray[np.float64]]) -> NDArray[np.float64]:
        """What is computed from the estimates of the coefficients of each label, without the intercept."""
        each = [
            compute(result.estimate_coefficients()[1])[: len(result.list_coefficients())] for result in self.results_
        ]
        return np.stack(each) if len(each) > 1 else each[0]

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
