"""Speed of conddp beside other software on the same work.

``python benchmarks/speed`` measures, and ``python -m benchmarks.speed page`` writes docs/speed.md.
"""
