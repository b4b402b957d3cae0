"""Algorithms on simulated labels, and plans."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp.algorithms import ALGORITHMS
from conddp.bounds import Bounds
from conddp.data.parts import PublicFeatures
from conddp.data.schema import Schema
from conddp.data.units import Units
from conddp.errors import PrivacyError, SchemaError
from conddp.files import compare_file, load_records, plan_file
from conddp.heads import HEADS
from conddp.labels.simulation import FAMILIES, simulate
from conddp.planning import comparison as comparison_module
from conddp.planning.comparison import CANDIDATES, Comparison, choose_algorithms, compare_algorithms
from conddp.planning.plan import Plan, make_plan
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.report.plan import report_plan
from conddp.report.rendering import render_markdown
from conddp.theory.design import Design

SCHEMA = Schema.of(label="y", label_bounds=(0, 10), public=["a", "b", "c"])


@pytest.fixture(scope="module")
def public() -> PublicFeatures:
    return PublicFeatures(np.random.default_rng(3).normal(size=(600, 3)), ("a", "b", "c"))


@pytest.fixture(scope="module")
def comparison(public: PublicFeatures) -> Comparison:
    return compare_algorithms(public, epsilons=(4.0, 0.25))


def test_every_algorithm_has_an_error_at_every_budget(comparison: Comparison) -> None:
    assert comparison.epsilons == (0.25, 4.0)
    assert set(comparison.errors) | set(comparison.skipped) == set(CANDIDATES)
    for name, errors in comparison.errors.items():
        assert len(errors) == 2 and all(len(each) == len(FAMILIES) for each in errors), name
        assert all(math.isfinite(error) and error > 0 for each in errors for error in each)
    assert comparison.mean("auto")[1] < comparison.mean("auto")[0]  # more budget, less error
    assert comparison.mean("auto")[1] < 1.1 < comparison.mean_constant


def test_least_squares_is_the_unit(public: PublicFeatures) -> None:
    comparison = compare_algorithms(public, algorithms=["non-private"], epsilons=[1.0])
    assert comparison.errors["non-private"] == ((1.0,) * len(FAMILIES),)
    simulated = simulate(public, FAMILIES[0], np.random.default_rng((0, 0)))
    A = np.column_stack([public.values, np.ones(600)])
    label = simulated.records.label.values
    fitted = A @ np.linalg.lstsq(A, label, rcond=None)[0]
    ratio = simulated.compute_error(np.full(600, label.mean())) / simulated.compute_error(np.clip(fitted, 0, 1))
    assert comparison.constant[0] == pytest.approx(ratio)


def test_workers_change_nothing(public: PublicFeatures, comparison: Comparison) -> None:
    assert compare_algorithms(public, epsilons=(4.0, 0.25), num_workers=2) == comparison


def test_what_cannot_be_used_is_named_with_the_reason(public: PublicFeatures) -> None:
    comparison = compare_algorithms(
        public, private={"age": Bounds(0, 100)}, algorithms=["auto", "dpsgd", "rr-on-bins"], epsilons=[1.0]
    )
    assert set(comparison.errors) == {"auto", "dpsgd"}
    assert "'age'" in comparison.skipped["rr-on-bins"]
    assert comparison.num_private == 1
    with pytest.raises(PrivacyError, match="no algorithm of"):
        compare_algorithms(public, private={"age": Bounds(0, 100)}, algorithms=["rr-on-bins"])


def test_many_records_are_represented_by_a_sample(public: PublicFeatures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.planning.comparison.MOST_RECORDS", 200)
    sampled = compare_algorithms(public, algorithms=["auto"], epsilons=[1.0])
    assert (sampled.num_records, sampled.num_simulated) == (600, 200)
    monkeypatch.undo()
    whole = compare_algorithms(public, algorithms=["auto"], epsilons=[1.0])
    assert whole.num_simulated == 600
    assert sampled.mean("auto")[0] > whole.mean("auto")[0]  # on the safe side


def test_made_up_private_columns_stay_in_their_ranges_and_carry_signal(public: PublicFeatures) -> None:
    bounds = {"age": Bounds(0, 100), "debt": Bounds(-5, 5)}
    simulated = simulate(public, FAMILIES[3], np.random.default_rng(0), private=bounds)
    made_up = simulated.records.private
    assert made_up is not None and made_up.names == ("age", "debt")
    for column, each in zip(made_up.values.T, bounds.values(), strict=True):
        assert each.low <= column.min() < column.max() <= each.high
    A = np.column_stack([made_up.values, np.ones(600)])
    fitted = A @ np.linalg.lstsq(A, simulated.signal, rcond=None)[0]
    assert 0.1 < fitted.var() / simulated.signal.var() < 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilons": [0.0]}, "epsilon"),
        ({"algorithms": ["magic"]}, "algorithm"),
        ({"head": "magic"}, "head"),
        ({"delta": 1.0}, "delta"),
        ({"num_draws": 0}, "num_draws"),
    ],
)
def test_bad_settings_are_named(public: PublicFeatures, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_algorithms(public, **options)  # type: ignore[arg-type]  # wrong on purpose


def test_a_comparison_and_a_plan_come_back_from_json(comparison: Comparison, public: PublicFeatures) -> None:
    assert Comparison.from_json(json.loads(json.dumps(comparison.to_json()))) == comparison
    plan = Plan(SCHEMA, 4.0, Design.of(public), comparison)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def make_comparison(errors: dict[str, tuple[float, ...]], constant: float = 3.0) -> Comparison:
    return Comparison(
        600,
        3,
        0,
        600,
        "linear",
        1e-6,
        Neighbouring.REPLACE,
        (0.5, 1.0, 4.0),
        {name: tuple((error, error) for error in values) for name, values in errors.items()},
        (constant, constant),
        {},
    )


def advise(public: PublicFeatures, epsilon: float, errors: dict[str, tuple[float, ...]]) -> Plan:
    return Plan(SCHEMA, epsilon, Design.of(public), make_comparison(errors))


def test_the_default_is_recommended_unless_another_is_clearly_better(public: PublicFeatures) -> None:
    close = advise(public, 1.0, {"auto": (1.3, 1.201, 1.1), "cond-dp": (1.4, 1.19, 1.1)})
    assert close.algorithm == "auto"
    assert "1.201 times that of linear least squares" in close.recommendation
    assert "A tie: 'cond-dp', at 1.190 times, does as well" in close.recommendation
    assert "at none of these budgets" in close.recommendation
    clear = advise(public, 1.0, {"auto": (1.3, 1.2, 1.1), "cond-dp": (1.4, 1.1, 1.04)})
    assert clear.algorithm == "cond-dp"
    assert "algorithm 'cond-dp'" in clear.recommendation
    assert "from epsilon 4 on" in clear.recommendation


def test_what_the_simulated_labels_do_not_tell_apart_is_a_tie(public: PublicFeatures) -> None:
    def plan(errors: dict[str, tuple[float, ...]]) -> Plan:
        stored = make_comparison(dict.fromkeys(errors, (1.0, 1.0, 1.0)), constant=9.0)
        drawn = {name: (values,) * 3 for name, values in errors.items()}
        comparison = replace(stored, errors=drawn, constant=(9.0,) * 4)
        return Plan(SCHEMA, 1.0, Design.of(public), comparison)

    scattered = plan({"auto": (1.1, 1.3, 1.2, 1.4), "cond-dp": (1.3, 1.1, 1.4, 1.25), "dpsgd": (2.0, 2.2, 2.1, 2.3)})
    assert scattered.comparison.is_tie("auto", "cond-dp", 1.0)
    assert "A tie: 'cond-dp', at 1.258 times, does as well" in scattered.recommendation
    assert not scattered.comparison.is_tie("auto", "dpsgd", 1.0)
    # The same difference of the means, on every set of labels: no tie.
    steady = plan({"auto": (1.1, 1.3, 1.2, 1.4), "cond-dp": (1.13, 1.33, 1.23, 1.43)})
    assert not steady.comparison.is_tie("auto", "cond-dp", 1.0)
    assert "'cond-dp' comes next" in steady.recommendation and "tie" not in steady.recommendation
    # Better by more than 2 %, but not beyond the spread: the default stays.
    lucky = plan({"auto": (1.1, 1.6, 1.2, 1.7), "cond-dp": (1.5, 1.1, 1.4, 1.25), "dpsgd": (1.1, 1.6, 1.2, 1.7)})
    assert lucky.algorithm == "auto"
    assert "'cond-dp', at 1.304 times, and 'dpsgd', at 1.377 times, do as well" in lucky.recommendation


@pytest.mark.parametrize("head", ["wide", "mlp", "fm"])
def test_slow_rivals_of_a_nonlinear_head_are_tried_only_if_asked_for(
    public: PublicFeatures, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    tried: list[str] = []

    def compute(setting: comparison_module._Setting, cell: comparison_module._Cell) -> comparison_module._Answer:
        tried.extend(setting.algorithms)
        return comparison_module._Answer(dict.fromkeys(setting.algorithms, (1.0,) * len(setting.epsilons)), 2.0, {})

    monkeypatch.setattr(comparison_module, "_compute", compute)
    plan = make_plan(public, SCHEMA, head=head)
    assert set(tried) == {"auto"}
    assert {"cond-dp", "dpsgd", "rr-on-bins"} < set(plan.comparison.skipped)
    compared = compare_algorithms(public, head=head)
    assert set(tried) == {"auto"} and "switch-cond-dp" in compared.skipped
    assert "Name it in algorithms, or 'all'" in compared.skipped["dpsgd"]
    compare_algorithms(public, head=head, algorithms=["dpsgd"])
    assert set(tried) == {"auto", "dpsgd"}
    whole = make_plan(public, SCHEMA, head=head, algorithms=["all"])
    assert {"cond-dp", "rr-on-bins"} < set(tried) and "switch-cond-dp" not in tried
    assert set(whole.comparison.skipped) == {"mean"}
    compare_algorithms(public, head=head, algorithms=["all"])
    assert "switch-cond-dp" in tried


def test_delta_may_be_zero_and_only_pure_algorithms_are_tried(public: PublicFeatures) -> None:
    plan = make_plan(public, SCHEMA, delta=0.0)
    assert set(plan.comparison.errors) == {"auto", "rr-on-bins"}
    assert plan.comparison.is_tie("auto", "rr-on-bins", 1.0)  # the one is the other, with other noise
    assert plan.comparison.skipped["cond-dp"] == "it needs a delta above 0."
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert "which cannot give delta = 0" in render_markdown(report_plan(plan))
    with pytest.raises(PrivacyError, match="no algorithm of"):
        compare_algorithms(public, private={"age": Bounds(0, 9)}, algorithms=["auto"], delta=0.0)


def test_a_hopeless_budget_and_a_generous_one_are_called_so(public: PublicFeatures) -> None:
    assert "no better than the mean" in advise(public, 0.5, {"auto": (2.95, 1.2, 1.0)}).recommendation
    generous = advise(public, 4.0, {"auto": (1.04, 1.01, 1.0)}).recommendation
    assert "Epsilon 0.5 would already be within 5% of least squares" in generous


def test_a_plan_has_the_budget_that_was_asked_for(public: PublicFeatures) -> None:
    plan = make_plan(public, SCHEMA, epsilon=0.7, algorithms=["auto", "mean"])
    assert 0.7 in plan.comparison.epsilons
    assert "At epsilon 0.7" in plan.recommendation
    noise = plan.expect_noise()
    assert [line[0] for line in noise] == list(plan.comparison.epsilons)
    assert all(
        0 < later < earlier
        for first, second in pairwise(noise)
        for earlier, later in zip(first[1:], second[1:], strict=True)
    )


@pytest.mark.parametrize("options", [{}, {"private": {"age": Bounds(0, 100)}}, {"units": True}], ids=str)
def test_errors_are_those_of_one_fit_after_the_other(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    public = PublicFeatures(rng.normal(size=(80, 3)))
    if "units" in options:
        options = {"units": Units.of(rng.integers(30, size=80), name="who")}
    head, epsilons = "wide", (0.5, 4.0)
    found = compare_algorithms(public, head=head, epsilons=epsilons, algorithms=["auto"], **options)
    for family, place in ((1, 0), (2, 1)):
        simulated = simulate(public, FAMILIES[family], np.random.default_rng((family, 0)), **options)
        records, budget = simulated.records, PrivacyBudget(epsilons[place], 1e-6)
        source = RandomSource.for_neighbours(family * 1009)
        model = ALGORITHMS["auto"].fit(records, budget, head=HEADS[head], random_source=source).model
        optimum = ALGORITHMS["non-private"].fit(records, budget).model
        error, least = (simulated.compute_error(each.predict(public, records.private)) for each in (model, optimum))
        assert found.errors["auto"][place][family] == pytest.approx(error / least, rel=1e-9)


def test_a_head_with_which_everything_is_slow_is_refused_unless_algorithms_are_named(public: PublicFeatures) -> None:
    for make in (
        lambda: make_plan(public, SCHEMA, head="embeddings"),
        lambda: compare_algorithms(public, head="embeddings"),
    ):
        with pytest.raises(ValueError, match="name what to try in algorithms"):
            make()
    assert choose_algorithms(["auto"], CANDIDATES, "embeddings") == (("auto",), {})
    assert choose_algorithms(["mean", "all"], ("auto", "mean"), "mlp") == (("mean", "auto"), {})


def test_labels_can_be_simulated_from_other_features_than_those_of_the_fits(public: PublicFeatures) -> None:
    halved = PublicFeatures(public.values[:, :1], ("a",))
    settings: dict[str, Any] = {"algorithms": ["non-private", "mean"], "epsilons": [1.0]}
    expected = compare_algorithms(public, **settings)
    found = compare_algorithms(halved, simulate_from=public, **settings)
    assert found.constant == expected.constant and found.errors["mean"] == expected.errors["mean"]
    assert found.num_public == 1
    assert min(found.errors["non-private"][0]) > 1.01  # one of three columns, against least squares on all of them
    with pytest.raises(SchemaError, match="for 599 records, but there are 600"):
        compare_algorithms(halved, simulate_from=public[np.arange(599)], **settings)


def test_files_are_planned_with_the_features_of_a_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal():.3f},{town},{rng.uniform():.3f}" for town in rng.choice(["x", "y", "z"], size=60)]
    (tmp_path / "t.csv").write_text("\n".join(["size,town,price", *lines]) + "\n")
    schema = Schema.of(label="price", label_bounds=(0, 1), public=["size", "town"])
    asked: list[dict[str, Any]] = []

    def note(public_features: PublicFeatures, *_: Any, **settings: Any) -> None:
        asked.append({"public": public_features, **settings})

    monkeypatch.setattr("conddp.files.make_plan", note)
    monkeypatch.setattr("conddp.files.compare_algorithms", note)
    for head in ("embeddings", "wide"):
        plan_file(tmp_path / "t.csv", schema, head=head)
        compare_file(tmp_path / "t.csv", schema, head=head)
        records, encoding = load_records(tmp_path / "t.csv", schema, num_bins=HEADS[head].bins)
        for each in asked:
            assert np.array_equal(each["public"].values, records.public.values)
            assert each["public"].num_codes == records.public.num_codes == (1 if head == "embeddings" else 0)
            indicators = each["simulate_from"]
            assert indicators is None if head == "wide" else indicators.shape == (60, 4) and not indicators.num_codes
        assert asked[0]["encoding"] == encoding
        asked.clear()
