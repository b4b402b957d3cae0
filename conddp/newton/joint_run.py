"""Several Newton runs on the same public rows, whose sums are computed in one pass of matrix products."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import BLOCK_SIZE, get_executor, run_in_order
from conddp.features.rounded_rows import RoundedRows
from conddp.features.whitening import WhitenedRows
from conddp.losses import Loss
from conddp.newton.error_function import compute_error_function
from conddp.newton.release import (
    BLOCKS_FOR_CURVATURE,
    ResidualSums,
    Rows,
    StepEstimate,
    release_residuals,
    release_sums,
)
from conddp.newton.run import NewtonRun, ResidualQuestion, StepCallback, take_steps
from conddp.newton.schedule import NewtonPlan
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator

__all__ = ["RunStart", "can_join", "run_jointly", "sum_jointly"]

Vector = NDArray[np.float64]

CELLS_AT_ONCE = 2**16  # of the rows of a block, which are used four times and should stay in the cache
FEWEST_ROWS, MOST_ROWS = 128, 4096


@dataclass(frozen=True)
class RunStart:
    """Inputs of one of several runs, as in :func:`~conddp.newton.run.run_newton`. The repr shows no label."""

    rows: Rows
    label: Any
    label_range: tuple[float, float]
    start: Vector
    mu: float
    curator: Curator
    callback: StepCallback | None = None

    def __repr__(self) -> str:
        return f"RunStart({self.rows.num_records} records, mu={self.mu:g})"


def run_jointly(
    starts: Sequence[RunStart],
    *,
    neighbouring: Neighbouring,
    plan: NewtonPlan,
    loss: Loss,
    random_effects: bool = False,
) -> list[NewtonRun]:
    """Make several runs, with the results of :func:`~conddp.newton.run.run_newton` up to rounding.

    Runs on the same rows compute their sums together (:func:`sum_jointly`), and others one after the other.

    Privacy
        Every run makes the releases of :func:`~conddp.newton.run.run_newton` through a curator of its own.

    Parameters
    ----------
    starts : sequence of RunStart
        Inputs of the runs.
    neighbouring, plan, loss, random_effects
        As in :func:`~conddp.newton.run.run_newton`, the same for all runs.
    """
    steps = [
        take_steps(
            each.rows,
            each.start,
            mu=each.mu,
            label_range=each.label_range,
            neighbouring=neighbouring,
            plan=plan,
            random_effects=random_effects,
            callback=each.callback,
        )
        for each in starts
    ]
    asked, runs = {number: next(each) for number, each in enumerate(steps)}, dict[int, NewtonRun]()
    while asked:
        answers: dict[int, StepEstimate] = {}
        by_rows: dict[int, dict[int, ResidualQuestion]] = {}
        for number, each in asked.items():
            by_rows.setdefault(id(each.rows), {})[number] = each
        for questions in by_rows.values():
            some = [starts[number] for number in questions]
            answered = _answer(list(questions.values()), some, neighbouring=neighbouring, loss=loss)
            answers |= zip(questions, answered, strict=True)
        for number, answer in answers.items():
            try:
                asked[number] = steps[number].send(answer)
            except StopIteration as end:
                runs[number] = end.value
                del asked[number]
    return [runs[number] for number in range(len(starts))]


def _answer(
    questions: Sequence[ResidualQuestion], starts: Sequence[RunStart], *, neighbouring: Neighbouring, loss: Loss
) -> list[StepEstimate]:
    """Release the answers to questions on the same rows."""
    label_range, rows = starts[0].label_range, questions[0].rows
    if can_join(rows) and all(each.label_range == label_range for each in starts):
        labels = [each.label for each in starts]
        sums = sum_jointly(questions, labels, label_range, neighbouring=neighbouring, loss=loss)
        return [
            release_sums(summed, rows, each.query, mu=each.mu, neighbouring=neighbouring, curator=start.curator)
            for summed, each, start in zip(sums, questions, starts, strict=True)
        ]
    return [
        release_residuals(
            each.rows,
            start.label,
            start.label_range,
            each.coefficients,
            each.query,
            mu=each.mu,
            neighbouring=neighbouring,
            curator=start.curator,
            loss=loss,
        )
        for each, start in zip(questions, starts, strict=True)
    ]


def can_join(rows: Rows) -> bool:
    """Whether sums of several runs over these rows can be computed together.

    They can if the rows are public, in memory, without weights, and so few that all of them count for the curvature.
    """
    return (
        isinstance(rows, (WhitenedRows, RoundedRows))
        and rows.weights is None
        and rows.num_records < 2 * BLOCK_SIZE * BLOCKS_FOR_CURVATURE
        and get_executor() is run_in_order
    )


@np.errstate(all="ignore")  # warnings must not depend on labels
def sum_jointly(
    questions: Sequence[ResidualQuestion],
    labels: Sequence[Vector],
    label_range: tuple[float, float],
    *,
    neighbouring: Neighbouring,
    loss: Loss,
) -> list[ResidualSums]:
    """Sum up the questions of K runs on the same rows, for which :func:`can_join` is true.

    The sums are those of :func:`~conddp.newton.release.release_residuals` up to rounding: products of the rows with K
    vectors at once take little longer than with one vector.

    Privacy
        Releases nothing. Every sum has the bounds of its own question, from public values only, and must be released
        through a curator (:func:`~conddp.newton.release.release_sums`).

    Parameters
    ----------
    questions : sequence of K ResidualQuestion
        The questions, with the same rows.
    labels : sequence of K arrays of shape (n,)
        Labels of every run, within ``label_range``.
    label_range : (low, high)
        Declared bounds in the units of the labels.
    neighbouring : Neighbouring
        Neighbouring relation for the sensitivities.
    loss : Loss
        Loss that defines the residuals.
    """
    rows, queries = questions[0].rows, [each.query for each in questions]
    assert isinstance(rows, (WhitenedRows, RoundedRows))
    (n, k), K = rows.values.shape, len(questions)
    coefficients = np.stack([each.coefficients for each in questions])
    direction_weights = np.stack([query.direction_weights for query in queries])
    clip_norms, residual_stds, square_limits = (
        np.array([[getattr(query, name)] for query in queries])
        for name in ("clip_norm", "residual_std", "square_limit")
    )
    totals, curvatures, squares, farthest = np.zeros((K, k)), np.zeros((K, k)), np.zeros(K), np.zeros(K)
    label = _stack(labels)
    at_once = min(max(CELLS_AT_ONCE // k, FEWEST_ROWS), MOST_ROWS)
    for start in range(0, n, at_once):
        span = slice(start, start + at_once)
        block = rows.values[span].astype(np.float64, copy=False)
        squared = block * block
        predicted, norms = coefficients @ block.T, np.sqrt(direction_weights @ squared.T)
        limits = clip_norms / np.maximum(norms, 1e-12)
        residuals = loss.residual(predicted, np.clip(label[:, span], *label_range))
        totals += np.clip(residuals, -limits, limits) @ block
        squares += np.minimum(residuals**2, square_limits**2).sum(axis=1)
        low, high = (np.clip(end, -limits, limits) for end in loss.residual_ends(predicted, label_range))
        moves = high - low if neighbouring is Neighbouring.REPLACE else np.maximum(np.abs(low), np.abs(high))
        farthest = np.maximum(farthest, (moves * norms).max(axis=1))  # NaN if either is NaN
        left = compute_error_function(limits / (math.sqrt(2.0) * residual_stds))
        curvatures += (left * loss.curvature(predicted)) @ squared
    most = [neighbouring.sensitivity(query.clip_norm) for query in queries]
    return [
        ResidualSums(total, float(square), float(far) if far <= limit else limit, curvature / n)
        for total, square, far, limit, curvature in zip(totals, squares, farthest, most, curvatures, strict=True)
    ]


def _stack(labels: Sequence[Vector]) -> Vector:
    """Labels of all runs, shape (K, n), or (1, n) if all runs have the same."""
    first = labels[0]
    return first[None] if all(each is first for each in labels) else np.stack(labels)
