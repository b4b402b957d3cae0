"""Imports follow the data path, and torch stays optional."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import conddp
from conddp.algorithms import ALGORITHMS
from conddp.heads import HEADS

PACKAGE = Path(conddp.__file__).parent

# A room may import rooms of earlier rows only; within a room there are no cycles.
DATA_PATH = (
    ("errors",),
    ("_validate", "_fused", "cache", "losses"),
    ("registry", "bounds", "categories", "stored"),
    ("privacy",),
    ("data",),
    ("dask",),
    ("execution",),
    ("features",),
    ("theory",),
    ("heads",),
    ("models",),
    ("training",),
    ("distributed",),
    ("newton", "labels", "evaluation"),
    ("algorithms",),
    ("planning", "auditing"),
    ("report",),
    ("estimators", "files"),
    ("",),
    ("research",),
    ("cli",),
    ("__main__",),
)
LONGEST_FILE = 450  # lines; above that ask what second noun has moved in

# Noise is drawn in one file. Others may draw these things, none of which hides a private value.
NOISE = {"standard_normal", "normal", "laplace", "standard_exponential", "exponential", "geometric", "standard_t"}
CHANCE = {
    "privacy.release": "noise of unprotected releases",
    "privacy.selection": "the number of runs among which the best is chosen",
    "training.sampling": "gaps between the members of a Poisson sample",
    "features.feature_families": "projections of features, from a fixed seed",
    "features.random_features": "weights of hidden units, from a fixed seed",
    "heads.checking": "made-up records",
    "heads.embeddings": "initial weights",
    "heads.factorization": "initial weights",
    "heads.mlp": "initial weights",
    "heads.wide": "initial weights",
    "labels.simulation": "made-up labels",
    "auditing.tables": "made-up rows",
    "algorithms.weighted_llp": "public weights of the labels in a bag",
    "research.criteo.simulation": "made-up rows",
    "research.datasets": "synthetic data",
    "research.experiments.tuning": "initial weights",
}


def room_of(module: str) -> str:
    return module.split(".")[0]


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
        for name in names:
            if name.split(".")[0] == "conddp":
                found.add(name.removeprefix("conddp").removeprefix("."))
    return found


def test_every_room_has_its_place_in_the_data_path() -> None:
    assert {room_of(name) for name in modules()} == {name for row in DATA_PATH for name in row}


@pytest.mark.parametrize("name", modules())
def test_imports_go_up_the_data_path_only(name: str) -> None:
    height = {room: row for row, rooms in enumerate(DATA_PATH) for room in rooms}
    for imported in imports(modules()[name]):
        if room_of(imported) != room_of(name):
            assert height[room_of(imported)] < height[room_of(name)], f"conddp.{name} imports conddp.{imported}"


def test_no_two_files_import_each_other() -> None:
    graph = {name: imports(path) & set(modules()) for name, path in modules().items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("name", modules())
def test_only_the_door_draws_noise(name: str) -> None:
    tree = ast.parse(modules()[name].read_text())
    drawn = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & NOISE
    assert bool(drawn) == (name in CHANCE), f"conddp.{name} draws {drawn}"


@pytest.mark.parametrize("name", modules())
def test_nobody_asks_which_head_or_algorithm_it_is(name: str) -> None:
    kinds = {type(each).__name__ for each in (*HEADS.values(), *ALGORITHMS.values())}
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            named = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
            assert not named & kinds, f"conddp.{name} asks for {named & kinds}: give the class a capability instead"


@pytest.mark.parametrize("name", modules())
def test_a_file_is_a_page_of_reading(name: str) -> None:
    assert len(modules()[name].read_text().splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("name", modules())
def test_only_their_own_modules_import_torch_and_dask(name: str) -> None:
    optional = {"torch"} if name == "dask" else {"torch", "dask", "distributed"}
    tree = ast.parse(modules()[name].read_text())
    for node in ast.walk(tree) if name != "distributed" else tree.body:  # it imports torch within functions
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & optional
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in optional


def test_linear_models_fit_without_torch_and_other_extras() -> None:
    program = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "opacus", "pandas", "polars", "matplotlib", "statsmodels", "distributed"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import numpy as np
from conddp import CondDP, PrivateRegressor
X = np.random.default_rng(0).normal(size=(200, 3))
print(PrivateRegressor(label_bounds=(-5, 5)).fit(X, X.sum(axis=1)).predict(X).shape)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == "(200,)"


def list_imported(program: str) -> set[str]:
    """Modules that a program has imported when it ends."""
    program = f"import sys\n{program}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_itself_imports_nothing() -> None:
    added = {name.split(".")[0] for name in list_imported("import conddp") - list_imported("")}
    assert added - sys.stdlib_module_names == {"conddp"}


LATE = {
    "cloudpickle",
    "dp_accounting",
    "jinja2",
    "matplotlib",
    "mpmath",
    "numba",
    "rich",
    "safetensors",
    "torch",
    "typer",
}


def test_algorithms_start_without_what_they_rarely_need() -> None:
    imported = list_imported("import conddp\nconddp.CondNewton, conddp.Records, conddp.PrivacyLedger")
    heavy = {"pandas", "pyarrow", "scipy.linalg", "scipy.optimize", "scipy.sparse.linalg", "scipy.stats", "sklearn"}
    assert not imported & (LATE | heavy)


def test_the_estimator_imports_little_beside_scikit_learn() -> None:
    imported = list_imported("import conddp\nconddp.PrivateRegressor")
    late = LATE - {"cloudpickle"} | {"pyarrow.dataset", "pyarrow.parquet"}  # scikit-learn imports others, and pandas
    assert "sklearn" in imported and not imported & late
    assert not any(name.startswith(("conddp.planning", "conddp.report", "conddp.research")) for name in imported)


def test_the_command_line_shows_its_help_without_the_library() -> None:
    imported = list_imported(
        "sys.argv = ['conddp', '--help']\nfrom conddp.cli.main import main\n"
        "import contextlib, io\nwith contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main()"
    )
    assert "typer" in imported and not imported & {"narwhals", "numpy", "pyarrow", "scipy", "sklearn"}


def test_public_names_exist_and_are_few() -> None:
    assert all(hasattr(conddp, name) for name in conddp.__all__)
    assert len(conddp.__all__) <= 36
