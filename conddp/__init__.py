"""Regression under differential privacy when part of each record is public."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from conddp.estimators import PrivateRegressor
    from conddp.guarantee import Guarantee
    from conddp.ledger import PrivacyBudget, PrivacyLedger
    from conddp.models import MLP, FactorizationMachine, Linear, Wide
    from conddp.neighbouring import Neighbouring
    from conddp.schema import Bounds, Schema

    __version__: str

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

# Names are imported when they are asked for: the command line then starts at once, and nobody waits for scikit-learn
# who does not use the estimator.
_HOMES = {
    "algorithms": """Auto CondDP CondNewton DPSGD NonPrivate OneShot PrivateMean RROnBins RandomizedLabels SwitchCondDP
        WeightedLLP""",
    "conditioning": "ConditioningMatrix Spectrum",
    "data": "Dataset Labels PrivateFeatures PublicFeatures",
    "errors": "BudgetExceeded CondDPError PrivacyError PrivateDataLeak SchemaError",
    "estimators": "PrivateRegressor",
    "guarantee": "Guarantee",
    "ledger": "PrivacyBudget PrivacyLedger",
    "models": "FactorizationMachine Linear MLP Wide",
    "neighbouring": "Neighbouring",
    "schema": "Bounds Schema",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    from importlib import import_module
    from importlib.metadata import version

    if name == "__version__":
        return version("conddp")
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"conddp.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
