"""An attack on the low-order bits of Gaussian noise, and the release that it was written against.

NumPy draws a standard normal number as plus or minus ``k * width``, where k is an integer of 52 bits and width is one
of 256 entries of a table (the ziggurat; only numbers beyond 3.65 are drawn in another way). Many doubles can therefore
never be drawn. An attacker who knows all labels but one knows the sum for every candidate of the last label. A
candidate is ruled out if no number that the sampler can draw turns its sum into the number that was released.

Everything here is decided in floating-point arithmetic, by repeating the operations of the release.
"""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from randomgen import AESCounter, UserBitGenerator

from conddp.algorithms import CondNewton, PrivateMean
from conddp.algorithms.algorithm import Algorithm
from conddp.bounds import Bounds
from conddp.data import Labels, PublicFeatures, Records
from conddp.privacy import BoundedSum, Curator, PrivacyBudget
from conddp.training.loop import Progress

Vector = NDArray[np.float64]

NUM_LAYERS = 256
TAIL = 3.6541528853610088  # from here on the sampler does not use its table
BUDGET = PrivacyBudget(1.0, 1e-6)
NUM_RECORDS = 20


# The sampler


def read_widths() -> Vector:
    """Read the table out of NumPy: for k = 1 the number drawn is the entry itself."""

    def draw(layer: int) -> float:
        words = iter([1 << 9 | layer, 0, 0])  # bits of a word: layer (8), sign (1), k (52); the zeros accept the draw
        return float(np.random.Generator(UserBitGenerator(lambda _: next(words), 64)).standard_normal())

    return np.array([draw(layer) for layer in range(NUM_LAYERS)])


def compute_widths() -> Vector:
    """The same table from its definition: layers of equal area under exp(-x^2 / 2)."""
    area = TAIL * math.exp(-(TAIL**2) / 2) + math.sqrt(math.pi / 2) * math.erfc(TAIL / math.sqrt(2))
    edges = [area * math.exp(TAIL**2 / 2)] + [TAIL] * (NUM_LAYERS - 1)
    for layer in range(NUM_LAYERS - 2, 0, -1):
        edges[layer] = math.sqrt(-2 * math.log(area / edges[layer + 1] + math.exp(-(edges[layer + 1] ** 2) / 2)))
    return np.array(edges) / 2.0**52


WIDTHS = read_widths()
EDGES = np.append(TAIL, WIDTHS[1:] * 2.0**52)  # largest number of each layer


def predict_normal(words: NDArray[np.uint64]) -> Vector:
    """Numbers that the sampler makes of random words in its common branch; NaN where it may take another."""
    layer, negative = words & np.uint64(0xFF), words >> np.uint64(8) & np.uint64(1)
    k = (words >> np.uint64(9) & np.uint64(2**52 - 1)).astype(np.float64)
    inner = np.append(TAIL, np.append(0.0, EDGES[1:-1]))[layer]  # below it a number is returned at once
    size = k * WIDTHS[layer]
    return np.where(size < inner * (1 - 1e-9), np.where(negative == 1, -size, size), np.nan)


# The attack


def could_have_been_released(value: Any, total: Any, std: float) -> NDArray[np.bool_]:
    """Whether some number of the sampler makes ``noise * std + total`` equal to ``value``, rounding included.

    The candidates for k are the integers within four of ``(value - total) / std / width``. Three roundings move that
    quotient by less than two; if rounding of the sum allows a wider range of noise, it covers the middle of these nine.
    """
    value, total = (np.ravel(each) for each in np.broadcast_arrays(value, np.asarray(total, dtype=np.float64)))
    noise = (value - total) / std
    possible = np.abs(noise) >= TAIL * (1 - 1e-9)  # nothing can be ruled out in the tail
    for width, edge in zip(WIDTHS, EDGES, strict=True):
        left = np.flatnonzero(~possible & (np.abs(noise) <= edge * (1 + 1e-12)))
        near, sign = np.rint(np.abs(noise[left]) / width), np.copysign(1.0, noise[left])
        for away in range(-4, 5):
            k = near + away
            drawn = sign * (k * width)
            drawn *= std
            drawn += total[left]
            possible[left] |= (drawn == value[left]) & (k >= 0) & (k < 2.0**52)
    return possible


