import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from conddp.algorithms import NonPrivate, PrivateMean
from conddp.research.evaluation import Evaluation
from tests.test_algorithms import dataset


def test_references_equal_those_of_scikit_learn(rng: np.random.Generator) -> None:
    data = dataset(rng)
    evaluation = Evaluation.of(data, random_state=3)
    train, test = data.split(random_state=3)
    assert train.private is not None and test.private is not None
    fitted = LinearRegression().fit(np.hstack([train.public.values, train.private.values]), train.label.values)
    predictions = fitted.predict(np.hstack([test.public.values, test.private.values]))
    expected = np.mean((np.clip(predictions, -6, 8) - test.label.values) ** 2)
    assert evaluation.optimum == pytest.approx(expected)
    assert evaluation.constant == pytest.approx(np.mean((train.label.values.mean() - test.label.values) ** 2))


def test_ratios_are_over_the_optimum(rng: np.random.Generator) -> None:
    evaluation = Evaluation.of(dataset(rng))
    assert evaluation.compute_ratio(NonPrivate(), 1.0, num_seeds=2) == pytest.approx(1.0)
    ratio = evaluation.compute_ratio(PrivateMean(), 50.0, num_seeds=3)
    assert ratio == pytest.approx(evaluation.constant / evaluation.optimum, rel=0.01)
    errors = [evaluation.compute_error(PrivateMean(), 50.0, seed) for seed in range(3)]
    assert ratio == pytest.approx(np.mean(errors) / evaluation.optimum)
