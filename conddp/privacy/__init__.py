"""What is promised and what it costs: neighbouring relations, accounting, ledger, randomness, guarantee."""

from conddp.privacy.accounting import (
    GaussianEvent,
    calibrate_gaussian_mu,
    calibrate_noise_multiplier,
    check_delta,
    compute_epsilon,
    compute_gaussian_delta,
    compute_gaussian_epsilon,
)
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource

__all__ = [
    "GaussianEvent",
    "Guarantee",
    "LedgerEntry",
    "Neighbouring",
    "PrivacyBudget",
    "PrivacyLedger",
    "RandomSource",
    "calibrate_gaussian_mu",
    "calibrate_noise_multiplier",
    "check_delta",
    "compute_epsilon",
    "compute_gaussian_delta",
    "compute_gaussian_epsilon",
]
