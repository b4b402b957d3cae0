"""Arrow columns become the arrays that pyarrow makes of them, without importing pandas."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

from conddp.data.numpy_cells import take_rows, to_numpy, view_arrow

TYPES = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_()]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_numbers_and_flags_are_those_of_pyarrow(kind: Any, gaps: bool, chunked: bool) -> None:
    cells = (
        [True, False, True, True, False, True, False, True, True, False, False] if kind == pa.bool_() else [*range(11)]
    )
    whole = pa.array([None, *cells, None, *cells] if gaps else cells + cells, type=kind)[3:]  # with an offset
    column = pa.chunked_array([whole[:9], whole[9:9], whole[9:]]) if chunked else whole
    found = view_arrow(column)
    expected = np.array([np.nan if each is None else each for each in column.to_pylist()], dtype=np.float64)
    assert found is not None and np.array_equal(found.astype(np.float64), expected, equal_nan=True)
    if not gaps:
        assert found.dtype == kind.to_pandas_dtype()
    if not (gaps or chunked or kind == pa.bool_()):
        assert np.shares_memory(found, np.frombuffer(whole.buffers()[1], np.uint8))


def test_other_types_and_libraries_are_left_to_themselves() -> None:
    assert view_arrow(pa.array(["a"])) is None and view_arrow(pa.array([], pa.float16())) is None
    assert view_arrow(pa.chunked_array([], pa.int64())) is not None
    for native in (pa.chunked_array([["a", "b"]]), pa.chunked_array([[1, 2]])):
        series = nw.from_native(native, series_only=True)
        assert to_numpy(series).tolist() == native.to_pylist()


def test_rows_are_taken_by_position() -> None:
    assert take_rows(pa.table({"a": [5, 6, 7]}), np.array([2, 0])).to_pydict() == {"a": [7, 5]}


def test_a_file_is_fitted_without_pandas(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{x:.3f},{'ab'[place % 2]},{x:.3f}" for place, x in enumerate(rng.normal(size=300))]
    (tmp_path / "table.csv").write_text("\n".join(["x,street,y", *lines, ",b,0.5", "0.1,,0.5"]))
    program = f"""
import sys
from pathlib import Path
from conddp.data.schema import Schema
from conddp.files import fit_file
schema = Schema.of(label="y", label_bounds=(-3, 3), public=["x", "street"])
fit_file(Path({str(tmp_path / "table.csv")!r}), schema, Path({str(tmp_path / "model")!r}))
print(sorted({{"pandas", "sklearn", "torch", "typer"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
