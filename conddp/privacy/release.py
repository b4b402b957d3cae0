r"""The one door: private data become public here and nowhere else.

Whatever leaves a fit goes through a :class:`Curator`, the trusted party of the central model of differential privacy.
It is handed what is to be released together with its sensitivity, adds the noise, and appends to the transcript what it
did. Recipes draw no noise of their own: ``tests/test_architecture.py`` checks that.

Rounding
    A sum of n bounded vectors in float64, added up one after the other, is off by at most n (n + 1) / 2 times the unit
    roundoff times their bound, in each of two neighbouring data sets; the bounds themselves are right to far better
    than 1e-9. The curator enlarges Gaussian noise by :func:`bound_rounding`, so that the stated guarantee holds for
    sums as they are computed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range, positive, positive_integer
from conddp.errors import PrivacyError
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.transcript import (
    GaussianRelease,
    PureRelease,
    Release,
    Transcript,
    UnprotectedRelease,
    WeightedSumRelease,
)

__all__ = ["BoundedSum", "Curator", "bound_rounding", "compute_response_epsilon"]

Array = Any  # a NumPy array or a torch tensor

_ROUNDING = 1e-9
_calibrate = lru_cache(maxsize=64)(calibrate_gaussian_mu)


def bound_rounding(num_records: int) -> float:
    """Fraction by which rounding can raise the sensitivity of a sum of bounded vectors in float64."""
    return 1e-9 + num_records**2 * 2.0**-53


@dataclass(frozen=True)
class BoundedSum:
    """A sum over records, and how far one record can move it. Private until it is released; its text shows no value.

    Parameters
    ----------
    value : array of shape (P,), or (K, P) for K configurations
        The sum.
    sensitivity : float, or array of shape (K,)
        L2 distance by which one record moves it at most, under the relation of the fit.
    what : str
        What is summed, for the transcript.
    """

    value: Array
    sensitivity: Any
    what: str

    def __repr__(self) -> str:
        return f"BoundedSum({self.what!r}, shape={tuple(self.value.shape)}, sensitivity={self.sensitivity})"


class Curator:
    """Releases private quantities with noise and keeps the transcript.

    Privacy
        Every method that returns something private-turned-public appends to :attr:`transcript` first. What it cost is
        computed from the transcript by :func:`conddp.privacy.accounting.compute_delta`.

    Parameters
    ----------
    generators : generator or sequence of K generators
        Where noise comes from; one for each configuration, so that K configurations at once equal K runs of one.
    num_records : int
        Number of records that sums are taken over, for the bound on rounding.
    budget : PrivacyBudget, optional
        What the releases may cost together: full-batch and pure releases beyond it are refused before noise is drawn.
        What Poisson-sampled releases cost is computed when the fit ends.
    float32_without_guarantee : bool
        Release sums in float32 too, whose rounding is not covered: the transcript then says that nothing is protected.
    """

    def __init__(
        self,
        generators: np.random.Generator | Sequence[np.random.Generator],
        *,
        num_records: int,
        budget: PrivacyBudget | None = None,
        float32_without_guarantee: bool = False,
    ) -> None:
        positive_integer(num_records=num_records)
        self._generators = [generators] if isinstance(generators, np.random.Generator) else list(generators)
        self._enlarged = 1 + bound_rounding(num_records)
        self._allows_float32 = float32_without_guarantee
        self._budget = budget
        self._pure, self._mu_squared = 0.0, 0.0  # spent so far
        self._releases: list[Release] = []
        self._counts: list[int] = []
        self._last: tuple[Any, ...] = ()  # what the last Gaussian entry was made from, to count steps alike at once

    @property
    def transcript(self) -> Transcript:
        """What has been released so far."""
        transcript = Transcript()
        for release, count in zip(self._releases, self._counts, strict=True):
            transcript = transcript.add(replace(release, count=count))
        return transcript

    def release_gaussian(self, bounded: BoundedSum, *, noise_std: Any, sampling_probability: float = 1.0) -> Array:
        r"""The sum with Gaussian noise in every coordinate.

        Privacy
            The Gaussian mechanism: sensitivity over standard deviation is its parameter :math:`\mu`, or a
            Poisson-sampled one if ``sampling_probability`` is below 1. With K configurations the transcript holds the
            one with the least noise: what is released about each is protected at least so well.

        Parameters
        ----------
        bounded : BoundedSum
            The sum with its sensitivity.
        noise_std : float, or array of shape (K,)
            Standard deviation of the noise, before it is enlarged for rounding.
        sampling_probability : float
            Probability with which each record took part in the sum.
        """
        value = bounded.value
        self._check_shape(bounded, noise_std)
        self._record_gaussian(bounded, noise_std, sampling_probability)
        noise = self._draw_normal(value)
        noise_std = noise_std * self._enlarged
        noise *= noise_std[:, None] if value.ndim == 2 and getattr(noise_std, "ndim", 0) else noise_std
        noise += value
        return noise

    def release_integers(
        self, counts: NDArray[Any], *, sensitivity: float, epsilon: float, what: str
    ) -> NDArray[np.float64]:
        r"""Whole numbers with discrete Laplace noise: no low-order bits to attack.

        Privacy
            Pure ``epsilon`` if one record moves the counts by at most ``sensitivity`` in L1. The difference of two
            geometric variables has probabilities that fall as :math:`e^{-\epsilon |z| / \mathrm{sensitivity}}`.
        """
        positive(sensitivity=sensitivity, epsilon=epsilon)
        self._append(PureRelease(what, 1, "geometric", sensitivity, sensitivity / epsilon))
        rate, rng = epsilon / sensitivity, self._generators[0]
        return np.asarray(counts + (_draw_geometric(rate, len(counts), rng) - _draw_geometric(rate, len(counts), rng)))

    def release_laplace(
        self, values: NDArray[Any], *, sensitivity: float, epsilon: float, what: str
    ) -> NDArray[np.float64]:
        """Values of different records, one by one, with Laplace noise.

        Privacy
            Pure ``epsilon``, local: a record owns one value, which it moves by at most ``sensitivity``.
        """
        positive(sensitivity=sensitivity, epsilon=epsilon)
        self._append(PureRelease(what, 1, "laplace", sensitivity, sensitivity / epsilon))
        return np.asarray(values + self._generators[0].laplace(scale=sensitivity / epsilon, size=len(values)))

    def release_staircase(
        self, values: NDArray[Any], *, sensitivity: float, epsilon: float, what: str
    ) -> NDArray[np.float64]:
        r"""Values of different records, one by one, with staircase noise: of all pure noise that of least variance.

        The density is constant on steps of total length ``sensitivity``, falling by :math:`e^{-\epsilon}` from step to
        step, each split at the fraction :math:`\gamma = 1 / (1 + e^{\epsilon/2})` (Geng and Viswanath 2014).

        Privacy
            Pure ``epsilon``, local: a record owns one value, which it moves by at most ``sensitivity``.
        """
        positive(sensitivity=sensitivity, epsilon=epsilon)
        self._append(PureRelease(what, 1, "staircase", sensitivity, sensitivity / epsilon))
        n, rng = len(values), self._generators[0]
        fraction, fall = 1 / (1 + math.exp(epsilon / 2)), math.exp(-epsilon)
        step = _draw_geometric(epsilon, n, rng) - 1
        inner = rng.random(n) < fraction / (fraction + (1 - fraction) * fall)
        within = rng.random(n)
        distance = step + np.where(inner, fraction * within, fraction + (1 - fraction) * within)
        return np.asarray(values + sensitivity * (distance * rng.choice([-1.0, 1.0], size=n)))

    def release_response(
        self, rows: NDArray[np.intp], probabilities: NDArray[np.float64], *, what: str
    ) -> NDArray[np.intp]:
        """A random column of a table of probabilities for the row of every record: randomised response.

        Privacy
            Pure, local: epsilon is read off the table, as the logarithm of the largest ratio within a column.

        Parameters
        ----------
        rows : array of shape (n,)
            Which row of the table each record has; private.
        probabilities : array of shape (k, m)
            Each row adds up to one.
        what : str
            For the transcript.

        Raises
        ------
        PrivacyError
            If some outcome is possible for one row and impossible for another.
        """
        epsilon = compute_response_epsilon(probabilities)
        if not math.isfinite(epsilon):
            raise PrivacyError("a table of responses must give every possible outcome a chance in every row.")
        epsilon = max(epsilon, 1e-12)  # a table of equal rows releases nothing, and is recorded all the same
        self._append(PureRelease(what, 1, "randomized response", 1.0, 1 / epsilon))
        draws = self._generators[0].random(len(rows))
        outcome = np.empty(len(rows), dtype=np.intp)
        distinct, where = np.unique(probabilities, axis=0, return_inverse=True)
        kinds = where.reshape(-1)[rows]  # rows that are alike are drawn together
        for kind, row in enumerate(distinct):
            of_kind = np.flatnonzero(kinds == kind)
            steps = np.cumsum(row)
            drawn = np.searchsorted(steps, draws[of_kind] * steps[-1], side="right")
            outcome[of_kind] = np.minimum(drawn, np.flatnonzero(row)[-1])
        return outcome

    def release_weighted_sums(
        self,
        label: NDArray[np.float64],
        weights: NDArray[np.float64],
        *,
        label_range: float,
        num_noisy: int,
        noise_std: float,
        used_fraction: float,
        what: str,
    ) -> NDArray[np.float64]:
        """A weighted sum of labels for every bag, after Gaussian noise on the first labels of the bag.

        Privacy
            :func:`conddp.privacy.weighted_sums.compute_bag_delta`, if weights are standard normal, a label is in at
            most one bag, and bags were filled at random.

        Parameters
        ----------
        label, weights : arrays of shape (bags, bag size)
            Labels by bag, and public weights.
        label_range : float
            Distance by which one label can move.
        num_noisy : int
            How many labels of each bag get noise.
        noise_std : float
            Its standard deviation, before it is enlarged for rounding.
        used_fraction : float
            Probability of a record to be in a bag at all.
        what : str
            For the transcript.
        """
        positive(noise_std=noise_std, label_range=label_range)
        num_bags, bag_size = label.shape
        noise_std = noise_std * self._enlarged
        self._append(WeightedSumRelease(what, 1, bag_size, num_noisy, label_range, noise_std, used_fraction))
        noise = np.zeros(label.shape)
        noise[:, :num_noisy] = noise_std * self._generators[0].standard_normal((num_bags, num_noisy))
        return np.asarray((weights * (label + noise)).sum(axis=1))

    def release_unprotected(self, value: Any, *, what: str) -> Any:
        """The value as it is. Not private: the transcript then has an infinite cost."""
        self._append(UnprotectedRelease(what))
        return value

    def _append(self, release: Release) -> None:
        self._charge(release)
        self._last = ()
        self._releases.append(release)
        self._counts.append(1)

    def _charge(self, release: Release) -> None:
        """Refuse a release that the budget does not cover, before noise is drawn and before anyone sees it."""
        budget = self._budget
        if budget is None or math.isinf(budget.epsilon):
            return
        pure, mu_squared = self._pure, self._mu_squared
        if isinstance(release, PureRelease):
            pure += release.epsilon
        elif isinstance(release, GaussianRelease) and release.sampling_probability == 1.0:
            mu_squared += release.mu**2
        left = budget.epsilon - pure
        covered = left >= -_ROUNDING * budget.epsilon
        if covered and mu_squared:
            covered = left > 0 and budget.delta > 0
            covered = covered and mu_squared <= _calibrate(left, budget.delta) ** 2 * (1 + _ROUNDING)
        if not covered:
            raise PrivacyError(
                f"releasing {release.what} would cost more than the recorded {budget}. Nothing is released."
            )
        self._pure, self._mu_squared = pure, mu_squared

    def _record_gaussian(self, bounded: BoundedSum, noise_std: Any, sampling_probability: float) -> None:
        """Append to the transcript before noise is drawn; thousands of steps alike cost next to nothing."""
        sensitivities = np.atleast_1d(np.asarray(bounded.sensitivity, dtype=np.float64))
        stds = np.atleast_1d(np.asarray(noise_std, dtype=np.float64)) * self._enlarged
        dtype = str(bounded.value.dtype)
        made_from = (bounded.what, sensitivities.tobytes(), stds.tobytes(), sampling_probability, dtype)
        if made_from == self._last:
            self._charge(self._releases[-1])
            self._counts[-1] += 1
            return
        sensitivities, stds = np.broadcast_arrays(sensitivities, stds)
        if not (np.isfinite(sensitivities) & (sensitivities > 0) & np.isfinite(stds) & (stds > 0)).all():
            raise PrivacyError(
                f"a release needs a positive, finite sensitivity and noise, got sensitivity={bounded.sensitivity!r} "
                f"and noise_std={noise_std!r} for {bounded.what}."
            )
        if self._allows_float32 and bounded.value.dtype.itemsize < 8:
            self._append(UnprotectedRelease(f"{bounded.what}, in float32"))
            self._last = made_from
            return
        worst = int(np.argmax(sensitivities / stds))
        in_range(0.0, 1.0, sampling_probability=sampling_probability)
        self._append(
            GaussianRelease(bounded.what, 1, float(sensitivities[worst]), float(stds[worst]), sampling_probability)
        )
        self._last = made_from

    def _check_shape(self, bounded: BoundedSum, noise_std: Any) -> None:
        """Raise unless there is a generator for every configuration, and rounding is covered."""
        shape, precise = tuple(bounded.value.shape), bounded.value.dtype.itemsize == 8
        if len(shape) == 1 and (np.ndim(bounded.sensitivity) or np.ndim(noise_std)):
            raise PrivacyError("a vector has one sensitivity and one standard deviation of its noise, got arrays.")
        if len(shape) not in (1, 2) or (shape[0] if len(shape) == 2 else 1) != len(self._generators):
            raise PrivacyError(f"{len(self._generators)} generators cannot release a sum of shape {shape}.")
        if not precise and not self._allows_float32:
            raise PrivacyError(
                f"sums must be in float64 to be released: rounding in {bounded.value.dtype} is not covered."
            )

    def _draw_normal(self, value: Array) -> Array:
        """Standard normal numbers in the shape, precision and place of a sum, one generator per configuration."""
        dtype = np.float64 if value.dtype.itemsize == 8 else np.float32
        if len(self._generators) == 1:
            noise: Array = self._generators[0].standard_normal(tuple(value.shape), dtype=dtype)
        else:
            noise = np.stack([each.standard_normal(value.shape[1], dtype=dtype) for each in self._generators])
        if isinstance(value, np.ndarray):
            return noise
        return array_api_compat.array_namespace(value).asarray(noise, device=value.device)


def compute_response_epsilon(probabilities: NDArray[np.float64]) -> float:
    """Logarithm of the largest ratio of two rows' chances of one outcome."""
    largest, smallest = probabilities.max(axis=0), probabilities.min(axis=0)
    possible = largest > 0
    if (smallest[possible] == 0).any():
        return math.inf
    return float(np.log(largest[possible] / smallest[possible]).max())


def _draw_geometric(rate: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Whole numbers from 1 on whose chances fall by exp(-rate) a step, with a tail far beyond 53 bits."""
    return np.maximum(np.ceil(rng.standard_exponential(size) / rate), 1.0)
