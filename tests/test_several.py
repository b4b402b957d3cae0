"""Several labels of the same records in one fit: one budget, one ledger entry each, and one guarantee for all."""

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp.algorithms import (
    ALGORITHMS,
    Auto,
    CondDP,
    CondNewton,
    FitRequest,
    OneShot,
    PrivateMean,
    RROnBins,
    Tuned,
    unrecorded,
)
from conddp.algorithms.several import divide_budget, join_events
from conddp.auditing import Question, Recorder
from conddp.bounds import Bounds
from conddp.data import Labels, PrivateFeatures, PublicFeatures, Records, Units
from conddp.errors import BudgetExceeded, PrivacyWarning, SchemaError
from conddp.heads import HEADS, Linear
from conddp.models import FittedModel, load_model, save_model
from conddp.privacy import Neighbouring, PrivacyBudget, PrivacyLedger
from conddp.privacy.accounting import calibrate_gaussian_mu, compute_gaussian_delta
from conddp.privacy.events import expect_event, make_pure_event
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.privacy.total import JointCost

PRIVATE = {name: each for name, each in ALGORITHMS.items() if name != "non-private"}
ALL = {
    **PRIVATE,
    "cond-dp sampled": CondDP(num_steps=6, batch_size=40),
    "tuned": Tuned(candidates=(OneShot(), CondNewton())),
    "auto simulated": Auto(num_simulations=1),
}


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrecorded, "_FITS", [])


def make_outputs(
    number: int = 3, n: int = 400, *, private: bool = False, units: bool = False, weighted: bool = False
) -> list[Records]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    hidden = PrivateFeatures(rng.uniform(size=(n, 1)), (Bounds(0.0, 1.0),), ("secret",)) if private else None
    first = Records(
        PublicFeatures(X),
        hidden,
        Labels(X @ [1.0, 0.5] + rng.normal(size=n), Bounds(-5.0, 5.0), "a"),
        Units(rng.integers(0, n // 3, size=n), "person") if units else None,
        weights=rng.uniform(0.1, 1.0, size=n) if weighted else None,
    )
    others = [
        first.with_label(Labels(k * X[:, 1] + rng.normal(size=n), Bounds(-9.0, 9.0), "abcdefgh"[k]))
        for k in range(1, number)
    ]
    return [first, *others]


def list_paid(ledger: PrivacyLedger) -> list[Any]:
    return [entry for entry in ledger.entries if entry.cost.epsilon]


# --- the budget


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        *((name, PrivacyBudget(1.0, 1e-6)) for name in ALL),
        *((name, PrivacyBudget(8.0, 1e-5)) for name in ALL if "sampled" not in name),  # the accountant takes long
    ],
)
def test_the_exact_total_of_all_entries_is_the_budget_and_never_more(name: str, budget: PrivacyBudget) -> None:
    ledger = PrivacyLedger(budget)
    request = FitRequest(budget.epsilon, budget.delta, ALL[name], ledger=ledger, random_state=0)
    n = 4000 if name == "weighted-llp" and budget.epsilon == 1 else 400
    fits = request.run_several(make_outputs(3, n))
    paid = list_paid(ledger)
    assert len(paid) == len(fits.results) == 3
    assert len({entry.cost for entry in paid}) == 1
    whole = ALL[name].cost(budget)
    spent = ledger.joint.epsilon(whole.delta)
    tolerance = 3e-3 if "sampled" in name else 1e-6
    assert whole.epsilon * (1 - tolerance) <= spent <= whole.epsilon * (1 + 1e-12)
    assert fits.guarantee.budget == whole
    assert [each.guarantee.budget for each in fits.results] == [entry.cost for entry in paid]
    with pytest.raises(BudgetExceeded):
        FitRequest(0.1 * budget.epsilon, budget.delta, "mean" if whole.delta else "laplace", ledger=ledger)


@pytest.mark.parametrize("number", [2, 3, 17])
@pytest.mark.parametrize("budget", [PrivacyBudget(0.1, 1e-9), PrivacyBudget(1.0, 1e-6), PrivacyBudget(50.0, 1e-3)])
def test_gaussian_fits_get_mu_over_the_square_root_of_their_number(budget: PrivacyBudget, number: int) -> None:
    algorithm = CondNewton()
    part = divide_budget(algorithm, budget, number, neighbouring=Neighbouring.REPLACE, foresee=algorithm.expect)
    assert part.delta == budget.delta
    mu = calibrate_gaussian_mu(budget.epsilon, budget.delta)
    assert calibrate_gaussian_mu(part.epsilon, part.delta) == pytest.approx(mu / math.sqrt(number), rel=1e-6)
    together = calibrate_gaussian_mu(part.epsilon, part.delta) * math.sqrt(number)
    assert compute_gaussian_delta(together, budget.epsilon) <= budget.delta
    assert part.epsilon > budget.epsilon / number  # better than basic composition


