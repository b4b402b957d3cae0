"""Tuned: the best of several candidates by a private score, with the price of the choice accounted for."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from conddp._validate import in_range, one_of
from conddp.algorithms.algorithm import ALGORITHMS, Algorithm
from conddp.algorithms.task import Task
from conddp.data.passes import run_pass
from conddp.data.records import Records
from conddp.data.scaling import scale_label
from conddp.data.schema import Schema
from conddp.errors import PrivacyError
from conddp.heads.head import Head
from conddp.losses import Loss
from conddp.models.result import FitResult
from conddp.privacy.accounting import compute_gaussian_epsilon
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from conddp.privacy.selection import RunDistribution, calibrate_selection_mu, draw_num_runs
from conddp.privacy.transcript import GaussianRelease, Transcript

__all__ = ["Tuned", "TuningPrice"]

LARGEST_RESIDUAL = 0.25  # residuals are clamped to this fraction of the label range before they are squared


@dataclass(frozen=True)
class TuningPrice:
    """What choosing among candidates costs: the budget that is left for one run. Printing it gives a sentence.

    Parameters
    ----------
    budget : PrivacyBudget
        Budget of the whole choice.
    run : PrivacyBudget
        Budget of the fit of one candidate.
    mu : float
        Sensitivity of one run with its score, in standard deviations.
    expected_runs : float
        Expected number of runs.
    """

    budget: PrivacyBudget
    run: PrivacyBudget
    mu: float
    expected_runs: float

    def __str__(self) -> str:
        return (
            f"Of {self.budget}, the fit of each candidate gets epsilon={self.run.epsilon:.3g}. The rest pays for noisy "
            f"scores and for choosing the best of {self.expected_runs:g} runs on average."
        )


@dataclass(frozen=True, kw_only=True)
class Tuned(Algorithm):
    """Fit randomly drawn candidates, score each with noise, and release the best one only.

    This is repeat-and-select (Papernot and Steinke, arXiv 2110.03620): the honest price of tuning on private labels.
    Each run gets less than half of the budget, so a candidate must be much better than the defaults to be worth it.
    Choosing on simulated labels (``conddp compare``) is free.

    Parameters
    ----------
    candidates : sequence of Algorithm or str
        Algorithms to choose from, as instances or by name. They must release full-batch Gaussian sums, like
        :class:`CondNewton`, :class:`OneShot`, and :class:`CondDP` or :class:`DPSGD` without ``batch_size``.
    expected_runs : float
        Expected number of runs. Every run draws one of the candidates.
    distribution : {"geometric", "logarithmic"}
        Distribution of the number of runs. The logarithmic one is cheaper, but more often makes only one or two runs.
    score_fraction : float
        Fraction of the squared Gaussian parameter of a run that pays for its score.
    """

    summary: ClassVar[str] = "the best of several candidates by a private score"
    page: ClassVar[str] = "algorithms/tuned.md"
    keeps_checkpoints: ClassVar[bool] = False
    protects_units: ClassVar[bool] = True  # if all candidates do, which are asked too
    weighs_records: ClassVar[bool] = True  # likewise

    candidates: tuple[Algorithm, ...]
    expected_runs: float = 10.0
    distribution: RunDistribution = "geometric"
    score_fraction: float = 0.2

    def __post_init__(self) -> None:
        if isinstance(self.candidates, (str, Algorithm)) or not self.candidates:
            raise ValueError("candidates must be several algorithms, such as (CondDP(clip_norm=0.1), CondNewton()).")
        object.__setattr__(self, "candidates", tuple(ALGORITHMS.resolve(each) for each in self.candidates))
        one_of(("geometric", "logarithmic"), distribution=self.distribution)
        in_range(1.01, 1000.0, expected_runs=self.expected_runs)
        in_range(0.01, 0.9, score_fraction=self.score_fraction)

    def check(self, schema: Schema, head: Head, neighbouring: Neighbouring, loss: Loss | None = None) -> None:
        """Raise unless every candidate supports these columns, head, relation and loss."""
        super().check(schema, head, neighbouring, loss)
        for candidate in self.candidates:
            candidate.check(schema, head, neighbouring, loss)

    def check_weights(self) -> None:
        """Raise unless every candidate uses weights of records."""
        for candidate in self.candidates:
            candidate.check_weights()

    def needs_dense(self, schema: Schema, head: Head) -> bool:
        """Return whether any candidate does."""
        return any(each.needs_dense(schema, head) for each in self.candidates)

    def expect(self, budget: PrivacyBudget) -> None:
        """Return None: the cost adds by basic composition."""

    def compute_price(self, budget: PrivacyBudget) -> TuningPrice:
        """Compute what a budget leaves for one run. Reads no data.

        Examples
        --------
        >>> from conddp.algorithms import CondNewton, OneShot
        >>> price = Tuned(candidates=(CondNewton(), OneShot())).compute_price(PrivacyBudget(1.0, 1e-6))
        >>> str(price)[:86]
        'Of epsilon=1 at delta=1e-06, the fit of each candidate gets epsilon=0.394. The rest pa'
        """
        mu = calibrate_selection_mu(
            budget.epsilon, budget.delta, expected_runs=self.expected_runs, distribution=self.distribution
        )
        epsilon = compute_gaussian_epsilon(mu * math.sqrt(1 - self.score_fraction), budget.delta)
        price = TuningPrice(budget, PrivacyBudget(epsilon, budget.delta), mu, self.expected_runs)
        for candidate in self.candidates:
            self._check_releases(candidate.expect(price.run) or Transcript(), price)
        return price

    def run(self, task: Task) -> FitResult:
        """Draw the number of runs, fit and score candidates, and release the best.

        Privacy
            Every run is a Gaussian mechanism with parameter mu, of which ``score_fraction`` of the square pays for the
            score: the sum of squared residuals, each clamped. One record changes it by at most the square of the
            largest residual, under both relations; a unit, by that times its number of records, or times the sum of
            their weights. Only the best run is released; its cost is
            :func:`~conddp.privacy.selection.compute_selection_delta`.
        """
        price = self.compute_price(task.budget)
        settings = {
            "candidates": [repr(each) for each in self.candidates],
            "expected_runs": self.expected_runs,
            "distribution": self.distribution,
            "run_epsilon": price.run.epsilon,
            "score_fraction": self.score_fraction,
        }
        records = task.spend("the best of a random number of private fits, by a private score", settings)
        rng = task.make_generator("selection")
        best: tuple[float, int, FitResult] | None = None
        for number in range(draw_num_runs(self.expected_runs, self.distribution, rng)):
            chosen = int(rng.integers(len(self.candidates)))
            source = task.random_source.bind([b"run", str(number).encode()])
            result = self.candidates[chosen].fit(
                records,
                price.run,
                head=task.head,
                loss=task.loss,
                neighbouring=task.neighbouring,
                fit_intercept=task.fit_intercept,
                random_source=source,
            )
            self._check_releases(result.transcript, price)
            curator = Curator(source.generator("score"), num_records=task.num_records)
            score = _release_score(result, records, price.mu * math.sqrt(self.score_fraction), curator)
            if best is None or score > best[0]:
                best = score, chosen, result
        assert best is not None
        _, chosen, result = task.curator.release_selected(
            best,
            mu=price.mu,
            expected_runs=self.expected_runs,
            distribution=self.distribution,
            what="the best of several private fits",
        )
        settings |= {"chosen": repr(self.candidates[chosen]), **{f"chosen_{k}": v for k, v in result.settings.items()}}
        return task.finish(result.model, settings, diagnostics=result.diagnostics)

    def _check_releases(self, releases: Transcript, price: TuningPrice) -> None:
        """Raise unless a run is the Gaussian mechanism that its price assumes."""
        full_batch = [each for each in releases if isinstance(each, GaussianRelease) and each.sampling_probability == 1]
        squared = sum(each.mu**2 for each in full_batch)
        if (
            not full_batch
            or len(full_batch) < len(releases.releases)
            or squared > price.mu**2 * (1 - self.score_fraction) * (1 + 1e-6)
        ):
            raise PrivacyError(
                "candidates of Tuned must release full-batch Gaussian sums only, within the budget of a run. Leave out "
                "batch_size, and algorithms that randomise labels."
            )


def _release_score(result: FitResult, records: Records, mu: float, curator: Curator) -> float:
    """Negative sum of squared residuals, with noise. It is not released: only the best run is."""
    model, bounds = result.model, records.label.bounds
    private, weights = records.private, records.weights

    def sum_block(span: slice, public: object, label: object) -> float:
        predicted = model.predict(records.public[span], None if private is None else private[span])
        scaled = (predicted - bounds.midpoint) / bounds.width
        residuals = (scaled - scale_label(records.label[span])).clip(-LARGEST_RESIDUAL, LARGEST_RESIDUAL)
        return float(residuals @ residuals if weights is None else residuals**2 @ weights[span])

    total = run_pass(sum_block, records.public, records.label)
    sensitivity = LARGEST_RESIDUAL**2 * (1 if records.units is None else records.units.largest)
    if weights is not None:
        totals = weights if records.units is None else records.units.add_up(weights)
        sensitivity = LARGEST_RESIDUAL**2 * float(totals.max())
    squares = BoundedSum(np.array([total]), sensitivity, "squared residuals")
    return -float(curator.release_gaussian(squares, noise_std=sensitivity / mu)[0])
