"""Planted defects: audits must catch each of them, and nothing in what is correct."""

import math

import pytest

from conddp.auditing import audit_algorithm
from conddp.privacy import Curator, PrivacyBudget
from tests.auditing.defects import CORRECT, DEFECTS, HalfNoise, ReusedNoise, SmallDescent

BUDGET = PrivacyBudget(1.0, 1e-6)

# Defects that a bound above the claim shows; others are found for other reasons.
REFUTED = {
    "noise for c instead of 2c": 2.0,
    "no clipping": 10.0,
    "labels not clamped to their bounds": 10.0,
    "clip norm from the largest label": math.inf,
    "stop when the loss rises": math.inf,
    "residuals added without noise": math.inf,
    "half the noise": 2.0,
    "noise re-used in every step": math.inf,
    "the same noise in every fit": math.inf,
    "one step without noise": math.inf,
}
FINDINGS = {
    "noise for c instead of 2c": "one record moves clipped gradients by 2 times",
    "no clipping": "times the declared sensitivity",
    "labels not clamped to their bounds": "times the declared sensitivity",
    "clip norm from the largest label": "sensitivity of clipped gradients depends on private values",
    "stop when the loss rises": "the number of releases depends on private values",
    "residuals added without noise": "the parameters of the model depend on private values",
    "mean over the actual sample": "times the declared sensitivity",
    "size of the sample in the update": "depends on which records were sampled",
    "samples twice as large as declared": "more samples than the declared sampling probability",
    "half the noise": "smaller than declared",
    "noise re-used in every step": "noise is used twice",
    "the same noise in every fit": "noise is used twice",
    "correlated noise": "correlated",
    "one step without noise": "a release has no noise",
}


@pytest.mark.parametrize("name", DEFECTS)
def test_the_white_box_audit_catches_every_planted_defect(name: str) -> None:
    algorithm, curator_class = DEFECTS[name]
    audit = audit_algorithm(algorithm, BUDGET, curator_class=curator_class)
    assert not audit.passed
    assert any(FINDINGS[name] in finding for finding in audit.findings), audit.findings
    assert audit.lower_bound >= REFUTED.get(name, 0.0)
    assert audit.verdict == ("VIOLATED" if name in REFUTED else "SUSPECT")


@pytest.mark.parametrize("name", CORRECT)
@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_is_found_without_a_defect(name: str, seed: int) -> None:
    audit = audit_algorithm(CORRECT[name], BUDGET, seed=seed)
    assert audit.passed, audit.findings
    assert 0.8 < audit.lower_bound <= 1.0


@pytest.mark.parametrize("algorithm", ["mean", "one-shot", "cond-newton", "cond-dp"])
def test_a_defective_curator_is_caught_in_real_algorithms(algorithm: str) -> None:
    assert audit_algorithm(algorithm, BUDGET, num_fits=10, curator_class=HalfNoise).lower_bound > 1.9
    if algorithm not in ("mean", "one-shot"):  # these make one release
        assert audit_algorithm(algorithm, BUDGET, num_fits=10, curator_class=ReusedNoise).lower_bound == math.inf


def test_the_black_box_audit_catches_defects_that_change_the_size_of_the_noise() -> None:
    budget = PrivacyBudget(4.0, 1e-6)
    settings = {"kind": "black-box", "num_fits": 800}
    one_step = SmallDescent(num_steps=1)
    assert audit_algorithm(one_step, budget, **settings).passed  # type: ignore[arg-type]  # settings of different types
    half = audit_algorithm(one_step, budget, curator_class=HalfNoise, **settings)  # type: ignore[arg-type]  # as above
    assert half.verdict == "VIOLATED"
    for name in ("noise for c instead of 2c", "no clipping"):
        algorithm, _ = DEFECTS[name]
        assert audit_algorithm(algorithm, budget, **settings).verdict == "VIOLATED"  # type: ignore[arg-type]  # as above


def test_the_one_run_audit_catches_gross_defects() -> None:
    settings = {"kind": "one-run", "num_canaries": 1000, "fit_intercept": False}
    assert audit_algorithm(SmallDescent(), BUDGET, **settings).passed  # type: ignore[arg-type]  # as above
    assert not audit_algorithm(SmallDescent(defect="no clipping"), BUDGET, **settings).passed  # type: ignore[arg-type]  # as above


def test_a_fit_that_refuses_itself_is_reported() -> None:
    class Careless(SmallDescent):
        def cost(self, budget: PrivacyBudget) -> PrivacyBudget:
            """Claim half of what is spent."""
            return PrivacyBudget(budget.epsilon / 2, budget.delta)

    audit = audit_algorithm(Careless(), BUDGET, curator_class=Curator)
    assert not audit.passed
    assert "the fit was refused" in audit.findings[0]
