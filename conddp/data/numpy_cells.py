"""Cells of a column of a table as a NumPy array."""

from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

__all__ = ["take_rows", "to_numpy", "view_arrow"]


def to_numpy(series: nw.Series[Any]) -> NDArray[Any]:
    """Convert a column to an array, with NaN for gaps among numbers. Nothing is copied unless it has to be.

    Numbers and flags of an Arrow table are read here, because pyarrow would import pandas.
    """
    array = view_arrow(series.to_native()) if series.implementation.is_pyarrow() else None
    return np.asarray(series.to_numpy()) if array is None else array


def view_arrow(cells: Any) -> NDArray[Any] | None:
    """Return numbers or flags of an Arrow array or chunked array; None if it holds anything else.

    Examples
    --------
    >>> import pyarrow
    >>> view_arrow(pyarrow.array([1, None, 3])).tolist()
    [1.0, nan, 3.0]
    """
    import pyarrow

    kind, test = cells.type, pyarrow.types
    if not (test.is_integer(kind) or test.is_float32(kind) or test.is_float64(kind) or test.is_boolean(kind)):
        return None
    chunks = cells.chunks if isinstance(cells, pyarrow.ChunkedArray) else [cells]
    arrays = [_view_chunk(chunk) for chunk in chunks if len(chunk)]
    if not arrays:
        return np.empty(0)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def take_rows(table: Any, places: NDArray[np.intp]) -> Any:
    """Take the records of an Arrow table at these places."""
    import pyarrow

    buffers = [None, pyarrow.py_buffer(np.ascontiguousarray(places, dtype=np.int64))]
    return table.take(pyarrow.Array.from_buffers(pyarrow.int64(), len(places), buffers))


def _view_chunk(chunk: Any) -> NDArray[Any]:
    start, stop = chunk.offset, chunk.offset + len(chunk)
    valid, content = chunk.buffers()
    name = {"bool": "bool", "float": "float32", "double": "float64"}.get(str(chunk.type), str(chunk.type))
    if name == "bool":
        values = _unpack(content, start, stop)
    else:
        dtype = np.dtype(name)
        values = np.frombuffer(content, dtype, count=len(chunk), offset=start * dtype.itemsize)
    if not chunk.null_count:
        return values
    kept = values if name == "float32" else values.astype(np.float64)
    return np.where(_unpack(valid, start, stop), kept, np.asarray(np.nan, kept.dtype))


def _unpack(bits: Any, start: int, stop: int) -> NDArray[np.bool_]:
    """Bits from one position to another, of a buffer."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=stop, bitorder="little")[start:].astype(bool)
