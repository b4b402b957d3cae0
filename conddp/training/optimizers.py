"""Optimizers for released gradients: post-processing, at no privacy cost."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from conddp._fused import Kernel, as_contiguous, make_numbers
from conddp.heads.head import Array, OptimizerName

__all__ = ["ADAM", "SCALE_ADAM", "SGD", "Adam", "FusedRule", "Optimizer", "make_optimizer"]

NONE: NDArray[np.float64] = np.empty(0)


class FusedRule(NamedTuple):
    """What a kernel needs to update the parameters of one configuration.

    Attributes
    ----------
    first, second : arrays of shape (1, P)
        Moments of Adam, which the kernel updates; they are empty for plain gradient descent.
    rates : array of shape (1, 1)
        Learning rate.
    steps : int
        Number of steps that were taken.
    decay_first, decay_second, stabilizer : float
        Constants of Adam.
    factors : array
        Room for two numbers that the kernel computes in every step of Adam.
    """

    first: Array
    second: Array
    rates: Array
    steps: int = 0
    decay_first: float = 0.0
    decay_second: float = 0.0
    stabilizer: float = 0.0
    factors: NDArray[np.float64] = NONE


class Optimizer(Protocol):
    """Updates parameters of shape (K, P) in place, given a gradient of the same shape."""

    def update(self, parameters: Array, gradient: Array) -> None:
        """Take one step."""

    def get_state(self) -> dict[str, Any]:
        """Return what the next step depends on, besides the settings."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that :meth:`get_state` returned."""

    def fuse(self, parameters: Array) -> FusedRule:
        """Return what a kernel needs to take the next steps; :meth:`count` them afterwards."""

    def count(self, num_steps: int) -> None:
        """Note that a kernel took so many steps."""


def _per_configuration(value: Any, parameters: Array) -> Array:
    """Broadcast a number, or one number per configuration, to a column that multiplies parameters of shape (K, P)."""
    xp = array_api_compat.array_namespace(parameters)
    column = np.broadcast_to(np.asarray(value, dtype=np.float64), (parameters.shape[0],))[:, None]
    return xp.asarray(np.array(column), dtype=parameters.dtype, device=parameters.device)


@dataclass
class SGD:
    """Plain gradient descent, which is invariant under rotations of the parameters."""

    learning_rate: Any
    _rate: Array = field(default=None, init=False, repr=False)

    def update(self, parameters: Array, gradient: Array) -> None:
        """Take one step."""
        if self._rate is None:
            self._rate = _per_configuration(self.learning_rate, parameters)
        parameters -= self._rate * gradient

    def get_state(self) -> dict[str, Any]:
        """Return nothing: a step depends on the gradient only."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""

    def fuse(self, parameters: Array) -> FusedRule:
        """Return the learning rate."""
        none: Array = np.empty((0, 0))
        return FusedRule(none, none, _per_configuration(self.learning_rate, parameters))

    def count(self, num_steps: int) -> None:
        """Do nothing."""


@dataclass
class Adam:
    """Adam (Kingma and Ba 2015) with the usual constants. It scales each coordinate separately."""

    learning_rate: Any
    decay_first: float = 0.9
    decay_second: float = 0.999
    stabilizer: float = 1e-8
    _rate: Array = field(default=None, init=False, repr=False)
    _first: Array = field(default=None, init=False, repr=False)
    _second: Array = field(default=None, init=False, repr=False)
    _steps: int = field(default=0, init=False, repr=False)

    def take(self, index: Sequence[int]) -> "Adam":
        """Return a copy with its state for some configurations only. Requires one learning rate per configuration."""
        chosen = list(index)
        rule = replace(self, learning_rate=np.asarray(self.learning_rate)[chosen])
        if self._rate is not None:
            rule._rate, rule._first, rule._second = self._rate[chosen], self._first[chosen], self._second[chosen]
            rule._steps = self._steps
        return rule

    def get_state(self) -> dict[str, Any]:
        """Return the moments and the number of steps."""
        return {"first": np.asarray(self._first), "second": np.asarray(self._second), "steps": self._steps}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from moments and a number of steps."""
        xp = array_api_compat.array_namespace(state["first"])
        self._first, self._second = (xp.asarray(state[name], copy=True) for name in ("first", "second"))
        self._steps = int(state["steps"])
        self._rate = _per_configuration(self.learning_rate, self._first)

    def fuse(self, parameters: Array) -> FusedRule:
        """Return the moments, which the kernel updates, and the constants."""
        self._start(parameters)
        moments = self._first, self._second, self._rate
        return FusedRule(*moments, self._steps, self.decay_first, self.decay_second, self.stabilizer, np.empty(2))

    def count(self, num_steps: int) -> None:
        """Note that a kernel took so many steps."""
        self._steps += num_steps

    def _start(self, parameters: Array) -> None:
        if self._rate is None:
            xp = array_api_compat.array_namespace(parameters)
            self._rate = _per_configuration(self.learning_rate, parameters)
            self._first, self._second = xp.zeros_like(parameters), xp.zeros_like(parameters)

    def update(self, parameters: Array, gradient: Array) -> None:
        """Take one step."""
        self._start(parameters)
        self._steps += 1
        factors: NDArray[np.float64] = np.empty(2)
        _scale_adam(float(self._steps), self.decay_first, self.decay_second, self.stabilizer, factors)
        if (kernel := ADAM.get()) is not None:
            arrays = as_contiguous(parameters, gradient, self._first, self._second, self._rate)
            if arrays is not None and arrays[0].dtype == arrays[1].dtype == np.float64:  # moments are as parameters
                kernel(*arrays, self.decay_first, self.decay_second, factors)
                return
        floor, factor = factors.tolist()
        self._first *= self.decay_first
        self._first += gradient
        self._second *= self.decay_second
        self._second += gradient * gradient
        step = self._second**0.5
        step += floor
        step **= -1.0
        step *= self._first
        step *= self._rate * factor
        parameters -= step


