"""Automatic choice of the algorithm, from public information only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from conddp._validate import positive_integer
from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.cond_dp import CondDP
from conddp.algorithms.cond_newton import CondNewton
from conddp.algorithms.private_mean import PrivateMean
from conddp.algorithms.randomized_labels import RROnBins
from conddp.algorithms.switch_cond_dp import SwitchCondDP
from conddp.algorithms.task import Task
from conddp.algorithms.trial import Shared, Trial
from conddp.data.parts import PublicFeatures
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.data.units import Units
from conddp.errors import PrivacyError
from conddp.features.stored_features import StoredFeatures
from conddp.heads.head import Head, Linearity
from conddp.labels.simulation import FAMILIES, simulate
from conddp.models.result import FitResult
from conddp.newton.schedule import NewtonPlan
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.transcript import Transcript

__all__ = ["Auto", "Choice"]

_IN_FEATURES = {Linearity.COLUMNS: "", Linearity.FEATURES: " in fixed features", Linearity.LEARNED: " in its features"}
LABELS_AT_ONCE = 2**22  # simulated labels that are kept in memory, to fit several sets of them together


@dataclass(frozen=True)
class Choice:
    """The chosen algorithm and the reason for the choice.

    Parameters
    ----------
    algorithm : Algorithm
        Algorithm to use.
    reason : str
        Clause that continues a sentence after "because".
    errors : mapping
        Expected squared error of each simulated candidate, in units of the residual variance: the geometric mean over
        all simulated labels. Empty if nothing was simulated.
    worst_cases : mapping
        Largest ratio of each candidate's error to the error of the best candidate on the same labels.
    """

    algorithm: Algorithm
    reason: str
    errors: Mapping[str, float] = field(default_factory=dict)
    worst_cases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Auto(Algorithm):
    """Choose the algorithm by fixed rules, or by comparing candidates on simulated labels.

    Privacy
        The choice depends on the roles of the columns, the public columns, n, the head, the budget and the declared
        bounds. It never depends on a label or a private column, so it costs nothing; the ledger records it as free.

    Parameters
    ----------
    num_simulations : int
        Number of draws from each family of simulated labels, on the actual public columns. The candidates differ in
        algorithm and settings (number of steps, hidden units). The one with the lowest product of mean error and
        worst-case ratio is used. With 0, the choice follows fixed rules, which were derived on simulated labels. So it
        does if features are learned, as by the head "learned", "additive" and often "auto": only CondNewton can do it.
    """

    summary: ClassVar[str] = "chooses from public information only and gives its reason"
    page: ClassVar[str] = "algorithms/auto.md"
    protects: ClassVar[str] = "as its choice"
    protects_units: ClassVar[bool] = True
    weighs_records: ClassVar[bool] = True
    takes_codes: ClassVar[bool] = True
    learns_features: ClassVar[bool] = True

    num_simulations: int = 0

    def __post_init__(self) -> None:
        if self.num_simulations:
            positive_integer(num_simulations=self.num_simulations)

    @property
    def needs_delta(self) -> bool:
        """False: with delta = 0 a pure algorithm is chosen."""
        return False

    def needs_dense(self, schema: Schema, head: Head) -> bool:
        """Return False: the algorithm that is chosen decides."""
        return False

    def reads_blocks(self, public_features: PublicFeatures, head: Head) -> bool:
        """Return whether the head is linear in the columns, so that CondNewton is chosen unless delta is 0."""
        return head.linear_in is Linearity.COLUMNS

    def run(self, task: Task) -> FitResult:
        """Choose an algorithm and run it."""
        choice, task = self._prepare_choice(task)
        return _describe_choice(choice, choice.algorithm.run(task))

    def run_together(self, tasks: Sequence[Task]) -> list[FitResult]:
        """Choose algorithms, and run tasks with the same choice together."""
        chosen = [self._prepare_choice(task) for task in tasks]
        results: dict[int, FitResult] = {}
        for algorithm in [choice.algorithm for choice, _ in chosen]:
            numbers = [
                number
                for number, (choice, _) in enumerate(chosen)
                if number not in results and choice.algorithm == algorithm
            ]
            if numbers:
                results |= zip(numbers, algorithm.run_together([chosen[number][1] for number in numbers]), strict=True)
        return [_describe_choice(choice, results[number]) for number, (choice, _) in enumerate(chosen)]

    def _prepare_choice(self, task: Task) -> tuple[Choice, Task]:
        """Choose an algorithm; return the choice and the task for it."""
        choice = self.choose(
            task.public,
            task.schema,
            task.budget,
            task.head,
            fit_intercept=task.fit_intercept,
            neighbouring=task.neighbouring,
            units=task.units,
            weights=task.weights,
        )
        algorithm, name = choice.algorithm, type(choice.algorithm).__name__
        algorithm.check(task.schema, task.head, task.neighbouring, task.loss)
        if isinstance(task.public, StoredFeatures) and not algorithm.reads_blocks(task.public, task.head):
            task = replace(task, public=task.public.load())
        if algorithm.needs_dense(task.schema, task.head):
            task.public.check_dense()
        sentence = f"{name} was chosen because {choice.reason}; no private value took part in the choice."
        task.note_free("choice of algorithm", sentence)
        return choice, replace(task, name=name, choice=sentence)

    def choose(
        self,
        public: PublicFeatures,
        schema: Schema,
        budget: PrivacyBudget,
        head: Head,
        *,
        fit_intercept: bool = True,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
        units: Units | None = None,
        weights: NDArray[np.float64] | None = None,
    ) -> Choice:
        """Choose the algorithm for these columns, this budget and this head.

        Privacy
            Reads public columns, the unit column, weights, names and n only: no cost.
        """
        if budget.delta == 0 and schema.private:
            raise PrivacyError(
                "no algorithm protects private columns with delta = 0, which Gaussian noise cannot give. Choose delta "
                "well below one over the number of records, or leave the private columns out."
            )
        if head.num_codes and budget.delta > 0:
            return Choice(
                SwitchCondDP(),
                "the head looks up bins of categories, which cannot be multiplied by a matrix: it starts from a table "
                "that is made from the public bins",
            )
        if schema.private and head.linear_in is Linearity.NOTHING:
            return Choice(
                CondDP(),
                "some columns are private and the head is not linear in fixed features: it conditions the public "
                "columns and clips gradients of all; with the head wide, CondNewton is usually more accurate",
            )
        if schema.private:
            return Choice(
                CondNewton(),
                f"the head is linear{_IN_FEATURES[head.linear_in]}: curvature along public columns is known exactly, "
                "and along private ones it is released once",
            )
        if budget.delta == 0 and head.linear_in is Linearity.LEARNED:
            raise PrivacyError(
                f"no algorithm learns features with delta = 0, which Gaussian noise cannot give, got head={head}. "
                "Choose delta well below one over the number of records, or another head."
            )
        if budget.delta == 0:
            return Choice(RROnBins(), "delta is 0, which Gaussian noise cannot give")
        if self.num_simulations and head.linear_in is not Linearity.LEARNED:
            return self._simulate(public, budget, head, fit_intercept, neighbouring, units, weights)
        reason = "all features are public, so that curvature is known exactly and only sums of residuals need noise"
        if head.linear_in is Linearity.NOTHING:
            reason += ": it learns features from what its Newton steps release, and the head from the predictions"
        if head.linear_in is Linearity.LEARNED:
            reason += ": it learns features from what its Newton steps release"
        if self.num_simulations:  # the other candidates cannot fit such a head
            reason += "; no labels were simulated, because no other algorithm learns features"
        return Choice(CondNewton(), reason)

    def settle(
        self,
        records: Records,
        budget: PrivacyBudget,
        *,
        head: Head,
        fit_intercept: bool,
        neighbouring: Neighbouring,
    ) -> "SettledAuto":
        """Make the choice now, for several fits on the same public columns with this budget each."""
        choice = self.choose(
            records.public,
            records.schema,
            budget,
            head,
            fit_intercept=fit_intercept,
            neighbouring=neighbouring,
            units=records.units,
            weights=records.weights,
        )
        return SettledAuto(num_simulations=self.num_simulations, choice=choice)

    def _simulate(
        self,
        public: PublicFeatures,
        budget: PrivacyBudget,
        head: Head,
        fit_intercept: bool,
        neighbouring: Neighbouring,
        units: Units | None,
        weights: NDArray[np.float64] | None,
    ) -> Choice:
        candidates: dict[str, Algorithm] = {
            f"CondNewton with {num_steps} steps": CondNewton(plan=NewtonPlan(num_steps=num_steps))
            for num_steps in (12, 24)
        }
        if neighbouring is Neighbouring.REPLACE:
            candidates["RROnBins"] = RROnBins()
        if head.linear_in is Linearity.COLUMNS and fit_intercept:
            candidates["PrivateMean"] = PrivateMean()
        rng, shared = np.random.default_rng(0), Shared(briefly=head.linear_in is Linearity.NOTHING)
        errors: dict[str, list[float]] = {name: [] for name in candidates}
        drawn = [(family, seed) for family in FAMILIES for seed in range(self.num_simulations)]
        at_once = max(1, LABELS_AT_ONCE // len(public))
        for start in range(0, len(drawn), at_once):
            simulations, trials = [], []
            for family, seed in drawn[start : start + at_once]:
                simulated = simulate(public, family, rng, constant=fit_intercept, units=units)
                source = RandomSource.for_neighbours(seed)  # the last bits of labels depend on the processor
                simulations.append(simulated)
                trials.append(Trial(replace(simulated.records, weights=weights), budget, source))
            for name, algorithm in candidates.items():
                results = algorithm.fit_trials(
                    trials, head=head, neighbouring=neighbouring, fit_intercept=fit_intercept, shared=shared
                )
                errors[name] += [
                    simulated.compute_error(result.model.predict(public))
                    for simulated, result in zip(simulations, results, strict=True)
                ]
        means = {name: float(np.exp(np.mean(np.log(each)))) for name, each in errors.items()}
        lowest = np.min(list(errors.values()), axis=0)  # lowest error of all candidates on each set of labels
        worst = {name: float(np.max(np.divide(each, lowest))) for name, each in errors.items()}
        best = min(means, key=lambda name: means[name] * worst[name])
        listed = ", ".join(f"{name} {means[name]:.3f} and {worst[name]:.2f}" for name in candidates)
        reason = (
            f"on {len(lowest)} sets of simulated labels the product of its mean error and its worst case was lowest: "
            f"{listed} (the mean in units of the residual variance; the worst case over the best candidate's error)"
        )
        return Choice(candidates[best], reason, means, worst)


def _describe_choice(choice: Choice, result: FitResult) -> FitResult:
    """Add the choice to the settings of a result."""
    name = type(choice.algorithm).__name__
    simulated = {"simulated_errors": dict(choice.errors), "simulated_worst_cases": dict(choice.worst_cases)}
    return replace(result, settings={"algorithm": name, **simulated, **result.settings})


@dataclass(frozen=True, kw_only=True)
class SettledAuto(Auto):
    """An automatic choice that was made before, so that several fits use the same algorithm.

    Parameters
    ----------
    choice : Choice
        The choice.
    """

    choice: Choice

    @property
    def title(self) -> str:
        """Name in ledgers and messages: that of the algorithm that the user named."""
        return Auto.__name__

    def foresee(
        self, budget: PrivacyBudget, records: Records, *, head: Head, neighbouring: Neighbouring
    ) -> Transcript | None:
        """Return the event of the chosen algorithm."""
        return self.choice.algorithm.foresee(budget, records, head=head, neighbouring=neighbouring)

    def choose(self, *arguments: Any, **settings: Any) -> Choice:
        """Return the choice."""
        return self.choice


ALGORITHMS.add("auto", Auto())
