r"""Encodings of single public columns as numbers, with everything that they depend on read off public columns.

A number is left as it is. If it has gaps, they are filled with its median, and a second feature marks them. If it is
heavy-tailed, :math:`\operatorname{arsinh}((x - m)/s)` takes its place, which is linear near the median m and
logarithmic far from it. In large tables it may have piecewise linear features too (:mod:`conddp.features.splines`). A
category becomes one indicator per frequent level; rare levels share indicators by a hash of
their text. A date becomes a trend, and periodic features for the year, the week and the day as far as it varies in
them.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from conddp.data.column import Kind
from conddp.data.public_cells import PublicColumn, find_resemblance
from conddp.errors import SchemaError
from conddp.features.bin_encoding import BinEncoding, tidy_level
from conddp.features.splines import MOST_KNOTS, make_hats
from conddp.stored import require

__all__ = ["CategoryEncoding", "ColumnEncoding", "DateEncoding", "NumberEncoding", "encode_column"]

Vector = NDArray[np.float64]

TINY = 1e-290  # smaller numbers count as zero, because they are not stored
DECIMALS = 9  # of functions whose last bits differ between processors, so that seeded fits do not
FAR = 20.0  # a column is heavy-tailed if a value is more than this many standard deviations from the mean
NORMAL_QUARTILES = 1.349  # distance between the quartiles of a normal distribution, in standard deviations
ALL_LEVELS = 40  # up to this number of levels, each gets a feature of its own
MOST_LEVELS = 400  # levels of one column that get a feature of their own
MOST_BINS = 64  # features that rare levels share
RARE = 0.25  # a level or a gap with fewer than this times the square root of n records has no feature of its own
RECORDS_PER_LEVEL = 2.0  # with fewer records per level on average, a column identifies records and is left out
YEAR, HALF_YEAR, FORTNIGHT = 365.2425, 182.0, 14.0  # days
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
YEAR_WAVES, DAY_WAVES = 2, 3  # numbers of sine and cosine pairs


@dataclass(frozen=True)
class NumberEncoding:
    """A number or a flag.

    Parameters
    ----------
    column : str
        Name of the column.
    kind : Kind
        Number or boolean.
    median : float, optional
        Value that fills gaps. If None, gaps are refused.
    scale : float
        Scale of the transformation; 0 if the column is not transformed.
    has_gaps : bool
        Whether a second feature marks gaps. It does if the training column had more than a few.
    knots : tuple of float
        Knots of piecewise linear features; empty if there are none.
    """

    form: ClassVar[str] = "number"

    column: str
    kind: Kind = Kind.NUMBER
    median: float | None = None
    scale: float = 0.0
    has_gaps: bool = False
    knots: tuple[float, ...] = ()

    @classmethod
    def of(cls, name: str, column: PublicColumn, *, squash: bool, num_records: int) -> "NumberEncoding":
        """Choose the encoding of a column of numbers, or of a sample of a table with so many records."""
        gaps = np.isnan(column.values)
        known = column.values[~gaps]
        if not len(known):
            return cls(name, column.kind, 0.0)
        median = float(np.median(known)) if column.kind is Kind.NUMBER else float(np.median(known) >= 0.5)
        median = median if abs(median) > TINY else 0.0
        scale = _measure_scale(known, median) if squash and is_heavy_tailed(known) else 0.0
        if scale <= TINY:
            scale = 0.0
        return cls(name, column.kind, median, scale, _is_common(int(gaps.sum()), len(gaps), num_records))

    @property
    def is_plain(self) -> bool:
        """Whether the feature is the column itself."""
        return not self.scale and not self.has_gaps and not self.knots

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        name = f"arsinh({self.column})" if self.scale else self.column
        hats = (f"{self.column} near {knot}" for knot in self.knots)
        return (name, *([f"{self.column} is missing"] if self.has_gaps else []), *hats)

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups of features that share a scale: all piecewise linear features do."""
        own = 1 + self.has_gaps
        return (*range(own), *(own for _ in self.knots))

    @property
    def remark(self) -> str:
        """What was done to the column; empty if nothing was."""
        said = []
        if self.scale:
            said.append("is heavy-tailed, so that arsinh((x - median) / spread) is used instead")
        if self.has_gaps:
            said.append("has gaps, which are filled with the median and marked by a feature of their own")
        if self.knots:
            said.append(f"has {len(self.knots)} piecewise linear features as well, between its quantiles")
        return f"'{self.column}' {' and '.join(said)}." if said else ""

    def transform(self, column: PublicColumn) -> Any:
        """Return the features of a column, shape (n, features): an array, or a CSR array if there are knots."""
        values, gaps = column.values, np.isnan(column.values)
        if gaps.any():
            if self.median is None:
                raise SchemaError(f"column '{self.column}' has gaps, but had none in training. Fill them in.")
            values = np.where(gaps, self.median, values)
        hats = make_hats(values, np.array(self.knots)) if self.knots else None
        if self.scale:
            values = np.round(np.arcsinh((values - (self.median or 0.0)) / self.scale), DECIMALS)
        own = np.column_stack([values, gaps]) if self.has_gaps else np.asarray(values, dtype=np.float64)[:, None]
        return own if hats is None else sparse.hstack([sparse.csr_array(own), hats], format="csr")

    def check(self) -> None:
        """Raise SchemaError unless the parameters make sense."""
        require(self.kind in (Kind.NUMBER, Kind.BOOLEAN), "the kind of a number must be number or boolean")
        require(len(self.knots) != 1 and len(self.knots) <= MOST_KNOTS, f"knots must be none or 2 to {MOST_KNOTS}")
        require(all(low < high for low, high in pairwise(self.knots)), "the knots of a number must increase")
        require(self.scale >= 0, "the scale of a number must not be negative")


