"""Contestants that take turns, because the speed of a shared machine changes from minute to minute."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Absent", "Contestant", "Timing", "describe", "gather", "take_turns"]

MOST_STEPS = 100_000


class Absent(Exception):  # noqa: N818  (not a failure: the table says why there is no number)
    """A contestant does not take part; the text says why."""


@dataclass(frozen=True)
class Timing:
    """Seconds on the clock and of processor time, and what else a run found."""

    wall: float
    busy: float
    found: Mapping[str, Any] | None = None


Run = Callable[[int], Timing | None]  # so many steps; None if the clock of the caller is right


@dataclass(frozen=True)
class Contestant:
    """Something that can be timed.

    Parameters
    ----------
    run : callable
        Runs so many steps. A run in another process returns its own :class:`Timing`.
    num_steps : int, optional
        Steps per turn; chosen by a first turn if None.
    parts : int
        Pieces of work in a step, such as configurations that are trained at once. Times are those of one piece.
    """

    run: Run
    num_steps: int | None = None
    parts: int = 1

    def time(self, num_steps: int) -> Timing:
        """Run and return the seconds per piece of work."""
        wall, busy = time.perf_counter(), time.process_time()
        own = self.run(num_steps)
        taken = own or Timing(time.perf_counter() - wall, time.process_time() - busy)
        pieces = num_steps * self.parts
        return Timing(taken.wall / pieces, taken.busy / pieces, taken.found)


def describe(error: BaseException) -> str:
    """First line of an error, for the list of absent contestants."""
    text = str(error).strip().splitlines()
    first = text[0] if text else ""
    return first if isinstance(error, Absent) else f"{type(error).__name__}: {first}"[:200]


def gather(
    builders: Mapping[str, Callable[[], Contestant]], *, base: str, warm: bool = True
) -> tuple[dict[str, Contestant], dict[str, str]]:
    """Make contestants and run one step of each; those that fail are absent, with the reason.

    Parameters
    ----------
    builders : mapping
        Functions that make contestants, by name.
    base : str
        The one that must not fail.
    warm : bool
        Whether to run a first step, which is not timed.
    """
    ready: dict[str, Contestant] = {}
    absent: dict[str, str] = {}
    for name, build in builders.items():
        try:
            contestant = build()
            if warm:
                contestant.run(contestant.num_steps or 1)
            ready[name] = contestant
        except Exception as error:
            if name == base:
                raise
            absent[name] = describe(error)
    return ready, absent


def take_turns(
    contestants: Mapping[str, Contestant], *, base: str, turns: int, seconds: float = 0.2
) -> list[dict[str, Any]]:
    """Time all contestants in every turn.

    Parameters
    ----------
    contestants : mapping
        By name, all warm.
    base : str
        The one to which ratios refer: medians over turns of (time of a contestant) / (time of ``base``).
    turns : int
        Number of turns.
    seconds : float
        Aimed at per contestant and turn, where the number of steps is free.
    """
    steps: dict[str, int] = {}
    for name, contestant in contestants.items():
        steps[name] = contestant.num_steps or _choose_steps(contestant, seconds)
    taken: dict[str, list[Timing]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, contestant in contestants.items():
            taken[name].append(contestant.time(steps[name]))
    return [_summarize(name, taken[name], taken[base], steps[name]) for name in contestants]


def _choose_steps(contestant: Contestant, seconds: float) -> int:
    """Number of steps that take so long, counted without the set-up of a run."""
    first = contestant.time(1).wall * contestant.parts
    if first > 10 * seconds:
        return 1
    tried = 10
    while True:  # a few steps may be mostly set-up
        taken = contestant.time(tried).wall * contestant.parts * tried
        per_step = max(taken - first, taken / 100) / (tried - 1)
        chosen = max(1, min(MOST_STEPS, round(seconds / per_step)))
        if chosen <= 10 * tried:
            return chosen
        tried *= 10


def _summarize(name: str, own: list[Timing], base: list[Timing], num_steps: int) -> dict[str, Any]:
    ratios = sorted(a.wall / b.wall for a, b in zip(own, base, strict=True))
    busy = [a.busy / b.busy for a, b in zip(own, base, strict=True) if b.busy > 0]
    row = {
        "name": name,
        "seconds": statistics.median(each.wall for each in own),
        "busy_seconds": statistics.median(each.busy for each in own),
        "ratio": statistics.median(ratios),
        "lowest_ratio": ratios[0],
        "highest_ratio": ratios[-1],
        "busy_ratio": statistics.median(busy) if busy else None,
        "turns": len(own),
        "steps_per_turn": num_steps,
    }
    found = [each.found for each in own if each.found]
    for key in found[0] if found else ():
        values = [each[key] for each in found]
        row[key] = statistics.median(values) if all(isinstance(value, int | float) for value in values) else values[-1]
    return row
