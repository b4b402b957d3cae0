"""Privacy guarantees and their cost: neighbouring relations, accounting, ledger, randomness and releases."""

from conddp.privacy.accounting import (
    GaussianEvent,
    calibrate_gaussian_mu,
    calibrate_noise_multiplier,
    check_delta,
    compute_epsilon,
    compute_gaussian_delta,
    compute_gaussian_epsilon,
    compute_sampled_delta,
)
from conddp.privacy.bounded_sum import BoundedSum, bound_rounding
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.composition import check_cost, compute_delta, compute_response_epsilon, describe_transcript
from conddp.privacy.events import check_event, expect_event, make_gaussian_event, make_pure_event, make_run_event
from conddp.privacy.fingerprint import Fingerprint
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.joint_guarantee import JointGuarantee
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger, Receipt
from conddp.privacy.locked import Locked
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.privacy.sides import Side, WorstCost
from conddp.privacy.total import JointCost
from conddp.privacy.transcript import (
    GaussianRelease,
    PureRelease,
    Release,
    Transcript,
    UnprotectedRelease,
    WeightedSumRelease,
)
from conddp.privacy.weighted_sums import calibrate_bag_size, compute_bag_delta, count_noisy

__all__ = [
    "BoundedSum",
    "Curator",
    "Fingerprint",
    "GaussianEvent",
    "GaussianRelease",
    "Guarantee",
    "JointCost",
    "JointGuarantee",
    "LedgerEntry",
    "Locked",
    "Neighbouring",
    "PrivacyBudget",
    "PrivacyLedger",
    "PureRelease",
    "RandomSource",
    "Receipt",
    "Release",
    "Side",
    "Transcript",
    "UnprotectedRelease",
    "WeightedSumRelease",
    "WorstCost",
    "bound_rounding",
    "calibrate_bag_size",
    "calibrate_gaussian_mu",
    "calibrate_noise_multiplier",
    "check_cost",
    "check_delta",
    "check_event",
    "compute_bag_delta",
    "compute_delta",
    "compute_epsilon",
    "compute_gaussian_delta",
    "compute_gaussian_epsilon",
    "compute_response_epsilon",
    "compute_sampled_delta",
    "count_noisy",
    "describe_transcript",
    "expect_event",
    "make_gaussian_event",
    "make_pure_event",
    "make_run_event",
]
