"""What every member of a kind must pass: a new head or algorithm is one line here."""

from conddp.algorithms import DPSGD, CondDP, SwitchCondDP
from conddp.algorithms.descent import Descent
from conddp.models import MLP, FactorizationMachine, Head, Linear

HEADS: dict[str, Head] = {
    "linear": Linear(),
    "fm": FactorizationMachine(rank=3),
    "mlp-relu": MLP(hidden=(5, 4)),
    "mlp-tanh": MLP(hidden=(6,), activation="tanh"),
    "mlp-embedding": MLP(hidden=(5, 4), embedding=3),
}

ALGORITHMS: dict[str, Descent] = {
    "dpsgd": DPSGD(num_steps=12),
    "dpsgd-raw": DPSGD(num_steps=12, feature_scaling="none"),
    "cond-dp": CondDP(num_steps=12),
    "cond-dp-sampled": CondDP(num_steps=12, batch_size=50),
    "cond-dp-damped": CondDP(num_steps=12, exponent=0.5, damping=0.1),
    "switch": SwitchCondDP(num_steps=12),
    "switch-carry": SwitchCondDP(num_steps=12, optimizer="adam", optimizer_state="carry"),
}
