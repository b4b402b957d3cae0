"""The experiment on the Criteo log: methods against fits of the library, interrupted runs, and what is shown."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from conddp.algorithms import Auto, RROnBins
from conddp.algorithms.algorithm import Algorithm
from conddp.cache import ContentCache
from conddp.cli import main as cli
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from conddp.research.criteo.folder import PartFolder
from conddp.research.criteo.simulated_folder import write_simulation
from conddp.research.experiments.criteo import lines, methods, networks, page, race, source
from conddp.research.experiments.criteo.lines import Line, LineResult, Measured
from conddp.research.experiments.criteo.methods import Tuning
from conddp.research.experiments.criteo.table import CriteoTable, SingleRows
from conddp.research.experiments.search import Search
from conddp.research.experiments.tuning import Schedule

REPLACE, ZERO_OUT = Neighbouring.REPLACE, Neighbouring.ZERO_OUT
NUM_ROWS = 2500
TUNING = Tuning(
    Schedule(4, batch_size=500),
    Search.over_grid({"learning_rate": [1e-2, 3e-2], "clip_residual": [1.0]}, rungs=((0.5, 1),), finalists=1),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("criteo") / "rows"
    write_simulation(path, NUM_ROWS, num_bins=30)
    return path


@pytest.fixture(scope="module")
def table(folder: Path) -> CriteoTable:
    return source.load_table(source.find_source(folder))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Interrupted runs of other tests are not found. Calibrations, which take seconds, are replaced by a rule."""
    monkeypatch.setattr(race, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(race, "calibrate_noise_multiplier", lambda epsilon, delta, **steps: 10 / epsilon)
    yield
    lines._load.cache_clear()


# --- methods


class FixedNoise(Curator):
    """A curator whose noise has seed 0, whatever the fit."""

    def __init__(self, generators: Any, **settings: Any) -> None:
        super().__init__(np.random.default_rng(0), **settings)


def fit(table: CriteoTable, algorithm: Algorithm, epsilon: float, neighbouring: Neighbouring = REPLACE) -> float:
    """Test error of a fit of the library, with the noise of seed 0."""
    budget = PrivacyBudget(epsilon, table.delta)
    model = algorithm.fit(table.train, budget, neighbouring=neighbouring, curator_class=FixedNoise).model
    predicted = model.predict(table.test.public)
    return float(np.mean((predicted - table.test.label.values) ** 2))


@pytest.mark.parametrize("neighbouring", [REPLACE, ZERO_OUT])
def test_the_default_is_what_the_library_fits(
    table: CriteoTable, neighbouring: Neighbouring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conddp.features.standardization.LARGEST_IN_MEMORY", 0)  # as a table of full size is fitted
    budget = (neighbouring, 4.0)
    ((error,),) = methods.fit_default(table, [budget], num_seeds=1).values()
    assert error == pytest.approx(fit(table, Auto(), 4.0, neighbouring), rel=1e-9)


def test_the_default_on_the_columns_is_what_the_library_fits(table: CriteoTable) -> None:
    train, test = table.encoded
    assert 20 < train.shape[1] < 4000 and train.groups is not None  # features of a category share a scale
    ((error,),) = methods.fit_encoded(table, [(REPLACE, 4.0)], num_seeds=1).values()
    budget = PrivacyBudget(4.0, table.delta)
    model = Auto().fit(replace(table.train, public=train), budget, curator_class=FixedNoise).model
    assert error == pytest.approx(np.mean((model.predict(test) - table.test.label.values) ** 2), rel=1e-9)


def test_rr_on_bins_is_what_the_library_fits(table: CriteoTable) -> None:
    ((error,),) = methods.fit_on_bins(table, [2.0], num_seeds=1).values()
    algorithm = RROnBins(recalibrate=False, grid_size=401)
    assert error == pytest.approx(fit(table, algorithm, 2.0), rel=1e-6)


def test_least_squares_is_that_of_numpy(table: CriteoTable) -> None:
    X, X_test = (np.hstack([each.public.values, np.ones((len(each.public), 1))]) for each in (table.train, table.test))
    weights = np.linalg.lstsq(X, table.train.label.values, rcond=None)[0]
    expected = np.mean((np.clip(X_test @ weights, 0, 400) - table.test.label.values) ** 2)
    assert methods.fit_least_squares(table) == pytest.approx(expected, rel=1e-6)


def test_single_rows_are_products_with_the_matrix(rng: np.random.Generator) -> None:
    X, A = rng.normal(size=(8, 5)) * (rng.random((8, 5)) < 0.4), rng.normal(size=(5, 3))
    rows = SingleRows(sp.csr_array(X), A)
    weights, factors = rng.normal(size=(2, 3)), rng.normal(size=(2, 8))
    np.testing.assert_allclose(weights @ rows.T, weights @ (X @ A).T)
    np.testing.assert_allclose(factors @ rows, factors @ (X @ A))
    np.testing.assert_allclose(factors[:, :2] @ rows[np.array([3, 5])], factors[:, :2] @ (X @ A)[[3, 5]])
    assert rows.shape == (8, 3) and SingleRows(sp.csr_array(X)).shape == (8, 5)


@pytest.mark.parametrize("method", ["DPSGD", "Cond-DP", "Switch-Cond-DP"])
def test_descent_without_noise_comes_close_to_least_squares(table: CriteoTable, method: str) -> None:
    grid = {"learning_rate": [2e-2], "clip_residual": [10.0], "switch": [0.5]}
    long = Tuning(Schedule(60, batch_size=500), Search.over_grid(grid, rungs=((0.5, 1),), finalists=1))
    (outcome,) = methods.tune_descent(table, method, [(REPLACE, math.inf)], long, num_seeds=1).values()
    assert outcome.errors[0] == pytest.approx(methods.fit_least_squares(table), rel=0.1)
    assert outcome.errors[0] < 0.7 * table.constant


def test_a_switch_does_not_change_predictions(table: CriteoTable) -> None:
    before, after = methods._make_stages(table, "Switch-Cond-DP", 0.5)
    parameters = np.random.default_rng(0).normal(size=(2, before.num_public)).astype(np.float32)
    np.testing.assert_allclose(after.predict(after.enter(parameters)), before.predict(parameters), atol=1e-3)


def test_clip_norms_are_stated_in_typical_norms_of_gradients(table: CriteoTable) -> None:
    (stage,) = methods._make_stages(table, "Cond-DP", 1.0)
    assert stage.clip_unit == pytest.approx(math.sqrt(stage.num_public), rel=1e-3)  # whitened rows


def test_every_budget_has_the_noise_of_its_relation(table: CriteoTable, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def calibrate(*budget: float, **steps: Any) -> float:
        asked.append((budget, steps))
        return 1.0

    monkeypatch.setattr(race, "calibrate_noise_multiplier", calibrate)
    run = race.Race([], table.label, lambda runner: np.zeros(1), table.measure, TUNING.schedule, table.delta, "")
    for relation in (REPLACE, ZERO_OUT):
        assert run.calibrate(relation, 1.0) == 1
    n = table.train.num_records
    steps = {"num_steps": 4 * math.ceil(n / 500), "sampling_probability": 500 / n}
    assert asked == [((1.0, 1 / n), {**steps, "neighbouring": relation}) for relation in (REPLACE, ZERO_OUT)]
    assert run.calibrate(REPLACE, math.inf) == 0.0


def test_settings_are_chosen_for_each_budget_by_the_test_error(table: CriteoTable) -> None:
    grid = {"learning_rate": [1e-6, 3e-2], "clip_residual": [1.0]}
    tuning = replace(TUNING, search=Search.over_grid(grid, rungs=((0.5, 1),), finalists=1))
    budgets = [(REPLACE, 8.0), (ZERO_OUT, 8.0), (REPLACE, math.inf)]
    found = methods.tune_descent(table, "DPSGD", budgets, tuning, num_seeds=2)
    assert list(found) == budgets
    assert {outcome.trial.learning_rate for outcome in found.values()} == {3e-2}
    assert [len(outcome.errors) for outcome in found.values()] == [2, 2, 1]
    assert methods.describe_settings(found[budgets[0]]) == "learning_rate=0.03 clip_residual=1"


@pytest.mark.parametrize("method", ["DPSGD", "Switch-Cond-DP"])
def test_networks_learn_without_noise(table: CriteoTable, method: str) -> None:
    grid = {"learning_rate": [1e-2], "clip_residual": [10.0]}
    long = Tuning(Schedule(8, batch_size=500), Search.over_grid(grid, rungs=((0.5, 1),), finalists=1))
    (outcome,) = networks.tune_networks(table, method, [(REPLACE, math.inf)], long, num_seeds=1).values()
    assert outcome.errors[0] < 0.8 * table.constant


def test_networks_learn_from_randomised_labels(table: CriteoTable) -> None:
    found = networks.train_on_bins(table, [0.1, 16.0], Schedule(8, batch_size=500), 1e-2, num_seeds=1)
    assert found[16.0][0] < 0.8 * table.constant < found[0.1][0]


# --- interrupted runs


def test_an_interrupted_race_goes_on_to_the_same_result(
    table: CriteoTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(race, "STEPS_AT_ONCE", 2)
    monkeypatch.setattr(race, "SECONDS_BETWEEN_SAVES", 0.0)
    budgets = [(REPLACE, 4.0), (REPLACE, 8.0)]
    grid = {"learning_rate": [1e-2, 3e-2], "clip_residual": [1.0], "switch": [0.25]}
    tuning = replace(TUNING, search=Search.over_grid(grid, rungs=((0.5, 1),), finalists=1))
    whole = methods.tune_descent(table, "Switch-Cond-DP", budgets, tuning, num_seeds=2)
    assert not list(tmp_path.glob("race-*"))
    train, steps, stop_after = race._Pack._train, [0], 7

    def train_and_count(pack: race._Pack, num_steps: int) -> None:
        if len(steps) > stop_after:
            raise KeyboardInterrupt
        steps.append(num_steps)
        train(pack, num_steps)

    monkeypatch.setattr(race._Pack, "_train", train_and_count)
    with pytest.raises(KeyboardInterrupt):
        methods.tune_descent(table, "Switch-Cond-DP", budgets, tuning, num_seeds=2)
    assert len(list(tmp_path.glob("race-*"))) == 2  # of the trials and of the finals
    stop_after = 1000
    assert methods.tune_descent(table, "Switch-Cond-DP", budgets, tuning, num_seeds=2) == whole
    num_steps = tuning.schedule.num_steps(table.train.num_records)
    assert sum(steps) == num_steps // 2 + num_steps  # trials and finals, none of them twice


def test_measured_lines_are_not_measured_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line("linear", "least squares", source.find_source(folder), (REPLACE,), (math.inf,), 1)
    cache = ContentCache(tmp_path / "results.jsonl")
    first = lines.measure_lines([line], cache, num_workers=1)
    monkeypatch.setattr(Line, "compute", lambda self: pytest.fail("measured again"))
    assert lines.measure_lines([line], cache, num_workers=1) == first
    other = replace(line, source=replace(line.source, digest="other rows"))
    assert other.key != line.key


# --- the source


def test_rows_are_simulated_unless_a_finished_folder_is_named(folder: Path, tmp_path: Path) -> None:
    simulated = source.find_source(tmp_path / "nowhere", num_rows=3000)
    assert simulated == source.find_source(num_rows=3000)
    assert (simulated.folder, simulated.num_rows, simulated.real) == ("", 3000, False)
    assert source.find_source().num_rows == 1_732_721
    assert source.find_source(folder).num_rows == NUM_ROWS


def test_part_of_a_folder_is_as_large_as_asked(folder: Path) -> None:
    part = source.load_table(source.find_source(folder, num_rows=1000))
    assert part.train.num_records + part.test.num_records == pytest.approx(1000, abs=1)


def test_only_the_whole_published_log_is_real(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "NUM_SALES", NUM_ROWS)
    assert not source.find_source(folder).real  # simulated rows
    found = PartFolder.find(folder)
    assert found is not None
    log = PartFolder(folder, replace(found.manifest, source={"kind": "log"}, num_bins=4000))
    monkeypatch.setattr(PartFolder, "find", lambda path: log)
    assert source.find_source(folder).real
    assert not source.find_source(folder, num_rows=NUM_ROWS - 1).real
    log.manifest = replace(log.manifest, num_bins=1000)
    assert not source.find_source(folder).real
    log.manifest = replace(log.manifest, num_bins=4000)
    monkeypatch.setattr(source, "NUM_SALES", NUM_ROWS + 1)
    assert not source.find_source(folder).real


# --- what is shown


def make_results(*, real: bool) -> dict[Line, LineResult]:
    """Results with numbers that are easy to recognise."""
    where = source.CriteoSource("", 1000, real, "")
    errors = {("linear", "DPSGD"): 7000.0, ("linear", "default"): 5000.0, ("mlp", "RR-on-Bins"): 4000.0}
    return {
        Line(part, method, where, (REPLACE,), (1.0,), 2): LineResult(  # type: ignore[arg-type]  # texts of the right kind
            (Measured("replace", 1.0, (error - 1, error, error + 1)),), 11000.0, real, 60.0, 30.0
        )
        for (part, method), error in errors.items()
    }


def test_printed_numbers_stand_beside_real_records_only() -> None:
    made_up, published = (page.make_rows(make_results(real=real)) for real in (False, True))
    assert all(math.isnan(row.paper_mse) for row in made_up)
    shown = {(row.part, row.method): row.paper_mse for row in published if not math.isnan(row.paper_mse)}
    assert shown == {("linear", "DPSGD"): 6673.56, ("mlp", "RR-on-Bins"): 9744.08}
    assert "6,674" not in page.render_page(["header"], made_up)
    assert "**The records are simulated**" in page.render_page(["header"], made_up)
    assert "| DPSGD, *paper* | 6,674 (11) |" in page.render_page(["header"], published)
    assert "simulated" not in page.render_page(["header"], published)


def test_claims_say_where_the_default_is_behind() -> None:
    text = page.render_page(["header"], page.make_rows(make_results(real=False)))
    assert "at 1 of 1 budgets: 5,000 against 7,000 of DPSGD at epsilon 1." in text
    assert "at 0 of 1 budgets; not: 5,000 against 4,000 of RR-on-Bins at epsilon 1." in text


def test_rows_survive_the_csv(tmp_path: Path) -> None:
    rows = page.make_rows(make_results(real=True))
    page.write_rows(tmp_path / "criteo.csv", rows, header=["made by a test"])
    header, found = page.read_rows(tmp_path / "criteo.csv")
    assert header == ["made by a test"]
    assert repr(found) == repr(rows)  # NaN is not equal to itself


def test_the_command_writes_table_and_page(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("conddp.research.experiments.criteo.run.cache_folder", lambda: tmp_path / "cache")
    arguments = ["reproduce", "criteo", "--quick", "--workers", "1", "--data", str(folder), "--out", str(tmp_path)]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, done.output
    _, rows = page.read_rows(tmp_path / "criteo.csv")
    assert {row.part for row in rows} == {"linear", "mlp"}
    methods_shown = {row.method for row in rows}
    assert methods_shown >= {"DPSGD", "Cond-DP", "Switch-Cond-DP", "RR-on-Bins", "default", "default, shared bins"}
    assert all(math.isfinite(row.mse) for row in rows)
    assert "criteo.md" in (tmp_path / "index.md").read_text()
    monkeypatch.setattr(Line, "compute", lambda self: pytest.fail("measured again"))
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
