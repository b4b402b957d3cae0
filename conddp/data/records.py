"""Records of a table: public features, private features and labels."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range
from conddp.data.parts import Labels, Matrix, PrivateFeatures, PublicFeatures, as_matrix
from conddp.data.sample_weights import read_weights
from conddp.data.schema import Schema
from conddp.data.units import Units
from conddp.errors import PrivateDataLeak, SchemaError

__all__ = ["Records"]


@dataclass(frozen=True)
class Records:
    """Public features, private features (or None) and labels of the same records, and which belong to one unit.

    Parameters
    ----------
    public, private, label
        The columns by role.
    units : Units, optional
        The unit of every record, such as the person whom it is about. If None, every record is protected on its own.
    weights : array of shape (n,), optional
        Public weights of the records in weighted least squares, at least 0. Only their ratios count. If None, all
        records have the same weight.
    """

    public: PublicFeatures
    private: PrivateFeatures | None
    label: Labels
    units: Units | None = None
    weights: NDArray[np.float64] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.public, PublicFeatures):
            raise PrivateDataLeak(f"Records.public expects PublicFeatures, got {type(self.public).__name__}.")
        lengths = {"public": len(self.public), "label": len(self.label)}
        if self.private is not None:
            lengths["private"] = len(self.private)
        if self.units is not None:
            lengths["units"] = len(self.units)
        if self.weights is not None:
            object.__setattr__(self, "weights", read_weights(self.weights))
            lengths["weights"] = len(self.weights)
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
            label=self.label.name,
            label_bounds=self.label.bounds,
            public=self.public.names,
            private=private,
            unit=None if self.units is None else self.units.name,
            max_rows=None if self.units is None else self.units.max_rows,
        )

    @classmethod
    def from_frame(cls, frame: Any, schema: Schema) -> "Records":
        """Create records from a pandas, polars or Arrow table and a schema for its columns."""
        try:
            table = nw.from_native(frame, eager_only=True)
        except TypeError:
            raise SchemaError(f"expected a pandas, polars or Arrow table, got {type(frame).__name__}.") from None
        names = list(table.columns)
        for name in schema.names:
            if name not in names:
                raise SchemaError(
                    f"column '{name}' is in the schema but not among the {len(names)} columns of the table."
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
            units=(
                None
                if schema.unit is None
                else Units.of(table[schema.unit].to_native(), name=schema.unit, max_rows=schema.max_rows)
            ),
        )

    def take(self, index: NDArray[np.intp]) -> "Records":
        """Select the records at these positions."""
        private = None if self.private is None else self.private[index]
        units = None if self.units is None else self.units[index]
        weights = None if self.weights is None else self.weights[index]
        return Records(self.public[index], private, self.label[index], units, weights)

    def scale_weights(self) -> "Records":
        """Records that count, with weights of which the largest is 1, or without weights if all are equal.

        Raises
        ------
        SchemaError
            If all weights are zero.
        """
        if self.weights is None:
            return self
        largest = float(self.weights.max())
        if not largest:
            raise SchemaError("all weights of records are zero, so that there is nothing to learn from.")
        scaled = self.weights / largest
        counted = np.flatnonzero(scaled)
        if (scaled[counted] == 1.0).all():
            records = replace(self, weights=None)
        else:
            records = replace(self, weights=scaled)
        return records if len(counted) == len(scaled) else records.take(counted)

    def arrange(self) -> "Records":
        """Records that a fit uses, with those of a unit side by side and scaled weights.

        Records of weight zero are dropped, and then those beyond the declared maximum of a unit.
        """
        records = self.scale_weights()
        if records.units is None:
            return records
        return records.take(records.units.arrange()).scale_weights()

    def split(self, *, test_fraction: float = 0.2, random_state: int = 42) -> tuple["Records", "Records"]:
        """Split into training and test records, exactly as scikit-learn's ``train_test_split`` does.

        With units, the units are split, so that all records of a unit are on the same side.
        """
        from sklearn.model_selection import train_test_split

        in_range(0.0, 1.0, test_fraction=test_fraction)
        number = self.num_records if self.units is None else self.units.num_units
        train, test = train_test_split(np.arange(number), test_size=test_fraction, random_state=random_state)
        if self.units is not None:
            codes = self.units.codes
            train, test = np.flatnonzero(np.isin(codes, train)), np.flatnonzero(np.isin(codes, test))
        return self.take(train), self.take(test)
