"""Questions on a terminal that decide on the columns of a table. Answers come from the user, never from the data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from conddp.cli.columns import parse_bounds, parse_declaration

if TYPE_CHECKING:
    from conddp.data.draft import SchemaDraft

__all__ = ["ask_columns"]

ROLES = """
For every column, say what may be known of it:
  p  public: everyone may know it of every record; it costs no privacy
  c  public, and a code rather than an amount, such as a zip code
  v  private: a feature to protect
  d  drop: not used
  u  unit: public, and says whose each record is, such as a customer number
  l  later: stays undecided
  q  later for this and all that follow
"""
LONG_ANSWERS = {
    "public": "p",
    "category": "c",
    "code": "c",
    "private": "v",
    "drop": "d",
    "unit": "u",
    "later": "l",
    "quit": "q",
}


def ask_columns(draft: "SchemaDraft", data: Path) -> "SchemaDraft":
    """Ask for the label, its range and the role of every undecided column.

    Raises
    ------
    typer.Exit
        With code 130 on Ctrl-C or at the end of the input.
    """
    try:
        return _ask(draft, data)
    except typer.Abort:
        typer.echo("\nInterrupted. Nothing was written.", err=True)
        raise typer.Exit(130) from None


def _ask(draft: "SchemaDraft", data: Path) -> "SchemaDraft":
    typer.echo(f"{data} has {len(draft.types)} columns. Only their names and types are read.")
    if draft.label is None:
        for name in draft.undecided:
            typer.echo(f"  {name}: {draft.types[name]}")
        draft = replace(draft, label=_prompt("Which column is predicted", _choose_among(draft.undecided)))
    if draft.label_bounds is None:
        typer.echo("Ranges come from what you know of a column, never from the data. Values outside are clamped.")
        draft = _prompt(
            f"Range of '{draft.label}', LOW,HIGH, or empty for later", _read_label_bounds(draft), default=""
        )
    if draft.undecided:
        typer.echo(ROLES)
    for name in draft.undecided:
        answer = _prompt(f"{name} ({draft.types[name]})  p c v d u l q", _read_role(draft), default="l", shown=False)
        if answer == "q":
            break
        draft = _decide(draft, name, answer)
    return draft


def _decide(draft: "SchemaDraft", name: str, answer: str) -> "SchemaDraft":
    from conddp.data.types import BOOLEAN

    if answer == "p":
        return replace(draft, public=(*draft.public, name))
    if answer == "c":
        return replace(draft, public=(*draft.public, name), kinds={**draft.kinds, name: "category"})
    if answer == "d":
        return replace(draft, dropped=(*draft.dropped, name))
    if answer == "u":
        return replace(draft, unit=name)
    if answer == "v" and draft.types[name] == BOOLEAN:
        draft = replace(draft, private={**draft.private, name: {"kind": "boolean"}})
    elif answer == "v":
        question = f"  range LOW,HIGH or categories A|B|C of '{name}', or empty for later"
        draft = _prompt(question, _read_private(draft, name), default="")
    if name in draft.private:
        gap = "  value that stands for a gap, or empty if there are none"
        draft = _prompt(gap, _read_fill(draft, name), default="")
    return draft


def _choose_among(names: tuple[str, ...]) -> Callable[[str], str]:
    def choose(text: str) -> str:
        if text not in names:
            raise typer.BadParameter("that is not the name of a column. Type one of the names above.")
        return text

    return choose


def _read_role(draft: "SchemaDraft") -> Callable[[str], str]:
    def read(text: str) -> str:
        answer = LONG_ANSWERS.get(text.strip().lower(), text.strip().lower())
        if answer not in set(LONG_ANSWERS.values()):
            raise typer.BadParameter("answer p, c, v, d, u, l or q.")
        if answer == "u" and draft.unit is not None:
            raise typer.BadParameter(f"'{draft.unit}' is the unit already. Answer p, c, v, d, l or q.")
        return answer

    return read


def _read_label_bounds(draft: "SchemaDraft") -> Callable[[str], "SchemaDraft"]:
    def read(text: str) -> "SchemaDraft":
        return draft if not text.strip() else replace(draft, label_bounds=parse_bounds(text, option="the range"))

    return _explain(read)


def _read_private(draft: "SchemaDraft", name: str) -> Callable[[str], "SchemaDraft"]:
    def read(text: str) -> "SchemaDraft":
        if not text.strip():
            return draft
        declared = parse_declaration(text.strip(), option="the answer")
        key = "categories" if isinstance(declared, list) else "bounds"
        return replace(draft, private={**draft.private, name: {key: declared}})

    return _explain(read)


def _read_fill(draft: "SchemaDraft", name: str) -> Callable[[str], "SchemaDraft"]:
    def read(text: str) -> "SchemaDraft":
        from datetime import date

        if not text.strip():
            return draft
        declared: Any = draft.private[name]
        is_date = "bounds" in declared and isinstance(declared["bounds"][0], date)
        try:
            fill = date.fromisoformat(text.strip()) if is_date else text.strip()
        except ValueError:
            raise typer.BadParameter("it must be a date such as 1990-12-31.") from None
        return replace(draft, private={**draft.private, name: {**declared, "fill": fill}})

    return _explain(read)


def _explain(read: Callable[[str], "SchemaDraft"]) -> Callable[[str], "SchemaDraft"]:
    """Turn errors of the library into another try."""
    from conddp.errors import SchemaError

    def explained(text: str) -> "SchemaDraft":
        try:
            return read(text)
        except SchemaError as error:
            raise typer.BadParameter(str(error)) from None

    return explained


def _prompt(question: str, read: Callable[[str], Any], *, default: str | None = None, shown: bool = False) -> Any:
    """Ask until the answer can be read."""
    return typer.prompt(question, default=default, value_proc=read, show_default=shown)
