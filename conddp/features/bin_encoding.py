"""Encoding of a public category as one column of bins, for heads that look them up in a table."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from conddp.data.column import Kind
from conddp.data.public_cells import PublicColumn
from conddp.errors import SchemaError
from conddp.stored import require

__all__ = ["BinEncoding", "hash_level"]

MISSING = "\0missing"


def hash_level(column: str, level: str, num_bins: int) -> int:
    """Bin of a level of a column, the same in every process and on every platform.

    Examples
    --------
    >>> hash_level("street", "a", 4000), hash_level("city", "a", 4000)
    (1780, 1333)
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in (column, level):
        content = part.encode(errors="surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return int.from_bytes(digest.digest(), "little") % num_bins


@dataclass(frozen=True)
class BinEncoding:
    """A category as the number of a bin.

    Parameters
    ----------
    column : str
        Name of the column.
    num_bins : int
        Number of bins, which all categories share.
    hashed : bool
        Whether levels become bins by :func:`hash_level`. Gaps, and levels that did not occur in training, have bins
        too. If False, the column holds the bins already.
    """

    form: ClassVar[str] = "bin"

    column: str
    num_bins: int
    hashed: bool = True

    @property
    def kind(self) -> Kind:
        """Kind of the column."""
        return Kind.CATEGORY if self.hashed else Kind.NUMBER

    @property
    def features(self) -> tuple[str, ...]:
        """Name of the feature."""
        return (f"{self.column} in bins" if self.hashed else self.column,)

    @property
    def groups(self) -> tuple[int, ...]:
        """Group of the feature."""
        return (0,)

    @property
    def remark(self) -> str:
        """What was done to the column."""
        return f"The levels of '{self.column}' are hashed into {self.num_bins:,} bins." if self.hashed else ""

    def transform(self, column: PublicColumn) -> NDArray[np.float64]:
        """Return the bin of each record, shape (n, 1)."""
        if self.hashed:
            levels = (*(tidy_level(level) for level in column.levels), MISSING)  # the code of a gap is -1
            bins = np.array([hash_level(self.column, level, self.num_bins) for level in levels], dtype=np.float64)
            return np.asarray(bins[column.values][:, None])
        values = np.asarray(column.values, dtype=np.float64)
        if not ((values >= 0) & (values < self.num_bins) & (values == np.floor(values))).all():
            raise SchemaError(
                f"column '{self.column}' must hold bins, integers from 0 to {self.num_bins - 1} without gaps. Hash the "
                "category into as many bins, or pass it as text or as a category."
            )
        return values[:, None]

    def check(self) -> None:
        """Raise SchemaError unless the parameters make sense."""
        require(1 <= self.num_bins <= 2**24, "the bins of a category must be 1 to 2**24")


@lru_cache(maxsize=1 << 17)  # blocks of a table have many levels in common
def tidy_level(level: str) -> str:
    """Text of a level as another table may write it: whole numbers without a point, flags in small letters."""
    if level.lower() in ("true", "false"):
        return level.lower()
    whole, point, rest = level.partition(".")
    return whole if point and whole.lstrip("+-").isdigit() and not rest.strip("0") else level
