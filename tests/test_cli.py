"""The command line, as a user meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conddp import cli
from conddp.datasets import DATASETS
from conddp.errors import SchemaError
from tests.conftest import load_or_skip
from tests.test_experiments import make_tiny

runner = CliRunner()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from conddp.cli import main; sys.argv[0] = 'conddp'; main()"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments], capture_output=True, text=True, check=False
    )


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    program = (
        "import sys; from conddp.cli import main; sys.argv = ['conddp', '--help']\n"
        "try: main()\n"
        "except SystemExit as done: assert done.code == 0\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'pyarrow', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "reproduce" in done.stdout and "data" in done.stdout


def test_all_data_sets_are_listed() -> None:
    result = runner.invoke(cli.app, ["data", "list", "--json"])
    entries = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert set(entries) == set(DATASETS)
    assert entries["criteo_ssc"]["state"] == "by hand"
    plain = runner.invoke(cli.app, ["data", "list"]).stdout
    assert all(name in plain for name in DATASETS)


def test_a_sample_is_called_one() -> None:
    load_or_skip("supercond")
    result = runner.invoke(cli.app, ["data", "show", "supercond"])
    assert "a sample of 4252 of 21263 records" in " ".join(result.stdout.split())


def test_an_absent_set_is_shown_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("conddp.datasets._folders", lambda: iter([tmp_path]))
    result = runner.invoke(cli.app, ["data", "show", "wave", "--json"])
    facts = json.loads(result.stdout)
    assert facts["licence"] == "CC BY 4.0"
    assert "conddp data fetch wave" in facts["how to get it"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["data", "show", "iris"], 2, "unknown data set 'iris'"),
        (["data", "fetch", "iris"], 2, "unknown data set 'iris'"),
        (["data", "fetch", "criteo_ssc"], 1, "FetchFailed: data set 'criteo_ssc' cannot be fetched"),
        (["data", "fetch", "wine", "--url", "http://127.0.0.1:9/x"], 1, "could not be downloaded"),
        (["reproduce", "table-7"], 2, "table-7"),
        (["reproduce", "spectra", "--workers", "0"], 2, "workers"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_mistakes_are_explained_without_a_traceback(arguments: list[str], code: int, message: str) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_our_errors_exit_with_one_and_interrupts_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code, text in (
        (SchemaError("a column is missing."), 1, "SchemaError: a column is missing."),
        (KeyboardInterrupt(), 130, "Interrupted."),
    ):

        def fail(raised: BaseException = error) -> None:
            raise raised

        monkeypatch.setattr(cli, "app", fail)
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert stopped.value.code == code
        assert text in capsys.readouterr().err


def test_an_experiment_writes_its_tables_figures_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.experiments.reproduce.EXPERIMENTS", {"linear-real": make_tiny()})
    monkeypatch.setenv("CONDDP_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    arguments = ["reproduce", "linear-real", "--out", str(out), "--workers", "1"]
    result = runner.invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "synthetic 1: test MSE over the non-private optimum" in result.stdout
    written = {path.name for path in out.iterdir()}
    assert written == {f"linear-real.{kind}" for kind in ("csv", "md", "svg", "png")} | {"index.md", "index.html"}
    assert "Weighted-LLP needs" not in result.stdout
    again = json.loads(runner.invoke(cli.app, [*arguments, "--json"]).stdout)
    methods = {row["method"] for row in again["linear-real"]}
    assert methods == {"DPSGD", "Cond-DP", "Weighted-LLP", "default"}


def test_without_data_the_command_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.datasets._folders", lambda: iter([tmp_path]))
    result = runner.invoke(cli.app, ["reproduce", "mlp-real", "--out", str(tmp_path / "out")])
    assert "conddp data fetch NAME" in str(result.exception)
    assert not (tmp_path / "out").exists()
