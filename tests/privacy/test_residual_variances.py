"""The release of squared residuals times squared rows: sensitivity, closed form, cost, coverage."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conddp.algorithms import CondNewton
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records
from conddp.data.units import Units
from conddp.features.row_weights import RowWeights
from conddp.features.whitening import WhitenedRows
from conddp.heads import Wide
from conddp.newton.residual_variances import release_variance_factors
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator

Vector = NDArray[np.float64]

ROUNDING = 1 + 1e-9
BUDGET = PrivacyBudget(2.0, 1e-6)


class Watching(Curator):
    """A curator that keeps what it is given."""

    seen: BoundedSum

    def release_gaussian(self, bounded: BoundedSum, **options: Any) -> Any:
        self.seen = bounded
        return super().release_gaussian(bounded, **options)


def watch(
    rows: WhitenedRows, label: Vector, *, mu: float = 1.0, residual_std: float = 0.05
) -> tuple[Vector, BoundedSum]:
    """Factors, and what was released."""
    curator = Watching(np.random.default_rng(0), num_records=len(label))
    slopes = rows.matrix
    coefficients = np.full(rows.num_directions, 0.02)
    factors = release_variance_factors(
        rows, label, (-0.5, 0.5), coefficients, residual_std, slopes, mu=mu, curator=curator
    )
    return factors, curator.seen


def make_rows(n: int, kind: str) -> WhitenedRows:
    """Rows of all lengths."""
    rng = np.random.default_rng(1)
    X = rng.standard_t(2, size=(n, 3)) @ (np.eye(3) + 0.5)
    weights = None
    if kind == "weights":
        weights = RowWeights.give(rng.uniform(0.1, 1.0, n))
    if kind == "units":
        units = Units(np.arange(n) // 4)
        weights = RowWeights(units, np.full(n // 4, 0.5), np.full(n // 4, 4.0))
        X = np.repeat(X[::4], 4, axis=0)  # so that the records of a unit move the sum together
    return WhitenedRows.of(PublicFeatures(X), weights=weights)


@pytest.mark.parametrize("kind", ["alone", "weights", "units"])
def test_no_unit_moves_the_sum_further_than_its_sensitivity(kind: str) -> None:
    n, rng = 40, np.random.default_rng(0)
    rows, found = make_rows(n, kind), 0.0
    size = 4 if kind == "units" else 1
    for first in range(0, n, size):
        members = slice(first, first + size)
        label = rng.uniform(-0.5, 0.5, n)
        sums = []
        predicted = rows.values[members] @ np.full(rows.num_directions, 0.02)
        for value in (predicted, np.full(size, 0.5), np.full(size, -1e9)):  # no residual, and the largest ones
            changed = label.copy()
            changed[members] = value
            sums.append(watch(rows, changed)[1])
        for one in sums:
            assert one.sensitivity == sums[0].sensitivity  # it depends on public values only
            found = max(found, float(np.linalg.norm(one.value - sums[0].value)) / one.sensitivity)
    assert 0.95 < found <= ROUNDING


def test_without_noise_the_factors_are_those_of_white() -> None:
    rng, n = np.random.default_rng(0), 20_000
    X = rng.uniform(-1, 1, size=(n, 3)) @ (np.eye(3) + 0.5)
    rows = WhitenedRows.of(PublicFeatures(X))
    residuals = 0.02 * rng.choice([-1, 1], n) * (0.2 + np.abs(X[:, 0]))  # none is clamped
    label = rows.values @ np.full(4, 0.02) + residuals
    factors, _ = watch(rows, label, mu=1e4, residual_std=float(residuals.std()))
    A = np.column_stack([X, np.ones(n)])
    inverse = np.linalg.inv(A.T @ A)
    white = np.diag(inverse @ (A.T @ (A * residuals[:, None] ** 2)) @ inverse)
    np.testing.assert_allclose(factors, white / (residuals.var() * np.diag(inverse)), rtol=0.03)
    assert factors.max() > 1.2 * factors.min()


def make_records(rng: np.random.Generator, n: int = 2000) -> Records:
    X = rng.normal(size=(n, 3))
    label = X @ [0.5, 0.2, 0.0] + (0.3 + np.abs(X[:, 0])) * rng.normal(size=n)
    return Records(PublicFeatures(X), None, Labels(label, Bounds(-10, 10)))


def test_all_releases_together_cost_what_they_do_without_it() -> None:
    records = make_records(np.random.default_rng(0))
    result = CondNewton(variance_fraction=0.1).fit(records, BUDGET, random_source=RandomSource.of(0))
    mu = calibrate_gaussian_mu(BUDGET.epsilon, BUDGET.delta)
    assert result.transcript.mu == pytest.approx(mu, rel=1e-6)
    last = list(result.transcript)[-1]
    assert last.what == "squared residuals times squared rows"
    assert result.settings["variance_fraction"] == 0.1
    assert len(result.get_uncertainty().sampling_factors) == 4


def test_intervals_cover_where_residuals_differ_in_size() -> None:
    """Of 80 fits: without the release about 80 % cover the first slope, with it about 95 %."""
    hits = []
    for seed in range(80):
        records = make_records(np.random.default_rng(seed))
        both = []
        for fraction in (0.0, 0.03):
            fitted = CondNewton(variance_fraction=fraction).fit(
                records, PrivacyBudget(16.0, 1e-6), random_source=RandomSource.of(seed)
            )
            low, high = fitted.estimate_coefficients()[1].compute_intervals(0.95, "population")[0]
            both.append(low < 0.5 < high)
        hits.append(both)
    without, with_release = np.mean(hits, axis=0)
    assert without < 0.88 < with_release


def test_only_linear_models_of_public_columns_can_have_it() -> None:
    records = make_records(np.random.default_rng(0), 100)
    hidden = Records(records.public, PrivateFeatures(np.zeros((100, 1)), (Bounds(0, 1),)), records.label)
    for each, head in ((hidden, None), (records, Wide(width=5))):
        with pytest.raises(ValueError, match="variances of coefficients are released for linear models of public"):
            CondNewton(variance_fraction=0.1).fit(each, BUDGET, head=head)
    with pytest.raises(ValueError, match="variance_fraction must lie between"):
        CondNewton(variance_fraction=0.9)
