"""Result of a fit, returned by an algorithm or loaded from a saved model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PrivateFeatures, PublicFeatures
from conddp.data.schema import Schema
from conddp.errors import SchemaError
from conddp.features.encoding import Encoding
from conddp.features.reading import read_features
from conddp.heads.head import Linearity
from conddp.models.curves import Curves
from conddp.models.diagnostics import Diagnostics
from conddp.models.evaluation import Evaluation
from conddp.models.fitted import FittedModel
from conddp.models.uncertainty import CoefficientEstimates, Uncertainty
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.transcript import Transcript
from conddp.theory.design import Design

__all__ = ["FitResult"]


@dataclass(frozen=True)
class FitResult:
    """A trained model with its guarantee and diagnostics. It contains public or released values only.

    Parameters
    ----------
    model : FittedModel
        Trained model, in the original features and units.
    guarantee : Guarantee
        Privacy guarantee of the fit.
    settings : mapping
        All settings of the fit, by name; they are public.
    diagnostics : Diagnostics
        Convergence of the fit, and standard deviations of its coefficients.
    transcript : Transcript
        Releases of the fit, without the released values.
    schema : Schema
        Schema of the training table.
    ledger : PrivacyLedger
        Ledger that recorded the cost. For a saved model, a read-only copy.
    design : Design, optional
        Statistics of the public training columns, if they were computed.
    versions : mapping
        Versions of the software that trained a saved model.
    feature_order : tuple of str
        Names of the columns in the order of the training table; empty if it is not known.
    encoding : Encoding, optional
        Encoding of the public columns. If None, the columns are the features.
    old_format : int, optional
        Format of the folder that the model was loaded from, if it is one that lacks evidence for the guarantee. The
        guarantee then has a remark on it, and the model cannot be saved again.
    evaluation : Evaluation, optional
        Evaluation on records that the fit has held out.
    uncertainty : Uncertainty, optional
        Uncertainty of the coefficients, if it is known.
    """

    model: FittedModel
    guarantee: Guarantee
    settings: Mapping[str, Any]
    diagnostics: Diagnostics
    transcript: Transcript
    schema: Schema
    ledger: PrivacyLedger
    design: Design | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    feature_order: tuple[str, ...] = ()
    encoding: Encoding | None = None
    old_format: int | None = None
    evaluation: Evaluation | None = None
    uncertainty: Uncertainty | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the public features that the model has weights for."""
        return self.schema.public if self.encoding is None else self.encoding.features

    def list_coefficients(self) -> list[tuple[str, float]]:
        """Coefficients with their names, in the order of the columns of the training table. Linear heads only.

        A public column has one coefficient for each of its features, and a private category one for each level.
        """
        public, private, _ = self.model.compute_linear_coefficients()
        values = [*public.tolist(), *private.tolist()]
        return [(name, values[place]) for name, place in self._order_coefficients()]

    def _order_coefficients(self) -> list[tuple[str, int]]:
        """Names of the coefficients in the order of the training table, and their places in the model."""
        encoding = self.encoding or Encoding.plain(self.schema.public)
        places, by_column = count(), dict[str, list[tuple[str, int]]]()
        for column in encoding.columns:
            by_column[column.column] = [(name, next(places)) for name in column.features]
        for each in self.schema.private_columns:
            by_column[each.name] = [(name, next(places)) for name in each.terms]
        return [pair for name in self.feature_order or by_column for pair in by_column[name]]

    def get_uncertainty(self) -> Uncertainty:
        """Return the uncertainty of the coefficients.

        Raises
        ------
        AttributeError
            If it is not known; the message says why.
        """
        if self.uncertainty is not None:
            return self.uncertainty
        model = f"the model of '{self.guarantee.label}'"
        head = self.model.head
        if head.linear_in is not Linearity.COLUMNS:
            instead = "curves_ has the bands of its curves; for" if head.has_curves else "For"
            raise AttributeError(
                f"{model} is {head.name_model()}, and only linear models have coefficients with intervals. {instead} "
                "coefficients, fit with head='linear'."
            )
        raise AttributeError(
            f"the uncertainty of {model} is not known. Either it was saved by an earlier version of conddp, which did "
            "not store it, or its algorithm does not give it: CondNewton does, one-shot does, and Cond-DP and DPSGD do "
            "with plain full-batch steps, public columns and at most a few thousand of them."
        )

    def estimate_coefficients(self) -> tuple[tuple[str, ...], CoefficientEstimates]:
        """Names and estimates of the coefficients, before shrinkage, those of :meth:`list_coefficients` in this order.

        The last one is the intercept, if the model has one.

        Raises
        ------
        AttributeError
            If the uncertainty is not known.
        """
        slopes, offsets = self.model.linearize_coefficients()
        ordered = self._order_coefficients()
        named = [*ordered, *([("intercept", len(offsets) - 1)] if self.model.has_constant else [])]
        names, places = zip(*named, strict=True)
        kept, known = list(places), self.get_uncertainty()
        made = known.estimate_coefficients(slopes[kept], offsets[kept])
        if len(known.sampling_factors):
            made = replace(made, sampling_std=made.sampling_std * np.sqrt(known.sampling_factors[kept]))
        return tuple(names), made

    def list_private_coefficients(self) -> list[tuple[str, float]]:
        """Coefficients of private columns with their names, for linear, additive and learned heads.

        A private number has one, in the label's units per unit of the column. A private category has one for each
        level, in the label's units.

        Privacy
            Post-processing of released numbers: no cost.
        """
        return list(zip(self.schema.private_terms, self.model.compute_private_coefficients().tolist(), strict=True))

    def make_curves(self) -> Curves:
        """Return the curves of the columns, for additive heads.

        Privacy
            Post-processing of released numbers, and public columns: no cost.

        Raises
        ------
        AttributeError
            If the head is not additive, or the model was saved by a version of conddp that did not keep curves.
        """
        effects, head, label = self.diagnostics.effects, self.model.head, self.guarantee.label
        if effects is None and head.has_curves:
            raise AttributeError(
                f"there are no curves_: the model of '{label}' was saved by an earlier version of conddp, which did "
                "not keep them. Fit it again to get them."
            )
        if effects is None:
            linear = head.linear_in is Linearity.COLUMNS
            raise AttributeError(
                f"there are no curves_: the model of '{label}' is {head.name_model()}, and only additive models have "
                f"curves. {'coef_ has its coefficients; for' if linear else 'For'} curves, fit with head='additive'."
            )
        try:
            with np.errstate(over="raise", invalid="raise"):
                return Curves.of(effects, self.encoding or Encoding.plain(self.schema.public))
        except (ArithmeticError, IndexError, ValueError):  # a file may hold anything
            raise SchemaError(
                "the stored curves do not belong to the columns of the model: its folder is damaged. Restore it."
            ) from None

    def predict_table(self, frame: Any) -> NDArray[np.float64]:
        """Predict for the records of a pandas, polars or Arrow table, in the units of the label.

        Columns are read by name, in any order. Other columns are ignored. No cost, because the model is already
        released; predictions depend on private columns of the new records, if there are any.

        Raises
        ------
        SchemaError
            If a column is missing or has another kind than in training.
        """
        encoding = self.encoding or Encoding.plain(self.schema.public)
        return self.predict(*read_features(frame, self.schema, encoding))

    def predict(self, public: PublicFeatures, private: PrivateFeatures | None = None) -> NDArray[np.float64]:
        """Predict from encoded features, in the units of the label. No cost: the model is already released.

        Raises
        ------
        SchemaError
            If a prediction is not a number, because numbers in the model or in a column are too large.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is clamped to the bounds of the label
            predictions = self.model.predict(public, private)
        if np.isnan(predictions).any():
            raise SchemaError(
                "a prediction is not a number: numbers in a column, or weights of the model, are too large for "
                "floating point. Check the units of the columns, and restore the folder of the model."
            )
        return predictions