def test_pure_fits_get_an_equal_part_of_epsilon_and_unknown_ones_of_delta_too() -> None:
    budget = PrivacyBudget(1.0, 1e-6)

    def divide(algorithm: Any, foresee: Any) -> PrivacyBudget:
        return divide_budget(algorithm, budget, 4, neighbouring=Neighbouring.REPLACE, foresee=foresee)

    assert divide(RROnBins(), lambda part: make_pure_event(part.epsilon)) == PrivacyBudget(0.25, 1e-6)
    assert divide(CondNewton(), lambda part: None) == PrivacyBudget(0.25, 2.5e-7)
    assert divide(CondNewton(), lambda part: join_events([None, None])) == PrivacyBudget(0.25, 2.5e-7)


def test_where_nothing_else_fits_the_budget_is_divided_by_basic_composition() -> None:
    budget = PrivacyBudget(1e-5, 1e-3)  # delta alone allows a mu that its square root does not divide
    part = divide_budget(PrivateMean(), budget, 9, neighbouring=Neighbouring.REPLACE, foresee=PrivateMean().expect)
    joint = JointCost.of([(part, expect_event(part))] * 9, Neighbouring.REPLACE)
    assert joint.is_covered_by(budget)


@pytest.mark.parametrize("algorithm", [CondNewton(), RROnBins(), Tuned(candidates=(OneShot(), CondNewton()))])
def test_a_ledger_that_covers_some_labels_but_not_all_refuses_all(algorithm: Any) -> None:
    ledger = PrivacyLedger(PrivacyBudget(2.0, 2e-6))
    FitRequest(1.8, 1e-6, algorithm, ledger=ledger).run(make_outputs()[0])
    before = list_paid(ledger)
    with pytest.raises(BudgetExceeded):
        FitRequest(1.0, 1e-6, algorithm, ledger=ledger).run_several(make_outputs())
    assert list_paid(ledger) == before


def test_sampled_labels_whose_cost_is_known_late_are_refused_before_the_first_fit() -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    request = FitRequest(1.0, 1e-6, ALL["cond-dp sampled"], ledger=ledger)
    FitRequest(0.5, 1e-6, CondNewton(), ledger=ledger).run(make_outputs()[0])
    with pytest.raises(BudgetExceeded, match="fitting 3 labels"):
        request.run_several(make_outputs())
    assert len(list_paid(ledger)) == 1


def test_a_second_set_of_labels_fits_into_what_is_left(tmp_path: Path) -> None:
    ledger = PrivacyLedger(PrivacyBudget(2.0, 1e-6), path=tmp_path / "ledger.jsonl")
    FitRequest(1.0, 1e-6, CondNewton(), ledger=ledger).run_several(make_outputs())
    rest = ledger.remaining
    FitRequest(rest.epsilon, rest.delta, CondNewton(), ledger=ledger).run_several(make_outputs(5))
    assert len(list_paid(PrivacyLedger.load(tmp_path / "ledger.jsonl"))) == 8
    assert 1.999 < ledger.spent.epsilon <= 2.0


# --- the fits


@pytest.mark.parametrize("name", ["cond-newton", "auto", "rr-on-bins", "tuned", "cond-dp"])
def test_one_label_is_the_ordinary_fit_to_the_last_bit(name: str) -> None:
    (records,) = make_outputs(1)
    request = FitRequest(1.0, 1e-6, ALL[name], random_state=3)
    expected = request.run(records)
    unrecorded._FITS.clear()
    fits = request.run_several([records])
    assert np.array_equal(fits.results[0].model.parameters, expected.model.parameters)
    assert str(fits.guarantee) == str(expected.guarantee)
    assert fits.guarantee.budget == expected.guarantee.budget


@pytest.mark.parametrize("head", ["linear", "auto"])
def test_each_label_is_fitted_as_it_would_be_alone_with_its_part_of_the_budget(head: str) -> None:
    outputs = make_outputs(2, private=True, units=True, weighted=True)
    fits = FitRequest(1e6, 1e-6, CondNewton(), head=head, random_state=0).run_several(outputs)
    for records, result in zip(outputs, fits.results, strict=True):

        def fit_alone(budget: PrivacyBudget, seed: int, records: Records = records) -> FittedModel:
            source = RandomSource.of(seed)
            return CondNewton().fit(records, budget, head=HEADS.resolve(head), random_source=source).model

        same = fit_alone(result.guarantee.budget, 0)  # the same part, and the same noise
        assert result.model.head == same.head and (same.head == Linear()) == (head == "linear")
        assert np.array_equal(result.model.parameters, same.parameters)
        other = fit_alone(PrivacyBudget(1e6, 1e-6), 1)  # so large that neither the part nor the noise matters
        found = result.model.predict(records.public, records.private)
        assert np.abs(found - other.predict(records.public, records.private)).max() < 0.1
        assert result.guarantee.label == records.label.name
        assert result.guarantee.weighted and result.guarantee.unit == "person"


