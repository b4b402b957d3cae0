"""Everything that makes a fit this fit and no other, as bytes.

The noise of a seeded fit is derived from it, so that no other fit with the same seed has the same noise. A checkpoint
compares it, so that no other fit goes on from it. Nothing of it is released.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from conddp.bounds import Bounds
from conddp.data.passes import get_partitions
from conddp.data.records import Records
from conddp.features.stored_features import StoredFeatures
from conddp.privacy.digest import CellBytes, Part

__all__ = ["ADDED_LATER", "list_private", "list_public", "list_settings"]

ADDED_LATER: Mapping[str, bool] = {"added_later": True}  # metadata of settings that count if they are not the default


def list_settings(*settings: object) -> list[bytes]:
    """Class and contents of the algorithm, the head and all other settings."""
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # arrays in full
        return [
            repr((type(each).__module__, type(each).__qualname__, _list_contents(each) or each)).encode()
            for each in settings
        ]


def _list_contents(settings: object) -> dict[str, Any] | None:
    """Fields of an object. Fields that older versions did not have are left out where they change nothing."""
    contents = getattr(settings, "__dict__", None)
    if contents is None or not is_dataclass(settings):
        return contents
    later = {each.name: each.default for each in fields(settings) if each.metadata.get("added_later")}
    return {name: value for name, value in contents.items() if name not in later or value != later[name]}


def list_public(records: Records) -> Iterator[Part]:
    """Declared bounds and categories, public cells, units, weights. Names of features make no difference to a fit."""
    label = records.schema.label
    declared = f"Column(name={label.name!r}, role={label.role!r}, bounds={label.bounds!r})"
    yield f"({declared}, {records.schema.private_domains!r})".encode()
    sparse = records.public.sparse
    if isinstance(records.public, StoredFeatures):
        yield records.public.digest
        yield repr(records.public.column.encoding).encode()
    elif sparse is None:
        yield CellBytes(records.public.values)
    else:  # in canonical form
        yield repr(("csr", sparse.shape)).encode()
        for part in (sparse.indptr.astype(np.int64), sparse.indices.astype(np.int64), sparse.data):
            yield CellBytes(part)
    if records.public.groups is not None:
        yield CellBytes(records.public.groups)
    if records.units is not None:
        yield repr(records.units.max_rows).encode()
        yield CellBytes(records.units.codes)
    if records.weights is not None:
        yield CellBytes(records.weights, b"weights")


def list_private(records: Records) -> Iterator[Part]:
    """All private cells, clamped: a fit depends on nothing else of them."""
    for span in get_partitions(records.label) or [slice(None)]:
        yield CellBytes(records.label.bounds.clamp(records.label[span].values))
    if records.private is not None:
        for domain, column in zip(records.private.domains, records.private.values.T, strict=True):
            yield CellBytes(domain.clamp(column) if isinstance(domain, Bounds) else column)
