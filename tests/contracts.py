"""What every member of a kind must pass: settings that make tests quick, and whatever else is registered."""

import numpy as np

from conddp.algorithms import ALGORITHMS as REGISTERED_ALGORITHMS
from conddp.algorithms import (
    DPSGD,
    Auto,
    CondDP,
    CondNewton,
    NonPrivate,
    OneShot,
    PrivateMean,
    RandomizedLabels,
    RROnBins,
    SwitchCondDP,
    WeightedLLP,
)
from conddp.algorithms.algorithm import Algorithm
from conddp.algorithms.descent import Descent
from conddp.heads import HEADS as REGISTERED_HEADS
from conddp.heads.additive import Additive
from conddp.heads.auto import AutoHead
from conddp.heads.embeddings import Embeddings
from conddp.heads.factorization import FactorizationMachine
from conddp.heads.head import Head
from conddp.heads.learned import Learned
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.heads.wide import Wide
from conddp.labels.prior import LabelPrior
from conddp.newton.schedule import NewtonPlan

HEADS: dict[str, Head] = {
    "linear": Linear(),
    "fm": FactorizationMachine(rank=3),
    "mlp-relu": MLP(hidden=(5, 4)),
    "mlp-tanh": MLP(hidden=(6,), activation="tanh"),
    "mlp-embedding": MLP(hidden=(5, 4), embedding=3),
    "wide": Wide(width=6),
    "embeddings": Embeddings(hidden=(5, 4)),  # without categories, as for a table of numbers
}
LEARNED_HEADS: dict[str, Head] = {"additive": Additive(width=60), "learned": Learned(width=60)}  # without gradients
_KNOWN_HEADS = {type(each) for each in (*HEADS.values(), *LEARNED_HEADS.values(), AutoHead())}
HEADS |= {name: head for name, head in REGISTERED_HEADS.items() if type(head) not in _KNOWN_HEADS}
CODED_HEADS: dict[str, Head] = {  # look up bins in a table; with few bins, most records have a bin twice
    "embeddings-two": Embeddings(num_bins=3, width=2, hidden=(5, 4), num_categories=2),
    "embeddings-three": Embeddings(num_bins=2, width=3, hidden=(4,), activation="tanh", num_categories=3),
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

KNOWN_PRIOR = LabelPrior(np.linspace(-6, 8, 15), np.ones(15))

LABEL_ALGORITHMS: dict[str, Algorithm] = {  # protect labels only
    "rr-on-bins": RROnBins(),
    "rr-on-bins-published": RROnBins(recalibrate=False, smoothing=0.0, grid_size=20),
    "rr-on-bins-known-prior": RROnBins(prior=KNOWN_PRIOR),
    "unbiased": RandomizedLabels(randomizer="unbiased", grid_size=9),
    "binary": RandomizedLabels(randomizer="binary"),
    "laplace": RandomizedLabels(randomizer="laplace"),
    "staircase": RandomizedLabels(randomizer="staircase"),
    "weighted-llp": WeightedLLP(),
    "weighted-llp-half": WeightedLLP(noisy_fraction=0.5, used_fraction=0.9),
    "cond-newton": CondNewton(),
    "cond-newton-short": CondNewton(plan=NewtonPlan(num_steps=1)),
    "one-shot": OneShot(),
    "one-shot-spherical": OneShot(noise="spherical"),
}

REFERENCES: dict[str, Algorithm] = {"mean": PrivateMean(), "non-private": NonPrivate()}

_KNOWN = {type(each) for each in (*ALGORITHMS.values(), *LABEL_ALGORITHMS.values(), *REFERENCES.values(), Auto())}
LABEL_ALGORITHMS |= {name: each for name, each in REGISTERED_ALGORITHMS.items() if type(each) not in _KNOWN}
