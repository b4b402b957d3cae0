r"""Widths of coefficient intervals to expect, from fits to simulated labels before anything is read or spent.

Labels are simulated on the public columns with an assumed standard deviation, linear in the columns with R² 0.5 and
with normal residuals. Fits with the default algorithm give the parts of the standard errors. The sampling error of n
records is proportional to :math:`1 / \sqrt{n}`. Noise and the bias from clamping depend on the product of n and the
Gaussian parameter :math:`\mu`, but not in proportion, because a fit with less noise clamps less. So fits are made with
several multiples of :math:`\mu`, and say which n or which epsilon would halve an interval.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.cond_newton import CondNewton
from conddp.algorithms.trial import Shared, Trial
from conddp.categories import Categories
from conddp.data.parts import Domain, PublicFeatures
from conddp.data.scaling import private_unit
from conddp.data.units import Units
from conddp.features.grouped_rows import whiten
from conddp.labels.simulation import Family, simulate
from conddp.models.result import FitResult
from conddp.models.uncertainty import compute_quantile
from conddp.privacy.accounting import calibrate_gaussian_mu, compute_gaussian_epsilon
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource

__all__ = ["ExpectedCoefficients", "expect_coefficients"]

Vector = NDArray[np.float64]

DEVIATIONS = (1 / 4, 1 / 8, 1 / 16)  # of the label, as parts of its declared range
R2 = 0.5
NUM_SIMULATIONS = 5  # of each spread
QUANTILE = compute_quantile(0.95)
FACTORS = (1.0, 2.0, 4.0, 16.0)  # multiples of the Gaussian parameter that are tried
LARGEST_MU = 20.0  # of a simulated fit; more has nearly no noise
LARGEST_EPSILON, LARGEST_FACTOR = 100.0, 2.0**20


@dataclass(frozen=True)
class ExpectedCoefficients:
    """Half-widths of 95 % intervals of coefficients, for the population, and what would halve them.

    Parameters
    ----------
    deviation : float
        Assumed standard deviation of the label, as a part of its declared range.
    half_widths : tuple of float
        For each column, as parts of the declared range per unit of the column.
    scaled_half_widths : tuple of float
        The same per standard deviation of the column; for a private number, of a uniform one over its range, and for
        the level of a private category, per level.
    more_records : float or None
        Number of records that would halve the median of the scaled half-widths. None if no number is known to do.
    more_epsilon : float or None
        Epsilon that would halve it. None if sampling alone makes it wider, or if no epsilon up to 100 does.
    """

    deviation: float
    half_widths: tuple[float, ...]
    scaled_half_widths: tuple[float, ...]
    more_records: float | None
    more_epsilon: float | None

    @property
    def median(self) -> float:
        """Median of the scaled half-widths of columns that vary."""
        return self.scaled_half_widths[self.order[len(self.order) // 2]]

    @property
    def order(self) -> tuple[int, ...]:
        """Places of the columns that vary, those with the widest scaled intervals first."""
        varying = [place for place, width in enumerate(self.scaled_half_widths) if width > 0]
        return tuple(sorted(varying, key=lambda place: -self.scaled_half_widths[place]))


def expect_coefficients(
    sample: PublicFeatures,
    num_records: int,
    budget: PrivacyBudget,
    *,
    deviations: Sequence[float],
    private: Mapping[str, Domain] | None = None,
    neighbouring: Neighbouring = Neighbouring.REPLACE,
    units: Units | None = None,
) -> tuple[ExpectedCoefficients, ...]:
    """Compute the widths to expect of the default algorithm with a linear head, for three spreads of the label.

    Privacy
        Sees public columns and declared bounds only: no cost. Labels and private columns are simulated.

    Parameters
    ----------
    sample : PublicFeatures
        The public features, or those of a sample of the records.
    num_records : int
        Number of records of the planned fit.
    budget : PrivacyBudget
        Budget of the planned fit.
    deviations : sequence of float
        Standard deviation of each public column.
    private : mapping, optional
        Declared ranges or categories of the private columns, by name.
    neighbouring : Neighbouring
        Neighbouring relation.
    units : Units, optional
        Units of the records of the sample.
    """
    mu, part = calibrate_gaussian_mu(budget.epsilon, budget.delta), num_records / len(sample)
    rows, records = whiten(sample), []
    for deviation in DEVIATIONS:
        family = Family(R2, 0.5, spread=deviation)
        for seed in range(NUM_SIMULATIONS):
            rng = np.random.default_rng(seed)
            records.append(simulate(sample, family, rng, private=private, units=units, rows=rows).records)
    shared, found = Shared(), []
    for factor in FACTORS:
        wanted = mu * part * factor  # as much noise in a sample as all records will have
        simulated = max(min(wanted, LARGEST_MU), mu)
        cost = PrivacyBudget(max(compute_gaussian_epsilon(simulated, budget.delta), budget.epsilon), budget.delta)
        trials = [
            Trial(each, cost, RandomSource.for_neighbours(place % NUM_SIMULATIONS))
            for place, each in enumerate(records)
        ]
        results = CondNewton().fit_trials(trials, neighbouring=neighbouring, shared=shared)
        if any(result.uncertainty is None for result in results):
            return ()
        found.append([_measure(result, simulated / wanted, 1 / math.sqrt(part)) for result in results])
    errors = np.median(np.reshape(found, (len(FACTORS), len(DEVIATIONS), NUM_SIMULATIONS, 3, -1)), axis=2)
    scales = np.array([*deviations, *_list_private_units(private or {})])
    return tuple(
        _describe(_Errors.of(errors[:, place]), scales, deviation, num_records, mu, budget.delta)
        for place, deviation in enumerate(DEVIATIONS)
    )


def _measure(result: FitResult, noise: float, sampling: float) -> Vector:
    """Noise with bias, sampling error, and bound of all coefficients but the intercept, the first two times factors."""
    found = result.estimate_coefficients()[1].take(slice(None, -1))
    return np.array([noise * np.hypot(found.noise_std, found.bias_std), sampling * found.sampling_std, found.bound])


def _list_private_units(private: Mapping[str, Domain]) -> list[float]:
    """Scales of the terms of private columns."""
    return [
        scale
        for domain in private.values()
        for scale in ([1.0] * len(domain) if isinstance(domain, Categories) else [private_unit(domain)])
    ]


@dataclass(frozen=True, eq=False)
class _Errors:
    """Parts of the standard errors of coefficients.

    Parameters
    ----------
    noise, bound : arrays of shape (F, m)
        Noise with bias, and what directions that were not measured may add, for each of :data:`FACTORS`.
    sampling : array of shape (m,)
        Sampling error.
    """

    noise: Vector
    bound: Vector
    sampling: Vector

    @classmethod
    def of(cls, parts: Vector) -> "_Errors":
        """Take the parts of shape (F, 3, m). Noise does not grow with the factor, except by chance."""
        noise, bound = (np.minimum.accumulate(parts[:, place]) for place in (0, 2))
        return cls(noise, bound, parts[0, 1])

    def compute_half_widths(self) -> Vector:
        """Half-widths of the intervals."""
        return np.asarray(QUANTILE * np.hypot(self.noise[0], self.sampling) + self.bound[0])

    def compute_half_width(self, place: int, records: float, mu: float) -> float:
        """Half-width of an interval with so many times the records and the Gaussian parameter."""
        factor, tried = records * mu, np.log(FACTORS)
        noise = math.exp(np.interp(math.log(factor), tried, np.log(np.maximum(self.noise[:, place], 1e-300))))
        noise *= min(1.0, FACTORS[-1] / factor)
        bound = float(np.interp(math.log(factor), tried, self.bound[:, place]))
        return QUANTILE * math.hypot(noise, float(self.sampling[place]) / math.sqrt(records)) + bound


def _describe(
    errors: _Errors, scales: Vector, deviation: float, num_records: int, mu: float, delta: float
) -> ExpectedCoefficients:
    widths = errors.compute_half_widths()
    made = ExpectedCoefficients(deviation, tuple(widths.tolist()), tuple((scales * widths).tolist()), None, None)
    if not made.order:
        return made
    place = made.order[len(made.order) // 2]
    wanted = float(widths[place]) / 2
    records = _search(lambda factor: errors.compute_half_width(place, factor, 1.0) <= wanted)
    louder = _search(lambda factor: errors.compute_half_width(place, 1.0, factor) <= wanted)
    epsilon = math.inf
    if louder is not None and mu * louder < LARGEST_MU:
        epsilon = compute_gaussian_epsilon(mu * louder, delta)
    return replace(
        made,
        more_records=None if records is None else num_records * records,
        more_epsilon=epsilon if epsilon <= LARGEST_EPSILON else None,
    )


def _search(is_enough: Callable[[float], bool]) -> float | None:
    """Smallest factor of at least 1 that is enough, within one percent; None if none is."""
    low, high = 1.0, LARGEST_FACTOR
    if not is_enough(high):
        return None
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
