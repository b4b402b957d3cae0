"""How long the default takes: a fresh process on 16512 x 8, and a million records against one least-squares solve.

python benchmarks/newton_speed.py [--records 1000000] [--columns 100]
"""

import argparse
import subprocess
import sys
import time

import numpy as np

FRESH = """
import time
start = time.perf_counter()
import conddp
imported = time.perf_counter()
import numpy as np
rng = np.random.default_rng(0)
X = rng.normal(size=(16512, 8))
y = X @ rng.normal(size=8) + rng.normal(size=16512)
began = time.perf_counter()
data = conddp.Records(conddp.PublicFeatures(X), None, conddp.Labels(y, conddp.Bounds(-15, 15)))
conddp.Auto().fit(data, conddp.PrivacyBudget(1.0, 1e-6))
ended = time.perf_counter()
print(imported - start, ended - began)
"""


def main() -> None:
    """Print both measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    arguments = parser.parse_args()
    runs = [
        [float(part) for part in subprocess.check_output([sys.executable, "-c", FRESH], text=True).split()]
        for _ in range(5)
    ]
    imported, fitted = np.median(runs, axis=0)
    print(f"fresh process, 16512 x 8: import {imported:.2f} s, fit with accounting {fitted:.2f} s")

    from conddp import Auto, Bounds, Labels, PrivacyBudget, PublicFeatures, Records

    rng = np.random.default_rng(0)
    X = rng.normal(size=(arguments.records, arguments.columns))
    y = X @ rng.normal(size=arguments.columns) / 10 + rng.normal(size=arguments.records)
    data = Records(PublicFeatures(X), None, Labels(y, Bounds(-10, 10)))
    start = time.perf_counter()
    np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)
    exact = time.perf_counter() - start
    start = time.perf_counter()
    Auto().fit(data, PrivacyBudget(1.0, 1e-6))
    private = time.perf_counter() - start
    print(
        f"{arguments.records} x {arguments.columns}: least squares (numpy.linalg.lstsq) {exact:.1f} s, private fit "
        f"{private:.1f} s, ratio {private / exact:.2f}"
    )


if __name__ == "__main__":
    main()
