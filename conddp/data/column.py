"""Declaration of one column: its name, role and kind, and the declared range of its private values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any

from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.errors import SchemaError

__all__ = ["Column", "Kind", "Role", "count_days"]

EPOCH = date(1970, 1, 1)
SECONDS = 86_400


class Role(Enum):
    """Role of a column: public feature, private feature or label."""

    PUBLIC = "public"
    PRIVATE = "private"
    LABEL = "label"


class Kind(Enum):
    """Kind of the values of a column."""

    NUMBER = "number"
    CATEGORY = "category"
    BOOLEAN = "boolean"
    DATE = "date"

    @classmethod
    def of(cls, value: object, *, column: str) -> "Kind":
        """Create a kind from its name, or raise an error that names the column."""
        if isinstance(value, Kind):
            return value
        known = [kind.value for kind in cls]
        if value not in known:
            raise SchemaError(f"column '{column}' has kind={repr(value)[:80]}. Expected one of {known}.")
        return cls(value)


@dataclass(frozen=True)
class Column:
    """Declaration of a column.

    Nothing is read off a private column or the label, so their ranges are declared. Of a public column, everything that
    is left out here is read off its values.

    Parameters
    ----------
    name : str
        Name of the column.
    role : Role
        Public feature, private feature or label.
    bounds : Bounds, optional
        Declared range of the label or of a private number; of a private date, in days since 1970.
    kind : Kind, optional
        Kind of the values. If None, that of the type of a public column; private columns are numbers, dates or
        categories according to what is declared.
    categories : Categories, optional
        Declared categories of a private column, in place of bounds.
    fill : float or str, optional
        Value that stands for a gap in a private column. Without one, gaps are refused.
    missing_is_public : bool
        For the label: whether everyone may know which labels are missing. Records without a label are then dropped;
        otherwise they are refused.
    """

    name: str
    role: Role
    bounds: Bounds | None = None
    kind: Kind | None = None
    categories: Categories | None = None
    fill: float | str | None = None
    missing_is_public: bool = False

    def __post_init__(self) -> None:
        if self.role is Role.PUBLIC:
            self._check_public()
            return
        if self.missing_is_public and self.role is not Role.LABEL:
            raise SchemaError(f"column '{self.name}' is not the label, so it has no missing labels. Declare fill.")
        if self.categories is not None:
            self._set_categories()
            return
        kind, bounds = self.kind, self.bounds
        days = _read_days(bounds)
        if days is not None:
            if self.role is Role.LABEL:
                raise SchemaError(f"label '{self.name}' must be a number, but its bounds are dates.")
            if not days[0] < days[1]:
                raise SchemaError(f"column '{self.name}': the first of its dates must be before the second.")
            kind, bounds = Kind.DATE, days  # type: ignore[assignment]  # a pair, which becomes Bounds below
        if kind is Kind.CATEGORY:
            raise SchemaError(
                f"column '{self.name}' is a private category and has no categories. Reading them off the data would "
                "reveal them. Declare categories = [...] from domain knowledge."
            )
        if kind is Kind.BOOLEAN and bounds is None:
            bounds = Bounds(0, 1)
        made = Bounds.of(bounds, column=self.name)
        if kind is Kind.DATE:
            made = Bounds(_round_day(made.low, self.name), _round_day(made.high, self.name))
        object.__setattr__(self, "bounds", made)
        object.__setattr__(self, "kind", None if kind is Kind.NUMBER else kind)
        self._set_fill()

    @classmethod
    def private(cls, name: str, declared: object) -> "Column":
        """Declare a private column: (low, high), a list of categories, or a mapping with these and ``fill``."""
        if isinstance(declared, Column):
            return declared
        if isinstance(declared, Mapping):
            unknown = sorted(map(str, set(declared) - {"bounds", "categories", "fill", "kind"}))
            if unknown:
                raise SchemaError(
                    f"column '{name}' is declared with {unknown}. Expected bounds or categories, and fill if it can "
                    "have gaps."
                )
            if declared.get("bounds") is not None and declared.get("categories") is not None:
                raise SchemaError(f"column '{name}' has bounds and categories. Declare one of the two.")
            kind = declared.get("kind")
            categories = declared.get("categories")
            return cls(
                name,
                Role.PRIVATE,
                declared.get("bounds"),
                None if kind is None else Kind.of(kind, column=name),
                None if categories is None else Categories.of(categories, column=name),
                declared.get("fill"),
            )
        if isinstance(declared, (set, frozenset)):
            declared = sorted(declared, key=str)  # categories, whose order makes no difference
        if isinstance(declared, Categories) or (_is_list_of_texts(declared) and _read_days(declared) is None):
            return cls(name, Role.PRIVATE, categories=Categories.of(declared, column=name))
        return cls(name, Role.PRIVATE, declared)  # type: ignore[arg-type]  # checked by the class

    @property
    def domain(self) -> Bounds | Categories:
        """Declared bounds or categories of a column that is not public."""
        domain = self.categories or self.bounds
        assert domain is not None  # checked by the class
        return domain

    @property
    def declaration(self) -> dict[str, Any]:
        """What :meth:`private` was given, as a mapping."""
        return {"kind": self.kind, "bounds": self.bounds, "categories": self.categories, "fill": self.fill}

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms of a private column in a linear model: a number has one, a category one for each level."""
        if self.categories is None:
            return (f"{self.name} in days",) if self.kind is Kind.DATE else (self.name,)
        return tuple(f"{self.name}={level}" for level in self.categories.names)

    def _check_public(self) -> None:
        if self.bounds is not None or self.categories is not None or self.fill is not None:
            raise SchemaError(
                f"column '{self.name}' is public and has bounds, categories or fill. Public columns are read as they "
                "are: ranges, levels and gaps are taken from them. Remove the declaration, or make the column private."
            )

    def _set_categories(self) -> None:
        if self.role is Role.LABEL:
            raise SchemaError(f"label '{self.name}' must be a number with bounds, but it has categories.")
        if self.bounds is not None:
            raise SchemaError(f"column '{self.name}' has bounds and categories. Declare one of the two.")
        if self.kind not in (None, Kind.CATEGORY, Kind.BOOLEAN):
            raise SchemaError(f"column '{self.name}' has categories, so its kind is not {self.kind.value}.")
        object.__setattr__(self, "kind", Kind.CATEGORY)
        categories = Categories.of(self.categories, column=self.name)
        object.__setattr__(self, "categories", categories)
        if self.fill is not None:
            if categories.find(self.fill) is None:
                raise SchemaError(f"fill of column '{self.name}' must be one of its declared categories.")
            object.__setattr__(self, "fill", Categories.name(self.fill))

    def _set_fill(self) -> None:
        fill: Any = self.fill
        if fill is None:
            return
        if self.role is Role.LABEL:
            raise SchemaError(
                f"label '{self.name}' has fill. A gap in the label is refused. If everyone may know which labels are "
                "missing, declare that missingness is public: such records are then dropped."
            )
        if self.kind is Kind.DATE and not isinstance(fill, (int, float)):
            day = _read_day(fill)
            if day is None:
                raise SchemaError(f"fill of column '{self.name}' must be a date within its bounds.")
            fill = day
        try:
            fill = float(fill)
        except (TypeError, ValueError):
            raise SchemaError(f"fill of column '{self.name}' must be a number within its bounds.") from None
        if self.kind is Kind.DATE:
            fill = _round_day(fill, self.name)
        assert self.bounds is not None
        if not (math.isfinite(fill) and self.bounds.low <= fill <= self.bounds.high):
            raise SchemaError(f"fill of column '{self.name}' must lie within its bounds.")
        object.__setattr__(self, "fill", fill)


