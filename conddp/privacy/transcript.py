"""Transcript of a fit: one entry per release of private data, without the released values."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from conddp._validate import in_range, one_of, positive, positive_integer

__all__ = [
    "GaussianRelease",
    "PureRelease",
    "Release",
    "SelectedRelease",
    "Transcript",
    "UnprotectedRelease",
    "WeightedSumRelease",
]

MOST_RELEASES = 10**8  # more than any run makes; a larger count is a damaged file


@dataclass(frozen=True)
class Release:
    """One release, or several consecutive identical ones.

    Parameters
    ----------
    what : str
        Description of the released quantity.
    count : int
        Number of consecutive identical releases.
    """

    kind: ClassVar[str]

    what: str
    count: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.what, str):
            raise ValueError(f"what must be text, got {type(self.what).__name__}.")
        if not isinstance(self.count, int):
            raise ValueError(f"count must be a whole number, got count={self.count!r}.")
        positive_integer(count=self.count)
        in_range(1, MOST_RELEASES, count=self.count)


@dataclass(frozen=True)
class GaussianRelease(Release):
    """A sum over records with Gaussian noise of the same standard deviation in every coordinate.

    Parameters
    ----------
    sensitivity : float
        L2 sensitivity of the sum under the neighbouring relation of the fit.
    noise_std : float
        Standard deviation of the noise.
    sampling_probability : float
        Probability with which each record was included (Poisson sampling); 1 for the full batch.
    """

    kind: ClassVar[str] = "gaussian"

    sensitivity: float = math.inf
    noise_std: float = 0.0
    sampling_probability: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(sensitivity=self.sensitivity, noise_std=self.noise_std, sampling_probability=self.sampling_probability)
        in_range(0.0, 1.0, sampling_probability=self.sampling_probability)

    @property
    def mu(self) -> float:
        """Sensitivity of all ``count`` full-batch releases together, in standard deviations of the noise."""
        return math.sqrt(self.count) * self.sensitivity / self.noise_std


@dataclass(frozen=True)
class PureRelease(Release):
    """A release under pure differential privacy: epsilon is ``sensitivity / noise_scale`` and delta is 0.

    Parameters
    ----------
    mechanism : str
        "laplace", "staircase", "geometric" or "randomized response"; "any" where only epsilon is stated.
    sensitivity : float
        L1 sensitivity of the released quantity.
    noise_scale : float
        Scale of the noise, in the same units.
    """

    kind: ClassVar[str] = "pure"

    mechanism: str = ""
    sensitivity: float = math.inf
    noise_scale: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(sensitivity=self.sensitivity, noise_scale=self.noise_scale)

    @property
    def epsilon(self) -> float:
        """Epsilon of all ``count`` releases together."""
        return self.count * self.sensitivity / self.noise_scale


@dataclass(frozen=True)
class WeightedSumRelease(Release):
    """Random weighted sums of labels in disjoint bags, with Gaussian noise added to some labels of each bag.

    Parameters
    ----------
    bag_size, num_noisy : int
        Number of labels per bag, and how many of them received noise.
    label_range : float
        Width of the label range.
    noise_std : float
        Standard deviation of the noise added to a label.
    used_fraction : float
        Probability that a record is in any bag.
    """

    kind: ClassVar[str] = "weighted sums"

    bag_size: int = 1
    num_noisy: int = 1
    label_range: float = math.inf
    noise_std: float = 0.0
    used_fraction: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer(bag_size=self.bag_size, num_noisy=self.num_noisy)
        in_range(1, self.bag_size, num_noisy=self.num_noisy)
        positive(label_range=self.label_range, noise_std=self.noise_std, used_fraction=self.used_fraction)
        in_range(0.0, 1.0, used_fraction=self.used_fraction)


@dataclass(frozen=True)
class SelectedRelease(Release):
    """The best of a random number of private runs, by a private score. The other runs stay secret.

    Parameters
    ----------
    mu : float
        Sensitivity of one run with its score, a Gaussian mechanism, in standard deviations of its noise.
    expected_runs : float
        Expected number of runs.
    distribution : str
        Distribution of the number of runs: "geometric" or "logarithmic".
    """

    kind: ClassVar[str] = "selected"

    mu: float = math.inf
    expected_runs: float = math.inf
    distribution: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(mu=self.mu, expected_runs=self.expected_runs)
        one_of(("geometric", "logarithmic"), distribution=self.distribution)


@dataclass(frozen=True)
class UnprotectedRelease(Release):
    """Private data released without noise, for non-private references. No finite epsilon covers it."""

    kind: ClassVar[str] = "unprotected"


KINDS: dict[str, type[Release]] = {
    each.kind: each for each in (GaussianRelease, PureRelease, WeightedSumRelease, SelectedRelease, UnprotectedRelease)
}


@dataclass(frozen=True)
class Transcript:
    """All releases of a fit, in order. Contains public numbers only.

    Examples
    --------
    >>> step = GaussianRelease("a sum", sensitivity=2.0, noise_std=10.0)
    >>> transcript = Transcript().add(step).add(step)
    >>> len(transcript), transcript.releases[0].count
    (2, 2)
    """

    releases: tuple[Release, ...] = ()

    def add(self, release: Release) -> "Transcript":
        """Return the transcript with one more release, merging consecutive identical releases into one entry."""
        *before, last = self.releases or (None,)
        if type(last) is type(release) and {**vars(last), "count": 0} == {**vars(release), "count": 0}:
            assert last is not None
            return Transcript((*before, replace(last, count=last.count + release.count)))
        return Transcript((*self.releases, release))

    @property
    def mu(self) -> float:
        """Joint sensitivity of the full-batch Gaussian releases, in standard deviations; 0 if there are none."""
        gaussian = [each for each in self.releases if isinstance(each, GaussianRelease)]
        return math.sqrt(sum(each.mu**2 for each in gaussian if each.sampling_probability == 1.0))

    @property
    def pure_epsilon(self) -> float:
        """Sum of the epsilons of the pure releases."""
        return sum(each.epsilon for each in self.releases if isinstance(each, PureRelease))

    @property
    def sampled(self) -> tuple[GaussianRelease, ...]:
        """Gaussian releases on Poisson samples."""
        gaussian = (each for each in self.releases if isinstance(each, GaussianRelease))
        return tuple(each for each in gaussian if each.sampling_probability < 1.0)

    def __len__(self) -> int:
        return sum(release.count for release in self.releases)

    def __iter__(self) -> Iterator[Release]:
        return iter(self.releases)

    @classmethod
    def from_json(cls, stored: object) -> "Transcript":
        """Read a transcript from its stored form.

        Raises
        ------
        ValueError
            If the stored form is not a list of known releases with valid numbers.
        """
        if not isinstance(stored, list) or not all(isinstance(entry, Mapping) for entry in stored):
            raise ValueError("the transcript must be a list of releases.")
        releases = []
        for entry in stored:
            values: dict[str, Any] = dict(entry)
            kind = values.pop("kind", None)
            if not isinstance(kind, str) or kind not in KINDS:
                raise ValueError(f"the transcript contains a release of unknown kind {kind!r}.")
            try:
                releases.append(KINDS[kind](**values))
            except TypeError:
                raise ValueError(
                    f"the transcript contains a {kind} release with wrong fields {sorted(values)}."
                ) from None
        return cls(tuple(releases))

    def to_json(self) -> list[dict[str, Any]]:
        """Return the transcript in its stored form."""
        return [{"kind": release.kind, **asdict(release)} for release in self.releases]
