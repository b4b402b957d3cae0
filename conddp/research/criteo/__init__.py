"""The Criteo Sponsored Search Conversion Log: its published format, a converter, a simulator and loaders."""

from conddp.research.criteo.conversion import convert_criteo
from conddp.research.criteo.loading import BinnedRows, load_criteo, load_criteo_bins
from conddp.research.criteo.raw_log import write_raw_log
from conddp.research.criteo.simulated_folder import write_simulation
from conddp.research.criteo.simulation import simulate_criteo

__all__ = [
    "BinnedRows",
    "convert_criteo",
    "load_criteo",
    "load_criteo_bins",
    "simulate_criteo",
    "write_raw_log",
    "write_simulation",
]
