"""Randomisers and priors for individual labels, and labels simulated from public columns."""

from conddp.labels.prior import LabelPrior, choose_grid_size, estimate_label_prior, make_grid
from conddp.labels.randomizers import (
    AdditiveNoise,
    FiniteRandomizer,
    Randomizer,
    compute_optimal_bins,
    make_binary_response,
    make_response_on_bins,
    make_unbiased_response,
)
from conddp.labels.simulation import FAMILIES, Family, Simulation, simulate

__all__ = [
    "AdditiveNoise",
    "FAMILIES",
    "Family",
    "FiniteRandomizer",
    "LabelPrior",
    "Randomizer",
    "Simulation",
    "choose_grid_size",
    "compute_optimal_bins",
    "estimate_label_prior",
    "make_binary_response",
    "make_grid",
    "make_response_on_bins",
    "make_unbiased_response",
    "simulate",
]
