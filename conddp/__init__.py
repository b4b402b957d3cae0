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
    from conddp.bounds import Bounds
    from conddp.data import Labels, PrivateFeatures, PublicFeatures, Records, Schema
    from conddp.errors import BudgetExceeded, CondDPError, PrivacyError, PrivateDataLeak, SchemaError
    from conddp.estimators import PrivateRegressor
    from conddp.features import ConditioningMatrix, Spectrum
    from conddp.heads import MLP, FactorizationMachine, Linear, Wide
    from conddp.privacy import Guarantee, Neighbouring, PrivacyBudget, PrivacyLedger

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
    "Records",
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
    "bounds": "Bounds",
    "data": "Labels PrivateFeatures PublicFeatures Records Schema",
    "errors": "BudgetExceeded CondDPError PrivacyError PrivateDataLeak SchemaError",
    "estimators": "PrivateRegressor",
    "features": "ConditioningMatrix Spectrum",
    "heads": "FactorizationMachine Linear MLP Wide",
    "privacy": "Guarantee Neighbouring PrivacyBudget PrivacyLedger",
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
