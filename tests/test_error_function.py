import numpy as np
from scipy.special import erf

from conddp.newton.error_function import LARGEST, compute_error_function


def test_the_error_function_is_that_of_scipy(rng: np.random.Generator) -> None:
    x = np.concatenate([rng.uniform(0, LARGEST + 1, size=50_000), [0.0, 5e-324, LARGEST, 1e300, np.inf]])
    before = x.copy()
    assert np.abs(compute_error_function(x) - erf(x)).max() < 2e-14
    assert np.array_equal(x, before)


def test_a_number_that_is_none_has_no_error_function() -> None:
    with np.errstate(all="raise"):
        assert np.isnan(compute_error_function(np.array([np.nan, 1.0]))).tolist() == [True, False]
