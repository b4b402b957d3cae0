r"""A dictionary of nonlinear features of public columns, in components that have a prior variance each.

With standardised values z and ranks u of the columns (:mod:`conddp.features.column_scales`), the features are

* linear terms :math:`a^\top z`,
* products of up to three cosines, :math:`\prod_c \cos(\pi k_c u_c)`: with one factor, smooth functions of one column;
  with two or three, interactions,
* cosines of projections, :math:`\cos(p^\top (z, v) + b)`, where :math:`v = \sqrt{12}\,(u - 1/2)`,
* hinges of projections, :math:`\max(p^\top (z, v) + b, 0)`, for tails, where cosines of ranks stand still.

A function of the columns is a weighted sum of features. A priori, the weights of component c are normal with variance
:math:`\tau_c`, so that :math:`\tau_c` is the variance which the component contributes to predictions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.passes import list_blocks
from conddp.features.column_scales import ColumnScales

__all__ = ["FACTORS", "MOST_FEATURES", "PRECISION", "ROWS_IN_CACHE", "Component", "Dictionary"]

Vector = NDArray[np.float64]

FACTORS = 3  # largest number of cosines in a product
MOST_FEATURES = 12_000  # whose Gram matrix is kept in memory: 1.2 GB
RANK_SCALE = math.sqrt(12.0)  # ranks times this have unit variance
PRECISION = np.float32  # of features: they are public, and rounding them changes nothing but themselves
ROWS_IN_CACHE = 512  # whose features are computed at once
FEATURES_IN_CACHE = 16  # of a sample of rows, whose moments are computed at once


@dataclass(frozen=True)
class Component:
    """Features of one kind, with a common prior variance. Arrays of other kinds are empty.

    Parameters
    ----------
    name : str
        What the features are, for explanations.
    fraction : float
        Expected fraction of the variance of the signal, relative to other components.
    gains : array of shape (m,)
        Relative standard deviations of the weights of the features.
    axes : array of shape (d, m)
        Linear terms.
    places, frequencies : integer arrays of shape (m, 3)
        Columns and frequencies of the cosines of products. A frequency of 0 makes a factor of one.
    projections, phases : arrays of shape (m, 2 d) and (m,)
        Projections of standardised values and scaled ranks, and phases.
    hinged : bool
        Whether the features are hinges of the projections, not cosines.
    """

    name: str
    fraction: float
    gains: Vector
    axes: Vector | None = None
    places: NDArray[np.intp] | None = None
    frequencies: NDArray[np.intp] | None = None
    projections: Vector | None = None
    phases: Vector | None = None
    hinged: bool = False


@dataclass(frozen=True)
class Dictionary:
    """Features in the order linear terms, products, cosines of projections, hinges; centred and multiplied by gains.

    Privacy
        Computed from public columns and numbers that have been released: no cost.

    Parameters
    ----------
    scales : ColumnScales
        Coordinates of the columns.
    axes : array of shape (d, L)
        Linear terms.
    places, frequencies : integer arrays of shape (P, 3)
        Products of cosines.
    projections, phases : arrays of shape (F, 2 d) and (F,)
        Projections.
    num_hinges : int
        Number of projections, counted from the last, of which the feature is a hinge; it is a cosine of the others.
    means, gains : arrays of shape (M,)
        What is subtracted from a feature, and what it is then multiplied by.
    component : integer array of shape (M,)
        Component of each feature.
    names : tuple of str
        Names of the components.
    fractions : array of shape (C,)
        Expected fractions of the variance of the signal that the components explain; they add up to one.
    """

    scales: ColumnScales
    axes: Vector
    places: NDArray[np.intp]
    frequencies: NDArray[np.intp]
    projections: Vector
    phases: Vector
    num_hinges: int
    means: Vector
    gains: Vector
    component: NDArray[np.intp]
    names: tuple[str, ...]
    fractions: Vector

    @classmethod
    def of(cls, scales: ColumnScales, components: Sequence[Component], sample: Vector) -> "Dictionary":
        """Put components together. The features of each vary by one in total over a sample of the public rows."""
        d = scales.num_columns
        kinds: list[list[int]] = [[], [], []]
        for number, part in sorted(enumerate(components), key=lambda pair: pair[1].hinged):
            kinds[0 if part.axes is not None else 1 if part.places is not None else 2].append(number)

        def join(kind: int, name: str, empty: NDArray[Any], axis: int = 0) -> NDArray[Any]:
            parts = [getattr(components[number], name) for number in kinds[kind]]
            return np.concatenate([empty, *parts], axis=axis)

        order = [number for kind in kinds for number in kind]
        gains = [components[number].gains for number in order]
        raw = cls(
            scales,
            join(0, "axes", np.empty((d, 0)), axis=1),
            join(1, "places", np.empty((0, FACTORS), dtype=np.intp)),
            join(1, "frequencies", np.empty((0, FACTORS), dtype=np.intp)),
            join(2, "projections", np.empty((0, 2 * d))),
            join(2, "phases", np.empty(0)),
            sum(len(each.gains) for each in components if each.hinged),
            np.zeros(sum(map(len, gains))),
            np.concatenate([np.empty(0), *gains]),
            np.repeat(np.array(order, dtype=np.intp), [len(each) for each in gains]),
            tuple(each.name for each in components),
            np.array([each.fraction for each in components]),
        )
        return raw._scale(sample)

    def _scale(self, sample: Vector) -> "Dictionary":
        """Centre the features and scale the components, and drop features that are constant on the sample."""
        features = self.evaluate(sample)
        means, variances = np.empty(len(features)), np.empty(len(features))
        for some in list_blocks(len(features), block_size=FEATURES_IN_CACHE):
            exact = features[some].astype(np.float64)
            means[some], variances[some] = exact.mean(axis=1), exact.var(axis=1)
        kept = variances > 1e-10 * np.maximum(self.gains**2, 1e-300)
        totals = np.bincount(self.component[kept], variances[kept], minlength=len(self.names))
        scale = 1.0 / np.sqrt(np.where(totals > 0, totals, 1.0))[self.component]
        safe = np.where(self.gains > 0, self.gains, 1.0)
        return replace(self, means=means / safe, gains=self.gains * scale).take(kept)

    def take(self, kept: NDArray[np.bool_]) -> "Dictionary":
        """Return a dictionary with some of the features. Components that lose all of theirs explain nothing."""
        linear, products, projected = np.split(kept, np.cumsum([self.axes.shape[1], len(self.places)]))
        component = self.component[kept]
        fractions = np.where(np.bincount(component, minlength=len(self.names)) > 0, self.fractions, 0.0)
        return replace(
            self,
            axes=self.axes[:, linear],
            places=self.places[products],
            frequencies=self.frequencies[products],
            projections=self.projections[projected],
            phases=self.phases[projected],
            num_hinges=int(np.count_nonzero(projected[len(projected) - self.num_hinges :])),
            means=self.means[kept],
            gains=self.gains[kept],
            component=component,
            fractions=fractions / max(fractions.sum(), 1e-300),
        )

    @property
    def has_curves(self) -> bool:
        """Whether sums of the features are sums of functions of single columns and of pairs of columns."""
        return not len(self.phases) and int(np.count_nonzero(self.frequencies > 0, axis=1).max(initial=0)) <= 2

    def find_additive(self) -> NDArray[np.bool_]:
        """Mark linear terms and cosines of one column: the features whose sums are sums of functions of one column."""
        single = np.count_nonzero(self.frequencies > 0, axis=1) == 1
        linear, projected = np.ones(self.axes.shape[1], dtype=bool), np.zeros(len(self.phases), dtype=bool)
        return np.concatenate([linear, single, projected])

    def add_linear(self, axis: Vector) -> "Dictionary":
        """Return a dictionary whose first feature is one more linear term."""
        return replace(
            self,
            axes=np.column_stack([axis, self.axes]),
            means=np.concatenate([[0.0], self.means]),
            gains=np.concatenate([[1.0], self.gains]),
            component=np.concatenate([[0], self.component]),
        )

    @property
    def num_features(self) -> int:
        """Number of features M."""
        return len(self.gains)

    def center(self, means: Vector) -> "Dictionary":
        """Return a dictionary whose features have these means, shape (M,), less."""
        return replace(self, means=self.means + means / np.where(self.gains > 0, self.gains, 1.0))

    def evaluate(self, X: NDArray[np.floating], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Evaluate all features on public rows; features are rows of the result, shape (M, n)."""
        features = np.empty((self.num_features, len(X)), dtype=PRECISION) if out is None else out
        for span in list_blocks(len(X), block_size=ROWS_IN_CACHE):
            self._write(X[span], features[:, span])
        return features

    def _write(self, X: NDArray[np.floating], features: NDArray[np.float32]) -> None:
        """Write the features of a few rows, which stay in the processor cache."""
        z, u = self.scales.standardize(X).T.astype(PRECISION), self.scales.compute_ranks(X).T.astype(PRECISION)
        axes, projections, phases, means, gains = self._short
        L, P = self.axes.shape[1], len(self.places)
        np.matmul(axes, z, out=features[:L])
        table, where = self._tabulate(u, np.cos)
        products = features[L : L + P]
        np.take(table, where[:, 0], axis=0, out=products, mode="clip")
        for factor in range(1, FACTORS):
            first = self._first[factor]
            products[first:] *= table[where[first:, factor]]
        waves = features[L + P :]
        np.matmul(projections, self._stack(z, u), out=waves)
        waves += phases
        cosines, hinges = np.split(waves, [len(waves) - self.num_hinges])  # views
        np.cos(cosines, out=cosines)
        np.maximum(hinges, 0.0, out=hinges)
        features -= means
        features *= gains

    @cached_property
    def _short(self) -> tuple[NDArray[np.float32], ...]:
        """Axes, projections, phases, means and gains as they are used."""
        columns = (each[:, None] for each in (self.phases, self.means, self.gains))
        return tuple(each.astype(PRECISION) for each in (self.axes.T, self.projections, *columns))

    @cached_property
    def _first(self) -> list[int]:
        """For every factor, the first product that has it."""
        used = self.frequencies > 0
        return [int(np.argmax(each)) if each.any() else len(each) for each in used.T]

    def predict(self, X: NDArray[np.floating], weights: Vector) -> Vector:
        """Weighted sum of the features of public rows, shape (n,)."""
        return np.asarray(weights @ self.evaluate(X), dtype=np.float64)

    def compute_gradients(self, X: Vector, weights: Vector) -> Vector:
        """Gradients of a weighted sum of features with respect to scaled ranks, shape (n, d).

        The standardised value of a column changes with its rank by the slope of their regression.
        """
        z, u = self.scales.standardize(X).T, self.scales.compute_ranks(X).T
        moved = u - u.mean(axis=1, keepdims=True)
        slopes = (z * moved).sum(axis=1) / np.maximum((moved**2).sum(axis=1), 1e-12) / RANK_SCALE
        scaled, L, P = weights * self.gains, self.axes.shape[1], len(self.places)
        gradients = np.tile((self.axes @ scaled[:L]) * slopes, (len(X), 1))
        cosines, where = self._tabulate(u, np.cos)
        sines, _ = self._tabulate(u, np.sin)
        for factor in range(FACTORS):
            some = slice(self._first[factor], None)  # the others do not have this factor
            others = [cosines[where[some, other]] for other in range(FACTORS) if other != factor]
            along = -math.pi / RANK_SCALE * (scaled[L : L + P] * self.frequencies[:, factor])[some, None]
            along = along * sines[where[some, factor]] * others[0] * others[1]
            places = self.places[some, factor]
            to_columns = np.zeros((len(self.scales.center), len(places)))
            to_columns[places, np.arange(len(places))] = 1.0
            gradients += (to_columns @ along).T
        inner = self.projections @ self._stack(z, u) + self.phases[:, None]
        first, last = np.split(inner, [len(inner) - self.num_hinges])
        waves = np.concatenate([-np.sin(first), last > 0.0]) * scaled[L + P :, None]
        d = self.scales.num_columns
        gradients += waves.T @ (self.projections[:, :d] * slopes + self.projections[:, d:])
        return gradients

    def _tabulate(self, u: NDArray[np.floating], function: np.ufunc) -> tuple[NDArray[np.floating], NDArray[np.intp]]:
        """Values of a function of pi k u for all pairs of a column and a frequency, and the places of products."""
        columns, frequencies, where = self._pairs
        angles = u[columns]
        angles *= (math.pi * frequencies)[:, None].astype(u.dtype)
        return function(angles, out=angles), where

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Columns and frequencies of different cosines, and the cosines of every product."""
        most = int(self.frequencies.max(initial=0)) + 1
        pairs, where = np.unique(self.places * most + self.frequencies, return_inverse=True)
        return pairs // most, pairs % most, where.reshape(self.places.shape)

    @staticmethod
    def _stack(z: NDArray[np.floating], u: NDArray[np.floating]) -> NDArray[np.floating]:
        """Coordinates of projections, shape (2 d, n)."""
        return np.concatenate([z, (u - u.dtype.type(0.5)) * u.dtype.type(RANK_SCALE)])
