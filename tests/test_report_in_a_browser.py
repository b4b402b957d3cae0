"""The page as a browser shows it: headless Chromium."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conddp.planning.plan import Plan
from conddp.report import report_fit, report_plan, write_report
from tests.test_report import SCHEMA, comparison, make_saved

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["comparison"]  # the fixture

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no Chromium on this machine; install it to test pages in a browser")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, comparison: Any) -> list[Path]:  # noqa: F811  (the fixture)
    folder = tmp_path_factory.mktemp("pages")
    saved = make_saved(folder / "model")
    assert saved.design is not None
    plan = Plan(SCHEMA, 1.0, saved.design, comparison)
    return [
        write_report(report_fit(saved, plan), folder / "fit.html"),
        write_report(report_plan(plan), folder / "plan.html"),
    ]


def open_page(browser: "Browser", path: Path, **options: Any) -> "tuple[Page, list[str]]":
    """The page, and whatever went wrong or was asked of the network while it loaded."""
    page = browser.new_context(**options).new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
    page.on("request", lambda request: None if request.url == path.as_uri() else trouble.append(request.url[:80]))
    page.goto(path.as_uri())
    page.wait_for_load_state("networkidle")
    return page, trouble


@pytest.mark.parametrize("number", [0, 1])
def test_it_loads_without_errors_or_requests_and_draws(browser: "Browser", pages: list[Path], number: int) -> None:
    page, trouble = open_page(browser, pages[number])
    assert [each for each in trouble if not each.startswith("data:")] == []
    page.locator("details.folded > summary").evaluate_all("all => all.forEach(each => each.parentElement.open = true)")
    charts = page.locator("svg.chart")
    assert charts.count() >= 2
    for place in range(charts.count()):
        box = charts.nth(place).bounding_box()
        assert box is not None and box["width"] > 400 and box["height"] > 100
    curves = page.locator("svg.chart polyline")
    for place in range(curves.count()):
        assert curves.nth(place).evaluate("curve => curve.getTotalLength()") > 100
        colour = curves.nth(place).evaluate("curve => getComputedStyle(curve).stroke")
        assert colour.startswith("rgb") and colour != "rgb(0, 0, 0)"


@pytest.mark.parametrize("width", [320, 390, 768])
@pytest.mark.parametrize("number", [0, 1])
def test_it_fits_a_phone(browser: "Browser", pages: list[Path], number: int, width: int) -> None:
    page, _ = open_page(browser, pages[number], viewport={"width": width, "height": 800}, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width < 640:
        size = page.locator("svg.chart text.tick").first.evaluate(
            "text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a"
        )
        assert size >= 9  # pixels on the screen


def test_a_dark_theme_is_dark_and_a_light_one_light(browser: "Browser", pages: list[Path]) -> None:
    for scheme, is_dark in (("dark", True), ("light", False)):
        page, _ = open_page(browser, pages[0], color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        channels = [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        assert (max(channels) < 60) == is_dark


def test_it_says_all_without_javascript(browser: "Browser", pages: list[Path]) -> None:
    with_scripts, _ = open_page(browser, pages[0])
    without, _ = open_page(browser, pages[0], java_script_enabled=False)
    text = without.locator("main").inner_text()
    assert "What is protected, and how strongly" in text and "The ledger" in text
    assert text == with_scripts.locator("main").inner_text()
    assert without.locator("svg.chart").first.is_visible()


def test_headings_landmarks_and_keys(browser: "Browser", pages: list[Path]) -> None:
    page, _ = open_page(browser, pages[0])
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(each => +each.tagName[1])")
    assert levels[0] == 1 and all(later - earlier <= 1 for earlier, later in zip(levels, levels[1:], strict=False))
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("img").count() >= 3
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.get_by_text("The numbers").first.click()
    assert page.locator("details table").first.is_visible()


def test_it_can_be_printed(browser: "Browser", pages: list[Path], tmp_path: Path) -> None:
    page, _ = open_page(browser, pages[0])
    page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    settings = page.get_by_text("python", exact=True)  # in a folded section, which paper cannot unfold
    assert settings.is_visible() and (settings.bounding_box() or {"height": 0})["height"] > 5


@pytest.mark.parametrize("number", [0, 1])
def test_nothing_is_wider_than_paper(browser: "Browser", pages: list[Path], number: int) -> None:
    page, _ = open_page(browser, pages[number], viewport={"width": 700, "height": 1000})  # A4 without margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 700


def test_settings_unfold(browser: "Browser", pages: list[Path]) -> None:
    page, _ = open_page(browser, pages[0])
    settings = page.get_by_text("python", exact=True)
    assert not settings.is_visible()
    page.get_by_role("heading", name="Settings and versions").click()
    assert settings.is_visible()


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_the_dots_are_in_the_box_and_round(browser: "Browser", pages: list[Path], width: int) -> None:
    page, _ = open_page(browser, pages[0], viewport={"width": width, "height": 800})
    box, dots = page.locator(".box").bounding_box(), page.locator(".box svg.odds").bounding_box()
    assert box is not None and dots is not None
    assert box["x"] <= dots["x"] and dots["x"] + dots["width"] <= box["x"] + box["width"]
    assert box["y"] + box["height"] >= dots["y"] + dots["height"]
    assert dots["width"] == pytest.approx(dots["height"], rel=0.01) and dots["width"] > 150
    assert (dots["x"] > box["x"] + box["width"] / 2) == (width > 640)  # beside the text, or below it


def test_tables_of_text_are_read_row_by_row_on_a_phone(browser: "Browser", pages: list[Path]) -> None:
    page, _ = open_page(browser, pages[0], viewport={"width": 390, "height": 800}, is_mobile=True)
    ledger = page.locator("table.texts", has_text="when (UTC)")
    assert ledger.evaluate("table => table.scrollWidth <= table.closest('.wide').clientWidth")
    cells = ledger.locator("tbody tr").first.locator("td")
    tops = [(cells.nth(place).bounding_box() or {"y": 0})["y"] for place in range(2)]
    assert tops[1] > tops[0]
    assert cells.first.evaluate("cell => getComputedStyle(cell, '::before').content") == '"what: "'
