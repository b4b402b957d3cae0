"""The page on the command line, from the program itself: what ``--help`` prints, as Markdown."""

from collections.abc import Iterator
from typing import Any

__all__ = ["render_commands"]


def render_commands(app: Any, program: str) -> str:
    """Sections of a page, one for each command of a typer app, groups first named and then opened."""
    from typer import Context
    from typer.main import get_command

    return "\n".join(_render(get_command(app), Context, program, parent=None, level=1))


def _render(command: Any, make_context: Any, name: str, *, parent: Any, level: int) -> Iterator[str]:
    """Lines about one command and those below it."""
    context = make_context(command, info_name=name, parent=parent)
    if level > 1:  # the page has a heading already
        yield from (f"{'#' * level} `{context.command_path}`", "")
    if command.help:
        yield from (_as_markdown(command.help), "")
    yield from ("```text", " ".join([context.command_path, *command.collect_usage_pieces(context)]), "```", "")
    records = [(each.param_type_name, each.get_help_record(context)) for each in command.get_params(context)]
    for kind, title in (("argument", "argument"), ("option", "option")):
        rows = [record for of_kind, record in records if of_kind == kind and record is not None]
        rows = [(names, what) for names, what in rows if names != "--help"]  # every command has it
        if rows:
            yield from (f"| {title} | |", "|---|---|")
            yield from (f"| `{_escape(names)}` | {_escape(_as_markdown(what))} |" for names, what in rows)
            yield ""
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    below = {each: command.get_command(context, each) for each in names}
    if below:
        yield from ("| command | |", "|---|---|")
        for each, child in below.items():
            path = f"{context.command_path} {each}"
            summary = _escape(_as_markdown(child.get_short_help_str(limit=200)))
            yield f"| [`{path}`](#{path.replace(' ', '-')}) | {summary} |"
        yield ""
    for each, child in below.items():
        yield from _render(child, make_context, each, parent=context, level=level + 1)


def _as_markdown(text: str) -> str:
    """Help as Markdown: marks that rich would read are escaped, paragraphs stay."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).replace("[", "\\[")


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")
