"""Batches of the records of a stored table: full batches by passes, Poisson samples gathered for many steps at once."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import BLOCK_SIZE, Sliceable, count_additions, list_blocks, run_pass
from conddp.errors import SchemaError
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.stored_features import StoredFeatures
from conddp.heads.head import Head, Inputs, Layout
from conddp.losses import Loss
from conddp.training.clipping import Workspace, compute_clipped_sum
from conddp.training.sampling import PoissonSampler

__all__ = ["StoredBatches", "StoredInputs"]

Matrix = NDArray[np.float64]

CELLS_AHEAD = 1 << 24  # numbers of gathered records that are kept in memory
MOST_STEPS_AHEAD = 256


@dataclass(frozen=True, eq=False)
class StoredInputs:
    """Conditioned public features of a stored table, as a column whose blocks are arrays of shape (size, k).

    Parameters
    ----------
    columns : StoredColumn
        Public features.
    matrix : array of shape (d, k)
        Matrix that conditions them.
    offset : array of shape (k,)
        What the constant column adds.
    """

    columns: Any
    matrix: Matrix
    offset: Matrix

    @classmethod
    def of(cls, public_features: StoredFeatures, conditioning: ConditioningMatrix) -> "StoredInputs":
        """Condition public features when they are read."""
        slope, offset = conditioning.split(public_features)
        return cls(public_features.column, slope, np.asarray(offset) + np.zeros(conditioning.num_parameters))

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, span: slice) -> Matrix:
        """Read and condition consecutive records."""
        return np.asarray(self.columns[span] @ self.matrix + self.offset)

    @property
    def partitions(self) -> tuple[slice, ...]:
        """Partitions of the table."""
        partitions: tuple[slice, ...] = self.columns.partitions
        return partitions

    def bound_rounding(self, per_unit: int, precision: Any) -> float:
        """Return 0: the curator covers rounding errors of sums of rows that are formed."""
        return 0.0


@dataclass(frozen=True, eq=False)
class StoredBatches:
    """Records of a stored table, of which every step uses all or a Poisson sample.

    A full batch is one pass over the table. Poisson samples are drawn in advance for as many steps as fit into memory,
    and one pass gathers their records. Samples are the same as for a table in memory.

    Privacy
        Samples do not depend on any record. Gathered labels stay in this process until their step is done.

    Parameters
    ----------
    inputs : StoredInputs
        Conditioned public features.
    label : column
        Scaled labels.
    sampler : PoissonSampler
        Sampler of records.
    num_steps : int
        Number of steps of the run. No samples are drawn for others.
    """

    inputs: StoredInputs
    label: Sliceable
    sampler: PoissonSampler
    num_steps: int
    _ahead: deque[tuple[Inputs, Matrix]] = field(default_factory=deque, repr=False)
    _steps: list[int] = field(default_factory=lambda: [0], repr=False)  # for which samples have been drawn

    def __post_init__(self) -> None:
        n, largest = len(self.inputs), 1.1 * self.sampler.expected_size
        additions = min(largest, BLOCK_SIZE) + largest / BLOCK_SIZE
        if self.sampler.sampling_probability < 1.0 and (
            largest * additions > n * count_additions(n, self.inputs.partitions)
        ):
            raise SchemaError(
                f"batches of {self.sampler.expected_size:,.0f} out of {n:,} records in files round by more than is "
                "covered. Leave batch_size out, so that every step uses all records."
            )

    @property
    def expected_weight(self) -> float:
        """Expected number of records in a batch."""
        return self.sampler.expected_size

    def fuse(self, workspace: Workspace, clip_norm: Matrix, loss: Loss | None) -> "StoredBatches":
        """Return these batches as they are: sums must not depend on which process computes them."""
        return self

    def compute_sum(self, workspace: Workspace, layout: Layout, clip_norm: Matrix, loss: Loss | None) -> Matrix:
        """Sum the clipped gradients of the next batch, as :func:`~conddp.training.clipping.compute_clipped_sum`."""
        if self.sampler.sampling_probability == 1.0:
            function = _SumGradients(workspace.head, layout, workspace.parameters, clip_norm, loss)
            workspace.total[...] = run_pass(function, self.inputs, self.label)
            return np.asarray(workspace.total)
        if not self._ahead:
            self._gather()
        inputs, label = self._ahead.popleft()
        total = np.zeros_like(workspace.total)
        for span in list_blocks(len(label)):
            total += compute_clipped_sum(workspace, inputs.take(span), label[span], clip_norm=clip_norm, loss=loss)
        workspace.total[...] = total
        return np.asarray(workspace.total)

    def _gather(self) -> None:
        """Draw the samples of the next steps and read their records."""
        cells = max(1.0, self.sampler.expected_size) * len(self.inputs.offset)
        num_steps = max(1, min(MOST_STEPS_AHEAD, math.floor(CELLS_AHEAD / cells), self.num_steps - self._steps[0]))
        self._steps[0] += num_steps
        drawn = [self.sampler.draw() for _ in range(num_steps)]
        wanted = np.unique(np.concatenate(drawn))
        found = run_pass(_Gather(wanted), self.inputs, self.label)
        rows, label = np.concatenate(found.rows), np.concatenate(found.labels)
        for each in drawn:
            places = wanted.searchsorted(each)
            self._ahead.append((Inputs.of(rows[places]), label[places]))


@dataclass(frozen=True, eq=False)
class _SumGradients:
    """Sums the clipped gradients of a block. The repr shows no number."""

    head: Head
    layout: Layout
    parameters: Matrix
    clip_norm: Matrix
    loss: Loss | None

    def __call__(self, span: slice, rows: Matrix, label: Matrix) -> Matrix:
        with np.errstate(all="ignore"):  # overflow may depend on private values
            workspace = Workspace.of(self.head, self.layout, np.array(self.parameters))
            return np.array(
                compute_clipped_sum(workspace, Inputs.of(rows), label, clip_norm=self.clip_norm, loss=self.loss)
            )

    def __repr__(self) -> str:
        return "<sums of clipped gradients>"


@dataclass(frozen=True, eq=False)
class _Gathered:
    rows: tuple[Matrix, ...]
    labels: tuple[Matrix, ...]

    def __add__(self, other: "_Gathered") -> "_Gathered":
        return _Gathered(self.rows + other.rows, self.labels + other.labels)


@dataclass(frozen=True, eq=False)
class _Gather:
    """Takes the records of a block that are wanted. The repr shows no number."""

    wanted: NDArray[np.int64]

    def __call__(self, span: slice, rows: Matrix, label: Matrix) -> _Gathered:
        first, last = self.wanted.searchsorted((span.start, span.stop))
        places = self.wanted[first:last] - span.start
        return _Gathered((rows[places],), (label[places],))

    def __repr__(self) -> str:
        return "<records of samples>"
