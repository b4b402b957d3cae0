"""Search over configurations by successive halving."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product

import numpy as np

from conddp._validate import in_range, positive, positive_integer

__all__ = ["Search", "Trial"]


@dataclass(frozen=True)
class Trial:
    """One configuration of noisy descent, in units that do not depend on the data set.

    Parameters
    ----------
    learning_rate : float
        Of Adam, for labels of unit width.
    clip_residual : float
        The clip norm over the root mean square of the norms of the feature rows: the residual at which a typical record
        of a linear model is clipped, as a fraction of the width of the label's range.
    initial_scale : float
        Standard deviation of every parameter at the start.
    switch : float
        Fraction of the steps with conditioned features, for methods that switch.
    """

    learning_rate: float
    clip_residual: float
    initial_scale: float = 0.0
    switch: float = 1.0

    def __post_init__(self) -> None:
        positive(learning_rate=self.learning_rate, clip_residual=self.clip_residual)
        in_range(0.0, np.inf, initial_scale=self.initial_scale)
        in_range(0.0, 1.0, switch=self.switch)


@dataclass(frozen=True)
class Search:
    """Trials, of which fewer and fewer continue.

    All trials run with one seed up to the fraction of the steps at the first rung; the best continue to the next rung.
    The finalists start again with every seed and run to the end.

    Parameters
    ----------
    trials : tuple of Trial
        The configurations to try.
    rungs : tuple of (fraction, keep)
        After this fraction of the steps, ``keep`` trials continue. Fractions increase.
    finalists : int
        How many run to the end with every seed.
    """

    trials: tuple[Trial, ...]
    rungs: tuple[tuple[float, int], ...] = ((1.0, 4),)
    finalists: int = 4

    def __post_init__(self) -> None:
        if not self.trials:
            raise ValueError("trials must not be empty: there is nothing to search.")
        positive_integer(finalists=self.finalists)
        last = 0.0
        for fraction, keep in self.rungs:
            positive_integer(keep=keep)
            in_range(0.0, 1.0, fraction=fraction)
            if fraction <= last:
                raise ValueError(f"fractions of the rungs must increase, got {[each for each, _ in self.rungs]}.")
            last = fraction

    @classmethod
    def over_grid(
        cls, grid: Mapping[str, Sequence[float]], *, rungs: tuple[tuple[float, int], ...], finalists: int
    ) -> "Search":
        """Every combination of the values given for each setting."""
        _check_names(grid)
        trials = tuple(Trial(**dict(zip(grid, values, strict=True))) for values in product(*grid.values()))
        return cls(trials, rungs, finalists)

    @classmethod
    def at_random(
        cls,
        ranges: Mapping[str, tuple[float, float] | Sequence[float]],
        num_trials: int,
        *,
        rungs: tuple[tuple[float, int], ...],
        finalists: int,
        seed: int = 0,
    ) -> "Search":
        """Random trials: log-uniform on a range (low, high), or chosen from a list of other length."""
        _check_names(ranges)
        positive_integer(num_trials=num_trials)
        trials = tuple(_draw(ranges, num_trials, np.random.default_rng(seed)))
        return cls(trials, rungs, finalists)


def _check_names(settings: Mapping[str, object]) -> None:
    known = {field.name for field in fields(Trial)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ValueError(f"unknown settings {unknown}. Known: {sorted(known)}.")


def _draw(
    ranges: Mapping[str, tuple[float, float] | Sequence[float]], num_trials: int, rng: np.random.Generator
) -> Iterator[Trial]:
    for _ in range(num_trials):
        drawn = {}
        for name, values in ranges.items():
            if isinstance(values, tuple) and len(values) == 2:
                drawn[name] = float(np.exp(rng.uniform(np.log(values[0]), np.log(values[1]))))
            else:
                drawn[name] = float(rng.choice(values))
        yield Trial(**drawn)
