"""Regression under differential privacy when part of each record is public."""

from importlib.metadata import version

from conddp.algorithms import (
    DPSGD,
    CondDP,
    NonPrivate,
    OneShot,
    PrivateMean,
    RandomizedLabels,
    RROnBins,
    SwitchCondDP,
    WeightedLLP,
)
from conddp.conditioning import ConditioningMatrix, Spectrum
from conddp.data import Dataset, Labels, PrivateFeatures, PublicFeatures
from conddp.errors import BudgetExceeded, CondDPError, PrivacyError, PrivateDataLeak, SchemaError
from conddp.estimators import PrivateRegressor
from conddp.guarantee import Guarantee
from conddp.ledger import PrivacyBudget, PrivacyLedger
from conddp.models import MLP, FactorizationMachine, Linear
from conddp.neighbouring import Neighbouring
from conddp.schema import Bounds, Schema

__version__ = version("conddp")

__all__ = [
    "DPSGD",
    "MLP",
    "Bounds",
    "BudgetExceeded",
    "CondDP",
    "CondDPError",
    "ConditioningMatrix",
    "Dataset",
    "FactorizationMachine",
    "Guarantee",
    "Labels",
    "Linear",
    "Neighbouring",
    "NonPrivate",
    "OneShot",
    "PrivacyBudget",
    "PrivacyError",
    "PrivacyLedger",
    "PrivateDataLeak",
    "PrivateFeatures",
    "PrivateMean",
    "PrivateRegressor",
    "PublicFeatures",
    "RROnBins",
    "RandomizedLabels",
    "Schema",
    "SchemaError",
    "Spectrum",
    "SwitchCondDP",
    "WeightedLLP",
    "__version__",
]
