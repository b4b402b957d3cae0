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

from conddp.data.parts import PublicFeatures
from conddp.features.conditioned_rows import ConditionedRows
from conddp.features.grouped_rows import whiten
from conddp.features.principal_axes import PrincipalAxes
from conddp.features.public_rows import PublicRows
from conddp.features.spectrum import Spectrum
from conddp.features.standardization import Standardization
from conddp.features.stored_features import StoredFeatures
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.stored import decode, require
from conddp.theory.extremes import Extremes
from conddp.theory.linear_regression import Improvement

__all__ = ["Design"]

FAR = 20.0  # a column is heavy-tailed if a value is more than this many standard deviations from the mean
ILL_CONDITIONED = 1e3
TOLERANCE = 1e-6  # directions below this fraction of the largest are dropped as collinear
MOST_DECOMPOSED = 1000  # columns up to which the raw columns are decomposed in full


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
        n = len(public_features)
        moments = Standardization.of(public_features, constant=True, function="Design.of")
        rows, variances = _whiten(public_features)
        rank = len(variances)
        deviation = np.where(moments.varies, np.sqrt(moments.variance), 0.0)
        scales = moments.column_scales
        extremes = Extremes.of(public_features, rows, center=moments.center, scales=scales)
        far = extremes.farthest > FAR * deviation
        spread = variances[1:]  # relative to their mean; columns of unit variance add up to their number
        scaled = np.sqrt(spread * int(np.count_nonzero(deviation)) / max(len(spread), 1))
        values = _list_singular_values(moments, rank)
        of_scaled = _list_singular_values(moments.divide(scales), rank)
        return cls(
            public_features.names,
            n,
            rank,
            tuple(values.tolist()),
            tuple(scaled.tolist()),
            extremes.largest_leverage,
            extremes.high_leverage,
            tuple(deviation.tolist()),
            tuple(
                name
                for name, heavy, varies in zip(public_features.names, far, deviation > 0, strict=True)
                if heavy and varies
            ),
            (extremes.longest + 1.0) * float((values**-2.0).sum()) / n,
            (extremes.longest_scaled + 1.0) * float((of_scaled**-2.0).sum()) / n,
            extremes.largest_leverage * rank / n,
            _compute_improvement(values, extremes, n),
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


def _whiten(public_features: PublicFeatures) -> tuple[PublicRows | ConditionedRows, NDArray[np.float64]]:
    """Whitened rows that are not formed, and the variances of their directions."""
    if isinstance(public_features, StoredFeatures):
        stored = whiten(public_features)  # kept with the features, and used by a fit
        return stored, stored.variances
    axes = PrincipalAxes.of(public_features, constant=True, tolerance=TOLERANCE, weights=None)
    matrix, variances = axes.make_matrix(constant=True)[:-1], np.append(1.0, axes.variances)
    offset = np.append(1.0, np.zeros(len(axes.variances)))
    return ConditionedRows.of(public_features, matrix, offset, center=axes.center), variances


def _list_singular_values(moments: Standardization, rank: int) -> NDArray[np.float64]:
    """Singular values of the columns and a constant column, decreasing.

    With very many columns they are the roots of the eigenvalues of the Gram matrix, which are accurate down to 1e-8 of
    the largest; smaller ones are raised to that.
    """
    if len(moments.center) <= MOST_DECOMPOSED:
        return Spectrum.from_moments(moments, constant=True).singular_values
    n, center = moments.num_records, moments.center
    gram = moments.gram * np.outer(moments.scale, moments.scale) + n * np.outer(center, center)
    gram = np.block([[gram, n * center[:, None]], [n * center[None], np.full((1, 1), float(n))]])
    from scipy.linalg import eigvalsh

    squared = eigvalsh(gram, overwrite_a=True, check_finite=False)[::-1][:rank]
    return np.asarray(np.sqrt(np.maximum(squared, 1e-16 * squared[0])))


def _compute_improvement(values: NDArray[np.float64], extremes: Extremes, num_records: int) -> Improvement:
    """Same as :func:`~conddp.theory.linear_regression.compute_improvement` for the paper's matrix and a constant.

    With C = V S^-1 V' times the root of n, the norms of conditioned rows are those of whitened rows, and projected
    labels are mapped to conditioned parameters by an isometry over the root of n.
    """
    longest = math.sqrt(extremes.longest + 1.0)
    rows = longest / math.sqrt(num_records * extremes.largest_leverage)
    factors = rows * math.sqrt(num_records) / values
    return Improvement(float(values[0] / values[-1]), 1.0, float(factors[-1]), float(factors[0]))
