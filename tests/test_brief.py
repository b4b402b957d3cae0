"""The box at the top of a report, its picture, and what else a reader sees first."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from conddp import PrivateRegressor
from conddp.algorithms import CondDP, NonPrivate
from conddp.cli.main import app
from conddp.errors import SchemaError
from conddp.files import report_file
from conddp.heads.linear import Linear
from conddp.models.result import FitResult
from conddp.planning.comparison import Comparison
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.report import render_html, render_json, render_markdown, report_fit
from conddp.report.brief import compute_chance, show_chance
from conddp.report.comparison import describe_expectations
from conddp.report.document import Chart, Document, Dots, Odds, Panel, Section, Table, Text
from conddp.report.odds import render_odds
from conddp.report.panels import choose_span
from tests.test_report import Page, make_saved

REPLACE, ZERO_OUT = Neighbouring.REPLACE, Neighbouring.ZERO_OUT
NASTY = "<img src=x onerror=alert(1)> & Co"


def guess(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Chance of the best guess which of two equally likely distributions an outcome is from."""
    return float(np.maximum(first, second).sum() / 2)


def measure_delta(first: NDArray[np.float64], second: NDArray[np.float64], epsilon: float) -> float:
    """Smallest delta for which two distributions are as close as epsilon says, from all sets of outcomes."""
    outcomes = range(len(first))
    subsets = chain.from_iterable(combinations(outcomes, size) for size in range(len(first) + 1))
    differences = (first - math.exp(epsilon) * second, second - math.exp(epsilon) * first)
    return max(float(each[list(subset)].sum()) for subset in subsets for each in differences)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.05])
