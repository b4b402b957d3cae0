"""Bins of categories: a hash of the pair of column and value, the same in every process and on every platform."""

from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conddp.research.criteo.columns import MISSING

__all__ = ["hash_column", "hash_to_bin"]


def hash_to_bin(column: str, value: bytes, num_bins: int) -> int:
    r"""The bin of one value: BLAKE2b with 8 bytes of ``column\tvalue``, little-endian, modulo the number of bins.

    A missing value is a value like any other: each column has one bin for it. An empty cell counts as missing.

    Examples
    --------
    >>> hash_to_bin("partner_id", b"E3DDEB04F8AFF944B11943BB57D2F620", 4000)
    2532
    """
    pair = column.encode("utf-8") + b"\t" + (value or MISSING.encode())
    return int.from_bytes(blake2b(pair, digest_size=8).digest(), "little") % num_bins


def hash_column(values: pa.Array, column: str, num_bins: int) -> NDArray[np.int32]:
    """Bins of a binary column; equal values are hashed once."""
    coded = values.dictionary_encode()
    bins = [hash_to_bin(column, value, num_bins) for value in coded.dictionary.to_pylist()]
    return np.asarray(np.array(bins, dtype=np.int32)[coded.indices.to_numpy()])
