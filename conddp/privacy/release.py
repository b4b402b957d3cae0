r"""Releases: the only place where private quantities become public.

Every result of a fit is released through a :class:`Curator`, the trusted party of the central model of differential
privacy. The curator receives a private quantity together with its sensitivity, adds noise, and records the release in
the transcript. Algorithms draw no privacy noise themselves; ``tests/test_architecture.py`` checks this.

Rounding
    The curator scales up Gaussian noise by :func:`~conddp.privacy.bounded_sum.bound_rounding`, so that the stated
    guarantee holds for the sums as computed.

    Noise has no rounding error at all. A release is the point of a public grid that is nearest to the private number
    plus ideal noise (:mod:`conddp.privacy.noise`), so its low-order bits carry no information.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, TypeVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from conddp._validate import positive, positive_integer
from conddp.errors import PrivacyError
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.bounded_sum import BoundedSum, bound_rounding
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.checkpoint import Checkpoint
from conddp.privacy.composition import compute_response_epsilon
from conddp.privacy.noise import NoiseShape, NoiseStream, draw_integers, draw_outcomes, gaussian, laplace, staircase
from conddp.privacy.noisy_steps import NoisySteps
from conddp.privacy.selection import RunDistribution
from conddp.privacy.transcript import (
    GaussianRelease,
    PureRelease,
    Release,
    SelectedRelease,
    Transcript,
    UnprotectedRelease,
    WeightedSumRelease,
)

__all__ = ["Curator"]

Array = Any  # a NumPy array or a torch tensor
AnswerT = TypeVar("AnswerT")

_ROUNDING = 1e-9
_calibrate = lru_cache(maxsize=64)(calibrate_gaussian_mu)


class Curator:
    """Release private quantities with noise and keep the transcript.

    Privacy
        Every release method appends to :attr:`transcript` before it returns. The cost of a fit is computed from the
        transcript by :func:`conddp.privacy.composition.compute_delta`.

    Parameters
    ----------
    generators : generator or sequence of K generators
        Generators of the noise, one per configuration, so that K configurations together give the same results as K
        separate runs.
    num_records : int
        Number of records in each sum, for the bound on rounding.
    additions : int, optional
        Number of additions that a record goes through at most, if all sums are added up in blocks.
    budget : PrivacyBudget, optional
        Total cost of all releases. A full-batch or pure release that would exceed it is refused before noise is drawn.
        The cost of Poisson-sampled releases is computed at the end of the fit.
    float32_without_guarantee : bool
        Also release sums in float32, whose rounding errors are not covered. The transcript then records these
        releases as unprotected.
    checkpoint : Checkpoint, optional
        File that keeps what is released, so that a killed fit can go on.
    """

    def __init__(
        self,
        generators: np.random.Generator | Sequence[np.random.Generator],
        *,
        num_records: int,
        additions: int | None = None,
        budget: PrivacyBudget | None = None,
        float32_without_guarantee: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        positive_integer(num_records=num_records)
        self._generators = [generators] if isinstance(generators, np.random.Generator) else list(generators)
        self._streams = [NoiseStream(gaussian(), generator) for generator in self._generators]
        self.rounding = bound_rounding(num_records, additions)
        self._allows_float32 = float32_without_guarantee
        self._budget = budget
        self._most: tuple[float, float] | None = None  # pure epsilon and squared mu of the recorded event
        self._checkpoint = checkpoint
        self._pure, self._mu_squared = 0.0, 0.0  # spent so far
        self._releases: list[Release] = []
        self._counts: list[int] = []
        self._last: tuple[Any, ...] = ()  # inputs of the last Gaussian entry, to count identical steps cheaply

    @property
    def transcript(self) -> Transcript:
        """Releases made so far."""
        transcript = Transcript()
        for release, count in zip(self._releases, self._counts, strict=True):
            transcript = transcript.add(release if release.count == count else replace(release, count=count))
        return transcript

    def limit(self, event: Transcript | None) -> None:
        """Refuse from now on what goes beyond the event that was recorded; None sets no limit but the budget."""
        self._most = None if event is None else (event.pure_epsilon, event.mu**2)

    def release_gaussian(self, bounded: BoundedSum, *, noise_std: Any, sampling_probability: float = 1.0) -> Array:
        r"""Release a sum with Gaussian noise in every coordinate.

        Privacy
            This is the Gaussian mechanism with parameter :math:`\mu`, the sensitivity divided by the standard
            deviation. If ``sampling_probability`` is below 1, it is the Poisson-sampled Gaussian mechanism. With K
            configurations the transcript records the one with the least noise relative to its sensitivity; every other
            configuration is protected at least as well.

        Parameters
        ----------
        bounded : BoundedSum
            Sum and its sensitivity.
        noise_std : float, or array of shape (K,)
            Standard deviation of the noise, before the increase for rounding.
        sampling_probability : float
            Probability with which each record was included in the sum.
        """
        self._check_shape(bounded, noise_std)
        self._record_gaussian(bounded, noise_std, sampling_probability)
        return self._answer(
            lambda: self._add_normal(bounded.value, noise_std * (1 + self.rounding)), tuple(bounded.value.shape)
        )

    @property
    def takes_steps(self) -> bool:
        """Whether :meth:`release_steps` gives what one release after another gives.

        A curator with several generators or a checkpoint handles releases one by one; so may a subclass.
        """
        return type(self) is Curator and len(self._streams) == 1 and self._checkpoint is None

    def release_steps(
        self, steps: NoisySteps, bounded: BoundedSum, *, noise_std: float, sampling_probability: float, num_steps: int
    ) -> None:
        """Release the sums of several steps to the steps themselves, each of which depends on those before.

        Privacy
            As ``num_steps`` calls of :meth:`release_gaussian`, with the same noise. All of them are charged and
            recorded before the first sum is computed and before noise is drawn. A budget that does not cover all of
            them releases none.

        Parameters
        ----------
        steps : NoisySteps
            Steps. They use noisy sums, and must not show any other.
        bounded : BoundedSum
            The memory of the sums, and the sensitivity of each of them.
        noise_std : float
            Standard deviation of the noise, before the increase for rounding.
        sampling_probability : float
            Probability with which each record is included in a sum.
        num_steps : int
            Number of sums.
        """
        positive_integer(num_steps=num_steps)
        if not self.takes_steps or bounded.value is not steps.sums:
            raise PrivacyError("this curator releases the sums of these steps one by one only.")
        self._check_shape(bounded, noise_std)
        self._record_gaussian(bounded, noise_std, sampling_probability, num_steps)
        self._streams[0].add_to_steps(steps, noise_std * (1 + self.rounding), num_steps)

    def release_integers(
        self, counts: NDArray[Any], *, sensitivity: float, epsilon: float, what: str
    ) -> NDArray[np.float64]:
        r"""Release integers with discrete Laplace noise.

        Privacy
            Pure ``epsilon`` if one record changes the counts by at most ``sensitivity`` in L1. The noise z has
            probability proportional to :math:`e^{-\epsilon |z| / \mathrm{sensitivity}}`.
        """
        positive(sensitivity=sensitivity, epsilon=epsilon)
        scale = sensitivity / epsilon
        self._append(PureRelease(what, 1, "geometric", sensitivity, scale))
        return self._answer(
            lambda: np.asarray(counts + draw_integers(len(counts), scale=scale, rng=self._generators[0])), counts.shape
        )

    def release_laplace(
        self, values: NDArray[Any], *, sensitivity: float, epsilon: float, what: str, per_unit: int = 1
    ) -> NDArray[np.float64]:
        """Release one value per record, each with Laplace noise.

        Privacy
            Pure ``epsilon``, local: each record has one value and can change it by at most ``sensitivity``. With up to
            ``per_unit`` records of one unit, which are randomised independently, a unit has ``per_unit * epsilon``.
        """
        return self._release_values(values, sensitivity, epsilon, what, "laplace", laplace(), per_unit)

    def release_staircase(
        self, values: NDArray[Any], *, sensitivity: float, epsilon: float, what: str, per_unit: int = 1
    ) -> NDArray[np.float64]:
        r"""Release one value per record, each with staircase noise, the pure-DP noise of least variance.

        The density is piecewise constant on steps of length ``sensitivity`` and falls by a factor of
        :math:`e^{-\epsilon}` from one step to the next. Each step is split at the fraction
        :math:`\gamma = 1 / (1 + e^{\epsilon/2})` (Geng and Viswanath 2014).

        Privacy
            Pure ``epsilon``, local: each record has one value and can change it by at most ``sensitivity``. With up to
            ``per_unit`` records of one unit, which are randomised independently, a unit has ``per_unit * epsilon``.
        """
        return self._release_values(values, sensitivity, epsilon, what, "staircase", staircase(epsilon), per_unit)

    def _release_values(
        self,
        values: NDArray[Any],
        sensitivity: float,
        epsilon: float,
        what: str,
        mechanism: str,
        shape: NoiseShape,
        per_unit: int,
    ) -> NDArray[np.float64]:
        positive(sensitivity=sensitivity, epsilon=epsilon)
        scale = sensitivity / epsilon
        self._append(PureRelease(what, per_unit, mechanism, sensitivity, scale))
        values = np.asarray(values, dtype=np.float64)
        return self._answer(lambda: NoiseStream(shape, self._generators[0]).add(values, scale), values.shape)

    def release_response(
        self, rows: NDArray[np.intp], probabilities: NDArray[np.float64], *, what: str, per_unit: int = 1
    ) -> NDArray[np.intp]:
        """Release one randomised response per record, drawn from a table of probabilities.

        Privacy
            Pure, local. Epsilon is the logarithm of the largest ratio of two probabilities in the same column.

        Parameters
        ----------
        rows : array of shape (n,)
            Row of the table for each record; private.
        probabilities : array of shape (k, m)
            Probability of each of the m outcomes for each of the k rows. Each row sums to one.
        what : str
            Description of the release, for the transcript.
        per_unit : int
            Largest number of records of one unit. Their responses are independent, so their epsilons add up.

        Raises
        ------
        PrivacyError
            If some outcome is possible for one row and impossible for another.
        """
        epsilon = compute_response_epsilon(probabilities)
        if not math.isfinite(epsilon):
            raise PrivacyError("a response table must give every possible outcome a positive probability in every row.")
        epsilon = max(epsilon, 1e-12)  # a table of equal rows reveals nothing, but the release is still recorded
        self._append(PureRelease(what, per_unit, "randomized response", 1.0, 1 / epsilon))
        return self._answer(lambda: self._draw_responses(rows, probabilities), rows.shape)

    def _draw_responses(self, rows: NDArray[np.intp], probabilities: NDArray[np.float64]) -> NDArray[np.intp]:
        outcome = np.empty(len(rows), dtype=np.intp)
        distinct, where = np.unique(probabilities, axis=0, return_inverse=True)
        kinds = where.reshape(-1)[rows]  # equal rows of the table are drawn together
        for kind, row in enumerate(distinct):
            of_kind = np.flatnonzero(kinds == kind)
            outcome[of_kind] = draw_outcomes(row.tolist(), len(of_kind), self._generators[0])
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
        """Release a weighted sum of labels for every bag, with Gaussian noise added to the first labels of the bag.

        Privacy
            :func:`conddp.privacy.weighted_sums.compute_bag_delta` gives delta, provided that the weights are standard
            normal, each label is in at most one bag, and the bags were filled at random.

        Parameters
        ----------
        label, weights : arrays of shape (bags, bag size)
            Labels by bag, and public weights.
        label_range : float
            Largest possible change of one label.
        num_noisy : int
            Number of labels of each bag that receive noise.
        noise_std : float
            Standard deviation of the noise, before the increase for rounding.
        used_fraction : float
            Probability that a record is in any bag.
        what : str
            Description of the release, for the transcript.
        """
        positive(noise_std=noise_std, label_range=label_range)
        noise_std = noise_std * (1 + self.rounding)
        self._append(WeightedSumRelease(what, 1, label.shape[1], num_noisy, label_range, noise_std, used_fraction))
        # Noise on single labels adds up to one Gaussian variable for each bag, whose variance is public.
        bag_std = noise_std * np.sqrt((weights[:, :num_noisy] ** 2).sum(axis=1))
        return self._answer(lambda: self._streams[0].add((weights * label).sum(axis=1), bag_std), bag_std.shape)

    def release_selected(
        self, best: Any, *, mu: float, expected_runs: float, distribution: RunDistribution, what: str
    ) -> Any:
        """Release the best of a random number of private runs, whose noise they contain already.

        Privacy
            :func:`conddp.privacy.selection.compute_selection_delta`, provided that every run, with the score by which
            it was chosen, is a Gaussian mechanism with parameter ``mu``, and nothing else of the runs is released.
        """
        self._append(SelectedRelease(what, 1, mu, expected_runs, distribution))
        return best

    def release_unprotected(self, value: Any, *, what: str) -> Any:
        """Release a value without noise. This is not private: the transcript then has an infinite cost."""
        self._append(UnprotectedRelease(what))
        return value

    def _answer(self, draw: Callable[[], AnswerT], shape: tuple[int, ...]) -> AnswerT:
        """Draw the noise of the release that was just recorded, unless a checkpoint holds the answer already."""
        if self._checkpoint is None:
            return draw()
        question = {"kind": self._releases[-1].kind, **asdict(replace(self._releases[-1], count=1))}
        known: Any = self._checkpoint.recall(question, shape)
        if known is None:
            known = draw()
            self._checkpoint.record(question, known)
        answer: AnswerT = known
        return answer

    def save_state(self, make_state: Callable[[], Mapping[str, Any]]) -> None:
        """Store the state of the algorithm in the checkpoint, if there is one and it is time to."""
        if self._checkpoint is not None and self._checkpoint.is_due:
            self._checkpoint.save_state(make_state(), self.transcript)

    def load_state(self) -> Mapping[str, Any] | None:
        """Return the stored state of an interrupted fit, whose releases then count as made; None if there is none."""
        stored = None if self._checkpoint is None else self._checkpoint.load_state()
        if stored is None:
            return None
        state, transcript = stored
        for release in transcript:
            self._append(release)
        return state

    def _append(self, release: Release, times: int = 1) -> None:
        self._charge(release, times)
        self._last = ()
        self._releases.append(release)
        self._counts.append(release.count * times)

    def _charge(self, release: Release, times: int = 1) -> None:
        """Refuse releases that the budget does not cover, before noise is drawn and before anyone sees them."""
        budget = self._budget
        if budget is None or math.isinf(budget.epsilon):
            return
        pure, mu_squared = self._pure, self._mu_squared
        if isinstance(release, PureRelease):
            pure += release.epsilon * times
        elif isinstance(release, GaussianRelease) and release.sampling_probability == 1.0:
            mu_squared += release.mu**2 * times
        left = budget.epsilon - pure
        covered = left >= -_ROUNDING * budget.epsilon
        if covered and mu_squared:
            covered = left > 0 and budget.delta > 0
            covered = covered and mu_squared <= _calibrate(left, budget.delta) ** 2 * (1 + _ROUNDING)
        if self._most is not None:
            covered = covered and pure <= self._most[0] * (1 + _ROUNDING)
            covered = covered and mu_squared <= self._most[1] * (1 + _ROUNDING)
        if not covered:
            raise PrivacyError(
                f"releasing {release.what} would cost more than the recorded {budget}. Nothing is released."
            )
        self._pure, self._mu_squared = pure, mu_squared

    def _record_gaussian(
        self, bounded: BoundedSum, noise_std: Any, sampling_probability: float, times: int = 1
    ) -> None:
        """Record releases before noise is drawn; thousands of identical steps add almost no overhead."""
        key = _freeze(bounded.sensitivity), _freeze(noise_std)  # arrays may change in place
        made_from = (bounded.what, *key, sampling_probability, bounded.value.dtype)
        if made_from == self._last:
            self._charge(self._releases[-1], times)
            self._counts[-1] += times
            return
        pairs = [(bounded.sensitivity, noise_std)]
        if type(bounded.sensitivity) is not float or type(noise_std) is not float:  # floats are by far the quickest
            pairs = [(float(one), float(std)) for one, std in np.broadcast(bounded.sensitivity, noise_std)]
        if not pairs or not all(0 < one < math.inf and 0 < std < math.inf for one, std in pairs):
            raise PrivacyError(
                f"a release needs a positive, finite sensitivity and noise_std, got "
                f"sensitivity={bounded.sensitivity!r} and noise_std={noise_std!r} for {bounded.what}."
            )
        if self._allows_float32 and bounded.value.dtype.itemsize < 8:
            self._append(UnprotectedRelease(f"{bounded.what}, in float32"), times)
            self._last = made_from
            return
        sensitivity, std = max(pairs, key=lambda pair: pair[0] / pair[1])
        release = GaussianRelease(bounded.what, 1, sensitivity, std * (1 + self.rounding), sampling_probability)
        self._append(release, times)
        self._last = made_from

    def _check_shape(self, bounded: BoundedSum, noise_std: Any) -> None:
        """Raise unless there is one generator per configuration and rounding is covered."""
        shape, precise = tuple(bounded.value.shape), bounded.value.dtype.itemsize == 8
        are_numbers = type(bounded.sensitivity) is float and type(noise_std) is float
        if len(shape) == 1 and not are_numbers and (np.ndim(bounded.sensitivity) or np.ndim(noise_std)):
            raise PrivacyError("a vector has one sensitivity and one standard deviation of its noise, got arrays.")
        if len(shape) not in (1, 2) or (shape[0] if len(shape) == 2 else 1) != len(self._generators):
            raise PrivacyError(
                f"a curator with {len(self._generators)} generators cannot release a sum of shape {shape}."
            )
        if not precise and not self._allows_float32:
            raise PrivacyError(
                f"sums must be in float64 to be released: rounding errors in {bounded.value.dtype} are not covered."
            )

    def _add_normal(self, value: Array, noise_std: Any) -> Array:
        """Add Gaussian noise to sums; one generator per configuration."""
        if value.dtype.itemsize < 8:  # recorded as unprotected, so fast noise is good enough
            noise: Array = np.stack([each.standard_normal(value.shape[-1], np.float32) for each in self._generators])
            noisy = np.asarray(value) + np.reshape(np.asarray(noise_std), (-1, 1)).astype(np.float32) * noise
        elif len(self._streams) == 1 and type(noise_std) is float:
            noisy = self._streams[0].add(np.asarray(value).reshape(-1), noise_std)
        else:
            sums = np.asarray(value).reshape(len(self._streams), -1)
            stds = np.broadcast_to(np.asarray(noise_std), len(sums)).tolist()
            noisy = np.stack([each.add(row, std) for each, row, std in zip(self._streams, sums, stds, strict=True)])
        noisy = noisy.reshape(value.shape)
        if isinstance(value, np.ndarray):
            return noisy
        return array_api_compat.array_namespace(value).asarray(noisy, device=value.device)


def _freeze(number: Any) -> Any:
    return number if type(number) is float else np.asarray(number, dtype=np.float64).tobytes()
