"""Bad input on the command line: what is said, the exit code, and that no private value is shown."""

import re
import sys
from pathlib import Path

import pytest

from conddp.cli import main as cli
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from tests.test_storage import store_plan

BAD_INPUT: list[tuple[str, list[str], int, str]] = [
    ("missing file", ["fit", "{dir}/none.csv", "--schema", "{schema}", "--out", "{dir}/m"], 1, "does not exist"),
    ("a folder", ["fit", "{dir}", "--schema", "{schema}", "--out", "{dir}/m"], 1, "holds .parquet and .csv files"),
    ("empty file", ["fit", "{empty}", "--schema", "{schema}", "--out", "{dir}/m"], 1, "is empty, or not a valid"),
    ("no rows", ["fit", "{headonly}", "--schema", "{schema}", "--out", "{dir}/m"], 1, "no rows"),
    ("not parquet", ["fit", "{fake}", "--schema", "{schema}", "--out", "{dir}/m"], 1, "not a valid .parquet file"),
    ("no schema", ["fit", "{table}", "--schema", "{dir}/none.toml", "--out", "{dir}/m"], 1, "cannot be read"),
    ("bad schema", ["fit", "{table}", "--schema", "{table}", "--out", "{dir}/m"], 1, "not valid TOML"),
    ("nothing said", ["fit", "{table}", "--out", "{dir}/m"], 2, "give --schema FILE, or --label"),
    (
        "both said",
        ["fit", "{table}", "--schema", "{schema}", "--label", "price", "--out", "{dir}/m"],
        2,
        "give either --schema",
    ),
    (
        "undecided",
        ["fit", "{table}", "--label", "price", "--label-bounds", "0,500", "--out", "{dir}/m"],
        2,
        "4 columns are neither public nor private",
    ),
    (
        "public and private",
        [
            *("plan", "{table}", "--label", "price", "--label-bounds", "0,9", "--private", "age=0,1"),
            *("--public", "rooms,age"),
        ],
        2,
        "--public names 'age', which is not among the 3 other columns",
    ),
    (
        "category that is not public",
        [
            *("compare", "{table}", "--label", "price", "--label-bounds", "0,9", "--public", "rooms"),
            *("--category", "town"),
        ],
        2,
        "--category names 'town', which is not among the 1 public columns",
    ),
    (
        "unknown column",
        ["fit", "{other}", "--schema", "{schema}", "--out", "{dir}/m"],
        1,
        "is declared but not among",
    ),
    (
        "gap",
        ["fit", "{gap}", "--schema", "{schema}", "--out", "{dir}/m"],
        1,
        "'income' has gaps, and no value is declared",
    ),
    ("mixed types", ["fit", "{mixed}", "--schema", "{schema}", "--out", "{dir}/m"], 1, "column 'income' holds text"),
    ("twice", ["fit", "{twice}", "--schema", "{schema}", "--out", "{dir}/m"], 1, "'rooms' occurs twice"),
    ("epsilon 0", ["fit", "{table}", "--schema", "{schema}", "--epsilon", "0", "--out", "{dir}/m"], 2, "above 0"),
    ("epsilon -1", ["fit", "{table}", "--schema", "{schema}", "--epsilon", "-1", "--out", "{dir}/m"], 2, "above 0"),
    (
        "epsilon text",
        ["fit", "{table}", "--schema", "{schema}", "--epsilon", "x", "--out", "{dir}/m"],
        2,
        "valid number",
    ),
    (
        "delta 0",
        ["fit", "{table}", "--schema", "{schema}", "--delta", "0", "--out", "{dir}/m"],
        1,
        "no algorithm protects private columns with delta = 0",
    ),
    ("delta 1", ["fit", "{table}", "--schema", "{schema}", "--delta", "1", "--out", "{dir}/m"], 2, "strictly between"),
    (
        "bounds",
        ["fit", "{table}", "--label", "price", "--label-bounds", "9,1", "--public", "all", "--out", "{dir}/m"],
        1,
        "low < high",
    ),
    (
        "private",
        ["fit", "{table}", "--label", "price", "--label-bounds", "0,9", "--private", "town", "--out", "{dir}/m"],
        2,
        "NAME=LOW,HIGH or NAME=A|B|C, got 'town'",
    ),
    ("no header", ["fit", "{nohead}", "--schema", "{schema}", "--out", "{dir}/m"], 1, "Add a header"),
    ("no header", ["schema", "init", "{nohead}", "--out", "{dir}/s"], 1, "Add a header"),
    (
        "private twice",
        [
            *("fit", "{table}", "--label", "price", "--label-bounds", "0,9", "--out", "{dir}/m"),
            *("--private", "age=0,1", "--private", "age=0,9"),
        ],
        2,
        "names 'age' twice",
    ),
    ("out in a file", ["fit", "{table}", "--schema", "{schema}", "--out", "{table}/m"], 1, "cannot be written"),
    ("schema nowhere", ["schema", "init", "{table}", "--out", "{table}/s"], 1, "Not a directory"),
    ("ledger of bytes", ["ledger", "show", "{bytes}"], 1, "is not a text file"),
    ("algorithm", ["fit", "{table}", "--schema", "{schema}", "--algorithm", "ols", "--out", "{dir}/m"], 2, "'ols'"),
    ("head", ["fit", "{table}", "--schema", "{schema}", "--head", "tree", "--out", "{dir}/m"], 2, "'tree'"),
    ("exists", ["fit", "{table}", "--schema", "{schema}", "--out", "{dir}"], 1, "name another folder with --out"),
    (
        "plan over a report",
        ["plan", "{table}", "--schema", "{schema}", "--out", "{json}"],
        1,
        "overwrite it with --force",
    ),
    ("report over a file", ["report", "{stored}", "--out", "{json}"], 1, "overwrite it with --force"),
    ("predict over a file", ["predict", "{dir}/m", "{table}", "--out", "{gap}"], 1, "overwrite it with --force"),
    ("plan with a plan", ["report", "{stored}", "--plan", "{stored}"], 1, "the folder of a model only"),
    ("ledger exists", ["ledger", "init", "{ledger}", "--epsilon", "1", "--delta", "1e-6"], 1, "`conddp fit --ledger"),
    (
        "ledger",
        ["fit", "{table}", "--schema", "{schema}", "--ledger", "{dir}/no", "--out", "{dir}/m"],
        1,
        "cannot be read",
    ),
    (
        "budget",
        ["fit", "{table}", "--schema", "{schema}", "--ledger", "{ledger}", "--out", "{dir}/m"],
        1,
        "BudgetExceeded: fitting with epsilon=1 needs epsilon=1",
    ),
    (
        "plan with a misspelt label",
        ["plan", "{table}", "--label", "Price", "--label-bounds", "0,500", "--private", "income=0,100"],
        1,
        "column 'Price' is declared but not among",
    ),
    (
        "compare with a misspelt private column",
        ["compare", "{table}", "--label", "price", "--label-bounds", "0,500", "--private", "Income=0,100"],
        1,
        "column 'Income' is declared but not among",
    ),
    (
        "plan of another table",
        ["plan", "{nolabel}", "--schema", "{schema}"],
        1,
        "column 'price' is declared but not among",
    ),
    (
        "unclosed quote",
        ["fit", "{unclosed}", "--schema", "{schema}", "--out", "{dir}/m"],
        1,
        "is empty, or not a valid",
    ),
    ("semicolons", ["schema", "init", "{semicolons}", "--out", "{dir}/s"], 1, "with comma-separated names"),
    ("tabs", ["schema", "init", "{tabs}", "--out", "{dir}/s"], 1, "with comma-separated names"),
    ("money", ["plan", "{money}", "--schema", "{schema}"], 1, "with comma-separated names"),
    ("one record", ["plan", "{one}", "--schema", "{schema}"], 1, "for two records or more"),
    (
        "plan into a folder",
        ["plan", "{table}", "--schema", "{schema}", "--out", "{dir}/f.json", "--force"],
        1,
        "folder",
    ),
    (
        "plan below a file",
        ["plan", "{table}", "--schema", "{schema}", "--out", "{table}/p.json"],
        2,
        "cannot be written",
    ),
    (
        "demo in a full folder",
        ["demo", "--out", "{dir}"],
        1,
        "not made by an earlier demo. Name another folder with --out",
    ),
    ("older plan", ["report", "{older}", "--out", "{dir}/r.html"], 1, "written by an older conddp"),
    ("plan without a file", ["plan", "{dir}/none.csv", "--schema", "{schema}"], 1, "does not exist"),
    ("plan to text", ["plan", "{table}", "--schema", "{schema}", "--out", "{dir}/p.txt"], 2, ".json, .html or .md"),
    ("plan over a file", ["plan", "{table}", "--schema", "{schema}", "--out", "{fake}"], 2, ".json, .html or .md"),
    ("plan epsilon 0", ["plan", "{table}", "--schema", "{schema}", "--epsilon", "0"], 2, "above 0"),
    ("plan delta 1", ["plan", "{table}", "--schema", "{schema}", "--delta", "1"], 2, "strictly between"),
    ("plan head", ["plan", "{table}", "--schema", "{schema}", "--head", "tree"], 2, "'tree'"),
    ("compare algorithm", ["compare", "{table}", "--schema", "{schema}", "--algorithm", "ols"], 2, "'ols'"),
    (
        "compare nothing usable",
        ["compare", "{table}", "--schema", "{schema}", "--algorithm", "one-shot", "--workers", "1"],
        1,
        "no algorithm of ['one-shot'] can be used here",
    ),
    ("report of nothing", ["report", "{dir}/none", "--out", "{dir}/r.html"], 1, "there is no model folder"),
    ("report of a table", ["report", "{table}", "--out", "{dir}/r.html"], 1, "is not valid JSON"),
    ("report of JSON", ["report", "{json}", "--out", "{dir}/r.html"], 1, "neither a plan nor a comparison"),
    ("report of a newer plan", ["report", "{newer}", "--out", "{dir}/r.html"], 1, "newer than this conddp reads"),
    ("report of a damaged plan", ["report", "{damaged}", "--out", "{dir}/r.html"], 1, "is damaged"),
    ("no model", ["predict", "{dir}/m", "{table}", "--out", "{dir}/p.csv"], 1, "there is no model folder"),
    ("predict to text", ["predict", "{dir}/m", "{table}", "--out", "{dir}/p.txt"], 1, ".parquet or .csv"),
    ("not a ledger", ["ledger", "show", "{table}"], 1, "is damaged"),
    ("schema exists", ["schema", "init", "{table}", "--out", "{schema}"], 1, "overwrite it with --force"),
    (
        "label not there",
        ["schema", "init", "{table}", "--label", "cost", "--out", "{dir}/s"],
        1,
        "'cost' is declared but not among",
    ),
]