@dataclass(frozen=True)
class CategoryEncoding:
    """A category.

    Parameters
    ----------
    column : str
        Name of the column.
    levels : tuple of str
        Levels that have a feature of their own.
    num_bins : int
        Number of features that all other levels share, by a hash of their text. With 0, other levels have no feature.
    has_gaps : bool
        Whether gaps have a feature.
    resembles : str
        "number" or "date" if nearly all of many levels look like one, so that the column may be of this kind.
    """

    form: ClassVar[str] = "category"
    kind: ClassVar[Kind] = Kind.CATEGORY

    column: str
    levels: tuple[str, ...] = ()
    num_bins: int = 0
    has_gaps: bool = False
    resembles: str = ""

    @classmethod
    def of(cls, name: str, column: PublicColumn, *, num_records: int) -> "CategoryEncoding":
        """Choose the encoding of a category, from the number of records of each level.

        The noise in the effect of a level is proportional to one over its number of records, so the effects of rare
        levels cannot be learned. Of up to 40 levels, those with at least a quarter of the square root of n records
        have a feature each, and the others share one. Of more levels, those with at least the square root of n records
        have a feature each, and the others share up to 64. If the column is a sample of a table with n records, the
        records of a level are estimated.
        """
        counts = column.count_levels()
        n, sampled = num_records, len(column)
        has_gaps = _is_common(sampled - int(counts.sum()), sampled, n)
        if len(counts) <= ALL_LEVELS:
            is_common = [_is_common(count, sampled, n) for count in counts.tolist()]
            common = [level for level, own in zip(column.levels, is_common, strict=True) if own]
            rest = sum(count for count, own in zip(counts.tolist(), is_common, strict=True) if not own)
            return cls(name, tuple(common), int(_is_common(rest, sampled, n)), has_gaps)
        resembles = find_resemblance(column)
        if counts.sum() < RECORDS_PER_LEVEL * len(counts):
            return cls(name, has_gaps=has_gaps, resembles=resembles)
        share = sampled / n
        frequent = np.flatnonzero(counts >= share * math.sqrt(n))
        frequent = np.sort(frequent[np.argsort(-counts[frequent], kind="stable")][:MOST_LEVELS])
        num_rest = len(counts) - len(frequent)
        rest = int(counts.sum() - counts[frequent].sum())
        num_bins = min(MOST_BINS, num_rest, math.ceil(rest / (share * 4 * math.sqrt(n)))) if rest else 0
        return cls(name, tuple(column.levels[place] for place in frequent), num_bins, has_gaps, resembles)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        levels = (f"{self.column}={level}" for level in self.levels)
        bins = (f"{self.column}: other levels {place + 1} of {self.num_bins}" for place in range(self.num_bins))
        return (*levels, *bins, *([f"{self.column} is missing"] if self.has_gaps else []))

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups of features that share a scale: all features of the category."""
        return (0,) * len(self.features)

    @property
    def remark(self) -> str:
        """What was done to the column, if it is worth saying."""
        if self.resembles:
            return (
                f"'{self.column}' is used as text, but nearly all of its values look like a {self.resembles}. Correct "
                "the others and convert the column, or declare its kind."
            )
        if not self.levels and not self.num_bins:
            return (
                f"'{self.column}' has a different value in nearly every record, so that it is not used as a category."
            )
        if not self.num_bins:
            return ""
        own = f"{len(self.levels)} frequent levels of '{self.column}' have a feature each" if self.levels else ""
        noun = "feature" if self.num_bins == 1 else "features"
        rest = f"{'the others' if own else f'the levels of {self.column!r}'} share {self.num_bins} {noun} by a hash"
        return f"{own}; {rest}." if own else f"{rest[0].upper()}{rest[1:]}."

    def transform(self, column: PublicColumn) -> Any:
        """Return indicators of the levels, a CSR array of shape (n, features). Levels without a feature give zeros."""
        found = np.full(len(column.levels) + 1, -1, dtype=np.intp)
        for code, place in enumerate(self._find(column.levels)):
            found[code] = self._find_bin(column.levels[code]) if place is None else place
        found[-1] = len(self.features) - 1 if self.has_gaps else -1
        chosen = found[column.values]
        present = chosen >= 0
        starts = np.concatenate([[0], np.cumsum(present)])
        indices = chosen[present]
        return sparse.csr_array((np.ones(len(indices)), indices, starts), shape=(len(column), len(self.features)))

    def _find(self, levels: Sequence[str]) -> list[int | None]:
        """Places of levels among those with a feature. A code may be 1 in one table and 1.0 in another."""
        places = {level: place for place, level in enumerate(self.levels)}
        tidied = {tidy_level(level): place for level, place in places.items()}
        if len(tidied) < len(places):  # 1 and 1.0 are different levels here
            tidied = {}
        return [places.get(level, tidied.get(tidy_level(level))) for level in levels]

    def _find_bin(self, level: str) -> int:
        return len(self.levels) + _hash(level) % self.num_bins if self.num_bins else -1

    def count_unknown(self, column: PublicColumn) -> int:
        """Number of records whose level was not seen in training."""
        if self.num_bins:
            return 0
        unknown = np.array([place is None for place in self._find(column.levels)] + [False])
        return int(unknown[column.values].sum())

    def check(self) -> None:
        """Raise SchemaError unless the parameters make sense."""
        require(self.resembles in ("", "number", "date"), "a category can resemble a number or a date")
        require(0 <= self.num_bins <= MOST_BINS, f"the bins of a category must be 0 to {MOST_BINS}")
        require(len(set(self.levels)) == len(self.levels), "the levels of a category must be different")


@dataclass(frozen=True)
class DateEncoding:
    """A date or a time stamp.

    Parameters
    ----------
    column : str
        Name of the column.
    zone : str
        Time zone of the training column; empty if it had none.
    origin : float
        Median date, in days since 1970. The trend is counted from it, and it fills gaps.
    year, week, day : bool
        Whether there are periodic features for the year, the weekday and the time of the day.
    has_gaps : bool
        Whether a feature marks gaps.
    """

    form: ClassVar[str] = "date"
    kind: ClassVar[Kind] = Kind.DATE

    column: str
    zone: str = ""
    origin: float = 0.0
    year: bool = False
    week: bool = False
    day: bool = False
    has_gaps: bool = False

    @classmethod
    def of(cls, name: str, column: PublicColumn, *, num_records: int) -> "DateEncoding":
        """Choose the encoding of a column of dates, or of a sample of a table with so many records."""
        gaps = np.isnan(column.values)
        known = column.values[~gaps]
        if not len(known):
            return cls(name, column.zone)
        span = float(known.max() - known.min())
        weekdays, times = np.unique(_find_weekday(known)), np.unique(np.round(known % 1.0, 9))
        return cls(
            name,
            column.zone,
            float(np.median(known)),
            span >= HALF_YEAR,
            span >= FORTNIGHT and len(weekdays) > 1,
            len(times) > 1,
            _is_common(int(gaps.sum()), len(gaps), num_records),
        )

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        names = [f"{self.column} in years"]
        names += _name_waves(f"{self.column}: year", YEAR_WAVES) if self.year else []
        names += [f"{self.column} on {weekday}" for weekday in WEEKDAYS] if self.week else []
        names += _name_waves(f"{self.column}: time of day", DAY_WAVES) if self.day else []
        return (*names, *([f"{self.column} is missing"] if self.has_gaps else []))

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups of features that share a scale: the trend, the year, the week and the day."""
        sizes = (1, 2 * YEAR_WAVES * self.year, 7 * self.week, 2 * DAY_WAVES * self.day, int(self.has_gaps))
        return tuple(group for group, size in enumerate(sizes) for _ in range(size))

    @property
    def remark(self) -> str:
        """What was done to the column."""
        cycles = [
            word for word, used in (("year", self.year), ("weekday", self.week), ("time of day", self.day)) if used
        ]
        periodic = f", with periodic features for {' and '.join(cycles)}" if cycles else ""
        gaps = " Gaps are filled with the median date and marked." if self.has_gaps else ""
        return f"'{self.column}' is a trend in years{periodic}.{gaps}"

    def transform(self, column: PublicColumn) -> Vector:
        """Return the features of a column, shape (n, features). Periodic features of a gap are zero."""
        gaps = np.isnan(column.values)
        days = np.where(gaps, self.origin, column.values)
        parts = [((days - self.origin) / YEAR)[:, None]]
        periodic = []
        if self.year:
            periodic.append(_make_waves(days / YEAR, YEAR_WAVES))
        if self.week:
            periodic.append(np.equal.outer(_find_weekday(days), np.arange(7)).astype(np.float64))
        if self.day:
            periodic.append(_make_waves(days, DAY_WAVES))
        for part in periodic:
            part[gaps] = 0.0
            parts.append(part)
        if self.has_gaps:
            parts.append(gaps[:, None].astype(np.float64))
        return np.hstack(parts)

    def check(self) -> None:
        """Raise SchemaError unless the parameters make sense."""
        require(abs(self.origin) < 1e7, "the origin of a date must be within 27,000 years of 1970")


