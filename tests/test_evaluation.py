"""Private evaluation of models on held-out records: figures, intervals, splits, files and reports."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from conddp import PrivacyBudget, PrivacyLedger, PrivateRegressor
from conddp.bounds import Bounds
from conddp.cli import main as cli
from conddp.data import Units
from conddp.errors import BudgetExceeded, PrivacyError, PrivacyWarning, SchemaError
from conddp.evaluation.expectations import expect_evaluation
from conddp.evaluation.figures import compute_bins, compute_figures
from conddp.evaluation.moments import release_moments
from conddp.evaluation.predicted import Predicted
from conddp.evaluation.private_predictions import choose_private_weights, release_figures
from conddp.evaluation.ratio import Ratio
from conddp.evaluation.spreads import release_spreads
from conddp.evaluation.weighting import choose_weights
from conddp.models.evaluation import Evaluation, Interval
from conddp.models.evidence import check_evidence
from conddp.models.saving import load_model
from conddp.privacy.accounting import compute_gaussian_epsilon
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from conddp.report import render_html, render_markdown, report_evaluation, report_fit

Vector = NDArray[np.float64]
BOUNDS = Bounds(-10.0, 30.0)
runner = CliRunner()


def compute_truth(predictions: Vector, labels: Vector, weights: Vector) -> dict[str, float]:
    """The same figures without noise, by their definitions."""
    v, errors = weights / weights.sum(), labels - predictions
    mse, mean, center = v @ errors**2, v @ labels, v @ predictions
    return {
        "mse": mse,
        "rmse": np.sqrt(mse),
        "mae": v @ np.abs(errors),
        "r2": 1 - mse / (v @ (labels - mean) ** 2),
        "bias": v @ errors,
        "slope": (v @ ((predictions - center) * labels)) / (v @ (predictions - center) ** 2),
    }


def draw(rng: np.random.Generator, n: int, kind: str) -> tuple[Vector, Vector]:
    signal = rng.normal(10, 5, size=n)
    noise = rng.normal(0, 4, size=n) if kind == "normal" else 0.4 * np.abs(signal) * (rng.exponential(size=n) - 1)
    return np.clip(0.9 * signal + 1, -10, 30), np.clip(signal + noise, -10, 30)


def release(predictions: Vector, labels: Vector, mu: float, seed: int, **settings: Any) -> tuple[dict[str, Any], Any]:
    predicted = Predicted.of(predictions, BOUNDS, num_bins=5, **settings)
    errors = (labels - BOUNDS.midpoint) / BOUNDS.width - predicted.scaled
    curator = Curator(np.random.default_rng(seed), num_records=len(labels))
    weights = choose_weights(predicted, Neighbouring.REPLACE)
    moments = release_moments(
        errors, predicted, weights, mu=mu * 0.95, neighbouring=Neighbouring.REPLACE, curator=curator
    )
    spreads = release_spreads(errors, predicted, moments, mu=mu * 0.3, curator=curator)
    figures = {each.name: each for each in compute_figures(moments, spreads, predicted, BOUNDS, 0.95)}
    return figures, compute_bins(moments, spreads, predicted, BOUNDS, 0.95)


@pytest.mark.parametrize("weighted", [False, True])
def test_with_little_noise_the_figures_are_those_of_their_definitions(weighted: bool, rng: np.random.Generator) -> None:
    predictions, labels = draw(rng, 2000, "skewed")
    weights = rng.uniform(0.1, 1, size=2000) if weighted else np.ones(2000)
    figures, bins = release(predictions, labels, 1e6, 0, weights=weights)
    for name, value in compute_truth(predictions, labels, weights).items():
        assert figures[name].estimate == pytest.approx(value, abs=1e-3), name
        assert figures[name].sample.width < 1e-2
    edges = np.quantile(predictions, [0.2, 0.4, 0.6, 0.8])
    places = np.searchsorted(edges, predictions, side="right")
    for place, each in enumerate(bins):
        of = places == place
        assert each.actual == pytest.approx(np.average(labels[of], weights=weights[of]), abs=1e-3)
        assert each.predicted == pytest.approx(np.average(predictions[of], weights=weights[of]))
        assert each.num_records == of.sum()


def test_sampling_deviations_are_those_of_the_bootstrap(rng: np.random.Generator) -> None:
    predictions, labels = draw(rng, 3000, "skewed")
    figures, bins = release(predictions, labels, 1e6, 0)
    drawn: dict[str, list[float]] = {}
    for _ in range(400):
        chosen = rng.integers(3000, size=3000)
        for name, value in compute_truth(predictions[chosen], labels[chosen], np.ones(3000)).items():
            drawn.setdefault(name, []).append(value)
    for name, values in drawn.items():
        assert figures[name].sampling_std == pytest.approx(np.std(values), rel=0.15), name
    assert len(bins) == 5


def test_sampling_deviations_count_units_whose_records_are_alike(rng: np.random.Generator) -> None:
    predictions, labels = draw(rng, 500, "normal")
    alone, _ = release(predictions, labels, 1e6, 0)
    units = Units(np.repeat(np.arange(500), 4), "person")
    together, _ = release(np.repeat(predictions, 4), np.repeat(labels, 4), 1e6, 0, units=units)
    for name in ("mse", "mae", "r2", "bias", "slope"):
        assert together[name].sampling_std == pytest.approx(alone[name].sampling_std, rel=1e-2)


@pytest.mark.parametrize("mu", [0.25, 2.0])
@pytest.mark.parametrize("kind", ["normal", "skewed"])
def test_intervals_cover_both_targets(kind: str, mu: float) -> None:
    everything = draw(np.random.default_rng(10**6), 10**6, kind)
    population = compute_truth(*everything, np.ones(10**6))
    hits: dict[str, list[tuple[bool, bool]]] = {}
    for seed in range(250):
        predictions, labels = draw(np.random.default_rng(seed), 1500, kind)
        sample = compute_truth(predictions, labels, np.ones(1500))
        figures, _ = release(predictions, labels, mu, seed)
        for name, each in figures.items():
            hits.setdefault(name, []).append((sample[name] in each.sample, population[name] in each.population))
    for name, found in hits.items():
        covered = np.mean(found, axis=0)
        assert covered.min() > 0.90, (name, covered)  # 3.6 standard deviations below 95 %
    overall = np.mean([found for each in hits.values() for found in each], axis=0)
    assert (overall > 0.935).all() and overall[0] < 0.98


def test_a_ratio_of_noisy_numbers_is_covered_however_small_its_denominator_is(rng: np.random.Generator) -> None:
    for denominator in (0.2, 1.0, 3.0, 30.0):
        hits, unbounded = [], []
        for _ in range(1000):
            shared, own = rng.normal(size=2)
            ratio = Ratio(0.5 * denominator + shared, denominator + shared + own, 1.0, 2.0, 1.0)
            low, high = ratio.find_interval(1.96)
            hits.append(low <= 0.5 <= high)
            unbounded.append(np.isinf(high))
        assert np.mean(hits) > 0.935
        assert np.mean(unbounded) > 0.5 if denominator < 2 else denominator < 5 or not any(unbounded)


@pytest.fixture(scope="module")
def table() -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(3000, 3)), columns=list("abc"))
    return X, pd.Series(X.to_numpy() @ [1.0, -2.0, 0.5] + 5 + rng.normal(size=3000), name="price")


@pytest.fixture(scope="module")
def model(table: tuple[pd.DataFrame, pd.Series]) -> PrivateRegressor:
    return PrivateRegressor(epsilon=2.0, label_bounds=(-5, 15), head="linear", random_state=0).fit(*table)


def make_rows(n: int, seed: int = 1) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    return X, pd.Series(X.to_numpy() @ [1.0, -2.0, 0.5] + 5 + rng.normal(size=n), name="price")


def test_an_estimator_is_evaluated(model: PrivateRegressor) -> None:
    X, y = make_rows(4000)
    evaluation = model.evaluate(X, y, epsilon=4.0, random_state=0)
    truth = compute_truth(model.predict(X), y.to_numpy(), np.ones(len(y)))
    assert all(truth[each.name] in each.sample for each in evaluation.figures)
    assert evaluation["r2"].estimate == pytest.approx(truth["r2"], abs=0.1)
    text = str(evaluation)
    assert "R²" in text and "4,000 held-out records" in text and "(4, 1e-06)" in evaluation.guarantee
    assert "add up" in evaluation.guarantee and "for research only" in evaluation.guarantee
    assert evaluation._repr_html_().count("<tr>") == 7
    assert evaluation == model.evaluate(X, y, epsilon=4.0, random_state=0)
    assert evaluation != model.evaluate(X, y, epsilon=4.0)
    with pytest.raises(KeyError, match="no figure 'auc'"):
        evaluation["auc"]


def test_an_evaluation_survives_storage(model: PrivateRegressor) -> None:
    evaluation = model.evaluate(*make_rows(100), epsilon=0.1)
    stored = json.loads(json.dumps(evaluation.to_json(), allow_nan=False))
    assert Evaluation.from_json(stored) == evaluation
    for name, value in (("level", "x"), ("figures", []), ("bounds", {"low": 2, "high": 1}), ("transcript", 3)):
        with pytest.raises(SchemaError):
            Evaluation.from_json({**stored, name: value})
    with pytest.raises(PrivacyError):
        Evaluation.from_json({**stored, "budget": {"epsilon": 0.01, "delta": 1e-6}})


def test_what_the_noise_hides_is_called_unknown(model: PrivateRegressor) -> None:
    evaluation = model.evaluate(*make_rows(60), epsilon=0.05, random_state=3)
    r2 = evaluation["r2"]
    assert r2.estimate is None and r2.sample.low is None and r2.noise_std is None
    assert "R² is unknown" in str(evaluation) and "unknown" in evaluation._repr_html_()
    assert 0 <= evaluation["mse"].sample.low <= evaluation["mse"].estimate <= 400  # type: ignore[operator]


def test_intervals_are_read_aloud() -> None:
    assert Interval(None, 0.83).describe() == "below 0.83"
    assert Interval(None, 1.0).describe() == "unknown"
    assert Interval(0.12345, 0.98765).describe() == "0.123 to 0.988"
    assert Interval(1234.5, 45678.9).describe() == "1,234 to 45,679"


def test_fit_holds_records_out_at_the_cost_of_the_worst_side(table: tuple[pd.DataFrame, pd.Series]) -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    regressor = PrivateRegressor(label_bounds=(-5, 15), head="linear", ledger=ledger, evaluation_fraction=0.25)
    regressor.fit(*table)
    evaluation = regressor.evaluation_
    assert (evaluation.num_records, regressor.guarantee_.num_records) == (750, 2250)
    assert evaluation.held_out and "not the sum" in evaluation.guarantee
    assert ledger.spent.epsilon == pytest.approx(1.0) and ledger.remaining.epsilon == 0
    sides = [entry.side for entry in ledger.entries if entry.cost.epsilon]
    assert [side.name for side in sides if side] == ["training", "held-out"]
    assert len({side.split for side in sides if side}) == 1
    with pytest.raises(BudgetExceeded):
        regressor.evaluate(*table, epsilon=0.1, ledger=ledger)


def test_a_split_keeps_units_together(table: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = table
    people = np.arange(3000) // 3
    regressor = PrivateRegressor(
        label_bounds=(-5, 15), head="linear", unit="person", random_state=0, evaluation_fraction=0.4
    )
    regressor.fit(X.assign(person=people), y)
    evaluation, guarantee = regressor.evaluation_, regressor.guarantee_
    assert (evaluation.num_units, evaluation.num_records) == (400, 1200)
    assert (guarantee.num_units, guarantee.num_records) == (600, 1800)
    assert "400 values of 'person'" in evaluation.guarantee
    alone = PrivateRegressor(label_bounds=(-5, 15), head="linear", random_state=0, evaluation_fraction=0.4).fit(X, y)
    noise = [each.evaluation_["mae"].noise_std for each in (regressor, alone)]
    assert noise[0] > 1.8 * noise[1]
    again = regressor.evaluate(X.assign(person=people), y, epsilon=1.0)
    assert again.unit == "person"
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6), unit="household")
    with pytest.raises(PrivacyError, match="household"):
        regressor.evaluate(X.assign(person=people), y, epsilon=1.0, ledger=ledger)


def test_pure_fits_can_hold_records_out(table: tuple[pd.DataFrame, pd.Series]) -> None:
    regressor = PrivateRegressor(label_bounds=(-5, 15), algorithm="rr-on-bins", evaluation_fraction=0.3).fit(*table)
    assert regressor.guarantee_.delta == 0 and regressor.evaluation_.budget == PrivacyBudget(1.0, 1e-6)
    assert regressor.ledger_.spent.epsilon == pytest.approx(1.0)


def test_a_ledger_that_does_not_cover_the_evaluation_refuses_the_fit(table: tuple[pd.DataFrame, pd.Series]) -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 0.0))
    regressor = PrivateRegressor(label_bounds=(-5, 15), algorithm="rr-on-bins", ledger=ledger, evaluation_fraction=0.3)
    with pytest.raises(BudgetExceeded, match="the evaluation"):
        regressor.fit(*table)
    assert not ledger.entries


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluation_fraction": 1.0}, "strictly between"),
        ({"evaluation_fraction": 0.001}, "fewer than 10"),
        ({"evaluation_fraction": 0.3, "delta": 0.0, "algorithm": "rr-on-bins"}, "delta must lie"),
    ],
)
def test_splits_that_cannot_be_made_are_refused_before_anything_is_spent(
    table: tuple[pd.DataFrame, pd.Series], settings: dict[str, Any], message: str
) -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    with pytest.raises((PrivacyError, ValueError), match=message):
        PrivateRegressor(label_bounds=(-5, 15), ledger=ledger, **settings).fit(*table)
    assert not ledger.spent.epsilon


def test_checkpoints_and_several_labels_cannot_hold_records_out(
    table: tuple[pd.DataFrame, pd.Series], tmp_path: Path
) -> None:
    regressor = PrivateRegressor(label_bounds=(-5, 15), evaluation_fraction=0.3)
    with pytest.raises(ValueError, match="checkpoint"):
        regressor.fit(*table, checkpoint=tmp_path / "file")
    with pytest.raises(ValueError, match="one label"):
        regressor.fit(table[0], np.column_stack([table[1], table[1]]))


def test_wrong_records_are_refused(model: PrivateRegressor) -> None:
    X, y = make_rows(50)
    with pytest.raises(ValueError, match="epsilon"):
        model.evaluate(X, y, epsilon=0.0)
    with pytest.raises(SchemaError, match="'a'"):
        model.evaluate(X.drop(columns="a"), y, epsilon=1.0)
    with pytest.raises(ValueError, match="inconsistent"):
        model.evaluate(X, y[:-1], epsilon=1.0)
    with pytest.raises(ValueError, match="level"):
        model.evaluate(X, y, epsilon=1.0, level=1.0)
    with pytest.raises(SchemaError, match="NaN"):
        model.evaluate(X, y.where(y > 5), epsilon=1.0)


def test_an_evaluation_is_saved_with_its_model(table: tuple[pd.DataFrame, pd.Series], tmp_path: Path) -> None:
    regressor = PrivateRegressor(label_bounds=(-5, 15), head="linear", evaluation_fraction=0.25).fit(*table)
    regressor.save(tmp_path / "model")
    loaded = PrivateRegressor.load(tmp_path / "model")
    assert loaded.evaluation_ == regressor.evaluation_
    page = render_html(report_fit(load_model(tmp_path / "model")))
    assert "How well it predicts" in page and "Predicted against actual" in page and "disjoint sides" in page
    forged = replace(regressor.result_, ledger=PrivacyLedger(PrivacyBudget(1.0, 1e-6)))
    with pytest.raises(PrivacyError):
        report_fit(forged)


def test_a_report_shows_every_bin(model: PrivateRegressor) -> None:
    evaluation = model.evaluate(*make_rows(2000), epsilon=1.0, num_bins=7, random_state=0)
    page, text = (render(report_evaluation(evaluation)) for render in (render_html, render_markdown))
    assert page.count('class="whisker"') == 8  # one is in the legend
    assert text.count("\n| ") >= 6 + 7 and evaluation.guarantee[:40] in page.replace("&#39;", "'")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name, seed in (("train", 1), ("held", 2)):
        X, y = make_rows(1500, seed)
        X.assign(city=np.where(X.a > 0, "x", "y"), price=y).to_csv(folder / f"{name}.csv", index=False)
    arguments = "--label price --label-bounds=-5,15 --public a,b,c,city --head linear --seed 0".split()
    arguments += ["--evaluation-fraction", "0.2", "--out", str(folder / "model")]
    done = runner.invoke(cli.app, ["fit", str(folder / "train.csv"), *arguments])
    assert done.exit_code == 0 and "300 held-out records" in done.stdout, done.output
    return folder


def call(*arguments: object) -> Any:
    return runner.invoke(cli.app, ["evaluate", *map(str, arguments)])


def test_files_are_evaluated_from_the_command_line(files: Path) -> None:
    done = call(files / "model", files / "held.csv", "--epsilon", 1, "--out", files / "page.html", "--seed", 1)
    assert done.exit_code == 0 and "mean absolute error" in done.stdout and "1,500 held-out" in done.stdout
    assert "Predicted against actual" in (files / "page.html").read_text()
    done = call(files / "model", files / "held.csv", "--epsilon", 1, "--json", "--out", files / "e.json", "--seed", 1)
    stored = json.loads(done.stdout)
    assert Evaluation.from_json(stored) == Evaluation.from_json(json.loads((files / "e.json").read_text()))
    assert load_model(files / "model").evaluation is not None
    frame = pd.read_csv(files / "held.csv")
    truth = compute_truth(load_model(files / "model").predict_table(frame), frame.price.to_numpy(), np.ones(1500))
    for each in Evaluation.from_json(stored).figures:
        if each.noise_std is not None:
            assert abs(truth[each.name] - each.estimate) < 4 * each.noise_std  # type: ignore[operator]


def test_a_ledger_pays_for_an_evaluation(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(PrivacyBudget(0.5, 1e-6), path=path)
    assert call(files / "model", files / "held.csv", "--epsilon", 0.4, "--ledger", path).exit_code == 0
    assert PrivacyLedger.load(path).spent.epsilon == pytest.approx(0.4)
    done = call(files / "model", files / "held.csv", "--epsilon", 0.4, "--ledger", path)
    assert isinstance(done.exception, BudgetExceeded)


def test_training_records_are_noticed(files: Path, table: tuple[pd.DataFrame, pd.Series], tmp_path: Path) -> None:
    arguments = ["--label", "price", "--label-bounds=-5,15", "--public", "a,b,c", "--head", "linear"]
    runner.invoke(cli.app, ["fit", str(files / "train.csv"), *arguments, "--out", str(tmp_path / "model")])
    with pytest.warns(PrivacyWarning, match="look like the records"):
        assert call(tmp_path / "model", files / "train.csv", "--epsilon", 1).exit_code == 0


@pytest.mark.parametrize(("dropped", "message"), [("price", "need no label"), ("a", "'a'")])
def test_missing_columns_are_named(files: Path, tmp_path: Path, dropped: str, message: str) -> None:
    pd.read_csv(files / "held.csv").drop(columns=dropped).to_csv(tmp_path / "short.csv", index=False)
    done = call(files / "model", tmp_path / "short.csv", "--epsilon", 1)
    assert isinstance(done.exception, SchemaError) and message in str(done.exception)


@pytest.mark.parametrize(("n", "mu"), [(1000, 0.5), (4000, 2.0)])
def test_a_plan_expects_the_widths_that_come(n: int, mu: float) -> None:
    widths = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        signal = rng.normal(0, 40 / 8 * np.sqrt(0.5), size=n)
        predictions, labels = 10 + signal, np.clip(10 + signal + rng.permutation(signal), -10, 30)
        figures, _ = release(predictions, labels, mu, seed)
        widths.append([figures["rmse"].population.width / figures["rmse"].estimate, figures["r2"].population.width])
    budget = PrivacyBudget(compute_gaussian_epsilon(mu, 1e-6), 1e-6)
    expected = expect_evaluation(n, budget, deviation=1 / 8)
    assert expected.rmse_width == pytest.approx(np.median(widths, axis=0)[0] / 2, rel=0.25)
    assert expected.r2_width == pytest.approx(np.median(widths, axis=0)[1] / 2, rel=0.25)


def test_what_halves_a_width_halves_it() -> None:
    budget = PrivacyBudget(1.0, 1e-6)
    expected = expect_evaluation(2000, budget, deviation=1 / 8)
    more = expect_evaluation(round(expected.more_records), budget, deviation=1 / 8)
    assert more.r2_width == pytest.approx(expected.r2_width / 2, rel=0.02)
    assert expected.more_epsilon is not None
    dearer = expect_evaluation(2000, PrivacyBudget(expected.more_epsilon, 1e-6), deviation=1 / 8)
    assert dearer.r2_width == pytest.approx(expected.r2_width / 2, rel=0.02)
    assert expect_evaluation(2000, PrivacyBudget(50.0, 1e-6), deviation=1 / 4).more_epsilon is None


def test_a_plan_shows_what_an_evaluation_would_tell(tmp_path: Path) -> None:
    X, y = make_rows(400)
    X.assign(price=y).to_csv(tmp_path / "rows.csv", index=False)
    arguments = ["plan", str(tmp_path / "rows.csv"), "--label", "price", "--label-bounds=-5,15", "--algorithm", "mean"]
    done = runner.invoke(cli.app, [*arguments, "--public", "a,b,c", "--out", str(tmp_path / "plan.html")])
    assert done.exit_code == 0, done.output
    assert "1/16 " in done.stdout and "(100)" in done.stdout
    assert "What an evaluation would tell" in (tmp_path / "plan.html").read_text()
    done = runner.invoke(cli.app, [*arguments, "--public", "a,b", "--private", "c=-4,4"])
    assert done.exit_code == 0 and "formulas are for public predictions" in " ".join(done.stdout.split()), done.output


@pytest.mark.parametrize("mu", [0.3, 3.0])
def test_intervals_of_private_predictions_cover_both_targets(mu: float) -> None:
    everything = draw(np.random.default_rng(10**6), 10**6, "skewed")
    population = compute_truth(*everything, np.ones(10**6))
    hits: dict[str, list[tuple[bool, bool]]] = {}
    weights = choose_private_weights(Neighbouring.REPLACE)
    for seed in range(300):
        predictions, labels = draw(np.random.default_rng(seed), 2000, "skewed")
        sample = compute_truth(predictions, labels, np.ones(2000))
        for each in release_figures(
            (labels - 10) / 40,
            (predictions - 10) / 40,
            np.ones(2000),
            np.arange(2000),
            mus=(0.95 * mu, 0.3 * mu),
            moment_weights=weights,
            neighbouring=Neighbouring.REPLACE,
            curator=Curator(np.random.default_rng(seed), num_records=2000),
            bounds=BOUNDS,
            level=0.95,
        ):
            hits.setdefault(each.name, []).append(
                (sample[each.name] in each.sample, population[each.name] in each.population)
            )
    assert len(hits) == 5
    for name, found in hits.items():
        assert np.mean(found, axis=0).min() > 0.905, name


def test_models_with_private_columns_are_evaluated(table: tuple[pd.DataFrame, pd.Series], tmp_path: Path) -> None:
    regressor = PrivateRegressor(
        epsilon=8.0, label_bounds=(-5, 15), private_columns={"a": (-3, 3)}, random_state=0, evaluation_fraction=0.3
    )
    regressor.fit(*table)
    X, y = make_rows(4000)
    evaluation = regressor.evaluate(X, y, epsilon=8.0, random_state=0)
    truth = compute_truth(regressor.predict(X), y.to_numpy(), np.ones(len(y)))
    for each in evaluation.figures:
        assert each.estimate is not None and each.noise_std is not None
        assert abs(each.estimate - truth[each.name]) < 4 * each.noise_std
    assert not evaluation.bins and "private column 'a'" in evaluation.guarantee
    assert regressor.evaluation_.num_records == 900
    regressor.save(tmp_path / "model")
    assert "How well it predicts" in render_html(report_fit(load_model(tmp_path / "model")))
    X.assign(price=y).to_csv(tmp_path / "rows.csv", index=False)
    done = call(tmp_path / "model", tmp_path / "rows.csv", "--epsilon", 1)
    assert done.exit_code == 0 and "slope" not in done.stdout, done.output
    X.drop(columns="a").assign(price=y).to_csv(tmp_path / "rows.csv", index=False)
    assert isinstance(call(tmp_path / "model", tmp_path / "rows.csv", "--epsilon", 1).exception, SchemaError)


def test_figures_of_private_predictions_survive_noise_that_hides_all_errors() -> None:
    """Released mean squares below zero once divided by zero, after the budget was spent."""
    rng = np.random.default_rng(0)
    errors = 0.01 * rng.normal(size=40)
    for seed in range(60):
        curator = Curator(np.random.default_rng(seed), num_records=40)
        figures = release_figures(
            errors,
            errors / 2,
            np.ones(40),
            np.arange(40),
            mus=(0.02, 0.02),
            moment_weights=choose_private_weights(Neighbouring.REPLACE),
            neighbouring=Neighbouring.REPLACE,
            curator=curator,
            bounds=BOUNDS,
            level=0.95,
        )
        assert len(list(figures)) == 5


def test_a_model_is_kept_if_its_evaluation_fails(
    table: tuple[pd.DataFrame, Vector], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OverflowError("too large.")

    monkeypatch.setattr("conddp.algorithms.request.evaluate_model", fail)
    regressor = PrivateRegressor(label_bounds=(-5, 15), head="linear", evaluation_fraction=0.25)
    with pytest.warns(PrivacyWarning, match="could not be evaluated on the held-out records: too large"):
        regressor.fit(*table)
    assert regressor.evaluation_ is None and len(regressor.coef_) == 3


def test_enough_held_out_records_have_weights_above_zero(table: tuple[pd.DataFrame, Vector]) -> None:
    X, y = table
    weights = np.where(np.arange(len(y)) < 12, 1.0, 0.0)
    regressor = PrivateRegressor(label_bounds=(-5, 15), head="linear", evaluation_fraction=0.1)
    with pytest.raises(SchemaError, match="weight above zero"):
        regressor.fit(X, y, sample_weight=weights)


def test_evaluating_on_training_records_warns(table: tuple[pd.DataFrame, Vector]) -> None:
    regressor = PrivateRegressor(label_bounds=(-5, 15), head="linear").fit(*table)
    with pytest.warns(PrivacyWarning, match="the records that the model was trained on"):
        regressor.evaluate(*table, epsilon=1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"neighbouring": Neighbouring.ZERO_OUT},
        {"unit": "person", "num_units": 3},
        {"private_columns": ("a",)},
        {"held_out": False},
    ],
    ids=str,
)
def test_a_stored_evaluation_cannot_promise_more_than_its_fit(
    table: tuple[pd.DataFrame, Vector], change: dict[str, Any]
) -> None:
    result = PrivateRegressor(label_bounds=(-5, 15), head="linear", evaluation_fraction=0.25).fit(*table).result_
    check_evidence(result)
    assert result.evaluation is not None
    with pytest.raises(PrivacyError):
        check_evidence(replace(result, evaluation=replace(result.evaluation, **change)))
