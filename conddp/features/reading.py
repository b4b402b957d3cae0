"""Records and features from a table and its schema, with the public columns encoded as numbers."""

from typing import Any

import narwhals as nw
import numpy as np

from conddp.data.parts import LABEL_CURE, Labels, PrivateFeatures, PublicFeatures, as_column
from conddp.data.private_cells import read_private
from conddp.data.public_table import PublicTable, open_frame, require_columns
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.data.units import Units
from conddp.errors import SchemaError
from conddp.features.encoding import Encoding

__all__ = ["read_features", "read_public", "read_records"]


def read_records(
    frame: Any,
    schema: Schema,
    *,
    squash: bool = True,
    splines: bool = True,
    num_bins: int | None = None,
    encoding: Encoding | None = None,
) -> tuple[Records, Encoding]:
    """Read the columns of a schema from a table, and choose the encoding of the public ones.

    Privacy
        The encoding depends on public columns only. Private columns and the label are read by their declarations;
        nothing is read off them. If the schema says that everyone may know which labels are missing, these records are
        dropped. Otherwise a missing label is refused.

    Parameters
    ----------
    frame : table
        A pandas, polars or Arrow table.
    schema : Schema
        The columns to read.
    squash : bool
        Whether to transform heavy-tailed numbers.
    splines : bool
        Whether numbers of a large table get piecewise linear features.
    num_bins : int, optional
        Encode categories as bins for a head that looks them up; as indicators if None.
    encoding : Encoding, optional
        Encoding of the training records, for records that are to be compared with predictions. If None, one is chosen.
    """
    table = open_frame(frame)
    require_columns(table, schema.names)
    _require_records(table)
    if schema.label.missing_is_public:
        table = _drop_missing_labels(table, schema)
    public = PublicTable.of(table, schema.public, kinds=schema.kinds if encoding is None else encoding.kinds)
    encoding = encoding or Encoding.of(public, squash=squash, splines=splines, num_bins=num_bins)
    label = as_column(table[schema.label.name], what=f"label '{schema.label.name}'", finite=False, cure=LABEL_CURE)
    units = None
    if schema.unit is not None:
        units = Units.of(table[schema.unit].to_native(), name=schema.unit, max_rows=schema.max_rows)
    records = Records(
        encoding.transform(public),
        read_private({name: table[name] for name in schema.private}, schema.private_columns),
        Labels(label, schema.label_bounds, schema.label.name),
        units,
        schema,
        public.fingerprint,
    )
    return records, encoding


def read_features(frame: Any, schema: Schema, encoding: Encoding) -> tuple[PublicFeatures, PrivateFeatures | None]:
    """Read the features of new records by name; other columns are ignored, and the label may be missing.

    Parameters
    ----------
    frame : table
        A pandas, polars or Arrow table.
    schema : Schema
        Schema of the training table.
    encoding : Encoding
        Encoding of its public columns.
    """
    table = open_frame(frame)
    require_columns(table, [*schema.public, *schema.private])
    _require_records(table)
    public = PublicTable.of(table, schema.public, kinds=encoding.kinds)
    private = read_private({name: table[name] for name in schema.private}, schema.private_columns)
    return encoding.transform(public), private


def read_public(frame: Any, schema: Schema) -> PublicTable:
    """Read the public columns of a schema from a table."""
    return PublicTable.of(frame, schema.public, kinds=schema.kinds)


def _drop_missing_labels(table: nw.DataFrame[Any], schema: Schema) -> nw.DataFrame[Any]:
    name = schema.label.name
    values = as_column(table[name], what=f"label '{name}'", finite=False, gaps=True)
    kept = ~np.isnan(values)
    if not kept.any():
        raise SchemaError(f"label '{name}' is missing in every record.")
    return table if kept.all() else table[np.flatnonzero(kept).tolist()]


def _require_records(table: nw.DataFrame[Any]) -> None:
    if len(table) == 0:
        raise SchemaError("the table has no rows.")
