"""Public settings of a run in rounds: how the budget is divided, and what fits into memory."""

from dataclasses import dataclass
from itertools import accumulate, pairwise

from conddp.data.parts import PublicFeatures
from conddp.features.feature_families import Families
from conddp.features.row_weights import RowWeights
from conddp.newton.measurements import MOST_KEPT
from conddp.newton.schedule import NewtonPlan
from conddp.privacy.neighbouring import Neighbouring

__all__ = [
    "CELLS_IN_SINGLE",
    "FEW_LENGTHS",
    "LENGTHS",
    "MOST_SAMPLED",
    "DividedBudget",
    "RoundsSetting",
    "count_directions",
    "estimate_memory",
]

LENGTHS, FEW_LENGTHS = (1, 1, 1, 1, 2), (1, 1, 1)  # of rounds of many or few steps, relative to each other
FEW_STEPS = 20
LAST_FRACTION = 0.1  # of the budget of the steps, for the last release
MOST_DIRECTIONS = 500  # of a round
MOST_CELLS = 3e8  # of the directions of a round, which are kept in memory; earlier rounds may have twice as many
CELLS_IN_SINGLE = 2**22  # directions with more numbers are stored in float32
MOST_SAMPLED = 20_000  # rows that features are scaled on
REFINED, MOST_REFINED = 4, 6000  # times the width of a round, and largest width, of the last features
MOST_WEIGHTS = 1_000_000  # in their projections; a width as large as that of a round is always allowed
HALF_BOLD = 200.0  # mu times the number of records at which nonlinear features get a quarter of their usual variance


@dataclass(frozen=True)
class RoundsSetting:
    """Everything public that a run depends on.

    Parameters
    ----------
    public : PublicFeatures
        Public columns.
    families : Families
        Features to choose from.
    mu : float
        Sensitivity divided by standard deviation, for all releases together.
    plan : NewtonPlan
        Constants of the steps.
    neighbouring : Neighbouring
        Neighbouring relation for the sensitivities.
    weights : RowWeights, optional
        Units of the records and their weights.
    lengths : tuple of int, optional
        Numbers of steps of the rounds, relative to each other.
    most_directions : int
        Largest number of directions that a round measures.
    calibrated : bool
        Whether the last release may calibrate the predictor.
    """

    public: PublicFeatures
    families: Families
    mu: float
    plan: NewtonPlan
    neighbouring: Neighbouring = Neighbouring.REPLACE
    weights: RowWeights | None = None
    lengths: tuple[int, ...] | None = None
    most_directions: int = MOST_DIRECTIONS
    calibrated: bool = True

    @property
    def boldness(self) -> float:
        """Factor of the prior variance of nonlinear features: curves that the noise would hide are not looked for."""
        seen = self.mu * self.num_records
        return (seen / (seen + HALF_BOLD)) ** 2

    @property
    def refines(self) -> bool:
        """Whether the last posterior is of more features than were measured along; curves need no more."""
        return self.families.interactions

    @property
    def refined_width(self) -> int:
        """Approximate number of nonlinear features of the last posterior."""
        width, d = self.families.width, max(1, len(self.public.names))
        return max(width, min(REFINED * width, MOST_REFINED, MOST_WEIGHTS // d))

    @property
    def num_records(self) -> int:
        """Number of records, each protected on its own, whose mean would need as much noise."""
        return len(self.public) if self.weights is None else max(1, int(self.weights.noise_records))

    @property
    def divided(self) -> "DividedBudget":
        """Fraction of the squared privacy parameter for every release."""
        mean, spread, *steps = self.plan.divide_budget(self.num_records)
        last = LAST_FRACTION * sum(steps) if self.calibrated else 0.0
        steps = [each * (1 - LAST_FRACTION) for each in steps] if self.calibrated else steps
        lengths = self.lengths or (FEW_LENGTHS if len(steps) < FEW_STEPS else LENGTHS)
        ends = [round(len(steps) * each / sum(lengths)) for each in accumulate(lengths)]
        rounds = [steps[start:end] for start, end in pairwise([0, *ends]) if start < end]
        return DividedBudget((mean, spread), rounds, last)


@dataclass(frozen=True)
class DividedBudget:
    """Fractions of the squared privacy parameter, which add up to one.

    Parameters
    ----------
    opening : tuple of two float
        For the mean and the spread of the labels.
    rounds : list of lists of float
        For the steps of every round.
    last : float
        For the calibration, or for one more step of the last round; 0 if there is no such release.
    """

    opening: tuple[float, float]
    rounds: list[list[float]]
    last: float

    @property
    def num_releases(self) -> int:
        """Number of releases."""
        return 2 + sum(map(len, self.rounds)) + (self.last > 0)


def count_directions(num_records: int, num_rounds: int) -> tuple[int, int]:
    """Largest numbers of directions that a round measures, and that are kept for the next: both must fit into memory.

    Examples
    --------
    >>> count_directions(20_000, 6), count_directions(1_000_000, 3), count_directions(100, 3)
    ((500, 800), (300, 600), (25, 50))
    """
    at_most = min(MOST_DIRECTIONS, max(1, num_records // 4), max(1, int(MOST_CELLS / num_records)))
    kept = min(MOST_KEPT, int(2 * MOST_CELLS / num_records), at_most * (num_rounds - 1))
    return at_most, max(kept, min(1, num_rounds - 1))


def estimate_memory(num_records: int, num_features: int, num_rounds: int, *, weighted: bool = False) -> float:
    """Bytes that a run needs beside the table, from above: directions of all records, and products of features."""
    at_most, kept = count_directions(num_records, num_rounds)
    single = not weighted and num_records * (at_most + 2) >= CELLS_IN_SINGLE
    by_record = (4 if single else 8) * (at_most + 2) + 4 * kept + 64
    by_feature = 8 * 6 * num_features + 4 * min(num_records, MOST_SAMPLED) + 8 * (MOST_KEPT + MOST_DIRECTIONS)
    return float(num_records * by_record + num_features * by_feature + 2e8)
