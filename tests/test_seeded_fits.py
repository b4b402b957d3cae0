import json

import numpy as np
import pytest

from tests.seeded_fits import STORED, compute_case, compute_comparison, list_cases

EXPECTED = json.loads(STORED.read_text())

# Processors and versions of BLAS add up in different orders. Thousands of steps of a network amplify that, those of a
# factorisation machine most. Predictions range over 22, and their noise has a standard deviation of about 1.
TOLERANCE = 1e-6
NETWORK_TOLERANCES = {"mlp": 0.1, "wide": 0.1, "fm": 0.5}


def test_every_stored_result_is_checked() -> None:
    assert set(EXPECTED) == {*list_cases(), "comparison"}


@pytest.mark.parametrize("name", list_cases())
def test_a_seeded_fit_predicts_what_it_always_has(name: str) -> None:
    tolerance = max(NETWORK_TOLERANCES.get(word, TOLERANCE) for word in name.split())
    assert np.allclose(compute_case(list_cases()[name]), EXPECTED[name], rtol=0, atol=tolerance)


def test_a_comparison_on_simulated_labels_is_what_it_always_was() -> None:
    assert np.allclose(compute_comparison(), EXPECTED["comparison"], rtol=TOLERANCE, atol=0)
