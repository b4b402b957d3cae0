"""Piecewise linear features of numbers: the hats, their knots, and the tables that get them."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pyarrow.dataset import dataset

from conddp import PrivateRegressor
from conddp.data.public_table import PublicTable
from conddp.data.schema import Schema
from conddp.errors import SchemaError
from conddp.estimators.dataset import read_dataset
from conddp.estimators.inputs import open_input
from conddp.features import Encoding
from conddp.features.column_encodings import CategoryEncoding, NumberEncoding
from conddp.features.splines import MOST_KNOTS, choose_knots, make_hats
from conddp.features.stored_reading import open_records
from conddp.files import fit_file, load_public, load_records, plan_file
from conddp.heads import HEADS


@settings(max_examples=25, deadline=None)
@given(
    arrays.arrays(np.float64, 20, elements=st.floats(-1e290, 1e290)),
    arrays.arrays(np.float64, st.integers(2, 8), elements=st.floats(-1e290, 1e290), unique=True),
)
def test_hats_interpolate_and_are_constant_beyond_the_knots(values: Any, knots: Any) -> None:
    knots = np.unique(np.where(np.abs(knots) < 1e-290, 0.0, knots))
    if len(knots) < 2:
        return
    hats = make_hats(values, knots)
    expected = np.column_stack([np.interp(values, knots, unit) for unit in np.eye(len(knots))])
    np.testing.assert_allclose(hats.toarray(), expected, rtol=1e-12, atol=1e-12)
    assert (np.diff(hats.indptr) <= 2).all() and (hats.data > 0).all()
    np.testing.assert_array_equal(make_hats(knots, knots).toarray(), np.eye(len(knots)))


def test_knots_are_quantiles_with_the_square_root_of_n_records_beyond_the_last() -> None:
    values = np.random.default_rng(0).lognormal(sigma=3, size=40_000)
    knots = np.array(choose_knots(values, 13, num_records=40_000))
    assert len(knots) == 13 and knots[6] == pytest.approx(np.median(values), rel=0.01)
    assert abs((values < knots[0]).sum() - 200) <= 1 and abs((values > knots[-1]).sum() - 200) <= 1
    beyond = np.array([(values > knot).mean() for knot in knots])
    odds = np.log(beyond / (1 - beyond))
    np.testing.assert_allclose(np.diff(odds), np.diff(odds).mean(), rtol=0.01)
    np.testing.assert_allclose(
        choose_knots(np.exp(values / values.max()), 13, num_records=40_000), np.exp(knots / values.max())
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 1.0] * 50, ()),  # linear between two values
        ([5.0] * 100, ()),
        ([0.0] * 40 + [1.0] * 30 + [2.0] * 30, (0.0, 1.0, 2.0)),
        ([-1e300] * 40 + [0.0] * 30 + [1e300] * 30, ()),
        ([-1.0] * 40 + [-1e-300] * 15 + [1e-300] * 15 + [1.0] * 30, (-1.0, 0.0, 1.0)),
    ],
)
def test_knots_are_different_and_of_usual_size(values: list[float], expected: tuple[float, ...]) -> None:
    assert choose_knots(np.array(values), 13, num_records=100) == expected


def make_frame(n: int = 1_000, numbers: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, numbers)), columns=[f"x{place}" for place in range(numbers)])
    return frame.assign(group=rng.choice([f"g{place}" for place in range(20)], n), flag=rng.random(n) < 0.5)


@pytest.fixture
def thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.features.encoding.LARGE", 1_000)


def count_knots(encoding: Encoding) -> dict[str, int]:
    return {each.column: len(each.knots) for each in encoding.columns if isinstance(each, NumberEncoding)}


@pytest.mark.usefixtures("thousand")
def test_numbers_of_large_tables_have_knots_if_that_at_most_doubles_the_features() -> None:
    assert count_knots(Encoding.of(PublicTable.of(make_frame()))) == {"x0": 11, "x1": 11, "flag": 0}
    for numbers in (1, 2, 3, 5, 6, 8):  # (20 + 1 + numbers) features without knots
        frame = make_frame(numbers=numbers)
        with_knots = Encoding.of(PublicTable.of(frame))
        each = min(MOST_KNOTS, (21 + numbers) // numbers)
        assert set(count_knots(with_knots).values()) - {0} == ({each} if each >= 5 else set())
        assert len(with_knots.features) <= 2 * (21 + numbers)


@pytest.mark.usefixtures("thousand")
def test_other_tables_keep_their_features() -> None:
    small, large = make_frame(999), make_frame(1_000)
    for encoding in (
        Encoding.of(PublicTable.of(small)),
        Encoding.of(PublicTable.of(large), splines=False),
        Encoding.of(PublicTable.of(large), num_bins=100),
        Encoding.of(PublicTable.of(large[["x0", "x1"]])),
        Encoding.of(PublicTable.of_array(np.exp(9 * large[["x0", "x1"]].to_numpy()), ["x0", "x1"])),
    ):
        assert not any(count_knots(encoding).values())


def test_tables_are_large_from_a_hundred_thousand_records() -> None:
    frame = make_frame(1_000)
    for n, expected in ((99_999, False), (100_000, True)):
        assert any(count_knots(Encoding.of(PublicTable.of(frame), num_records=n)).values()) is expected


@pytest.mark.usefixtures("thousand")
def test_features_of_a_number_are_itself_the_mark_of_gaps_and_the_hats() -> None:
    frame = make_frame(1_000)
    frame.loc[::7, "x0"] = np.nan
    frame["x1"] = np.exp(10 * frame["x1"])  # heavy-tailed
    table = PublicTable.of(frame)
    encoding = Encoding.of(table)
    first, second = encoding.columns[:2]
    assert isinstance(first, NumberEncoding) and isinstance(second, NumberEncoding) and second.scale
    features = encoding.transform(table)
    names = list(features.names)
    assert names[:3] == ["x0", "x0 is missing", f"x0 near {first.knots[0]}"]
    filled = frame["x0"].fillna(frame["x0"].median()).to_numpy()
    hats = [places for places, name in enumerate(names) if name.startswith("x0 near")]
    np.testing.assert_allclose(features.values[:, hats] @ first.knots, np.clip(filled, first.knots[0], first.knots[-1]))
    assert features.groups is not None
    assert features.groups[: 2 + len(hats)].tolist() == [0, 1, *[2] * len(hats)]
    raw = [places for places, name in enumerate(names) if name.startswith("x1 near")]
    clipped = np.clip(frame["x1"], second.knots[0], second.knots[-1])
    np.testing.assert_allclose(features.values[:, raw] @ second.knots, clipped)
    assert any("piecewise linear features" in remark for remark in encoding.list_remarks())
    again = Encoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert again == encoding
    np.testing.assert_array_equal(again.transform(table, as_part=True).values, features.values)


@pytest.mark.parametrize("knots", [[1.0], [1.0, 1.0], [2.0, 1.0], list(range(14)), ["a", "b"], [0.0, 1e305]])
def test_damaged_knots_are_refused(knots: list[Any]) -> None:
    with pytest.raises(SchemaError):
        Encoding.from_json([{"form": "number", "column": "a", "median": 0.0, "knots": knots}])


def test_an_encoding_that_was_stored_without_knots_is_read() -> None:
    stored = [{"form": "number", "column": "a", "kind": "number", "median": 1.0, "scale": 0.0, "has_gaps": False}]
    assert Encoding.from_json(stored).columns == (NumberEncoding("a", median=1.0),)


def test_a_sample_gets_the_levels_and_gaps_of_the_table() -> None:
    """A level with the square root of n records in the table has a feature, however few of them are in the sample."""
    rng = np.random.default_rng(0)
    sample = pd.DataFrame(
        {
            "many": [f"level {code}" for code in np.minimum(rng.geometric(0.02, 5_000), 400)],
            "few": rng.choice(["a", "b", "c"], 5_000, p=[0.6, 0.398, 0.002]),
            "number": np.where(rng.random(5_000) < 0.002, np.nan, 1.0),
            "date": pd.Series(pd.Timestamp("2020-01-01"), range(5_000)).mask(rng.random(5_000) < 0.002),
        }
    )
    whole = PublicTable.of(pd.concat([sample] * 16, ignore_index=True))
    encoding = Encoding.of(PublicTable.of(sample), num_records=80_000)
    assert encoding == Encoding.of(whole)
    assert encoding != Encoding.of(PublicTable.of(sample))
    many = encoding.columns[0]
    counts = sample["many"].value_counts()
    assert isinstance(many, CategoryEncoding) and set(many.levels) == set(
        counts[counts * 16 >= math.sqrt(80_000)].index
    )


@pytest.mark.usefixtures("thousand")
def test_a_linear_model_learns_a_curve() -> None:
    frame = make_frame()
    label = np.abs(frame["x0"]).rename("label")
    model = PrivateRegressor(epsilon=100.0, label_bounds=(0.0, 3.0), random_state=0).fit(frame, label)
    assert any(count_knots(model.encoding_).values())
    assert model.score(frame, label) > 0.9  # a straight line explains nothing


@pytest.mark.usefixtures("thousand")
def test_all_ways_to_read_a_table_have_them_or_not(tmp_path: Path) -> None:
    frame, path = make_frame(), tmp_path / "table.parquet"
    frame.assign(label=0.5).to_parquet(path)
    schema = Schema.of(label="label", label_bounds=(0.0, 1.0), public=frame.columns)
    for splines, head in ((True, "linear"), (False, "wide")):
        for encoding in (
            load_records(path, schema, splines=splines)[1],
            open_records([path], schema, splines=splines)[1],
            read_dataset([path], schema, squash=True, splines=splines, num_bins=None)[1],
            load_public(path, schema, splines=splines)[1],
            open_input(frame).encode(list(frame.columns), squash=True, head=HEADS[head])[1],
        ):
            assert any(count_knots(encoding).values()) is splines


class ReadError(Exception):
    """Ends a fit when its table would be read."""


@pytest.mark.parametrize("head", ["linear", "wide", "mlp"])
def test_a_fit_to_files_asks_for_them_if_its_head_is_linear(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "table.parquet", []
    make_frame().assign(label=0.5).to_parquet(path)
    schema = Schema.of(label="label", label_bounds=(0.0, 1.0), public=make_frame().columns)

    def stop(files: Any, schema: Any, *, splines: bool, **rest: Any) -> None:
        seen.append(splines)
        raise ReadError

    monkeypatch.setattr("conddp.files.load_records", stop)
    monkeypatch.setattr("conddp.estimators.regressor.read_dataset", stop)
    with pytest.raises(ReadError):
        fit_file(path, schema, tmp_path / "model", head=head)
    with pytest.raises(ReadError):
        PrivateRegressor(head=head, label_bounds=(0.0, 1.0)).fit(dataset(path), "label")
    assert seen == [head == "linear"] * 2


@pytest.mark.usefixtures("thousand")
def test_a_plan_has_the_features_of_its_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.parquet"
    make_frame().assign(label=0.5).to_parquet(path)
    schema = Schema.of(label="label", label_bounds=(0.0, 1.0), public=make_frame().columns)
    seen = []
    monkeypatch.setattr("conddp.files.make_plan", lambda public, schema, **rest: seen.append(public.shape[1]))
    for head in ({}, {"head": "linear"}, {"head": "wide"}):
        plan_file(path, schema, **head)
    assert seen == [45, 45, 23]
