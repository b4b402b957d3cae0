"""Comparison of algorithms on simulated labels over a range of budgets. Costs no privacy: no real label is read."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from conddp._validate import one_of, positive, positive_integer
from conddp.algorithms import ALGORITHMS, NonPrivate
from conddp.algorithms.trial import Shared, Trial
from conddp.data.parts import Domain, PublicFeatures
from conddp.data.schema import Schema
from conddp.data.units import Units
from conddp.errors import CondDPError, NotCalibrated, PrivacyError, SchemaError
from conddp.features.grouped_rows import whiten
from conddp.heads import HEADS, Linearity
from conddp.labels.simulation import FAMILIES, simulate
from conddp.planning.budgets import DELTA, EPSILONS
from conddp.planning.runner import ProgressCallback, run_cells
from conddp.privacy.accounting import check_delta, refuse_large_delta, warn_about_delta
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.stored import decode, require

__all__ = ["Comparison", "compare_algorithms", "take_sample"]

MOST_RECORDS = 50_000
MOST_RECORDS_NONLINEAR = 10_000  # such heads take longer to fit
CANDIDATES = ("auto", "cond-dp", "switch-cond-dp", "dpsgd", "one-shot", "rr-on-bins", "weighted-llp", "mean")
ALL = "all"  # stands for all candidates
SAME = 0.005  # logarithm of a ratio of errors that makes no difference to anybody
# With a head that is not linear in the columns these train by thousands of gradient steps, half a minute a fit.
SLOW_IF_NONLINEAR = ("cond-dp", "switch-cond-dp", "dpsgd", "rr-on-bins")


@dataclass(frozen=True)
class Comparison:
    """Errors of algorithms on simulated labels.

    An error is the expected squared error on new labels of the same records, over that of non-private least squares on
    the same simulated labels.

    Parameters
    ----------
    num_records, num_public, num_private : int
        Size of the data.
    num_simulated : int
        Records that labels were simulated for: all of them, or a sample if there are many. Fewer records mean larger
        errors, so a sample is on the safe side.
    head : str
        The model.
    delta : float
        Of every fit.
    neighbouring : Neighbouring
        The relation.
    epsilons : tuple of float
        The budgets.
    errors : mapping
        By algorithm: one tuple per epsilon, with one error per set of simulated labels.
    constant : tuple of float
        Error of the mean of the labels without privacy, for every set of simulated labels.
    skipped : mapping
        Algorithms that cannot be used here, and why.
    unit : str
        Column whose equal values belong to one unit, all of whose records are protected together; empty without units.
    num_units : int
        Number of units; 0 without units.
    """

    num_records: int
    num_public: int
    num_private: int
    num_simulated: int
    head: str
    delta: float
    neighbouring: Neighbouring
    epsilons: tuple[float, ...]
    errors: Mapping[str, tuple[tuple[float, ...], ...]]
    constant: tuple[float, ...]
    skipped: Mapping[str, str]
    unit: str = ""
    num_units: int = 0

    @property
    def num_simulations(self) -> int:
        """Sets of simulated labels."""
        return len(self.constant)

    def mean(self, algorithm: str) -> list[float]:
        """Geometric mean of the errors at each epsilon."""
        return [_geometric_mean(errors) for errors in self.errors[algorithm]]

    def spread(self, algorithm: str) -> tuple[list[float], list[float]]:
        """Lowest and highest error at each epsilon."""
        errors = self.errors[algorithm]
        return [min(each) for each in errors], [max(each) for each in errors]

    @property
    def mean_constant(self) -> float:
        """Geometric mean of the errors of the mean alone."""
        return _geometric_mean(self.constant)

    def is_tie(self, one: str, other: str, epsilon: float) -> bool:
        """Whether two algorithms cannot be told apart at one of the budgets.

        Their errors are compared on the same simulated labels. A mean difference below half a percent, or below two
        standard errors of the difference, is a tie.
        """
        place = self.epsilons.index(epsilon)
        pairs = zip(self.errors[one][place], self.errors[other][place], strict=True)
        ratios = np.array([math.log(first / second) for first, second in pairs])
        spread = float(ratios.std(ddof=1)) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.0
        return abs(float(ratios.mean())) <= max(SAME, 2 * spread)

    def rank(self, epsilon: float) -> list[tuple[str, float]]:
        """Algorithms with their mean errors at one of the budgets, the best first."""
        place = self.epsilons.index(epsilon)
        means = {name: self.mean(name)[place] for name in self.errors}
        return sorted(means.items(), key=lambda pair: pair[1])

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Comparison":
        """The comparison that was stored.

        Raises
        ------
        SchemaError
            If it is not what :meth:`to_json` gives.
        """
        comparison: Comparison = decode(cls, stored, "comparison")
        counts = (comparison.num_public, comparison.num_private)
        require(
            1 <= comparison.num_simulated <= comparison.num_records and min(counts) >= 0,
            "the numbers of records and columns of the comparison contradict each other",
        )
        require(0 <= comparison.delta < 1, "'comparison.delta' must lie between 0 and 1")
        epsilons = comparison.epsilons
        require(
            len(epsilons) > 0 and list(epsilons) == sorted(set(epsilons)) and epsilons[0] > 0,
            "'comparison.epsilons' must be rising numbers above 0",
        )
        num_draws = len(comparison.constant)
        require(
            len(comparison.errors) > 0
            and num_draws > 0
            and all(len(errors) == len(epsilons) for errors in comparison.errors.values())
            and all(len(each) == num_draws for errors in comparison.errors.values() for each in errors),
            "'comparison.errors' must have a list per epsilon, with an error for each value of 'comparison.constant'",
        )
        numbers = [error for errors in comparison.errors.values() for each in errors for error in each]
        require(min(*numbers, *comparison.constant) > 0, "errors of a comparison must be above 0")
        return comparison

    def to_json(self) -> dict[str, Any]:
        """The comparison as it is stored."""
        return {**asdict(self), "neighbouring": self.neighbouring.value}


@dataclass(frozen=True)
class _Cell:
    """Fits of all algorithms at all budgets to one set of simulated labels."""

    family: int
    draw: int
    work: float = 1.0


@dataclass(frozen=True)
class _Answer:
    errors: Mapping[str, tuple[float, ...]]  # by algorithm, one for each epsilon
    constant: float
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class _Setting:
    """What all cells share."""

    public: PublicFeatures
    private: Mapping[str, Domain]
    algorithms: tuple[str, ...]
    head: str
    epsilons: tuple[float, ...]
    delta: float
    neighbouring: Neighbouring
    units: Units | None = None
    simulate_from: PublicFeatures | None = None
    shared: Shared = field(default_factory=partial(Shared, briefly=True))  # between cells of the same process


def compare_algorithms(
    public_features: PublicFeatures,
    *,
    private: Mapping[str, Domain] | None = None,
    algorithms: Sequence[str] | None = None,
    head: str = "linear",
    epsilons: Sequence[float] = EPSILONS,
    delta: float = DELTA,
    neighbouring: Neighbouring = Neighbouring.REPLACE,
    num_draws: int = 1,
    num_workers: int | None = 1,
    callback: ProgressCallback | None = None,
    units: Units | None = None,
    simulate_from: PublicFeatures | None = None,
) -> Comparison:
    """Fit algorithms to labels simulated from public features, and compare their errors.

    Privacy
        Sees public columns and declared bounds only: no cost. Labels and private columns are simulated.

    Parameters
    ----------
    public_features : PublicFeatures
        The features.
    private : mapping, optional
        Declared ranges or categories of the private columns, by name.
    algorithms : sequence of str, optional
        By name; those that cannot be used here are skipped, and the result says why. If None, all that are fast with
        this head; with ``["all"]``, the slow ones too.
    head : str
        The model, by name.
    epsilons : sequence of float
        Budgets.
    delta : float
        Of every fit. With 0, algorithms that need more are skipped.
    neighbouring : Neighbouring
        The relation.
    num_draws : int
        Sets of labels from each family of :data:`conddp.labels.simulation.FAMILIES`.
    num_workers : int, optional
        Processes; as many as there are cores if None.
    callback : callable, optional
        Called with the number of steps done, of all steps, and the seconds left.
    units : Units, optional
        Units of the records, if the fits shall protect all records of a unit together.
    simulate_from : PublicFeatures, optional
        Features of the same records that labels are simulated from and least squares is fitted to, if they are not
        ``public_features``: indicators of categories, for heads that take the numbers of bins.
    """
    if len(public_features) < 2:
        raise SchemaError("labels can be simulated for two records or more, but there is one.")
    for epsilon in epsilons:
        positive(epsilon=epsilon)
    algorithms, left_out = choose_algorithms(algorithms, CANDIDATES, head)
    if delta != 0:
        check_delta(delta)
        refuse_large_delta(delta)
        warn_about_delta(delta, len(public_features))
    positive_integer(num_draws=num_draws)
    epsilons = tuple(sorted(set(map(float, epsilons))))
    if units is not None and len(units) != len(public_features):
        raise SchemaError(f"units are of {len(units)} records, but there are {len(public_features)}.")
    linear = HEADS[head].linear_in is Linearity.COLUMNS
    at_most = MOST_RECORDS if linear else MOST_RECORDS_NONLINEAR
    sample, sampled_units = take_sample(public_features, units, at_most)
    if simulate_from is not None:
        if len(simulate_from) != len(public_features):
            raise SchemaError(
                f"labels would be simulated for {len(simulate_from)} records, but there are {len(public_features)}."
            )
        simulate_from, _ = take_sample(simulate_from, units, at_most)
    setting = _Setting(
        sample, dict(private or {}), algorithms, head, epsilons, delta, neighbouring, sampled_units, simulate_from
    )
    skipped = dict(_list_unusable(setting))
    usable = tuple(name for name in algorithms if name not in skipped)
    setting = replace(setting, algorithms=usable)
    cells = [_Cell(family, draw) for family in range(len(FAMILIES)) for draw in range(num_draws)]
    computed = run_cells(cells, partial(_compute, setting), num_workers=num_workers, callback=callback)
    answers = [computed[cell] for cell in cells]
    for answer in answers:
        skipped |= answer.skipped
    errors = {
        name: tuple(zip(*(answer.errors[name] for answer in answers), strict=True))
        for name in usable
        if name not in skipped
    }
    if not errors:
        raise PrivacyError(f"no algorithm of {list(algorithms)} can be used here: {' '.join(skipped.values())}")
    skipped |= left_out
    return Comparison(
        len(public_features),
        public_features.shape[1],
        len(private or {}),
        len(sample),
        head,
        delta,
        neighbouring,
        epsilons,
        errors,
        tuple(answer.constant for answer in answers),
        skipped,
        "" if units is None else units.name,
        0 if units is None else units.num_units,
    )


def choose_algorithms(
    algorithms: Sequence[str] | None, candidates: Sequence[str], head: str
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the algorithms to try, and those that are left out because they are slow with this head, with the reason.

    Parameters
    ----------
    algorithms : sequence of str or None
        What the user asked for.
    candidates : sequence of str
        What "all" stands for. None stands for those of them that are fast.
    head : str
        The model, by name.
    """
    one_of(HEADS, head=head)
    if HEADS[head] == HEADS["auto"]:
        raise ValueError("algorithms are compared for one model, got head='auto'. Name it, for example head='linear'.")
    if algorithms is not None:
        named = [name for each in algorithms for name in (candidates if each == ALL else (each,))]
        for name in named:
            one_of([*ALGORITHMS, ALL], algorithm=name)
        return tuple(dict.fromkeys(named)), {}
    if HEADS[head].linear_in is Linearity.COLUMNS:
        return tuple(candidates), {}
    if HEADS[head].bins is not None:
        raise ValueError(
            f"every algorithm takes about a minute to fit a head of embeddings, and a comparison has many fits. Plan "
            f"with the head 'wide', or name what to try in algorithms, such as 'auto' or '{ALL}'."
        )
    reason = (
        f"left out, because it takes thousands of gradient steps to train a head of type '{head}'. Name it in "
        f"algorithms, or '{ALL}'; the comparison then takes minutes."
    )
    slow = {name: reason for name in candidates if name in SLOW_IF_NONLINEAR}
    return tuple(name for name in candidates if name not in slow), slow


