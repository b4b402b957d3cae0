"""Reports: what they say, that all three forms say it, and that nothing private is in them."""

import base64
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conddp import PrivateRegressor
from conddp.algorithms import CondDP, CondNewton, NonPrivate, RROnBins
from conddp.algorithms.algorithm import Algorithm
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.errors import OutputExists, SchemaError
from conddp.heads.additive import Additive
from conddp.heads.head import Head
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.models.result import FitResult
from conddp.models.saving import load_model, save_model
from conddp.models.summary import Summary
from conddp.planning.comparison import Comparison, compare_algorithms
from conddp.planning.plan import Plan
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.report import (
    render_html,
    render_json,
    render_markdown,
    report_comparison,
    report_fit,
    report_plan,
    report_summaries,
    write_report,
)
from conddp.report.charts import render_chart, render_dots, show_tick
from conddp.report.document import (
    Bullets,
    Chart,
    Document,
    Dots,
    Figure,
    HeatMap,
    Panel,
    Panels,
    Reference,
    Section,
    Series,
    Table,
    Text,
    round_up,
)
from conddp.theory.design import Design

NASTY = "<script>alert('x')</script> & |`*_"
PUBLIC, PRIVATE, LABEL = ("rooms", NASTY), "income", "price"
SCHEMA = Schema.of(label=LABEL, label_bounds=(0, 10), public=PUBLIC, private={PRIVATE: (0, 5)})


def make_saved(
    folder: Path,
    algorithm: Algorithm | None = None,
    head: Head | None = None,
    *,
    neighbouring: Neighbouring = Neighbouring.REPLACE,
    private: bool = True,
    budget: PrivacyBudget | None = None,
) -> FitResult:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    label = Labels(5 + X[:, 0] + rng.normal(size=500), Bounds(0, 10), LABEL)
    income = PrivateFeatures(rng.uniform(0, 5, size=(500, 1)), (Bounds(0, 5),), (PRIVATE,))
    dataset = Records(PublicFeatures(X, PUBLIC), income if private else None, label)
    budget = budget or PrivacyBudget(1.0, 1e-6)
    algorithm = algorithm or CondNewton()
    ledger = PrivacyLedger(algorithm.cost(budget), neighbouring=neighbouring)
    result = algorithm.fit(
        dataset, budget, head=head, neighbouring=neighbouring, random_source=RandomSource.of(0), ledger=ledger
    )
    assert result.schema == (SCHEMA if private else Schema.of(label=LABEL, label_bounds=(0, 10), public=PUBLIC))
    save_model(folder, replace(result, design=Design.of(dataset.public)))
    return load_model(folder)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    X = np.random.default_rng(0).normal(size=(300, 2))
    return compare_algorithms(
        PublicFeatures(X, PUBLIC),
        private={PRIVATE: Bounds(0, 5)},
        algorithms=["auto", "dpsgd", "rr-on-bins", "mean"],
        epsilons=(0.5, 1.0),
    )


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory, comparison: Comparison) -> dict[str, Document]:
    saved = make_saved(tmp_path_factory.mktemp("report") / "model")
    assert saved.design is not None
    plan = Plan(SCHEMA, 1.0, saved.design, comparison)
    return {
        "fit": report_fit(saved, plan),
        "plan": report_plan(plan),
        "comparison": report_comparison(comparison),
    }


def list_tables(document: Document) -> list[Table]:
    """All tables, those behind charts included."""
    blocks = [block for section in document.sections for block in section.blocks]
    return [
        block.as_table() if isinstance(block, Chart) else block for block in blocks if isinstance(block, (Table, Chart))
    ]


