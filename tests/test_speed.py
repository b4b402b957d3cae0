"""The harness of the speed benchmarks works, and contestants do the same work. Nothing here asserts a time."""

import importlib
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def speed_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def load(name: str) -> Any:
    return importlib.import_module(f"speed.{name}")


def make_work(hidden: tuple[int, ...]) -> tuple[Any, Any, NDArray[Any], NDArray[Any]]:
    """Three steps of plain descent with much clipping and hardly any noise."""
    descent = load("descent")
    X, y = descent.make_records(40, 5)
    settings = descent.Descent(rule="sgd", noise_multiplier=1e-3, clip_norm=0.5, learning_rate=0.3)
    return settings, descent.Network.of(5, hidden), X, 10 * y


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
@pytest.mark.parametrize("hidden", [(), (4, 3)], ids=["linear", "network"])
def test_steps_of_opacus_lead_to_the_same_parameters(hidden: tuple[int, ...], mode: str) -> None:
    work = make_work(hidden)
    ours, theirs = load("conddp_steps").ConddpSteps.of(*work), load("opacus_steps").OpacusSteps.of(*work, mode=mode)
    unclipped = load("torch_steps").TorchSteps.of(*work)
    for contestant in (ours, theirs, unclipped):
        contestant.run(3)
    moved = np.abs(ours.read() - work[1].parameters).max()
    # Noise: three steps of rate 0.3 with a standard deviation of 1e-3 x 0.5 / 40, in both; float32 is finer.
    assert np.abs(ours.read() - theirs.read()).max() < 2e-4 < 0.01 * moved + 2e-4
    assert np.abs(ours.read() - unclipped.read()).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [(), (4, 3)], ids=["linear", "network"])
