"""Model heads, which map features to a prediction and have gradients in closed form."""

from conddp.heads.additive import Additive
from conddp.heads.auto import AutoHead
from conddp.heads.checking import check_head
from conddp.heads.embeddings import Embeddings
from conddp.heads.factorization import FactorizationMachine
from conddp.heads.folding import move_parameters
from conddp.heads.head import (
    HEADS,
    Circumstances,
    DescentDefaults,
    Head,
    Inputs,
    Layout,
    Linearity,
    OptimizerName,
    Trace,
)
from conddp.heads.input_layer import apply_input_layer, at_least, input_shapes, squared_norms, sum_input_layer
from conddp.heads.jacobian import compute_jacobian
from conddp.heads.learned import Learned
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.heads.wide import Wide

__all__ = [
    "Additive",
    "AutoHead",
    "Circumstances",
    "DescentDefaults",
    "Embeddings",
    "FactorizationMachine",
    "HEADS",
    "Head",
    "Inputs",
    "Layout",
    "Learned",
    "Linear",
    "Linearity",
    "MLP",
    "OptimizerName",
    "Trace",
    "Wide",
    "apply_input_layer",
    "at_least",
    "check_head",
    "compute_jacobian",
    "input_shapes",
    "move_parameters",
    "squared_norms",
    "sum_input_layer",
]
