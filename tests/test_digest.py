"""The digest of a fit, from which the noise of a seed is derived, must never change."""

import hashlib
from typing import Any

import numpy as np
import pytest

from conddp.privacy.digest import CELLS, CellBytes, update_digest


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (CELLS + 5,), (CELLS // 7, 9), (3, CELLS)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_cells_are_hashed_as_one_part_in_c_order(shape: tuple[int, ...], order: Any) -> None:
    values = np.asarray(np.random.default_rng(0).normal(size=shape), order=order)
    part = b"name" + repr((values.shape, values.dtype.str)).encode() + np.ascontiguousarray(values).tobytes()
    if not shape:
        part = b"name((), '<f8')" + values.tobytes()
    expected = hashlib.sha256(len(part).to_bytes(8, "little") + part + (3).to_bytes(8, "little") + b"end")
    assert update_digest(hashlib.sha256(), [CellBytes(values, b"name"), b"end"]).digest() == expected.digest()


def test_the_repr_of_cells_shows_none() -> None:
    assert repr(CellBytes(np.array([3.25]))) == "<cells of an array of shape (1,)>"
