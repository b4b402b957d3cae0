"""What an algorithm keeps of the steps of a run, and shows of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.training.loop import Callback, Progress, count_unseen

__all__ = ["StepWatch"]

NUM_KEPT = 32  # approximate number of iterates to keep for the diagnostics


@dataclass
class StepWatch:
    """Count steps across phases, keep some iterates, and ask the user's callback whether to stop.

    Parameters
    ----------
    callback : callable or None
        The user's callback.
    num_steps : int
        Number of steps of all phases.
    """

    callback: Callback | None
    num_steps: int
    phase: int = 0
    before: int = 0  # steps of earlier phases
    done: int = 0
    stopped: bool = False
    kept: list[tuple[int, int, NDArray[np.float64]]] = field(default_factory=list)  # step, phase, parameters

    def enter(self, phase: int, before: int) -> None:
        """Start a phase, after so many steps of earlier ones."""
        self.phase, self.before = phase, before

    @property
    def unseen_steps(self) -> float:
        """Number of next steps that this need not see."""
        every = self._keep_every
        return min(every - 1 - self.done % every, count_unseen(self.callback))

    @property
    def _keep_every(self) -> int:
        return max(1, self.num_steps // NUM_KEPT)

    def get_state(self) -> dict[str, Any]:
        """Everything about the steps so far, the current one included, which is counted after it was saved."""
        state: dict[str, Any] = {"phase": self.phase, "done": self.done + 1}
        for number, (step, phase, parameters) in enumerate(self.kept):
            state |= {f"kept.{number}": parameters, f"kept.{number}.step": step, f"kept.{number}.phase": phase}
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that :meth:`get_state` returned."""
        self.done = int(state["done"])
        numbers = range(sum(name.endswith(".phase") for name in state))
        self.kept = [
            (state[f"kept.{number}.step"], state[f"kept.{number}.phase"], state[f"kept.{number}"]) for number in numbers
        ]

    def __call__(self, progress: Progress) -> bool:
        """Count steps, and return whether to stop."""
        self.done = self.before + progress.step
        if self.done % self._keep_every == 0:
            self.kept.append((self.done, self.phase, np.asarray(progress.parameters).copy()))
        if self.callback is not None:
            # A copy: what a callback does to it must not reach the records.
            shown = np.asarray(progress.parameters).copy()
            self.stopped = bool(self.callback(Progress(self.done, self.num_steps, shown)))
        return self.stopped
