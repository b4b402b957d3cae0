"""scikit-learn estimator for private regression."""

import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from conddp.algorithms import Algorithm, FitRequest
from conddp.bounds import Bounds
from conddp.data.column import Column
from conddp.data.parts import Domain, Labels, PrivateFeatures, PublicFeatures, as_column, as_matrix, as_numbers
from conddp.data.records import Records
from conddp.data.units import Units
from conddp.errors import PrivacyWarning, SchemaError
from conddp.heads import Head, Linearity
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.models.saving import load_model, save_model
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["PrivateRegressor"]


class PrivateRegressor(RegressorMixin, BaseEstimator):
    """Regression under differential privacy when all or some of the features are public.

    The label is always private. Every feature is public unless it is named in ``private_columns``. Public features
    are used to condition the problem, at no privacy cost.

    Privacy
        ``fit`` spends (epsilon, delta) once, under the given neighbouring relation. ``guarantee_`` states exactly what
        this covers. All fitted attributes are covered by the guarantee. Clones share the ledger.

    Parameters
    ----------
    epsilon, delta : float
        Privacy budget of one fit.
    label_bounds : (low, high)
        Declared range of the label, from domain knowledge. Labels and predictions outside the range are clamped.
    algorithm : str or algorithm
        Name of an algorithm, or an instance such as ``CondDP(num_steps=64)``. "auto" chooses from public information
        and gives the reason in ``guarantee_``. "cond-newton" (with linear heads), "cond-dp", "switch-cond-dp" and
        "dpsgd" support private columns. "one-shot" and "weighted-llp" protect the label only. "rr-on-bins",
        "unbiased-rr", "binary-rr", "laplace" and "staircase" also protect the label only, with pure epsilon. "mean"
        and "non-private" are reference points.
    head : str or head
        "linear", "wide", "mlp" or "fm", or an instance such as ``MLP(hidden=(32,))``.
    private_columns : mapping, optional
        Private features, by name or position, each with its declared (low, high). Values outside are clamped.
    unit : str or int, optional
        Name or position of a public column of X, of any type, whose equal values belong to one person. The guarantee
        then covers all records of a person together. The column is not a feature: ``fit`` takes it out of X, and
        ``predict`` ignores it if it is there. Instead, the values can be passed to ``fit``.
    fit_intercept : bool
        Whether to fit an intercept.
    neighbouring : {"replace", "zero-out"} or Neighbouring
        Neighbouring relation under which (epsilon, delta) is stated.
    random_state : None, int, Generator or RandomState
        None draws noise from a cryptographic generator. Use anything else for research only; the guarantee then says
        so. The noise of a seeded fit also depends on its settings and records: the same fit repeated gives the same
        answer, and different fits have different noise. Clones share a Generator or RandomState.
    ledger : PrivacyLedger, optional
        Ledger that records the cost. A fit that exceeds its remaining budget is refused. If None, a new ledger with
        exactly this budget is used.

    Attributes
    ----------
    guarantee_ : Guarantee
        Privacy guarantee of the fit. Print it to read it.
    coef_ : array of shape (n_features_in_,)
        Coefficients in the original units, for linear heads.
    intercept_ : float
        Intercept in the original units, for linear heads.
    model_ : FittedModel
        The trained model.
    settings_ : mapping
        All settings of the fit.
    diagnostics_ : Diagnostics
        Convergence of the fit, and standard deviations of its coefficients.
    transcript_ : Transcript
        Releases of the fit, without the released values.
    result_ : FitResult
        All of the above in one object.
    ledger_ : PrivacyLedger
        Ledger that recorded the cost.
    n_features_in_ : int
        Number of features, without the unit column.
    feature_names_in_ : array of str
        Names of the features, if the input had names.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 5
    >>> model = PrivateRegressor(epsilon=1.0, delta=1e-6, label_bounds=(0, 10), random_state=0).fit(X, y)
    >>> model.predict(X[:2]).shape
    (2,)
    """

    n_features_in_: int
    model_: FittedModel
    result_: FitResult
    _loaded_names: list[str] | None = None
    _unit_place: int | None = None

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        label_bounds: Any = None,
        algorithm: str | Algorithm = "auto",
        head: str | Head = "linear",
        private_columns: Mapping[Any, Any] | None = None,
        unit: Any = None,
        fit_intercept: bool = True,
        neighbouring: str | Neighbouring = "replace",
        random_state: Any = None,
        ledger: PrivacyLedger | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.label_bounds = label_bounds
        self.algorithm = algorithm
        self.head = head
        self.private_columns = private_columns
        self.unit = unit
        self.fit_intercept = fit_intercept
        self.neighbouring = neighbouring
        self.random_state = random_state
        self.ledger = ledger

    def fit(self, X: Any, y: Any, unit: Any = None, *, checkpoint: str | Path | None = None) -> "PrivateRegressor":
        """Train under differential privacy.

        Parameters
        ----------
        X : array or table of shape (n, d)
            Features as a NumPy array or a pandas, polars or Arrow table. All columns must be numeric.
        y : array of shape (n,)
            Private label.
        unit : array of shape (n,), optional
            The unit of every record, in place of a column of X. Equal values belong to one person.
        checkpoint : path, optional
            File that keeps what is released while a long fit runs. If the fit is killed, call ``fit`` again with the
            same arguments and ledger: it goes on where it was, at no further cost. The file is deleted at the end.
        """
        request = FitRequest(
            self.epsilon,
            self.delta,
            self.algorithm,
            self.head,
            self.neighbouring,
            bool(self.fit_intercept),
            self.random_state,
            self.ledger,
            checkpoint,
        )
        if self.label_bounds is None:
            raise SchemaError(
                "label_bounds=(low, high) is missing. Declare it from domain knowledge, never from the data."
            )
        bounds = Bounds.of(self.label_bounds, column="label")
        self._loaded_names = None
        self._unit_place = None
        X, units = self._take_units(X, unit)
        features = self._read_features(X, reset=True)
        self._private, domains = self._locate_private_columns()
        public, private = self._split(features, domains)
        name = getattr(y, "name", None)
        label = Labels(_read_label(y, type(self).__name__), bounds, name if isinstance(name, str) and name else "label")
        check_consistent_length(features, label.values, *([] if units is None else [units.codes]))
        result = request.run(Records(public, private, label, units))
        self._store(replace(result, feature_order=tuple(self._names())))
        return self

    def _store(self, result: FitResult) -> None:
        """Set the fitted attributes."""
        self.result_ = result
        self.model_ = result.model
        self.guarantee_ = result.guarantee
        self.settings_ = result.settings
        self.diagnostics_ = result.diagnostics
        self.transcript_ = result.transcript
        self.ledger_ = result.ledger
        numbers = all(isinstance(domain, Bounds) for domain in result.model.private_domains)
        if result.model.head.linear_in is Linearity.COLUMNS and numbers:
            of_public, of_private, self.intercept_ = result.model.compute_linear_coefficients()
            self.coef_ = np.empty(self.n_features_in_)
            self.coef_[self._public_positions()] = of_public
            self.coef_[self._private] = of_private

    def save(self, folder: str | Path) -> Path:
        """Save the model, its guarantee, transcript and a copy of the ledger to a folder that does not exist yet.

        Privacy
            Writes released values and public settings only: no cost.
        """
        check_is_fitted(self, "result_")
        return save_model(folder, self.result_)

    @classmethod
    def load(cls, folder: str | Path) -> "PrivateRegressor":
        """Load a fitted regressor from the folder of a saved model, which may come from the command line.

        The regressor selects the columns of tables by name, in any order, and expects arrays in the column order of the
        training table. It is for prediction only: to fit again, create a new regressor with your ledger.
        """
        result = load_model(folder)
        guarantee, schema = result.guarantee, result.schema
        regressor = cls(
            guarantee.epsilon,
            guarantee.delta,
            label_bounds=(guarantee.label_bounds.low, guarantee.label_bounds.high),
            head=result.model.head,
            private_columns={
                name: (domain.low, domain.high) if isinstance(domain, Bounds) else list(domain.names)
                for name, domain in zip(schema.private, schema.private_domains, strict=True)
            },
            unit=schema.unit,
            fit_intercept=result.model.has_constant,
            neighbouring=guarantee.neighbouring,
            ledger=result.ledger,  # a copy: nothing can be spent on it, so that nobody refits without noticing
        )
        names: list[str] = list(result.feature_order or [*schema.public, *schema.private])
        regressor.n_features_in_ = len(names)
        places = [f"x{number}" for number in range(len(names) + 1)]  # default names of the columns of arrays
        if set(names) == set(places[:-1]) or {*names, schema.unit} == set(places):
            regressor.unit = places.index(schema.unit) if schema.unit in places else None
            regressor._labels = [places.index(name) for name in names]
            regressor._private = [names.index(name) for name in schema.private]
        else:
            regressor.feature_names_in_ = np.array(names, dtype=object)
            regressor._labels = regressor._loaded_names = names
            regressor._private = [names.index(name) for name in schema.private]
        regressor._store(result)
        return regressor

    def report(self, file: str | Path, *, overwrite: bool = False) -> Path:
        """Write a report on the fit as HTML, Markdown or JSON, depending on the file suffix.

        Privacy
            Shows public, declared or released values only: no cost.
        """
        from conddp.report import report_fit, write_report

        check_is_fitted(self, "result_")
        return write_report(report_fit(self.result_), Path(file), overwrite=overwrite)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict in the units of the label, clamped to its bounds. No cost, because the model is already released."""
        check_is_fitted(self, "model_")
        features = self._read_features(self._drop_unit(X), reset=False)
        return self.model_.predict(*self._split(features, self.model_.private_domains))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² of the predictions, as scikit-learn defines it.

        Privacy
            Reads the labels without noise: no guarantee covers the score. A
            :class:`~conddp.errors.PrivacyWarning` says so, also in cross-validation, which calls this method.
        """
        warnings.warn(
            "score compares predictions with labels without noise, and no guarantee covers it. Use it with labels that "
            "need no protection. If these are private, do not publish the score or choose anything by it.",
            PrivacyWarning,
            stacklevel=2,
        )
        return float(super().score(X, y, sample_weight))

    def _take_units(self, X: Any, passed: Any) -> tuple[Any, Units | None]:
        """Take the unit column out of X, or read the units that were passed to fit."""
        if self.unit is None:
            if passed is None:
                return X, None
            name = getattr(passed, "name", None)
            return X, Units.of(passed, name=name if isinstance(name, str) and name else "unit")
        if passed is not None:
            raise SchemaError(f"unit={self.unit!r} names a column, and fit was given units too. Give one of the two.")
        names, place = self._find_unit(X)
        if place is None:
            raise SchemaError(f"unit={self.unit!r} is not a column of X. X has: {names}.")
        self._unit_place = place
        without, column = _take_column(X, place)
        return without, Units.of(column, name=str(names[place]))

    def _find_unit(self, X: Any) -> tuple[list[Any], int | None]:
        """Names of the columns of X, and the place of the unit column among them."""
        if nw.dependencies.is_into_dataframe(X):
            labels = list(nw.from_native(X, eager_only=True).columns)
            if self.unit in labels:
                return labels, labels.index(self.unit)
            by_place = all(isinstance(label, str) for label in labels)
        else:
            X = X if hasattr(X, "shape") else np.asarray(X)
            labels, by_place = [f"x{place}" for place in range(X.shape[1] if X.ndim == 2 else 0)], True
        found = by_place and isinstance(self.unit, (int, np.integer)) and not isinstance(self.unit, bool)
        return labels, int(self.unit) if found and 0 <= self.unit < len(labels) else None

    def _drop_unit(self, X: Any) -> Any:
        """Drop the unit column from new records, if it is there."""
        if self.unit is None:
            return X
        names, place = self._find_unit(X)
        by_name = place is not None and names[place] == self.unit
        if place is None or not (by_name or len(names) == self.n_features_in_ + 1):
            return X
        return _take_column(X, place)[0]

    def _read_features(self, X: Any, *, reset: bool) -> NDArray[Any]:
        """Validate features as scikit-learn does and return a matrix; error messages never quote a value."""
        labels: list[Any] | None = None
        if nw.dependencies.is_into_dataframe(X):
            if not reset:
                X = self._select_by_name(X)
            # The attribute "columns" of an Arrow table holds the columns themselves.
            names = list(getattr(X, "column_names", None) or X.columns)
            if any(isinstance(name, tuple) for name in names):
                raise SchemaError("the names of the columns have several levels. Give each column one name.")
            if len(set(map(str, names))) < len(names):
                raise SchemaError("the table has columns of the same name. Give each column its own name.")
            validate_data(self, X, reset=reset, skip_check_array=True)
            table = nw.from_native(X, eager_only=True)
            features, labels = as_matrix(table, finite=False), list(table.columns)
            if not reset and features.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"X has {features.shape[1]} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input."
                )
        else:
            array = X if hasattr(X, "toarray") else as_numbers(X, what="X", finite=False)
            if array.ndim != 2:
                raise ValueError(f"Expected 2D array, got {array.ndim}D array instead. Reshape your data.")
            # Public columns must be finite, which PublicFeatures checks; private ones are clamped.
            dtypes = [np.float64, np.float32]
            features = validate_data(self, array, reset=reset, dtype=dtypes, ensure_all_finite=False)
        if reset:
            self.n_features_in_ = features.shape[1]
            width = features.shape[1] + (self._unit_place is not None)
            self._places = [place for place in range(width) if place != self._unit_place]  # in X as it was given
            self._labels = self._places if labels is None else labels
        return features

    def _select_by_name(self, X: Any) -> Any:
        """Reorder the columns of a table to the order of a loaded model."""
        names = getattr(self, "_loaded_names", None)
        if names is None:
            return X
        table = nw.from_native(X, eager_only=True)
        missing = [name for name in names if name not in table.columns]
        if missing:
            raise SchemaError(
                f"columns {missing} of the model are not among the {len(table.columns)} columns of the table."
            )
        return table.select(names).to_native()

    def _names(self) -> list[str]:
        """Names for error messages and the guarantee; columns of arrays are named x0, x1, ..."""
        return [str(name) for name in getattr(self, "feature_names_in_", [f"x{label}" for label in self._labels])]

    def _locate_private_columns(self) -> tuple[list[int], tuple[Domain, ...]]:
        """Positions of the private columns and what is declared of them."""
        names = self._names()
        keys: dict[Any, int] = {name: position for position, name in enumerate(names)}
        # Positions are accepted only if they cannot be confused with the column labels of a table.
        keys |= {label: position for position, label in enumerate(self._labels)}
        if all(isinstance(label, str) for label in self._labels):
            keys |= {place: position for position, place in enumerate(self._places)}
        positions, domains = [], []
        if not isinstance(self.private_columns or {}, Mapping):
            raise SchemaError(
                "private_columns must give each private column its range, {name: (low, high)}, "
                f"got {type(self.private_columns).__name__}."
            )
        for key, pair in (self.private_columns or {}).items():
            if isinstance(key, bool) or key not in keys:
                raise SchemaError(f"private column {key!r} is not among the features, of which there are {len(names)}.")
            positions.append(keys[key])
            domains.append(Column.private(names[positions[-1]], pair).domain)
        if len(set(positions)) < len(positions):
            raise SchemaError("private_columns names a column twice, by name and by position.")
        return positions, tuple(domains)

    def _public_positions(self) -> list[int]:
        return [position for position in range(self.n_features_in_) if position not in self._private]

    def _split(
        self, features: NDArray[Any], domains: tuple[Domain, ...]
    ) -> tuple[PublicFeatures, PrivateFeatures | None]:
        """Split the features by role."""
        names, public = self._names(), self._public_positions()
        part = PublicFeatures(features[:, public], tuple(names[position] for position in public))
        if not self._private:
            return part, None
        private_names = tuple(names[position] for position in self._private)
        return part, PrivateFeatures(features[:, self._private], domains, private_names)

    def __sklearn_clone__(self) -> "PrivateRegressor":
        """Clone as scikit-learn does, but share the ledger and the random state: a copied generator repeats noise."""
        parameters = self.get_params(deep=False)
        shared = {name: parameters.pop(name) for name in ("ledger", "random_state")}
        copy = type(self)(**{name: clone(value, safe=False) for name, value in parameters.items()}, **shared)
        for name in ("_metadata_requests", "_sklearn_output_config"):  # what set_fit_request and set_output store
            if name in self.__dict__:
                setattr(copy, name, deepcopy(self.__dict__[name]))
        return copy

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # noise may dominate on small data sets
        return tags


def _take_column(X: Any, place: int) -> tuple[Any, Any]:
    """X without a column, and that column."""
    if nw.dependencies.is_into_dataframe(X):
        table = nw.from_native(X, eager_only=True)
        names = list(table.columns)
        return table.select(names[:place] + names[place + 1 :]).to_native(), table[names[place]].to_native()
    if hasattr(X, "toarray"):
        raise TypeError("a sparse matrix cannot hold a unit column. Pass the units to fit.")
    array = np.asarray(X)
    return np.delete(array, place, axis=1), array[:, place]


def _read_label(y: Any, estimator: str) -> NDArray[Any]:
    """Validate the label and return a vector of numbers; error messages never quote a value."""
    if y is None:
        raise ValueError(f"This {estimator} estimator requires y to be passed, but the target y is None.")
    if nw.dependencies.is_into_series(y):
        return as_column(nw.from_native(y, series_only=True), what="Input y", finite=False)
    if nw.dependencies.is_into_dataframe(y):
        values = as_matrix(nw.from_native(y, eager_only=True), finite=False)
    else:
        values = as_numbers(y, what="Input y", finite=False)
    vector: NDArray[Any] = column_or_1d(values, warn=True)
    return vector
