"""Regression under differential privacy when part of each record is public."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

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
from conddp.conditioning import ConditioningMatrix, Spectrum
from conddp.data import Dataset, Labels, PrivateFeatures, PublicFeatures
from conddp.errors import BudgetExceeded, CondDPError, PrivacyError, PrivateDataLeak, SchemaError
from conddp.guarantee import Guarantee
from conddp.ledger import PrivacyBudget, PrivacyLedger
from conddp.models import MLP, FactorizationMachine, Linear, Wide
from conddp.neighbouring import Neighbouring
from conddp.schema import Bounds, Schema

if TYPE_CHECKING:
    from conddp.estimators import PrivateRegressor

__version__ = version("conddp")


def __getattr__(name: str) -> Any:
    """Import the scikit-learn estimator when it is asked for: scikit-learn takes longer to import than all the rest."""
    if name != "PrivateRegressor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from conddp.estimators import PrivateRegressor

    return PrivateRegressor


__all__ = [
    "DPSGD",
    "MLP",
    "Auto",
    "Bounds",
    "BudgetExceeded",
    "CondDP",
    "CondDPError",
    "CondNewton",
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
    "Wide",
    "__version__",
]
