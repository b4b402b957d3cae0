"""Data loading: schemas, types for public and private columns, file readers, and scaling by what is declared."""

from conddp.data.column import Column, Kind, Role
from conddp.data.draft import SchemaDraft
from conddp.data.parts import Domain, Labels, PrivateFeatures, PublicFeatures, as_numbers, require_public
from conddp.data.passes import (
    BLOCK_SIZE,
    Executor,
    Sliceable,
    list_blocks,
    run_in_order,
    run_pass,
    use_executor,
)
from conddp.data.private_cells import read_cells, read_private
from conddp.data.processes import Processes
from conddp.data.public_table import PublicTable
from conddp.data.readers import read_column_names, read_column_types, read_table, stream_table
from conddp.data.records import Records
from conddp.data.sample_weights import read_weights
from conddp.data.scaling import (
    PrivateSpan,
    bound_label_move,
    code_categories,
    count_private_features,
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
    "Domain",
    "Executor",
    "Kind",
    "Labels",
    "PrivateFeatures",
    "PrivateSpan",
    "Processes",
    "PublicFeatures",
    "PublicTable",
    "Records",
    "Role",
    "Schema",
    "SchemaDraft",
    "Sliceable",
    "Units",
    "as_numbers",
    "bound_label_move",
    "code_categories",
    "count_private_features",
    "largest_private",
    "list_blocks",
    "private_unit",
    "read_column_names",
    "read_column_types",
    "read_cells",
    "read_private",
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