def take_sample(
    public_features: PublicFeatures, units: Units | None, at_most: int
) -> tuple[PublicFeatures, Units | None]:
    """Enough records to tell algorithms apart; whole units, if there are any."""
    n = len(public_features)
    if n <= at_most:
        return public_features, units
    rng = np.random.default_rng(0)
    if units is None:
        chosen = np.sort(rng.choice(n, at_most, replace=False))
        return public_features[chosen], None
    taken = rng.permutation(units.num_units)
    taken = taken[: max(1, np.searchsorted(np.cumsum(units.sizes[taken]), at_most, side="right"))]
    chosen = np.flatnonzero(np.isin(units.codes, taken))
    return public_features[chosen], units[chosen]


def _list_unusable(setting: _Setting) -> Iterator[tuple[str, str]]:
    """Algorithms that refuse such data or such a model, with their reasons; names and types are all that counts."""
    schema = Schema.of(
        label="label",
        label_bounds=(0, 1),
        public=setting.public.names,
        private=setting.private,
        unit=None if setting.units is None else setting.units.name,
    )
    for name in setting.algorithms:
        if setting.delta == 0 and (ALGORITHMS[name].needs_delta or (name == "auto" and setting.private)):
            yield name, "it needs a delta above 0."
            continue
        try:
            ALGORITHMS[name].check(schema, HEADS[setting.head], setting.neighbouring)
        except (CondDPError, ValueError) as error:
            yield name, str(error)


