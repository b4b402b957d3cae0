"""Searches, sweeps along the K axis, the runner and what is written."""

import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp.algorithms import DPSGD, Auto, CondDP, NonPrivate, RROnBins, SwitchCondDP, WeightedLLP
from conddp.bounds import Bounds
from conddp.cache import ContentCache
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.features.spectrum import Spectrum
from conddp.heads.head import Head
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.report import render_html
from conddp.report.document import Table, Text
from conddp.research.datasets import DATASETS
from conddp.research.experiments import tuning
from conddp.research.experiments.catalogue import EXPERIMENTS, make_quick
from conddp.research.experiments.claims import state_claims
from conddp.research.experiments.experiment import Cell, Experiment, Method, Result, measure_cells
from conddp.research.experiments.page import ExperimentResults, render_page_markdown, report_reproduction
from conddp.research.experiments.paper import get_printed
from conddp.research.experiments.rows import Measure, Row, make_rows, read_rows, write_rows
from conddp.research.experiments.search import Search, Trial
from conddp.research.experiments.spectra import summarize_design
from conddp.research.experiments.tables import make_lines, render_markdown
from conddp.research.experiments.tuning import Schedule, tune
from conddp.research.split import Split, load_split
from conddp.training.loop import train
from tests.conftest import load_or_skip

GOOD = Trial(0.05, 1.0, 0.01)
POOR = Trial(1e-6, 1.0, 0.01)


@pytest.fixture
def split(rng: np.random.Generator) -> Split:
    X = rng.normal(size=(400, 5)) * [1, 1, 10, 0.1, 1] + 1.0
    y = np.clip(X @ [0.1, 0.1, 0.01, 1.0, 0.0] + 0.05 * rng.normal(size=400), -2, 2)
    bounds = Bounds(-2, 2)
    train, test = (
        Records(PublicFeatures(X[part]), None, Labels(y[part], bounds)) for part in (slice(300), slice(300, 400))
    )
    return Split(train, test, fit_intercept=False)


# --- search


def test_a_grid_has_every_combination() -> None:
    search = Search.over_grid(
        {"learning_rate": [0.1, 0.2], "clip_residual": [1.0, 2.0, 3.0]}, rungs=((1.0, 2),), finalists=1
    )
    assert len(search.trials) == len(set(search.trials)) == 6


def test_a_random_search_stays_in_its_ranges_and_can_be_repeated() -> None:
    ranges: dict[str, Any] = {"learning_rate": (1e-3, 1e-1), "clip_residual": (0.5, 2.0), "switch": [0.1, 0.2, 0.4]}
    search = Search.at_random(ranges, 200, rungs=((1.0, 2),), finalists=1)
    assert search == Search.at_random(ranges, 200, rungs=((1.0, 2),), finalists=1)
    rates = np.array([trial.learning_rate for trial in search.trials])
    assert rates.min() > 1e-3 and rates.max() < 1e-1
    assert 0.4 < np.mean(rates < 1e-2) < 0.6  # even on a logarithmic axis
    assert {trial.switch for trial in search.trials} == {0.1, 0.2, 0.4}


def test_searches_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        Search(())
    with pytest.raises(ValueError, match="fractions of the rungs must increase"):
        Search((GOOD,), ((0.5, 1), (0.25, 1)))
    with pytest.raises(ValueError, match=r"unknown settings \['momentum'\]"):
        Search.over_grid({"momentum": [0.9]}, rungs=((1.0, 1),), finalists=1)
    with pytest.raises(ValueError, match="learning_rate"):
        Trial(-1.0, 1.0)


# --- tuning


@pytest.mark.parametrize(
    ("algorithm", "head", "schedule"),
    [
        (CondDP(), Linear(), Schedule(20)),
        (SwitchCondDP(), MLP(hidden=(4,)), Schedule(3, batch_size=50)),
    ],
)
def test_a_trial_comes_to_the_same_alone_and_among_others(
    split: Split, algorithm: CondDP, head: Head, schedule: Schedule
) -> None:
    trials = [Trial(0.02, 0.5, 0.1, 0.5), Trial(0.1, 0.1, 0.2, 0.5), Trial(0.01, 2.0, 0.1, 0.5)]

    def run(chosen: list[Trial]) -> list[float]:
        spectrum = Spectrum.of(split.train.public, constant=False)
        shared = tuning._Run(split, algorithm, head, spectrum, schedule, 0.7)
        (lane,) = tuning._make_lanes(shared, chosen, 1)
        lane.advance(shared.num_steps)
        return lane.errors()

    together = run(trials)
    assert together == pytest.approx([run([trial])[0] for trial in trials], rel=1e-3)
    assert len(set(np.round(together, 6))) == 3


