r"""Private least squares by a few noisy Newton steps, as used by CondNewton.

With whitened rows :math:`u_i`, the Newton step from :math:`\theta` is :math:`\tfrac1n \sum_i r_i u_i` with
:math:`r_i = y_i - \theta^\top u_i`. Each step releases this sum with clamped residuals, together with the mean square
of the residuals, which determines the next clip norm (:mod:`conddp.newton.release`). Direction weights, clip norms,
averaging and shrinkage are chosen from public rows, n, the budget, the declared bounds and earlier releases.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import Sliceable
from conddp.losses import Loss, Squared
from conddp.newton.posterior import Measurement
from conddp.newton.prior import Posterior
from conddp.newton.release import ResidualQuery, Rows, StepEstimate, release_residuals
from conddp.newton.run_state import RunState, count_noise_records
from conddp.newton.schedule import NewtonPlan
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator

__all__ = [
    "NewtonRun",
    "ResidualQuestion",
    "Steps",
    "count_noise_records",
    "run_newton",
    "take_steps",
]

Vector = NDArray[np.float64]
StepCallback = Callable[[int, Vector], bool | None]  # called with the number of a release and the new coefficients


@dataclass(frozen=True)
class NewtonRun:
    """Result of a run. Everything is released, except for private rows.

    Parameters
    ----------
    rows : PublicRows or PrivateRows
        Feature rows.
    coefficients : array of shape (k,)
        Coefficients of the directions.
    posterior : Posterior
        Posterior of the coefficients after all steps, relative to the start.
    measurement : Measurement
        What the releases say about the coefficients before shrinkage, relative to the start.
    clip_norms : tuple of float
        Clip norm of each step after the opening.
    residual_stds : tuple of float
        Estimated standard deviation of the residuals after each release.
    """

    rows: Rows
    coefficients: Vector
    posterior: Posterior
    measurement: Measurement
    clip_norms: tuple[float, ...]
    residual_stds: tuple[float, ...]


@dataclass(frozen=True)
class ResidualQuestion:
    """A release that a run asks for (:func:`~conddp.newton.release.release_residuals`).

    Parameters
    ----------
    rows : PublicRows or PrivateRows
        Feature rows.
    coefficients : array of shape (k,)
        Current coefficients, already released.
    query : ResidualQuery
        Parameters of the query.
    mu : float
        Sensitivity divided by the standard deviation of the noise.
    """

    rows: Rows
    coefficients: Vector
    query: ResidualQuery
    mu: float


Steps = Generator[ResidualQuestion, StepEstimate, NewtonRun]


def run_newton(
    rows: Rows,
    label: Sliceable,
    label_range: tuple[float, float],
    start: Vector,
    *,
    mu: float,
    curator: Curator,
    neighbouring: Neighbouring = Neighbouring.REPLACE,
    plan: NewtonPlan | None = None,
    loss: Loss | None = None,
    random_effects: bool = False,
    callback: StepCallback | None = None,
) -> NewtonRun:
    r"""Fit labels on whitened rows by private least squares.

    Privacy
        The releases compose to one Gaussian mechanism whose sensitivity is ``mu`` standard deviations. The fractions of
        :math:`\mu^2` are fixed in advance and add up to one, so later releases may depend on earlier ones. Labels and
        private rows are used in these releases only.

    Parameters
    ----------
    rows : PublicRows or PrivateRows
        Feature rows, shape (n, k).
    label : array of shape (n,)
        Labels in units of their range, within ``label_range``.
    label_range : (low, high)
        Declared bounds in the same units.
    start : array of shape (k,)
        Initial coefficients, which are also the target of shrinkage.
    mu : float
        Sensitivity divided by standard deviation, for all releases together.
    curator : Curator
        Curator through which the sums are released.
    neighbouring : Neighbouring
        Neighbouring relation for the sensitivities.
    plan : NewtonPlan, optional
        Constants of the method.
    loss : Loss, optional
        Loss to minimise; half the squared residual if None.
    random_effects : bool
        Whether coefficients are shrunk for the sampling error of the records even if noise is negligible, as rare
        levels of categories need it.
    callback : callable, optional
        Called after every release with its number and the coefficients. Return True to stop the run.
    """
    steps = take_steps(
        rows,
        start,
        mu=mu,
        label_range=label_range,
        neighbouring=neighbouring,
        plan=plan,
        random_effects=random_effects,
        callback=callback,
    )
    answer: StepEstimate | None = None
    while True:
        try:
            asked = steps.send(answer)  # type: ignore[arg-type]  # the first time, nothing has been asked
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # StopIteration does not know its type
        answer = release_residuals(
            asked.rows,
            label,
            label_range,
            asked.coefficients,
            asked.query,
            mu=asked.mu,
            neighbouring=neighbouring,
            curator=curator,
            loss=loss or Squared(),
        )


def take_steps(
    rows: Rows,
    start: Vector,
    *,
    mu: float,
    label_range: tuple[float, float],
    neighbouring: Neighbouring = Neighbouring.REPLACE,
    plan: NewtonPlan | None = None,
    random_effects: bool = False,
    callback: StepCallback | None = None,
) -> Steps:
    """Ask one question after the other and learn from the answers, as :func:`run_newton` and several runs together do.

    Privacy
        Sees answers only, which have been released. The caller releases them through a curator, with the parameter
        ``mu`` of each question.

    Parameters
    ----------
    rows, start, mu, label_range, neighbouring, plan, random_effects, callback
        As in :func:`run_newton`.
    """
    plan = plan or NewtonPlan()
    fractions = plan.divide_budget(count_noise_records(rows))
    run = RunState(rows, start, mu, neighbouring, plan, fractions, label_range, random_effects=random_effects)
    for number, fraction in enumerate(run.fractions):
        query = run.ask_opening(number) if number < 2 else run.ask_step(number)
        answer = yield ResidualQuestion(run.rows, run.coefficients, query, mu * math.sqrt(fraction))
        if number < 2:
            run.learn_opening(number, answer)
        else:
            run.learn_step(query, answer)
        if callback is not None and callback(number + 1, run.coefficients):
            break
    return NewtonRun(
        run.rows,
        run.coefficients,
        run.running.posterior,
        run.measure(),
        tuple(run.clip_norms),
        tuple(run.residual_stds),
    )