def _compute(setting: _Setting, cell: _Cell) -> _Answer:
    """Simulate labels and fit every algorithm to them; the same labels and the same noise at every epsilon."""
    features = setting.public if setting.simulate_from is None else setting.simulate_from
    rows = setting.shared.get("rows of simulated labels", lambda: whiten(features))
    rng = np.random.default_rng((cell.family, cell.draw))
    simulated = simulate(features, FAMILIES[cell.family], rng, private=setting.private, units=setting.units, rows=rows)
    dataset, head = simulated.records, HEADS[setting.head]
    budgets = [PrivacyBudget(epsilon, setting.delta) for epsilon in setting.epsilons]
    optimum = NonPrivate().fit(dataset, budgets[0]).model
    reference = simulated.compute_error(optimum.predict(dataset.public, dataset.private))
    dataset = replace(dataset, public=setting.public)
    mean = np.full(dataset.num_records, dataset.label.values.mean())
    # The noise does not depend on the simulated labels, whose last bits differ between processors.
    source = RandomSource.for_neighbours(cell.family * 1009 + cell.draw)
    trials, errors, skipped = [Trial(dataset, budget, source) for budget in budgets], {}, {}
    for name in setting.algorithms:
        try:
            results = ALGORITHMS[name].fit_trials(
                trials, head=head, neighbouring=setting.neighbouring, shared=setting.shared
            )
        except NotCalibrated as error:
            skipped[name] = str(error)
            continue
        predictions = [result.model.predict(dataset.public, dataset.private) for result in results]
        errors[name] = tuple(simulated.compute_error(each) / reference for each in predictions)
    return _Answer(errors, simulated.compute_error(mean) / reference, skipped)


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))
