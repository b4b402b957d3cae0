r"""Which features a dictionary holds, given how much each column matters.

The relevance :math:`r_c \in [0, 1]` of a column and the average outer product A of the gradients of a released
predictor say where a function varies. Without a predictor all columns count alike. Among products of cosines, those
with the largest prior variance :math:`\prod_c r_c^2 k_c^{-3}` are taken. Projections are drawn at random, from a fixed
seed, isotropic at first and along A afterwards. The more of the variance a kind of interactions explains, the more of
the next features are of this kind. Later dictionaries have hinges in the tails of columns and along the
index, the linear function of the columns that is closest to the predictor: with heavy tails, a few records matter most.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from conddp.features.column_scales import ColumnScales
from conddp.features.dictionary import FACTORS, Component, Dictionary

__all__ = ["Families", "Relevance"]

Vector = NDArray[np.float64]

SMOOTHNESS, ROUGHNESS = 1.5, 1.0  # powers by which the gains of frequencies fall
LEAST_RELEVANT = 0.1  # relevance of a column that a predictor does not depend on
BLEND = 0.02  # of the identity in the metric along which projections are drawn
WIDTHS = {"pairs": 1 / 3, "triples": 1 / 4, "waves of values": 1 / 7, "waves of ranks": 1 / 7, "short waves": 1 / 7}
EMPHASIS = 0.9  # of the width goes to kinds of interactions by the variance that each explains, if noise is small
LINEAR_TERMS = 3  # most features per column of linear components
MOST_COLUMNS = {1: 200, 2: 40, 3: 14}  # columns that products of so many cosines are chosen from
MOST_FREQUENCY = 8  # of interactions: the largest product of frequencies
NUM_SHARP = 4  # columns that get high frequencies too, once it is known which matter
TAILS = (1.0, 2.0, 3.0)  # standard deviations beyond which a column has a hinge
FEWEST_BEYOND = 10  # rows of the sample beyond a hinge
TAIL_FRACTION, INDEX_FRACTION = 0.03, 0.07  # of the signal that hinges of columns and of the index explain
INDEX_QUANTILES = (0.05, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)  # of the index, where it has hinges
SHARP_FRACTION = 0.1  # of the signal that sharp functions of these columns are expected to explain


@dataclass(frozen=True)
class Relevance:
    """How much a released predictor varies along the columns.

    Privacy
        Post-processing of released numbers, and public columns: no cost.

    Parameters
    ----------
    columns : array of shape (d,)
        Relevance of each column; the largest is 1.
    outer : array of shape (d, d), optional
        Average outer product of gradients, of trace 1. None if nothing is known yet.
    index : array of shape (d,), optional
        Weights of standardised values in the linear function that is closest to the predictor.
    explained : mapping
        Estimated variance that each component of a dictionary explains, by its name.
    """

    columns: Vector
    outer: Vector | None = None
    index: Vector | None = None
    explained: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, gradients: Vector, index: Vector | None = None, explained: Mapping[str, float] | None = None
    ) -> "Relevance":
        """Compute the relevance of columns from gradients, shape (n, d)."""
        outer = gradients.T @ gradients / len(gradients)
        along, total = np.sqrt(np.diag(outer)), float(np.trace(outer))
        if not total > 0.0:
            return cls(np.ones(len(outer)))
        columns = LEAST_RELEVANT + (1 - LEAST_RELEVANT) * along / along.max()
        return cls(columns, outer / total, index, explained or {})


@dataclass(frozen=True)
class Families:
    """Families of features that dictionaries are made of.

    Privacy
        Reads public columns and released relevances only: no cost.

    Parameters
    ----------
    width : int
        Approximate number of nonlinear features.
    interactions : bool
        Whether features may depend on several columns. Without them, a predictor is a sum of functions of one column.
    pairs : int
        Without interactions in general: number of pairs of columns that may interact all the same, once it is known
        which matter.
    simplify : bool
        Whether interactions are left out of the result unless the releases speak for them.
    """

    width: int
    interactions: bool = True
    pairs: int = 0
    simplify: bool = False

    def make(
        self, scales: ColumnScales, sample: Vector, relevance: Relevance, *, seed: int, boldness: float = 1.0
    ) -> Dictionary:
        """Make a dictionary for columns of this relevance.

        Parameters
        ----------
        scales : ColumnScales
            Coordinates of the columns.
        sample : array of shape (m, d)
            Public rows from which features are centred and scaled.
        relevance : Relevance
            What is known about the columns.
        seed : int
            Seed of the random numbers.
        boldness : float
            Factor of the fractions of the signal that nonlinear components are expected to explain, and of the part of
            the width that goes by what each kind of interactions explains.
        """
        rng = np.random.default_rng(seed)
        parts = [*self._list_linear(scales, sample), *self._list_curves(scales, relevance)]
        if self.interactions and scales.num_columns > 1:
            numbers = self._share_width(relevance, boldness)
            parts += self._list_interactions(scales, relevance, rng, numbers)
            parts += self._list_projections(relevance, rng, numbers)
        elif self.pairs and relevance.outer is not None and scales.num_columns > 1:
            parts += self._list_pairs(scales, relevance, rng)
        if self.interactions and relevance.outer is not None:
            parts += self._list_hinges(scales, sample, relevance)
        bold = (each if each.axes is not None else replace(each, fraction=boldness * each.fraction) for each in parts)
        return Dictionary.of(scales, list(bold), sample)

    def count_most(self, num_columns: int) -> int:
        """Largest number of features of a dictionary for so many columns."""
        curves = max(3 * min(num_columns, MOST_COLUMNS[1]), self.width // 3) + max(8 * NUM_SHARP, self.width // 4)
        hinges = 2 * len(TAILS) * min(num_columns, MOST_COLUMNS[2]) + len(INDEX_QUANTILES)
        others = hinges + math.ceil(self.width * sum(WIDTHS.values())) + len(WIDTHS) if self.interactions else 0
        return LINEAR_TERMS * num_columns + curves + max(others, self.width // 3 if self.pairs else 0)

    @staticmethod
    def _list_linear(scales: ColumnScales, sample: Vector) -> Iterator[Component]:
        """Linear terms, with priors that favour directions of large variance to different extents."""
        z = scales.standardize(sample)
        z -= z.mean(axis=0)
        squared, rotation = np.linalg.eigh(z.T @ z / len(z))
        keep = squared > 1e-6 * max(squared.max(initial=0.0), 1e-300)
        squared, rotation = squared[keep], rotation[:, keep]
        for power, fraction in ((0.0, 0.25), (0.25, 0.08), (0.5, 0.04)):
            yield Component("linear", fraction, np.ones(len(squared)), axes=rotation * squared**-power)

    def _list_curves(self, scales: ColumnScales, relevance: Relevance) -> Iterator[Component]:
        """Functions of one column: smooth ones, and sharp ones of the columns that matter most."""
        limits = scales.count_values() - 1
        places = np.flatnonzero(limits > 1)  # functions of a column with two values are linear
        places = places[np.argsort(-relevance.columns[places], kind="stable")][: MOST_COLUMNS[1]]
        if not len(places):
            return
        most = int(np.clip(self.width // (3 * len(places)), 3, 16))
        yield _make_curves("curves", 0.2, places, limits, np.ones_like(relevance.columns), most, SMOOTHNESS)
        if relevance.outer is not None:
            top = places[:NUM_SHARP]
            most = int(np.clip(self.width // (4 * len(top)), 8, 40))
            yield _make_curves("sharp curves", SHARP_FRACTION, top, limits, relevance.columns, most, ROUGHNESS)

    def _list_interactions(
        self, scales: ColumnScales, relevance: Relevance, rng: np.random.Generator, numbers: Mapping[str, int]
    ) -> Iterator[Component]:
        for name, factors, fraction in (("pairs", 2, 0.15), ("triples", 3, 0.08)):
            if scales.num_columns >= factors:
                yield _choose_products(scales, relevance.columns, rng, factors, numbers[name], fraction)

    def _share_width(self, relevance: Relevance, boldness: float) -> dict[str, int]:
        """Number of features of each kind of interactions."""
        explained = {name: relevance.explained.get(name, 0.0) for name in WIDTHS}
        total, widths = sum(explained.values()), WIDTHS
        if total > 0.0:
            emphasis = EMPHASIS * boldness
            part = emphasis * sum(WIDTHS.values()) / total
            widths = {name: (1 - emphasis) * usual + part * explained[name] for name, usual in WIDTHS.items()}
        return {name: max(1, int(self.width * each)) for name, each in widths.items()}

    def _list_pairs(self, scales: ColumnScales, relevance: Relevance, rng: np.random.Generator) -> Iterator[Component]:
        """Products of two cosines, for the pairs of columns that matter most."""
        allowed = max(2, math.ceil((1 + math.sqrt(1 + 8 * self.pairs)) / 2))  # columns that form so many pairs
        columns = np.where(_find_top(relevance.columns, allowed), relevance.columns, 0.0)
        yield _choose_products(scales, columns, rng, 2, self.width // 3, 0.1)

    def _list_hinges(self, scales: ColumnScales, sample: Vector, relevance: Relevance) -> Iterator[Component]:
        """Hinges in both tails of the columns that matter most, and along the index."""
        z = scales.standardize(sample)
        places = np.argsort(-relevance.columns, kind="stable")[: MOST_COLUMNS[2]]
        column, sign, start = (np.ravel(each) for each in np.meshgrid(places, (1.0, -1.0), TAILS, indexing="ij"))
        beyond = np.count_nonzero(sign * z[:, column] > start, axis=0)
        column, sign, start = (each[beyond >= FEWEST_BEYOND] for each in (column, sign, start))
        if len(column):
            directions = np.zeros((len(column), z.shape[1]))
            directions[np.arange(len(column)), column] = sign
            yield _make_hinges("tails", TAIL_FRACTION, directions, -start, z, relevance.columns[column])
        along = None if relevance.index is None else z @ relevance.index
        if along is not None and along.std() > 0.0:
            starts = np.unique(np.quantile(along, INDEX_QUANTILES)) / along.std()
            directions = np.tile(relevance.index / along.std(), (len(starts), 1))
            yield _make_hinges("bends of the index", INDEX_FRACTION, directions, -starts, z, np.ones(len(starts)))

    @staticmethod
    def _list_projections(
        relevance: Relevance, rng: np.random.Generator, numbers: Mapping[str, int]
    ) -> Iterator[Component]:
        """Cosines of projections: isotropic, and along the gradients of a predictor."""
        d = len(relevance.columns)
        values, ranks = slice(0, d), slice(d, 2 * d)
        isotropic = np.eye(d) / math.sqrt(d)
        drawn = [("waves of values", isotropic, values, 0.85), ("waves of ranks", isotropic, ranks, 1.4)]
        drawn += [("short waves", isotropic, values, 1.7)]
        if relevance.outer is not None:
            squared, rotation = np.linalg.eigh(relevance.outer)
            root = (rotation * np.sqrt(np.maximum(squared, 0.0) + BLEND / d)) @ rotation.T
            drawn = [("waves of values", isotropic, values, 1.1), ("waves of ranks", root, ranks, 0.8)]
            drawn += [("short waves", root, ranks, 1.6)]
        for name, metric, where, scale in drawn:
            number = numbers[name]
            projections = np.zeros((number, 2 * d))
            projections[:, where] = rng.normal(size=(number, d)) @ metric * scale
            phases = rng.uniform(0.0, 2 * math.pi, size=number)
            yield Component(name, 0.08, np.ones(number), projections=projections, phases=phases)


def _make_hinges(
    name: str, fraction: float, directions: Vector, phases: Vector, z: Vector, relevance: Vector
) -> Component:
    """Hinges of projections of standardised values. Those that few rows reach are not made as rare as they are."""
    stds = np.maximum(z @ directions.T + phases, 0.0).std(axis=0)
    projections = np.pad(directions, ((0, 0), (0, z.shape[1])))
    gains = relevance / np.sqrt(np.maximum(stds, 1e-9))
    return Component(name, fraction, gains, projections=projections, phases=phases, hinged=True)


def _make_curves(
    name: str,
    fraction: float,
    places: NDArray[np.intp],
    limits: NDArray[np.intp],
    relevance: Vector,
    most: int,
    power: float,
) -> Component:
    """Cosines of single columns, up to the highest frequency that the column can show."""
    column, frequency = np.meshgrid(places, np.arange(1, most + 1), indexing="ij")
    shown = frequency <= limits[column]
    column, frequency = column[shown], frequency[shown]
    nothing = np.zeros_like(column)
    return Component(
        name,
        fraction,
        relevance[column] * frequency**-power,
        places=np.column_stack([column, nothing, nothing]),
        frequencies=np.column_stack([frequency, nothing, nothing]),
    )


def _choose_products(
    scales: ColumnScales, relevance: Vector, rng: np.random.Generator, factors: int, number: int, fraction: float
) -> Component:
    """Products of so many cosines that have the largest prior variance. Ties are broken at random."""
    limits = scales.count_values() - 1
    usable = np.flatnonzero((limits > 0) & (relevance > 0))
    usable = usable[np.argsort(-(relevance * rng.uniform(0.9, 1.1, len(relevance)))[usable])][: MOST_COLUMNS[factors]]
    columns = np.array(list(combinations(np.sort(usable), factors)), dtype=np.intp).reshape(-1, factors)
    each = range(1, MOST_FREQUENCY + 1)
    frequencies = np.array([k for k in product(each, repeat=factors) if math.prod(k) <= MOST_FREQUENCY])
    gains = relevance[columns].prod(axis=1)[:, None] * frequencies.prod(axis=1).astype(float) ** -SMOOTHNESS
    gains[(frequencies[None] > limits[columns][:, None]).any(axis=2)] = 0.0
    order = np.argsort(-(gains * rng.uniform(0.95, 1.05, gains.shape)), axis=None)[:number]
    order = order[gains.ravel()[order] > 0]
    chosen, rates = np.unravel_index(order, gains.shape)
    blank = np.zeros((len(order), FACTORS - factors), dtype=np.intp)
    return Component(
        "pairs" if factors == 2 else "triples",
        fraction,
        gains.ravel()[order],
        places=np.hstack([columns[chosen], blank]),
        frequencies=np.hstack([frequencies[rates], blank]),
    )


def _find_top(relevance: Vector, number: int) -> NDArray[np.bool_]:
    """Mark the columns of largest relevance."""
    return np.isin(np.arange(len(relevance)), np.argsort(-relevance, kind="stable")[:number])