def count_days(day: date) -> float:
    """Return days since 1970-01-01, with a fraction for the time of the day.

    Examples
    --------
    >>> count_days(date(1970, 1, 3)), count_days(datetime(1970, 1, 2, 12))
    (2.0, 1.5)
    """
    if isinstance(day, datetime):
        return (day.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds() / SECONDS
    return float((day - EPOCH).days)


def _round_day(days: float, name: str) -> float:
    """Days since 1970, rounded to what a date and time can express, so that a stored schema reads back."""
    try:
        return count_days(datetime(1970, 1, 1) + timedelta(days=days))
    except OverflowError:
        raise SchemaError(f"column '{name}' must have dates between the years 1 and 9999.") from None


def _read_days(bounds: object) -> tuple[float, float] | None:
    """Days since 1970 of two dates, also in text such as 2026-01-31; None if they are not dates."""
    if not isinstance(bounds, (list, tuple)) or len(bounds) != 2:
        return None
    low, high = _read_day(bounds[0]), _read_day(bounds[1])
    return None if low is None or high is None else (low, high)


def _read_day(day: Any) -> float | None:
    """Days since 1970 of a date, also in text such as 2026-01-31; None if it is not a date."""
    if type(day).__name__ == "datetime64":
        day = day.astype("datetime64[us]").item()
    if isinstance(day, str):
        try:
            day = datetime.fromisoformat(day)
        except ValueError:
            return None
    return count_days(day) if isinstance(day, date) else None


def _is_list_of_texts(declared: object) -> bool:
    return (
        isinstance(declared, (list, tuple))
        and len(declared) > 0
        and all(isinstance(each, (str, bool)) for each in declared)
    )
