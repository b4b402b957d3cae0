"""The largest eigenvalues and their vectors, against NumPy's decomposition."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg

from conddp.newton.top_eigenvectors import find_top_eigenvectors


@pytest.mark.parametrize("size", [1, 2, 3, 4, 60])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_pairs_are_those_of_numpy_up_to_signs(size: int, share: float) -> None:
    rng = np.random.default_rng(size)
    factor = rng.normal(size=(size, size)) * np.arange(1, size + 1) ** -1.5
    matrix = factor @ factor.T
    number = max(1, round(share * size))
    read = np.tril(matrix) + np.triu(np.full_like(matrix, 1e3), 1)  # the lower triangle suffices
    values, vectors = find_top_eigenvectors(read, lambda values: number)
    expected, known = np.linalg.eigh(matrix)
    np.testing.assert_allclose(values, expected[::-1][:number], atol=1e-13 * expected[-1])
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(number), atol=1e-12)
    assert np.abs(matrix @ vectors - vectors * values).max() < 1e-12 * expected[-1]
    np.testing.assert_allclose(np.abs(known[:, ::-1][:, 0] @ vectors[:, 0]), 1.0)


def test_the_number_may_depend_on_all_eigenvalues() -> None:
    seen: list[list[float]] = []

    def count(values: np.ndarray) -> int:
        seen.append(values.round(12).tolist())
        return int((values > 1.5).sum())

    values, _ = find_top_eigenvectors(np.diag([1.0, 2.0, 4.0, 3.0]), count)
    assert seen == [[4.0, 3.0, 2.0, 1.0]] and values.round(12).tolist() == [4.0, 3.0, 2.0]


def test_the_slower_way_is_taken_if_the_fast_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = np.random.default_rng(0).normal(size=(30, 5))
    expected = find_top_eigenvectors(factor @ factor.T, lambda _: 4)
    find: Any = scipy.linalg.eigh_tridiagonal

    def fail(*args: Any, lapack_driver: str = "auto", **kwargs: Any) -> Any:
        if lapack_driver == "stemr":
            raise np.linalg.LinAlgError("did not converge")
        return find(*args, lapack_driver=lapack_driver, **kwargs)

    monkeypatch.setattr(scipy.linalg, "eigh_tridiagonal", fail)
    for one, other in zip(find_top_eigenvectors(factor @ factor.T, lambda _: 4), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11)


def test_equal_eigenvalues_have_orthonormal_vectors_of_known_sign() -> None:
    values, vectors = find_top_eigenvectors(np.eye(40), lambda _: 7)
    np.testing.assert_allclose(values, 1.0)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(7), atol=1e-12)
    assert (vectors[np.abs(vectors).argmax(axis=0), range(7)] > 0).all()
