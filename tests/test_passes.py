import operator
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from threading import get_ident
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from conddp import CondNewton, Labels, OneShot, PrivacyBudget, PrivateMean, PublicFeatures, Records
from conddp.algorithms import Algorithm
from conddp.bounds import Bounds
from conddp.data import BLOCK_SIZE, list_blocks, run_pass, use_executor
from conddp.data.passes import CELLS_FOR_THREADS
from conddp.features.random_features import RandomFeatures
from conddp.features.whitening import WhitenedRows
from conddp.privacy import RandomSource


class Column:
    """A column that is read block by block and cannot be had as a whole."""

    def __init__(self, values: Any) -> None:
        self.values, self.longest = values, 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, span: slice) -> Any:
        block = self.values[span]
        self.longest = max(self.longest, len(block))
        return block


def test_a_pass_reads_blocks_and_adds_in_order(rng: np.random.Generator) -> None:
    column = Column(rng.normal(size=1000))
    spans: list[slice] = []

    def collect(span: slice, block: Any) -> tuple[Any, int]:
        spans.append(span)
        return block.sum(), len(block)

    total, count = run_pass(collect, column, block_size=128)
    assert spans == list(list_blocks(1000, block_size=128))
    assert (count, column.longest) == (1000, 128)
    assert total == sum((column.values[span].sum() for span in spans[1:]), column.values[spans[0]].sum())


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="same length"):
        run_pass(lambda span, a, b: 0, np.zeros(3), np.zeros(4))


@pytest.mark.parametrize("algorithm", [CondNewton(), OneShot(), PrivateMean()])
def test_results_do_not_depend_on_the_executor(algorithm: Algorithm, rng: np.random.Generator) -> None:
    n = 2 * BLOCK_SIZE + 5
    X = rng.normal(size=(n, 3))
    records = Records(PublicFeatures(X), None, Labels(X.sum(axis=1), Bounds(-5, 5)))
    used: list[int] = []

    def fit() -> Any:
        return algorithm.fit(records, PrivacyBudget(1.0, 1e-6), random_source=RandomSource.of(0)).model.parameters

    with ThreadPoolExecutor(2) as pool:

        def map_in_threads(function: Callable[[slice], Any], spans: Iterable[slice]) -> Iterator[Any]:
            used.append(1)
            return pool.map(function, spans)

        with use_executor(map_in_threads):
            elsewhere = fit()
    assert used
    assert np.array_equal(elsewhere, fit())


def test_a_pass_in_threads_adds_in_order_and_passes_on_settings_and_errors(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr("conddp.data.threads.count_threads", lambda: 3)
    column = rng.normal(size=1000)
    threads = set()

    def add(span: slice, block: Any) -> Any:
        time.sleep(0.002 * (span.start % 3))  # so that later blocks may be done first
        threads.add(get_ident())
        assert np.geterr()["over"] == "raise"
        return [span.start], block.sum()

    with np.errstate(over="raise"):
        starts, total = run_pass(add, column, block_size=40, num_cells=CELLS_FOR_THREADS)
    assert starts == list(range(0, 1000, 40))
    assert len(threads) == 3
    assert total == reduce(operator.add, [column[start : start + 40].sum() for start in starts])

    def fail(span: slice, block: Any) -> Any:
        raise RuntimeError(f"block {span.start}")

    with pytest.raises(RuntimeError, match="block 0"):
        run_pass(fail, column, block_size=40, num_cells=CELLS_FOR_THREADS)


def test_a_pass_in_threads_leaves_the_limit_of_blas_threads_as_it_was() -> None:
    with threadpool_limits(2):
        allowed = {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}
        seen: set[int] = set()

        def watch(span: slice, block: Any) -> int:
            seen.update(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
            run_pass(lambda span, block: 0, block, num_cells=CELLS_FOR_THREADS)  # a pass within a pass
            return 0

        run_pass(watch, np.zeros(100), block_size=10, num_cells=CELLS_FOR_THREADS)
        assert seen == {1}
        assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == allowed


@pytest.mark.parametrize("d", [1, 40])
def test_moments_and_whitened_rows_do_not_depend_on_the_number_of_threads(
    d: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    public = PublicFeatures(rng.normal(size=(2 * BLOCK_SIZE + 3, d)) + 1e8)  # far from zero, as dates are
    monkeypatch.setattr("conddp.data.passes.CELLS_FOR_THREADS", 1)
    found = []
    for number in (1, 2):
        monkeypatch.setattr("conddp.data.threads.count_threads", lambda number=number: number)
        found.append(WhitenedRows.of(RandomFeatures.of(public, 5).transform(public)).values)
    assert np.array_equal(found[0], found[1])
    gram = found[0].T @ found[0] / len(public)
    assert gram == pytest.approx(np.eye(len(gram)), abs=1e-5)
