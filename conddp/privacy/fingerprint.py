"""Fingerprint of the public side of a table, by which a ledger recognises the data set that it belongs to."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["ColumnHash", "Fingerprint", "PartialFingerprint", "hash_levels", "hash_numbers"]

BLOCK = 2**15  # cells hashed at a time, so that they stay in the processor's cache
SPARSE_ROWS = 2**18  # rows of a sparse matrix hashed at a time
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)  # finaliser of MurmurHash3


@dataclass(frozen=True)
class Fingerprint:
    """Number of records and a hash of every public column that is not constant.

    A hash depends on the values of a column but not on their order or on the name of the column, so that the same
    records in another order, or with fewer columns, are recognised. It is no cryptographic hash: it tells tables apart
    that were confused by accident.

    Privacy
        Reads public columns and n only: no cost.

    Parameters
    ----------
    num_records : int
        Number of records.
    columns : tuple of str
        Hashes, sorted.

    Examples
    --------
    >>> table = np.array([[1.0, 5.0], [2.0, 7.0], [3.0, 7.0]])
    >>> Fingerprint.of(table).matches(Fingerprint.of(table[::-1, :1]))
    True
    """

    num_records: int
    columns: tuple[str, ...]

    @classmethod
    def of(cls, values: NDArray[Any] | csr_array[Any, tuple[int, int]]) -> "Fingerprint":
        """Compute the fingerprint of public columns, shape (n, d); the same for an array and for a CSR matrix of it."""
        n, d = values.shape
        if d == 0:
            return cls(n, ())
        if isinstance(values, csr_array):
            sums, first = _sum_sparse(values), values[:1].toarray()
        else:
            sums, first = np.zeros(d, dtype=np.uint64), values[:1]
            for block in _split(values, max(1, BLOCK // d)):
                sums += _hash_cells(block).sum(axis=0, dtype=np.uint64)
        constant = _hash_cells(first)[0] * np.uint64(n)  # what a column of equal values adds up to
        return cls(n, tuple(sorted({_show(value) for value in sums[sums != constant].tolist()})))

    def matches(self, other: "Fingerprint") -> bool:
        """Whether both may belong to the same records: the same n, and a column in common unless one has none."""
        if self.num_records != other.num_records:
            return False
        return not self.columns or not other.columns or not set(self.columns).isdisjoint(other.columns)

    @classmethod
    def from_json(cls, stored: object) -> "Fingerprint":
        """Read a fingerprint from its stored form. Raises ValueError if it is not one."""
        if not isinstance(stored, dict) or set(stored) != {"num_records", "columns"}:
            raise ValueError("a fingerprint has num_records and columns.")
        number, columns = stored["num_records"], stored["columns"]
        if isinstance(number, bool) or not isinstance(number, int) or not isinstance(columns, list):
            raise ValueError("a fingerprint has a whole number of records and a list of columns.")
        if not all(isinstance(column, str) for column in columns):
            raise ValueError("the columns of a fingerprint are hashes.")
        return cls(number, tuple(columns))

    def to_json(self) -> dict[str, Any]:
        """Return the fingerprint in its stored form."""
        return {"num_records": self.num_records, "columns": list(self.columns)}


@dataclass(frozen=True)
class ColumnHash:
    """Hash of some records of a column, which can be added to that of other records.

    Parameters
    ----------
    total : int
        Sum of the hashes of all cells, modulo 2**64.
    first : int
        Hash of one cell.
    is_constant : bool
        Whether all cells have this hash.
    """

    total: int
    first: int
    is_constant: bool

    @classmethod
    def of_numbers(cls, values: NDArray[Any]) -> "ColumnHash":
        """Hash a column of numbers. NaN is a gap."""
        hashes = _hash_cells(np.where(np.isnan(values), np.nan, values)[:, None])[:, 0]
        return cls(int(hashes.sum(dtype=np.uint64)), int(hashes[0]), bool((hashes == hashes[0]).all()))

    @classmethod
    def of_levels(cls, counts: Mapping[str, int]) -> "ColumnHash":
        """Hash a column of text, from the number of records of each level."""
        hashes = {_hash_level(level): count for level, count in counts.items() if count}
        return cls(sum(count * each for each, count in hashes.items()) % 2**64, next(iter(hashes)), len(hashes) == 1)

    def __add__(self, other: "ColumnHash") -> "ColumnHash":
        same = self.is_constant and other.is_constant and self.first == other.first
        return ColumnHash((self.total + other.total) % 2**64, self.first, same)


@dataclass(frozen=True)
class PartialFingerprint:
    """Fingerprint of some records of a table, which can be added to that of other records.

    Parameters
    ----------
    num_records : int
        Number of records.
    columns : tuple of ColumnHash
        Hash of each column.
    """

    num_records: int
    columns: tuple[ColumnHash, ...]

    def __add__(self, other: "PartialFingerprint") -> "PartialFingerprint":
        pairs = zip(self.columns, other.columns, strict=True)
        return PartialFingerprint(self.num_records + other.num_records, tuple(one + two for one, two in pairs))

    def finish(self) -> Fingerprint:
        """Return the fingerprint of all records."""
        hashes = {_show(each.total) for each in self.columns if not each.is_constant}
        return Fingerprint(self.num_records, tuple(sorted(hashes)))


def hash_numbers(values: NDArray[Any]) -> Iterator[str]:
    """Yield the hash of a column of numbers, as in :meth:`Fingerprint.of`; nothing if it is constant. NaN is a gap."""
    yield from Fingerprint.of(np.where(np.isnan(values), np.nan, values)[:, None]).columns  # one NaN, not several


def hash_levels(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the hash of a column of text, from the number of records of each level; nothing if it is constant."""
    if np.count_nonzero(list(counts.values())) < 2:
        return
    yield _show(sum(count * _hash_level(level) for level, count in counts.items()) % 2**64)


def _hash_level(level: str) -> int:
    return int.from_bytes(hashlib.blake2b(level.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def _show(value: int) -> str:
    return f"{value >> 16:012x}"


def _split(values: NDArray[Any], size: int) -> Iterable[NDArray[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _sum_sparse(values: csr_array[Any, tuple[int, int]]) -> NDArray[np.uint64]:
    """Sums of the hashes of all cells of each column. The hash of zero is zero, so that implicit zeros add nothing."""
    n, d = values.shape
    sums = np.zeros(d, dtype=np.uint64)
    for start in range(0, n, SPARSE_ROWS):
        block = values[start : start + SPARSE_ROWS].tocsc()
        stored = np.flatnonzero(np.diff(block.indptr))
        if len(stored):
            sums[stored] += np.add.reduceat(_hash_cells(block.data), block.indptr[stored])
    return sums


def _hash_cells(block: NDArray[Any]) -> NDArray[np.uint64]:
    """Hash every cell as a 64-bit floating-point number; 0 and -0 are the same."""
    cells: NDArray[np.uint64] = np.add(block, 0.0, dtype=np.float64).view(np.uint64)
    shifted = cells >> np.uint64(32)
    cells ^= shifted
    cells *= _FIRST
    np.right_shift(cells, np.uint64(29), out=shifted)
    cells ^= shifted
    cells *= _SECOND
    np.right_shift(cells, np.uint64(32), out=shifted)
    cells ^= shifted
    return cells
