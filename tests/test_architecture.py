"""Imports follow the data path, and torch stays optional."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import conddp

PACKAGE = Path(conddp.__file__).parent

# A module may import modules of earlier rows only.
DATA_PATH = (
    ("errors", "_validate"),
    ("neighbouring", "schema", "cache"),
    ("ledger", "data", "runner"),
    ("accounting", "aggregation", "preprocessing", "conditioning", "label_prior", "models", "datasets", "directions"),
    ("theory.bound", "diagnostics", "jacobian"),
    ("theory.privacy", "theory.convergence", "theory.linear_regression"),
    ("theory",),
    ("design",),
    ("clipping", "sampling", "optimizers", "guarantee", "randomizers", "expansion", "shrinkage", "private_directions"),
    ("noise", "fitted", "learner", "simulation"),
    ("newton",),
    ("training", "saving"),
    ("released", "distillation", "algorithms.algorithm"),
    ("algorithms.descent", "algorithms.non_private", "algorithms.one_shot", "algorithms.private_mean"),
    ("algorithms.dpsgd", "algorithms.cond_dp", "algorithms.randomized_labels", "algorithms.weighted_llp"),
    ("algorithms.switch_cond_dp", "algorithms.cond_newton"),
    ("algorithms.auto",),
    ("algorithms",),
    ("estimators",),
    ("comparison",),
    ("planning",),
    ("evaluation", "fetching", "", "report.document"),
    ("report.charts", "report.builders"),
    ("report.rendering",),
    ("report",),
    ("files", "terminal"),
    ("demo", "experiments.search", "experiments.problem", "experiments.paper"),
    ("experiments.tuning",),
    ("experiments.experiment",),
    ("experiments.catalogue", "experiments.rows", "experiments.spectra"),
    ("experiments.tables",),
    ("experiments.claims", "experiments.figures"),
    ("experiments.page",),
    ("experiments.reproduce", "experiments"),
    ("cli",),
)


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


def test_every_module_has_its_place_in_the_data_path() -> None:
    assert sorted(modules()) == sorted(name for row in DATA_PATH for name in row)


@pytest.mark.parametrize("name", modules())
def test_imports_go_up_the_data_path_only(name: str) -> None:
    height = {module: row for row, names in enumerate(DATA_PATH) for module in names}
    for imported in imports(modules()[name]):
        assert height[imported] < height[name], f"conddp.{name} imports conddp.{imported}"


@pytest.mark.parametrize("name", modules())
def test_no_module_imports_torch(name: str) -> None:
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] != "torch" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] != "torch"


@pytest.mark.parametrize("name", ["accounting", "ledger", "neighbouring", "cache"])
def test_accounting_and_ledger_know_nothing_of_data(name: str) -> None:
    assert not imports(modules()[name]) & {"data", "models", "training", "conditioning"}


def test_linear_models_fit_without_torch_and_other_extras() -> None:
    program = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "opacus", "pandas", "polars", "matplotlib", "statsmodels"}:
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


def test_public_names_exist_and_are_few() -> None:
    assert all(hasattr(conddp, name) for name in conddp.__all__)
    assert len(conddp.__all__) <= 36
