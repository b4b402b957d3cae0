"""Widths of coefficient intervals that a plan expects, against those of fits."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from conddp.algorithms import CondNewton
from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.cli.main import app
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.data.units import Units
from conddp.errors import SchemaError
from conddp.planning.coefficients import DEVIATIONS, ExpectedCoefficients, expect_coefficients
from conddp.planning.plan import Plan, make_plan
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.report import render_html, render_json, render_markdown, report_plan
from conddp.theory.design import Design

NAMES = ("a", "b", "c", "d")
DELTA = 1e-6
SCALES = np.array([1.0, 0.1, 30.0, 1.0])


def make_public(n: int, seed: int = 0) -> PublicFeatures:
    X = np.random.default_rng(seed).normal(size=(n, 4))
    X[:, 3] = 0.95 * X[:, 0] + np.sqrt(1 - 0.95**2) * X[:, 3]  # a and d are hard to tell apart
    return PublicFeatures(X * SCALES, NAMES)


def expect(n: int, epsilon: float, **options: object) -> ExpectedCoefficients:
    """For a label whose standard deviation is an eighth of its range."""
    public = make_public(n)
    expected = expect_coefficients(
        public,
        options.pop("num_records", n),  # type: ignore[arg-type]
        PrivacyBudget(epsilon, DELTA),
        deviations=Design.of(public).deviations,
        **options,  # type: ignore[arg-type]
    )
    assert [each.deviation for each in expected] == list(DEVIATIONS)
    return expected[1]


def measure(n: int, epsilon: float, neighbouring: Neighbouring = Neighbouring.REPLACE) -> NDArray[np.float64]:
    """Median half-widths of the intervals of several fits to labels that were not made by the simulation."""
    found = []
    for seed in range(7):
        public, rng = make_public(n, seed), np.random.default_rng(100 + seed)
        signal = np.asarray(public.matrix) / SCALES @ rng.normal(size=4)
        errors = rng.normal(size=n)
        label = 0.5 + np.sqrt(0.5) / 8 * (signal / signal.std() + errors)
        records = Records(public, None, Labels(label.clip(0, 1), Bounds(0, 1)))
        fit = CondNewton().fit(
            records, PrivacyBudget(epsilon, DELTA), random_source=RandomSource.of(seed), neighbouring=neighbouring
        )
        ends = fit.estimate_coefficients()[1].compute_intervals(0.95, "population")
        found.append((ends[:-1, 1] - ends[:-1, 0]) / 2)
    return np.median(found, axis=0)


def compare(expected: ExpectedCoefficients, measured: NDArray[np.float64]) -> None:
    """Widths of single fits vary: their clamping bias depends on the labels."""
    ratios = np.asarray(expected.half_widths) / measured
    assert np.exp(np.log(ratios).mean()) == pytest.approx(1.0, abs=0.25)
    assert ratios == pytest.approx(np.ones(len(ratios)), abs=0.4)


@pytest.mark.parametrize(("n", "epsilon"), [(1000, 4.0), (5000, 0.5), (5000, 4.0), (10000, 1.0)])
def test_widths_are_those_of_fits(n: int, epsilon: float) -> None:
    expected = expect(n, epsilon)
    compare(expected, measure(n, epsilon))
    assert np.asarray(expected.scaled_half_widths) == pytest.approx(expected.half_widths * SCALES, rel=0.1)
    assert set(expected.order[:2]) == {0, 3}  # the correlated ones are the widest


def test_the_weaker_relation_has_narrower_intervals() -> None:
    weaker = expect(5000, 0.5, neighbouring=Neighbouring.ZERO_OUT)
    assert weaker.median < 0.9 * expect(5000, 0.5).median
    compare(weaker, measure(5000, 0.5, Neighbouring.ZERO_OUT))


def test_what_would_halve_an_interval_halves_it() -> None:
    expected = expect(5000, 0.3)
    assert expected.more_records is not None and expected.more_epsilon is not None
    assert expected.more_records > 2 * 5000 and expected.more_epsilon > 2 * 0.3
    assert expect(round(expected.more_records), 0.3).median == pytest.approx(expected.median / 2, rel=0.25)
    assert expect(5000, expected.more_epsilon).median == pytest.approx(expected.median / 2, rel=0.25)


def test_no_epsilon_halves_an_interval_that_sampling_makes_wide() -> None:
    expected = expect(5000, 16.0)
    assert expected.more_epsilon is None
    assert expected.more_records is not None
    assert 2 * 5000 < expected.more_records < 4.1 * 5000  # sampling alone needs four times as many


def test_a_sample_stands_for_all_records() -> None:
    whole, part = expect(10000, 1.0), expect(3000, 1.0, num_records=10000)
    assert np.asarray(part.scaled_half_widths) == pytest.approx(whole.scaled_half_widths, rel=0.3)
    assert part.more_records == pytest.approx(whole.more_records, rel=0.3)


def test_narrower_labels_and_units_change_widths_as_they_should() -> None:
    public = make_public(6000)
    budget, deviations = PrivacyBudget(4.0, DELTA), Design.of(public).deviations
    wide, middle, narrow = expect_coefficients(public, 6000, budget, deviations=deviations)
    assert wide.median > 1.5 * middle.median > 2.25 * narrow.median
    units = Units.of(np.arange(6000) // 5, name="who")
    together = expect_coefficients(public, 6000, budget, deviations=deviations, units=units)
    assert together[1].median > 1.1 * middle.median


def test_private_columns_are_simulated_too() -> None:
    expected = expect(6000, 4.0, private={"pay": Bounds(0, 100), "kind": Categories(("x", "y", "z"))})
    assert len(expected.half_widths) == 4 + 1 + 3
    assert min(expected.half_widths) > 0
    assert expected.scaled_half_widths[4] == pytest.approx(100 / np.sqrt(12) * expected.half_widths[4])
    assert expected.scaled_half_widths[5:] == expected.half_widths[5:]


SCHEMA = Schema.of(label="price", label_bounds=(0, 200), public=NAMES)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(make_public(3000), SCHEMA, epsilon=0.5, algorithms=["auto"])


def test_a_plan_says_which_widths_to_expect(plan: Plan) -> None:
    assert len(plan.coefficients) == 3 and plan.why_no_coefficients == ""
    middle = plan.coefficients[1]
    spread, median, widest, column, records, _ = plan.list_coefficients()[1]
    assert spread == "1/8" and median == f"±{200 * middle.median:.3g}"
    assert widest == f"±{200 * max(middle.scaled_half_widths):.3g}"
    assert column == NAMES[int(np.argmax(middle.scaled_half_widths))]
    assert records == f"{middle.more_records:,.0f}"
    assert {row[0] for row in plan.list_widest()} == set(NAMES)
    b = next(row for row in plan.list_widest() if row[0] == "b")
    assert b[1] == f"±{200 * middle.half_widths[1]:.3g}"
    for text in (render_html(report_plan(plan)), render_markdown(report_plan(plan)), render_json(report_plan(plan))):
        assert "How certain coefficients would be" in text and widest in text
        assert "R² 0.5 and normal errors" in text


def test_of_many_columns_only_the_widest_are_listed(plan: Plan) -> None:
    X = np.random.default_rng(0).normal(size=(2000, 12))
    names = tuple(f"x{place}" for place in range(12))
    many = make_plan(
        PublicFeatures(X, names), Schema.of(label="y", label_bounds=(0, 1), public=names), algorithms=["mean"]
    )
    shown, middle = [row[0] for row in many.list_widest()], many.coefficients[1]
    assert len(shown) == 5
    assert min(middle.scaled_half_widths[names.index(name)] for name in shown) >= sorted(middle.scaled_half_widths)[-5]


def test_a_stored_plan_keeps_them_and_a_damaged_one_is_refused(plan: Plan) -> None:
    stored = json.loads(json.dumps(plan.to_json()))
    assert Plan.from_json(stored) == plan
    assert Plan.from_json({name: value for name, value in stored.items() if name != "coefficients"}).coefficients == ()
    for name, value in (("half_widths", [1.0]), ("scaled_half_widths", [-1.0] * 4), ("more_records", 0.0)):
        damaged = {**stored, "coefficients": [{**stored["coefficients"][0], name: value}]}
        with pytest.raises(SchemaError):
            Plan.from_json(damaged)


def test_a_plan_says_why_it_says_nothing_about_coefficients(plan: Plan) -> None:
    earlier = replace(plan, coefficients=())
    assert "the plan is an old one" in earlier.why_no_coefficients and earlier.list_widest() == ()
    wide = replace(earlier, comparison=replace(plan.comparison, head="additive"))
    assert "only linear models" in wide.why_no_coefficients
    pure = make_plan(make_public(300), SCHEMA, delta=0.0, algorithms=["rr-on-bins"])
    assert pure.coefficients == () and "delta = 0" in pure.why_no_coefficients
    assert "delta = 0" in render_markdown(report_plan(pure))


def test_columns_that_never_change_have_no_interval_and_do_no_harm() -> None:
    X = np.column_stack([np.random.default_rng(0).normal(size=500), np.ones(500)])
    schema = Schema.of(label="y", label_bounds=(0, 1), public=("a", "one"))
    made = make_plan(PublicFeatures(X, ("a", "one")), schema, algorithms=["mean"])
    assert [row[0] for row in made.list_widest()] == ["a"]


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-6), (0.01, 0.005), (50.0, 1e-9)])
def test_unusual_budgets_do_no_harm(epsilon: float, delta: float) -> None:
    public = make_public(200)
    expected = expect_coefficients(public, 200, PrivacyBudget(epsilon, delta), deviations=Design.of(public).deviations)
    assert all(np.isfinite(each.half_widths).all() and each.median > 0 for each in expected)
    sampled = expect_coefficients(public, 10**9, PrivacyBudget(epsilon, delta), deviations=SCALES.tolist())
    assert sampled[1].median < 1e-3 * expected[1].median


def test_the_command_prints_them(tmp_path: Path) -> None:
    rows = make_public(800).matrix
    lines = ["a,b,c,d,price", *(",".join(f"{value:.5f}" for value in (*row, 7.0)) for row in rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    arguments = ["plan", str(tmp_path / "t.csv"), "--label", "price", "--label-bounds", "0,20", "--public", "all"]
    arguments += ["--workers", "1"]
    result = CliRunner().invoke(app, [*arguments, "--algorithm", "mean"])
    assert result.exit_code == 0, result.output
    printed = " ".join(result.output.split())
    assert "Expected half-widths of 95 % intervals of coefficients at epsilon 1" in printed
    assert "1/16 ±" in printed
    stored = CliRunner().invoke(app, [*arguments, "--algorithm", "mean", "--json"])
    assert len(json.loads(stored.output)["coefficients"]) == 3
