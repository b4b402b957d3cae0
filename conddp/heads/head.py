r"""Model heads with closed-form per-example gradients.

Every head starts with a linear input layer :math:`u = \Theta_{pub} x_{pub} + \Theta_{priv} x_{priv}` that keeps
public and private columns apart, and computes a scalar prediction :math:`f` from :math:`u`. The gradient of the loss of
a record is :math:`-r_i J_i`, where :math:`r_i` is its residual (:mod:`conddp.losses`) and
:math:`J_i = \partial f / \partial\theta`. For matrix layers, :math:`J_i` is one outer product per layer. Therefore

* its norm is a product of two vector norms per layer, and
* a weighted sum of all :math:`J_i` is one matrix product per layer,

and per-example gradients are never formed.

Arrays have a leading axis of K configurations, which are trained together on the same records. Parameters are one flat
array of shape (K, P), and activations have shape (K, width, n). The code uses the array API and runs on NumPy arrays
and torch tensors.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Literal

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures
from conddp.errors import SchemaError
from conddp.features.conditioned_rows import ConditionedRows
from conddp.features.feature_families import Families
from conddp.features.feature_map import FeatureMap
from conddp.features.learned_function import LearnedFunction
from conddp.features.scaled_rows import ScaledRows
from conddp.heads.fused import ClippedRecords, FusedSum
from conddp.registry import Registry

__all__ = [
    "HEADS",
    "Circumstances",
    "DescentDefaults",
    "Head",
    "Inputs",
    "Layout",
    "Linearity",
    "OptimizerName",
    "Trace",
]

Array = Any  # a NumPy array or a torch tensor
Weights = Mapping[str, Array]
OptimizerName = Literal["sgd", "adam"]
ResidualFunction = Callable[..., Array]  # of predictions, and optionally of the span of their configurations

SMALLEST_NORM = 1e-15  # lower bound on gradient norms, because their squares may underflow in float32


@dataclass(frozen=True)
class Inputs:
    """Inputs of a head: conditioned public columns and scaled private columns.

    Parameters
    ----------
    public : array, ConditionedRows or ScaledRows of shape (n, d_pub)
        Conditioned public features, including the constant column.
    private : array of shape (n, d_priv) or None
        Private features, clamped and scaled by their declared bounds.
    row_norms : array of shape (n,)
        Euclidean norm of each row over public and private columns; computed by :meth:`of`.
    xp : module
        Array namespace of the arrays.
    rounding : float
        Bound on what rounding can add to the move of a sum of clipped gradients, in clip norms, beyond what the curator
        covers; 0 for an array.
    """

    public: Array
    private: Array | None
    row_norms: Array
    xp: Any = field(repr=False)
    rounding: float = 0.0

    @classmethod
    def of(cls, public: Array, private: Array | None = None) -> "Inputs":
        """Create inputs and compute their row norms.

        Raises
        ------
        SchemaError
            If a public feature is so large that products of features and weights would overflow.
        """
        if isinstance(public, (ConditionedRows, ScaledRows)):
            xp = array_api_compat.array_namespace(public.norms)
            peak, precision, rounding, squared = float(public.norms.max()), np.float64, public.rounding, public.norms**2
        else:
            xp, precision, rounding = array_api_compat.array_namespace(public), public.dtype, 0.0
            peak = float(xp.max(xp.abs(public))) if public.shape[0] * public.shape[1] else 0.0
            squared = xp.sum(public * public, axis=1)
        largest = float(xp.finfo(precision).max) ** 0.25
        if peak > largest:
            raise SchemaError(f"a public feature exceeds {largest:.0e} in absolute value. Scale the column down.")
        if private is not None:
            squared = squared + xp.sum(private * private, axis=1)
        return cls(public, private, xp.maximum(xp.sqrt(squared), SMALLEST_NORM), xp, rounding)

    @property
    def num_private(self) -> int:
        """Number of private columns."""
        return 0 if self.private is None else self.private.shape[1]

    def bound_rounding(self, per_unit: int, precision: Any) -> float:
        """Bound what rounding adds to the move of a sum, in clip norms, if a unit has up to ``per_unit`` records.

        Parameters
        ----------
        per_unit : int
            Largest number of records of a unit; they are adjacent.
        precision : data type
            Type of the sums.
        """
        return self.rounding

    def take(self, index: Array) -> "Inputs":
        """Select the records at these positions."""
        private = None if self.private is None else self.private[index]
        return Inputs(self.public[index], private, self.row_norms[index], self.xp, self.rounding)


@dataclass(frozen=True)
class Layout:
    """Shapes of the named weights and their positions in the flat parameter vector."""

    shapes: Mapping[str, tuple[int, ...]]
    spans: Mapping[str, slice] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        spans, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            spans[name] = slice(start, stop)
            start = stop
        object.__setattr__(self, "spans", spans)

    @property
    def size(self) -> int:
        """Number of parameters P."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def views(self, parameters: Array) -> dict[str, Array]:
        """Return named weights of shape (K, ...) that share memory with ``parameters`` of shape (K, P)."""
        K = parameters.shape[0]
        return {name: parameters[:, self.spans[name]].reshape((K, *shape)) for name, shape in self.shapes.items()}