def test_stopping_on_a_rung_and_dropping_others_changes_nothing(split: Split) -> None:
    spectrum = Spectrum.of(split.train.public, constant=False)
    shared = tuning._Run(split, SwitchCondDP(), Linear(), spectrum, Schedule(30), 0.5)
    trials = [Trial(0.02, 0.5, 0.1, 0.5), Trial(0.1, 0.1, 0.2, 0.5)]
    (whole,) = tuning._make_lanes(shared, trials, 1)
    whole.advance(30)
    (stopped,) = tuning._make_lanes(shared, trials, 1)
    stopped.advance(7)  # within the first phase
    stopped.keep([1])
    stopped.advance(22)  # within the second
    stopped.advance(30)
    assert stopped.errors() == pytest.approx(whole.errors()[1:], rel=1e-4)


def test_the_best_trial_is_found_and_run_with_every_seed(split: Split) -> None:
    search = Search((POOR, GOOD, Trial(1e-6, 0.1)), ((0.3, 2), (1.0, 1)), finalists=1)
    tuned = tune(split, CondDP(), Linear(), 4.0, schedule=Schedule(100), search=search, num_seeds=3)
    assert tuned.trial == GOOD
    assert len(tuned.errors) == len(set(tuned.errors)) == 3


@pytest.mark.parametrize("algorithm", [CondDP(), SwitchCondDP(), DPSGD()])
def test_without_noise_and_with_wide_clipping_least_squares_is_reached(split: Split, algorithm: DPSGD) -> None:
    search = Search((Trial(0.03, 100.0, 0.0, 0.3),), ((1.0, 1),), finalists=1)
    tuned = tune(split, algorithm, Linear(), math.inf, schedule=Schedule(1500), search=search, num_seeds=1)
    assert tuned.errors[0] == pytest.approx(split.optimum, rel=0.01)


