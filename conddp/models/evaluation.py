"""Result of an evaluation: figures of a model on held-out records, each with its intervals."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from conddp.bounds import Bounds
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.composition import check_cost, describe_transcript
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.transcript import Transcript
from conddp.stored import decode, require

__all__ = ["CalibrationBin", "Evaluation", "Figure", "Interval"]

NUM_RELEASES = 2  # moments, then sampling variances
ALWAYS = {"mse", "rmse", "mae", "r2", "bias"}  # the figures that every evaluation has
TITLES = {
    "mse": "mean squared error",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "r2": "R²",
    "bias": "bias (label minus prediction)",
    "slope": "calibration slope",
}


@dataclass(frozen=True)
class Interval:
    """Interval of a figure. An end that is None is not known at all.

    Parameters
    ----------
    low, high : float or None
        Ends.
    """

    low: float | None
    high: float | None

    def __contains__(self, value: float) -> bool:
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high)

    def describe(self) -> str:
        """Return the interval as text."""
        if self.low is None and self.high is None:
            return "unknown"
        if self.low is None:
            return f"below {show_number(self.high)}" if self.high is not None and self.high < 1 else "unknown"
        if self.high is None:
            return f"above {show_number(self.low)}"
        return f"{show_number(self.low, self.width)} to {show_number(self.high, self.width)}"

    @property
    def width(self) -> float:
        """Distance of the ends; infinite if one of them is not known."""
        return math.inf if self.low is None or self.high is None else self.high - self.low


@dataclass(frozen=True)
class Figure:
    """A figure of an evaluation, with intervals for two targets.

    Parameters
    ----------
    name : str
        Name of the figure.
    estimate : float or None
        Estimate; None if the noise hides it.
    sample : Interval
        For the figure of the held-out records themselves: noise of the release only.
    population : Interval
        For the population that the held-out records were drawn from: noise and sampling error.
    noise_std, sampling_std : float or None
        Standard deviations of both errors apart.
    """

    name: str
    estimate: float | None
    sample: Interval
    population: Interval
    noise_std: float | None
    sampling_std: float | None


@dataclass(frozen=True)
class CalibrationBin:
    """Records with similar predictions, and their mean label.

    Parameters
    ----------
    predicted : float
        Mean prediction of the bin; public.
    num_records : int
        Number of records in the bin; public.
    actual : float
        Mean label, with noise.
    sample, population : Interval
        As for a figure.
    """

    predicted: float
    num_records: int
    actual: float
    sample: Interval
    population: Interval


@dataclass(frozen=True)
class Evaluation:
    """How well a released model predicts held-out records, from private releases. Print it to read it.

    Privacy
        All numbers are released under the stated budget, or public.

    Parameters
    ----------
    label : str
        Name of the label.
    bounds : Bounds
        Declared range of the label. Labels outside are clamped.
    num_records : int
        Number of held-out records, which is public.
    budget : PrivacyBudget
        Cost of the evaluation.
    neighbouring : Neighbouring
        Neighbouring relation under which it is stated.
    level : float
        Level of the intervals, such as 0.95.
    figures : tuple of Figure
        The figures: "mse", "rmse", "mae", "r2", "bias" and, unless predictions are private or all equal, "slope".
    bins : tuple of CalibrationBin
        Calibration curve: mean labels of records with similar predictions. Empty if predictions are private.
    transcript : Transcript
        Releases of the evaluation, without the released values.
    held_out : bool
        Whether the records were held out by the fit itself. Then a record is either a training record or a held-out
        one, and the cost of both together is the larger one of their costs.
    seeded : bool
        Whether the caller chose the seed of the noise.
    unit : str
        Name of the column whose equal values belong to one unit, such as a person; empty without units.
    num_units : int
        Number of units; 0 without units.
    private_columns : tuple of str
        Names of the private columns of the model, on which predictions depend.
    """

    label: str
    bounds: Bounds
    num_records: int
    budget: PrivacyBudget
    neighbouring: Neighbouring
    level: float
    figures: tuple[Figure, ...]
    bins: tuple[CalibrationBin, ...]
    transcript: Transcript
    held_out: bool = False
    seeded: bool = False
    unit: str = ""
    num_units: int = 0
    private_columns: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Figure:
        """Return a figure by name."""
        for each in self.figures:
            if each.name == name:
                return each
        raise KeyError(f"there is no figure {name!r}: the evaluation has {[each.name for each in self.figures]}.")

    @property
    def guarantee(self) -> str:
        """Privacy guarantee of the evaluation, as a paragraph."""
        whose = f"any one of the {self.num_records:,} held-out records"
        if self.unit:
            whose = f"all held-out records with any one of the {self.num_units:,} values of '{self.unit}'"
        what, relation = "label", "replaced by any other value within its declared range"
        private = ""
        if self.private_columns:
            named = ", ".join(f"'{name}'" for name in self.private_columns)
            private = f" and the private column{'s' * (len(self.private_columns) > 1)} {named}"
            what, relation = "label and private columns", "replaced by any other values within their declared ranges"
        if self.neighbouring is not Neighbouring.REPLACE:
            relation = "set to a null that contributes nothing, which is the weaker ZERO_OUT relation"
        together = (
            "The records were held out by a public split: each record is either a training record or a held-out one. "
            "The fit and the evaluation together therefore have the larger one of their guarantees, not the sum."
            if self.held_out
            else "If a record was also used for training, the costs of the fit and of the evaluation add up for it."
        )
        seed = (
            "The noise came from a seed, for research only: anyone who knows or guesses the seed can remove the noise."
            if self.seeded
            else "The random bits of the noise came from a cryptographic generator keyed by the operating system."
        )
        return (
            f"This evaluation is ({self.budget.epsilon:g}, {self.budget.delta:g})-differentially private with respect "
            f"to the label '{self.label}' (declared range [{self.bounds.low:g}, {self.bounds.high:g}]){private} of "
            f"{whose}. Neighbouring data sets differ in the {what}, {relation}. "
            f"{describe_transcript(self.transcript, self.neighbouring)} {together} Not covered: the public columns and "
            f"the number of records, which are treated as public. {seed}"
        )

    def __str__(self) -> str:
        rows = list(self.list_rows())
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([self.title, "", *lines, "", *self.list_notes()])

    def _repr_html_(self) -> str:
        heads, *rows = self.list_rows()
        header = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.list_notes())
        table = f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div><p><b>{escape(self.title)}</b></p>{table}{notes}</div>"

    @property
    def title(self) -> str:
        """What was evaluated, at which cost."""
        return f"Evaluation of '{self.label}' on {self.num_records:,} held-out records, {self.budget}"

    def list_rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield the rows of the table as text, starting with its heads."""
        percent = f"{100 * self.level:g} %"
        yield ("", "estimate", f"{percent}, these records", f"{percent}, population")
        for each in self.figures:
            estimate = "unknown" if each.estimate is None else show_number(each.estimate, each.sample.width)
            yield (TITLES[each.name], estimate, each.sample.describe(), each.population.describe())

    def list_bin_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the rows of the calibration curve as text, starting with its heads."""
        percent = f"{100 * self.level:g} %"
        yield ("mean prediction", "records", "mean label", f"{percent}, these records", f"{percent}, population")
        for each in self.bins:
            yield (
                show_number(each.predicted),
                f"{each.num_records:,}",
                show_number(each.actual, each.sample.width),
                each.sample.describe(),
                each.population.describe(),
            )

    def list_notes(self) -> Iterator[str]:
        """Yield what a reader of the table should know."""
        r2 = self["r2"]
        if r2.estimate is None:
            bound = "" if r2.sample.high == 1 else f": {r2.sample.describe()}"
            yield (
                f"R² is unknown{bound}. The noise hides the spread of the labels. More held-out records or a larger "
                "epsilon would show it."
            )
        yield (
            "Intervals for these records cover the noise of the release. Those for the population cover the sampling "
            "of the records too."
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Evaluation":
        """Return the evaluation that was stored.

        Raises
        ------
        SchemaError
            If it is not what :meth:`to_json` gives.
        PrivacyError
            If its releases cost more than it states.
        """
        require(isinstance(stored, dict), "an evaluation must be an object")
        values = {name: value for name, value in stored.items() if name not in ("transcript", "guarantee", "bounds")}
        require({"transcript", "bounds"} <= set(stored), "an evaluation has bounds and a transcript")
        parts = decode(_Parts, values, "evaluation")
        bounds = decode(_Ends, stored["bounds"], "evaluation.bounds")
        try:
            transcript, limits = Transcript.from_json(stored["transcript"]), Bounds(bounds.low, bounds.high)
        except (TypeError, ValueError) as error:
            require(False, f"the evaluation is damaged: {str(error).rstrip('.')}")
        made = cls(**{name: getattr(parts, name) for name in values}, transcript=transcript, bounds=limits)
        require({each.name for each in made.figures} <= set(TITLES), "the evaluation has figures of unknown names")
        names = [each.name for each in made.figures]
        require(ALWAYS <= set(names) and len(names) == len(set(names)), "the evaluation lacks figures or repeats them")
        require(made.num_records >= 1 and made.num_units >= 0, "the evaluation has no records")
        require(0.0 < made.level < 1.0, "the level of the evaluation is not between 0 and 1")
        check_cost(made.transcript, made.budget, made.neighbouring)
        return made

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as it is stored; ends and estimates that are not known are null."""
        stored = asdict(self)
        return {
            **stored,
            "bounds": {"low": self.bounds.low, "high": self.bounds.high},
            "neighbouring": self.neighbouring.value,
            "transcript": self.transcript.to_json(),
            "figures": [asdict(each) for each in self.figures],
            "bins": [asdict(each) for each in self.bins],
            "guarantee": self.guarantee,
        }


@dataclass(frozen=True)
class _Ends:
    """Bounds as they are stored."""

    low: float
    high: float


@dataclass(frozen=True)
class _Parts:
    """An evaluation as it is stored; bounds and transcript decode themselves."""

    label: str
    num_records: int
    budget: PrivacyBudget
    neighbouring: Neighbouring
    level: float
    figures: tuple[Figure, ...]
    bins: tuple[CalibrationBin, ...]
    held_out: bool
    seeded: bool
    unit: str
    num_units: int
    private_columns: tuple[str, ...] = ()


def show_number(value: float, width: float = math.inf) -> str:
    """Return a number with four digits, or with those that matter for an interval of this width."""
    if not 1e-4 < width < 1e6:
        return f"{value:,.4g}"
    decimals = max(0, 2 - math.floor(math.log10(width)))
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"
