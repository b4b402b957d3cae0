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


@pytest.mark.parametrize("constant", [True, False])
def test_further_directions_are_orthogonal_to_those_there_are(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, constant: bool
) -> None:
    monkeypatch.setattr("conddp.features.whitening.BLOCK_SIZE", 400)  # in several parts
    X = rng.normal(size=(1000, 3))
    rows = WhitenedRows.of(PublicFeatures(X), constant=constant)
    new = rng.normal(size=(1000, 4)) * [3.0, 1.0, 0.1, 1e-5] + 0.5 * X[:, :1] + constant
    columns = np.column_stack([new, X @ [1.0, 2.0, 3.0]])  # the last one is known already, the fourth nearly nothing
    added = rows.complement(lambda part: columns[part], at_most=10)
    assert added.num_directions == 3
    together = np.hstack([rows.values, added.values])
    assert together.T @ together / 1000 == pytest.approx(np.eye(together.shape[1]), abs=1e-9)
    fitted = together @ (together.T @ new[:, :3] / 1000)
    assert fitted == pytest.approx(new[:, :3], abs=1e-3)  # nothing else is left of the columns
    assert (np.diff(added.variances) <= 0).all() and added.variances.mean() == pytest.approx(1.0)
    strongest = rows.complement(lambda part: columns[part], at_most=1)
    assert np.abs(strongest.values.ravel() @ added.values[:, 0]) / 1000 == pytest.approx(1.0)
    nothing = rows.complement(lambda part: columns[part, 4:], at_most=10)
    assert nothing.values.shape == (1000, 0)


@pytest.mark.parametrize("n", [2, 7, 100, 399, 6184])
def test_columns_that_do_not_vary_add_no_direction(rng: np.random.Generator, n: int) -> None:
    rows = WhitenedRows.of(PublicFeatures(np.ones((n, 1))))
    for values in (rng.normal(size=8), np.zeros(8)):  # what varies of them is rounding, of either sign
        columns = np.outer(np.ones(n), values)
        assert rows.complement(columns.__getitem__, at_most=9).num_directions == 0
