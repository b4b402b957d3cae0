import numpy as np
import pytest

from conddp.data.parts import PublicFeatures
from conddp.data.passes import BLOCK_SIZE
from conddp.errors import SchemaError
from conddp.features.whitening import WhitenedRows


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("n", [50, 2 * BLOCK_SIZE + 3])
def test_rows_are_whitened_and_follow_from_the_columns(rng: np.random.Generator, n: int, constant: bool) -> None:
    X = rng.normal(size=(n, 4)) @ rng.normal(size=(4, 4)) + [1.0, 100.0, 0.0, -5.0]
    rows = WhitenedRows.of(PublicFeatures(X), constant=constant)
    k = rows.num_directions
    assert k == 4 + constant
    assert rows.values.T @ rows.values / n == pytest.approx(np.eye(k), abs=1e-8)
    columns = np.column_stack([X, np.ones(n)]) if constant else X
    assert columns @ rows.matrix == pytest.approx(rows.values, abs=1e-8)
    slopes = rows.variances[int(constant) :]
    assert slopes.mean() == pytest.approx(1.0)
    assert (np.diff(slopes) <= 0).all()


def test_units_of_columns_do_not_matter(rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3))
    plain, scaled = (WhitenedRows.of(PublicFeatures(X * unit)) for unit in ([1.0, 1.0, 1.0], [1e-9, 3.0, 1e9]))
    assert scaled.variances == pytest.approx(plain.variances, rel=1e-9)
    assert np.abs(scaled.values) == pytest.approx(np.abs(plain.values), abs=1e-6)  # up to signs


def test_columns_without_information_are_left_out(rng: np.random.Generator) -> None:
    x = rng.normal(size=(40, 2))
    X = np.column_stack([x, x[:, 0], np.full(40, 7.0), np.zeros(40), x @ [1.0, 2.0]])
    rows = WhitenedRows.of(PublicFeatures(X))
    assert rows.num_directions == 3
    assert np.isfinite(rows.matrix).all()
    more_columns_than_rows = WhitenedRows.of(PublicFeatures(rng.normal(size=(5, 9))))
    assert more_columns_than_rows.num_directions == 5


def test_constant_columns_leave_the_constant_alone() -> None:
    rows = WhitenedRows.of(PublicFeatures(np.ones((10, 2))))
    assert rows.values == pytest.approx(np.ones((10, 1)))
    with pytest.raises(SchemaError, match="every public column is zero"):
        WhitenedRows.of(PublicFeatures(np.zeros((10, 2))), constant=False)
    with pytest.raises(SchemaError, match="too large"):
        WhitenedRows.of(PublicFeatures(np.array([[1e200], [-1e200]])))
