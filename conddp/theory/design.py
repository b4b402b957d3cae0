r"""Statistics of the public features that predict the accuracy of a private model before any label is read.

With whitened rows :math:`u_i`, the leverage of record i is :math:`h_i = \|u_i\|^2 / n`. Leverages add up to the number
of directions k. A record with leverage near one determines some direction almost alone, and the noise must cover it.

Consider least squares from one noisy sum :math:`X^\top y + \sigma_1 R\, \kappa\, z` with
:math:`\kappa = \max_i \|x_i\|`. Here R is the width of the label range and :math:`\sigma_1` is the standard deviation
that the budget requires at unit sensitivity. The noise adds a mean squared prediction error of
:math:`\sigma_1^2 R^2 \cdot \kappa^2\, \mathrm{tr}\big((X^\top X)^{-1}\big) / n`. The factor after the dot depends only
on public columns and their scaling. For conditioned columns it is :math:`k \max_i h_i / n`.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conddp.data.parts import PublicFeatures
from conddp.features.grouped_rows import whiten
from conddp.features.spectrum import Spectrum
from conddp.features.standardization import ROWS_AT_ONCE, Standardization, is_large
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.stored import decode, require
from conddp.theory import Improvement, compute_improvement

__all__ = ["Design"]

FAR = 20.0  # a column is heavy-tailed if a value is more than this many standard deviations from the mean
ILL_CONDITIONED = 1e3


@dataclass(frozen=True)
class Design:
    """Statistics of a matrix of public features.

    Privacy
        Reads public columns only: no cost.

    Parameters
    ----------
    columns : tuple of str
        Names of the public columns.
    num_records : int
        Number of records n.
    rank : int
        Number of directions that are not collinear, including the constant.
    singular_values : tuple of float
        Singular values of the raw columns, with a constant column.
    scaled_singular_values : tuple of float
        Singular values of the centred columns of unit variance, divided by the square root of n; without the constant.
    largest_leverage, high_leverage : float
        Largest leverage of all records, and the leverage that 1 % of the records exceed.
    deviations : tuple of float
        Standard deviation of each column.
    heavy_tailed : tuple of str
        Columns with a value more than 20 standard deviations from their mean.
    plain_cost, scaled_cost, conditioned_cost : float
        Factor of the noise of one release (see the module) for raw columns, columns scaled to unit root mean square,
        and conditioned columns.
    improvement : Improvement
        Factor by which conditioning reduces the bound for noisy gradient descent, for the best and the worst labels.
    """

    columns: tuple[str, ...]
    num_records: int
    rank: int
    singular_values: tuple[float, ...]
    scaled_singular_values: tuple[float, ...]
    largest_leverage: float
    high_leverage: float
    deviations: tuple[float, ...]
    heavy_tailed: tuple[str, ...]
    plain_cost: float
    scaled_cost: float
    conditioned_cost: float
    improvement: Improvement

    @classmethod
    def of(cls, public_features: PublicFeatures) -> "Design":
        """Compute the statistics of public features.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(1000, 3))
        >>> design = Design.of(PublicFeatures(np.column_stack([X, X[:, 0] + X[:, 1]])))
        >>> design.num_parameters, design.rank
        (5, 4)
        """
        rows, n = whiten(public_features), len(public_features)
        leverage = rows.compute_squared_norms() / n
        center, deviation, farthest = _describe_columns(public_features)
        far = farthest > FAR * deviation
        spread = rows.variances[1:]  # relative to their mean; columns of unit variance add up to their number
        varying = int(np.count_nonzero(deviation > 1e-12 * np.abs(center)))
        scaled = np.sqrt(spread * varying / max(len(spread), 1))
        spectrum = Spectrum.of(public_features)
        scales = spectrum.column_scales
        unit = _scale_columns(public_features, scales[:-1])
        return cls(
            public_features.names,
            n,
            rows.num_directions,
            tuple(spectrum.singular_values.tolist()),
            tuple(scaled.tolist()),
            float(leverage.max()),
            float(np.quantile(leverage, 0.99)),
            tuple(deviation.tolist()),
            tuple(
                name
                for name, heavy, varies in zip(public_features.names, far, deviation > 0, strict=True)
                if heavy and varies
            ),
            _compute_cost(public_features, spectrum),
            _compute_cost(unit, Spectrum.of(unit)),
            float(leverage.max()) * rows.num_directions / n,
            compute_improvement(public_features, constant=True),
        )

    @property
    def num_parameters(self) -> int:
        """Number of columns, including the constant."""
        return len(self.columns) + 1

    @property
    def condition_number(self) -> float:
        """Ratio of the largest to the smallest singular value of the raw columns."""
        return self.singular_values[0] / self.singular_values[-1]

    @property
    def scaled_condition_number(self) -> float:
        """Condition number after centring and scaling each column."""
        values = self.scaled_singular_values
        return values[0] / values[-1] if values else 1.0

    @property
    def effective_rank(self) -> float:
        r"""Effective number of directions of the scaled columns: :math:`(\sum s^2)^2 / \sum s^4`."""
        squares = np.square(self.scaled_singular_values)
        return float(squares.sum() ** 2 / np.square(squares).sum()) if len(squares) else 0.0

    @property
    def mean_leverage(self) -> float:
        """Mean leverage: number of directions per record."""
        return self.rank / self.num_records

    def list_remarks(self) -> Iterator[str]:
        """Yield remarks on notable properties, with advice. Public columns may be changed freely."""
        idle = self.num_parameters - self.rank
        if idle:
            yield (
                f"{idle} of {self.num_parameters} columns (with the constant) repeat what the others say, or never "
                "change; they get no parameter of their own and do no harm."
            )
        if self.num_records < 50 * self.rank:
            yield (
                f"There are {self.num_records / self.rank:.0f} records per direction, which is few: noise will "
                "dominate at small epsilon. Fewer public columns may do better."
            )
        if self.heavy_tailed:
            named = ", ".join(f"'{name}'" for name in self.heavy_tailed[:6])
            more = f" and {len(self.heavy_tailed) - 6} more" if len(self.heavy_tailed) > 6 else ""
            yield (
                f"Columns {named}{more} have values more than {FAR:g} standard deviations from their mean. Take "
                "logarithms of them, or clip them: they are public, so that costs nothing."
            )
        if self.largest_leverage > max(0.2, 20 * self.mean_leverage):
            yield (
                f"One record has leverage {self.largest_leverage:.2f} where {self.mean_leverage:.2g} is the mean: some "
                "direction is known from it almost alone, and noise must cover it there."
            )
        if self.scaled_condition_number > ILL_CONDITIONED:
            yield (
                f"Columns are nearly dependent (condition number {self.scaled_condition_number:.2g} after scaling): "
                "predictions can be good, but single coefficients will not mean much."
            )

    def expect_noise(self, cost: float, label_width: float, budget: PrivacyBudget, neighbouring: Neighbouring) -> float:
        """Compute the root mean square prediction error from the noise of one release, in the units of the label.

        Parameters
        ----------
        cost : float
            One of the three costs.
        label_width : float
            Width of the declared range of the label.
        budget, neighbouring
            Budget and neighbouring relation of the release. Under ZERO_OUT a centred label changes half as much.
        """
        move = label_width * neighbouring.sensitivity(0.5)
        return move * math.sqrt(cost) / calibrate_gaussian_mu(budget.epsilon, budget.delta)

    @classmethod
    def from_json(cls, stored: Any) -> "Design":
        """Read a design from its stored form.

        Raises
        ------
        SchemaError
            If it is not what :meth:`to_json` gives, or does not describe columns.
        """
        design: Design = decode(cls, stored, "design")
        design.check()
        return design

    def check(self) -> None:
        """Raise SchemaError unless the statistics are those of columns."""
        values = (*self.singular_values, *self.scaled_singular_values)
        costs = (self.plain_cost, self.scaled_cost, self.conditioned_cost)
        improvement = (self.improvement.exact_best, self.improvement.exact_worst)
        require(
            self.num_records >= 1
            and self.rank >= 1
            and len(self.singular_values) >= 1
            and len(self.deviations) == len(self.columns)
            and min(*values, *costs, *improvement) > 0,
            "'design' does not describe columns: a rank, singular value, cost or factor is not above 0",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the design in its stored form."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _describe_columns(
    public_features: PublicFeatures,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean, standard deviation and largest distance from the mean of every column."""
    if public_features.sparse is None or not is_large(public_features):
        X = public_features.values
        center, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        farthest = np.maximum(X.max(axis=0) - center, center - X.min(axis=0)) if X.shape[1] else np.empty(0)
        return center, deviation, farthest
    moments = Standardization.of(public_features, constant=True, function="Design.of")
    high, low = (end(axis=0).toarray() for end in (public_features.sparse.max, public_features.sparse.min))
    return moments.center, np.sqrt(moments.variance), np.maximum(high - moments.center, moments.center - low)


def _scale_columns(public_features: PublicFeatures, scales: NDArray[np.float64]) -> PublicFeatures:
    """Divide every column by its scale; sparse features stay sparse."""
    X = public_features.sparse
    if X is None:
        return PublicFeatures(public_features.values / scales, public_features.names)
    scaled = csr_array((X.data / scales[X.indices], X.indices, X.indptr), shape=X.shape)
    return PublicFeatures(scaled, public_features.names)


def _compute_cost(public_features: PublicFeatures, spectrum: Spectrum) -> float:
    X = public_features.sparse
    if X is None:
        longest = max(
            float((block.astype(np.float64) ** 2).sum(axis=1).max())
            for block in np.array_split(public_features.values, -(-len(public_features) // ROWS_AT_ONCE))
        )
    else:
        longest = float(X.power(2).sum(axis=1).max())
    return (longest + 1.0) * float((spectrum.singular_values**-2.0).sum()) / spectrum.num_records
