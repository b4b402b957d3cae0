"""The record that moves a Newton release most counts, in whichever block or part of a block it is."""

import math
from importlib.util import find_spec

import numpy as np
import pytest

from conddp._fused import load_kernels
from conddp.data import BLOCK_SIZE
from conddp.data.passes import count_rows_in_cache, is_for_threads
from conddp.features.row_weights import RowWeights
from conddp.features.whitening import WhitenedRows
from conddp.newton.release import ResidualQuery
from conddp.privacy import Neighbouring
from tests.privacy.test_sensitivity import ask

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")


@pytest.mark.parametrize("fast", ["0", pytest.param("1", marks=needs_numba)], ids=["numpy", "kernel"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [4000, 2 * BLOCK_SIZE + 5], ids=["one block", "several blocks"])
def test_the_longest_row_of_any_block_counts_for_the_sensitivity(
    n: int, weighted: bool, fast: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDDP_FAST", fast)
    assert load_kernels(math.inf) == (fast == "1")
    k = 64
    assert is_for_threads(n * k) == (n > BLOCK_SIZE)  # in blocks, also by the kernel
    assert n >= 2 * count_rows_in_cache(k)  # in parts, by NumPy
    weights = RowWeights.give(np.ones(n)) if weighted else None
    # Residuals of short rows are not clamped, and move the sum by a thousandth. That of the long row is, on both sides.
    query = ResidualQuery(0.3, np.full(k, 1 / k), 0.1, 0.5, 0.5)
    expected = math.hypot(2 * query.clip_norm, query.square_weight * query.clip_norm)
    for place in (0, n // 2, n - 1):
        values = np.full((n, k), 0.001)
        values[place] = 5.0
        rows = WhitenedRows(values, np.ones(k), np.eye(k), has_constant=False, weights=weights)
        asked = [
            ask(rows, label, np.zeros(k), query, neighbouring=Neighbouring.REPLACE)
            for label in (np.where(np.arange(n) == place, end, 0.0) for end in (-0.5, 0.5))
        ]
        assert [sensitivity for _, sensitivity, _ in asked] == pytest.approx([expected, expected])
        moved = np.linalg.norm((asked[1][0] - asked[0][0])[:k])  # the squares are the same
        assert moved == pytest.approx(2 * query.clip_norm)
