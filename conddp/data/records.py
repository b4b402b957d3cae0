"""Records of a table: public features, private features and labels."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range
from conddp.data.column import Role
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.sample_weights import read_weights
from conddp.data.schema import Schema
from conddp.data.units import Units
from conddp.errors import PrivateDataLeak, SchemaError
from conddp.privacy.fingerprint import Fingerprint
from conddp.privacy.sides import Side

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
    declared : Schema, optional
        Schema of the table that the records were read from. If None, every public feature is a column.
    table : Fingerprint, optional
        Fingerprint of the public columns of that table. If None, that of the public features.
    weights : array of shape (n,), optional
        Public weights of the records in weighted least squares, at least 0. Only their ratios count. If None, all
        records have the same weight.
    side : Side, optional
        Side of a public split of that table on which all of these records are. If None, they may be all of them.
    """

    public: PublicFeatures
    private: PrivateFeatures | None
    label: Labels
    units: Units | None = None
    declared: Schema | None = None
    table: Fingerprint | None = None
    weights: NDArray[np.float64] | None = field(default=None, compare=False)
    side: Side | None = None

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
        if self.declared is not None:  # sensitivities are computed from what is declared
            declared, label = self.declared.label, self.label
            if (declared.name, declared.bounds) != (label.name, label.bounds):
                raise SchemaError(
                    f"the schema declares the label '{declared.name}' with bounds {declared.bounds}, but the records "
                    f"have the label '{label.name}' with bounds {label.bounds}. Change both together."
                )
            private = ((), ()) if self.private is None else (self.private.names, self.private.domains)
            if (self.declared.private, self.declared.private_domains) != private:
                raise SchemaError("the schema declares other private columns or ranges than the records have.")

    @property
    def num_records(self) -> int:
        """Number of records n, which is public."""
        return len(self.label)

    @property
    def schema(self) -> Schema:
        """Names, roles and declared ranges of the columns, which are all public."""
        if self.declared is not None:
            return self.declared
        private = {} if self.private is None else dict(zip(self.private.names, self.private.domains, strict=True))
        return Schema.of(
            label=self.label.name,
            label_bounds=self.label.bounds,
            public=self.public.names,
            private=private,
            unit=None if self.units is None else self.units.name,
            max_rows=None if self.units is None else self.units.max_rows,
        )

    @property
    def fingerprint(self) -> Fingerprint:
        """Fingerprint of the public columns, by which a ledger recognises the table."""
        return self.table or Fingerprint.of(self.public.matrix)

    def take(self, index: NDArray[np.intp]) -> "Records":
        """Select the records at these positions."""
        return replace(
            self,
            public=self.public[index],
            private=None if self.private is None else self.private[index],
            label=self.label[index],
            units=None if self.units is None else self.units[index],
            table=None,
            weights=None if self.weights is None else self.weights[index],
        )

    def with_label(self, label: Labels) -> "Records":
        """Return the same records with another label, also in the declared schema."""
        declared = self.declared
        if declared is not None:
            column = replace(declared.label, name=label.name, bounds=label.bounds)
            declared = replace(
                declared, columns=tuple(column if each.role is Role.LABEL else each for each in declared.columns)
            )
        return replace(self, label=label, declared=declared)

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
