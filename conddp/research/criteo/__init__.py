"""The Criteo Sponsored Search Conversion Log: its published format, a converter, a simulator and loaders."""

from conddp.research.criteo.loading import BinnedRows, load_criteo, load_criteo_bins
from conddp.research.criteo.simulated_folder import write_simulation
from conddp.research.criteo.simulation import simulate_criteo

__all__ = ["BinnedRows", "load_criteo", "load_criteo_bins", "simulate_criteo", "write_simulation"]
