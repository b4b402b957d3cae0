r"""Simulated labels on public features, for choosing settings and algorithms at no cost, since no real label is read.

Labels are the sum of a signal and residuals, clamped to the range [0, 1]. The families differ in how the signal is
distributed over the principal directions, in whether it is linear, in the tails of the residuals, and in the fraction
of the label variance that is signal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.data.parts import Domain, Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records
from conddp.data.units import Units
from conddp.features.grouped_rows import whiten
from conddp.features.public_rows import PublicRows
from conddp.features.random_features import RandomFeatures

__all__ = ["FAMILIES", "Family", "Simulation", "simulate"]


@dataclass(frozen=True)
class Family:
    """A family of simulated labels.

    Parameters
    ----------
    signal_fraction : float
        Fraction of the label variance that the features explain.
    exponent : float
        The variance of the coefficient of a whitened direction is proportional to the variance of the direction raised
        to this power.
    nonlinear : bool
        Whether half of the signal comes from a few hidden units.
    residuals : {"normal", "student", "lognormal"}
        Distribution of the residuals: light tails, heavy tails on both sides (3 degrees of freedom), or a heavy tail on
        one side.
    skewed : bool
        Whether signal and residuals are multiplied instead of added, as is typical of prices and counts. Most labels
        are then small, and a few large ones account for most of the variance.
    spread : float
        Standard deviation of the labels divided by the width of their range.
    """

    signal_fraction: float
    exponent: float = 0.5
    nonlinear: bool = False
    residuals: Literal["normal", "student", "lognormal"] = "normal"
    skewed: bool = False
    spread: float = 0.12


FAMILIES = (
    Family(0.3, 0.0),
    Family(0.3, 1.0, residuals="student"),
    Family(0.3, 0.5, nonlinear=True, residuals="lognormal", spread=0.08),
    Family(0.6, 0.5),
    Family(0.6, 1.0, nonlinear=True, spread=0.2),
    Family(0.6, 0.0, residuals="lognormal"),
    Family(0.85, 0.0),
    Family(0.85, 0.5, residuals="student", spread=0.2),
    Family(0.85, 1.0, residuals="lognormal", spread=0.08),
    Family(0.6, 0.5, skewed=True, spread=0.08),
    Family(0.85, 1.0, skewed=True),
)


@dataclass(frozen=True)
class Simulation:
    """Simulated labels and the signal behind them.

    Parameters
    ----------
    records : Records
        Public features, simulated private features if there are any, and labels between 0 and 1.
    signal : array of shape (n,)
        Label of each record without its residual.
    residual_variance : float
        Variance of the residuals.
    """

    records: Records
    signal: NDArray[np.float64]
    residual_variance: float

    def compute_error(self, predictions: NDArray[np.float64]) -> float:
        """Compute the expected squared error on new labels of the same records, divided by the residual variance."""
        return float(1 + np.mean((predictions - self.signal) ** 2) / self.residual_variance)


def simulate(
    public_features: PublicFeatures,
    family: Family,
    rng: np.random.Generator,
    *,
    constant: bool = True,
    private: Mapping[str, Domain] | None = None,
    units: Units | None = None,
    rows: PublicRows | None = None,
) -> Simulation:
    """Simulate labels between 0 and 1 on public features, and private columns if their ranges or categories are given.

    Privacy
        Reads public columns only: no cost.

    Parameters
    ----------
    public_features : PublicFeatures
        Public feature rows, shape (n, d).
    family : Family
        Family of simulated labels.
    rng : numpy.random.Generator
        Generator for signal and residuals.
    constant : bool
        Whether the model will have an intercept.
    private : mapping, optional
        Declared ranges or categories of private columns, by name. A number is drawn around a random point of its range
        with a random spread; categories have random frequencies and effects. Each column contributes as much to the
        signal as one direction of the public columns.
    units : Units, optional
        Units of the records, which the simulated records keep. Residuals are independent, also within a unit.
    rows : PublicRows, optional
        The features, whitened with or without a constant, if this has been done before.
    """
    rows = whiten(public_features, constant=constant) if rows is None else rows
    n = rows.num_records
    slopes = slice(int(constant), None)
    deviations = rows.variances[slopes] ** (family.exponent / 2)
    signal = _standardize(rows.predict_slopes(deviations * rng.normal(size=len(deviations))))
    made_up = _draw_private(private, n, rng) if private else None
    if made_up is not None:
        columns = np.column_stack(
            [
                _standardize(rng.normal(size=len(domain))[column.astype(np.intp)])
                if isinstance(domain, Categories)
                else _standardize(column)
                for column, domain in zip(made_up.values.T, made_up.domains, strict=True)
            ]
        )
        part = _standardize(columns @ rng.normal(size=columns.shape[1]))
        signal = _standardize(np.sqrt(len(deviations)) * signal + np.sqrt(columns.shape[1]) * part)
    if family.nonlinear:
        seed = int(rng.integers(2**32))
        hidden = RandomFeatures.of(public_features, 8, seed=seed).compute_hidden(public_features)
        signal = _standardize(signal + _standardize(hidden @ rng.normal(size=8)))
    draw = {
        "normal": lambda: rng.normal(size=n),
        "student": lambda: rng.standard_t(3, size=n),
        "lognormal": lambda: rng.lognormal(sigma=1.0, size=n),
    }
    residual = _standardize(draw[family.residuals]())
    fraction = family.signal_fraction
    signal, residual = np.sqrt(fraction) * signal, np.sqrt(1 - fraction) * residual
    if family.skewed:
        signal, residual = np.clip(signal, -3.0, 3.0), np.clip(residual, -3.0, 3.0)  # no single record dominates
        whole, signal = np.exp(1.2 * (signal + residual)), np.exp(1.2 * signal)
        signal *= (whole @ signal) / (signal @ signal)  # makes the residual orthogonal to the signal
        signal, residual = (signal - signal.mean()) / whole.std(), (whole - signal) / whole.std()
        residual -= residual.mean()
    middle = rng.uniform(0.1, 0.3) if family.skewed else rng.uniform(0.3, 0.7)
    signal = np.clip(middle + family.spread * signal, 0.0, 1.0)
    residual *= family.spread
    label = Labels(np.clip(signal + residual, 0.0, 1.0), Bounds(0.0, 1.0))
    return Simulation(Records(public_features, made_up, label, units), signal, float(residual.var()))


def _draw_private(private: Mapping[str, Domain], n: int, rng: np.random.Generator) -> PrivateFeatures:
    columns = []
    for each in private.values():
        if isinstance(each, Categories):
            columns.append(rng.choice(len(each), size=n, p=rng.dirichlet(np.ones(len(each)))).astype(np.float64))
            continue
        middle, spread = rng.uniform(0.25, 0.75), rng.uniform(0.1, 0.3)
        columns.append(each.clamp(each.low + each.width * (middle + spread * rng.normal(size=n))))
    return PrivateFeatures(np.column_stack(columns), tuple(private.values()), tuple(private))


def _standardize(values: NDArray[np.float64]) -> NDArray[np.float64]:
    deviation = values.std()
    return np.asarray((values - values.mean()) / (deviation if deviation > 0 else 1.0))
