"""A fit in a process of its own: time, processor time, memory and error."""

import gc
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..memory import measure_peak, measure_size, reset_peak
from ..tables import load_table
from ..workers import serve

__all__ = ["Fit", "Model", "serve_fits"]

Model = Callable[[Any, Any], Callable[[Any], Any]]  # from columns and labels to predictions


class Fit:
    """Requests about one model.

    Parameters
    ----------
    models : mapping
        By name. Imports happen when a model is set up, before anything is timed.
    """

    def __init__(self, models: dict[str, Callable[..., Model]]) -> None:
        self.models = models

    def set_up(self, *, name: str, folder: str, warm_rows: int = 1000, **settings: Any) -> None:
        """Import, and fit the first rows, so that compiled code is there."""
        warnings.simplefilter("ignore")
        self.folder, self.fit = folder, self.models[name](**settings)
        if warm_rows:
            self.fit(*load_table(folder, warm_rows))

    def run(self, *, num_steps: int) -> tuple[float, float, dict[str, float]]:
        """Fit once; the table is read from its file before the clock starts."""
        assert num_steps == 1, "a fit is one step"
        X, y = load_table(self.folder)
        gc.collect()
        size = measure_size()
        reset_peak()
        wall, busy = time.perf_counter(), time.process_time()
        predict = self.fit(X, y)
        wall, busy = time.perf_counter() - wall, time.process_time() - busy
        extra = max(0, measure_peak() - size)
        num_bytes = X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
        residual = y[:10_000] - predict(X[:10_000])
        error = float(np.mean(residual**2) / np.var(y[:10_000]))
        return wall, busy, {"extra_bytes": extra, "times_table": extra / num_bytes, "training_r2": 1 - error}


def serve_fits(models: dict[str, Callable[..., Model]]) -> None:
    """Answer requests for fits."""
    fit = Fit(models)
    serve({"set_up": fit.set_up, "run": fit.run})
