import json

import numpy as np
import pytest

from tests.seeded_fits import STORED, compute_case, compute_comparison, list_cases

EXPECTED = json.loads(STORED.read_text())

# Processors and versions of BLAS add up in different orders. Thousands of steps of a network amplify that, which is far
# less than other noise would do: predictions range over 22, and their noise has a standard deviation of about 1.
TOLERANCE, NETWORK_TOLERANCE = 1e-6, 0.1
NETWORKS = ("mlp", "fm", "wide")


def test_every_stored_result_is_checked() -> None:
    assert set(EXPECTED) == {*list_cases(), "comparison"}


@pytest.mark.parametrize("name", list_cases())
def test_a_seeded_fit_predicts_what_it_always_has(name: str) -> None:
    tolerance = NETWORK_TOLERANCE if any(head in name.split() for head in NETWORKS) else TOLERANCE
    assert np.allclose(compute_case(list_cases()[name]), EXPECTED[name], rtol=0, atol=tolerance)


def test_a_comparison_on_simulated_labels_is_what_it_always_was() -> None:
    assert np.allclose(compute_comparison(), EXPECTED["comparison"], rtol=TOLERANCE, atol=0)
