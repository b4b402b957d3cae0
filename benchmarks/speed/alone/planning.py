"""A plan on simulated labels, before any label is read."""

import time
import warnings

import numpy as np

from ..workers import serve


def run(*, n: int, d: int, head: str, workers: int) -> tuple[float, float, None]:
    """Plan once."""
    from conddp import PublicFeatures, Schema
    from conddp.planning import make_plan

    warnings.simplefilter("ignore")
    names = tuple(f"x{number}" for number in range(d))
    features = PublicFeatures(np.random.default_rng(0).normal(size=(n, d)), names)
    schema = Schema.of(label="label", label_bounds=(0, 1), public=names)
    wall, busy = time.perf_counter(), time.process_time()
    make_plan(features, schema, head=head, num_workers=workers)
    return time.perf_counter() - wall, time.process_time() - busy, None


if __name__ == "__main__":
    serve({"run": run})
