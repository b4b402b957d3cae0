"""What is expected of clipping, against direct computation on single records."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erfc

from conddp.data.parts import PublicFeatures
from conddp.features.grouped_rows import GroupedRows
from conddp.features.public_rows import PublicRows
from conddp.features.row_weights import RowWeights
from conddp.features.whitening import WhitenedRows
from conddp.losses import Squared
from conddp.newton.clipping_bias import (
    ClippingBias,
    bound_skewness,
    estimate_tails,
    find_largest_contribution,
)
from conddp.newton.prior import Posterior
from conddp.newton.release import ResidualQuery, release_residuals
from conddp.privacy.neighbouring import Neighbouring
from tests.silence import SilentCurator

BIAS = ClippingBias(0.1, 1.5)


def make_rows(rng: np.random.Generator, kind: Any, weights: RowWeights | None = None) -> PublicRows:
    X = rng.standard_t(2, size=(300, 3))
    rows: PublicRows = kind.of(PublicFeatures(X), weights=weights)
    return rows


def ask(rows: PublicRows, label: Any, coefficients: Any, query: ResidualQuery) -> Any:
    """Step without noise."""
    return release_residuals(
        rows,
        label,
        (-0.5, 0.5),
        coefficients,
        query,
        mu=1.0,
        neighbouring=Neighbouring.REPLACE,
        curator=SilentCurator(np.random.default_rng(0), num_records=rows.num_records),
        loss=Squared(),
    ).step


@given(st.lists(st.floats(0, 1), min_size=3, max_size=30))
def test_labels_are_at_least_as_skewed_as_the_bound(values: list[float]) -> None:
    label = np.array(values)
    if label.std() < 1e-3:
        return
    skewness = float(np.mean(((label - label.mean()) / label.std()) ** 3))
    if label.mean() < 0.5:
        assert bound_skewness(label.mean() - 0.5, 0.0, float(label.std())) <= max(skewness, 0.0) + 1e-6


def test_the_bound_is_attained_and_noise_lowers_it() -> None:
    label = np.repeat([-0.5, 0.5], [90, 10])
    skewness = float(np.mean(((label - label.mean()) / label.std()) ** 3))
    assert bound_skewness(label.mean(), 0.0, float(label.std())) == pytest.approx(skewness)
    assert bound_skewness(label.mean(), 0.2, float(label.std())) < skewness
    assert bound_skewness(-0.5, 0.0, 0.1) == pytest.approx(3.75)


def test_larger_clip_norms_and_less_skewed_labels_have_less_bias() -> None:
    clip_norms = np.geomspace(0.01, 100, 50)
    expected = BIAS.expect(clip_norms)
    assert (np.diff(expected) < 0).all() and expected[-1] < 0.03 * expected[0]
    assert (replace(BIAS, skewness=0.0).expect(clip_norms) < expected).all()
    posterior = Posterior(np.array([0.0, 0.1]), np.array([0.01, 0.0]))
    near, far = BIAS.estimate_attenuation(0.1, posterior), BIAS.estimate_attenuation(1.0, posterior)
    assert (far < near).all() and near[0] == pytest.approx(near[1])


@pytest.mark.parametrize("kind", [WhitenedRows, GroupedRows])
def test_with_the_largest_contribution_as_clip_norm_no_label_is_clipped(kind: Any, rng: np.random.Generator) -> None:
    rows = make_rows(rng, kind)
    coefficients, weights = rng.normal(scale=0.1, size=4), np.array([0.1, 0.4, 0.3, 0.2])
    largest = find_largest_contribution(rows, coefficients, weights, (-0.5, 0.5))
    label = np.where(rows.predict(coefficients) > 0, -0.5, 0.5)  # as far away as possible
    query = ResidualQuery(largest * (1 + 1e-9), weights, 0.1, 0.4, 0.0)
    free, less = replace(query, clip_norm=1e6), replace(query, clip_norm=0.99 * largest)
    assert ask(rows, label, coefficients, query) == pytest.approx(ask(rows, label, coefficients, free), abs=1e-12)
    assert np.abs(ask(rows, label, coefficients, less) - ask(rows, label, coefficients, free)).max() > 1e-6


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [WhitenedRows, GroupedRows])
def test_what_is_clipped_from_single_records_adds_up(kind: Any, weighted: bool, rng: np.random.Generator) -> None:
    given = RowWeights.give(rng.uniform(0.2, 1.0, size=300)) if weighted else None
    rows = make_rows(rng, kind, given)
    coefficients, weights = np.array([0.1, 0.3, -0.2, 0.1]), np.array([0.1, 0.4, 0.3, 0.2])
    query = ResidualQuery(0.2, weights, 0.1, 0.4, 0.0)
    found = estimate_tails(rows, coefficients, query, BIAS, (-0.5, 0.5), signal=0.01)
    values = np.stack([rows.predict(unit) for unit in np.eye(4)], axis=1)
    sizes = np.ones(300) if given is None else given.values
    expected = np.zeros(4)
    for u, size in zip(values, sizes, strict=True):
        norm = math.sqrt(u**2 @ weights)
        limit, ends = 0.2 / norm, np.array([-0.5, 0.5]) - u @ coefficients
        excess = 0.1**2 * (1 + 1.5**2 / 2) / (1 + limit / 0.04)
        lost = np.abs(ends - ends.clip(-limit, limit))
        least = 0.0 if ends[0] < limit and ends[1] > -limit else lost.min()
        lag = 0.04 * norm**2 * erfc(limit / (math.sqrt(2) * 0.1)) ** 2
        expected += (size * u) ** 2 * (min(max(excess, least**2), lost.max() ** 2) + lag)
    assert found == pytest.approx(expected / sizes.sum() ** 2, rel=1e-6)


def test_a_row_too_long_to_square_is_no_error() -> None:
    values = np.ones((4, 2))
    values[0, 1] = 1e160
    rows = WhitenedRows(values, np.ones(2), np.eye(2), has_constant=False)
    query = ResidualQuery(0.2, np.array([0.5, 0.5]), 0.1, 0.4, 0.0)
    assert find_largest_contribution(rows, np.ones(2), query.direction_weights, (-0.5, 0.5)) == math.inf
    found = estimate_tails(rows, np.ones(2), query, BIAS, (-0.5, 0.5), signal=0.01)
    assert np.isfinite(found).all() and found[1] > 1e6
