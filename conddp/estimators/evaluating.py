"""How well an estimator predicts: private evaluations, and scores without privacy."""

import warnings
from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from conddp.data.parts import Labels
from conddp.data.records import Records
from conddp.errors import PrivacyWarning, SchemaError
from conddp.estimators.declaration import take_units
from conddp.estimators.inputs import open_input
from conddp.estimators.labels import read_labels, read_sample_weight
from conddp.evaluation import evaluate_model
from conddp.evaluation.overlap import warn_of_training_records
from conddp.evaluation.run import NUM_BINS
from conddp.models.evaluation import Evaluation
from conddp.models.result import FitResult
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.randomness import RandomSource

__all__ = ["Evaluating"]


class Evaluating:
    """Evaluation of fitted estimators."""

    results_: tuple[FitResult, ...]
    encoding_: Any
    delta: float
    unit: Any
    missing_labels: str

    def evaluate(
        self,
        X: Any,
        y: Any,
        *,
        epsilon: float,
        delta: float | None = None,
        ledger: PrivacyLedger | None = None,
        sample_weight: Any = None,
        unit: Any = None,
        num_bins: int = NUM_BINS,
        level: float = 0.95,
        random_state: Any = None,
    ) -> Evaluation:
        """Evaluate the model on held-out records under differential privacy.

        Returns mean squared error, its root, mean absolute error, R², bias, calibration slope and calibration curve,
        each with an interval for these records and one for their population. Models with private columns have no slope
        and no curve.

        Privacy
            Costs (epsilon, delta) with respect to the labels and private columns of these records. If a record was used
            for training too, the costs of the fit and of the evaluation add up for it: pass the ledger of the fit, or
            hold records out with ``evaluation_fraction``. The estimate is then also too good, as always on training
            records.

        Parameters
        ----------
        X : array or table of shape (n, d)
            Features, as for ``predict``.
        y : array of shape (n,)
            Private labels.
        epsilon : float
            Privacy budget of the evaluation.
        delta : float, optional
            That of the fit if None.
        ledger : PrivacyLedger, optional
            Ledger that records the cost. If None, these records have a ledger of their own, which is right if nothing
            else is released about them.
        sample_weight : array of shape (n,), optional
            Public weights of the records.
        unit : array of shape (n,), optional
            The unit of every record, in place of a column of X, as for ``fit``.
        num_bins : int
            Largest number of bins of the calibration curve.
        level : float
            Level of the intervals.
        random_state : None, int, Generator or RandomState
            As for the estimator; None draws noise from a cryptographic generator.
        """
        check_is_fitted(self, "results_")
        if len(self.results_) > 1:
            raise ValueError(f"an evaluation is about one label, but the model has {len(self.results_)}.")
        result = self.results_[0]
        budget = PrivacyBudget(float(epsilon), float(self.delta if delta is None else delta))
        given, units = take_units(open_input(X), self.unit, unit)
        if units is None and result.schema.unit is not None:
            raise SchemaError(
                f"the model protects all records with the same '{result.schema.unit}'. Pass their units as unit=..."
            )
        given = self._arrange(given)  # type: ignore[attr-defined]  # of the estimator
        _, values = read_labels(y, type(self).__name__, gaps=self.missing_labels == "public")
        if values.ndim > 1:
            raise ValueError(f"the model predicts one label, but y has {values.shape[1]}.")
        weights = read_sample_weight(sample_weight, len(given))
        check_consistent_length(range(len(given)), values, *([] if units is None else [units.codes]))
        kept = np.flatnonzero(~np.isnan(values))
        if not len(kept):
            raise SchemaError("every label is missing.")
        label = result.schema.label
        records = Records(
            given.transform(self.encoding_),
            given.read_private(result.schema.private_columns),
            Labels(np.where(np.isnan(values), 0.0, values), result.schema.label_bounds, label.name),
            units,
            table=given.read_fingerprint(self.encoding_),
            weights=weights,
        )
        warn_of_training_records(records, result, stacklevel=3)
        return evaluate_model(
            result,
            records if len(kept) == len(values) else records.take(kept),
            budget,
            ledger=ledger,
            random_source=RandomSource.of(random_state),
            num_bins=num_bins,
            level=level,
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² of the predictions, as scikit-learn defines it.

        Privacy
            Reads the labels without noise: no guarantee covers the score. A
            :class:`~conddp.errors.PrivacyWarning` says so, also in cross-validation, which calls this method.
            :meth:`evaluate` gives R² under differential privacy.
        """
        warnings.warn(
            "score compares predictions with labels without noise, and no guarantee covers it. Use it with labels that "
            "need no protection. If these are private, do not publish the score or choose anything by it; evaluate "
            "gives a private one.",
            PrivacyWarning,
            stacklevel=2,
        )
        from sklearn.metrics import r2_score  # as late as scikit-learn itself imports it

        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))  # type: ignore[attr-defined]
