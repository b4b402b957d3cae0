"""Labels of an evaluation are moved through their range, and the released sums are watched."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from conddp.algorithms import CondNewton
from conddp.bounds import Bounds
from conddp.data import Labels, Records, Units
from conddp.errors import BudgetExceeded, SchemaError
from conddp.evaluation import evaluate_model
from conddp.evaluation.moments import release_moments
from conddp.evaluation.moves import MomentWeights, find_largest_move, measure_moves
from conddp.evaluation.predicted import Predicted
from conddp.evaluation.private_predictions import bound_private_move, release_figures
from conddp.evaluation.spreads import release_spreads
from conddp.evaluation.weighting import choose_weights
from conddp.models.evaluation import Evaluation
from conddp.models.result import FitResult
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from tests.privacy.replay import make_records

Vector = NDArray[np.float64]
BUDGET, BOUNDS = PrivacyBudget(1.0, 1e-6), Bounds(-0.5, 0.5)
RELATIONS = list(Neighbouring)


class Watching(Curator):
    """Keeps what it is asked to release, and answers with numbers that depend on the question's shape only."""

    def __init__(self, *arguments: Any, answers: list[Vector] | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.asked: list[BoundedSum] = []
        self.answers = answers

    def release_gaussian(self, bounded: BoundedSum, *, noise_std: Any, sampling_probability: float = 1.0) -> Any:
        noisy = super().release_gaussian(bounded, noise_std=noise_std, sampling_probability=sampling_probability)
        self.asked.append(bounded)
        return noisy if self.answers is None else self.answers[len(self.asked) - 1]


def watch() -> Watching:
    return Watching(np.random.default_rng(0), num_records=100)


@settings(max_examples=300)
@given(st.data())
def test_the_longest_move_of_a_record_is_found_exactly(data: st.DataObject) -> None:
    scaled = data.draw(st.floats(-0.5, 0.5))
    deviation = data.draw(st.floats(-1, 1))
    weights = MomentWeights(*(10.0 ** data.draw(st.floats(-2, 2)) for _ in range(5)))
    errors = np.union1d(np.linspace(-0.5 - scaled, 0.5 - scaled, 801), [0.0])
    moments = np.stack(
        [
            weights.square * errors**2,
            weights.absolute * np.abs(errors),
            weights.error * errors,
            weights.product * deviation * errors,
            weights.bins * errors,
        ],
        axis=1,
    )
    replaced = np.sqrt(((moments[:, None] - moments[None]) ** 2).sum(axis=2)).max()
    nulled = np.sqrt((moments**2).sum(axis=1)).max()
    one = (np.array([scaled]), np.array([deviation]), weights)
    assert replaced * (1 - 1e-12) <= measure_moves(*one, Neighbouring.REPLACE)[0] <= replaced * (1 + 1e-4)
    assert nulled * (1 - 1e-12) <= measure_moves(*one, Neighbouring.ZERO_OUT)[0] <= nulled * (1 + 1e-6)


def make_predicted(rng: np.random.Generator, *, units: bool, weighted: bool, alike: bool = False) -> Predicted:
    n = 40
    grouped = Units(rng.integers(12, size=n), "person") if units else None
    if grouped is not None:
        grouped = grouped[grouped.arrange()]
    predictions = np.clip(rng.normal(0, 0.3, size=n), -0.6, 0.6)
    if alike and grouped is not None:
        predictions = predictions[grouped.codes]
    weights = rng.uniform(0.1, 1, size=n) if weighted else None
    return Predicted.of(predictions, BOUNDS, num_bins=4, weights=weights, units=grouped)


def sum_both(
    predicted: Predicted, labels: Vector, weights: MomentWeights, neighbouring: Neighbouring, scale: float = 1.0
) -> list[BoundedSum]:
    """What is released of labels, with the same answers whatever the labels are. Errors may be scaled to zero."""
    size = predicted.num_bins
    answers = [np.append([2.0, 5.0, 0.3, 0.2], np.full(size, 0.1)), np.ones(5 + size)]
    curator = watch()
    curator.answers = answers
    errors = (labels - predicted.scaled) * scale
    moments = release_moments(errors, predicted, weights, mu=1.0, neighbouring=neighbouring, curator=curator)
    release_spreads(errors, predicted, moments, mu=1.0, curator=curator)
    return curator.asked


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("units", [False, True])
def test_replacing_all_labels_of_a_unit_moves_no_sum_further_than_its_sensitivity(units: bool, weighted: bool) -> None:
    rng = np.random.default_rng(5)
    largest = [0.0, 0.0]
    for _ in range(200):
        predicted = make_predicted(rng, units=units, weighted=weighted)
        weights = MomentWeights(*np.exp(rng.normal(size=5)).tolist())
        labels = rng.uniform(-0.5, 0.5, size=len(predicted))
        moves = measure_moves(predicted.scaled, predicted.deviations, weights, Neighbouring.REPLACE)
        farthest = int(predicted.add_up_units(moves).argmax())
        code = rng.choice([farthest, rng.integers(predicted.unit_codes.max() + 1)])
        changed = np.flatnonzero(predicted.unit_codes == code)
        before, after = labels.copy(), labels.copy()
        before[changed], after[changed] = rng.choice([-0.5, 0.5, 0.0], size=2)
        first = sum_both(predicted, before, weights, Neighbouring.REPLACE)
        second = sum_both(predicted, after, weights, Neighbouring.REPLACE)
        for place, (one, other) in enumerate(zip(first, second, strict=True)):
            assert one.sensitivity == other.sensitivity
            moved = float(np.linalg.norm(one.value - other.value))
            assert moved <= one.sensitivity * (1 + 1e-9)
            largest[place] = max(largest[place], moved / one.sensitivity)
    assert largest[0] > (0.8 if units else 0.99) and largest[1] > 0.3


@pytest.mark.parametrize("neighbouring", RELATIONS)
def test_the_sensitivity_is_attained_by_a_unit_whose_records_are_alike(neighbouring: Neighbouring) -> None:
    rng = np.random.default_rng(1)
    predicted = make_predicted(rng, units=True, weighted=True, alike=True)
    weights = MomentWeights(1.0, 0.1, 0.3, 2.0, 0.5)  # the longest move is from end to end
    moves = predicted.add_up_units(measure_moves(predicted.scaled, predicted.deviations, weights, neighbouring))
    changed = np.flatnonzero(predicted.unit_codes == moves.argmax())
    labels = rng.uniform(-0.5, 0.5, size=len(predicted))
    asked = []
    for end in (-0.5, 0.5):
        labels[changed] = end if neighbouring is Neighbouring.REPLACE else -0.5 * np.sign(predicted.scaled[changed])
        if neighbouring is Neighbouring.ZERO_OUT and end > 0:
            labels[changed] = predicted.scaled[changed]  # an error of zero contributes nothing
        asked.append(sum_both(predicted, labels, weights, neighbouring)[0])
    moved = float(np.linalg.norm(asked[0].value - asked[1].value))
    bound = find_largest_move(predicted, weights, neighbouring)
    assert asked[0].sensitivity == bound
    assert 0.8 * bound < moved <= bound * (1 + 1e-9)


@pytest.mark.parametrize("units", [False, True])
def test_nulling_a_unit_moves_no_sum_further_than_its_sensitivity(units: bool) -> None:
    rng = np.random.default_rng(6)
    for _ in range(100):
        predicted = make_predicted(rng, units=units, weighted=True)
        weights = MomentWeights(*np.exp(rng.normal(size=5)).tolist())
        labels = rng.choice([-0.5, 0.5], size=len(predicted))
        code = rng.integers(predicted.unit_codes.max() + 1)
        kept = predicted.unit_codes != code
        without = replace_weights(predicted, np.where(kept, predicted.weights, 0.0))
        whole = sum_both(predicted, labels, weights, Neighbouring.ZERO_OUT)[0]
        errors = labels - predicted.scaled
        contribution = sum_by_hand(predicted, errors, weights) - sum_by_hand(without, errors, weights)
        assert np.allclose(sum_by_hand(predicted, errors, weights), whole.value)
        assert np.linalg.norm(contribution) <= whole.sensitivity * (1 + 1e-9)


def replace_weights(predicted: Predicted, weights: Vector) -> Predicted:
    """Other weights, with what is public of the predictions as it was."""
    changed = Predicted(predicted.scaled, predicted.bins, predicted.num_bins, weights, predicted.units)
    changed.__dict__["deviations"] = predicted.deviations
    return changed


def sum_by_hand(predicted: Predicted, errors: Vector, weights: MomentWeights) -> Vector:
    v = predicted.weights
    bins = [weights.bins * (v * errors)[predicted.bins == place].sum() for place in range(predicted.num_bins)]
    return np.array(
        [
            weights.square * (v * errors**2).sum(),
            weights.absolute * (v * np.abs(errors)).sum(),
            weights.error * (v * errors).sum(),
            weights.product * (v * errors * predicted.deviations).sum(),
            *bins,
        ]
    )


@pytest.fixture(scope="module")
def fitted() -> FitResult:
    return CondNewton().fit(make_records(400, private=False), BUDGET)


def replace_labels(records: Records, values: Vector) -> Records:
    return replace(records, label=Labels(values, records.label.bounds, records.label.name))


@pytest.mark.parametrize("units", [False, True])
def test_the_same_answers_give_the_same_evaluation_whatever_the_labels_are(fitted: FitResult, units: bool) -> None:
    records = make_records(300, private=False, seed=3)
    if units:
        records = replace(records, units=Units(np.arange(300) // 3, "person"))
    made: list[Evaluation] = []
    questions: list[list[BoundedSum]] = []
    for labels in (records.label.values, np.full(300, 6.0)):
        curators: list[Watching] = []

        def make_curator(*arguments: Any, curators: list[Watching] = curators, **settings: Any) -> Watching:
            answers = [np.append([10.0, 30.0, 2.0, 1.0], np.full(10, 0.2)), np.full(15, 0.5)]
            curators.append(Watching(*arguments, answers=answers, **settings))
            return curators[-1]

        made.append(
            evaluate_model(fitted, replace_labels(records, labels), BUDGET, curator_class=make_curator)  # type: ignore[arg-type]
        )
        questions.append(curators[0].asked)
    assert made[0] == made[1]
    for one, other in zip(*questions, strict=True):
        assert one.sensitivity == other.sensitivity and not np.allclose(one.value, other.value)


@pytest.mark.parametrize("neighbouring", RELATIONS)
def test_both_releases_together_cost_what_was_paid(fitted: FitResult, neighbouring: Neighbouring) -> None:
    ledger = PrivacyLedger(BUDGET, neighbouring=neighbouring)
    evaluation = evaluate_model(fitted, make_records(300, private=False), BUDGET, ledger=ledger)
    mu = calibrate_gaussian_mu(BUDGET.epsilon, BUDGET.delta)
    assert len(evaluation.transcript) == 2
    assert evaluation.transcript.mu == pytest.approx(mu, rel=1e-6) and evaluation.transcript.mu <= mu
    assert [entry.cost for entry in ledger.entries] == [BUDGET]
    assert (
        "weaker" in evaluation.guarantee
        if neighbouring is Neighbouring.ZERO_OUT
        else "any other" in str(evaluation.guarantee)
    )


def test_an_evaluation_that_is_not_covered_reads_nothing(fitted: FitResult) -> None:
    ledger = PrivacyLedger(PrivacyBudget(0.5, 1e-6))

    def refuse(*_: Any, **__: Any) -> Curator:
        raise AssertionError("a curator was made")

    with pytest.raises(BudgetExceeded, match="the evaluation needs"):
        evaluate_model(fitted, make_records(50, private=False), BUDGET, ledger=ledger, curator_class=refuse)  # type: ignore[arg-type]
    assert not ledger.entries


def test_labels_outside_their_bounds_are_clamped(fitted: FitResult) -> None:
    records = make_records(300, private=False, seed=3)
    far = np.where(records.label.values > 6, 1e9, records.label.values)
    far[0] = np.inf
    near = far.clip(-4.0, 6.0)
    curators = [watch_labels(fitted, replace_labels(records, labels)) for labels in (far, near)]
    assert all(
        np.array_equal(one.value, other.value)
        for one, other in zip(curators[0].asked[:1], curators[1].asked[:1], strict=True)
    )


def watch_labels(fitted: FitResult, records: Records) -> Watching:
    curators: list[Watching] = []

    def make_curator(*arguments: Any, **settings: Any) -> Watching:
        curators.append(Watching(*arguments, **settings))
        return curators[-1]

    evaluate_model(fitted, records, BUDGET, curator_class=make_curator)  # type: ignore[arg-type]
    return curators[0]


@pytest.mark.parametrize("neighbouring", RELATIONS)
def test_the_longest_move_of_a_record_with_a_private_prediction_is_attained(neighbouring: Neighbouring) -> None:
    rng = np.random.default_rng(2)
    grid = np.linspace(-0.5, 0.5, 17)
    labels, predictions = (each.ravel() for each in np.meshgrid(grid, grid))
    errors = labels - predictions
    moments = np.stack([errors**2, np.abs(errors), errors, labels, labels**2], axis=1)
    ratios = []
    for _ in range(300):
        weights = np.exp(rng.normal(0, 1.5, size=5))
        scaled = moments * weights
        squares = (scaled**2).sum(axis=1)
        farthest = squares.max()
        if neighbouring is Neighbouring.REPLACE:
            farthest = (squares[:, None] + squares - 2 * scaled @ scaled.T).max()
        ratios.append(bound_private_move(weights, neighbouring) / np.sqrt(farthest))
    assert min(ratios) > 1 - 1e-9 and np.median(ratios) < 1.001


@pytest.mark.parametrize("units", [False, True])
def test_replacing_private_values_of_a_unit_moves_no_sum_further_than_its_sensitivity(units: bool) -> None:
    rng = np.random.default_rng(7)
    largest = [0.0, 0.0]
    for _ in range(150):
        codes = np.sort(rng.integers(8, size=30)) if units else np.arange(30)
        codes = np.unique(codes, return_inverse=True)[1]
        weights = rng.uniform(0.2, 1, size=30)
        changed = codes == np.bincount(codes, weights).argmax()
        both = []
        before, after = rng.uniform(-0.5, 0.5, size=(2, 2, 30))
        before[:, changed], after[:, changed] = rng.choice([-0.5, 0.0, 0.5], size=(2, 2, 1))
        after[:, ~changed] = before[:, ~changed]
        moment_weights = np.exp(rng.normal(size=5))
        for labels, predictions in (before, after):
            curator = watch()
            curator.answers = [np.array([2.0, 5.0, 0.3, 0.5, 3.0]) * moment_weights, np.ones(4)]
            list(
                release_figures(
                    labels,
                    predictions,
                    weights,
                    codes,
                    mus=(1.0, 1.0),
                    moment_weights=moment_weights,
                    neighbouring=Neighbouring.REPLACE,
                    curator=curator,
                    bounds=BOUNDS,
                    level=0.95,
                )
            )
            both.append(curator.asked)
        for place, (one, other) in enumerate(zip(*both, strict=True)):
            moved = float(np.linalg.norm(one.value - other.value))
            assert one.sensitivity == other.sensitivity and moved <= one.sensitivity * (1 + 1e-9)
            largest[place] = max(largest[place], moved / one.sensitivity)
    assert largest[0] > 0.95 and largest[1] > 0.5


def test_private_predictions_are_read_after_the_cost_is_recorded_and_answers_decide_everything() -> None:
    records = make_records(300, private=True)
    result = CondNewton().fit(records, BUDGET)
    other = make_records(300, private=True, seed=5)
    made = []
    for each in (records, replace(other, public=records.public)):

        def make_curator(*arguments: Any, **settings: Any) -> Watching:
            return Watching(*arguments, answers=[np.array([10.0, 30.0, 2.0, 1.0, 20.0]), np.full(4, 0.5)], **settings)

        made.append(evaluate_model(result, each, BUDGET, curator_class=make_curator))  # type: ignore[arg-type]
    assert made[0] == made[1] and not made[0].bins
    assert "private columns 'income', 'ill'" in made[0].guarantee
    assert [figure.name for figure in made[0].figures] == ["mse", "rmse", "mae", "r2", "bias"]
    with pytest.raises(SchemaError, match="private columns"):
        evaluate_model(result, replace(records, private=None), BUDGET)


def test_an_evaluation_of_private_predictions_that_is_not_covered_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = make_records(300, private=True)
    result = CondNewton().fit(records, BUDGET)

    def refuse(*_: Any) -> Vector:
        raise AssertionError("a prediction was made")

    monkeypatch.setattr(FitResult, "predict", refuse)
    with pytest.raises(BudgetExceeded):
        evaluate_model(result, records, BUDGET, ledger=PrivacyLedger(PrivacyBudget(0.5, 1e-6)))


def test_weights_of_moments_depend_on_predictions_only(rng: np.random.Generator) -> None:
    predicted = make_predicted(rng, units=False, weighted=False)
    weights = choose_weights(predicted, Neighbouring.REPLACE)
    assert weights == choose_weights(predicted, Neighbouring.REPLACE)
    assert min(weights.square, weights.absolute, weights.error, weights.product, weights.bins) > 0