def test_the_chance_is_attained_by_a_mechanism_that_keeps_the_guarantee(epsilon: float, delta: float) -> None:
    """Randomised response that shows the truth with probability delta."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    first = np.array([delta, 0.0, (1 - delta) * truth, (1 - delta) * (1 - truth)])
    second = first[[1, 0, 3, 2]]
    assert measure_delta(first, second, epsilon) == pytest.approx(delta, abs=1e-12)
    assert guess(first, second) == pytest.approx(compute_chance(PrivacyBudget(epsilon, delta), REPLACE), rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_no_mechanism_under_zero_out_exceeds_the_chance(seed: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    null = rng.dirichlet(np.ones(6))
    first, second = (null * np.exp(rng.uniform(-epsilon, epsilon, size=6)) for _ in range(2))
    first, second = first / first.sum(), second / second.sum()
    delta = max(measure_delta(each, null, epsilon) for each in (first, second))
    chance = compute_chance(PrivacyBudget(epsilon, delta), ZERO_OUT)
    assert guess(first, second) <= chance <= 1.0
    assert chance > compute_chance(PrivacyBudget(epsilon, delta), REPLACE)


@pytest.mark.parametrize(
    ("epsilon", "shown", "dots"),
    [(0.1, "52.5", 53), (1.0, "73.2", 74), (8.0, "99.97", 100), (20.0, "100", 100), (1e4, "100", 100)],
)
def test_the_picture_has_a_dot_for_every_guess(epsilon: float, shown: str, dots: int) -> None:
    chance = compute_chance(PrivacyBudget(epsilon, 1e-6), REPLACE)
    assert show_chance(chance) == shown
    odds = Odds("t < u", 50, math.ceil(100 * chance), ("a & b", "c", "d"))
    svg = ElementTree.fromstring(render_odds(odds))
    kinds = [each.get("class") for each in svg.iter() if each.get("class") in ("before", "added", "rest")]
    assert [kinds.count(kind) for kind in ("before", "added", "rest")] == [50, dots - 50, 100 - dots]
    places = {
        (each.get("cx"), each.get("cy")) for each in svg.iter() if each.get("class") in ("before", "added", "rest")
    }
    assert len(places) == 100
    assert svg.findtext("title") == "t < u" and f"{dots - 50}: c" in (svg.findtext("desc") or "")


def read_brief(document: Document) -> dict[str, str]:
    section = document.sections[0]
    assert (section.title, section.style) == ("In brief", "boxed")
    return {block.term: block.text for block in section.blocks if isinstance(block, Text)}


def get_odds(document: Document) -> Odds:
    (odds,) = (block for block in document.sections[0].blocks if isinstance(block, Odds))
    return odds


def test_the_box_answers_the_first_questions(tmp_path: Path) -> None:
    document = report_fit(make_saved(tmp_path / "model"))
    said = read_brief(document)
    assert said["What is protected"] == (
        "The label 'price' (declared range 0 to 10) and the private column 'income'. No other column is."
    )
    assert "each of the 500 rows on its own" in said["For whom"] and "not protected as a whole" in said["For whom"]
    assert "at most 73.2 % after seeing everything" in said["How strongly"]
    assert "epsilon=1 at delta=1e-06" in said["How strongly"]
    assert "fixed seed" in said["Warning"]
    assert get_odds(document).counts == (50, 24, 26)
    exposed = said["What remains public, so exposed"]
    assert "'rooms'" in exposed and "(500)" in exposed and "the schema" in exposed


def test_the_expected_error_is_the_released_size_of_residuals_if_nothing_was_evaluated(tmp_path: Path) -> None:
    saved = make_saved(tmp_path / "model")
    scale = saved.diagnostics.residual_deviations[-1]
    text = read_brief(report_fit(saved))["Expected error"]
    assert f"is about {scale:.3g} in the units of 'price', {10 * scale:.2g} % of its declared range" in text
    assert "which the fit released with noise" in text and "No held-out records were evaluated" in text
    other = make_saved(tmp_path / "other", CondDP(num_steps=10), Linear())
    assert "Not known" in read_brief(report_fit(other))["Expected error"]


def fit(epsilon: float = 4.0, **options: object) -> FitResult:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=4000), "b": rng.normal(size=4000), "who": rng.integers(0, 900, 4000)})
    label = pd.Series(table.a + rng.normal(size=4000), name="y")
    model = PrivateRegressor(epsilon, label_bounds=(-5, 5), head="linear", random_state=0, **options)  # type: ignore[arg-type]
    return model.fit(table if "unit" in options else table.drop(columns="who"), label).result_


def test_the_expected_error_is_that_of_the_evaluation_if_there_is_one() -> None:
    result = fit(evaluation_fraction=0.25)
    assert result.evaluation is not None
    text, rmse = read_brief(report_fit(result))["Expected error"], result.evaluation["rmse"]
    assert rmse.estimate is not None and f"about {rmse.estimate:.4g}, {rmse.population.describe()}" in text
    assert "private evaluation on 1,000 held-out records" in text and "residuals" not in text
    low = fit(0.1, evaluation_fraction=0.25)
    vague = read_brief(report_fit(low))["Expected error"]
    assert "private evaluation" in vague and "residuals of training records" in vague  # one number is too uncertain


def test_a_unit_is_protected_as_a_whole_and_its_values_are_exposed() -> None:
    said = read_brief(report_fit(fit(unit="who")))
    assert said["For whom"].startswith("Each person, with all their rows") and "'who'" in said["For whom"]
    assert "not protected as a whole" not in said["For whom"]
    assert "the values of 'who'" in said["What remains public, so exposed"]
    assert "the labels of one 'who'" in said["How strongly"]


def test_everything_in_the_ledger_counts() -> None:
    ledger = PrivacyLedger(PrivacyBudget(4.0, 1e-6))
    fit(1.0, ledger=ledger)
    document = report_fit(fit(1.0, ledger=ledger))
    chance = compute_chance(ledger.spent, REPLACE)
    text = read_brief(document)["How strongly"]
    assert f"at most {show_chance(chance)} % after seeing everything" in text and "at most 73.2 %." in text
    assert get_odds(document).after == math.ceil(100 * chance) > 74


def test_the_weaker_relation_counts_twice(tmp_path: Path) -> None:
    document = report_fit(make_saved(tmp_path / "model", neighbouring=ZERO_OUT))
    assert get_odds(document).after == 89  # e^2 / (1 + e^2)
    assert "epsilon counts twice" in read_brief(document)["How strongly"]


def test_a_model_that_is_not_private_protects_nothing(tmp_path: Path) -> None:
    document = report_fit(make_saved(tmp_path / "model", NonPrivate(), private=False, budget=PrivacyBudget(1.0, 1e-6)))
    assert read_brief(document)["What is protected"].startswith("Nothing.")
    assert not any(isinstance(block, Odds) for block in document.sections[0].blocks)


def test_all_forms_have_the_box_and_the_dots(tmp_path: Path) -> None:
    document = report_fit(make_saved(tmp_path / "model"))
    html, markdown = render_html(document), render_markdown(document)
    page = Page(html)
    assert page.open == [] and html.count('class="added"') == 24 + 1  # one in the legend
    assert html.index("In brief") < html.index("<nav")  # before the contents
    assert "| more, at most, thanks to what was released | 24 |" in markdown
    stored = json.loads(render_json(document))["sections"][0]
    odds = next(block for block in stored["blocks"] if block["kind"] == "odds")
    assert (stored["style"], odds["before"], odds["after"]) == ("boxed", 50, 74)


def test_owner_purpose_and_source_are_near_the_top_and_stay_text(tmp_path: Path) -> None:
    saved = make_saved(tmp_path / "model")
    document = report_fit(saved, owner=NASTY, purpose="plan *beds*", source=None)
    html, markdown = render_html(document), render_markdown(document)
    assert "<img" not in html and NASTY in Page(html).text
    assert html.index("plan *beds*") < html.index("In brief")
    assert "data source" not in html and "n/a" not in html
    assert "- purpose: plan \\*beds\\*" in markdown and "<img" not in markdown.replace("\\<", "")
    assert json.loads(render_json(document))["facts"] == {"owner": NASTY, "purpose": "plan *beds*"}
    assert '<dl class="about">' not in render_html(report_fit(saved))


def test_the_command_and_the_estimator_pass_them_on(tmp_path: Path) -> None:
    make_saved(tmp_path / "model")
    arguments = ["report", str(tmp_path / "model"), "--owner", "Ward 7", "--purpose", "beds", "--source", "register"]
    assert CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "r.json")]).exit_code == 0
    stored = json.loads((tmp_path / "r.json").read_text())
    assert stored["facts"] == {"owner": "Ward 7", "purpose": "beds", "data source": "register"}
    model = PrivateRegressor.load(tmp_path / "model")
    written = json.loads(model.report(tmp_path / "s.json", source="register").read_text())
    assert written["facts"] == {"data source": "register"}


def test_a_stored_plan_has_no_owner(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(SchemaError, match="owner can be shown with the folder of a model only"):
        report_file(tmp_path / "plan.json", tmp_path / "r.html", about={"owner": "me", "purpose": None})


def test_settings_are_folded_and_at_the_end(tmp_path: Path) -> None:
    document = report_fit(make_saved(tmp_path / "model"))
    assert [section.style for section in document.sections[-2:]] == ["folded", "folded"]
    html = render_html(document)
    folded = re.findall(r'<details class="folded">\n<summary><h2[^>]*>([^<]*)</h2>', html)
    assert folded == ["The public columns", "Settings and versions"]


def test_a_folded_table_shows_its_caption() -> None:
    table = Table("parts", ("a", "b"), (("x", "1"),), folded=True)
    html = render_html(Document("t", "l", (Section("s", (table,)),)))
    assert "<summary>parts</summary>" in html and Page(html).open == []


def test_errors_close_to_least_squares_are_drawn_in_percent_above_them() -> None:
    errors = {"auto": ((1.1, 1.1), (1.0, 1.02)), "mean": ((3.0, 3.0), (3.0, 3.0))}
    comparison = Comparison(100, 2, 0, 100, "linear", 1e-6, REPLACE, (1.0, 2.0), errors, (2.0, 2.0), {})
    (chart,) = (block for block in describe_expectations(comparison).blocks if isinstance(block, Chart))
    assert chart.log_y and chart.y_label == "above least squares, in %"
    (series,) = chart.series
    assert series.y == pytest.approx((10.0, 100 * (math.sqrt(1.02) - 1)))
    assert 0 < series.low[1] < series.y[1] < series.high[1] == pytest.approx(2.0)
    assert [each.y for each in chart.references] == pytest.approx([100.0])
    better = replace(comparison, errors={"auto": ((1.1, 1.1), (0.9, 0.9))})  # no percentage above
    (chart,) = (block for block in describe_expectations(better).blocks if isinstance(block, Chart))
    assert chart.series[0].y == pytest.approx((1.1, 0.9))
    assert [each.y for each in chart.references] == pytest.approx([1.0, 2.0])


def test_an_estimator_keeps_what_its_forest_plot_needs() -> None:
    result = fit()
    assert result.design is not None and result.design.num_records == 4000
    assert any(isinstance(block, Dots) for section in report_fit(result).sections for block in section.blocks)


def test_columns_that_do_little_have_a_scale_of_their_own() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20000, 6))
    label = X @ np.array([1.0, 0.02, 0.01, -0.02, 0.01, 0.0]) + 0.1 * rng.normal(size=20000)
    result = PrivateRegressor(8.0, label_bounds=(-5, 5), head="linear", random_state=0).fit(X, label).result_
    dots = [block for section in report_fit(result).sections for block in section.blocks if isinstance(block, Dots)]
    assert [len(each.names) for each in dots] == [1, 5]
    assert max(map(abs, (*dots[1].low, *dots[1].high))) < 0.2 * dots[0].values[0]
    assert dots[1].title == "The same for columns that do less, on a larger scale"


@pytest.mark.parametrize(("size", "factor"), [(1.0, 1), (0.6, 1), (0.3, 2), (0.19, 5), (0.05, 20), (0.01, 50)])
def test_small_curves_are_enlarged_and_say_so(size: float, factor: int) -> None:
    panel = Panel("p", (0.0, 1.0), (0.0, size), (-size / 2, size / 2), (0.0, size))
    span, times = choose_span(panel, (-1.0, 1.0))
    assert times == factor and span == (-1.0 / factor, 1.0 / factor)
    flat = replace(panel, y=(0.0, 0.0), low=(0.0, 0.0), high=(0.0, 0.0))
    assert choose_span(flat, (-1.0, 1.0))[1] == 1
