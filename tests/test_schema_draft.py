"""Drafts of schemas: nothing is public, private or dropped unless the user says so."""

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time
import tomllib
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from conddp.cli import main as cli
from conddp.cli import schema as command
from conddp.cli.columns import ColumnOptions, parse_declaration
from conddp.data.column import Kind
from conddp.data.draft import SchemaDraft
from conddp.data.readers import read_column_names, read_column_types
from conddp.data.schema import Schema
from conddp.data.types import name_type
from conddp.errors import OutputExists, SchemaError

runner = CliRunner()
TYPES = {"rooms": "whole number", "zip": "whole number", "town": "text", "income": "number", "price": "number"}
PATIENCE = 120.0  # seconds to wait for a program, on a machine that is busy
CSV = "rooms,zip,town,income,sold,seen,price\n3,8001,SECRETtown,77123.5,2024-01-05,2024-01-05 10:00:00,41\n"


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    path = tmp_path / "homes.csv"
    path.write_text(CSV)
    return path


def init(homes: Path, *options: str, answers: str = "") -> tuple[int, str, Path]:
    out = homes.parent / "schema.toml"
    done = runner.invoke(cli.app, ["schema", "init", str(homes), "--out", str(out), *options], input=answers)
    return done.exit_code, " ".join(done.output.split()) + str(done.exception or ""), out


def test_every_column_but_the_label_is_undecided(homes: Path) -> None:
    code, printed, out = init(homes, "--label", "price")
    assert code == 0 and "6 undecided" in printed
    content = tomllib.loads(out.read_text())
    assert content["undecided"]["columns"] == ["rooms", "zip", "town", "income", "sold", "seen"]
    assert content["label"] == {"name": "price", "bounds": []}
    assert content["public"]["columns"] == content["dropped"]["columns"] == [] and "private" not in content
    with pytest.raises(SchemaError, match="6 columns are undecided"):
        Schema.load(out)


def test_types_are_told_and_no_cell_range_or_count(homes: Path) -> None:
    _, printed, out = init(homes, "--label", "price")
    text = out.read_text()
    for line in ('"zip",  # whole number', '"town",  # text', '"sold",  # date', '"seen",  # time stamp'):
        assert line in text
    for cell in ("SECRETtown", "8001", "77123", "2024", "41"):
        assert cell not in text + printed


def test_the_draft_depends_on_names_and_types_only(tmp_path: Path) -> None:
    texts = []
    for number, values in enumerate(([1.5, 2.5], [1e9, -3.25], [0.5] * 50)):
        table = pyarrow.table({"a": values, "b": [f"{value}" for value in values]})
        pyarrow.parquet.write_table(table, tmp_path / f"{number}.parquet")
        texts.append(SchemaDraft(read_column_types(tmp_path / f"{number}.parquet"), "a").to_toml())
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (pyarrow.int8(), "whole number"),
        (pyarrow.float32(), "number"),
        (pyarrow.bool_(), "true or false"),
        (pyarrow.decimal128(9, 2), "decimal number"),
        (pyarrow.date32(), "date"),
        (pyarrow.timestamp("ms", "UTC"), "time stamp"),
        (pyarrow.time64("us"), "time of day"),
        (pyarrow.duration("s"), "duration"),
        (pyarrow.large_string(), "text"),
        (pyarrow.binary(), "bytes"),
        (pyarrow.list_(pyarrow.int8()), "nested values"),
        (pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), "category, stored as text"),
        (pyarrow.null(), "type unknown"),
    ],
)
def test_types_have_words(kind: pyarrow.DataType, word: str) -> None:
    assert name_type(kind) == word


def test_options_decide_and_the_rest_stays_undecided(homes: Path) -> None:
    code, printed, out = init(
        *(homes, "--label", "price", "--label-bounds", "0,90", "--public", "rooms,zip", "--public", "seen"),
        *("--category", "zip", "--private", "income=0,200000", "--private", "town=a|b c", "--drop", "sold"),
    )
    assert code == 0, printed
    assert "none undecided" in printed and f"Next: conddp plan {homes} --schema {out}" in printed
    assert Schema.load(out) == Schema.of(
        label="price",
        label_bounds=(0, 90),
        public=["rooms", "zip", "seen"],
        kinds={"zip": "category"},
        private={"income": (0, 200000), "town": ["a", "b c"]},
        dropped=["sold"],
    )
    code, printed, _ = init(homes, "--label", "price", "--public", "rooms", "--unit", "town", "--force")
    content = tomllib.loads(out.read_text())
    assert content["undecided"]["columns"] == ["zip", "income", "sold", "seen"]
    assert content["unit"] == {"column": "town"}
    assert "declare the range of the label and move every undecided column" in printed


