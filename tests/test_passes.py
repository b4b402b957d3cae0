from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from conddp import CondNewton, Labels, OneShot, PrivacyBudget, PrivateMean, PublicFeatures, Records
from conddp.algorithms import Algorithm
from conddp.bounds import Bounds
from conddp.data import BLOCK_SIZE, list_blocks, run_pass, use_executor
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
