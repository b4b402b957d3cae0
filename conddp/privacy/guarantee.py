"""Privacy guarantee of a fit, as structured fields and as one paragraph of text."""

import math
from dataclasses import dataclass

from conddp.bounds import Bounds
from conddp.privacy.bounded_sum import bound_rounding
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring

__all__ = ["Guarantee"]


@dataclass(frozen=True)
class Guarantee:
    """Privacy guarantee of one fit. Printing it gives a precise statement in one paragraph.

    Parameters
    ----------
    budget : PrivacyBudget
        (epsilon, delta) of this fit.
    neighbouring : Neighbouring
        Neighbouring relation under which the guarantee holds.
    num_records : int
        Number of training records, which is public.
    label : str
        Name of the label.
    label_bounds : Bounds
        Declared range of the label.
    public_columns, private_columns : tuple of str
        Names of the features.
    mechanism : str
        Sentence that describes the releases and how they were accounted.
    seeded : bool
        Whether the caller chose the seed of the noise.
    choice : str
        Sentences that explain why this head and this algorithm were used, if the library chose them.
    unit : str
        Name of the column whose equal values belong to one unit, such as a person. Empty if the guarantee is for single
        records.
    num_units, records_per_unit : int
        Number of units, and the largest number of training records of a unit; 0 without units.
    category_columns : tuple of str
        Names of the private columns that have declared categories instead of a range.
    remark : str
        What cannot be checked of a model that was saved in an old format, and how its noise was drawn. The text starts
        with it. Empty for every new fit.
    weighted : bool
        Whether the records had weights, which are treated as public.
    missing_is_public : bool
        Whether everyone may know which labels are missing, as the schema declares.
    rounding : float, optional
        Fraction by which Gaussian noise is larger to cover rounding errors of sums. If None, as in a model that was
        saved before this was recorded, that of sums that are not divided into blocks.
    """

    budget: PrivacyBudget
    neighbouring: Neighbouring
    num_records: int
    label: str
    label_bounds: Bounds
    public_columns: tuple[str, ...]
    private_columns: tuple[str, ...]
    mechanism: str
    seeded: bool
    choice: str = ""
    unit: str = ""
    num_units: int = 0
    records_per_unit: int = 0
    category_columns: tuple[str, ...] = ()
    remark: str = ""
    weighted: bool = False
    missing_is_public: bool = False
    rounding: float | None = None

    @property
    def epsilon(self) -> float:
        """Epsilon of this fit."""
        return self.budget.epsilon

    @property
    def delta(self) -> float:
        """Delta of this fit."""
        return self.budget.delta

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return " ".join(filter(None, (self.remark, f"This model is NOT differentially private: {self.mechanism}")))
        sentences = [self.remark, self._promise(), self._neighbours(), self.mechanism, self.choice, self._limits()]
        sentences += ["" if self.remark else self._noise(), self._seed()]
        return " ".join(sentence for sentence in sentences if sentence)

    def _promise(self) -> str:
        bounds = self.label_bounds
        amount = f"({self.epsilon:g}, {self.delta:g})" if self.delta else f"{self.epsilon:g}"
        private = ", ".join(f"'{name}'" for name in self.private_columns)
        noun = "column" if len(self.private_columns) == 1 else "columns"
        return (
            f"This model is {amount}-differentially private with respect to the label '{self.label}' "
            f"(declared range [{bounds.low:g}, {bounds.high:g}])"
            + (f" and the private {noun} {private}" if private else "")
            + (
                f" of {self._name_units()}."
                if self.unit
                else f" of any one of its {self.num_records} training records."
            )
        )

    def _name_units(self) -> str:
        up_to = "1 record" if self.records_per_unit == 1 else f"up to {self.records_per_unit:,} records"
        return (
            f"all training records with any one of its {self.num_units:,} values of '{self.unit}' ({up_to} each, "
            f"{self.num_records:,} in total)"
        )

    def _neighbours(self) -> str:
        what = "label and private columns" if self.private_columns else "label"
        differ = f"one record's {what}"
        if self.unit:
            differ = f"the {what} of all records with one value of '{self.unit}'"
        if self.neighbouring is Neighbouring.REPLACE:
            within, others = "declared ranges", "values outside are clamped"
            if self.category_columns:
                within, others = "declared ranges and categories", "others are clamped or count as none of them"
            return (
                f"Neighbouring data sets differ in {differ}, replaced by any other values within the {within} "
                f"({others})."
            )
        return (
            f"This holds under the weaker ZERO_OUT relation: neighbouring data sets differ in {differ}, "
            "set to a null that contributes nothing; under replacement the same noise gives a larger epsilon."
        )

    def _limits(self) -> str:
        columns = ", ".join(f"'{name}'" for name in self.public_columns[:6])
        more = f" and {len(self.public_columns) - 6} more" if len(self.public_columns) > 6 else ""
        public = f"the public columns {columns}{more}, " if self.public_columns else ""
        public += f"the values of '{self.unit}', " if self.unit else ""
        public += "the weights of the records, " if self.weighted else ""
        public += "which records have no label (they were left out), " if self.missing_is_public else ""
        return (
            f"Not covered: {public}the number of records and the declared ranges"
            f"{' and categories' if self.category_columns else ''}, which are treated as public; "
            "what was done to the table before the fit, such as scaling or encoding by private values; other releases "
            "from the same data, whose cost a shared ledger adds up; choices made by looking at private values, such "
            "as tuning on them; and attacks on timing."
        )

    def _noise(self) -> str:
        exact = (
            "The noise was drawn exactly, on a public grid: its low-order bits reveal nothing, and its residual error "
            "in delta is 0."
        )
        if not self.delta:
            return exact
        rounding = bound_rounding(self.num_records) if self.rounding is None else self.rounding
        return (
            f"{exact} Gaussian noise is larger by a factor of 1 + {rounding:.1g}, which covers rounding errors of sums."
        )

    def _seed(self) -> str:
        if self.seeded:
            unique = "It depends on the seed, the settings and the records, so no other fit has the same noise."
            return (
                "The noise came from a seed, for research only: anyone who knows or guesses the seed can remove the "
                f"noise.{'' if self.remark else f' {unique}'}"
            )
        whose = "The random bits of the noise" if self.remark else "Its random bits"
        return f"{whose} came from a cryptographic generator keyed by the operating system."
