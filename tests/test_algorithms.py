from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conddp.algorithms import DPSGD, CondDP, SwitchCondDP
from conddp.algorithms.descent import Descent, Phase
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.records import Records
from conddp.features.spectrum import Spectrum
from conddp.heads.head import Head, Inputs
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.privacy.accounting import calibrate_noise_multiplier
from conddp.privacy.bounded_sum import BoundedSum, bound_rounding
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.privacy.transcript import GaussianRelease, Transcript
from conddp.training.loop import Progress, train
from conddp.training.optimizers import SGD
from tests.contracts import ALGORITHMS, HEADS

BUDGET = PrivacyBudget(2.0, 1e-5)


def dataset(rng: np.random.Generator, n: int = 500, *, private: bool = True) -> Records:
    X = rng.normal(size=(n, 3)) * [1.0, 30.0, 0.1] + [0.0, 50.0, 0.0]
    Q = rng.uniform(-2, 2, size=(n, 2))
    y = X @ [1.0, 0.02, 5.0] + Q @ [0.5, -0.5] + 0.1 * rng.normal(size=n)
    part = PrivateFeatures(Q, (Bounds(-2, 2), Bounds(-3, 3)), ("q0", "q1")) if private else None
    return Records(PublicFeatures(X), part, Labels(y, Bounds(-6, 8)))


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=list(ALGORITHMS))
def test_every_algorithm_fits_every_head(
    rng: np.random.Generator, algorithm: Descent, head: Head, private: bool
) -> None:
    data = dataset(rng, private=private)
    ledger = PrivacyLedger(BUDGET)
    result = algorithm.fit(data, BUDGET, head=head, random_source=RandomSource.of(0), ledger=ledger)
    predictions = result.model.predict(data.public, data.private)
    assert predictions.shape == (500,)
    assert ((predictions >= -6) & (predictions <= 8)).all()
    assert ledger.spent == BUDGET
    assert [entry.cost.epsilon for entry in ledger.entries] == [0.0, 2.0]
    assert result.guarantee.budget == BUDGET
    again = algorithm.fit(data, BUDGET, head=head, random_source=RandomSource.of(0))
    assert np.array_equal(again.model.parameters, result.model.parameters)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=list(ALGORITHMS))