def test_noise_differs_between_labels_even_if_the_labels_do_not() -> None:
    (first,) = make_outputs(1)
    same = [first, replace(first, label=Labels(first.label.values, first.label.bounds, "b"))]
    for random_state in (None, 0):
        one, other = FitRequest(1.0, 1e-6, PrivateMean(), random_state=random_state).run_several(same).results
        assert one.model.parameters[-1] != other.model.parameters[-1]
        unrecorded._FITS.clear()


def test_seeded_labels_are_the_same_again() -> None:
    request = FitRequest(1.0, 1e-6, CondNewton(), random_state=0, ledger=PrivacyLedger(PrivacyBudget(9.0, 1e-6)))
    one, other = (request.run_several(make_outputs()) for _ in range(2))
    for first, second in zip(one.results, other.results, strict=True):
        assert np.array_equal(first.model.parameters, second.model.parameters)


@pytest.mark.filterwarnings("error")
def test_the_labels_of_one_fit_do_not_warn_of_each_other_and_count_once_towards_the_next() -> None:
    outputs = make_outputs()
    request = FitRequest(1.0, 1e-6, CondNewton())
    request.run_several(outputs)
    with pytest.warns(PrivacyWarning, match="2 fits .* cost epsilon=1.45 at delta=1e-06"):
        request.run(outputs[0])
    with pytest.warns(PrivacyWarning, match="3 fits .* cost epsilon=1.81 at delta=1e-06"):
        request.run_several(outputs)


def test_a_fit_that_fails_after_a_label_was_paid_for_counts() -> None:
    outputs = make_outputs()

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FitRequest(1.0, 1e-6, CondNewton()).run_several(outputs, callback=stop)
    with pytest.warns(PrivacyWarning, match="2 fits"):
        FitRequest(1.0, 1e-6, CondNewton()).run(outputs[0])


def test_automatic_choice_is_made_once_for_all_labels() -> None:
    fits = FitRequest(1.0, 1e-6, Auto(num_simulations=1), random_state=0).run_several(make_outputs(2, 200))
    assert fits.results[0].settings["algorithm"] == fits.results[1].settings["algorithm"]
    assert "was chosen because" in str(fits.results[1].guarantee)


def test_models_of_several_labels_are_saved_one_by_one(tmp_path: Path) -> None:
    fits = FitRequest(1.0, 1e-6, CondNewton(), random_state=0).run_several(make_outputs())
    for result in fits.results:
        save_model(tmp_path / result.guarantee.label, result)
        assert load_model(tmp_path / result.guarantee.label).guarantee == result.guarantee


# --- what is refused and said


def test_labels_of_other_records_are_refused() -> None:
    outputs = make_outputs(2, private=True, units=True, weighted=True)
    first, second = outputs
    request = FitRequest(1.0, 1e-6, CondNewton())
    assert second.private is not None and second.weights is not None and second.units is not None
    wrong = [
        replace(second, public=PublicFeatures(second.public.values + 1)),
        replace(second, private=PrivateFeatures(second.private.values, second.private.domains, second.private.names)),
        replace(second, private=None),
        replace(second, units=None),
        replace(second, units=Units(second.units.codes[::-1].copy(), "person")),
        replace(second, weights=None),
        replace(second, weights=second.weights[::-1].copy()),
    ]
    for other in wrong:
        with pytest.raises(SchemaError, match="belongs to other records"):
            request.run_several([first, other])
    with pytest.raises(SchemaError, match="must have different names"):
        request.run_several([first, first])
    with pytest.raises(SchemaError, match="at least one label"):
        request.run_several([])
    copied = replace(second, public=PublicFeatures(second.public.values.copy()), weights=second.weights.copy())
    assert len(request.run_several([first, copied]).results) == 2


def test_the_declared_schema_goes_with_the_label() -> None:
    (first,) = make_outputs(1)
    declared = replace(first, declared=first.schema)
    second = declared.with_label(Labels(first.label.values, Bounds(-20.0, 20.0), "b"))
    assert second.schema.label.name == "b" and second.schema.label_bounds == Bounds(-20.0, 20.0)
    assert second.schema.public == first.schema.public
    fits = FitRequest(1.0, 1e-6, PrivateMean()).run_several([declared, second])
    assert [each.guarantee.label for each in fits.results] == ["a", "b"]
    # Sensitivities are computed from what is declared, so that another label must not slip in.
    with pytest.raises(SchemaError, match="Change both together"):
        replace(declared, label=second.label)
    with pytest.raises(SchemaError, match="Change both together"):
        replace(declared, label=Labels(first.label.values, Bounds(-20.0, 20.0), "a"))