@dataclass(frozen=True)
class Seen:
    """A number that the public sees, as an increasing function of a released number."""

    compute: Callable[[Any], Any]  # with exactly the operations of the algorithm
    slope: float

    def trace_back(self, seen: Vector, *, reach: int = 12) -> Vector:
        """All released numbers that show as ``seen``, shape (2 reach + 1, n); NaN for neighbours that do not."""
        middle = seen / self.slope
        steps = np.arange(-reach, reach + 1)[:, None]
        near = (middle.view(np.int64) + steps).view(np.float64)  # neighbouring doubles
        found = np.where(self.compute(near) == seen, near, np.nan)
        assert np.isnan(found[[0, -1]]).all(), "reach further: there may be more"
        return found


def find_possible(seen: Vector, totals: Vector, std: float, how: Seen, *, with_grid: bool = True) -> NDArray[np.bool_]:
    """Which candidates could have shown each number. Shape (n, candidates), like ``totals``.

    Every candidate could have made a multiple of a grid that does not depend on the sum. Without ``with_grid`` the
    attacker believes that nothing but the old release exists.
    """
    released = how.trace_back(seen)
    on_grid = np.isfinite(released) & is_on_grid(released, std) & with_grid
    anyone = np.asarray(on_grid.any(axis=0))
    possible = np.broadcast_to(anyone[:, None], totals.shape).copy()
    row, column = np.nonzero(np.isfinite(released) & ~anyone)
    for candidate in range(totals.shape[1]):
        could = could_have_been_released(released[row, column], totals[column, candidate], std)
        possible[column[could], candidate] = True
    return possible


def is_on_grid(value: Any, std: float) -> NDArray[np.bool_]:
    """Whether a number is a multiple of 2^-24 standard deviations or so; of other doubles one in 2^28 is."""
    return np.asarray(np.fmod(value, 2.0 ** (math.floor(math.log2(std)) - 24)) == 0)


# The release that is attacked


class OldCurator(Curator):
    """Releases ``float(sum + std * noise)`` with NumPy's sampler, as the library once did."""

    def __init__(self, *arguments: Any, num_records: int, **settings: Any) -> None:
        super().__init__(*arguments, num_records=num_records, **settings)
        self._once_enlarged = enlarge(num_records)

    def release_gaussian(self, bounded: BoundedSum, *, noise_std: Any, sampling_probability: float = 1.0) -> Any:
        super().release_gaussian(bounded, noise_std=noise_std, sampling_probability=sampling_probability)  # recorded
        noise = np.random.Generator(AESCounter(key=secrets.randbits(128))).standard_normal(bounded.value.shape)
        noise_std = noise_std * self._once_enlarged
        noise *= noise_std
        noise += bounded.value
        return noise


def enlarge(num_records: int) -> float:
    return 1 + (1e-9 + num_records**2 * 2.0**-53)


class _AskedError(Exception):
    """The question that a fit asks first."""

    def __init__(self, total: float, noise_std: float) -> None:
        super().__init__()
        self.total, self.noise_std = total, noise_std


class _Eavesdropper(Curator):
    def release_gaussian(self, bounded: BoundedSum, *, noise_std: Any, sampling_probability: float = 1.0) -> Any:
        raise _AskedError(float(bounded.value[0]), float(noise_std))


# Fits under attack


@dataclass(frozen=True)
class Target:
    """What is known before the attack on one data set: all labels but the last, and candidates for that one."""

    records: Records
    totals: Vector  # the sum under every candidate; the first is the truth
    std: float
    how: Seen


def make_target(algorithm: Algorithm, rng: np.random.Generator, *, num_candidates: int = 2) -> Target:
    """Twenty records with labels of three decimals; candidates for the last label are drawn like the truth."""
    labels, candidates = np.round(rng.uniform(0, 10, NUM_RECORDS), 3), np.round(rng.uniform(0, 10, num_candidates), 3)
    public, bounds = PublicFeatures(rng.normal(size=(NUM_RECORDS, 2))), Bounds(0.0, 10.0)
    data = [Records(public, None, Labels(np.append(labels[:-1], each), bounds)) for each in candidates]
    asked = [ask_first(algorithm, each) for each in data]
    std = asked[0].noise_std * enlarge(NUM_RECORDS)
    how = see_mean() if isinstance(algorithm, PrivateMean) else see_opening(asked[0].noise_std)
    return Target(data[0], np.array([each.total for each in asked]), std, how)


