"""Effects of the levels of a category, beside random effects."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from conddp.algorithms.request import FitRequest
from conddp.bounds import Bounds
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.public_table import PublicTable
from conddp.data.records import Records
from conddp.features.column_encodings import CategoryEncoding
from conddp.features.encoding import Encoding

Vector = NDArray[np.float64]

SIZES = np.round(np.geomspace(2, 1_500, 40)).astype(int)  # records of each level
EFFECT, RESIDUAL = 1.0, 2.0  # standard deviations of the effects of levels, and within levels
NAMES = np.array([f"level {place:02d}" for place in range(len(SIZES))])
SEEDS = range(4)


def simulate(seed: int) -> tuple[Vector, NDArray[np.intp], Vector]:
    """True means of the levels, level of each record, and labels."""
    rng = np.random.default_rng(seed)
    means = rng.normal(0, EFFECT, len(SIZES))
    codes = np.repeat(np.arange(len(SIZES)), SIZES)
    return means, codes, means[codes] + rng.normal(0, RESIDUAL, len(codes))


def predict_levels(codes: NDArray[np.intp], labels: Vector, *, epsilon: float, seed: int, grouped: bool) -> Vector:
    """Predictions of the default for each level."""
    table = PublicTable.of(pd.DataFrame({"level": NAMES[codes]}))
    encoding = Encoding((CategoryEncoding("level", tuple(NAMES.tolist())),))  # a feature for every level, however rare
    features = encoding.transform(table)
    assert features.groups is not None
    features = features if grouped else PublicFeatures(features.values, features.names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the joint cost of these fits
        records = Records(features, None, Labels(labels, Bounds(-10, 10)))
        result = FitRequest(epsilon, 1e-6, head="linear", random_state=seed).run(records)
    return result.predict(encoding.transform(PublicTable.of(pd.DataFrame({"level": NAMES}))))


def compute_blup(averages: Vector) -> Vector:
    """Best linear unbiased predictions of random effects with known variances, in closed form."""
    weights = 1 / (EFFECT**2 + RESIDUAL**2 / SIZES)
    center = weights @ averages / weights.sum()
    return np.asarray(center + SIZES / (SIZES + RESIDUAL**2 / EFFECT**2) * (averages - center))


def average_error(predictions: list[Vector], targets: list[Vector]) -> float:
    return float(np.mean([np.mean((each - target) ** 2) for each, target in zip(predictions, targets, strict=True)]))


@pytest.fixture(scope="module")
def panels() -> list[tuple[Vector, NDArray[np.intp], Vector]]:
    return [simulate(seed) for seed in SEEDS]


def test_closed_form_is_what_mixed_models_give() -> None:
    from statsmodels.regression.mixed_linear_model import MixedLM

    _, codes, labels = simulate(0)
    averages = np.bincount(codes, labels) / SIZES
    fitted = MixedLM(labels, np.ones(len(labels)), groups=codes).fit(reml=True)
    effects = np.array([float(fitted.random_effects[code].iloc[0]) for code in range(len(SIZES))])
    mixed = float(fitted.fe_params[0]) + effects
    # Variances are estimated there and known here; 40 effects estimate theirs within about a quarter.
    assert np.mean((mixed - compute_blup(averages)) ** 2) < 0.05 * np.mean((averages - compute_blup(averages)) ** 2)


def test_rare_levels_shrink_as_random_effects_do_when_noise_is_negligible(
    panels: list[tuple[Vector, NDArray[np.intp], Vector]],
) -> None:
    averages = [np.bincount(codes, labels) / SIZES for _, codes, labels in panels]
    blup = [compute_blup(each) for each in averages]
    fits = [
        predict_levels(codes, labels, epsilon=1_000, seed=seed, grouped=True)
        for seed, (_, codes, labels) in enumerate(panels)
    ]
    truth = [means for means, _, _ in panels]
    # Over eight panels: distance to BLUP 0.012 for the fit, 0.13 for averages; error 0.173, BLUP 0.150, averages 0.276.
    assert average_error(fits, blup) < 0.25 * average_error(averages, blup)
    assert average_error(fits, truth) < 1.3 * average_error(blup, truth) < 0.9 * average_error(averages, truth)


def test_one_scale_for_all_levels_keeps_noise_out_of_rare_levels(
    panels: list[tuple[Vector, NDArray[np.intp], Vector]],
) -> None:
    truth = [means for means, _, _ in panels]
    grouped, single = (
        average_error(
            [
                predict_levels(codes, labels, epsilon=1, seed=seed, grouped=each)
                for seed, (_, codes, labels) in enumerate(panels)
            ],
            truth,
        )
        for each in (True, False)
    )
    # Over eight panels: 0.44 and 7.8, where predicting the mean has an error of 1.
    assert grouped < 0.7 * EFFECT**2
    assert single > 3 * grouped


def test_a_few_gaps_do_not_get_an_effect_of_noise() -> None:
    """Five gaps in 8,000 records: a feature for them would have an effect of several units, all of it noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8_000, 5))
    labels = X.sum(axis=1) + rng.normal(size=8_000)
    table = pd.DataFrame(X, columns=list("abcde"))
    table.loc[:4, "a"] = np.nan
    public = PublicTable.of(table)
    encoding = Encoding.of(public)
    result = FitRequest(1.0, 1e-6, random_state=0).run(
        Records(encoding.transform(public), None, Labels(labels, Bounds(-10, 10)))
    )
    errors = np.abs(result.predict(encoding.transform(public)) - labels)
    assert errors[:5].max() < 5  # residuals have a deviation of 1, or of 1.4 without the first column