def test_all_is_a_decision_too_unless_a_column_is_called_so(homes: Path, tmp_path: Path) -> None:
    _, _, out = init(homes, "--label", "price", "--public", "all", "--drop", "town", "--private", "income=0,9")
    assert tomllib.loads(out.read_text())["public"]["columns"] == ["rooms", "zip", "sold", "seen"]
    odd = tmp_path / "odd.csv"
    odd.write_text("all,b,y\n1,2,3\n")
    init(odd, "--label", "y", "--public", "all", "--force")
    content = tomllib.loads(out.read_text())
    assert content["public"]["columns"] == ["all"] and content["undecided"]["columns"] == ["b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--label", "prize"], "column 'prize' is declared but not among"),
        (["--public", "rooms,room"], "--public names 'room', which is not among the 7 other columns"),
        (["--public", "rooms", "--drop", "rooms"], "column 'rooms' is named as public column and as dropped column"),
        (["--public", "rooms,rooms"], "--public names a column twice"),
        (["--private", "income=1"], "must be a range LOW,HIGH of numbers or dates, or categories A|B|C, got '1'"),
        (["--private", "income=9,1"], "low < high"),
        (["--private", "town=a|a"], "different categories"),
        (["--category", "zip"], "--category names 'zip', which is not among the 0 public columns"),
        (["--unit", "who"], "column 'who' is declared but not among"),
    ],
)
def test_wrong_names_and_declarations_are_refused_and_nothing_is_written(
    homes: Path, options: list[str], message: str
) -> None:
    code, printed, out = init(homes, *options)
    assert code != 0 and message in printed.replace(" │ │ ", " ").replace("│", "")
    assert not out.exists()


def test_an_existing_draft_is_not_overwritten(homes: Path) -> None:
    init(homes)
    done = runner.invoke(cli.app, ["schema", "init", str(homes), "--out", str(homes.parent / "schema.toml")])
    assert isinstance(done.exception, OutputExists) and isinstance(done.exception, FileExistsError)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)


@given(st.lists(names, min_size=2, max_size=7, unique=True), st.data())
def test_a_draft_reads_back_as_the_schema_that_was_decided(columns: list[str], data: st.DataObject) -> None:
    label, *others = columns
    roles = [data.draw(st.sampled_from(["public", "private", "dropped", "undecided"])) for _ in others]
    chosen = {role: [name for name, each in zip(others, roles, strict=True) if each == role] for role in roles}
    draft = SchemaDraft(
        dict.fromkeys(columns, "number"),
        label,
        (0, 1),
        public=tuple(chosen.get("public", ())),
        kinds=dict.fromkeys(chosen.get("public", ()), Kind.CATEGORY),
        private=dict.fromkeys(chosen.get("private", ()), (0, 9)),
        dropped=tuple(chosen.get("dropped", ())),
    )
    assert draft.undecided == tuple(chosen.get("undecided", ()))
    if draft.undecided:
        assert tomllib.loads(draft.to_toml())["undecided"]["columns"] == list(draft.undecided)
        with pytest.raises(SchemaError, match="undecided"):
            Schema.from_toml(draft.to_toml())
        return
    schema = Schema.from_toml(draft.to_toml())
    assert (schema.public, schema.private, schema.dropped) == (
        draft.public,
        tuple(chosen.get("private", ())),
        draft.dropped,
    )
    assert set(schema.kinds) == set(draft.public)


def test_ranges_of_dates_and_categories_with_odd_signs_can_be_declared() -> None:
    assert parse_declaration("-5,-1", option="x") == (-5.0, -1.0)
    options = ColumnOptions(private=["born=1900-01-01,2020-12-31", "a=b=0,1", "c=x=1|y,2"])
    assert Schema.of(label="y", label_bounds=(0, 1), private=options.declared).private_columns[0].kind is Kind.DATE
    assert options.declared["a=b"] == (0.0, 1.0) and options.declared["c"] == ["x=1", "y,2"]


def test_options_of_fit_make_nothing_public_by_silence(homes: Path) -> None:
    some = ColumnOptions("price", "0,90", public=["rooms"], private=["income=0,9"])
    assert some.read_schema(homes, None).names == ("price", "rooms", "income")  # nothing else is read
    everything = ColumnOptions("price", "0,90", public=["all"], dropped=["town"], categories=["zip"])
    schema = everything.read_schema(homes, None)
    assert schema.public == ("rooms", "zip", "income", "sold", "seen") and schema.kinds == {"zip": Kind.CATEGORY}


