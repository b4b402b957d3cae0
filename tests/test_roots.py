"""Roots of matrices that are positive semidefinite but for rounding, and tables whose features have such matrices."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from conddp import PrivateRegressor
from conddp.data.parts import PublicFeatures
from conddp.heads import Additive, Learned
from conddp.newton.roots import take_root
from conddp.training.distillation import mix_rows

Vector = NDArray[np.float64]
N = 4000


def make_tables() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    outliers = rng.normal(size=(N, 3))
    outliers[0] = 1e7
    return {
        "a common level": pd.DataFrame({"level": np.array(list("abcd"))[rng.choice(4, size=N, p=[0.85, *3 * [0.05]])]}),
        "rare flags": pd.DataFrame((rng.random((N, 3)) < [0.05, 0.02, 0.01]).astype(float), columns=list("abc")),
        "mostly zero": pd.DataFrame(rng.normal(size=(N, 2)) * (rng.random((N, 2)) < 0.02), columns=list("ab")),
        "outliers": pd.DataFrame(outliers, columns=list("abc")),
    }


@pytest.mark.parametrize("head", [Learned(width=200), Additive(width=200), Learned(width=40)], ids=repr)
@pytest.mark.parametrize("name", make_tables())
def test_features_that_depend_on_each_other_are_learned_from(name: str, head: Any) -> None:
    table, label = make_tables()[name], np.clip(np.random.default_rng(1).normal(size=N), -3, 3)
    model = PrivateRegressor(1.0, label_bounds=(-3, 3), head=head, random_state=0).fit(table, label)
    assert np.mean((model.predict(table) - label) ** 2) < 1.2


def test_a_root_has_as_little_jitter_as_it_needs() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 8))
    exact = X.T @ X
    root = take_root(exact)
    np.testing.assert_allclose(root @ root.T, exact, rtol=1e-12)
    low = X[:, :3] @ X[:, :3].T  # of rank 3
    rounded = low - 1e-8 * np.trace(low) * np.eye(20)
    root = take_root(rounded)
    assert np.abs(root @ root.T - rounded).max() < 1e-6 * np.trace(low)
    with pytest.raises(LinAlgError):
        take_root(-np.eye(3) + 4 * np.eye(3)[[1, 0, 2]])


def test_mixed_rows_keep_the_dependence_of_columns() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=2000)
    for spread in (0.3, 1e-3, 1e-5):
        public = PublicFeatures(np.column_stack([z, 2.54 * z + spread * rng.normal(size=2000)]))
        mixed = mix_rows(public)
        assert mixed is not None
        assert np.abs(mixed.values[:, 1] - 2.54 * mixed.values[:, 0]).max() < 12 * spread
    far = rng.normal(size=(200, 3))
    far[0] = [1e12, -1e12, 1.0]
    assert mix_rows(PublicFeatures(far)) is not None
