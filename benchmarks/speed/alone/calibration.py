"""Noise for a target epsilon, by several accountants, in a fresh process."""

import time
import warnings
from collections.abc import Callable
from typing import Any

from ..workers import serve

__all__ = ["ACCOUNTANTS"]


def calibrate_conddp(relation: str, **run: Any) -> float:
    """The accountant of conddp."""
    from conddp.privacy.accounting import calibrate_noise_multiplier
    from conddp.privacy.neighbouring import Neighbouring

    epsilon, delta = run.pop("epsilon"), run.pop("delta")
    return calibrate_noise_multiplier(epsilon, delta, neighbouring=Neighbouring[relation], **run)


def calibrate_opacus(
    accountant: str, *, epsilon: float, delta: float, num_steps: int, sampling_probability: float
) -> float:
    """The search of Opacus."""
    from opacus.accountants.utils import get_noise_multiplier

    found = get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=delta,
        sample_rate=sampling_probability,
        steps=num_steps,
        accountant=accountant,
    )
    return float(found)


def calibrate_dp_accounting(
    relation: str, *, epsilon: float, delta: float, num_steps: int, sampling_probability: float
) -> float:
    """The search of dp-accounting, with its privacy loss distributions."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def make_event(noise_multiplier: float) -> Any:
        event: Any = dp_accounting.GaussianDpEvent(noise_multiplier)
        if sampling_probability < 1:
            event = dp_accounting.PoissonSampledDpEvent(sampling_probability, event)
        return dp_accounting.SelfComposedDpEvent(event, num_steps)

    neighbouring = dp_accounting.NeighboringRelation[relation]
    found = dp_accounting.calibrate_dp_mechanism(
        lambda: PLDAccountant(neighbouring),
        make_event,
        epsilon,
        delta,
        dp_accounting.LowerEndpointAndGuess(0.0, 10.0),
        tol=1e-3,
    )
    return float(found)


ACCOUNTANTS: dict[str, Callable[..., float]] = {
    "conddp": calibrate_conddp,
    "opacus": calibrate_opacus,
    "dp-accounting": calibrate_dp_accounting,
}


def run(*, name: str, kind: str, settings: dict[str, Any]) -> dict[str, float]:
    """Calibrate, and say how long the call took, imports included, and what came out."""
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    found = ACCOUNTANTS[name](kind, **settings)
    return {"seconds": time.perf_counter() - began, "noise_multiplier": found}


if __name__ == "__main__":
    serve({"run": run})
