"""scikit-learn estimator for private regression."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from conddp._validate import one_of
from conddp.algorithms import Algorithm, FitRequest
from conddp.algorithms.several import JointFit
from conddp.data.records import Records
from conddp.errors import SchemaError
from conddp.estimators.attributes import ModelAttributes
from conddp.estimators.dataset import declare_dataset, list_dataset_files, read_dataset
from conddp.estimators.declaration import declare_schema, take_units
from conddp.estimators.evaluating import Evaluating
from conddp.estimators.inputs import open_input
from conddp.estimators.labels import declare_bounds, make_labels, read_labels, read_sample_weight
from conddp.estimators.prediction import Predictions
from conddp.features.encoding import Encoding
from conddp.heads import HEADS, Head
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.models.saving import save_model
from conddp.models.several import load_models, save_models
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.joint_guarantee import JointGuarantee
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["PrivateRegressor"]


class PrivateRegressor(Predictions, ModelAttributes, Evaluating, RegressorMixin, BaseEstimator):
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
        Declared range of the label, from domain knowledge. Labels and predictions outside the range are clamped. For
        several labels: one pair for all, a list of pairs, or a mapping by name.
    algorithm : str or algorithm
        Name of an algorithm, or an instance such as ``CondDP(num_steps=64)``. "auto" chooses from public information
        and gives the reason in ``guarantee_``. "cond-newton" (with linear heads), "cond-dp", "switch-cond-dp" and
        "dpsgd" support private columns. "one-shot" and "weighted-llp" protect the label only. "rr-on-bins",
        "unbiased-rr", "binary-rr", "laplace" and "staircase" also protect the label only, with pure epsilon. "mean"
        and "non-private" are reference points.
    head : str or head
        "auto", "linear", "additive", "learned", "wide", "mlp", "fm" or "embeddings", or an instance such as
        ``MLP(hidden=(32,))``. "auto" chooses between "linear", "additive" and "learned", from public information
        and what the fit releases, and gives the reason in ``guarantee_``. Linear models have coefficients, additive
        ones have curves.
    private_columns : mapping, optional
        Private features, by name or position, each with its declared range: (low, high) for a number, a list of
        categories, or a mapping with ``bounds`` or ``categories`` and ``fill``, the value that stands for a gap. Values
        outside the bounds are clamped, and other categories count as none of those declared.
    unit : str or int, optional
        Name or position of a public column of X, of any type, whose equal values belong to one person. The guarantee
        then covers all records of a person together. The column is not a feature: ``fit`` takes it out of X, and
        ``predict`` ignores it if it is there. Instead, the values can be passed to ``fit``.
    missing_labels : {"refuse", "public"}
        What to do if labels are missing. "public" declares that everyone may know which are; these records are
        dropped.
    heavy_tails : {"squash", "keep"}
        What to do with public numbers that have values more than 20 standard deviations from their mean. "squash"
        replaces them by their inverse hyperbolic sine, which is logarithmic in the tails; "keep" leaves them.
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
    evaluation_fraction : float, optional
        Fraction of the records that ``fit`` holds out for a private evaluation of the model, ``evaluation_``. It has
        the same (epsilon, delta). Because no record is both trained on and held out, the total is (epsilon, delta).

    Attributes
    ----------
    guarantee_ : Guarantee
        Privacy guarantee of the fit. Print it to read it.
    coef_ : array of shape (number of coefficients,)
        Coefficients in the original units, for linear heads. If all columns are numbers without gaps, there is one for
        each column.
    coef_names_ : array of str
        What each coefficient belongs to: a column, or a feature made from it, such as a level of a category.
    intercept_ : float
        Intercept in the original units, for linear heads.
    coef_std_ : array of shape (number of coefficients,)
        Standard errors of the coefficients, for linear heads; ``summary()`` and ``coef_interval()`` have more.
    curves_ : Curves
        What each column adds to predictions, for additive models; with several labels, a tuple.
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
    results_ : tuple of FitResult
        The same for each label. If there are several, ``guarantee_`` is their joint guarantee, ``coef_`` and
        ``intercept_`` have a row for each, and the other attributes that describe one model are not set.
    evaluation_ : Evaluation
        How well the model predicts held-out records; None without ``evaluation_fraction``.
    encoding_ : Encoding
        Encoding of the public columns: how categories, dates, gaps and heavy tails became numbers.
    ledger_ : PrivacyLedger
        Ledger that recorded the cost.
    n_features_in_ : int
        Number of columns of X, without the unit column.
    feature_names_in_ : array of str
        Names of these columns, if X had names.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 5
    >>> model = PrivateRegressor(epsilon=1.0, delta=1e-6, label_bounds=(0, 10), random_state=0).fit(X, y)
    >>> model.predict(X[:2]).shape
    (2,)
    """

    model_: FittedModel
    result_: FitResult
    guarantee_: Any  # Guarantee, or JointGuarantee of several labels
    evaluation_: Any  # Evaluation, or None

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        label_bounds: Any = None,
        algorithm: str | Algorithm = "auto",
        head: str | Head = "auto",
        private_columns: Mapping[Any, Any] | None = None,
        unit: Any = None,
        missing_labels: str = "refuse",
        heavy_tails: str = "squash",
        fit_intercept: bool = True,
        neighbouring: str | Neighbouring = "replace",
        random_state: Any = None,
        ledger: PrivacyLedger | None = None,
        evaluation_fraction: float | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.label_bounds = label_bounds
        self.algorithm = algorithm
        self.head = head
        self.private_columns = private_columns
        self.unit = unit
        self.missing_labels = missing_labels
        self.heavy_tails = heavy_tails
        self.fit_intercept = fit_intercept
        self.neighbouring = neighbouring
        self.random_state = random_state
        self.ledger = ledger
        self.evaluation_fraction = evaluation_fraction

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        unit: Any = None,
        checkpoint: str | Path | None = None,
    ) -> "PrivateRegressor":
        """Train under differential privacy.

        Parameters
        ----------
        X : array or table of shape (n, d)
            Features as a pandas, polars or Arrow table, a NumPy array or a SciPy sparse matrix. Public columns of a
            table may hold numbers, text, categories, flags and dates, with gaps. An Arrow dataset of Parquet files
            (``pyarrow.dataset.dataset``) may be larger than memory: if it is large, it is read block by block.
        y : array of shape (n,) or (n, q), or str
            Private label, or several of them. (epsilon, delta) is then the cost of all q models together. For an Arrow
            dataset, the name of the label column.
        sample_weight : array of shape (n,), optional
            Public weights of the records. Only their ratios count.
        unit : array of shape (n,), optional
            The unit of every record, in place of a column of X. Equal values belong to one person.
        checkpoint : path, optional
            File that keeps what is released while a long fit runs. If the fit is killed, call ``fit`` again with the
            same arguments and ledger: it goes on where it was, at no further cost. The file is deleted at the end.
        """
        one_of(("refuse", "public"), missing_labels=self.missing_labels)
        one_of(("squash", "keep"), heavy_tails=self.heavy_tails)
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
            self.evaluation_fraction,
        )
        if self.label_bounds is None:
            declare_bounds(None, ())  # raises, before anything is read
        files = list_dataset_files(X)
        if files is not None:
            return self._fit_files(request, files, y, sample_weight=sample_weight, unit=unit)
        given, units = take_units(open_input(X), self.unit, unit)
        self._check_input(given, reset=True)
        names, values = read_labels(y, type(self).__name__, gaps=self.missing_labels == "public")
        bounds = declare_bounds(self.label_bounds, names)
        weights = read_sample_weight(sample_weight, len(given))
        check_consistent_length(range(len(given)), values, *([] if units is None else [units.codes]))
        schema = declare_schema(
            given,
            names[0],
            bounds=bounds[0],
            private_columns=self.private_columns,
            missing_labels=self.missing_labels,
            units=units,
        )
        kept = np.flatnonzero(~np.isnan(values.reshape(len(values), -1)).any(axis=1))
        if not len(kept):
            raise SchemaError("every label is missing.")
        if len(kept) < len(values):
            given, values, units = given.take(kept), values[kept], None if units is None else units[kept]
            weights = None if weights is None else weights[kept]
        public, encoding, table = given.encode(
            schema.public, squash=self.heavy_tails == "squash", head=HEADS.resolve(self.head)
        )
        labels = make_labels(names, values, bounds)
        private = given.read_private(schema.private_columns)
        records = Records(public, private, labels[0], units, schema, table, weights)
        if len(labels) == 1:
            training, held_out = request.divide(records)
            fits: JointFit | FitResult = request.run(training, held_out=held_out)
        else:
            fits = request.run_several([records.with_label(label) for label in labels])
        results = (fits,) if isinstance(fits, FitResult) else fits.results
        self._store(
            tuple(replace(each, feature_order=given.names, encoding=encoding) for each in results), fits.guarantee
        )
        return self

    def _fit_files(self, request: FitRequest, files: Sequence[Path], label: Any, **refused: Any) -> "PrivateRegressor":
        """Fit to the files of an Arrow dataset, which are read block by block if they are large."""
        wanted = [name for name, value in refused.items() if value is not None]
        wanted += ["unit"] if self.unit is not None else ["private_columns"] if self.private_columns else []
        if wanted:
            raise SchemaError(f"an Arrow dataset may be read block by block, which does not allow {wanted[0]} yet.")
        schema = declare_dataset(files, label, self.label_bounds, missing_labels=self.missing_labels)
        squash = self.heavy_tails == "squash"
        records, encoding = read_dataset(
            files, schema, squash=squash, splines=request.splines, num_bins=request.num_bins
        )
        self.n_features_in_, self.feature_names_in_ = len(schema.public), np.array(schema.public, dtype=object)
        training, held_out = request.divide(records)
        result = replace(request.run(training, held_out=held_out), feature_order=schema.public, encoding=encoding)
        self._store((result,), result.guarantee)
        return self

    def _store(self, results: tuple[FitResult, ...], guarantee: Guarantee | JointGuarantee) -> None:
        """Set the fitted attributes."""
        first = results[0]
        self.results_, self.guarantee_, self.ledger_ = results, guarantee, first.ledger
        self.evaluation_ = first.evaluation
        self.encoding_ = first.encoding or Encoding.plain(first.schema.public)
        several = len(results) > 1
        for name in ("result_", "model_", "settings_", "diagnostics_", "transcript_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if not several:
            self.result_, self.model_, self.settings_ = first, first.model, first.settings
            self.diagnostics_, self.transcript_ = first.diagnostics, first.transcript

    def save(self, folder: str | Path) -> Path:
        """Save the model, its guarantee, transcript and a copy of the ledger to a folder that does not exist yet.

        With several labels, the folder contains the folder of a model for each of them.

        Privacy
            Writes released values and public settings only: no cost.
        """
        check_is_fitted(self, "results_")
        if isinstance(self.guarantee_, JointGuarantee):
            return save_models(folder, self.results_, self.guarantee_)
        return save_model(folder, self.results_[0])

    @classmethod
    def load(cls, folder: str | Path) -> "PrivateRegressor":
        """Load a fitted regressor from the folder of a saved model, which may come from the command line.

        The regressor selects the columns of tables by name, in any order. It takes arrays only if it was fitted to an
        array. It is for prediction only: to fit again, create a new regressor with your ledger.
        """
        results, guarantee = load_models(folder)
        first = results[0]
        schema, bounds = first.schema, [each.guarantee.label_bounds for each in results]
        names = first.feature_order or (*schema.public, *schema.private)
        regressor = cls(
            guarantee.epsilon,
            guarantee.delta,
            label_bounds=[(each.low, each.high) for each in bounds]
            if len(bounds) > 1
            else (bounds[0].low, bounds[0].high),
            head=first.model.head,
            private_columns={column.name: column.declaration for column in schema.private_columns},
            unit=schema.unit,
            missing_labels="public" if schema.label.missing_is_public else "refuse",
            fit_intercept=first.model.has_constant,
            neighbouring=first.guarantee.neighbouring,
            ledger=first.ledger,  # a copy: nothing can be spent on it, so that nobody refits without noticing
        )
        places = [f"x{place}" for place in range(len(names) + 1)]  # names of the columns of arrays
        regressor.n_features_in_ = len(names)
        if not (set(names) == set(places[:-1]) or {*names, schema.unit} == set(places)):
            regressor.feature_names_in_ = np.array(names, dtype=object)
        regressor._store(tuple(replace(each, feature_order=names) for each in results), guarantee)
        return regressor

    def report(self, file: str | Path, *, label: str | None = None, overwrite: bool = False) -> Path:
        """Write a report on the fit as HTML, Markdown or JSON, depending on the file suffix.

        Privacy
            Shows public, declared or released values only: no cost.

        Parameters
        ----------
        file : path
            The file.
        label : str, optional
            Name of the label that the report is about, if there are several.
        overwrite : bool
            Whether to replace an existing file.
        """
        from conddp.report import report_fit, write_report

        check_is_fitted(self, "results_")
        results = {each.guarantee.label: each for each in self.results_}
        if label is None and len(results) == 1:
            label = next(iter(results))
        if label not in results:
            raise ValueError(f"a report is about one label: pass label=, one of {list(results)}, got {label!r}.")
        return write_report(report_fit(results[label]), Path(file), overwrite=overwrite)

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
        tags.input_tags.allow_nan = True  # gaps in public columns; those in private columns need a declared fill
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags
