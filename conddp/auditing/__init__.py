"""Audits that can fail: lower bounds on the epsilon of an algorithm, to be compared with what it claims."""

from conddp.auditing.audit import audit_algorithm, audit_algorithms
from conddp.auditing.black_box import audit_black_box
from conddp.auditing.bounds import (
    GuessCounts,
    bound_epsilon,
    bound_mu,
    bound_mu_by_accuracy,
    bound_rate,
    split_and_bound,
)
from conddp.auditing.distances import compute_pair_epsilon, measure_move
from conddp.auditing.guessing import Guesses, bound_one_run, bound_one_run_gaussian, bound_one_run_tradeoff
from conddp.auditing.noise import NoiseCheck, check_noise
from conddp.auditing.one_run import audit_one_run
from conddp.auditing.result import Audit, Evidence
from conddp.auditing.tables import (
    NeighbourPair,
    make_canary_table,
    make_hard_table,
    propose_pairs,
    simulate_records,
)
from conddp.auditing.watching import CoupledFits, Question, Recorder, fit_coupled, fit_watched, make_coupled_source
from conddp.auditing.white_box import audit_white_box

__all__ = [
    "Audit",
    "CoupledFits",
    "Evidence",
    "GuessCounts",
    "Guesses",
    "NeighbourPair",
    "NoiseCheck",
    "Question",
    "Recorder",
    "audit_algorithm",
    "audit_algorithms",
    "audit_black_box",
    "audit_one_run",
    "audit_white_box",
    "bound_epsilon",
    "bound_mu",
    "bound_mu_by_accuracy",
    "bound_one_run",
    "bound_one_run_gaussian",
    "bound_one_run_tradeoff",
    "bound_rate",
    "check_noise",
    "compute_pair_epsilon",
    "fit_coupled",
    "fit_watched",
    "make_canary_table",
    "make_coupled_source",
    "make_hard_table",
    "measure_move",
    "propose_pairs",
    "simulate_records",
    "split_and_bound",
]