def test_a_checkpoint_of_several_labels_is_refused(tmp_path: Path) -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    request = FitRequest(1.0, 1e-6, CondNewton(), checkpoint=tmp_path / "fit", ledger=ledger)
    with pytest.raises(ValueError, match="a checkpoint is for one label"):
        request.run_several(make_outputs())
    assert ledger.entries == ()


def test_what_an_algorithm_refuses_is_refused_before_the_first_label() -> None:
    ledger = PrivacyLedger(PrivacyBudget(1.0, 1e-6))
    with pytest.raises(Exception, match="protects labels only"):
        FitRequest(1.0, 1e-6, OneShot(), ledger=ledger).run_several(make_outputs(private=True))
    with pytest.raises(ValueError, match="gives all records the same weight"):
        FitRequest(1.0, 1e-6, "weighted-llp", ledger=ledger).run_several(make_outputs(weighted=True))
    assert ledger.entries == ()


def test_the_joint_guarantee_names_all_labels_and_who_is_protected() -> None:
    outputs = make_outputs(private=True)
    text = str(FitRequest(1.0, 1e-6, CondNewton()).run_several(outputs).guarantee)
    assert text.startswith(
        "These 3 models together are (1, 1e-06)-differentially private with respect to the labels 'a' (declared range "
        "[-5, 5]), 'b' (declared range [-9, 9]), 'c' (declared range [-9, 9]) and the private columns 'secret' of any "
        "one of 400 training records."
    )
    assert "This model is (0.5" in text
    text = str(FitRequest(1.0, 1e-6, RROnBins()).run_several(make_outputs(units=True)).guarantee)
    assert "together are 1-differentially private" in text
    assert "of all training records with any one of" in text and "for one value of 'person'" in text
    ledger = PrivacyLedger(PrivacyBudget(math.inf, 0.0))
    assert "3 models are NOT" in str(
        FitRequest(1.0, 1e-6, "non-private", ledger=ledger).run_several(make_outputs()).guarantee
    )


# --- attacked as a whole


def replace_one(outputs: list[Records], position: int, end: float) -> list[Records]:
    """A neighbour: all labels and the private columns of one record are at an end of their ranges."""
    hidden, changed = outputs[0].private, []
    if hidden is not None:
        values = hidden.values.copy()
        values[position] = end
        hidden = PrivateFeatures(values, hidden.domains, hidden.names)
    for each in outputs:
        labels = each.label.values.copy()
        labels[position] = each.label.bounds.low + end * each.label.bounds.width
        changed.append(replace(each, private=hidden, label=Labels(labels, each.label.bounds, each.label.name)))
    return changed


def watch(request: FitRequest, outputs: list[Records], answers: Any, monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    recorder = Recorder(answers=answers)
    algorithm = request._algorithm
    with monkeypatch.context() as patch:
        real = type(algorithm).fit
        patch.setattr(
            type(algorithm),
            "fit",
            lambda self, *arguments, **settings: real(
                self, *arguments, **{**settings, "curator_class": recorder.make_class(Curator)}
            ),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            request.run_several(outputs)
    return recorder.questions


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("algorithm", [CondNewton(), CondDP(num_steps=4, clip_norm=0.02), OneShot(), PrivateMean()])
def test_all_labels_of_a_record_together_move_the_releases_by_no_more_than_the_budget(
    algorithm: Any, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if private and algorithm.labels_only:
        return
    outputs, budget = make_outputs(3, 60, private=private), PrivacyBudget(2.0, 1e-4)
    found, most = 0.0, calibrate_gaussian_mu(budget.epsilon, budget.delta)
    request = FitRequest(budget.epsilon, budget.delta, algorithm, ledger=PrivacyLedger(PrivacyBudget(1e4, 0.5)))
    leverage = np.linalg.norm(outputs[0].public.values, axis=1)
    for position in (int(np.argmax(leverage)), 7):
        questions = watch(request, replace_one(outputs, position, 0.0), None, monkeypatch)
        answers = [question.released for question in questions]
        others = watch(request, replace_one(outputs, position, 1.0), answers, monkeypatch)
        squared = sum(
            (float(np.linalg.norm(one.private - other.private)) / one.noise_std) ** 2
            for one, other in zip(questions, others, strict=True)
        )
        assert math.sqrt(squared) <= most * (1 + 1e-12)
        assert compute_gaussian_delta(math.sqrt(squared), budget.epsilon) <= budget.delta * (1 + 1e-9)
        found = max(found, math.sqrt(squared))
    # The labels move together: more than one of them alone could, which has most over the root of 3.
    assert found > 0.65 * most
