"""Predictions of fitted estimators, with standard deviations and intervals."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from conddp.data.parts import PrivateFeatures, PublicFeatures
from conddp.errors import SchemaError
from conddp.estimators.dataset import list_dataset_files, stream_dataset
from conddp.estimators.inputs import Input, open_input
from conddp.features.encoding import Encoding
from conddp.models.prediction import estimate_deviations, estimate_intervals
from conddp.models.result import FitResult

__all__ = ["Predictions"]


class Predictions:
    """Predictions from the results of a fit.

    Privacy
        Post-processing of released numbers: no cost.
    """

    results_: tuple[FitResult, ...]
    encoding_: Encoding
    n_features_in_: int
    unit: Any

    def predict(self, X: Any, *, return_std: bool = False) -> Any:
        """Predict in the units of the label, clamped to its bounds. No cost, because the model is already released.

        The columns of a table are selected by name, in any order. Other columns are ignored, and missing ones are
        refused. Arrays and sparse matrices are taken by position, if ``fit`` was given one. With several labels, the
        result has one column for each.

        Parameters
        ----------
        X : array or table of shape (n, d)
            Features, as in ``fit``.
        return_std : bool
            Whether to return, besides the predictions, the standard deviations of their errors as estimates of the
            expected label, for linear models. :meth:`predict_interval` is about labels.
        """
        check_is_fitted(self, "results_")
        files = list_dataset_files(X)
        if files is not None:
            pieces = stream_dataset(files, list(self.feature_names_in_))
            predicted = [self.predict(piece, return_std=return_std) for piece in pieces]
            return tuple(map(np.concatenate, zip(*predicted, strict=True))) if return_std else np.concatenate(predicted)
        public, private = self._encode(X)
        predictions = _join([each.predict(public, private) for each in self.results_])
        if not return_std:
            return predictions
        return predictions, _join([estimate_deviations(each, public, private) for each in self.results_])

    def predict_interval(self, X: Any, level: float = 0.95) -> NDArray[np.float64]:
        """Return intervals that contain the labels of new records with the given probability, shape (n, 2).

        They are the prediction plus or minus a quantile of the normal distribution times the standard deviation of the
        residuals, which CondNewton releases with every head. Labels whose residuals are far from normal may be
        covered more or less often than at the level. With several labels, the shape is (n, q, 2).

        Parameters
        ----------
        X : array or table of shape (n, d)
            Features, as in ``fit``.
        level : float
            Wanted probability.
        """
        check_is_fitted(self, "results_")
        public, private = self._encode(X)
        intervals = [estimate_intervals(each, public, private, level=level) for each in self.results_]
        return np.stack(intervals, axis=1) if len(intervals) > 1 else intervals[0]

    def _encode(self, X: Any) -> tuple[PublicFeatures, PrivateFeatures | None]:
        given = self._arrange(open_input(X))
        return given.transform(self.encoding_), given.read_private(self.results_[0].schema.private_columns)

    def _check_input(self, given: Input, *, reset: bool) -> None:
        """Check the shape of the input, and store or compare the number and the names of its columns."""
        if min(len(given), len(given.names)) == 0:
            raise ValueError(
                f"Found array with {len(given)} sample(s) and {len(given.names)} feature(s) "
                f"(shape=({len(given)}, {len(given.names)})) while a minimum of 1 is required."
            )
        if not reset and len(given.names) != self.n_features_in_:
            raise ValueError(
                f"X has {len(given.names)} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        if reset:
            self.n_features_in_ = len(given.names)
            self.__dict__.pop("feature_names_in_", None)
            if given.has_names:
                self.feature_names_in_ = np.array(given.names, dtype=object)

    def _arrange(self, given: Input) -> Input:
        """New records with the columns of the training records, in their order."""
        if not len(given):
            raise ValueError("X has no records.")
        names, named = self.results_[0].feature_order, hasattr(self, "feature_names_in_")
        if named and not given.has_names:
            raise SchemaError(
                "X has no column names, but the model was fitted to a table with names. Pass a table, so that columns "
                "cannot be confused."
            )
        if named or (given.is_table and (not given.has_names or set(names) <= set(given.names))):
            return given.select(names)  # by name; missing columns are refused
        unit = None if self.unit is None else given.find(self.unit)
        if unit is not None and len(given.names) == len(names) + 1:
            given = given.without(unit)
        self._check_input(given, reset=False)
        if given.has_names:
            warnings.warn(
                f"X has feature names, but {type(self).__name__} was fitted without feature names. Its columns are "
                "taken by position.",
                stacklevel=4,
            )
        return given.rename(names)


def _join(columns: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """One column, or a matrix of several."""
    return np.column_stack(columns) if len(columns) > 1 else columns[0]