@pytest.mark.parametrize(("name", "arguments", "code", "message"), BAD_INPUT, ids=[case[0] for case in BAD_INPUT])
def test_bad_input_is_explained_and_shows_no_private_value(
    name: str,
    arguments: list[str],
    code: int,
    message: str,
    table: Path,
    schema: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = "77.123"
    files = {
        "empty": ("empty.csv", ""),
        "headonly": ("head.csv", "rooms,age,income,price\n"),
        "fake": ("fake.parquet", "rooms,age,income,price\n1,2,77.123,4\n"),
        "other": ("other.csv", "a,b\n1,77.123\n"),
        "gap": ("gap.csv", "rooms,age,income,price\n1,2,77.123,4\n2,3,,5\n"),
        "mixed": ("mixed.csv", "rooms,age,income,price\n1,2,77.123,4\n2,3,much,5\n"),
        "gappublic": ("gappublic.csv", "rooms,age,income,price\n,2,77.123,4\n2,3,1,5\n"),
        "nolabel": ("nolabel.csv", "rooms,age,income\n1,2,77.123\n"),
        "unclosed": ("unclosed.csv", '"rooms,age,income,price\n1,2,77.123,4\n2,3,5,5\n'),
        "semicolons": ("semicolons.csv", "1;2;77.123;4\n2;3;5;5\n"),
        "tabs": ("tabs.csv", "1\t2\t77.123\t4\n"),
        "money": ("money.csv", '"$77.123","1,5","48,913"\n'),
        "one": ("one.csv", "rooms,age,income,price\n1,2,77.123,4\n"),
        "older": ("older.json", '{"conddp_plan": 1}'),
        "json": ("some.json", "[1, 2]"),
        "newer": ("newer.json", '{"conddp_plan": 99}'),
        "damaged": ("damaged.json", '{"conddp_plan": 3, "schema": 7}'),
        "nohead": ("nohead.csv", "1,2,77.123,4\n2,3,5,5\n"),
        "twice": ("twice.csv", "rooms,rooms,age,income,price\n1,1,2,77.123,4\n"),
    }
    places = {"dir": str(tmp_path), "table": str(table), "schema": str(schema), "ledger": str(tmp_path / "l.jsonl")}
    for key, (file, content) in files.items():
        (tmp_path / file).write_text(content)
        places[key] = str(tmp_path / file)
    (tmp_path / "f.json").mkdir()
    places["stored"] = str(store_plan(tmp_path))
    PrivacyLedger(PrivacyBudget(0.5, 1e-6), path=places["ledger"])
    places["bytes"] = str(tmp_path / "bytes.jsonl")
    Path(places["bytes"]).write_bytes(b"\xff\xfe\x00")
    monkeypatch.setattr(sys, "argv", ["conddp", *(argument.format(**places) for argument in arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    error = capsys.readouterr().err
    assert stopped.value.code == code, error
    assert message in " ".join(error.replace("│", " ").split()), error
    assert not re.search(r"overwrite=|num_workers=|Privacy\w+\.|fetch_dataset", error)  # options, not arguments
    assert "Traceback" not in error and secret not in error and "much" not in error
    assert not (tmp_path / "m").exists()
    if name == "budget":
        assert PrivacyLedger.load(places["ledger"]).spent == PrivacyBudget(0.0, 0.0)
