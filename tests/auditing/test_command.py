"""The command ``conddp audit`` and its report."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from conddp.algorithms import ALGORITHMS
from conddp.auditing import audit_algorithm
from conddp.cli import main as cli
from conddp.privacy import PrivacyBudget
from conddp.report import render_html, render_markdown, report_audits
from tests.auditing.defects import SmallDescent

runner = CliRunner()
SCHEMA = """
[label]
name = "price"
bounds = [0, 400]

[public]
columns = ["rooms", "age"]

[private.income]
bounds = [0, 100]
"""


@pytest.fixture
def defective(monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a registered algorithm with half the noise that it needs."""
    monkeypatch.setitem(ALGORITHMS._members, "defective", SmallDescent(defect="c for 2c"))
    return "defective"


def test_claims_that_hold_end_with_0_and_others_with_1(defective: str, tmp_path: Path) -> None:
    held = runner.invoke(cli.app, ["audit", "mean", "laplace", "--fits", "10"])
    assert held.exit_code == 0, held.output
    assert "holds" in held.stdout and "VIOLATED" not in held.stdout
    page = tmp_path / "audit.md"
    refuted = runner.invoke(cli.app, ["audit", "mean", defective, "--fits", "10", "--out", str(page)])
    assert refuted.exit_code == 1, refuted.output
    assert "VIOLATED" in refuted.stdout
    assert "! defective: one record moves clipped gradients by 2 times" in refuted.stdout
    assert "The claims of defective are contradicted." in page.read_text()
    assert runner.invoke(cli.app, ["audit", "mean", "--out", str(page)]).exit_code == 1  # it exists


def test_json_holds_all_of_the_result() -> None:
    done = runner.invoke(cli.app, ["audit", "mean", "weighted-llp", "--fits", "200", "--kind", "black-box", "--json"])
    content = json.loads(done.stdout)
    (audit,) = content["audits"]
    assert audit["claim"] == {"epsilon": 1.0, "delta": 1e-6}
    assert audit["verdict"] == "holds" and audit["passed"] and audit["num_fits"] == 200
    assert audit["confidence"] == 0.999 and audit["neighbouring"] == "replace"
    assert "records" in content["skipped"]["weighted-llp"]
    once = runner.invoke(cli.app, ["audit", "one-shot", "--kind", "one-run", "--canaries", "60", "--json"])
    assert json.loads(once.stdout)["audits"][0]["num_fits"] == 1


def test_an_audit_of_a_file_reads_public_columns_only(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{a},{b},secret,secret" for a, b in rng.uniform(1, 9, size=(80, 2))]
    table, schema = tmp_path / "homes.csv", tmp_path / "schema.toml"
    table.write_text("rooms,age,income,price\n" + "\n".join(lines) + "\n")
    schema.write_text(SCHEMA)
    options = ["--data", str(table), "--schema", str(schema), "--fits", "8"]
    done = runner.invoke(cli.app, ["audit", "cond-newton", "one-shot", *options])
    assert done.exit_code == 0, done.output
    assert "cond-newton" in done.stdout and "not audited: one-shot" in done.stdout
    assert "secret" not in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-algorithm"],
        ["mean", "--kind", "grey-box"],
        ["mean", "--confidence", "1"],
        ["mean", "--schema", "schema.toml"],
        ["mean", "--kind", "black-box", "--fits", "2"],
        ["mean", "--out", "audit.txt"],
    ],
)
def test_wrong_arguments_are_usage_errors(arguments: list[str]) -> None:
    assert runner.invoke(cli.app, ["audit", *arguments]).exit_code == 2


def test_the_report_names_what_was_not_audited() -> None:
    audit = audit_algorithm("mean", PrivacyBudget(1.0, 1e-6), num_fits=6)
    document = report_audits([audit], {"weighted-llp": "it needs more records"})
    for page in (render_html(document), render_markdown(document)):
        assert "it needs more records" in page and "1 of 1 claims hold" in page
