"""Tables on their way in: schema, public and private parts by type, readers, scaling by declared bounds."""

from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures, as_matrix, as_numbers, require_public
from conddp.data.readers import load_features, load_public, load_records, read_column_types
from conddp.data.records import Records
from conddp.data.scaling import (
    label_reach,
    largest_private,
    private_unit,
    restore_label,
    scale_bounds,
    scale_label,
    scale_private,
)
from conddp.data.schema import Column, Role, Schema

__all__ = [
    "Column",
    "Labels",
    "PrivateFeatures",
    "PublicFeatures",
    "Records",
    "Role",
    "Schema",
    "as_matrix",
    "as_numbers",
    "label_reach",
    "largest_private",
    "load_features",
    "load_public",
    "load_records",
    "private_unit",
    "read_column_types",
    "require_public",
    "restore_label",
    "scale_bounds",
    "scale_label",
    "scale_private",
]
