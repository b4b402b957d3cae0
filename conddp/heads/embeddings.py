"""Embeddings of categories from one table, followed by a multilayer perceptron."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from conddp._validate import one_of, positive, positive_integer
from conddp.data.parts import PublicFeatures
from conddp.errors import SchemaError
from conddp.features.code_spectrum import compute_spectral_table
from conddp.heads.head import HEADS, Array, Circumstances, DescentDefaults, Head, Inputs, Layout, Trace, Weights
from conddp.heads.kernels import (
    activate,
    add_by_code,
    as_codes,
    bound_sum_rounding,
    derivative_times,
    look_up,
    row_norms,
    square_by_code,
    sum_products,
)

__all__ = ["CodedInputs", "Embeddings"]

LARGEST_CANCELLATION = 1e-3  # smallest squared norm of a gradient over that of its vectors before equal bins are added
PREDICTED_AT_ONCE = 8192  # records, so that activations fit into the processor cache


@dataclass(frozen=True)
class CodedInputs(Inputs):
    """Inputs with the bins of categories apart from the numbers; made once per data set.

    Parameters
    ----------
    codes : integer array of shape (n, c)
        Bin of each category.
    has_repeats : boolean array of shape (n,)
        Whether two categories of a record have the same bin.
    """

    codes: Array = None
    has_repeats: Array = None

    def bound_rounding(self, per_unit: int, precision: Any) -> float:
        r"""Bound what rounding adds to the move of a sum, in clip norms.

        There are two parts. The first is that of products summed in a lower precision. The second is that of sums by
        bin: vectors of categories in the same bin may cancel in the gradient of a record but are added one by one.
        Together they have a length of up to :math:`\sqrt{c / \lambda}` clip norms, where :math:`\lambda` is
        ``LARGEST_CANCELLATION``, and they go through up to c additions per record of a block.
        """
        dtype = self.public.dtype
        bound = 0.0 if dtype == precision else bound_sum_rounding(self.xp, dtype, per_unit=per_unit)
        if not bool(self.xp.any(self.has_repeats)):
            return bound
        (n, c), block = self.codes.shape, Embeddings.records_at_once
        additions = min(n, block) * c + n / block
        unit = float(self.xp.finfo(precision).eps)
        return float(bound + unit * n * additions * math.sqrt(c / LARGEST_CANCELLATION))

    def take(self, index: Array) -> "CodedInputs":
        """Select the records at these positions."""
        private = None if self.private is None else self.private[index]
        return replace(
            self,
            public=self.public[index],
            private=private,
            row_norms=self.row_norms[index],
            codes=self.codes[index],
            has_repeats=self.has_repeats[index],
        )


@dataclass(frozen=True)
class Embeddings(Head):
    r"""Embeddings of categories, looked up in one table, then a multilayer perceptron with a scalar output.

    The first public columns hold bins of categories, numbers from 0 to ``num_bins - 1``. The rows of the table for
    these bins are concatenated with the remaining public columns, the constant and the private columns, and enter the
    first hidden layer. With a table of column names, levels of categories become bins by a hash of the name of the
    column and the level, so that a level that did not occur in training has a bin too.

    The norm of a gradient is exact, also for records that have the same bin in two categories: the gradient of a row of
    the table is then the sum of two vectors :math:`\delta_j`, and

    .. math:: \|\partial f / \partial\,\mathrm{table}\|^2 = \sum_{j,k:\,\mathrm{bin}_j = \mathrm{bin}_k}
              \delta_j^\top \delta_k.

    Activations have the precision of the inputs, and sums over records that of the parameters. Noisy descent uses
    float32 for the former and float64 for the latter. See the notes.

    Paper
        The model of Sec. ``criteo_search``: ``Embeddings(num_bins=4000, width=8, hidden=(128, 64))`` on 17 categories
        and 3 numbers. Switch-Cond-DP initialises the table from the public bins instead of conditioning them.

    Parameters
    ----------
    num_bins : int
        Number of rows of the table, which all categories share.
    width : int
        Length of an embedding.
    hidden : tuple of int
        Widths of the hidden layers.
    activation : {"relu", "tanh"}
        Activation function after every hidden layer.
    num_categories : int, optional
        Number of public columns, counted from the first, that hold bins. If None, as many as the table has columns of
        categories; an array then has none.
    initialization : {"random", "spectral"}, optional
        Initial table: random, or the singular vectors of the public bins divided by their singular values (see
        :func:`~conddp.features.code_spectrum.compute_spectral_table`). If None, the algorithm decides: spectral for
        Switch-Cond-DP, random for all others.
    initial_scale : float
        Root mean square of the entries of the initial table.

    Notes
    -----
    Why float32 activations do not weaken the guarantee. The contribution of a record to the sum is
    :math:`q_i \delta_i a_i^\top` for each layer, where the activations :math:`a_i` and derivatives :math:`\delta_i` are
    numbers *as stored*. They need not be accurate: they define the contribution. They depend on the public columns and
    the parameters, and on the private columns of the same record only, so that those of other records are the same in a
    neighbouring data set. Three steps remain, and each of their errors is bounded:

    * The norm of the stored numbers is computed in float32 with a relative error of at most the number of summands
      times the unit roundoff, and is then increased by more than that (:meth:`_margin`). Inner products of vectors of
      equal bins may cancel, and get an allowance relative to the norms of the vectors.
    * :math:`q_i \delta_i` is rounded to float32, which the same margin covers.
    * Products with :math:`a_i` are summed in float32 over blocks of 128 records. A sum in float32 over thousands of
      records could be off by more than the clip norm. But the sums of all blocks without the record that differs are
      the same in a neighbouring data set, with all their errors, and in its own block 128 numbers are added.
      Sensitivity and noise are multiplied by one plus the bound on that error, 0.2 percent
      (:func:`~conddp.heads.kernels.bound_sum_rounding`). The sums of blocks, of biases and of the table are in float64,
      which the curator covers as in every other fit. PyTorch must not be set to multiply float32 numbers in a lower
      precision (``torch.set_float32_matmul_precision``); this is checked.
    """

    summary: ClassVar[str] = "embeddings of categories, then layers with ReLU or tanh"
    noun: ClassVar[str] = "a neural network on embeddings"
    descent: ClassVar[DescentDefaults] = DescentDefaults({"sgd": (128, 0.3), "adam": (256, 0.01)})
    precision: ClassVar[str] = "float32"
    records_at_once: ClassVar[int] = 4096

    num_bins: int = 4000
    width: int = 8
    hidden: tuple[int, ...] = (128, 64)
    activation: Literal["relu", "tanh"] = "relu"
    num_categories: int | None = None
    initialization: Literal["random", "spectral"] | None = None
    initial_scale: float = 0.3
    _weight: tuple[str, ...] = field(init=False, repr=False, compare=False)  # of the layers after the first
    _bias: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if not self.hidden:
            raise ValueError("hidden must contain at least one layer width.")
        for width in self.hidden:
            positive_integer(hidden=width)
        positive_integer(num_bins=self.num_bins, width=self.width)
        if self.num_bins > 2**24:
            raise ValueError(f"num_bins must be at most 2**24, which float32 can count, got num_bins={self.num_bins}.")
        if self.num_categories is not None and self.num_categories != 0:
            positive_integer(num_categories=self.num_categories)
        one_of(("relu", "tanh"), activation=self.activation)
        if self.initialization is not None:
            one_of(("random", "spectral"), initialization=self.initialization)
        positive(initial_scale=self.initial_scale)
        numbers = range(1, len(self.hidden) + 1)
        object.__setattr__(self, "_weight", tuple(f"weight_{number}" for number in numbers))
        object.__setattr__(self, "_bias", tuple(f"bias_{number}" for number in numbers))

    @property
    def num_codes(self) -> int:
        """Number of public columns that hold bins."""
        return self.num_categories or 0

    @property
    def bins(self) -> int | None:
        """Number of bins that levels of categories are hashed into."""
        return self.num_bins

    def settle(self, public_features: PublicFeatures, circumstances: Circumstances) -> "tuple[Embeddings, str]":
        """Return this head with the number of its categories, after a check of their bins.

        Raises
        ------
        SchemaError
            If there are fewer columns than categories, or a bin is not an integer from 0 to ``num_bins - 1``.
        """
        found = public_features.num_codes
        if self.num_categories is None:
            settled = replace(self, num_categories=found)
        elif found not in (0, self.num_categories):
            raise SchemaError(
                f"the head has num_categories={self.num_categories}, but the public columns have {found} categories. "
                "Leave num_categories out, or give the number of columns that are categories."
            )
        else:
            settled = self
        if settled.num_codes > public_features.shape[1]:
            raise SchemaError(
                f"the head expects bins in the first {settled.num_codes} public columns, but there are "
                f"{public_features.shape[1]}."
            )
        codes = public_features.get_columns(slice(0, settled.num_codes))
        if codes.size and not ((codes >= 0) & (codes < self.num_bins) & (codes == np.floor(codes))).all():
            raise SchemaError(
                f"the first {settled.num_codes} public columns must hold bins, integers from 0 to {self.num_bins - 1}. "
                "Hash the categories into as many bins, or pass a table in which they are text or categories."
            )
        return settled, ""

    def layout(self, num_public: int, num_private: int) -> Layout:
        """Return a layout with the table, the first layer by kind of input, then weights and biases of further layers.

        The bias of the first layer is the weight of the constant column. ``num_public`` counts the columns of bins.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        if self.num_codes:
            shapes["table"] = (self.num_bins, self.width)
            shapes["embedded"] = (self.hidden[0], self.num_codes * self.width)
        shapes["public"] = (self.hidden[0], num_public - self.num_codes)
        if num_private:
            shapes["private"] = (self.hidden[0], num_private)
        widths = (*self.hidden, 1)
        for number, (below, width) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
            shapes[self._weight[number]] = (width, below)
            shapes[self._bias[number]] = (width,)
        return Layout(shapes)

    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return Gaussian weights that preserve the scale of activations, small output weights and zero biases."""
        parameters: NDArray[np.float64] = np.zeros((1, layout.size))
        weights = layout.views(parameters)
        inputs = sum(layout.shapes[name][1] for name in self._blocks(layout.shapes))
        for name, weight in weights.items():
            if name.startswith("bias"):
                continue
            if name == "table":
                weight[...] = rng.normal(scale=self.initial_scale, size=weight.shape)
                continue
            fan_in = inputs if name in ("embedded", "public", "private") else weight.shape[2]
            gain = 0.1 if name == self._weight[-1] else np.sqrt(2.0 if self.activation == "relu" else 1.0)
            weight[...] = rng.normal(scale=gain / np.sqrt(fan_in), size=weight.shape)
        return parameters.ravel()

    def initialize_on(
        self, public_features: PublicFeatures, layout: Layout, rng: np.random.Generator, *, conditioned: bool
    ) -> NDArray[np.float64]:
        """Return initial parameters, with a table from the public bins if the settings or the algorithm ask for it."""
        parameters = self.initialize(layout, rng)
        spectral = self.initialization == "spectral" or (self.initialization is None and conditioned)
        if spectral and self.num_codes:
            codes = public_features.get_columns(slice(0, self.num_codes)).astype(np.int64)
            table = compute_spectral_table(codes, num_bins=self.num_bins, width=self.width)
            views = layout.views(parameters[None])
            found = table.shape[1]  # fewer than the width if the bins span fewer directions
            views["table"][0, :, :found] = table * (self.initial_scale / np.sqrt(np.mean(table[codes] ** 2)))
        return parameters

    def prepare(self, public: Array, private: Array | None) -> CodedInputs:
        """Separate bins from numbers, and find the records that have the same bin twice."""
        xp, c = array_api_compat.array_namespace(public), self.num_codes
        inputs = Inputs.of(public[:, c:], private)
        codes = as_codes(xp, public[:, :c], self.num_bins)
        if c > 1:
            ordered = xp.sort(codes, axis=1)
            has_repeats = xp.any(ordered[:, 1:] == ordered[:, :-1], axis=1)
        else:
            has_repeats = xp.zeros(public.shape[0], dtype=xp.bool, device=codes.device)
        return CodedInputs(
            inputs.public, private, inputs.row_norms, xp, inputs.rounding, codes=codes, has_repeats=has_repeats
        )

    def forward(self, weights: Weights, inputs: Inputs) -> Trace:
        """Compute predictions and gradient norms of all records."""
        coded = inputs if isinstance(inputs, CodedInputs) else self.prepare(inputs.public, inputs.private)
        xp, dtype = coded.xp, coded.public.dtype
        K = weights["public"].shape[0]
        repeated = None
        if self.num_codes > 1:
            places = xp.nonzero(coded.has_repeats)[0]
            repeated = places if places.shape[0] else None
        passes = []
        for k in range(K):
            net = _Net.of(xp, self, {name: each[k] for name, each in weights.items()}, dtype)
            passes.append(net.differentiate(coded, repeated))
        wide = weights["public"].dtype
        squared = xp.stack([xp.astype(each.squared, wide) for each in passes])
        norms = xp.sqrt(squared) * (1.0 + self._margin(xp, dtype, coded))
        trace = Trace(xp.stack([each.predictions for each in passes]), norms, [coded, passes])
        if not bool(xp.all(xp.isfinite(norms))):
            self._silence(xp, trace)
        return trace

    def vjp(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` times gradient of f into ``out``."""
        coded, passes = trace.layers
        for k in range(coefficients.shape[0]):
            done = passes[k if len(passes) > 1 else 0]
            done.sum_gradients(coded, coefficients[k], {name: each[k] for name, each in out.items()}, self)

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Compute predictions only, shape (K, n)."""
        xp = array_api_compat.array_namespace(public)
        K, n = weights["public"].shape[0], public.shape[0]
        outputs = []
        for k in range(K):
            net = _Net.of(xp, self, {name: each[k] for name, each in weights.items()}, public.dtype)
            parts = []
            for start in range(0, max(n, 1), PREDICTED_AT_ONCE):
                span = slice(start, start + PREDICTED_AT_ONCE)
                some = None if private is None else private[span]
                block = public[span]
                codes = as_codes(xp, block[:, : self.num_codes], self.num_bins)
                parts.append(net.run(codes, block[:, self.num_codes :], some)[-1][:, 0])
            outputs.append(xp.concat(parts) if len(parts) > 1 else parts[0])
        return xp.stack(outputs)

    def _margin(self, xp: Any, dtype: Any, coded: CodedInputs) -> float:
        """Bound on the relative error of a norm and of rounded factors, from the largest number of summands."""
        inputs = self.num_codes * self.width + coded.public.shape[1] + coded.num_private
        return float((max(inputs, *self.hidden) + 16) * xp.finfo(dtype).eps)

    def _silence(self, xp: Any, trace: Trace) -> None:
        """Make records whose gradients overflow contribute exactly zero, even if other values are infinite."""
        fine = xp.isfinite(trace.jacobian_norms)
        _, passes = trace.layers
        for k, each in enumerate(passes):
            for layer in (*each.activations, *each.deltas):
                layer[...] = xp.where(fine[k][:, None], layer, xp.zeros_like(layer))
        trace.predictions = xp.where(fine, trace.predictions, xp.zeros_like(trace.predictions))
        trace.jacobian_norms = xp.where(fine, trace.jacobian_norms, xp.full_like(trace.jacobian_norms, float("inf")))

    @staticmethod
    def _blocks(names: Any) -> tuple[str, ...]:
        """Names of the blocks of the first layer, in the order of its inputs."""
        return tuple(name for name in ("embedded", "public", "private") if name in names)


@dataclass(frozen=True)
class _Net:
    """Weights of one configuration in the precision of the activations."""

    xp: Any
    head: Embeddings
    table: Array | None
    layers: tuple[Array, ...]  # of shape (width below, width)
    biases: tuple[Array | None, ...]

    @classmethod
    def of(cls, xp: Any, head: Embeddings, weights: Weights, dtype: Any) -> "_Net":
        table = xp.astype(weights["table"], dtype) if "table" in weights else None
        first = xp.concat([xp.astype(weights[name], dtype) for name in head._blocks(weights)], axis=1)
        layers = [first, *(xp.astype(weights[name], dtype) for name in head._weight)]
        biases = [None, *(xp.astype(weights[name], dtype) for name in head._bias)]
        return cls(xp, head, table, tuple(layers), tuple(biases))

    def run(self, codes: Array, numbers: Array, private: Array | None) -> list[Array]:
        """Inputs of the first layer and outputs of all layers, each of shape (n, width)."""
        parts = [numbers] if private is None else [numbers, self.xp.astype(private, numbers.dtype)]
        if self.table is not None:
            n, c = codes.shape
            looked_up = look_up(self.xp, self.table, self.xp.reshape(codes, (-1,)))
            parts = [self.xp.reshape(looked_up, (n, c * self.head.width)), *parts]
        outputs = [self.xp.concat(parts, axis=1) if len(parts) > 1 else parts[0]]
        for number, (layer, bias) in enumerate(zip(self.layers, self.biases, strict=True)):
            entering = outputs[-1] @ layer.T
            if bias is not None:
                entering += bias
            is_last = number == len(self.layers) - 1
            outputs.append(entering if is_last else activate(self.xp, entering, self.head.activation))
        return outputs

    def differentiate(self, coded: CodedInputs, repeated: Array | None) -> "_Pass":
        """Predictions, derivatives of all layers, and squared norms of the gradients."""
        outputs = self.run(coded.codes, coded.public, coded.private)
        *activations, predictions = outputs
        xp, last = self.xp, len(self.layers) - 1
        n = predictions.shape[0]
        deltas: list[Array] = [None] * last
        squared = 1.0 + row_norms(xp, activations[last])
        for number in range(last - 1, -1, -1):
            above = self.layers[number + 1]
            delta = xp.broadcast_to(above, (n, above.shape[1])) if number == last - 1 else deltas[number + 1] @ above
            delta = derivative_times(xp, delta, activations[number + 1], self.head.activation)
            rows = row_norms(xp, activations[number])
            squared = squared + (rows if number == 0 else 1.0 + rows) * row_norms(xp, delta)
            deltas[number] = delta
        if self.table is not None:
            embedded = deltas[0] @ self.layers[0][:, : coded.codes.shape[1] * self.head.width]
            squared = self._add_table(squared, coded, embedded, repeated)
            deltas.append(embedded)
        return _Pass(predictions[:, 0], squared, activations, deltas)

    def _add_table(self, others: Array, coded: CodedInputs, embedded: Array, repeated: Array | None) -> Array:
        """Squared norms of gradients, from those of all other weights and the derivatives by embeddings."""
        xp = self.xp
        plain = row_norms(xp, embedded)
        squared = others + plain
        if repeated is None:
            return squared
        c, w = coded.codes.shape[1], self.head.width
        codes = look_up(xp, coded.codes, repeated)
        plain = look_up(xp, plain, repeated)
        exact = square_by_code(xp, codes, xp.reshape(look_up(xp, embedded, repeated), (-1, c, w)), plain)
        total = look_up(xp, others, repeated) + xp.maximum(exact, xp.zeros_like(exact))
        squared[repeated] = xp.maximum(total, LARGEST_CANCELLATION * plain)
        return squared


@dataclass(frozen=True)
class _Pass:
    """Result of a forward and a backward pass of one configuration."""

    predictions: Array
    squared: Array
    activations: Sequence[Array]  # inputs of all layers
    deltas: Sequence[Array]  # derivatives of f with respect to the pre-activations of hidden layers, and to embeddings

    def sum_gradients(self, coded: CodedInputs, coefficients: Array, out: Weights, head: Embeddings) -> None:
        """Sums of coefficient times gradient."""
        xp, wide = coded.xp, out["public"].dtype
        factors = xp.astype(coefficients, self.predictions.dtype)[:, None]
        last = len(head.hidden)
        for number in range(last, -1, -1):
            weighted = factors if number == last else factors * self.deltas[number]
            sums = sum_products(xp, weighted, self.activations[number], wide)
            if number:
                out[head._weight[number - 1]][...] = sums
                out[head._bias[number - 1]][...] = xp.sum(weighted, axis=0, dtype=wide)
                continue
            start = 0
            for name in head._blocks(out):
                stop = start + out[name].shape[1]
                out[name][...] = sums[:, start:stop]
                start = stop
        if "table" in out:
            add_by_code(xp, coded.codes, factors, self.deltas[last], out["table"])


HEADS.add("embeddings", Embeddings())
