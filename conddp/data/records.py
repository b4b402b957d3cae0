"""Records of a table: public features, private features and labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range
from conddp.data.parts import Labels, Matrix, PrivateFeatures, PublicFeatures, as_matrix
from conddp.data.schema import Schema
from conddp.errors import PrivateDataLeak, SchemaError

__all__ = ["Records"]


@dataclass(frozen=True)
class Records:
    """Public features, private features (or None) and labels of the same records."""

    public: PublicFeatures
    private: PrivateFeatures | None
    label: Labels

    def __post_init__(self) -> None:
        if not isinstance(self.public, PublicFeatures):
            raise PrivateDataLeak(f"Records.public expects PublicFeatures, got {type(self.public).__name__}.")
        lengths = {"public": len(self.public), "label": len(self.label)}
        if self.private is not None:
            lengths["private"] = len(self.private)
        if len(set(lengths.values())) > 1:
            raise SchemaError(f"the parts of a data set must have the same number of records, got {lengths}.")

    @property
    def num_records(self) -> int:
        """Number of records n, which is public."""
        return len(self.label)

    @property
    def schema(self) -> Schema:
        """Names, roles and declared bounds of the columns, which are all public."""
        private = {} if self.private is None else dict(zip(self.private.names, self.private.bounds, strict=True))
        return Schema.of(
            label=self.label.name, label_bounds=self.label.bounds, public=self.public.names, private=private
        )

    @classmethod
    def from_frame(cls, frame: Any, schema: Schema) -> "Records":
        """Create records from a pandas, polars or Arrow table and a schema for its columns."""
        try:
            table = nw.from_native(frame, eager_only=True)
        except TypeError:
            raise SchemaError(f"expected a pandas, polars or Arrow table, got {type(frame).__name__}.") from None
        names = list(table.columns)
        for column in schema.columns:
            if column.name not in names:
                raise SchemaError(
                    f"column '{column.name}' is in the schema but not among the {len(names)} columns of the table."
                )
        if len(table) == 0:
            raise SchemaError("the table has no rows.")

        def read(columns: Sequence[str], *, finite: bool) -> Matrix:
            return as_matrix(table.select(list(columns)), finite=finite) if columns else np.empty((len(table), 0))

        return cls(
            public=PublicFeatures(read(schema.public, finite=True), schema.public),
            private=(
                PrivateFeatures(read(schema.private, finite=False), schema.private_bounds, schema.private)
                if schema.private
                else None
            ),
            label=Labels(read([schema.label.name], finite=False)[:, 0], schema.label_bounds, schema.label.name),
        )

    def take(self, index: NDArray[np.intp]) -> "Records":
        """Select the records at these positions."""
        return Records(self.public[index], None if self.private is None else self.private[index], self.label[index])

    def split(self, *, test_fraction: float = 0.2, random_state: int = 42) -> tuple["Records", "Records"]:
        """Split into training and test records, exactly as scikit-learn's ``train_test_split`` does."""
        from sklearn.model_selection import train_test_split

        in_range(0.0, 1.0, test_fraction=test_fraction)
        train, test = train_test_split(np.arange(self.num_records), test_size=test_fraction, random_state=random_state)
        return self.take(train), self.take(test)