@dataclass
class Trace:
    """Result of a forward pass over the records.

    Parameters
    ----------
    predictions : array of shape (K, n)
        Prediction f of each record.
    jacobian_norms : array of shape (K, n) or (n,)
        Norm of the gradient of f with respect to all parameters, for each record.
    layers : list
        Intermediate values that the head reuses to sum gradients.
    """

    predictions: Array
    jacobian_norms: Array
    layers: list[Any]


class Linearity(Enum):
    """Whether the prediction of a head is linear in the columns, in fixed or learned features, or in none of them."""

    COLUMNS = "columns"  # a weighted sum of the columns: it has coefficients, and linear algorithms can fit it
    FEATURES = "features"  # a weighted sum of fixed public features (:meth:`Head.make_features`)
    LEARNED = "learned"  # a weighted sum of features that are chosen during the fit (:meth:`Head.make_families`)
    NOTHING = "nothing"


@dataclass(frozen=True)
class Circumstances:
    """What is known about a fit before it begins, besides its public columns. All of it is public.

    Parameters
    ----------
    epsilon, delta : float
        Privacy budget of the fit.
    num_protected : int
        Number of units, or of records if each is protected on its own, of full weight.
    num_private : int
        Number of private columns.
    fit_intercept : bool
        Whether the model has an intercept.
    learns_features : bool
        Whether the algorithm can fit heads that learn their features.
    in_memory : bool
        Whether all records are in memory.
    """

    epsilon: float
    delta: float
    num_protected: int
    num_private: int = 0
    fit_intercept: bool = True
    learns_features: bool = True
    in_memory: bool = True


@dataclass(frozen=True)
class DescentDefaults:
    """Default settings of noisy gradient descent for a head.

    Parameters
    ----------
    steps : mapping
        Number of full-batch steps and learning rate, for each optimizer.
    conditioned_optimizer : {"sgd", "adam"}
        Optimizer for conditioned public columns.
    clip_residual : float, optional
        Residual, in units of the label range, at which a typical record is clipped. None chooses it according to the
        noise.
    """

    steps: Mapping[OptimizerName, tuple[int, float]]
    conditioned_optimizer: OptimizerName = "adam"
    clip_residual: float | None = 0.05