def test_names_are_read_without_opening_a_cell(tmp_path: Path) -> None:
    path = tmp_path / "damaged.csv"
    path.write_bytes(b"a,b,y\n1,2,3,4,5\n")
    assert read_column_names(path, leave_out=["y"]) == ["a", "b"]


# --- questions


def answer(homes: Path, monkeypatch: pytest.MonkeyPatch, *answers: str, options: tuple[str, ...] = ()) -> str:
    monkeypatch.setattr(command, "is_interactive", lambda: True)
    code, printed, _ = init(homes, *options, answers="\n".join(answers) + "\n")
    assert code == 0, printed
    return printed


def test_the_questions_end_with_a_schema_and_the_next_command(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = answer(
        homes,
        monkeypatch,
        *("prices", "price"),  # the first is no column
        *("9,1", "low,high", "0,90"),  # the first two are no range
        *("x", "p"),  # rooms; x is no answer
        "c",  # zip
        *("v", "north", "north|south", "east", "south"),  # town: no list of categories, and a fill that is none
        *("private", "0,200000", "-1", ""),  # income: a fill outside the range, then none
        "drop",  # sold
        "u",  # seen
    )
    out = homes.parent / "schema.toml"
    assert Schema.load(out) == Schema.of(
        label="price",
        label_bounds=(0, 90),
        public=["rooms", "zip"],
        kinds={"zip": "category"},
        private={"town": {"categories": ["north", "south"], "fill": "south"}, "income": (0, 200000)},
        dropped=["sold"],
        unit="seen",
    )
    assert "town (text)" in printed and f"Next: conddp plan {homes} --schema {out}" in printed
    for cell in ("SECRETtown", "8001", "77123", "2024"):
        assert cell not in printed


def test_later_is_the_answer_of_those_who_just_press_enter(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(homes, monkeypatch, "", "", "v", "", "q", options=("--label", "price"))
    content = tomllib.loads((homes.parent / "schema.toml").read_text())
    assert content["undecided"]["columns"] == ["rooms", "zip", "town", "income", "sold", "seen"]
    assert content["label"]["bounds"] == []


def test_nothing_is_asked_without_a_terminal_or_with_no_input(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Which column" not in init(homes)[1]
    monkeypatch.setattr(command, "is_interactive", lambda: True)
    assert "Which column" not in init(homes, "--no-input", "--force")[1]


def test_the_type_of_a_private_true_or_false_tells_its_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "smokers.csv"
    path.write_text("smoker,y\ntrue,1\nfalse,2\n")
    answer(path, monkeypatch, "v", "2", "0", options=("--label", "y", "--label-bounds", "0,9"))  # 2 is no fill
    (column,) = Schema.load(tmp_path / "schema.toml").private_columns
    assert (column.kind, column.fill) == (Kind.BOOLEAN, 0.0) and column.bounds is not None and column.bounds.high == 1


def test_interrupted_questions_write_nothing(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "is_interactive", lambda: True)
    code, printed, out = init(homes, "--label", "price", answers="0,9\np\n")  # and then the input ends
    assert code == 130 and "Nothing was written" in printed and not out.exists()


def test_a_terminal_is_noticed_and_ctrl_c_writes_nothing(homes: Path) -> None:
    ours, theirs = pty.openpty()
    program = "import sys; from conddp.cli.main import main; sys.argv[0] = 'conddp'; main()"
    out = homes.parent / "schema.toml"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "schema", "init", str(homes), "--out", str(out)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        assert "Which column is predicted" in _read_until(ours, "predicted:")
        os.write(ours, b"price\n")
        assert "Range of 'price'" in _read_until(ours, "later:")
        assert "Nothing was written" in _press_until(ours, b"\x03", "written.")
        assert process.wait(timeout=PATIENCE) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert not out.exists()


def _press_until(terminal: int, key: bytes, text: str, seconds: float = 10.0) -> str:
    """Press a key until a text is seen: the interpreter misses a signal just before it waits for a line."""
    seen = ""
    for _ in range(int(PATIENCE / seconds)):
        os.write(terminal, key)
        seen += _read_until(terminal, text, seconds)
        if text in seen:
            break
    return seen


def _read_until(terminal: int, text: str, seconds: float = PATIENCE) -> str:
    seen, deadline = "", time.monotonic() + seconds
    while text not in seen and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 4096).decode()
            except OSError:  # the other end is closed
                break
    return " ".join(seen.split())
