"""Batches of records for the steps of a run: all records, or Poisson samples of them."""

from dataclasses import dataclass, replace

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from conddp.data.units import Units
from conddp.features.row_weights import RowWeights
from conddp.heads.fused import FusedSum
from conddp.heads.head import Array, Inputs, Layout
from conddp.losses import Loss
from conddp.training.clipping import Workspace, compute_clipped_sum, fuse_clipped_sum
from conddp.training.ranks import Share
from conddp.training.sampling import PoissonSampler
from conddp.training.stored_batches import StoredBatches, StoredInputs

__all__ = ["Batches"]


@dataclass(frozen=True)
class Batches:
    """Records of a run, of which every step uses all or a Poisson sample.

    Every rank draws the same sample of the records, or units, of all ranks and keeps those of its share. Together, the
    ranks use the sample that a single process would have drawn.

    Parameters
    ----------
    inputs, label, weights
        Features, labels and weights (or None) of the records of this process. Labels of shape (K, n) are different
        ones for each configuration.
    sampler : PoissonSampler
        Sampler of records or units.
    expected_weight : float
        Expected sum of the weights of a batch, over all ranks.
    units : Units, optional
        Units of all records, if units are sampled.
    share : Share, optional
        Which of all records these are; all of them if None.
    fused : FusedSum, optional
        Function that writes sums into the workspace of the run.
    """

    inputs: Inputs
    label: Array
    weights: Array | None
    sampler: PoissonSampler
    expected_weight: float
    units: Units | None = None
    share: Share | None = None
    fused: FusedSum | None = None

    @classmethod
    def of(
        cls,
        inputs: Inputs | StoredInputs,
        label: Array,
        *,
        sampling_probability: float,
        rng: np.random.Generator,
        weights: RowWeights | None,
        share: Share | None,
        like: Array,
        num_steps: int,
    ) -> "Batches | StoredBatches":
        """Make batches, with weights as an array like that of the parameters.

        Parameters
        ----------
        inputs, label, share
            See the class.
        sampling_probability : float
            Probability that a record, or unit, is in a batch.
        rng : numpy.random.Generator
            Generator of the samples; the same one on every rank.
        weights : RowWeights or None
            Units of all records and their weights.
        like : array
            Parameters of the run.
        num_steps : int
            Number of steps that are left.
        """
        if isinstance(inputs, StoredInputs):
            return StoredBatches(inputs, label, PoissonSampler(len(inputs), sampling_probability, rng), num_steps)
        num_records = label.shape[-1] if share is None else share.num_records
        if weights is None:
            sampler = PoissonSampler(num_records, sampling_probability, rng)
            return cls(inputs, label, None, sampler, sampler.expected_size, None, share)
        values = weights.values if share is None else weights.values[share.span]
        values = array_api_compat.array_namespace(like).asarray(values, dtype=like.dtype)
        sampler = PoissonSampler(weights.units.num_units, sampling_probability, rng)
        return cls(inputs, label, values, sampler, weights.total * sampling_probability, weights.units, share)

    def fuse(self, workspace: Workspace, clip_norm: Array, loss: Loss | None) -> "Batches":
        """Return these batches with a compiled function for their sums, if there is one."""
        fused = fuse_clipped_sum(
            workspace,
            self.inputs,
            self.label,
            clip_norm=clip_norm,
            loss=loss,
            weights=self.weights,
            are_sampled=self.sampler.sampling_probability < 1.0,
        )
        return replace(self, fused=fused)

    def compute_sum(self, workspace: Workspace, layout: Layout, clip_norm: Array, loss: Loss | None) -> Array:
        """Sum the clipped gradients of the next batch, as :func:`~conddp.training.clipping.compute_clipped_sum`."""
        drawn = self.draw()
        if self.fused is not None:
            self.fused(drawn)
            return workspace.total
        inputs, label, weights = self.inputs, self.label, self.weights
        if drawn is not None:
            index = drawn if isinstance(label, np.ndarray) else inputs.xp.asarray(drawn, device=label.device)
            inputs, label, weights = inputs.take(index), label[..., index], None if weights is None else weights[index]
        return compute_clipped_sum(workspace, inputs, label, clip_norm=clip_norm, loss=loss, weights=weights)

    def draw(self) -> NDArray[np.int64] | None:
        """Draw the positions of the records of the next batch; None if it has all of them."""
        if self.sampler.sampling_probability == 1.0:
            return None
        drawn = self.sampler.draw()
        if self.units is not None:
            drawn = self.units.list_records(drawn)
        if self.share is not None:
            drawn = self.share.select(drawn)
        return drawn

    def draw_several(self, num_batches: int) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
        """Draw the positions of the records of several batches, as one after another.

        Returns
        -------
        positions : array or None
            Positions of all batches; None if every batch has all records.
        spans : array of shape (num_batches, 2)
            Where each batch starts and ends among them.
        """
        if self.sampler.sampling_probability == 1.0:
            return None, np.tile([0, self.label.shape[-1]], (num_batches, 1))  # records, also if units are sampled
        if self.units is None and self.share is None:
            positions, ends = self.sampler.draw_several(num_batches)
        else:
            drawn = [self.draw() for _ in range(num_batches)]
            positions = np.concatenate([np.empty(0, dtype=np.int64), *(each for each in drawn if each is not None)])
            ends = np.cumsum([0 if each is None else len(each) for each in drawn])
        spans = np.zeros((num_batches, 2), dtype=np.int64)
        spans[:, 1], spans[1:, 0] = ends, ends[:-1]
        return positions, spans