class Head(ABC):
    """Model that maps features to a prediction, with gradients in closed form.

    A subclass is a frozen dataclass of its settings. It must implement five methods; the defaults of the others suit a
    network. Add an instance to :data:`HEADS` to use the head by name and to load saved models that contain it.
    """

    summary: ClassVar[str] = ""  # formula of the prediction, for tables
    noun: ClassVar[str] = ""  # what a model is called in a sentence, such as "a linear model"
    has_curves: ClassVar[bool] = False  # whether a model is a sum of functions of single columns and of pairs
    linear_in: ClassVar[Linearity] = Linearity.NOTHING
    descent: ClassVar[DescentDefaults] = DescentDefaults({"sgd": (128, 0.3), "adam": (256, 0.01)})
    precision: ClassVar[str] = "float64"  # of inputs and activations in noisy descent; sums are in float64 always
    records_at_once: ClassVar[int | None] = None  # block size of sums of gradients; None sums all records at once

    @property
    def num_codes(self) -> int:
        """Number of public columns, counted from the first, that hold codes to look up, not quantities."""
        return 0

    @property
    def bins(self) -> int | None:
        """Number of bins that levels of categories are hashed into; None if they become indicators."""
        return None

    def settle(self, public_features: PublicFeatures, circumstances: Circumstances) -> "tuple[Head, str]":
        """Return this head with settings that depend on public columns; another one if this only stands for a choice.

        Privacy
            Reads public columns and the public circumstances only: no cost.

        Returns
        -------
        head : Head
            Head to fit.
        reason : str
            Sentence that explains why it was chosen; empty if the user chose it.
        """
        return self, ""

    def name_model(self) -> str:
        """Return what a model with this head is called in a sentence, such as "a linear model"."""
        return self.noun or f"a model with the head {type(self).__name__}"

    def describe(self) -> str:
        """Return what settings and ledgers call this head."""
        return repr(self)

    def explain(self, fitted: "Head", reason: str, *, stopped: bool = False) -> str:
        """Return why a fit of this head has ended with a model with the head ``fitted``.

        Privacy
            The fitted head follows from released numbers: no cost.

        Parameters
        ----------
        fitted : Head
            Head of the model.
        reason : str
            What :meth:`settle` gave as the reason for this head.
        stopped : bool
            Whether the fit was stopped before its last release.
        """
        return reason

    @abstractmethod
    def layout(self, num_public: int, num_private: int) -> Layout:
        """Return names and shapes of the weights for the given numbers of input columns.

        The weights of the input layer are named "public", of shape (width, num_public), and "private", of shape
        (width, num_private), if there are private columns.
        """

    def check_weights(self, weights: Weights) -> None:  # noqa: B027  (a head may accept all)
        """Raise SchemaError for weights of a file, of the right shapes and finite, that no fit gives.

        The default accepts all.
        """

    @abstractmethod
    def initialize(self, layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return initial parameters, shape (P,), independent of the data."""

    def initialize_on(
        self, public_features: PublicFeatures, layout: Layout, rng: np.random.Generator, *, conditioned: bool
    ) -> NDArray[np.float64]:
        """Return initial parameters, shape (P,), that may depend on public columns.

        Privacy
            Reads public columns only: no cost.

        Parameters
        ----------
        public_features : PublicFeatures
            Public columns of the records.
        layout : Layout
            Layout of the parameters.
        rng : numpy.random.Generator
            Generator for random weights.
        conditioned : bool
            Whether the algorithm makes up for the spectrum of public codes by the initial parameters.
        """
        return self.initialize(layout, rng)

    def prepare(self, public: Array, private: Array | None) -> Inputs:
        """Make the inputs of a run from conditioned public columns and scaled private columns."""
        return Inputs.of(public, private)

    @abstractmethod
    def forward(self, weights: Weights, inputs: Inputs) -> Trace:
        """Compute predictions and gradient norms of all records."""

    @abstractmethod
    def vjp(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Write the sum over records of ``coefficients`` (K, n) times the gradient of f into ``out``."""

    def sum_gradients(self, weights: Weights, inputs: Inputs, residual: ResidualFunction, out: Weights) -> None:
        """Write the sum over records of residual times the gradient of f into ``out``, without clipping.

        A head may do this faster than by :meth:`forward`, because norms of gradients are not needed. The default calls
        :meth:`forward` and :meth:`vjp`.

        Parameters
        ----------
        weights, inputs, out
            As in :meth:`vjp`.
        residual : callable
            Function from predictions, shape (L, n), and the span of these L among the K configurations, which may be
            left out if it is all of them, to residuals.
        """
        trace = self.forward(weights, inputs)
        self.vjp(weights, inputs, trace, residual(trace.predictions), out)

    @abstractmethod
    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Compute predictions only, shape (K, n)."""

    def fuse(self, layout: Layout, parameters: Array, out: Array, records: ClippedRecords) -> FusedSum | None:
        """Return a function that sums clipped gradients by compiled kernels; None if the head has none for the records.

        Parameters
        ----------
        layout : Layout
            Layout of the parameters.
        parameters : array of shape (1, P)
            Parameters, which the training loop updates in place.
        out : array of shape (1, P)
            Where the function writes the sum.
        records : ClippedRecords
            Records, and how their gradients are clipped. The loss is half the squared residual.
        """
        return None

    def make_features(self, public_features: PublicFeatures, *, constant: bool) -> FeatureMap:
        """Return the fixed features that the head is linear in, if :attr:`linear_in` is not ``NOTHING``."""
        raise NotImplementedError(f"{type(self).__name__} is not linear in known features.")

    def make_parameters(
        self, weights: NDArray[np.float64], features: FeatureMap, *, num_public: int, constant: bool
    ) -> NDArray[np.float64]:
        """Make parameters from the weights of columns, added features, constant and private columns, in this order."""
        raise NotImplementedError(f"{type(self).__name__} is not linear in known features.")

    def make_families(self) -> Families:
        """Return the families of features to choose from during the fit, if :attr:`linear_in` is ``LEARNED``."""
        raise NotImplementedError(f"{type(self).__name__} does not learn its features.")

    def export(
        self, function: LearnedFunction, private: NDArray[np.float64] | None = None
    ) -> "tuple[Head, NDArray[np.float64]]":
        """Return the head of a fitted model and its parameters, from a function with learned features.

        Parameters
        ----------
        function : LearnedFunction
            Function of the public columns.
        private : array of shape (q,), optional
            Weights of private features.
        """
        raise NotImplementedError(f"{type(self).__name__} does not learn its features.")


HEADS: Registry[Head] = Registry("head", Head)  # type: ignore[type-abstract]  # members are instances of subclasses