def test_steps_of_jax_privacy_lead_to_the_same_parameters(
    hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The suite has a cache folder of its own; the environments of rivals are in that of the user.
    monkeypatch.setenv("CONDDP_BENCH_ENVIRONMENTS", str(Path.home() / ".cache" / "conddp" / "bench"))
    work = make_work(hidden)
    ours = load("conddp_steps").ConddpSteps.of(*work)
    ours.run(3)
    with ExitStack() as stack:
        try:
            worker = load("steps").start_jax(stack, work[1], work[0], *work[2:])
        except load("turns").Absent as reason:
            pytest.skip(str(reason))
        worker.call("run", num_steps=3)
        assert np.abs(ours.read() - worker.call("read")).max() < 2e-4


def test_sparse_models_predict_what_indicators_predict() -> None:
    torch = pytest.importorskip("torch")
    sparse, models = load("sparse_steps"), load("sparse_models")
    codes, numbers, _ = sparse.make_records(20)
    bins, dense = models.Bins(sparse.NUM_BINS, sparse.NUM_NUMBERS, width=1, widths=()), models.Dense(4003)
    with torch.no_grad():
        dense.net.weight[0, :4000] = bins.table.weight[:, 0]
        dense.net.weight[0, 4000:] = bins.net.weight[0]
        dense.net.bias[...] = bins.net.bias
        rows = torch.from_numpy(sparse.make_rows(codes, numbers).toarray().astype(np.float32))
        by_bins = bins(torch.from_numpy(codes), torch.from_numpy(numbers.astype(np.float32)))
        assert torch.allclose(by_bins, dense(rows), atol=1e-4)


def test_ratios_are_medians_within_turns() -> None:
    turns = load("turns")
    speeds = iter([1.0, 4.0, 10.0, 20.0, 3.0, 9.0])  # the machine is ten times slower in the second turn

    def run(num_steps: int) -> Any:
        return turns.Timing(next(speeds), 1.0, {"found": 7.0})

    contestants = {name: turns.Contestant(run, num_steps=1) for name in ("ours", "theirs")}
    ours, theirs = turns.take_turns(contestants, base="ours", turns=3)
    assert ours["ratio"] == 1.0
    assert theirs["ratio"] == 3.0  # of 4, 2 and 3
    assert theirs["seconds"] == 9.0
    assert theirs["found"] == 7.0


def test_a_contestant_that_cannot_run_is_absent_with_its_reason() -> None:
    turns = load("turns")

    def fail() -> Any:
        raise ImportError("no module named rival")

    def run(num_steps: int) -> None:
        pass

    builders = {"ours": lambda: turns.Contestant(run), "rival": fail}
    ready, absent = turns.gather(builders, base="ours")
    assert list(ready) == ["ours"]
    assert absent == {"rival": "ImportError: no module named rival"}
    with pytest.raises(ImportError):
        turns.gather(builders, base="rival")


def test_an_environment_that_was_not_made_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDDP_BENCH_ENVIRONMENTS", str(tmp_path))
    environments, absent = load("environments"), load("turns").Absent
    with pytest.raises(absent, match="was not made"):
        environments.find("interpret")
    (tmp_path / "interpret").mkdir()
    (tmp_path / "interpret" / "failed.txt").write_text("cannot be installed: no network")
    with pytest.raises(absent, match="no network"):
        environments.find("interpret")


def test_a_worker_answers_and_reports_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers, absent = load("workers"), load("turns").Absent
    (tmp_path / "sitecustomize.py").write_text("")
    monkeypatch.setattr(workers, "PATHS", (str(tmp_path), *workers.PATHS))
    with workers.Worker("least_squares") as worker:
        with pytest.raises(absent, match="KeyError"):
            worker.call("set_up", name="unknown", folder=str(tmp_path))
        load("tables").write_table(tmp_path, 300, 3)
        worker.call("set_up", name="lstsq", folder=str(tmp_path), warm_rows=100)
        timing = worker.time(1)
    assert timing.wall > 0
    assert 0 < timing.found["training_r2"] < 1


def test_works_are_stored_one_by_one_and_kept_on_resuming(tmp_path: Path) -> None:
    results, done = load("results"), []

    def work() -> Any:
        done.append(1)
        return results.Measured([{"name": "ours", "seconds": 1.0, "turns": 1}])

    def skip() -> Any:
        raise load("turns").Absent("needs 99 GB of memory")

    for _ in range(2):
        results.measure("x", {"a": work, "b": skip}, results.Scope(), resume=True, folder=tmp_path)
    assert len(done) == 1
    results.measure("x", {"a": work}, results.Scope(), resume=False, folder=tmp_path)
    assert len(done) == 2
    stored = json.loads((tmp_path / "speed_x.json").read_text())
    assert stored["works"]["b, threads 1"]["absent"] == {"all": "needs 99 GB of memory"}


@pytest.mark.parametrize("section", ["steps", "configurations"])
def test_sections_run_on_tiny_sizes(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDDP_BENCH_ENVIRONMENTS", str(tmp_path))  # without environments, and their absence is shown
    results, sections = load("results"), load("sections")
    scope = results.Scope(tiny=True)
    works = sections.SECTIONS[section].list_works(scope)
    stored = results.measure(section, works, scope, resume=False, folder=tmp_path)
    for work in stored["works"].values():
        assert {row["name"].split(",")[0] for row in work["rows"]} >= {"conddp", "Opacus"}
        assert all(row["seconds"] > 0 for row in work["rows"])
        assert [name.split(",")[0] for name in work["absent"]] == ["JAX-Privacy"] * len(work["absent"])


@pytest.mark.slow
@pytest.mark.parametrize("section", ["target", "sparse-steps", "fits", "sparse-fits", "heads", "accounting", "start"])
def test_the_other_sections_run_on_tiny_sizes(section: str, tmp_path: Path) -> None:
    results, sections = load("results"), load("sections")
    scope = results.Scope(tiny=True)
    for work in sections.SECTIONS[section].list_works(scope).values():
        measured = work()
        assert any(row["name"].startswith("conddp") for row in measured.rows) or section == "start"


def test_the_page_shows_rows_absent_rivals_and_processor_time_on_a_busy_machine(tmp_path: Path) -> None:
    results, page = load("results"), load("page")
    machine = load("machine").describe_machine(small=True)
    row = {"name": "conddp", "seconds": 3.0, "busy_seconds": 1e-3, "ratio": 1.0, "busy_ratio": 1.0, "turns": 5}
    rival = {**row, "name": "Opacus, hooks", "busy_seconds": 0.0455, "busy_ratio": 45.5}
    works = {"linear model": lambda: results.Measured([row, rival], {"JAX-Privacy": "no network"})}
    results.measure("machine", {"machine": lambda: results.Measured([], facts=machine)}, results.Scope(),
                    resume=False, folder=tmp_path)  # fmt: skip
    stored = results.measure("steps", works, results.Scope(), resume=False, folder=tmp_path)
    stored["works"]["linear model, threads 1"]["load"] = [9.0, 9.0]
    (tmp_path / "speed_steps.json").write_text(json.dumps(stored))
    written = page.write_page(tmp_path, tmp_path / "speed.md")
    text = written[0].read_text()
    assert "| Opacus, hooks | 45.5 ms | 45.5 |" in text
    assert "JAX-Privacy, linear model: no network" in text
    assert "processor time is shown" in text
    assert "private step, linear model, against Opacus in its best mode | 45.5 |" in text
    assert [path.name for path in written[1:]] == ["speed_steps.svg"]


def test_the_command_line_names_its_sections(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["speed", "--only", "nothing"])
    with pytest.raises(SystemExit):
        load("command").main()
    assert "target, steps" in capsys.readouterr().err