class Page(HTMLParser):
    """Text, tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("kind", ["fit", "plan", "comparison"])
def test_the_page_is_whole_and_needs_nothing_else(documents: dict[str, Document], kind: str) -> None:
    text = render_html(documents[kind])
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags
    assert len(page.ids) == len(set(page.ids))
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), f"{tag} {name}"
        if name in ("href", "src"):
            assert value.startswith(("#", "data:"))
            assert value[1:] in page.ids or not value.startswith("#")
        if name in ("aria-labelledby", "clip-path"):
            assert all(each in page.ids for each in value.removeprefix("url(#").removesuffix(")").split())
    assert "http:" not in text and "https:" not in text
    for landmark in ("header", "nav", "main", "footer"):
        assert page.tags.count(landmark) == 1
    assert page.tags.count("h1") == 1
    assert text.startswith("<!doctype html>")


@pytest.mark.parametrize("kind", ["fit", "plan", "comparison"])
def test_all_three_forms_say_the_same(documents: dict[str, Document], kind: str) -> None:
    document = documents[kind]
    page = Page(render_html(document)).text
    markdown = re.sub(r"\\([\\`*_|<>\[\]#])", r"\1", render_markdown(document))
    stored = json.loads(render_json(document))
    assert [section["title"] for section in stored["sections"]] == [section.title for section in document.sections]
    whole = json.dumps(stored, ensure_ascii=False)
    for table in list_tables(document):
        for cell in (table.caption, *table.heads, *(cell for row in table.rows for cell in row)):
            assert cell in page and cell in markdown
    for section in document.sections:
        for text in (section.title, *(block.text for block in section.blocks if hasattr(block, "text"))):
            assert json.dumps(text, ensure_ascii=False)[1:-1] in whole
            if "^" not in text:
                assert text in page
            assert text in markdown


def test_what_looks_like_markup_stays_text(documents: dict[str, Document]) -> None:
    text = render_html(documents["fit"])
    assert "<script" not in text and NASTY in Page(text).text
    assert "<script" not in render_markdown(documents["fit"]).replace("\\<", "")


def test_a_fit_says_what_a_privacy_officer_asks(documents: dict[str, Document]) -> None:
    text = Page(render_html(documents["fit"])).text
    assert "Private model of 'price'" in text
    assert "changed by a factor of at most 2.72, up to an extra chance of 1e-06" in text
    assert "be right with a chance of at most 73.2 %" in text  # 73.106, rounded up
    assert "P[M(D) ∈ S] ≤ e1 · P[M(D′) ∈ S] + 10−6" in text
    assert "This model is (1, 1e-06)-differentially private" in text
    assert "This page holds no private value" in text
    assert "noisy sums of clamped residuals times rows" in text
    assert "epsilon=0 at delta=1e-06" in text  # what is left
    assert "0 to 5" in text and "0 to 10" in text  # declared ranges
    assert "from a fixed seed" in text
    assert "rr-on-bins" in text and "protects labels only" in text  # what the plan could not try
    titles = [section.title for section in documents["fit"].sections]
    assert titles == [
        "In brief",
        "What is protected, and how strongly",
        "What was released",
        "What was spent",
        "What remains public",
        "How well it predicts",
        "Expected error",
        "What the model says",
        "How training went",
        "The public columns",
        "Settings and versions",
    ]


@pytest.mark.parametrize("private", [False, True])
def test_coefficients_come_with_intervals_and_a_forest_plot(tmp_path: Path, private: bool) -> None:
    saved = make_saved(tmp_path / "model", private=private)
    document, summary = report_fit(saved), Summary.of_result(saved)
    ends, parts = (table for table in list_tables(document) if "feature" in table.heads[0] and len(table.heads) > 4)
    assert [row[0] for row in ends.rows] == [*PUBLIC, *([PRIVATE] if private else []), "intercept"]
    for cells, errors, row in zip(ends.rows, parts.rows, summary.rows, strict=True):
        wanted = [row.coefficient, row.estimate, row.low, row.high]
        assert [float(cell) for cell in cells[1:5]] == pytest.approx(wanted, rel=1e-3)
        wanted = [row.std, row.noise, row.bias, row.sampling]
        assert [float(cell) for cell in errors[1:]] == pytest.approx(wanted, rel=0.06)
    (dots,) = (block for section in document.sections for block in section.blocks if isinstance(block, Dots))
    assert set(dots.names) == {row.name for row in summary.rows[:-1]}
    assert saved.design is not None
    units = dict(zip(saved.features, saved.design.deviations, strict=True))
    place = dots.names.index(PUBLIC[0])
    row, unit = summary[PUBLIC[0]], units[PUBLIC[0]]
    assert [each[place] for each in (dots.low, dots.values, dots.high, dots.others)] == pytest.approx(
        [unit * each for each in (row.low, row.estimate, row.high, row.coefficient)]
    )
    assert summary.explanation in Page(render_html(document)).text
    sections = report_fit(replace(saved, design=None)).sections  # as of wide tables
    (again,) = (block for section in sections for block in section.blocks if isinstance(block, Dots))
    assert dict(zip(again.names, again.high, strict=True)) == pytest.approx(
        dict(zip(dots.names, dots.high, strict=True)), rel=0.05
    )


def test_a_model_without_stored_uncertainty_says_so(tmp_path: Path) -> None:
    saved = replace(make_saved(tmp_path / "model"), uncertainty=None)
    document = report_fit(saved)
    table = next(table for table in list_tables(document) if table.caption.startswith("Coefficients"))
    assert table.heads == ("feature", "coefficient")
    assert "The uncertainty of the coefficients is not known" in render_markdown(document)
    with pytest.raises(AttributeError, match="is not known"):
        report_summaries((saved,))


@pytest.mark.parametrize(
    ("algorithm", "head", "private", "found"),
    [
        (CondDP(num_steps=40), Linear(), True, "How training went"),
        (CondDP(num_steps=10), MLP(hidden=(4,)), True, "parameters. Its weights are in the model's folder."),
        (RROnBins(), Linear(), False, "1-differentially private"),
        (CondNewton(), MLP(hidden=(4,)), False, "How training went"),
    ],
)
def test_every_kind_of_model_has_a_report(
    tmp_path: Path, algorithm: Algorithm, head: Head, private: bool, found: str
) -> None:
    document = report_fit(make_saved(tmp_path / "model", algorithm, head, private=private))
    assert found in Page(render_html(document)).text
    assert found in render_markdown(document)


def test_a_model_that_is_not_private_is_not_called_so(tmp_path: Path) -> None:
    budget = PrivacyBudget(1.0, 1e-6)
    text = render_markdown(report_fit(make_saved(tmp_path / "model", NonPrivate(), private=False, budget=budget)))
    assert text.startswith("# Model of 'price', not private")
    assert "NOT differentially private" in text
    assert "Private model" not in text and "factor of at most" not in text
    assert "holds no private value" not in text and "depend on private values without noise" in text


def test_the_weaker_relation_is_named(tmp_path: Path) -> None:
    text = render_markdown(report_fit(make_saved(tmp_path / "model", neighbouring=Neighbouring.ZERO_OUT)))
    assert "under the weaker relation ZERO\\_OUT" in text
    assert "contribute nothing" in text
    assert "anything else within the declared ranges" not in text
    assert "contributes to one of them and nothing to the other. In full" in text


def test_a_large_delta_is_called_what_it_is(tmp_path: Path) -> None:
    text = render_markdown(report_fit(make_saved(tmp_path / "model", budget=PrivacyBudget(1.0, 0.01))))
    assert "Delta is not below one over the number of records" in text


@pytest.mark.parametrize("value", [1.0001, 2.71828, 56.2177, 73.10586, 99.9999, 1e-7, 12345.0])
def test_numbers_after_at_most_are_rounded_up(value: float) -> None:
    shown = float(round_up(value))
    assert value <= shown <= value * 1.011


def test_no_private_value_is_in_any_form(tmp_path: Path) -> None:
    saved = make_saved(tmp_path / "model")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    label = 5 + X[:, 0] + rng.normal(size=500)
    for text in (render_html(report_fit(saved)), render_json(report_fit(saved)), render_markdown(report_fit(saved))):
        numbers = set(re.findall(r"-?\d+\.\d{3,}", text))
        for value in label:  # with its trailing zeros: 4.868 in the text is not the label 4.8680
            assert not numbers & {f"{value:#.{digits}g}" for digits in (5, 6, 8, 17)}


def test_the_course_is_of_released_numbers(tmp_path: Path) -> None:
    saved = make_saved(tmp_path / "model", CondDP(num_steps=64))
    steps, distances = saved.diagnostics.steps, saved.diagnostics.distances
    assert steps == tuple(range(2, 65, 2))
    assert distances[0] > distances[-1] >= 0
    newton = make_saved(tmp_path / "newton").diagnostics
    assert len(newton.steps) == len(newton.distances) == len(newton.residual_deviations)
    assert newton.distances[-1] == 0.0


def test_reports_are_written_by_suffix_and_not_over_others(tmp_path: Path, documents: dict[str, Document]) -> None:
    for suffix, start in ((".html", "<!doctype"), (".md", "# "), (".json", "{")):
        path = write_report(documents["plan"], tmp_path / "deep" / f"page{suffix}")
        assert path.read_text(encoding="utf-8").startswith(start)
        with pytest.raises(OutputExists, match="exists already"):
            write_report(documents["plan"], path)
        write_report(documents["plan"], path, overwrite=True)
    with pytest.raises(SchemaError, match=r"\.html, \.md or \.json"):
        write_report(documents["plan"], tmp_path / "page.pdf")


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def make_chart(y: tuple[float, ...], *, log: bool = False, highest: float | None = None) -> Chart:
    x = tuple(float(2**place) for place in range(len(y)))
    series = (Series("a & b", y, tuple(v * 0.9 for v in y), tuple(v * 1.1 for v in y)),)
    return Chart("t < u", "x", "y", x, series, (Reference("level", 1.0),), log_x=True, log_y=log, highest=highest)


@pytest.mark.parametrize("y", [(1.0, 2.0, 4.0), (1.0, 1.0, 1.0), (1e-9, 1.0, 1e9), (5.0,), (0.5, 0.25, 0.125)])
@pytest.mark.parametrize("log", [False, True])
def test_points_lie_where_their_values_say(y: tuple[float, ...], log: bool) -> None:
    svg = parse(render_chart(make_chart(y, log=log)))
    polyline = svg.find(".//polyline")
    assert polyline is not None
    points = [tuple(map(float, pair.split(","))) for pair in polyline.attrib["points"].split()]
    assert len(points) == len(y)
    assert all(70 <= left <= 624 and 14 <= top <= 308.1 for left, top in points)
    assert [left for left, _ in points] == sorted(left for left, _ in points)
    order = np.argsort(y, kind="stable")
    tops = [points[place][1] for place in order]
    assert tops == sorted(tops, reverse=True)  # a larger value is higher up
    if len(y) == 3:  # positions double, on a logarithmic axis: even steps
        assert points[1][0] - points[0][0] == pytest.approx(points[2][0] - points[1][0], abs=0.2)


def test_a_chart_can_be_read_out() -> None:
    svg = parse(render_chart(make_chart((1.0, 2.0))))
    assert svg.attrib["role"] == "img"
    title, description = svg.find("title"), svg.find("desc")
    assert title is not None and title.text == "t < u"
    assert description is not None and "a & b goes from 1 to 2; level is at 1" in (description.text or "")


def test_ticks_are_round_and_few() -> None:
    for y, log in (((0.013, 0.9), True), ((17.2, 18.5), False), ((1e-3, 1e7), True), ((0.0, 1.0), False)):
        svg = parse(render_chart(make_chart(y, log=log)))
        labels = [each.text for each in svg.iter("text") if each.attrib.get("text-anchor") == "end"]
        assert 2 <= len(labels) <= 9
        digits = [(text or "").replace("−", "-").replace(",", "") for text in labels]
        assert all(len(f"{float(text):g}".replace(".", "").lstrip("0")) <= 6 for text in digits)


def test_what_is_too_high_leaves_the_chart_and_not_the_table() -> None:
    chart = make_chart((1.0, 2.0, 500.0), highest=3.0)
    svg = parse(render_chart(chart))
    labels = [float(each.text or "") for each in svg.iter("text") if each.attrib.get("text-anchor") == "end"]
    assert max(labels) <= 3.2
    assert chart.as_table().rows[-1][1] == "500"


def test_many_series_can_be_told_apart_and_gaps_are_left_out() -> None:
    series = tuple(Series(f"a{number}", (1.0, float("nan"), 3.0)) for number in range(10))
    text = render_chart(Chart("t", "x", "y", (1.0, 2.0, 3.0), series, (Reference("r", float("nan")),)))
    assert "nan" not in text
    classes = [each.attrib["class"] for each in parse(text).iter("polyline")]
    assert len(set(classes)) == 10 and classes[9] == "curve s1 again"


def test_a_forest_plot_has_intervals_and_arrows_where_they_leave_it() -> None:
    names = ("a", "b" * 40, "c", "d")
    dots = Dots("t", "x", names, (1.0, -1.0, 0.5, 0.0), (0.5, -2.0, 0.0, -99.0), (1.5, 0.0, 1.0, 1.0), (0.9,) * 4)
    svg = render_dots(dots)
    tree = parse(svg)
    bars = [each for each in tree.iter() if each.get("class") == "bar s0"]
    lengths = [float(each.get("x2", "")) - float(each.get("x1", "")) for each in bars]
    assert lengths[1] == pytest.approx(2 * lengths[0], abs=0.2) and lengths[2] == pytest.approx(lengths[0], abs=0.2)
    assert svg.count('class="beyond s0"') == 1  # the last interval leaves the chart on its left
    assert svg.count('class="cap s0"') == 7
    centres = [float(each.get("cx", "")) for each in tree.iter() if each.get("class") == "centre s0"]
    assert (float(bars[0].get("x1", "")) + float(bars[0].get("x2", ""))) / 2 == pytest.approx(centres[0], abs=0.2)
    assert f"{'b' * 10}…{'b' * 7}" in svg and f"{'b' * 40}: -1, from -2 to 0" in svg


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_text_and_curves_stand_out_in_both_themes(theme: int) -> None:
    style = files("conddp.report").joinpath("page.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", style.split(":root {")[1 + theme]))
    for name in ("ink", "soft", "link"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name  # WCAG AA for text
    assert contrast(colours["ink"], colours["raised"]) >= 4.5
    for number in range(8):
        assert contrast(colours[f"s{number}"], colours["paper"]) >= 3.0, number  # WCAG AA for graphics


def test_equal_titles_and_line_breaks_do_no_harm() -> None:
    table = Table("c", ("h\rx", "i"), (("a\u2028b\nc", "1"),))
    document = Document("t", "l", (Section("数", (table,)), Section("数", (table,))))
    page = Page(render_html(document))
    assert len(set(page.ids)) == len(page.ids) and "" not in page.ids
    assert "| a b c | 1 |" in render_markdown(document)


def test_empty_sections_and_odd_tables_do_not_break_the_page() -> None:
    document = Document("t", "l", (Section("s", ()), Section("s 2", (Table("c", ("h",), ()),))))
    assert Page(render_html(document)).open == []
    assert render_markdown(document).count("##") == 2


def test_terms_lists_figures_and_second_lines_come_out_in_all_forms() -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    blocks = (
        Text("what it is", "a_term"),
        Bullets(("one <b>", "two")),
        Figure("Errors & more", svg, "errors.svg"),
        Table("c", ("h", "i"), (("a", "1 (0.1)\n1.05"), ("b", "2")), highlighted=(1,)),
    )
    document = Document("t", "l", (Section("s", blocks),))
    html, text = render_html(document), render_markdown(document)
    page = Page(html)
    assert page.open == [] and "script" not in page.tags  # the drawing is an image
    assert base64.b64encode(svg.encode()).decode() in html and 'alt="Errors &amp; more"' in html
    assert "<b>a_term</b>: what it is" in html and "<li>one &lt;b&gt;</li>" in html
    assert '<tr class="highlighted"><th scope="row">b</th>' in html and "1 (0.1)\n1.05" in html
    assert "**a\\_term**: what it is" in text and "- one \\<b\\>\n- two" in text
    assert "![Errors & more](errors.svg)" in text and "| a | 1 (0.1) 1.05 |" in text
    assert [block["kind"] for block in json.loads(render_json(document))["sections"][0]["blocks"]] == [
        "text",
        "bullets",
        "figure",
        "table",
    ]


@pytest.fixture(scope="module")
def additive() -> FitResult:
    """An additive model with columns of all kinds, one of which has a name that is markup."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            NASTY: rng.normal(size=1500),
            "pay": np.exp(3 * rng.normal(size=1500)),
            "city": [f"<b>{number}" for number in rng.integers(0, 12, 1500)],
            "sold": pd.Timestamp("2021-03-01") + pd.to_timedelta(rng.uniform(0, 900, 1500), unit="D"),
            "new": rng.uniform(size=1500) < 0.3,
        }
    )
    table.loc[:100, "sold"] = pd.NaT
    label = 5 + np.sin(2 * table[NASTY]) + table.new * table[NASTY]
    model = PrivateRegressor(8.0, label_bounds=(0, 10), head=Additive(width=200, pairs=3), random_state=0)
    return model.fit(table, label.to_numpy()).result_