def test_noise_is_calibrated_to_the_relation(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watch(plan: Any, *args: Any, **options: Any) -> Any:
        seen.append(plan.noise_multiplier)
        return real(plan, *args, **options)

    real = train
    monkeypatch.setattr("conddp.research.experiments.tuning.train", watch)
    search = Search((GOOD,), ((1.0, 1),), finalists=1)
    for relation in (Neighbouring.ZERO_OUT, Neighbouring.REPLACE):
        tune(
            split,
            CondDP(),
            Linear(),
            1.0,
            schedule=Schedule(128),
            search=search,
            num_seeds=1,
            neighbouring=relation,
        )
    zero_out, replaced = seen[0], seen[-1]
    assert replaced == pytest.approx(2 * zero_out)
    assert replaced == pytest.approx(95.59, abs=0.01)  # the exact Gaussian mechanism, 128 steps, epsilon 1, delta 1e-6


def test_a_trial_that_diverges_does_not_win(split: Split) -> None:
    search = Search((Trial(1e9, 1e9, 1.0), GOOD), ((1.0, 2),), finalists=2)
    tuned = tune(split, DPSGD(), MLP(hidden=(4,)), 1.0, schedule=Schedule(5), search=search, num_seeds=2)
    assert tuned.trial == GOOD
    assert np.isfinite(tuned.errors).all()


def test_the_least_squares_of_energy_is_the_papers() -> None:
    load_or_skip("energy")
    split = load_split("energy", "paper")
    assert (split.train.num_records, split.test.num_records) == (15788, 3947)  # as the paper's table of data sets
    printed = get_printed("linear_real", "energy", "Cond-DP", math.inf)
    assert printed is not None and printed.std is not None
    assert abs(split.optimum - printed.mse) < printed.std


# --- experiments


def make_tiny(data: str = "synthetic 1") -> Experiment:
    search = Search((GOOD,), ((1.0, 1),), finalists=1)
    methods = (
        Method("DPSGD", DPSGD(num_steps=4), search),
        Method("Cond-DP", CondDP(num_steps=4), search, untuned=False),
        Method("Weighted-LLP", WeightedLLP()),
        Method("default", Auto()),
    )
    epsilons = (0.25, 4.0, math.inf)
    return Experiment("linear-real", "Tiny", "", (data,), Linear(), Schedule(4), methods, epsilons, 2)


def test_cells_are_tuned_untuned_or_both() -> None:
    cells = [(cell.method.name, cell.accounting, cell.epsilon) for cell in make_tiny().cells()]
    assert ("DPSGD", "paper", math.inf) in cells and ("DPSGD", "ours", 4.0) in cells
    assert ("DPSGD", "ours", math.inf) not in cells  # nothing to protect
    assert not any(name == "Cond-DP" and accounting == "ours" for name, accounting, _ in cells)
    assert not any(name == "default" and accounting == "paper" for name, accounting, _ in cells)
    assert len(cells) == len(set(cells))


def test_our_cells_are_ordinary_fits_under_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = Auto.fit

    def watch(self: Auto, *args: Any, **options: Any) -> Any:
        result = real(self, *args, **options)
        seen.append(result.guarantee)
        return result

    monkeypatch.setattr(Auto, "fit", watch)
    (cell,) = [cell for cell in make_tiny().cells() if cell.method.name == "default" and cell.epsilon == 4.0]
    cell.compute()
    assert len(seen) == 2
    assert all(guarantee.neighbouring is Neighbouring.REPLACE for guarantee in seen)
    assert all(guarantee.budget == PrivacyBudget(4.0, 1e-6) for guarantee in seen)


def test_a_key_changes_with_everything_that_matters_and_with_nothing_else() -> None:
    cell = next(cell for cell in make_tiny().cells() if cell.accounting == "paper")
    other = Search((POOR,), ((1.0, 1),), finalists=1)
    changed = [
        replace(cell, data="synthetic 0.5"),
        replace(cell, epsilon=1.0),
        replace(cell, num_seeds=3),
        replace(cell, schedule=Schedule(5)),
        replace(cell, method=replace(cell.method, search=other)),
        replace(cell, method=replace(cell.method, tuned=DPSGD(feature_scaling="none"))),
    ]
    keys = [str(each.key) for each in (cell, *changed)]
    assert len(set(keys)) == len(keys)
    assert replace(cell, method=replace(cell.method, untuned=False)).key == cell.key


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ContentCache(tmp_path / "results.jsonl")
    cells = list(make_tiny().cells())
    real = Cell.compute
    computed: list[Cell] = []

    def stop_at_third(cell: Cell) -> Result:
        if len(computed) == 3:
            raise KeyboardInterrupt
        computed.append(cell)
        return real(cell)

    monkeypatch.setattr(Cell, "compute", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        measure_cells(cells, cache, num_workers=1)

    def count(cell: Cell) -> Result:
        computed.append(cell)
        return real(cell)

    monkeypatch.setattr(Cell, "compute", count)
    reports: list[tuple[int, int, float]] = []
    results = measure_cells(cells, cache, num_workers=1, callback=lambda *args: reports.append(args))
    assert sorted(map(str, computed)) == sorted(map(str, cells))  # each of them once
    assert reports[0][:2] == (3, len(cells)) and reports[-1] == (len(cells), len(cells), 0.0)
    again = measure_cells(cells, cache, num_workers=1)
    assert len(computed) == len(cells)
    assert {cell: result.errors for cell, result in again.items()} == {
        cell: result.errors for cell, result in results.items()
    }


def test_fresh_results_take_the_place_of_old_ones(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path / "r.jsonl")
    cell = next(cell for cell in make_tiny().cells() if cell.method.name == "default")
    cache.put(cell.key, Result((9.99,), 1.0, 1.0, {}, "", 0.0).to_json())
    assert measure_cells([cell], cache, num_workers=1)[cell].errors == (9.99,)
    fresh = measure_cells([cell], cache, num_workers=1, fresh=True)[cell].errors
    assert fresh != (9.99,)
    assert measure_cells([cell], cache, num_workers=1)[cell].errors == fresh


def test_a_key_depends_on_how_the_data_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    load_or_skip("wine")
    cell = replace(next(make_tiny().cells()), data="wine")
    before = cell.key
    monkeypatch.setitem(DATASETS, "wine", replace(DATASETS["wine"], paper_columns="standardized"))
    assert cell.key != before


def test_worker_processes_come_to_the_same_results(tmp_path: Path) -> None:
    cells = [cell for cell in make_tiny().cells() if cell.epsilon == 4.0]
    alone = measure_cells(cells, ContentCache(tmp_path / "one.jsonl"), num_workers=1)
    together = measure_cells(cells, ContentCache(tmp_path / "two.jsonl"), num_workers=2)
    for cell in cells:
        assert together[cell].errors == pytest.approx(alone[cell].errors, rel=1e-4)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from conddp.cache import ContentCache
from conddp.research.experiments.experiment import Cell
from conddp.research.experiments.experiment import measure_cells
from tests.test_experiments import SlowCell, make_tiny
if __name__ == "__main__":
    cells = [SlowCell(**vars(cell)) for cell in make_tiny().cells()][:2]
    measure_cells(cells, ContentCache(Path({str(tmp_path / "r.jsonl")!r})), num_workers=2)
"""
    (tmp_path / "program.py").write_text(program)
    root = Path(__file__).parents[1]
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "program.py"], cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )
    children: list[int] = []
    deadline = time.monotonic() + 60
    while len(children) < 3 and time.monotonic() < deadline:  # two workers and the tracker of resources
        time.sleep(0.2)
        children = [int(each) for each in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]
    assert len(children) >= 3
    parent.kill()
    parent.wait()
    while any(_is_running(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(_is_running(child) for child in children)


def _is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class SlowCell(Cell):
    """A cell that takes longer than any test."""

    def compute(self) -> Result:
        time.sleep(600)
        return super().compute()


def test_a_method_that_does_not_apply_leaves_a_note(tmp_path: Path) -> None:
    cells = [cell for cell in make_tiny().cells() if cell.method.name == "Weighted-LLP" and cell.epsilon == 0.25]
    (result,) = measure_cells(cells, ContentCache(tmp_path / "r.jsonl"), num_workers=1).values()
    assert result.errors == () and math.isnan(result.mse)
    assert result.note.startswith("WeightedLLP needs bags")


def test_rows_survive_the_disk_and_have_the_right_ratios(tmp_path: Path) -> None:
    experiment = make_tiny()
    results = measure_cells(experiment.cells(), ContentCache(tmp_path / "r.jsonl"), num_workers=1)
    rows = make_rows(experiment, results)
    write_rows(tmp_path / "rows.csv", rows, header=["made by a test", "today"])
    header, read = read_rows(tmp_path / "rows.csv")
    assert header == ["made by a test", "today"]
    assert [(row.data, row.method, row.epsilon, row.note) for row in read] == [
        (row.data, row.method, row.epsilon, row.note) for row in rows
    ]
    row = next(row for row in read if row.method == "DPSGD" and row.epsilon == 4.0)
    tuned = next(r for c, r in results.items() if (c.method.name, c.accounting, c.epsilon) == ("DPSGD", "paper", 4.0))
    assert row.tuned.mse == pytest.approx(np.mean(tuned.errors), rel=1e-5)
    assert row.tuned.std == pytest.approx(np.std(tuned.errors, ddof=1), rel=1e-5)
    assert row.tuned.ratio == pytest.approx(row.tuned.mse / load_split("synthetic 1", "paper").optimum, rel=1e-5)
    assert row.untuned.ratio == pytest.approx(row.untuned.mse / load_split("synthetic 1", "ours").optimum, rel=1e-5)
    assert math.isnan(row.paper.mse)  # nothing is printed for it


def test_printed_numbers_are_those_of_the_paper() -> None:
    cell = get_printed("mlp_real", "toms_hardware", "Switch-Cond-DP", 0.25)
    assert cell is not None and (cell.mse, cell.std) == (0.087, 0.0052)
    cell = get_printed("linear_real", "energy", "Weighted-LLP", 0.25)
    assert cell is not None and (cell.mse, cell.std) == (3.0278, None)
    assert get_printed("linear_real", "wine", "Weighted-LLP", 0.25) is None


def test_the_catalogue_holds_what_the_paper_measured() -> None:
    linear, mlp, synthetic = EXPERIMENTS["linear-real"], EXPERIMENTS["mlp-real"], EXPERIMENTS["synthetic"]
    assert (linear.schedule, synthetic.schedule) == (Schedule(128), Schedule(1024))
    assert mlp.schedule.num_steps(22543) == 226_000  # 1000 epochs of samples of 100
    assert mlp.head == MLP(hidden=(16, 8), embedding=16)
    for experiment in EXPERIMENTS.values():
        assert experiment.num_seeds == 5
        assert experiment.epsilons == (0.25, 0.5, 1.0, 2.0, 4.0, math.inf)
        quick = make_quick(experiment)
        assert quick.num_seeds < 5
        assert all(len(method.search.trials) <= 64 for method in quick.methods if method.search)


# --- what is written


def make_row(data: str, method: str, epsilon: float, paper: float, tuned: float, untuned: float) -> Row:
    printed, searched, plain = (Measure.of(value, 0.01, 1.0) for value in (paper, tuned, untuned))
    return Row(data, method, epsilon, printed, searched, plain, 1.0, 2.0, "", "")


def test_claims_name_the_cells_in_which_they_fail() -> None:
    rows = [
        make_row("wine", "DPSGD", 1.0, 1.3, 1.2, 1.2),
        make_row("wine", "Cond-DP", 1.0, 1.05, 1.01, 1.0),
        make_row("wine", "default", 1.0, math.nan, math.nan, 0.99),
        make_row("energy", "DPSGD", 1.0, 1.1, 1.01, 1.2),
        make_row("energy", "Cond-DP", 1.0, 1.05, 1.09, 1.0),
        make_row("energy", "default", 1.0, math.nan, math.nan, 1.06),
    ]
    agreement, order, default, *rest = state_claims("linear-real", rows)
    assert "in 1 of 2 cells; not: energy at 1 (1.090 against 1.050)" in agreement
    assert "in 1 of 2 comparisons; not: energy at 1 against DPSGD (1.09 against 1.01)" in order
    assert "in 1 of 2 cells with epsilon at most 2; not: energy at 1" in default
    assert not rest  # nothing is said of what was not measured
    assert "ca_housing" not in agreement


def test_tables_show_all_three_lines_and_leave_gaps() -> None:
    rows = [
        make_row("wine", "Cond-DP", 1.0, 1.05, 1.01, 1.0),
        make_row("wine", "Cond-DP", math.inf, 1.0, 1.0, math.nan),
    ]
    lines = list(make_lines(rows, "wine"))
    assert [line.kind for line in lines] == ["paper", "tuned", "untuned"]
    assert lines[2].cells == (("1 (0.01)", "1.000"), ("", ""))
    assert "| 1 | ∞ |" in render_markdown(rows)


def test_the_page_has_claims_figure_and_a_line_per_accounting() -> None:
    rows = (
        make_row("wine", "Cond-DP", 1.0, 1.05, 1.01, 1.0),
        make_row("wine", "default", 1.0, math.nan, math.nan, 0.99),
    )
    results = ExperimentResults(EXPERIMENTS["linear-real"], rows, ("<command>", "today"), "linear-real.svg")
    figures = {"linear-real.svg": "<svg></svg>", "spectra.svg": "<svg></svg>"}
    document = report_reproduction([results], figures, "| set | n |\n|---|---|\n| wine | 5 |\n")
    page = render_html(document)
    assert "&lt;command&gt;" in page and "<command>" not in page
    assert page.count("<table") == 2 and page.count('<img src="data:image/svg+xml;base64,') == 2
    assert "boston_housing is not at hand" in page  # no rows of it
    reading, measured, spectra = document.sections
    assert [block.term for block in reading.blocks if isinstance(block, Text)][1:3] == ["Paper", "Ours, as the paper"]
    (table,) = [block for block in measured.blocks if isinstance(block, Table)]
    assert [row[:2] for row in table.rows] == [
        ("Cond-DP", "paper"),
        ("Cond-DP", "ours, as the paper"),
        ("Cond-DP", "ours, REPLACE, nothing tuned"),
        ("default", "ours, REPLACE, nothing tuned"),
    ]
    assert table.rows[3][2] == "0.99 (0.01)\n0.990" and table.highlighted == (2, 3)
    (table,) = [block for block in spectra.blocks if isinstance(block, Table)]
    assert (table.heads, table.rows) == (("set", "n"), (("wine", "5"),))
    markdown = render_page_markdown([results], "")
    assert "![Test MSE against epsilon](linear-real.svg)" in markdown
    assert "\n- As the paper did it" in markdown


def test_leverage_is_the_diagonal_of_the_projection() -> None:
    summary = summarize_design("synthetic 1")
    X = load_split("synthetic 1", "ours").train.public.values
    Q, _ = np.linalg.qr(X)
    assert summary.largest_leverage == pytest.approx((Q**2).sum(axis=1).max(), rel=1e-6)
    singular = np.linalg.svd(X, compute_uv=False)
    assert summary.condition_number == pytest.approx(singular[0] / singular[-1], rel=1e-6)
    assert summary.stable_rank == pytest.approx((singular**2).sum() / singular[0] ** 2, rel=1e-6)


def test_non_private_references_belong_to_the_preparation() -> None:
    paper, ours = load_split("synthetic 0.5", "paper"), load_split("synthetic 0.5", "ours")
    fitted = NonPrivate().fit(ours.train, PrivacyBudget(1.0, 0.0)).model
    assert ours.optimum == pytest.approx(ours.compute_error(fitted.predict(ours.test.public)))
    assert paper.optimum != ours.optimum
    assert not paper.fit_intercept and ours.fit_intercept
    with pytest.raises(ValueError, match="preparation"):
        load_split("wine", "theirs")  # type: ignore[arg-type]  # what an untyped caller may pass


def test_rr_on_bins_runs_as_published() -> None:
    methods = {method.name: method for method in EXPERIMENTS["linear-real"].methods}
    algorithm = methods["RR-on-Bins"].algorithm
    assert isinstance(algorithm, RROnBins) and not algorithm.recalibrate
