"""The Criteo Sponsored Search Conversion Log: its published format, a converter, a simulator and loaders."""

from conddp.research.criteo.simulation import simulate_criteo

__all__ = ["simulate_criteo"]
