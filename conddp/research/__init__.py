"""Experiments on public data: data sets, evaluation, the paper's tables and figures, the demo."""
