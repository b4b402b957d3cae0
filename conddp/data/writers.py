"""Writers of tables, by the suffix of the file."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["WRITERS", "replace_when_done"]


def _write_parquet(path: Path, schema: Any) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetWriter(path, schema)


def _write_csv(path: Path, schema: Any) -> Any:
    import pyarrow.csv

    return pyarrow.csv.CSVWriter(path, schema)


WRITERS: dict[str, Callable[[Path, Any], Any]] = {".parquet": _write_parquet, ".csv": _write_csv}


@contextmanager
def replace_when_done(out: Path) -> Iterator[Path]:
    """A temporary file that takes the place of ``out`` at the end, so that a failure leaves no half of a file."""
    handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}-")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
