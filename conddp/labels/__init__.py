"""What is done to labels one by one: randomisers, bags, priors; and labels made up from public columns."""

from conddp.labels.bags import calibrate_bag_size, compute_bag_delta, count_noisy
from conddp.labels.prior import LabelPrior, choose_grid_size, draw_geometric, estimate_label_prior, make_grid
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
    "calibrate_bag_size",
    "choose_grid_size",
    "compute_bag_delta",
    "compute_optimal_bins",
    "count_noisy",
    "draw_geometric",
    "estimate_label_prior",
    "make_binary_response",
    "make_grid",
    "make_response_on_bins",
    "make_unbiased_response",
    "simulate",
]
