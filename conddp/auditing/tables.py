"""Tables that are hard to protect, and pairs of neighbouring data sets on them. All labels are made up."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.data.parts import Domain, Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records

__all__ = ["NeighbourPair", "make_canary_table", "make_hard_table", "propose_pairs", "simulate_records"]

LABEL_BOUNDS = Bounds(0.0, 1.0)
WAYS = ((0.0, 1.0), (0.5, 1.0), (-1e7, 1e7))  # where private values move, in units of the declared range


@dataclass(frozen=True)
class NeighbourPair:
    """Two data sets that differ in the label and private columns of one record.

    Parameters
    ----------
    low, high : Records
        The data sets. The private values of the record are larger in the second one.
    position : int
        Position of the record.
    """

    low: Records
    high: Records
    position: int


def make_hard_table(num_records: int = 480, *, num_columns: int = 2, seed: int = 0) -> PublicFeatures:
    """Make public columns with rows of all lengths, some of them far longer than the others."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** np.linspace(0, 1, num_columns)
    return PublicFeatures(rng.standard_t(2, size=(num_records, num_columns)) * scales)


def make_canary_table(num_canaries: int) -> PublicFeatures:
    """Make public columns in which every record has a direction of its own, so that canaries do not interfere."""
    return PublicFeatures(np.eye(num_canaries))


def simulate_records(
    public: PublicFeatures,
    *,
    label_bounds: Bounds = LABEL_BOUNDS,
    private: Mapping[str, Domain] | None = None,
    seed: int = 0,
) -> Records:
    """Simulate labels around the middle of their range, and private columns spread over theirs.

    Privacy
        Reads public columns and declared bounds only: no cost.
    """
    rng = np.random.default_rng((seed, 1))
    n = len(public)
    label = label_bounds.low + label_bounds.width * rng.uniform(0.3, 0.7, size=n)
    hidden = None
    if private:
        columns = [
            rng.integers(len(each), size=n).astype(np.float64)
            if isinstance(each, Categories)
            else each.low + each.width * rng.uniform(size=n)
            for each in private.values()
        ]
        hidden = PrivateFeatures(np.column_stack(columns), tuple(private.values()), tuple(private))
    return Records(public, hidden, Labels(label, label_bounds))


def propose_pairs(records: Records, num_pairs: int, *, seed: int = 0) -> Iterator[NeighbourPair]:
    """Propose pairs of neighbours that may be told apart most easily.

    Records with the most leverage take turns with random ones. Each is tried in three ways: its label and private
    columns go from the lower to the upper ends of their bounds, from the middle to the upper ends, or from far below to
    far above. Categories go from the first to the last, or from none of them to the last.

    Parameters
    ----------
    records : Records
        Simulated records.
    num_pairs : int
        Number of pairs.
    seed : int
        Seed for random positions.
    """
    rng = np.random.default_rng((seed, 2))
    by_leverage = np.argsort(-compute_leverage(records.public), kind="stable")
    for number in range(num_pairs):
        turn, way = divmod(number, len(WAYS))
        if way == 0:
            is_random = turn % 2 == 1 or turn // 2 >= records.num_records
            position = int(rng.integers(records.num_records) if is_random else by_leverage[turn // 2])
        yield make_pair(records, position, ends=WAYS[way])


def make_pair(records: Records, position: int, *, ends: tuple[float, float] = (0.0, 1.0)) -> NeighbourPair:
    """Move the private values of one record to two points of their ranges: 0 is the lower bound and 1 the upper."""
    low, high = (_replace_private_part(records, position, end) for end in ends)
    return NeighbourPair(low, high, position)


def compute_leverage(public: PublicFeatures) -> NDArray[np.float64]:
    """Leverage of each row, which says how far its label can move a linear fit."""
    X = np.column_stack([public.values, np.ones(len(public))])
    Q = np.linalg.qr(X / np.maximum(np.abs(X).max(axis=0), 1e-300))[0]
    return np.asarray((Q**2).sum(axis=1))


def _replace_private_part(records: Records, position: int, end: float) -> Records:
    def move(domain: Domain) -> float:
        if isinstance(domain, Categories):
            return 0.0 if end <= 0 else len(domain) - 1.0 if end >= 1 else -1.0
        return domain.low + end * domain.width if end != 1.0 else domain.high

    def change(values: NDArray[Any], new: Any) -> NDArray[Any]:
        changed = values.copy()
        changed[position] = new
        return changed

    label, hidden = records.label, records.private
    if hidden is not None:
        moved = [move(domain) for domain in hidden.domains]
        hidden = PrivateFeatures(change(hidden.values, moved), hidden.domains, hidden.names)
    changed = Labels(change(label.values, move(label.bounds)), label.bounds, label.name)
    return replace(records, private=hidden, label=changed)