ColumnEncoding = NumberEncoding | CategoryEncoding | DateEncoding | BinEncoding


def encode_column(name: str, column: PublicColumn, *, squash: bool, num_records: int) -> ColumnEncoding:
    """Choose the encoding of a public column.

    Privacy
        Reads a public column: no cost.

    Parameters
    ----------
    name : str
        Name of the column.
    column : PublicColumn
        The column.
    squash : bool
        Whether to transform heavy-tailed numbers.
    num_records : int
        Number of records of the table, of which the column may be a sample.
    """
    if column.kind is Kind.CATEGORY:
        return CategoryEncoding.of(name, column, num_records=num_records)
    if column.kind is Kind.DATE:
        return DateEncoding.of(name, column, num_records=num_records)
    return NumberEncoding.of(name, column, squash=squash, num_records=num_records)


def is_heavy_tailed(known: Vector) -> bool:
    """Whether a value is more than 20 standard deviations from the mean, unless there are two values only."""
    with np.errstate(over="ignore", invalid="ignore"):
        center, deviation, low, high = known.mean(), known.std(), known.min(), known.max()
        if not max(high - center, center - low) > FAR * deviation > 0:
            return False
        return not ((known == low) | (known == high)).all()  # a flag has no tails


def _is_common(count: int, sampled: int, num_records: int) -> bool:
    """Whether enough records have a level, or a gap, for its effect to be learned."""
    return count > 0 and count >= sampled / num_records * RARE * math.sqrt(num_records)


