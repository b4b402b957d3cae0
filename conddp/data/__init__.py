"""Data loading: schemas, types for public and private columns, file readers, and scaling by declared bounds."""

from conddp.data.column import Column, Kind, Role
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures, as_matrix, as_numbers, require_public
from conddp.data.passes import BLOCK_SIZE, Executor, Sliceable, list_blocks, run_in_order, run_pass, use_executor
from conddp.data.public_table import PublicTable
from conddp.data.readers import read_column_types, read_table, stream_table
from conddp.data.records import Records
from conddp.data.sample_weights import read_weights
from conddp.data.scaling import (
    bound_label_move,
    largest_private,
    private_unit,
    restore_label,
    scale_bounds,
    scale_label,
    scale_private,
)
from conddp.data.schema import Schema
from conddp.data.units import Units

__all__ = [
    "BLOCK_SIZE",
    "Column",
    "Executor",
    "Kind",
    "Labels",
    "PrivateFeatures",
    "PublicFeatures",
    "PublicTable",
    "Records",
    "Role",
    "Schema",
    "Sliceable",
    "Units",
    "as_matrix",
    "as_numbers",
    "bound_label_move",
    "largest_private",
    "list_blocks",
    "private_unit",
    "read_column_types",
    "read_table",
    "read_weights",
    "stream_table",
    "require_public",
    "restore_label",
    "run_in_order",
    "run_pass",
    "use_executor",
    "scale_bounds",
    "scale_label",
    "scale_private",
]
