"""Digests of what identifies a fit: parts, each with its length, so that no two lists of parts run into each other."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CellBytes", "Part", "update_digest"]

CELLS = 2**17  # of an array, converted to bytes at a time


@dataclass(frozen=True, eq=False)
class CellBytes:
    """The shape, the type and the cells of an array as bytes, which are never in memory together. The repr shows none.

    Parameters
    ----------
    values : array
        The array. Its cells are taken in C order, however they are stored.
    name : bytes
        What comes first.
    """

    values: NDArray[Any]
    name: bytes = b""

    @property
    def header(self) -> bytes:
        """Name, shape and type as bytes."""
        return self.name + repr((self.values.shape, self.values.dtype.str)).encode()

    def __len__(self) -> int:
        return len(self.header) + self.values.nbytes

    def __iter__(self) -> Iterator[Any]:
        yield self.header
        if self.values.ndim == 0 or self.values.size <= CELLS:
            yield self.values.tobytes()
            return
        rows = max(1, CELLS * len(self.values) // self.values.size)
        for start in range(0, len(self.values), rows):
            yield np.ascontiguousarray(self.values[start : start + rows]).data

    def __repr__(self) -> str:
        return f"<cells of an array of shape {self.values.shape}>"


Part = bytes | CellBytes


def update_digest(digest: Any, parts: Iterable[Part]) -> Any:
    """Add parts to a digest of ``hashlib`` or ``hmac``, and return it. Parts are read one by one."""
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        for chunk in part if isinstance(part, CellBytes) else (part,):
            digest.update(chunk)
    return digest