def _measure_scale(known: Vector, median: float) -> float:
    """Typical distance from the median: by the quartiles, or by the values that differ from the median."""
    low, high = np.quantile(known, [0.25, 0.75])
    if high > low:
        return float((high - low) / NORMAL_QUARTILES)
    distances = np.abs(known - median)
    return float(np.median(distances[distances > 0]))


def _find_weekday(days: Vector) -> NDArray[np.int64]:
    """Weekday of each date, Monday being 0; 1970 began on a Thursday."""
    return (np.floor(days).astype(np.int64) + 3) % 7


def _make_waves(phase: Vector, number: int) -> Vector:
    angles = 2 * np.pi * np.multiply.outer(phase % 1.0, np.arange(1, number + 1))
    return np.round(np.hstack([np.sin(angles), np.cos(angles)]), DECIMALS)


def _name_waves(name: str, number: int) -> list[str]:
    return [f"{name}, {wave} {place}" for wave in ("sine", "cosine") for place in range(1, number + 1)]


def require_kind(encoding: ColumnEncoding, column: PublicColumn) -> None:
    """Raise SchemaError unless a column has the kind that the encoding was chosen for."""
    if (encoding.kind is Kind.CATEGORY) != (column.kind is Kind.CATEGORY) or (
        (encoding.kind is Kind.DATE) != (column.kind is Kind.DATE)
    ):
        raise SchemaError(
            f"column '{encoding.column}' was a {encoding.kind.value} in training and is a {column.kind.value} now."
        )
    if isinstance(encoding, DateEncoding) and encoding.zone and column.zone and encoding.zone != column.zone:
        raise SchemaError(
            f"column '{encoding.column}' was in the time zone {encoding.zone} in training and is in {column.zone} now. "
            "Convert it."
        )
    if encoding.kind is Kind.BOOLEAN and not np.isin(column.values[~np.isnan(column.values)], (0.0, 1.0)).all():
        raise SchemaError(f"column '{encoding.column}' was true or false in training and holds other numbers now.")


@lru_cache(maxsize=1 << 17)  # blocks of a table have many levels in common
def _hash(level: str) -> int:
    return int.from_bytes(hashlib.blake2b(level.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
