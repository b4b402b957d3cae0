"""Settings and fixtures for all tests."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from conddp.data import Dataset
from conddp.datasets import DatasetNotFound, load_dataset

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


@pytest.fixture(autouse=True, scope="session")
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A run of the tests starts with an empty calibration cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONDDP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """One BLAS thread per worker process: tests run in parallel."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261115)


def load_or_skip(name: str) -> Dataset:
    """A real data set, or a skip that says why."""
    try:
        return load_dataset(name)
    except DatasetNotFound as missing:
        pytest.skip(str(missing))
