"""``data simulate`` and ``data convert``, as a user meets them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conddp.cli import main as cli
from conddp.errors import OutputExists
from conddp.research.criteo import load_criteo
from conddp.research.datasets import DatasetNotFound

runner = CliRunner()


def run(*arguments: str | Path) -> str:
    result = runner.invoke(cli.app, ["data", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_simulated_clicks_are_written_converted_and_fitted(tmp_path: Path) -> None:
    log, out = tmp_path / "log.gz", tmp_path / "out"
    assert "4,000 lines, " in run("simulate", "criteo", "--raw", "--rows", "4000", "--out", log)
    facts = json.loads(run("convert", "criteo", log, "--out", out, "--bins", "20", "--json"))
    assert facts["counts"]["lines"] == 4000 and facts["parts"] == 1 and facts["damaged lines"] == []
    assert facts["training rows"] + facts["test rows"] == facts["counts"]["sales"]
    train, _ = load_criteo(out)
    assert train.num_records == facts["training rows"] and train.public.shape[1] == 23
    fitted = runner.invoke(
        cli.app,
        [
            *("fit", str(out / "train" / "part-00000.parquet"), "--schema", str(out / "schema.toml")),
            *("--out", str(tmp_path / "model"), "--seed", "1"),
        ],
    )
    assert fitted.exit_code == 0, fitted.output


def test_simulated_rows_are_written_to_a_folder(tmp_path: Path) -> None:
    said = run("simulate", "criteo", "--rows", "500", "--seed", "3", "--bins", "9", "--out", tmp_path / "out")
    assert " training and " in said and "in 1 part\n" in said and "schema.toml" in said
    with pytest.raises(OutputExists):
        run("simulate", "criteo", "--rows", "501", "--out", tmp_path / "out")
    run("simulate", "criteo_ssc", "--rows", "501", "--out", tmp_path / "out", "--force")
    assert sum(records.num_records for records in load_criteo(tmp_path / "out")) == 501


def test_damaged_lines_are_listed_by_number(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run("simulate", "criteo", "--raw", "--rows", "300", "--out", log)
    lines = log.read_bytes().splitlines(keepends=True)
    lines[7] = b"secret\n"
    log.write_bytes(b"".join(lines))
    said = run("convert", "criteo", log, "--out", tmp_path / "out", "--max-damaged", "0.5")
    assert "damaged: 1\n" in said and "damaged lines: 8\n" in said and "secret" not in said


def test_the_log_is_searched_in_the_data_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.research.datasets._folders", lambda: iter([tmp_path]))
    with pytest.raises(DatasetNotFound, match="by hand"):
        run("convert", "criteo", "--out", tmp_path / "out")
    log = tmp_path / "Criteo_Conversion_Search" / "CriteoSearchData"
    run("simulate", "criteo", "--raw", "--rows", "300", "--out", log)
    assert "lines: 300" in run("convert", "criteo", "--out", tmp_path / "out")
    assert f"conddp data convert criteo '{log}' --out FOLDER" in run("show", "criteo_ssc")
    assert run("show", "criteo") == run("show", "criteo_ssc")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "wine", "--out", "x"], "only criteo can be converted or simulated, got 'wine'"),
        (["simulate", "criteo", "--rows", "0", "--out", "x"], "--rows"),
        (["simulate", "criteo"], "--out"),
    ],
)
def test_mistakes_are_usage_errors(arguments: list[str], message: str) -> None:
    result = runner.invoke(cli.app, ["data", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
