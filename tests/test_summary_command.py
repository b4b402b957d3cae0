"""The command ``conddp summary``."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from conddp import PrivateRegressor
from conddp.cli.main import app
from conddp.errors import OutputExists, SchemaError

SAVED = Path(__file__).parent / "data" / "saved_models"


def make_model(folder: Path, *, labels: int = 1, head: str = "linear") -> PrivateRegressor:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["age", "income"])
    y = pd.DataFrame({f"y{number}": X.age + rng.normal(size=400) for number in range(labels)})
    model = PrivateRegressor(2.0, label_bounds=(-5, 5), head=head, random_state=0).fit(X, y if labels > 1 else y["y0"])
    model.save(folder)
    return model


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["summary", *map(str, arguments)], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_it_prints_what_the_estimator_gives(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    assert run(tmp_path / "model").strip() == str(model.summary()).strip()
    narrow = run(tmp_path / "model", "--level", "0.5", "--of", "data")
    assert narrow.strip() == str(model.summary(0.5, of="data")).strip()


def test_it_writes_a_page_and_json(tmp_path: Path) -> None:
    model, page = make_model(tmp_path / "model", labels=2), tmp_path / "page.html"
    (found, other) = json.loads(run(tmp_path / "model", "--json", "--html", page))
    row, summary = found["rows"][0], model.summary()[0]
    assert (row["name"], row["low"], row["high"]) == ("age", summary.rows[0].low, summary.rows[0].high)
    assert other["label"] == "y1" and other["of"] == "population"
    text = page.read_text()
    assert "Coefficients of &#39;y0&#39;" in text and "Coefficients of &#39;y1&#39;" in text
    with pytest.raises(OutputExists):
        run(tmp_path / "model", "--html", page)
    run(tmp_path / "model", "--html", page, "--force")


def test_it_says_why_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="there is no summary: .* saved by an earlier version"):
        run(SAVED / "format_4_first_linear")
    make_model(tmp_path / "curves", head="additive")
    with pytest.raises(SchemaError, match="there is no summary: .* only linear models"):
        run(tmp_path / "curves")
    make_model(tmp_path / "model")
    assert "of must be one of" in run(tmp_path / "model", "--of", "everyone")
    assert "level must be between 0 and 1" in run(tmp_path / "model", "--level", "1")
