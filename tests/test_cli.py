"""The command line, as a user meets it."""

import ast
import gzip
import json
import os
import re
import subprocess
import sys
import tomllib
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from conddp.cli import main as cli
from conddp.cli.wording import name_options
from conddp.data.schema import Schema
from conddp.errors import LedgerError, SchemaError
from conddp.models.saving import load_model
from conddp.planning.plan import make_plan
from conddp.planning.runner import WorkerDied
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.research.datasets import DATASETS
from tests.conftest import load_or_skip
from tests.test_architecture import modules
from tests.test_experiments import make_tiny
from tests.test_storage import store_plan

runner = CliRunner()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from conddp.cli.main import main; sys.argv[0] = 'conddp'; main()"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments], capture_output=True, text=True, check=False
    )


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    program = (
        "import sys; from conddp.cli.main import main; sys.argv = ['conddp', '--help']\n"
        "try: main()\n"
        "except SystemExit as done: assert done.code == 0\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'pyarrow', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "reproduce" in done.stdout and "data" in done.stdout


def test_the_version_is_printed() -> None:
    result = runner.invoke(cli.app, ["--version"])
    assert result.exit_code == 0 and result.stdout == f"conddp {version('conddp')}\n"


def test_all_data_sets_are_listed() -> None:
    result = runner.invoke(cli.app, ["data", "list", "--json"])
    entries = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert set(entries) == {*DATASETS, "synthetic"}
    assert entries["criteo_ssc"]["state"] in ("by hand", "here")
    plain = runner.invoke(cli.app, ["data", "list"]).stdout
    assert all(name in plain for name in DATASETS)


def test_a_sample_is_called_one() -> None:
    load_or_skip("supercond")
    result = runner.invoke(cli.app, ["data", "show", "supercond"])
    assert "a sample of 4252 of 21263 records" in " ".join(result.stdout.split())


def test_an_absent_set_is_shown_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("conddp.research.datasets._folders", lambda: iter([tmp_path]))
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


def test_our_errors_and_those_of_the_disk_exit_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code, text in (
        (SchemaError("a column is missing."), 1, "SchemaError: a column is missing."),
        (SchemaError("Name another file, or pass overwrite=True."), 1, "with --out, or overwrite it with --force."),
        (WorkerDied("Try again with num_workers=1."), 1, "WorkerDied: Try again with --workers 1."),
        (PermissionError(13, "Permission denied", "/out/x.csv"), 1, "/out/x.csv: Permission denied"),
    ):

        def fail(raised: BaseException = error) -> None:
            raise raised

        monkeypatch.setattr(cli, "app", fail)
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert stopped.value.code == code
        assert text in capsys.readouterr().err


# What is shown to a user of the command line as it is: the draft of a schema, and how a page was made.
SHOWN_AS_IT_IS = {"`conddp reproduce ", " --quick", "(two with `--quick`)"}


@pytest.mark.parametrize("name", [name for name in modules() if name.split(".")[0] != "cli"])
def test_the_library_does_not_speak_of_options_or_commands(name: str) -> None:
    tree = ast.parse(modules()[name].read_text())
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    docstrings = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = node.value
            for allowed in SHOWN_AS_IT_IS:
                text = text.replace(allowed, "")
            assert not re.search(r"(^|[\s`(])--[a-z]|`conddp \w", text), text


def test_an_experiment_writes_its_tables_figures_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.research.experiments.reproduce.EXPERIMENTS", {"linear-real": make_tiny()})
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


def test_an_interrupted_experiment_says_that_results_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("conddp.research.experiments.reproduce.measure_cells", stop)
    result = runner.invoke(cli.app, ["reproduce", "synthetic", "--out", str(tmp_path / "out")])
    assert result.exit_code == 130
    assert "Finished measurements are kept" in result.stderr


def test_missing_matplotlib_is_noticed_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("measured first")

    monkeypatch.setattr("conddp.errors.find_spec", lambda name: None)
    monkeypatch.setattr("conddp.research.experiments.reproduce.measure_cells", refuse)
    result = runner.invoke(cli.app, ["reproduce", "synthetic", "--out", str(tmp_path / "out")])
    assert "conddp[reproduce]" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_without_data_the_command_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("conddp.research.datasets._folders", lambda: iter([tmp_path]))
    monkeypatch.setattr(sys, "argv", ["conddp", "reproduce", "mlp-real", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        cli.main()
    assert "Download one with `conddp data fetch NAME`" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("module", ["conddp", "conddp.cli.main"])
def test_modules_can_be_run_in_place_of_the_program(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("conddp ") and not done.stderr


# --- from a table to a private model


def test_from_a_table_to_predictions(table: Path, tmp_path: Path) -> None:
    draft, model, out, ledger = (tmp_path / name for name in ("draft.toml", "model", "out.parquet", "ledger.jsonl"))
    assert (
        runner.invoke(cli.app, ["schema", "init", str(table), "--label", "price", "--out", str(draft)]).exit_code == 0
    )
    text = draft.read_text()
    assert 'name = "price"  # number' in text and "bounds = []" in text
    columns = tomllib.loads(text)["undecided"]["columns"]
    assert columns == ["rooms", "age", "income", "town"]
    fitting = ["fit", str(table), "--schema", str(draft), "--out", str(model)]
    assert "4 columns are undecided" in str(runner.invoke(cli.app, fitting).exception)
    text = text.replace("bounds = []  # [low, high]", "bounds = [0, 500]").replace("[dropped]", "[public.old]")
    text = (
        text.replace("[public]", "[dropped]").replace("[undecided]", "[public]").replace("[public.old]", "[undecided]")
    )
    draft.write_text(text.replace('  "town",  # text\n', ""))
    assert Schema.load(draft).public == ("rooms", "age", "income")

    init = ["ledger", "init", str(ledger), "--epsilon", "2", "--delta", "1e-5"]
    assert runner.invoke(cli.app, init).exit_code == 0
    fitted = runner.invoke(
        cli.app, ["fit", str(table), "--schema", str(draft), "--ledger", str(ledger), "--out", str(model)]
    )
    assert fitted.exit_code == 0, fitted.output
    assert "(1, 1e-06)-differentially private" in " ".join(fitted.stdout.split())
    assert fitted.stdout.endswith("model, a linear model\n")
    predicted = runner.invoke(cli.app, ["predict", str(model), str(table), "--out", str(out)])
    assert "200 predictions" in predicted.stdout
    kept = tmp_path / "kept.csv"
    keeping = ["predict", str(model), str(table), "--out", str(kept), "--keep", "town,age", "--keep", "price"]
    assert runner.invoke(cli.app, keeping).exit_code == 0
    lines = kept.read_text().splitlines()
    assert lines[0] == '"town","age","price","price_predicted"' and len(lines) == 201
    unknown = runner.invoke(cli.app, [*keeping[:-1], "prices", "--force"])
    assert unknown.exit_code == 2 and "--keep names 'prices'" in " ".join(unknown.output.split())
    values = pyarrow.parquet.read_table(out)["price_predicted"].to_numpy()
    assert values.shape == (200,) and values.min() >= 0 and values.max() <= 500

    shown = json.loads(runner.invoke(cli.app, ["ledger", "show", str(ledger), "--json"]).stdout)
    assert shown["plain_sum"] == {"epsilon": 1.0, "delta": 1e-6}
    assert shown["spent"]["delta"] == 1e-5 and 0.8 < shown["spent"]["epsilon"] < 0.9  # less at a larger delta
    assert shown["chain"] == {"whole": True, "entries_before": 0} and shown["unit"] is None
    assert (
        shown["entries"][-1]["event"][0]["kind"] == "gaussian" and shown["entries"][-1]["table"]["num_records"] == 200
    )
    text = " ".join(runner.invoke(cli.app, ["ledger", "show", str(ledger)]).stdout.split())
    assert f"spent epsilon={shown['spent']['epsilon']:g} at delta=1e-05" in text
    assert "plain sum epsilon=1 at delta=1e-06" in text and "file unchanged" in text
    rest = f"epsilon={shown['remaining']['epsilon']:g} at delta=1e-05"
    assert f"remaining one more full-batch fit with {rest}" in text
    by_person = ["ledger", "init", str(tmp_path / "p.jsonl"), "--epsilon", "2", "--delta", "1e-5", "--unit", "person"]
    assert runner.invoke(cli.app, by_person).exit_code == 0
    assert PrivacyLedger.load(tmp_path / "p.jsonl").unit == "person"
    half = tmp_path / "half.csv"
    half.write_text("\n".join(table.read_text().splitlines()[:101]) + "\n")
    again = ["fit", str(half), "--schema", str(draft), "--ledger", str(ledger), "--epsilon", "0.1", "--out"]
    refused = runner.invoke(cli.app, [*again, str(tmp_path / "half")])
    assert isinstance(refused.exception, LedgerError) and "another table" in str(refused.exception)
    assert "say so with --other-rows." in name_options(str(refused.exception))
    assert runner.invoke(cli.app, [*again, str(tmp_path / "half"), "--other-rows"]).exit_code == 0
    of_model = json.loads(runner.invoke(cli.app, ["ledger", "show", str(model), "--json"]).stdout)
    assert of_model["spent"] == shown["spent"]


def test_the_common_case_needs_no_schema_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("a,b,c,y\n" + "".join(f"{i},{i % 7},{i % 3},{i % 5}\n" for i in range(100)))
    model = tmp_path / "model"
    arguments = ["fit", str(path), "--label", "y", "--label-bounds", "0,5", "--private", "c=0,2", "--out", str(model)]
    refused = runner.invoke(cli.app, arguments)
    assert refused.exit_code == 2 and "2 columns are neither public nor private" in " ".join(refused.output.split())
    result = runner.invoke(cli.app, [*arguments, "--public", "all", "--json"])
    assert result.exit_code == 0, result.output
    assert "private column 'c'" in json.loads(result.stdout)["guarantee"]
    saved = load_model(model)
    assert saved.schema == Schema.of(label="y", label_bounds=(0, 5), public=["a", "b"], private={"c": (0, 2)})


def test_names_that_look_like_markup_are_printed_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("[red]a,[/b],y\n" + "".join(f"{i},{i % 7},{i % 5}\n" for i in range(50)))
    result = runner.invoke(
        cli.app,
        [
            *("fit", str(path), "--label", "y", "--label-bounds", "0,5", "--public", "all"),
            *("--out", str(tmp_path / "[bold]")),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "'[red]a', '[/b]'" in result.stdout and "[bold]" in result.stdout
    assert "CondNewton" in runner.invoke(cli.app, ["ledger", "show", str(tmp_path / "[bold]")]).stdout


def test_no_budget_is_spent_where_the_model_cannot_be_written(table: Path, schema: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "l.jsonl"
    PrivacyLedger(PrivacyBudget(2.0, 1e-5), path=ledger)
    arguments = ["fit", str(table), "--schema", str(schema), "--ledger", str(ledger), "--out", f"{table}/m"]
    assert runner.invoke(cli.app, arguments).exit_code == 1
    assert PrivacyLedger.load(ledger).spent == PrivacyBudget(0.0, 0.0)


def test_the_draft_of_a_schema_does_not_depend_on_values(tmp_path: Path) -> None:
    texts = []
    for number, value in enumerate((1.5, 1e9)):
        path = tmp_path / f"{number}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"a": [value], "y": [value]}), path)
        out = tmp_path / f"{number}.toml"
        runner.invoke(cli.app, ["schema", "init", str(path), "--out", str(out)])
        texts.append(out.read_text())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("command", ["plan", "compare"])
def test_heads_that_cannot_be_planned_are_not_offered(command: str, table: Path, schema: Path) -> None:
    shown = " ".join(runner.invoke(cli.app, [command, "--help"], env={"COLUMNS": "200"}).stdout.split())
    assert "linear, additive, learned, wide" in shown and "auto, linear" not in shown
    refused = runner.invoke(cli.app, [command, str(table), "--schema", str(schema), "--head", "auto"])
    assert refused.exit_code == 2
    assert "auto, linear" in " ".join(runner.invoke(cli.app, ["fit", "--help"], env={"COLUMNS": "200"}).stdout.split())


def test_plan_compare_and_report(table: Path, schema: Path, tmp_path: Path) -> None:
    stored, model, page = tmp_path / "plan.json", tmp_path / "model", tmp_path / "page.html"
    planned = runner.invoke(
        cli.app, ["plan", str(table), "--schema", str(schema), "--out", str(stored), "--workers", "1"]
    )
    assert planned.exit_code == 0, planned.output
    text = " ".join(planned.stdout.split())
    assert "condition number" in text and "spectrum" in text
    assert "Error on simulated labels over that of linear least squares without privacy" in text
    assert re.search(
        r"Use [a-z' -]+ with an? [a-z]+ head\. At epsilon 1", text
    )  # which one is chance, with 200 records
    assert text.endswith("may learn features instead: add --head linear to fit a linear model.")
    assert json.loads(stored.read_text())["conddp_plan"] == 3
    fitted = ["fit", str(table), "--schema", str(schema), "--out", str(model)]
    assert runner.invoke(cli.app, fitted).exit_code == 0
    for source, more in ((model, ["--plan", str(stored)]), (stored, [])):
        result = runner.invoke(cli.app, ["report", str(source), *more, "--out", str(page), "--force"])
        assert result.exit_code == 0, result.output
        assert "Expected error" in page.read_text()
    assert "epsilon" in runner.invoke(cli.app, ["plan", "--help"]).stdout

    compared = runner.invoke(
        cli.app,
        [
            *("compare", str(table), "--schema", str(schema), "--algorithm", "auto", "--algorithm", "one-shot"),
            *("--epsilon", "2", "--workers", "1", "--out", str(tmp_path / "c.json")),
        ],
    )
    assert compared.exit_code == 0, compared.output
    assert "epsilon 2" in compared.stdout and "not tried: one-shot" in compared.stdout
    assert "These numbers are for a linear model." in " ".join(compared.stdout.split())
    markdown = tmp_path / "c.md"
    assert runner.invoke(cli.app, ["report", str(tmp_path / "c.json"), "--out", str(markdown)]).exit_code == 0
    assert markdown.read_text().startswith("# Algorithms compared on simulated labels")
    as_json = ["compare", str(table), "--schema", str(schema), "--algorithm", "auto", "--epsilon", "2", "--json"]
    assert set(json.loads(runner.invoke(cli.app, [*as_json, "--workers", "1"]).stdout)["errors"]) == {"auto"}


@pytest.mark.parametrize(
    ("kind", "with_schema"),
    [
        ("parquet", True),
        ("csv", False),
        pytest.param("parquet", False, marks=pytest.mark.slow),
        pytest.param("csv", True, marks=pytest.mark.slow),
    ],
)
def test_plan_and_compare_never_open_the_label_or_a_private_column(
    tmp_path: Path, schema: Path, kind: str, with_schema: bool
) -> None:
    """The cells of both columns are damaged: whoever touches them fails, as fit does."""
    rng = np.random.default_rng(0)
    rooms, age = rng.uniform(1, 9, size=200), rng.uniform(0, 90, size=200)
    path = tmp_path / f"homes.{kind}"
    if kind == "csv":
        lines = [
            f"{a},{b},{'77.123' if i else 'secret'},{'' if i else 'secret'}"
            for i, (a, b) in enumerate(zip(rooms, age, strict=True))
        ]
        path.write_text("rooms,age,income,price\n" + "\n".join(lines) + "\n")
    else:
        columns = {"rooms": rooms, "age": age, "income": rooms, "price": age}
        pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="none", use_dictionary=False)
        content = bytearray(path.read_bytes())
        groups = pyarrow.parquet.read_metadata(path)
        for group in range(groups.num_row_groups):
            for number in (2, 3):
                chunk = groups.row_group(group).column(number)
                start = chunk.data_page_offset
                content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
        path.write_bytes(content)
    options = ["--schema", str(schema)]
    if not with_schema:
        options = ["--label", "price", "--label-bounds", "0,500", "--private", "income=0,100", "--public", "all"]
    for command in (["plan"], ["compare", "--algorithm", "auto", "--epsilon", "1"]):
        result = runner.invoke(cli.app, [command[0], str(path), *command[1:], *options, "--workers", "1", "--json"])
        assert result.exit_code == 0, f"{result.output} {result.exception!r}"
        assert "secret" not in result.output
    failed = runner.invoke(cli.app, ["fit", str(path), *options, "--out", str(tmp_path / "model")])
    assert isinstance(failed.exception, SchemaError)
    assert "secret" not in str(failed.exception)


@pytest.mark.parametrize(
    ("command", "target", "message"),
    [
        (["fit", "{table}", "--schema", "{schema}", "--out", "{dir}/m"], "fit_file", "the cost is in the ledger"),
        (["plan", "{table}", "--schema", "{schema}"], "plan_file", "nothing was spent"),
        (["compare", "{table}", "--schema", "{schema}"], "compare_file", "nothing was spent"),
    ],
)
def test_an_interrupted_command_says_what_became_of_it(
    command: list[str], target: str, message: str, table: Path, schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"conddp.files.{target}", stop)
    places = {"table": str(table), "schema": str(schema), "dir": str(table.parent)}
    result = runner.invoke(cli.app, [argument.format(**places) for argument in command])
    assert result.exit_code == 130
    assert message in result.stderr


def test_a_huge_epsilon_is_allowed_and_called_what_it_is(table: Path, schema: Path, tmp_path: Path) -> None:
    arguments = ["fit", str(table), "--schema", str(schema), "--epsilon", "1000", "--out", str(tmp_path / "m")]
    result = runner.invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "(1000, 1e-06)-differentially private" in " ".join(result.stdout.split())
    page = tmp_path / "page.md"
    assert runner.invoke(cli.app, ["report", str(tmp_path / "m"), "--out", str(page)]).exit_code == 0
    assert "protects hardly anyone" in page.read_text()


def test_no_budget_is_spent_on_columns_that_cannot_be_described(tmp_path: Path) -> None:
    path, ledger = tmp_path / "huge.csv", tmp_path / "l.jsonl"
    path.write_text("a,y\n" + "".join(f"{i}e200,{i % 5}\n" for i in range(50)))
    PrivacyLedger(PrivacyBudget(2.0, 1e-5), path=ledger)
    options = ["--label", "y", "--label-bounds", "0,5", "--public", "a", "--algorithm", "mean", "--ledger", str(ledger)]
    result = runner.invoke(cli.app, ["fit", str(path), *options, "--out", str(tmp_path / "m")])
    assert isinstance(result.exception, SchemaError)
    assert PrivacyLedger.load(ledger).spent == PrivacyBudget(0.0, 0.0)


def test_a_pure_algorithm_needs_no_delta(table: Path, tmp_path: Path) -> None:
    columns = ["--label", "price", "--label-bounds", "0,500", "--public", "rooms,age", "--delta", "0"]
    for algorithm in ("rr-on-bins", "auto"):
        out = tmp_path / algorithm
        result = runner.invoke(cli.app, ["fit", str(table), *columns, "--algorithm", algorithm, "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert load_model(out).guarantee.delta == 0.0
    refused = runner.invoke(cli.app, ["fit", str(table), *columns, "--algorithm", "mean", "--out", str(tmp_path / "m")])
    assert refused.exit_code == 2 and "strictly between 0 and 1" in " ".join(refused.output.split())
    few = ["--algorithm", "auto", "--algorithm", "mean", "--epsilon", "1", "--workers", "1"]
    compared = runner.invoke(cli.app, ["compare", str(table), *columns, *few])
    assert compared.exit_code == 0 and "not tried: mean: it needs a delta above 0." in compared.stdout
    audited = runner.invoke(cli.app, ["audit", "rr-on-bins", "mean", "--delta", "0", "--fits", "6"])
    assert audited.exit_code == 0 and "not audited: mean" in audited.stdout


def test_a_plan_goes_with_its_own_model_only(table: Path, schema: Path, tmp_path: Path) -> None:
    plan, model = tmp_path / "plan.json", tmp_path / "model"
    options = ["--schema", str(schema)]
    assert runner.invoke(cli.app, ["plan", str(table), *options, "--out", str(plan), "--workers", "1"]).exit_code == 0
    table.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")  # one record fewer
    assert runner.invoke(cli.app, ["fit", str(table), *options, "--out", str(model)]).exit_code == 0
    arguments = ["report", str(model), "--plan", str(plan), "--out", str(tmp_path / "r.html")]
    assert "other columns or records" in str(runner.invoke(cli.app, arguments).exception)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("epsilon",), 3.0),
        (("comparison", "errors"), {}),
        (("comparison", "errors", "auto"), [[0.0] * 11] * 5),
        (("comparison", "errors", "auto"), [[1.0] * 11]),
        (("comparison", "constant"), []),
        (("comparison", "delta"), 1),
        (("design", "rank"), 0),
        (("design", "singular_values"), []),
        (("design", "conditioned_cost"), -1.0),
        (("design", "num_records"), None),
        (("design", "improvement"), None),
    ],
)
def test_a_damaged_plan_is_refused_whatever_the_damage(
    table: Path, schema: Path, tmp_path: Path, place: tuple[str, ...], value: object
) -> None:
    stored = store_plan(tmp_path)
    content = json.loads(stored.read_text())
    part = content
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    stored.write_text(json.dumps(content))
    result = runner.invoke(cli.app, ["report", str(stored), "--out", str(tmp_path / "r.html")])
    assert isinstance(result.exception, SchemaError), result.exception
    assert "is damaged" in str(result.exception)


def test_a_terminal_that_lacks_characters_is_no_error(table: Path, schema: Path) -> None:
    program = "import sys; from conddp.cli.main import main; sys.argv[0] = 'conddp'; main()"
    arguments = ["plan", str(table), "--schema", str(schema), "--workers", "1"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
    )
    assert done.returncode == 0, done.stderr


def test_a_demo_without_its_extra_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.errors.find_spec", lambda name: None)
    result = runner.invoke(cli.app, ["demo", "--out", str(tmp_path / "out")])
    assert "conddp[demo]" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_the_demo_ends_with_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_or_skip("boston_housing")
    monkeypatch.setattr("conddp.research.demo.EPSILONS", (1.0, 4.0))
    monkeypatch.setattr("conddp.research.demo.make_plan", partial(make_plan, algorithms=["auto"]))
    result = runner.invoke(cli.app, ["demo", "--out", str(tmp_path), "--seeds", "1", "--data", "boston_housing"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "report.html").read_text().count('<svg class="chart"') >= 4
    assert load_model(tmp_path / "model").guarantee.epsilon == 1.0
    again = runner.invoke(cli.app, ["demo", "--out", str(tmp_path), "--seeds", "1", "--data", "boston_housing"])
    assert again.exit_code == 0, again.output  # over its own earlier run
    assert runner.invoke(cli.app, ["demo", "--data", "iris"]).exit_code == 2
