"""Declared categories of private values."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from conddp.errors import SchemaError

__all__ = ["Categories"]

MOST_CATEGORIES = 1000


@dataclass(frozen=True)
class Categories:
    """Declared categories of a private value, from domain knowledge and never from the data.

    A value is compared with the categories as text: ``1`` and ``"1"`` are the same category, and so are ``True`` and
    ``"true"``. A value that is not declared counts as none of them.

    Parameters
    ----------
    names : tuple of str
        The categories, at least two.

    Examples
    --------
    >>> regions = Categories.of(["north", "south", "west"], column="region")
    >>> regions.find("south"), regions.find("moon")
    (1, None)
    """

    names: tuple[str, ...]
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = tuple(self.names)
        if len(names) < 2 or len(names) > MOST_CATEGORIES:
            raise SchemaError(f"categories must be 2 to {MOST_CATEGORIES} different values, got {len(names)}.")
        if len(set(names)) < len(names):
            raise SchemaError("categories must be different values, compared as text.")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "_places", {name: place for place, name in enumerate(names)})

    @classmethod
    def of(cls, value: object, *, column: str) -> "Categories":
        """Create categories from a list of values, or raise an error that names the column."""
        if isinstance(value, Categories):
            return value
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise SchemaError(f"categories of column '{column}' must be a list of values, got {repr(value)[:80]}.")
        try:
            return cls(tuple(cls.name(each) for each in value))
        except SchemaError as error:
            raise SchemaError(f"column '{column}': {error}") from None

    @staticmethod
    def name(value: object) -> str:
        """Return a value as the text by which categories are compared."""
        if isinstance(value, str):
            return value
        if isinstance(value, bool) or type(value).__name__ == "bool":  # also NumPy's
            return "true" if value else "false"
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        if isinstance(value, Decimal) and value.is_finite() and value == int(value):
            return str(int(value))
        return str(value)

    def __len__(self) -> int:
        return len(self.names)

    def find(self, value: object) -> int | None:
        """Return the place of a value among the categories; None if it is not declared."""
        return self._places.get(self.name(value))
