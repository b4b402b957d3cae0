"""Curves of an additive model: what each column adds to its predictions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.features.decoding import DecodedValues, decode_features
from conddp.features.encoding import Encoding
from conddp.models.effects import Effects

__all__ = ["Curve", "Curves", "Surface"]

Vector = NDArray[np.float64]

QUANTILE = 1.96  # of the normal distribution, for bands of 95 %
MOST_LISTED = 40  # curves and pairs that are printed


@dataclass(frozen=True, eq=False)
class Curve:
    """What a column adds to the predictions of an additive model, at some of its values.

    Privacy
        Computed from released parameters, public columns and known noise: no cost.

    Parameters
    ----------
    name : str
        Name of the column. A date has several curves, such as ``"sold"`` and ``"sold: weekday"``, and a column with
        gaps has one more, such as ``"age is missing"``.
    column : str
        Name of the column that it is a function of.
    values : array of shape (m,)
        Values in increasing order: numbers in the units of the column, dates, or False and True; for a category, its
        levels as text.
    effect : array of shape (m,)
        What these values add to predictions, in the units of the label. The mean over the training records is zero.
    std : array of shape (m,)
        Standard deviation of the effect given the releases.
    importance : float
        Standard deviation of the effect over the training records.
    unit : str
        Unit of the values if it is not that of the column, such as ``"hour"``.
    """

    name: str
    column: str
    values: NDArray[Any]
    effect: Vector
    std: Vector
    importance: float
    unit: str = ""

    @property
    def kind(self) -> str:
        """What the values are: "number", "category", "flag" or "date"."""
        return {"O": "category", "b": "flag", "M": "date"}.get(self.values.dtype.kind, "number")

    @property
    def is_category(self) -> bool:
        """Whether the values have no order, or are just False and True."""
        return self.values.dtype.kind in "Ob"

    def __repr__(self) -> str:
        return f"Curve({self.name!r}, {len(self.values)} values, importance {self.importance:.3g})"


@dataclass(frozen=True, eq=False)
class Surface:
    """What a pair of columns adds to predictions, beyond the sum of their curves.

    Parameters
    ----------
    names : tuple of str
        Names of both curves.
    values : tuple of arrays of shape (a,) and (b,)
        Values of both columns.
    effect, std : arrays of shape (a, b)
        What pairs of values add to predictions, and its standard deviation given the releases.
    importance : float
        Standard deviation of the effect over the training records.
    """

    names: tuple[str, str]
    values: tuple[NDArray[Any], NDArray[Any]]
    effect: Vector
    std: Vector
    importance: float

    def __repr__(self) -> str:
        shape = " by ".join(str(len(each)) for each in self.values)
        return f"Surface({' and '.join(map(repr, self.names))}, {shape} values, importance {self.importance:.3g})"


@dataclass(frozen=True, eq=False)
class Curves:
    """All curves of an additive model, those of largest importance first.

    A prediction is the constant plus the effects of all columns and pairs, clamped to the range of the label. Private
    columns add linear terms (:meth:`~conddp.models.result.FitResult.list_private_coefficients`). Printing the object
    gives a table.

    Parameters
    ----------
    constant : float
        Mean prediction for the training records.
    columns : tuple of Curve
        Curves of single columns. Iterating over the object, or indexing it by place or name, gives these.
    pairs : tuple of Surface
        Surfaces of pairs of columns.
    """

    constant: float
    columns: tuple[Curve, ...]
    pairs: tuple[Surface, ...] = ()

    @classmethod
    def of(cls, effects: Effects, encoding: Encoding) -> "Curves":
        """Convert effects of features to those of columns in their original units."""
        names, columns, pairs = [], [], []
        for place, each in enumerate(effects.singles):
            decoded, order = _decode(effects, encoding, place, each.values)
            names.append(decoded.name)
            effect, std = np.array(each.effect)[order], np.array(each.std)[order]
            columns.append(
                Curve(decoded.name, decoded.column, decoded.values, effect, std, each.importance, decoded.unit)
            )
        for pair in effects.pairs:
            first, rows = _decode(effects, encoding, pair.first, pair.first_values)
            second, across = _decode(effects, encoding, pair.second, pair.second_values)
            shape = (len(rows), len(across))
            effect, std = (np.reshape(each, shape)[np.ix_(rows, across)] for each in (pair.effect, pair.std))
            both = (names[pair.first], names[pair.second])
            pairs.append(Surface(both, (first.values, second.values), effect, std, pair.importance))
        columns.sort(key=lambda curve: -curve.importance)
        pairs.sort(key=lambda surface: -surface.importance)
        return cls(effects.constant, tuple(columns), tuple(pairs))

    def __iter__(self) -> Iterator[Curve]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, key: int | str) -> Curve:
        """Return a curve by its place or by its name."""
        if not isinstance(key, str):
            return self.columns[key]
        for curve in self.columns:
            if curve.name == key:
                return curve
        raise KeyError(f"there is no curve {key!r}. Curves: {', '.join(each.name for each in self.columns)}.")

    def __str__(self) -> str:
        """Return a table with a line for each curve and pair, those of largest importance first."""
        listed: list[Curve | Surface] = sorted((*self.columns, *self.pairs), key=lambda each: -each.importance)
        rows = [("name", "kind", "spread", "band")]
        for each in listed[:MOST_LISTED]:
            name, kind = (each.name, each.kind) if isinstance(each, Curve) else (" × ".join(each.names), "pair")
            band = QUANTILE * float(np.median(each.std))
            rows.append((name, kind, f"{each.importance:.3g}", f"± {band:.3g}"))
        widths = [max(len(row[place]) for row in rows) for place in range(4)]
        lines = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}" for a, b, c, d in rows]
        more = [f"and {len(listed) - MOST_LISTED} more"] if len(listed) > MOST_LISTED else []
        return "\n".join(
            [
                f"A prediction is {self.constant:.4g} plus the effects of:",
                *lines,
                *more,
                "spread: standard deviation of the effect over the training records.",
                "band: 95 % interval around the effect, at the median of its values.",
            ]
        )

    def __repr__(self) -> str:
        return f"Curves({len(self.columns)} columns, {len(self.pairs)} pairs, constant {self.constant:.4g})"


def _decode(
    effects: Effects, encoding: Encoding, single: int, stored: tuple[float, ...]
) -> tuple[DecodedValues, NDArray[np.intp]]:
    """Values of a column in order, and the places of stored ones in this order."""
    each, values = effects.singles[single], np.array(stored)
    if not each.is_category and len(each.features) > 1:
        values = values.reshape(-1, len(each.features))
    decoded = decode_features(encoding, each.features, values, is_category=each.is_category)
    order = np.arange(len(values))
    if decoded.values.dtype.kind != "O":
        order = np.argsort(decoded.values, kind="stable")
    return DecodedValues(decoded.name, decoded.column, decoded.values[order], decoded.unit), order
