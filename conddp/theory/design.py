r"""What the public features say, before any label is seen, about how well a private model can do.

With whitened rows :math:`u_i` the leverage of record i is :math:`h_i = \|u_i\|^2 / n`. It adds up to the number of
directions k; a record with leverage near one is fitted by one direction almost alone, and noise must cover it.

One noisy sum :math:`X^\top y + \sigma_1 R\, \kappa\, z` with :math:`\kappa = \max_i \|x_i\|`, solved for least
squares, has a mean squared prediction error of
:math:`\sigma_1^2 R^2 \cdot \kappa^2\, \mathrm{tr}\big((X^\top X)^{-1}\big) / n` from its noise, with R the width of the
label's range and :math:`\sigma_1` the standard deviation that the budget asks for at unit sensitivity. The factor after
the dot depends on public columns only, and on how they are scaled: conditioned, it is :math:`k \max_i h_i / n`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from conddp.data.parts import PublicFeatures
from conddp.features.spectrum import Spectrum
from conddp.features.standardization import ROWS_AT_ONCE
from conddp.features.whitening import WhitenedRows
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.theory import Improvement, compute_improvement

__all__ = ["Design"]

FAR = 20.0  # standard deviations from its mean: a column with such a value is called heavy-tailed
ILL_CONDITIONED = 1e3


@dataclass(frozen=True)
class Design:
    """Facts about a matrix of public features.

    Privacy
        Read from public columns only: no cost.

    Parameters
    ----------
    columns : tuple of str
        Names of the public columns.
    num_records : int
        Number of records n.
    rank : int
        WhitenedRows that carry information, the constant included.
    singular_values : tuple of float
        Of the columns as they are, with a constant column.
    scaled_singular_values : tuple of float
        Of the columns centred and scaled to unit variance, over the root of n; without the constant.
    largest_leverage, high_leverage : float
        Of all records, and the value that 1 % of them exceed.
    deviations : tuple of float
        Standard deviation of each column.
    heavy_tailed : tuple of str
        Columns with a value more than 20 standard deviations from their mean.
    plain_cost, scaled_cost, conditioned_cost : float
        The factor of the noise of one release for columns as they are, scaled to unit root mean square, and
        conditioned.
    improvement : Improvement
        By which factor conditioning shrinks the bound of noisy descent, for the best and the worst labels.
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
        """Facts about public features.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(1000, 3))
        >>> design = Design.of(PublicFeatures(np.column_stack([X, X[:, 0] + X[:, 1]])))
        >>> design.num_parameters, design.rank
        (5, 4)
        """
        rows = WhitenedRows.of(public_features)
        leverage = np.einsum("ij,ij->i", rows.values, rows.values) / len(rows.values)
        X = public_features.values
        center, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        farthest = np.maximum(X.max(axis=0) - center, center - X.min(axis=0)) if X.shape[1] else np.empty(0)
        far = farthest > FAR * deviation
        spread = rows.variances[1:]  # relative to their mean; columns of unit variance add up to their number
        varying = int(np.count_nonzero(deviation > 1e-12 * np.abs(center)))
        scaled = np.sqrt(spread * varying / max(len(spread), 1))
        spectrum = Spectrum.of(public_features)
        scales = spectrum.column_scales
        unit = PublicFeatures(X / scales[:-1], public_features.names)
        return cls(
            public_features.names,
            len(X),
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
            float(leverage.max()) * rows.num_directions / len(X),
            compute_improvement(public_features, constant=True),
        )

    @property
    def num_parameters(self) -> int:
        """Columns, the constant included."""
        return len(self.columns) + 1

    @property
    def condition_number(self) -> float:
        """Largest over smallest singular value of the columns as they are."""
        return self.singular_values[0] / self.singular_values[-1]

    @property
    def scaled_condition_number(self) -> float:
        """The same after centring and scaling of columns: what scaling alone leaves."""
        values = self.scaled_singular_values
        return values[0] / values[-1] if values else 1.0

    @property
    def effective_rank(self) -> float:
        r"""Directions that the variance of scaled columns is spread over: :math:`(\sum s^2)^2 / \sum s^4`."""
        squares = np.square(self.scaled_singular_values)
        return float(squares.sum() ** 2 / np.square(squares).sum()) if len(squares) else 0.0

    @property
    def mean_leverage(self) -> float:
        """Directions per record."""
        return self.rank / self.num_records

    def list_remarks(self) -> Iterator[str]:
        """Sentences on what stands out, each with what can be done; public columns may be changed freely."""
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
        """Root mean square of what the noise of one release adds to predictions, in the label's units.

        Parameters
        ----------
        cost : float
            One of the three costs.
        label_width : float
            Width of the label's declared range.
        budget, neighbouring
            Of the release. Under ZERO_OUT a centred label moves half as far.
        """
        move = label_width * neighbouring.sensitivity(0.5)
        return move * math.sqrt(cost) / calibrate_gaussian_mu(budget.epsilon, budget.delta)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Design":
        """The design that was stored."""
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in stored.items()}
        return cls(**{**values, "improvement": Improvement(**stored["improvement"])})

    def to_json(self) -> dict[str, Any]:
        """The design as it is stored."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _compute_cost(public_features: PublicFeatures, spectrum: Spectrum) -> float:
    longest = max(
        float((block.astype(np.float64) ** 2).sum(axis=1).max())
        for block in np.array_split(public_features.values, -(-len(public_features.values) // ROWS_AT_ONCE))
    )
    return (longest + 1.0) * float((spectrum.singular_values**-2.0).sum()) / spectrum.num_records
