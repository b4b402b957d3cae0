"""Many steps of noisy descent in one compiled call: sum, noise, update.

A step of a small model takes less time than the Python code around it. Here a kernel takes steps one after another,
with noise that the curator has reserved for them. It calls the kernels that single steps use, so its results have the
same bits. It returns early at a step whose noisy sum has doubtful numbers, and goes on when the curator has decided
them.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp._fused import Kernel, make_numbers
from conddp.heads.fused import KernelSum
from conddp.heads.fused_linear import SUM_COLUMNS, SUM_FEW_COLUMNS, SUM_ROWS, SUM_SPARSE
from conddp.heads.fused_network import SUM_NETWORK
from conddp.heads.head import Array
from conddp.privacy.fused_noise import ROUND_TO_GRID
from conddp.privacy.noisy_steps import GridRule
from conddp.training.batches import Batches
from conddp.training.optimizers import ADAM, SCALE_ADAM, Optimizer

__all__ = ["STEPS", "FusedSteps"]

Vector = NDArray[np.float64]

WORK_AT_ONCE = 5e7  # multiplications of a call, some 15 ms; signals such as Ctrl-C are noticed between calls
DRAWING = 100.0  # a record of a sample, in multiplications that take as long; also keeps samples drawn ahead small

# Kernels that steps call. That of the sum differs from one kernel of steps to another.
sum_records: Any = None
round_to_grid: Any = None
scale_adam: Any = None
update_adam: Any = None


def _take_steps(
    positions: Any,
    spans: Any,
    noise: Any,
    is_decided: bool,
    grid: float,
    ratio: float,
    tolerance: float,
    largest: float,
    sums: Any,
    noisy: Any,
    doubtful: Any,
    weight: float,
    bound: float,
    parameters: Any,
    first: Any,
    second: Any,
    rates: Any,
    steps: int,
    decay_first: float,
    decay_second: float,
    stabilizer: float,
    factors: Any,
    total: Any,
    num_skipped: int,
    known: Any,
) -> tuple[int, int]:
    """Take steps until one has doubtful numbers; return the number of complete ones, and of the doubtful numbers.

    Parameters
    ----------
    positions, spans : arrays
        Positions of the records of all steps, and where those of each step start and end.
    noise : array of shape (steps, P)
        Noise of every step, of unit scale.
    is_decided : bool
        Whether the noisy sum of the first step is there already.
    grid, ratio, tolerance, largest : float
        See :class:`~conddp.privacy.noisy_steps.GridRule`.
    sums, noisy, doubtful : arrays of shape (P,)
        Sum of a step, the same with noise, and places of doubtful numbers.
    weight, bound : float
        Expected weight of a batch, and the magnitude to which parameters are clamped.
    parameters : array of shape (P,)
        Parameters.
    first, second, rates, steps, decay_first, decay_second, stabilizer, factors
        See :class:`~conddp.training.optimizers.FusedRule`.
    total : array of shape (P,)
        The parameters after each step but the first ``num_skipped`` are added to it.
    num_skipped : int
        See above.
    known : tuple
        Arguments of the kernel of the sum after the positions. It reads ``parameters`` and writes to ``sums``.
    """
    size = noisy.shape[0]
    for step in range(noise.shape[0]):
        if step > 0 or not is_decided:
            sum_records(positions[spans[step, 0] : spans[step, 1]], *known)
            count = round_to_grid(sums, noise[step], grid, ratio, tolerance, largest, noisy, doubtful)
            if count > 0:
                return step, count
        for i in range(size):
            noisy[i] = noisy[i] / weight
        if first.shape[0] == 0:
            for i in range(size):
                parameters[i] -= rates[0, 0] * noisy[i]
        else:
            scale_adam(np.float64(steps + step + 1), decay_first, decay_second, stabilizer, factors)
            update_adam(
                parameters.reshape(1, size),
                noisy.reshape(1, size),
                first,
                second,
                rates,
                decay_first,
                decay_second,
                factors,
            )
        for i in range(size):
            value = parameters[i]
            value = -bound if value < -bound else value
            parameters[i] = bound if value > bound else value
        if step >= num_skipped:
            for i in range(size):
                total[i] += parameters[i]
    return noise.shape[0], 0


def _step_examples(kernel: Kernel, place: int) -> Iterator[list[Any]]:
    """Two steps on every example of a sum, first of Adam and then plain ones, of which the second is doubtful."""
    for (positions, *known), is_plain in product(kernel.make_examples(), (False, True)):
        sums, parameters = known[-1], known[place]
        size, m = len(sums), len(positions)
        noise, moments = make_numbers(2, size, start=901), np.ones((0 if is_plain else 1, 0 if is_plain else size))
        noise[1, 0] = np.nan if is_plain else 0.5
        rule = 2.0**-20, 1.5 * 2.0**20, 2.0**-44, 2.0**51
        buffers = sums, make_numbers(size, start=951), np.zeros(size, dtype=np.int64), 9.0, 1.0
        adam = moments, moments.copy(), np.array([[0.7]]), 3, 0.9, 0.999, 1e-8, np.ones(2)
        spans = np.array([[0, m], [m // 2, m]])
        yield [positions, spans, noise, is_plain, *rule, *buffers, parameters, *adam, np.ones(size), 1, tuple(known)]


_PLACES, _LINE, _LINES = "int64[::1]", "float64[::1]", "float64[:, ::1]"
_ARGUMENTS = (
    f"{_PLACES}, int64[:, ::1], {_LINES}, boolean, float64, float64, float64, float64, {_LINE}, {_LINE}, {_PLACES}, "
    f"float64, float64, {_LINE}, {_LINES}, {_LINES}, {_LINES}, int64, float64, float64, float64, {_LINE}, {_LINE}, "
    "int64"
)


def _make_kernel(kernel: Kernel, place: int) -> Kernel:
    """Make the kernel of steps that calls this kernel of a sum, which has parameters at this place."""
    start, end = f"void({_PLACES}, ", ")"
    known = [each.removeprefix(start).removesuffix(end) for each in kernel.signatures]
    steps = Kernel(
        _take_steps,
        [f"UniTuple(int64, 2)({_ARGUMENTS}, Tuple(({each},)))" for each in known],
        examples=lambda: _step_examples(kernel, place),
        calls={
            "sum_records": kernel,
            "round_to_grid": ROUND_TO_GRID,
            "scale_adam": SCALE_ADAM,
            "update_adam": ADAM,
        },
    )
    return steps


STEPS_ON_COLUMNS = _make_kernel(SUM_COLUMNS, -3)
STEPS_ON_FEW_COLUMNS = _make_kernel(SUM_FEW_COLUMNS, -3)
STEPS_ON_ROWS = _make_kernel(SUM_ROWS, -3)
STEPS_ON_SPARSE_ROWS = _make_kernel(SUM_SPARSE, -3)
STEPS_OF_NETWORK = _make_kernel(SUM_NETWORK, -11)
STEPS = {
    SUM_COLUMNS: STEPS_ON_COLUMNS,
    SUM_FEW_COLUMNS: STEPS_ON_FEW_COLUMNS,
    SUM_ROWS: STEPS_ON_ROWS,
    SUM_SPARSE: STEPS_ON_SPARSE_ROWS,
    SUM_NETWORK: STEPS_OF_NETWORK,
}


class FusedSteps:
    """Steps of a run of one configuration, which a curator feeds with noise.

    Privacy
        The noise is the curator's, and every sum gets the noise of its own step before it is used. Sums are in memory
        that nothing else reads. Positions of samples are secret and stay here.

    Parameters
    ----------
    take : callable
        Compiled kernel of the steps.
    fused : KernelSum
        Sum over the records of a step.
    batches : Batches
        Draws the records of a step. Those of several steps are drawn ahead.
    parameters : array of shape (1, P)
        Parameters that the sum reads, updated in place.
    optimizer : Optimizer
        Update rule.
    bound : float
        Magnitude to which parameters are clamped.
    num_skipped : int
        Number of steps after which parameters are added up in ``total``.
    """

    def __init__(
        self,
        take: Callable[..., tuple[int, int]],
        fused: KernelSum,
        batches: Batches,
        parameters: Array,
        optimizer: Optimizer,
        *,
        bound: float,
        num_skipped: int,
    ) -> None:
        self._take, self._fused, self._batches, self._optimizer = take, fused, batches, optimizer
        self._parameters, self._bound, self._num_skipped = parameters, bound, num_skipped
        size = parameters.shape[1]
        self.sums: Vector = fused.known[-1]
        self.noisy, self.doubtful, self.total = np.empty(size), np.empty(size, dtype=np.int64), np.zeros(size)
        self._positions, self._spans = fused.everyone, np.empty((0, 2), dtype=np.int64)
        probability = batches.sampler.sampling_probability
        expected_size, per_record = len(fused.everyone) * probability, size + (DRAWING if probability < 1.0 else 0.0)
        self.at_once = max(1, int(WORK_AT_ONCE / (per_record * max(1.0, expected_size))))

    @classmethod
    def of(
        cls, batches: Batches, parameters: Array, optimizer: Optimizer, *, bound: float, num_skipped: int
    ) -> "FusedSteps | None":
        """Make the steps; None if there is no kernel for these batches."""
        fused = batches.fused
        if not isinstance(fused, KernelSum) or "fuse" not in vars(type(optimizer)):  # a subclass may do something else
            return None
        kernel = STEPS[fused.kernel].get()
        if kernel is None:
            return None
        return cls(kernel, fused, batches, parameters, optimizer, bound=bound, num_skipped=num_skipped)

    def prepare(self, num_steps: int) -> None:
        """Draw the records of so many steps."""
        positions, self._spans = self._batches.draw_several(num_steps)
        self._positions = self._fused.everyone if positions is None else positions

    def advance(self, noise: Vector, rule: GridRule, *, is_decided: bool) -> tuple[int, int]:
        """Take steps with this noise, shape (steps, P), until one has doubtful numbers."""
        update = self._optimizer.fuse(self._parameters)
        done, num_doubtful = self._take(
            self._positions,
            self._spans,
            noise,
            is_decided,
            *rule,
            self.sums,
            self.noisy,
            self.doubtful,
            self._batches.expected_weight,
            self._bound,
            self._parameters[0],
            *update,
            self.total,
            self._num_skipped,
            self._fused.known,
        )
        self._optimizer.count(done)
        self._spans, self._num_skipped = self._spans[done:], max(0, self._num_skipped - done)
        return done, num_doubtful