def ask_first(algorithm: Algorithm, records: Records) -> _AskedError:
    """First sum that a fit wants to release. The attacker computes it for every candidate."""
    with pytest.raises(_AskedError) as caught:
        fit_with(_Eavesdropper, algorithm, records)
    return caught.value


def fit_with(curator: type[Curator], algorithm: Algorithm, records: Records, num_fits: int = 1) -> list[float]:
    """Fit without a seed, and return the number under attack from each fit."""
    heard: list[float] = []

    def listen(progress: Progress) -> bool:
        heard.append(float(progress.parameters[0, 0]))
        return True  # stop: the attack needs the first release only

    results = [algorithm.fit(records, BUDGET, callback=listen, curator_class=curator) for _ in range(num_fits)]
    return heard if isinstance(algorithm, CondNewton) else [float(each.model.parameters[-1]) for each in results]


def see_mean() -> Seen:
    """The constant of a fitted mean: the released sum of labels divided by n."""
    return Seen(lambda released: released / NUM_RECORDS, 1 / NUM_RECORDS)


def see_opening(noise_std: float) -> Seen:
    """The constant that a callback of CondNewton sees first, from the released sum of residuals.

    Operations of ``release_residuals``, ``UnclampedMean`` and ``SignalPrior``, with everything else at its start.
    """
    vague, first_guess, prior = 1e9, 0.12**2, 1 / 12
    noise_variance = (noise_std / NUM_RECORDS) ** 2
    measured = vague / (vague + noise_variance)
    variance = measured * noise_variance
    joined = variance / (variance + (vague + 0.1**2 * first_guess))
    error = joined * (vague + 0.1**2 * first_guess)
    sampling = first_guess / NUM_RECORDS
    error += sampling * error / (error + 0.2 * sampling)
    kept = prior / (prior + error)

    def compute(released: Any) -> Any:
        mean = measured * (released / NUM_RECORDS)
        return kept * (mean + joined * (0.0 - mean))

    return Seen(compute, kept * (1 - joined) * measured / NUM_RECORDS)


@dataclass(frozen=True)
class Verdict:
    """Outcome of the attack on many fits."""

    num_fits: int
    num_proved: int
    num_wrong: int

    @property
    def fraction_proved(self) -> float:
        return self.num_proved / self.num_fits


def judge(possible: NDArray[np.bool_]) -> Verdict:
    """Count the fits in which one candidate alone is possible: the first, which is the truth, or wrongly another."""
    alone = possible.sum(axis=1) == 1
    return Verdict(len(possible), int((alone & possible[:, 0]).sum()), int((alone & ~possible[:, 0]).sum()))


def attack(
    algorithm: Algorithm,
    curator: type[Curator],
    *,
    num_targets: int,
    fits_each: int,
    num_candidates: int = 2,
    with_grid: bool = True,
) -> Verdict:
    """Fit many data sets many times each without a seed, and try to prove one label of each."""
    targets = make_targets(algorithm, num_targets, num_candidates)
    seen = [fit_with(curator, algorithm, each.records, fits_each) for each in targets]
    return judge_all(targets, np.array(seen), with_grid=with_grid)


def attack_thinly(algorithm: Algorithm, *, num_targets: int, fits_each: int, num_candidates: int = 2) -> Verdict:
    """The same attack on numbers made as :class:`OldCurator` and the algorithm make them, without the fits."""
    targets = make_targets(algorithm, num_targets, num_candidates)
    released = np.random.Generator(AESCounter(key=secrets.randbits(128))).standard_normal((num_targets, fits_each))
    released *= targets[0].std
    released += np.array([each.totals[0] for each in targets])[:, None]
    return judge_all(targets, targets[0].how.compute(released))


def make_targets(algorithm: Algorithm, num_targets: int, num_candidates: int) -> list[Target]:
    rng = np.random.default_rng(0)
    targets = [make_target(algorithm, rng, num_candidates=num_candidates) for _ in range(num_targets)]
    assert len({each.std for each in targets}) == 1  # it depends on n and the budget
    return targets


def judge_all(targets: list[Target], seen: Vector, *, with_grid: bool = True) -> Verdict:
    totals = np.repeat([each.totals for each in targets], seen.shape[1], axis=0)
    return judge(find_possible(seen.ravel(), totals, targets[0].std, targets[0].how, with_grid=with_grid))
