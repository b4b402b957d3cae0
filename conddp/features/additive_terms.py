r"""Functions of single columns and of pairs of columns that a sum of linear terms and products of cosines consists of.

A product :math:`s\,\phi_1(x_a)\,\phi_2(x_b)` of two columns also has a part that depends on one of them alone. With
means over the training records, it is divided into

.. math:: \phi_1 \phi_2 = (\phi_1 - \bar\phi_1)(\phi_2 - \bar\phi_2) + \bar\phi_2 \phi_1 + \bar\phi_1 \phi_2
   - \bar\phi_1 \bar\phi_2

so that the function of a single column is the average prediction over the values of all others (its partial
dependence), if columns are independent. All functions are then centred on the training records.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conddp.data.parts import PublicFeatures
from conddp.data.passes import run_pass
from conddp.features.column_scales import FARTHEST, ColumnScales
from conddp.features.dictionary import Dictionary

__all__ = ["AdditiveTerms", "Functional", "Grid"]

Vector = NDArray[np.float64]
Places = NDArray[np.intp]

ROWS_AT_ONCE = 2048
MOST_VALUES = 129  # values at which a function is evaluated
MOST_LINEAR = 9  # of a function that is linear between the ends of its range
TINY = 1e-300
MOST_IN_PAIRS = 17  # values of each column of a pair


@dataclass(frozen=True)
class Grid:
    """Values of a group of features at which a function is evaluated.

    Parameters
    ----------
    rows : array of shape (m, features)
        Values of the features.
    levels : array of shape (m,), optional
        If the features are indicators: which one is 1 in each row, or -1.
    """

    rows: Vector
    levels: Places | None = None

    @property
    def values(self) -> Vector:
        """Levels, or the rows one after the other."""
        return np.asarray(self.rows.ravel() if self.levels is None else self.levels, dtype=np.float64)

    def take(self, chosen: Places) -> "Grid":
        """Select rows."""
        return Grid(self.rows[chosen], None if self.levels is None else self.levels[chosen])


@dataclass(frozen=True)
class Functional:
    """A function on a grid, as a matrix that it is linear in.

    Parameters
    ----------
    linear, products : integer arrays
        Linear terms and products that the function depends on.
    own : boolean array
        Which of the products are functions of this group alone.
    matrix : array of shape (m, linear terms and products)
        Values of the function for unit weights.
    """

    linear: Places
    products: Places
    own: NDArray[np.bool_]
    matrix: Vector

    def evaluate(self, linear: Vector, products: Vector) -> Vector:
        """Evaluate the function for given weights of all linear terms and products."""
        return np.asarray(self.matrix @ np.concatenate([linear[self.linear], products[self.products]]))


class AdditiveTerms:
    r"""Linear terms :math:`a^\top z` and products of up to two cosines, sorted by the columns that they depend on.

    Privacy
        Reads public rows: no cost.

    Parameters
    ----------
    dictionary : Dictionary
        Features. Projections are not allowed.
    public_features : PublicFeatures
        Public columns of the training records. Features of a group are treated as one column.
    sample : array of shape (m, d)
        Some of the rows, from which grids are taken.
    weights : array of shape (n,), optional
        Weights of the records.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        public_features: PublicFeatures,
        sample: NDArray[np.floating],
        weights: Vector | None = None,
    ) -> None:
        if len(dictionary.projections):
            raise ValueError("projections are not sums of functions of single columns.")
        self.scales, self.sample, self.weights = dictionary.scales, sample, weights
        self.X = public_features.values
        numbers = np.arange(self.scales.num_columns) if public_features.groups is None else public_features.groups
        members: dict[int, list[int]] = {}
        for column, number in enumerate(numbers.tolist()):
            members.setdefault(number, []).append(column)
        varies = (self.scales.factor > 0) | (self.scales.count_values() > 1)
        varying = [np.array(each) for each in members.values() if varies[each].any()]
        self.groups: list[Places] = varying
        self.group_of = np.full(self.scales.num_columns, -1, dtype=np.intp)
        for number, columns in enumerate(varying):
            self.group_of[columns] = number
        self._sort(dictionary.places, dictionary.frequencies)
        self._average()

    def _sort(self, places: Places, frequencies: Places) -> None:
        """List the cosines, and the one or two of each product."""
        active = frequencies > 0
        if (active.sum(axis=1) > 2).any():
            raise ValueError("products of three columns are not functions of pairs.")
        order = np.argsort(~active, axis=1, kind="stable")[:, :2]  # factors that vary come first
        places, frequencies = (np.take_along_axis(each, order, axis=1) for each in (places, frequencies))
        most = int(frequencies.max(initial=0)) + 1
        found, where = np.unique(places * most + frequencies, return_inverse=True)
        self.cosine_column, self.cosine_frequency = found // most, found % most
        self.factors = where.reshape(places.shape)  # of each product
        self.is_double = frequencies[:, 1] > 0
        self.sides = self.group_of[places]  # groups of the factors
        self.is_own = ~self.is_double | (self.sides[:, 0] == self.sides[:, 1])
        ordered = np.sort(self.sides[~self.is_own], axis=1)
        self.pairs = [(int(first), int(second)) for first, second in np.unique(ordered, axis=0)]
        self.products_of: list[list[int]] = [[] for _ in self.groups]
        self.products_of_pair: dict[tuple[int, int], list[int]] = {pair: [] for pair in self.pairs}
        for product, (first, second) in enumerate(self.sides.tolist()):
            self.products_of[first].append(product)
            if not self.is_own[product]:
                self.products_of[second].append(product)
                self.products_of_pair[min(first, second), max(first, second)].append(product)

    def _evaluate(self, X: NDArray[np.floating]) -> tuple[Vector, Vector, Vector]:
        """Standardised values, cosines and products of rows; each is a row of its array."""
        z, u = self.scales.standardize(X).T, self.scales.compute_ranks(X).T
        cosines = np.cos(math.pi * self.cosine_frequency[:, None] * u[self.cosine_column])
        return z, cosines, cosines[self.factors[:, 0]] * cosines[self.factors[:, 1]]

    def _average(self) -> None:
        """Average all terms over the training records."""

        def add(span: slice, block: NDArray[np.floating]) -> tuple[Vector, ...]:
            weights = np.ones(len(block)) if self.weights is None else self.weights[span]
            return tuple(each @ weights for each in self._evaluate(block))

        cells = len(self.X) * max(1, len(self.factors))
        sums = run_pass(add, self.X, block_size=ROWS_AT_ONCE, num_cells=cells)
        total = len(self.X) if self.weights is None else self.weights.sum()
        self.z_means, self.cosine_means, self.product_means = (each / total for each in sums)

    def make_grid(self, group: int) -> Grid:
        """Choose the values of a group: all levels or values if there are few, otherwise quantiles."""
        columns = self.groups[group]
        rows = self.sample[:, columns].astype(np.float64, copy=False)
        if len(columns) > 1:
            return _list_rows(rows)
        values = np.unique(rows)
        if len(values) > MOST_VALUES:
            column = int(columns[0])
            values = np.unique(self.scales.knots[column])
            if not self.products_of[group]:
                scale = max(self.scales.factor[column], TINY)
                ends = self.scales.center[column] + FARTHEST / scale * np.array([-1.0, 1.0])
                ends = ends[(ends > values[0]) & (ends < values[-1])]
                values = np.unique(np.concatenate([_thin(values, MOST_LINEAR), ends]))
        return Grid(values[:, None])

    def make_pair_grid(self, group: int, grid: Grid, pair: tuple[int, int]) -> Grid:
        """Choose values of a group of a pair: levels that interact and one of the others, or quantiles."""
        if grid.levels is None:
            return grid.take(_thin(np.arange(len(grid.rows)), MOST_IN_PAIRS))
        factors = self.factors[self.products_of_pair[pair]].ravel()
        columns = np.unique(self.cosine_column[factors[self.cosine_frequency[factors] > 0]])
        interacting = np.isin(self.groups[group][grid.levels], columns) & (grid.levels >= 0)
        others = np.flatnonzero(~interacting)
        return grid.take(np.concatenate([np.flatnonzero(interacting), others[-1:]]))

    def _evaluate_cosines(self, cosines: Places, group: int, rows: Vector) -> Vector:
        """Evaluate cosines of the columns of a group on its rows, shape (m, cosines)."""
        columns = self.groups[group]
        scale = self.scales
        scales = ColumnScales(scale.center[columns], scale.factor[columns], scale.knots[columns], scale.ranks[columns])
        u = scales.compute_ranks(rows)
        place = np.searchsorted(columns, self.cosine_column[cosines])
        return np.asarray(np.cos(math.pi * u[:, place] * self.cosine_frequency[cosines]))

    def express(self, group: int, rows: Vector) -> Functional:
        """Express the function of a group, on rows of its features, by the weights of the terms."""
        columns = self.groups[group]
        z = np.clip((rows - self.scales.center[columns]) * self.scales.factor[columns], -FARTHEST, FARTHEST)
        products = np.array(self.products_of[group], dtype=np.intp)
        matrix = np.empty((len(rows), len(columns) + len(products)))
        matrix[:, : len(columns)] = z - self.z_means[columns]
        own = self.is_own[products]
        within = matrix[:, len(columns) :]
        both = self.factors[products[own]]
        values = self._evaluate_cosines(both[:, 0], group, rows)
        double = self.is_double[products[own]]
        values[:, double] *= self._evaluate_cosines(both[double, 1], group, rows)
        within[:, own] = values - self.product_means[products[own]]
        shared = products[~own]
        side = (self.sides[shared, 1] == group).astype(np.intp)
        mine, other = self.factors[shared, side], self.factors[shared, 1 - side]
        values = self._evaluate_cosines(mine, group, rows) - self.cosine_means[mine]
        within[:, ~own] = values * self.cosine_means[other]
        return Functional(columns, products, own, matrix)

    def express_pair(self, pair: tuple[int, int], first: Vector, second: Vector) -> Functional:
        """Express the function of a pair, on all pairs of two sets of rows, by the weights of its products."""
        products = np.array(self.products_of_pair[pair], dtype=np.intp)
        swapped = (self.sides[products, 0] != pair[0]).astype(np.intp)
        sides = []
        for place, rows in enumerate((first, second)):
            cosines = self.factors[products, np.abs(swapped - place)]
            sides.append(self._evaluate_cosines(cosines, pair[place], rows) - self.cosine_means[cosines])
        matrix = (sides[0][:, None] * sides[1][None]).reshape(-1, len(products)) - self._center(products)
        return Functional(np.empty(0, dtype=np.intp), products, np.ones(len(products), dtype=bool), matrix)

    def _center(self, products: Places) -> Vector:
        """Covariances of the factors of products over the training records."""
        means = self.cosine_means[self.factors[products]]
        return np.asarray(self.product_means[products] - means[:, 0] * means[:, 1])

    def measure_deviations(self, linear: Vector, products: Vector) -> tuple[Vector, Vector]:
        """Compute standard deviations over the training records of the functions of all groups, and of all pairs."""
        d, number = len(linear), len(self.cosine_column)
        size = len(self.groups) + len(self.pairs)
        pair_number = {pair: len(self.groups) + place for place, pair in enumerate(self.pairs)}
        entries: list[tuple[int, int, float]] = [
            (group, column, float(linear[column])) for group, columns in enumerate(self.groups) for column in columns
        ]
        for product, weight in enumerate(products.tolist()):
            place = d + number + product
            (first, second), sides = self.factors[product].tolist(), self.sides[product].tolist()
            if self.is_own[product]:
                entries.append((sides[0], place, weight))
                continue
            row = pair_number[min(sides), max(sides)]
            entries.append((row, place, weight))
            for side, mine, other in ((sides[0], first, second), (sides[1], second, first)):
                along = weight * float(self.cosine_means[other])
                entries += [(side, d + mine, along), (row, d + mine, -along)]
        rows, places = np.array([each[:2] for each in entries], dtype=np.intp).reshape(-1, 2).T
        matrix: Any = csr_array(
            (np.array([each[2] for each in entries]), (rows, places)), shape=(size, d + number + len(products))
        )
        means = matrix @ np.concatenate([self.z_means, self.cosine_means, self.product_means])

        def add(span: slice, block: NDArray[np.floating]) -> Vector:
            functions = matrix @ np.concatenate(self._evaluate(block)) - means[:, None]
            return np.asarray(functions**2 @ (np.ones(len(block)) if self.weights is None else self.weights[span]))

        squares = run_pass(add, self.X, block_size=ROWS_AT_ONCE, num_cells=len(self.X) * max(1, len(products)))
        total = len(self.X) if self.weights is None else self.weights.sum()
        stds = np.sqrt(squares / total)
        return stds[: len(self.groups)], stds[len(self.groups) :]

    def compute_mean(self, linear: Vector, products: Vector) -> float:
        """Compute the mean of the whole sum over the training records."""
        return float(linear @ self.z_means + products @ self.product_means)


def _list_rows(rows: Vector) -> Grid:
    """Distinct rows of several features: indicators one after the other, or a selection of all rows."""
    sums = rows.sum(axis=1)
    if ((rows == 0) | (rows == 1)).all() and (sums <= 1).all():
        levels = np.flatnonzero(rows.any(axis=0))
        found = np.eye(rows.shape[1])[levels]
        if (sums == 0).any():
            levels, found = np.append(levels, -1), np.vstack([found, np.zeros(rows.shape[1])])
        return Grid(found, levels)
    found = np.unique(rows, axis=0)
    is_gap = ~found.any(axis=1)  # of a date: its periodic features are zero
    return Grid(np.vstack([_thin(found[~is_gap], MOST_VALUES), found[is_gap]]))


def _thin(values: NDArray[Any], at_most: int) -> NDArray[Any]:
    """Return up to so many of the values, evenly spaced, with the first and the last."""
    if len(values) <= at_most:
        return values
    return values[np.round(np.linspace(0, len(values) - 1, at_most)).astype(np.intp)]
