"""Facts about public columns, against brute force and against fits."""

from typing import Any, Literal

import numpy as np
import pytest

from conddp.algorithms import OneShot
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.features.standardization import Standardization
from conddp.features.whitening import WhitenedRows
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.theory.design import Design


def with_constant(X: np.ndarray) -> np.ndarray:
    return np.column_stack([X, np.ones(len(X))])


def test_leverage_and_costs_are_what_their_formulas_say(rng: np.random.Generator) -> None:
    X = rng.normal(size=(120, 4)) * [1.0, 5.0, 0.1, 30.0] + [0.0, 2.0, 1.0, -40.0]
    design = Design.of(PublicFeatures(X))
    A = with_constant(X)
    hat = A @ np.linalg.solve(A.T @ A, A.T)
    assert design.largest_leverage == pytest.approx(hat.diagonal().max())
    assert design.high_leverage == pytest.approx(np.quantile(hat.diagonal(), 0.99))
    assert design.mean_leverage == pytest.approx(hat.diagonal().mean())

    def cost(A: np.ndarray) -> float:
        return float((A**2).sum(axis=1).max() * np.trace(np.linalg.inv(A.T @ A)) / len(A))

    assert design.plain_cost == pytest.approx(cost(A))
    assert design.scaled_cost == pytest.approx(cost(A / np.sqrt((A**2).mean(axis=0))))
    values, vectors = np.linalg.eigh(A.T @ A)
    assert design.conditioned_cost == pytest.approx(cost(A @ vectors / np.sqrt(values)))
    assert design.condition_number == pytest.approx(np.linalg.cond(A))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(design.scaled_singular_values, np.linalg.svd(Z, compute_uv=False) / np.sqrt(len(Z)))


@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_noise_of_one_release_is_what_theory_expects(rng: np.random.Generator, neighbouring: Neighbouring) -> None:
    X = rng.standard_t(4, size=(300, 3))
    bounds = Bounds(-2.0, 6.0)
    dataset = Records(PublicFeatures(X), None, Labels(rng.uniform(-2, 6, size=300), bounds))
    budget = PrivacyBudget(2.0, 1e-5)
    predictions = []
    for seed in range(600):
        result = OneShot(noise="spherical", shrink=False).fit(
            dataset, budget, neighbouring=neighbouring, random_source=RandomSource.of(seed)
        )
        slopes, _, intercept = result.model.compute_linear_coefficients()
        predictions.append(X @ slopes + intercept)
        deviations = result.diagnostics.coefficient_deviations
    measured = np.sqrt(np.var(predictions, axis=0).mean())
    design = Design.of(dataset.public)
    expected = design.expect_noise(design.conditioned_cost, bounds.width, budget, neighbouring)
    assert measured == pytest.approx(expected, rel=0.06)
    coefficients = np.linalg.lstsq(with_constant(X), np.transpose(predictions), rcond=None)[0]
    np.testing.assert_allclose(coefficients.std(axis=1), deviations, rtol=0.15)


def test_effective_rank_counts_directions() -> None:
    even = Design.of(PublicFeatures(np.eye(6) - 1 / 6))  # five directions of the same size
    assert even.effective_rank == pytest.approx(5)
    copies = np.repeat(np.random.default_rng(0).normal(size=(50, 1)), 4, axis=1)
    assert Design.of(PublicFeatures(copies)).effective_rank == pytest.approx(1)


def test_remarks_name_what_stands_out(rng: np.random.Generator) -> None:
    X = rng.normal(size=(4000, 3))
    assert list(Design.of(PublicFeatures(X)).list_remarks()) == []
    heavy = X.copy()
    heavy[0, 1] = 1e4
    remarks = " ".join(Design.of(PublicFeatures(heavy, ("a", "b", "c"))).list_remarks())
    assert "Columns 'b' have values more than 20 standard deviations" in remarks
    assert "One record has leverage 1.00" in remarks
    twice = PublicFeatures(np.column_stack([X, X[:, 0], np.ones(4000)]))
    assert "2 of 6 columns" in " ".join(Design.of(twice).list_remarks())
    near = PublicFeatures(np.column_stack([X, X[:, 0] + 1e-4 * rng.normal(size=4000)]))
    assert "nearly dependent" in " ".join(Design.of(near).list_remarks())
    assert "10 records per direction" in " ".join(Design.of(PublicFeatures(X[:40])).list_remarks())


def test_it_comes_back_from_json(rng: np.random.Generator) -> None:
    design = Design.of(PublicFeatures(rng.normal(size=(50, 2)), ("a", "b")))
    assert Design.from_json(design.to_json()) == design


def test_no_column_is_no_error() -> None:
    design = Design.of(PublicFeatures(np.empty((10, 0))))
    assert (design.rank, design.effective_rank, design.scaled_condition_number) == (1, 0.0, 1.0)
    assert list(design.list_remarks()) != []


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_design_in_memory_is_that_of_rows_that_are_formed(order: Literal["C", "F"]) -> None:
    rng = np.random.default_rng(5)
    X = np.asarray(rng.normal([0.0, 5.0, 1e6], [1.0, 0.1, 30.0], size=(3000, 3)), order=order)
    X[17, 0] = 40.0
    design, rows = Design.of(PublicFeatures(X)), WhitenedRows.of(PublicFeatures(X))
    leverages = (rows.values**2).sum(axis=1) / 3000
    assert design.rank == rows.num_directions and design.heavy_tailed == ("x0",)
    assert np.isclose(design.largest_leverage, leverages.max(), rtol=1e-9)
    assert np.isclose(design.high_leverage, np.quantile(leverages, 0.99), rtol=1e-9)
    longest = ((X**2).sum(axis=1).max() + 1) * (np.linalg.svd(with_constant(X), compute_uv=False) ** -2.0).sum() / 3000
    assert np.isclose(design.plain_cost, longest, rtol=1e-6)


def test_moments_are_kept_if_features_are_told_to() -> None:
    public = PublicFeatures(np.random.default_rng(6).normal(size=(50, 2)))
    settings: dict[str, Any] = {"constant": True, "function": "test"}
    assert Standardization.of(public, **settings) is not Standardization.of(public, **settings)
    kept = Standardization.of(public.keep_moments(), **settings)
    assert kept is Standardization.of(public, **settings)
    assert Standardization.of(public, **settings, weights=np.arange(50.0)) is not kept
    assert Standardization.of(public, constant=False, function="test").center.tolist() == [0.0, 0.0]
