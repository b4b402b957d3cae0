"""A folder of converted rows: Parquet parts for training and test, a schema, and a manifest of what is finished.

A part is written under another name and then renamed, and the manifest after it. So a run that was killed continues
after the last part that the manifest names.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from conddp.data.schema import Schema
from conddp.errors import OutputExists, SchemaError
from conddp.research.criteo.columns import CATEGORIES, LABEL, LARGEST_VALUE, NUMBERS
from conddp.research.criteo.mixing import as_uniform, mix
from conddp.stored import decode, parse_json, read_bytes

__all__ = ["Manifest", "PartFolder", "criteo_schema", "is_for_test"]

MANIFEST = "manifest.json"
VERSION = 1
SPLIT_SALT = 500


@dataclass(frozen=True)
class Manifest:
    """What a folder was made from, and how much of it is finished.

    Parameters
    ----------
    source : mapping
        Of the rows: kind, and name and size of the log or seed and number of rows of the simulation.
    num_bins, test_fraction, split_seed
        Settings.
    position, num_lines : int
        Bytes (of the uncompressed log) and lines, or pieces and rows of a simulation, that finished parts cover.
    train_rows, test_rows : tuple of int
        Rows of each part.
    counts : mapping
        Lines by what became of them.
    damaged : tuple of int
        Numbers of the first damaged lines, counted from 1.
    finished : bool
        Whether the source was read to its end.
    """

    source: Mapping[str, Any]
    num_bins: int
    test_fraction: float
    split_seed: int
    position: int = 0
    num_lines: int = 0
    train_rows: tuple[int, ...] = ()
    test_rows: tuple[int, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    damaged: tuple[int, ...] = ()
    finished: bool = False
    version: int = VERSION

    def is_same_work(self, other: "Manifest") -> bool:
        """Whether the other one has the same source and settings."""
        mine, theirs = (
            (each.source, each.num_bins, each.test_fraction, each.split_seed, each.version) for each in (self, other)
        )
        return mine == theirs


@dataclass
class PartFolder:
    """The folder, and the manifest of what is in it."""

    path: Path
    manifest: Manifest

    @classmethod
    def start(cls, path: Path, planned: Manifest, *, overwrite: bool = False) -> "PartFolder":
        """Make the folder, or continue in one with the same source and settings.

        Raises
        ------
        OutputExists
            If the folder holds anything else, unless it may be overwritten; then its parts are deleted.
        """
        existing = cls.find(path)
        if existing is not None and existing.manifest.is_same_work(planned) and not overwrite:
            return existing
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if existing is None or not (overwrite or existing.is_empty):
                found = "the parts of another source or of other settings" if existing else "other files"
                remedy = ", or pass overwrite=True" if existing else ""
                raise OutputExists(f"'{path}' holds {found}. Name another folder{remedy}.")
            existing.remove()
        folder = cls(path, planned)
        for part in ("train", "test"):
            (path / part).mkdir(parents=True, exist_ok=True)
        folder._write("schema.toml", criteo_schema().to_toml())
        folder.record(planned)
        return folder

    @classmethod
    def find(cls, path: Path) -> "PartFolder | None":
        """The folder at a path, or None if there is no manifest."""
        if not (path / MANIFEST).is_file():
            return None
        try:
            return cls(path, decode(Manifest, parse_json(read_bytes(path / MANIFEST)), "manifest"))
        except SchemaError as error:
            raise SchemaError(f"'{path / MANIFEST}' cannot be read: {error} Convert into another folder.") from None

    @property
    def is_empty(self) -> bool:
        """Whether there are no parts yet."""
        return not self.manifest.train_rows

    def add(self, rows: pa.Table, for_test: NDArray[np.bool_], covered: Manifest) -> None:
        """Write the next part of both kinds, and then the manifest that covers them."""
        number = len(self.manifest.train_rows)
        test = pa.array(for_test)
        chosen = {"train": rows.filter(pc.invert(test)), "test": rows.filter(test)}
        for kind, table in chosen.items():
            final = self.path / kind / f"part-{number:05d}.parquet"
            pq.write_table(table, f"{final}.partial", row_group_size=max(1, len(table)))
            os.replace(f"{final}.partial", final)
        self.record(
            replace(
                covered,
                train_rows=(*self.manifest.train_rows, len(chosen["train"])),
                test_rows=(*self.manifest.test_rows, len(chosen["test"])),
            )
        )

    def record(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        self._write(MANIFEST, json.dumps(asdict(manifest), indent=1))
        self.manifest = manifest

    def remove(self) -> None:
        """Delete everything that this class writes."""
        for kind in ("train", "test"):
            for part in (self.path / kind).glob("part-*.parquet*"):
                part.unlink()
        (self.path / MANIFEST).unlink()

    def _write(self, name: str, text: str) -> None:
        partial = self.path / f"{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.path / name)


def is_for_test(row_numbers: NDArray[np.int64], *, test_fraction: float, seed: int) -> NDArray[np.bool_]:
    """Whether each row of the source belongs to the test part; depends on its number and the seed only."""
    return as_uniform(mix(row_numbers, SPLIT_SALT + seed)) < test_fraction


def criteo_schema() -> Schema:
    """The schema of converted rows: the value is the label, everything else is public, as in the paper."""
    return Schema.of(
        label=LABEL,
        label_bounds=(0.0, LARGEST_VALUE),
        public=(*NUMBERS, *CATEGORIES),
        kinds=dict.fromkeys(CATEGORIES, "category"),
    )