def _scale_adam(steps: float, decay_first: float, decay_second: float, stabilizer: float, out: Any) -> None:
    """Write what is added to the root of the second moment of Adam, and the factor of its step, after so many steps.

    Moments are sums instead of means: the factors 1 - decay of the usual moments are applied here.
    """
    first_factor = (1.0 - decay_first) / (1.0 - decay_first**steps)
    second_factor = math.sqrt((1.0 - decay_second) / (1.0 - decay_second**steps))
    out[0], out[1] = stabilizer / second_factor, first_factor / second_factor


def _update_adam(
    parameters: Any,
    gradient: Any,
    first: Any,
    second: Any,
    rates: Any,
    decay_first: float,
    decay_second: float,
    factors: Any,
) -> None:
    """One step of Adam in one pass, with the same operations in the same order as :meth:`Adam.update`."""
    for k in range(parameters.shape[0]):
        floor, rate = factors[0], rates[k, 0] * factors[1]
        for i in range(parameters.shape[1]):
            first[k, i] = first[k, i] * decay_first + gradient[k, i]
            second[k, i] = second[k, i] * decay_second + gradient[k, i] * gradient[k, i]
            parameters[k, i] -= 1.0 / (np.sqrt(second[k, i]) + floor) * first[k, i] * rate


def _adam_examples() -> Iterator[list[Any]]:
    arrays = make_numbers(2, 75), make_numbers(2, 75, start=151), make_numbers(2, 75, start=301), np.ones((2, 75))
    yield [*arrays, np.array([[0.1], [0.02]]), 0.9, 0.999, np.array([1e-8, 0.7])]


def _scale_examples() -> Iterator[list[Any]]:
    yield from ([float(steps), 0.9, 0.999, 1e-8, np.ones(2)] for steps in (1, 2, 77, 100_000))


SCALE_ADAM = Kernel(_scale_adam, ["void(float64, float64, float64, float64, float64[::1])"], examples=_scale_examples)
ADAM = Kernel(_update_adam, [f"void({'float64[:, ::1], ' * 5}float64, float64, float64[::1])"], examples=_adam_examples)


def make_optimizer(name: OptimizerName, learning_rate: Any) -> Optimizer:
    """Create an optimizer by name."""
    return SGD(learning_rate) if name == "sgd" else Adam(learning_rate)
