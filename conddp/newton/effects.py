"""Effects of the columns of an additive model with their standard deviations, from what has been released."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.features.additive_terms import AdditiveTerms, Functional
from conddp.models.effects import Effect, Effects, PairEffect
from conddp.newton.parameter_posterior import ParameterPosterior

__all__ = ["Refit", "estimate_effects"]

Vector = NDArray[np.float64]

SMALLEST = 1e-290  # numbers below are not stored


@dataclass(frozen=True)
class Refit:
    """A linear fit to standardised columns and to the predictions of a model, which becomes a part of the result.

    Parameters
    ----------
    linear, products : arrays of shape (d,) and (P,)
        Coefficients of the model before.
    factor : float
        Coefficient of its predictions.
    root : array of shape (d + 1, k)
        A root of the covariance of the coefficients of columns and predictions.
    """

    linear: Vector
    products: Vector
    factor: float
    root: Vector


@dataclass(frozen=True)
class _Estimate:
    """Values and standard deviations of functions that are linear in the coefficients."""

    posterior: ParameterPosterior
    linear: Vector
    products: Vector
    refit: Refit | None
    width: float

    def estimate(self, functional: Functional) -> tuple[tuple[float, ...], tuple[float, ...]]:
        effect = functional.evaluate(self.linear, self.products)
        variance = self.posterior.compute_variance(functional)
        if self.refit is not None:
            before = functional.evaluate(self.refit.linear, self.refit.products)
            spread = functional.matrix[:, : len(functional.linear)] @ self.refit.root[functional.linear]
            spread += before[:, None] * self.refit.root[-1]
            variance = self.refit.factor**2 * variance + (spread**2).sum(axis=1)
        return _list(self.width * effect), _list(self.width * np.sqrt(variance))


def estimate_effects(
    terms: AdditiveTerms,
    posterior: ParameterPosterior,
    linear: Vector,
    products: Vector,
    *,
    constant: float,
    width: float,
    refit: Refit | None = None,
) -> Effects:
    """Compute what columns and pairs of columns add to the predictions of an additive model.

    Privacy
        Post-processing of released numbers, and public rows: no cost.

    Parameters
    ----------
    terms : AdditiveTerms
        Terms of the model on the training records.
    posterior : ParameterPosterior
        Posterior of their coefficients; before a refit, if there is one.
    linear, products : arrays of shape (d,) and (P,)
        Coefficients of the model.
    constant : float
        Constant of the model, in the units of the label.
    width : float
        Width of the label range, the unit of the coefficients.
    refit : Refit, optional
        Linear fit that follows the rounds.
    """
    made = _Estimate(posterior, linear, products, refit, width)
    grids = [terms.make_grid(group) for group in range(len(terms.groups))]
    deviations, pair_deviations = (width * each for each in terms.measure_deviations(linear, products))
    singles = tuple(
        Effect(
            tuple(columns.tolist()),
            grid.levels is not None,
            _list(grid.values),
            *made.estimate(terms.express(group, grid.rows)),
            float(deviations[group]),
        )
        for group, (columns, grid) in enumerate(zip(terms.groups, grids, strict=True))
    )
    pairs = []
    for pair, deviation in zip(terms.pairs, pair_deviations.tolist(), strict=True):
        first, second = (terms.make_pair_grid(group, grids[group], pair) for group in pair)
        functional = terms.express_pair(pair, first.rows, second.rows)
        pairs.append(
            PairEffect(*pair, _list(first.values), _list(second.values), *made.estimate(functional), deviation)
        )
    return Effects(constant + width * terms.compute_mean(linear, products), singles, tuple(pairs))


def _list(values: Vector) -> tuple[float, ...]:
    return tuple(np.where(np.abs(values) > SMALLEST, values, 0.0).tolist())
