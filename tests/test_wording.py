"""Messages of the library as the command line shows them: options and commands, no Python."""

import ast
import re

import pytest

from conddp.algorithms import ALGORITHMS
from conddp.cli import wording
from conddp.cli.wording import name_options
from conddp.heads import HEADS
from tests.test_architecture import modules

PYTHON = r"\w\([^)]*\)|\b[a-z]+_[a-z_]+\b|\b[a-z]+=[A-Z(\[]|\b[Pp]ass \w+=|\b[Cc]all \."

# Messages that no command can cause: what they speak of has no option, or comes from Python objects.
NOT_FOR_COMMANDS = (
    "fit_intercept",
    "prior_fraction",
    "candidates ",
    "masked array",
    "Call .collect()",
    "missing_labels must be",
    "{zip_code",  # an example of a schema file
    "max_rows",  # a key of the schema file
    "Units.",
    "Linear()",
    "use compute_epsilon",
    "task.spend",
    "num_records and columns",
    "random_state",
    "noise_std",
    "expected_runs",
    "(path=...)",
    "grid_size",
    "private_columns",
    "is expecting",
    "batch_size",
    "num_bins=",
    "num_categories=",
    "backend=",
    "float32 matrices",
)


def list_messages(tree: ast.AST) -> list[str]:
    """Texts of the errors and warnings in a module, with * for what is filled in."""

    def read(node: ast.expr) -> str:
        if isinstance(node, ast.JoinedStr):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
        if isinstance(node, ast.BinOp):
            return read(node.left) + read(node.right)
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""

    found = []
    for node in ast.walk(tree):
        call = node.exc if isinstance(node, ast.Raise) else node
        if isinstance(call, ast.Call) and (isinstance(node, ast.Raise) or ast.unparse(call.func) == "warnings.warn"):
            found += [read(argument) for argument in call.args]
    return found


ROOMS = ("cli", "research", "estimators", "theory")  # other words, or not reached by a command


@pytest.mark.parametrize("name", [name for name in modules() if name.split(".")[0] not in ROOMS])
def test_messages_that_a_command_can_cause_name_no_python(name: str) -> None:
    for message in list_messages(ast.parse(modules()[name].read_text())):
        shown = name_options(message)
        if any(part in message for part in NOT_FOR_COMMANDS):
            continue
        assert not re.search(PYTHON, shown), shown


def test_the_search_finds_messages() -> None:
    code = "raise ValueError(f'pass x={1}.' 'end')\nwarnings.warn('careful' + 'ly', stacklevel=2)"
    assert list_messages(ast.parse(code)) == ["pass x=*.end", "carefully"]
    assert re.search(PYTHON, "pass overwrite=True") and re.search(PYTHON, "Use load(path).")


def test_names_of_classes_become_names_of_options() -> None:
    for name, algorithm in ALGORITHMS.items():
        if type(algorithm).__name__ in wording.ALGORITHMS:
            assert wording.ALGORITHMS[type(algorithm).__name__] == name
    assert {type(head).__name__: name for name, head in HEADS.items()} == wording.HEADS
    for name, head in HEADS.items():
        assert name_options(f"PrivateMean fits a linear head only, got head={head}.") == (
            f"mean fits a linear head only, got --head {name}."
        )
    assert name_options("Use CondNewton, CondDP or RROnBins.") == "Use cond-newton, cond-dp or rr-on-bins."
