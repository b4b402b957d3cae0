from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from conddp.training.sampling import PoissonSampler


@pytest.mark.parametrize("probability", [0.003, 0.1, 0.5, 0.97])
def test_every_record_is_drawn_with_the_same_chance_and_independently(probability: float) -> None:
    n, rounds = 40, 20_000
    sampler = PoissonSampler(n, probability, np.random.default_rng(5))
    member = np.zeros((rounds, n), dtype=bool)
    for row in member:
        row[sampler.draw()] = True
    # Chi-square over records, fixed seed, false alarm 1e-3 each.
    variance = rounds * probability * (1 - probability)
    deviations = (member.sum(axis=0) - rounds * probability) / np.sqrt(variance)
    assert chisquare_tail(float((deviations**2).sum()), n) > 1e-3
    # The size of a sample is binomial.
    sizes = np.bincount(member.sum(axis=1), minlength=n + 1)
    expected = rounds * binom.pmf(np.arange(n + 1), n, probability)
    common = expected > 5
    observed = np.append(sizes[common], sizes[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    keep = wanted > 0
    assert chisquare(observed[keep], wanted[keep] * observed[keep].sum() / wanted[keep].sum()).pvalue > 1e-3
    # Neighbours in the table are not correlated: the standard error is 1 / sqrt(rounds * n).
    centred = member - probability
    correlation = float((centred[:, :-1] * centred[:, 1:]).mean() / (probability * (1 - probability)))
    assert abs(correlation) < 4 / np.sqrt(rounds * (n - 1))


def chisquare_tail(statistic: float, degrees: int) -> float:
    from scipy.stats import chi2

    return float(chi2.sf(statistic, degrees))


def test_samples_may_be_empty_or_whole() -> None:
    rng = np.random.default_rng(0)
    assert min(len(PoissonSampler(10, 0.01, rng).draw()) for _ in range(20)) == 0
    assert PoissonSampler(5, 1.0, rng).draw().tolist() == [0, 1, 2, 3, 4]


def test_positions_rise_and_stay_within_the_table() -> None:
    sampler = PoissonSampler(1000, 0.3, np.random.default_rng(0))
    for _ in range(50):
        drawn = sampler.draw()
        assert (np.diff(drawn) > 0).all()
        assert 0 <= drawn[0] and drawn[-1] < 1000


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.1, float("nan")])
def test_impossible_probabilities_are_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="sampling_probability"):
        PoissonSampler(10, probability, np.random.default_rng(0))


@pytest.mark.parametrize("at_once", [None, 4])
@pytest.mark.parametrize(("n", "probability"), [(300, 0.02), (300, 0.7), (10, 0.01)])
def test_several_samples_are_those_one_after_another(
    n: int, probability: float, at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if at_once is not None:  # too few gaps for most samples

        def walk(self: PoissonSampler, *several: int) -> Any:
            gaps = self.generator.geometric(self.sampling_probability, size=(*several, at_once))
            gaps[..., 0] -= 1
            return gaps.cumsum(axis=-1)

        monkeypatch.setattr(PoissonSampler, "_walk", walk)
    one, other = (PoissonSampler(n, probability, np.random.default_rng(7)) for _ in range(2))
    positions, ends = one.draw_several(30)
    expected = [other.draw() for _ in range(30)]
    assert [each.tolist() for each in np.split(positions, ends[:-1])] == [each.tolist() for each in expected]
    assert ends[-1] == len(positions)
    assert one.generator.bit_generator.state == other.generator.bit_generator.state