def test_the_run_makes_exactly_the_accounted_releases(
    rng: np.random.Generator, algorithm: Descent, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Curator.release_gaussian
    released: list[tuple[float, float, float]] = []

    def count(
        curator: Curator, bounded: BoundedSum, *, noise_std: Any, sampling_probability: float = 1.0
    ) -> NDArray[Any]:
        released.append((float(bounded.sensitivity), float(noise_std), sampling_probability))
        noisy = original(curator, bounded, noise_std=noise_std, sampling_probability=sampling_probability)
        return np.asarray(noisy)

    monkeypatch.setattr(Curator, "release_gaussian", count)
    result = algorithm.fit(dataset(rng), BUDGET, random_source=RandomSource.of(0))
    settings = result.settings
    clip_norm, num_steps, probability = (settings[name] for name in ("clip_norm", "num_steps", "sampling_probability"))
    noise_multiplier = calibrate_noise_multiplier(
        BUDGET.epsilon, BUDGET.delta, num_steps=num_steps, sampling_probability=probability
    )
    assert settings["noise_multiplier"] == noise_multiplier
    sensitivity, noise_std = 2 * clip_norm, noise_multiplier * clip_norm
    assert released == [(sensitivity, noise_std, probability)] * num_steps
    enlarged = noise_std * (1 + bound_rounding(500))
    accounted = GaussianRelease("clipped gradients", num_steps, sensitivity, enlarged, probability)
    assert result.transcript == Transcript((accounted,))


@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_noise_follows_the_relation(rng: np.random.Generator, neighbouring: Neighbouring) -> None:
    result = CondDP().fit(dataset(rng), BUDGET, neighbouring=neighbouring, random_source=RandomSource.of(0))
    assert result.guarantee.neighbouring is neighbouring
    half = CondDP().fit(dataset(rng), BUDGET, neighbouring=Neighbouring.ZERO_OUT, random_source=RandomSource.of(0))
    factor = 2.0 if neighbouring is Neighbouring.REPLACE else 1.0
    multipliers = []
    for fit, relative in ((result, factor), (half, 1.0)):
        (release,) = fit.transcript
        assert isinstance(release, GaussianRelease)
        assert release.sensitivity == relative * fit.settings["clip_norm"]
        multipliers.append(release.noise_std / fit.settings["clip_norm"])
    assert multipliers[0] == pytest.approx(factor * multipliers[1])


def test_choices_do_not_depend_on_private_values(rng: np.random.Generator) -> None:
    data = dataset(rng)
    assert data.private is not None
    other = Records(
        data.public,
        PrivateFeatures(np.zeros_like(data.private.values), data.private.domains, data.private.names),
        Labels(np.full(500, 7.9), data.label.bounds),
    )
    for algorithm in ALGORITHMS.values():
        one = algorithm.fit(data, BUDGET, random_source=RandomSource.of(0))
        two = algorithm.fit(other, BUDGET, random_source=RandomSource.of(0))
        assert one.settings == two.settings
        assert one.guarantee == two.guarantee


def test_without_an_intercept_the_model_goes_through_the_origin(rng: np.random.Generator) -> None:
    data = dataset(rng)
    result = CondDP().fit(data, BUDGET, fit_intercept=False, random_source=RandomSource.of(0))
    assert data.private is not None
    origin = PrivateFeatures(np.zeros((1, 2)), data.private.domains)
    assert result.model.predict(PublicFeatures(np.zeros((1, 3))), origin) == pytest.approx([0.0], abs=1e-12)
    assert result.model.compute_linear_coefficients()[2] == 0.0


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_are_in_the_users_units(rng: np.random.Generator, fit_intercept: bool) -> None:
    data = dataset(rng, n=300)
    result = CondDP().fit(data, BUDGET, fit_intercept=fit_intercept, random_source=RandomSource.of(0))
    public, private, intercept = result.model.compute_linear_coefficients()
    assert data.private is not None
    direct = data.public.values @ public + data.private.values @ private + intercept
    assert result.model.predict(data.public, data.private) == pytest.approx(np.clip(direct, -6, 8), abs=1e-9)


def test_little_noise_gives_least_squares(rng: np.random.Generator) -> None:
    data = dataset(rng, private=False)
    generous = PrivacyBudget(1e5, 1e-5)
    result = CondDP(num_steps=200, clip_norm=10.0).fit(data, generous, random_source=RandomSource.of(0))
    full = np.column_stack([data.public.values, np.ones(500)])
    expected = np.linalg.lstsq(full, data.label.values, rcond=None)[0]
    public, _, intercept = result.model.compute_linear_coefficients()
    assert np.append(public, intercept) == pytest.approx(expected, rel=0.05, abs=0.05)


def test_the_switch_changes_no_prediction_and_goes_on_without_conditioning(rng: np.random.Generator) -> None:
    data = dataset(rng)
    head = MLP(hidden=(4,))
    switch = SwitchCondDP(num_steps=10, switch=0.4)
    plan = switch.plan(head, Spectrum.of(data.public), BUDGET, num_private=2)
    assert [phase.num_steps for phase in plan.phases] == [4, 6]
    assert plan.training.num_steps == 10
    assert plan.part(0).averaging == 0.0
    assert plan.part(1).averaging == pytest.approx(5 / 6)
    assert len(SwitchCondDP(switch=0.0).plan(head, Spectrum.of(data.public), BUDGET).phases) == 1
    # All the steps before the switch are those of Cond-DP, all the steps of a run with switch 0 are those of DPSGD.
    same: dict[str, Any] = {"num_steps": 10, "optimizer": "adam", "averaging": 0.0}
    whole = SwitchCondDP(switch=1.0, **same).fit(data, BUDGET, head=head, random_source=RandomSource.for_neighbours(0))
    cond = CondDP(**same).fit(data, BUDGET, head=head, random_source=RandomSource.for_neighbours(0))
    assert np.array_equal(whole.model.parameters, cond.model.parameters)
    none = SwitchCondDP(switch=0.0, **same).fit(data, BUDGET, head=head, random_source=RandomSource.for_neighbours(0))
    plain = DPSGD(**same).fit(data, BUDGET, head=head, random_source=RandomSource.for_neighbours(0))
    assert np.array_equal(none.model.parameters, plain.model.parameters)


def test_state_of_adam_is_carried_or_reset_as_asked(rng: np.random.Generator) -> None:
    data = dataset(rng)
    results = [
        SwitchCondDP(num_steps=10, optimizer="adam", optimizer_state=state).fit(
            data, BUDGET, random_source=RandomSource.of(0)
        )
        for state in ("carry", "reset")
    ]
    assert not np.allclose(results[0].model.parameters, results[1].model.parameters)


def test_the_switch_works_where_directions_were_left_out(rng: np.random.Generator) -> None:
    data = dataset(rng, private=False)
    X = np.column_stack([data.public.values, data.public.values[:, 0]])
    deficient = Records(PublicFeatures(X), None, data.label)
    result = SwitchCondDP(num_steps=10).fit(deficient, BUDGET, random_source=RandomSource.of(0))
    assert np.isfinite(result.model.predict(deficient.public)).all()


def test_a_callback_counts_through_all_phases_and_stops_all_of_them(rng: np.random.Generator) -> None:
    seen: list[tuple[int, int]] = []

    def stop_at_five(progress: Progress) -> bool:
        seen.append((progress.step, progress.num_steps))
        return progress.step == 5

    data = dataset(rng)
    ledger = PrivacyLedger(BUDGET)
    SwitchCondDP(num_steps=10, switch=0.3).fit(data, BUDGET, ledger=ledger, callback=stop_at_five)
    assert seen == [(step, 10) for step in range(1, 6)]
    assert ledger.spent == BUDGET  # stopping early saves nothing
    seen.clear()
    SwitchCondDP(num_steps=10, switch=0.5).fit(data, BUDGET, callback=stop_at_five)
    assert seen[-1] == (5, 10)


def test_phases_must_add_up_to_the_accounted_steps(rng: np.random.Generator) -> None:
    class Thrice(CondDP):
        def phases(self, spectrum: Spectrum, num_steps: int) -> tuple[Phase, ...]:
            return 3 * super().phases(spectrum, num_steps)

    ledger = PrivacyLedger(BUDGET)
    with pytest.raises(ValueError, match="phases have 15 steps in total, but 5 are accounted for"):
        Thrice(num_steps=5).fit(dataset(rng), BUDGET, ledger=ledger)
    assert ledger.spent.epsilon == 0.0


def test_noise_covers_the_rounding_of_large_sums(rng: np.random.Generator) -> None:
    data = dataset(rng)
    head, plan = Linear(), CondDP().plan(Linear(), Spectrum.of(data.public), BUDGET)
    C = plan.phases[0].conditioning
    inputs, layout = Inputs.of(C.transform(data.public)), head.layout(C.num_parameters, 0)
    steps, stds = [], []
    for num_records in (500, 10_000_000):  # the same sum, as if it had so many terms
        curator = Curator(np.random.default_rng(1), num_records=num_records)
        start = np.zeros((1, layout.size))
        training, generator = replace(plan.training, num_steps=1, averaging=0.0), np.random.default_rng(2)
        label = np.zeros(500)  # with a start of zero all gradients are zero: the step is noise
        trained = train(
            training, head, layout, inputs, label, start, optimizer=SGD(1.0), curator=curator, rng=generator
        )
        (release,) = curator.transcript
        assert isinstance(release, GaussianRelease)
        steps.append(trained)
        stds.append(release.noise_std)
    assert stds[1] / stds[0] == pytest.approx(1 + 1e14 * 2**-53, rel=1e-6)
    assert steps[1] / steps[0] == pytest.approx(np.full_like(start, 1 + 1e14 * 2**-53), rel=1e-4)  # on a grid


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_steps": 0}, "num_steps"),
        ({"batch_size": -1}, "batch_size"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"clip_norm": -1.0}, "clip_norm"),
        ({"optimizer": "rmsprop"}, "optimizer must be one of 'adam', 'sgd'"),
        ({"averaging": 2.0}, "averaging"),
        ({"switch": 1.2}, "switch"),
        ({"exponent": 2.0}, "exponent"),
        ({"damping": -1.0}, "damping"),
        ({"feature_scaling": "rows"}, "feature_scaling"),
        ({"optimizer_state": "keep"}, "optimizer_state"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SwitchCondDP(**settings)