def test_curves_are_drawn_with_bands_and_levels_with_bars(additive: FitResult) -> None:
    document = report_fit(additive)
    page = render_html(document)
    assert page.count('class="panel"') > 6
    for kind in ('class="band s0"', 'class="level s0"', 'class="whisker"', "positive shade", "negative shade"):
        assert kind in page
    assert NASTY not in page and not re.search("<b>[0-9]", page)
    for svg in re.findall(r"<svg.*?</svg>", page):
        ElementTree.fromstring(svg)
    pair = re.search(r'<svg class="panel".*?</svg>', page[page.index("Effects of pairs") :], re.DOTALL)
    assert pair is not None and "rotate(-90)" in pair[0]  # the row axis has a label
    assert "the 8 largest of 12 levels" in page and "2021-" in page and "day of the year" in page


def test_thousands_on_axes_are_written_out() -> None:
    values = (0.0, -0.05, 999.0, 1000.0, -2500.0, 1e5)
    assert [show_tick(value) for value in values] == ["0", "−0.05", "999", "1,000", "−2,500", "1e+05"]


def test_curves_are_in_all_forms_of_the_report(additive: FitResult) -> None:
    document = report_fit(additive)
    section = next(each for each in document.sections if each.title == "Curves")
    panels, surfaces = (each for each in section.blocks if isinstance(each, Panels))
    curves = additive.make_curves()
    assert [each.title for each in panels.panels] == [each.name for each in curves][:12]
    first = panels.panels[0]
    assert isinstance(first, Panel) and isinstance(surfaces.panels[0], HeatMap)
    np.testing.assert_allclose(first.y, curves[0].effect)
    np.testing.assert_allclose(np.subtract(first.high, first.y), 1.96 * curves[0].std)
    pay = next(each for each in panels.panels if each.title == "pay")
    assert isinstance(pay, Panel) and pay.is_log
    text = render_markdown(document)
    assert "## Curves" in text and "| pay |" in text and "city" in text
    stored = json.loads(render_json(document))
    blocks = next(each for each in stored["sections"] if each["title"] == "Curves")["blocks"]
    assert len(next(each for each in blocks if each["kind"] == "panels")["panels"]) == len(panels.panels)


@pytest.mark.parametrize(
    ("head", "words"),
    [(Linear(), "A linear model of 'y'"), (Additive(width=30), "An additive model"), (MLP(hidden=(3,)), "A neural")],
)
def test_a_report_starts_with_what_the_model_is(head: Head, words: str) -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = PrivateRegressor(1.0, label_bounds=(-5, 5), head=head, random_state=0).fit(X, pd.Series(X[:, 0], name="y"))
    assert report_fit(model.result_).lead.startswith(words)


def test_other_models_have_no_section_on_curves(tmp_path: Path) -> None:
    assert "Curves" not in {section.title for section in report_fit(make_saved(tmp_path / "model")).sections}
