"""Encoding of public columns: what is read off them, what new records get, and what is stored."""

import json
import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from conddp.data.column import Kind
from conddp.data.public_table import PublicTable
from conddp.errors import SchemaError
from conddp.features import Encoding, Standardization
from conddp.features.column_encodings import CategoryEncoding, DateEncoding, NumberEncoding


def encode(frame: pd.DataFrame, **kinds: Kind) -> tuple[Encoding, np.ndarray[Any, Any]]:
    table = PublicTable.of(frame, kinds=kinds)
    encoding = Encoding.of(table)
    features = encoding.transform(table)
    assert features.names == encoding.features
    return encoding, features.values


def test_plain_numbers_are_left_as_they_are() -> None:
    X = np.random.default_rng(0).normal(size=(100, 3))
    encoding, values = encode(pd.DataFrame(X, columns=list("abc")))
    assert encoding.is_plain and encoding.features == ("a", "b", "c")
    np.testing.assert_array_equal(values, X)
    array = PublicTable.of_array(X, ["a", "b", "c"])
    assert Encoding.of(array).transform(array).values is X  # no copy


def test_gaps_are_filled_with_the_median_and_marked() -> None:
    encoding, values = encode(pd.DataFrame({"a": [1.0, np.nan, 3.0, 10.0]}))
    assert encoding.features == ("a", "a is missing")
    np.testing.assert_array_equal(values, [[1, 0], [3, 1], [3, 0], [10, 0]])
    later = encoding.transform(PublicTable.of(pd.DataFrame({"a": [np.nan, 7.0]})))
    np.testing.assert_array_equal(later.values, [[3, 1], [7, 0]])


def test_a_gap_that_training_did_not_have_is_filled_too() -> None:
    for table in (
        PublicTable.of(pd.DataFrame({"a": [1.0, 2.0, 30.0]})),
        PublicTable.of_array(np.array([[1.0], [2.0], [30.0]]), ["a"]),
    ):
        later = Encoding.of(table).transform(PublicTable.of(pd.DataFrame({"a": [np.nan]})))
        np.testing.assert_array_equal(later.values, [[2.0]])
    with pytest.raises(SchemaError, match="column 'a' has gaps, but had none in training"):
        Encoding.plain(["a"]).transform(PublicTable.of(pd.DataFrame({"a": [np.nan]})))


def test_heavy_tails_are_squashed_by_a_rule_that_reads_public_columns_only() -> None:
    rng = np.random.default_rng(0)
    heavy, light = rng.lognormal(sigma=3, size=5000), rng.normal(size=5000)
    frame = pd.DataFrame(
        {
            "heavy": heavy,
            "light": light,
            "rare": np.eye(1, 5000)[0] * 100 + np.eye(1, 5000, 1)[0],
            "flag": np.eye(1, 5000)[0],
        }
    )
    encoding, values = encode(frame)
    assert encoding.features == ("arsinh(heavy)", "light", "arsinh(rare)", "flag")
    median, (low, high) = np.median(heavy), np.quantile(heavy, [0.25, 0.75])
    np.testing.assert_allclose(values[:, 0], np.arcsinh((heavy - median) * 1.349 / (high - low)), atol=1e-9)
    assert np.isfinite(values).all()
    assert np.abs(values[:, 0] - values[:, 0].mean()).max() < 20 * values[:, 0].std()
    assert Encoding.of(PublicTable.of(frame), squash=False).is_plain
    array = PublicTable.of_array(frame.to_numpy(), ["heavy", "light", "rare", "flag"])
    np.testing.assert_array_equal(Encoding.of(array).transform(array).values, values)


def test_few_levels_have_a_feature_each_and_unseen_ones_none() -> None:
    encoding, values = encode(pd.DataFrame({"a": ["x", "y", None, "x"]}))
    assert encoding.features == ("a=x", "a=y", "a is missing")
    np.testing.assert_array_equal(values, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
    later = encoding.transform(PublicTable.of(pd.DataFrame({"a": ["new", "y", None]})))
    np.testing.assert_array_equal(later.values, [[0, 0, 0], [0, 1, 0], [0, 0, 1]])


def test_of_many_levels_the_frequent_ones_have_a_feature_and_the_rest_share() -> None:
    rng = np.random.default_rng(0)
    codes = np.minimum(rng.geometric(0.02, 10_000), 400)
    encoding, values = encode(pd.DataFrame({"a": [f"level {code}" for code in codes]}))
    (category,) = encoding.columns
    assert isinstance(category, CategoryEncoding)
    counts = pd.Series(codes).value_counts()
    assert set(category.levels) == {f"level {code}" for code in counts[counts >= math.sqrt(10_000)].index}
    rest = counts[counts < math.sqrt(10_000)].sum()
    assert category.num_bins == min(64, math.ceil(rest / 400))
    assert (values.sum(axis=1) == 1).all()  # every record has exactly one feature
    seen = encoding.transform(PublicTable.of(pd.DataFrame({"a": ["never seen", "level 1"]}))).values
    assert (seen.sum(axis=1) == 1).all() and seen[0, : len(category.levels)].sum() == 0


def test_the_bin_of_a_level_is_the_same_on_every_machine() -> None:
    encoding = CategoryEncoding("a", (), 64)
    table = PublicTable.of(pd.DataFrame({"a": ["Zürich", "N14228", "東京"]}))
    assert encoding.transform(table.columns["a"]).indices.tolist() == BINS


BINS = [48, 22, 46]  # of the BLAKE2b digest of the text in UTF-8, computed apart from this code


def test_a_column_of_names_is_left_out_and_said_to_be() -> None:
    encoding, values = encode(pd.DataFrame({"name": [f"n{place}" for place in range(100)], "a": np.arange(100.0)}))
    assert encoding.features == ("a",)
    assert any("'name' has a different value in nearly every record" in each for each in encoding.list_remarks())
    assert values.shape == (100, 1)


def test_dates_have_a_trend_and_the_cycles_that_they_vary_in() -> None:
    days = pd.Series(pd.date_range("2019-01-01", "2021-12-31", freq="D"))
    encoding, values = encode(pd.DataFrame({"d": days}))
    (date,) = encoding.columns
    assert isinstance(date, DateEncoding) and (date.year, date.week, date.day) == (True, True, False)
    names = list(encoding.features)
    trend = values[:, names.index("d in years")]
    assert trend[-1] - trend[0] == pytest.approx((len(days) - 1) / 365.2425)
    monday = values[:, names.index("d on Monday")]
    np.testing.assert_array_equal(monday == 1, days.dt.day_of_week == 0)
    sine = values[:, names.index("d: year, sine 1")]
    np.testing.assert_allclose(sine[:700], sine[365:1065], atol=0.02)  # repeats every year
    hours = pd.DataFrame({"d": pd.date_range("2020-01-01", periods=48, freq="h")})
    encoding, values = encode(hours)
    assert not any("year," in name or "Monday" in name for name in encoding.features)
    np.testing.assert_allclose(values[:24, 1:], values[24:, 1:], atol=1e-9)


def test_a_missing_date_has_the_median_trend_and_no_cycle() -> None:
    days = [*pd.date_range("2020-01-01", periods=395, freq="D"), *[None] * 6]
    encoding, values = encode(pd.DataFrame({"d": days}))
    assert encoding.features[-1] == "d is missing"
    assert values[-1].tolist() == [0.0] * (values.shape[1] - 1) + [1.0]


def test_levels_and_gaps_that_are_too_rare_to_learn_have_no_feature_of_their_own() -> None:
    """Of 10,000 records, 25 are enough: a quarter of the square root."""
    n = 10_000
    number = np.arange(n, dtype=np.float64)
    for rare, marked in ((24, False), (25, True)):
        encoding, values = encode(pd.DataFrame({"a": np.where(np.arange(n) < rare, np.nan, number)}))
        assert encoding.features == (("a", "a is missing") if marked else ("a",))
        np.testing.assert_array_equal(values[:, 0], np.where(number < rare, np.median(number[rare:]), number))
        text = np.where(np.arange(n) < rare, "rare", np.where(np.arange(n) % 2, "odd", "even"))
        encoding, values = encode(pd.DataFrame({"a": text}))
        assert encoding.features == (("a=even", "a=odd", "a=rare") if marked else ("a=even", "a=odd"))
        assert (values.sum(axis=1) == (np.arange(n) >= (0 if marked else rare))).all()
        gaps = pd.DataFrame({"a": pd.Series(text).mask(text == "rare")})
        assert ("a is missing" in encode(gaps)[0].features) is marked
        days = pd.Series(pd.date_range("2020-01-01", periods=n, freq="h")).mask(np.arange(n) < rare)
        assert ("a is missing" in encode(pd.DataFrame({"a": days}))[0].features) is marked
    several = np.where(np.arange(n) < 20, "b", np.where(np.arange(n) < 40, "c", "common"))
    encoding, values = encode(pd.DataFrame({"a": several}))
    assert encoding.features == ("a=common", "a: other levels 1 of 1")  # 40 records together are enough
    np.testing.assert_array_equal(values[:, 1], np.arange(n) < 40)


@pytest.mark.parametrize(
    ("trained", "later", "message"),
    [
        ([1.0, 2.0], ["many", "few"], "column 'a' holds text that is not a number"),
        ([1.0, 2.0], pd.to_datetime(["2020-01-01", "2020-01-02"]), "column 'a' holds dates where a number"),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), [1.0, 2.0], "column 'a' holds a number where a date"),
    ],
)
def test_a_column_of_another_kind_is_refused(trained: Any, later: Any, message: str) -> None:
    encoding, _ = encode(pd.DataFrame({"a": trained}))
    with pytest.raises(SchemaError, match=message):
        encoding.transform(PublicTable.of(pd.DataFrame({"a": later}), kinds=encoding.kinds))


def test_a_column_whose_every_level_is_new_raises_a_warning() -> None:
    encoding, _ = encode(pd.DataFrame({"a": ["1", "2"] * 10}))
    table = PublicTable.of(pd.DataFrame({"a": ["one", "two"] * 10}))
    with pytest.warns(UserWarning, match="no value of column 'a' occurred in training"):
        encoding.transform(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoding.transform(PublicTable.of(pd.DataFrame({"a": [1, 2] * 10}), kinds=encoding.kinds))  # the same as text
        encoding.transform(PublicTable.of(pd.DataFrame({"a": ["new"]})))  # one record may be new


def test_indicators_of_a_category_share_a_scale_so_that_rare_levels_count_less() -> None:
    frame = pd.DataFrame({"a": ["x"] * 88 + ["y"] * 9 + ["z"] * 3, "b": np.arange(100.0)})
    table = PublicTable.of(frame)
    features = Encoding.of(table).transform(table)
    assert features.groups is not None and features.groups.tolist() == [0, 0, 0, 1]
    moments = Standardization.of(features, constant=True, function="test")
    variance = features.values.var(axis=0)
    np.testing.assert_allclose(moments.scale, [*[math.sqrt(variance[:3].sum())] * 3, math.sqrt(variance[3])])
    np.testing.assert_allclose(np.diag(moments.gram)[:3].sum(), 100)  # together they count as one column


def test_sparse_and_dense_features_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice([f"level {place}" for place in range(30)], 500), "b": rng.normal(size=500)})
    table = PublicTable.of(frame)
    encoding = Encoding.of(table)
    dense = encoding.transform(table)
    monkeypatch.setattr("conddp.features.encoding.SMALLEST", 1)
    sparse = encoding.transform(table)
    assert dense.sparse is None and sparse.sparse is not None
    np.testing.assert_array_equal(sparse.values, dense.values)


@settings(max_examples=50, deadline=None)
@given(
    st.data(),
    arrays.arrays(np.float64, 12, elements=st.floats(-1e12, 1e12) | st.just(float("nan"))),
)
def test_an_encoding_reads_back_and_gives_the_same_features(data: st.DataObject, numbers: Any) -> None:
    texts = data.draw(st.lists(st.none() | st.text(st.characters(codec="utf-8")), min_size=12, max_size=12))
    stamps = st.datetimes(min_value=pd.Timestamp("1950-01-01"), max_value=pd.Timestamp("2100-01-01"))
    dates = data.draw(st.lists(st.none() | stamps, min_size=12, max_size=12))
    frame = pd.DataFrame({"n": numbers, "t": pd.Series(texts, dtype=object), "d": pd.Series(dates, dtype=object)})
    table = PublicTable.of(frame, kinds={"t": Kind.CATEGORY, "d": Kind.DATE if any(dates) else Kind.NUMBER})
    encoding = Encoding.of(table)
    again = Encoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert again == encoding
    features = encoding.transform(table)
    np.testing.assert_array_equal(again.transform(table).values, features.values)
    assert np.isfinite(features.values).all()


@pytest.mark.parametrize(
    "stored",
    [
        {},
        [1],
        [{"form": "sound", "column": "a"}],
        [{"form": "number"}],
        [{"form": "number", "column": "a", "scale": -1.0}],
        [{"form": "number", "column": "a", "kind": "date"}],
        [{"form": "number", "column": "a", "median": "large"}],
        [{"form": "category", "column": "a", "levels": ["x", "x"]}],
        [{"form": "category", "column": "a", "num_bins": 10**9}],
        [{"form": "date", "column": "a", "origin": 1e300}],
        [{"form": "number", "column": "a"}, {"form": "number", "column": "a"}],
    ],
)
def test_a_damaged_encoding_is_refused(stored: Any) -> None:
    with pytest.raises(SchemaError):
        Encoding.from_json(stored)


def test_columns_whose_features_have_the_same_name_are_refused() -> None:
    with pytest.raises(SchemaError, match="features of the same name"):
        encode(pd.DataFrame({"a": [1.0, np.nan], "a is missing": [1.0, 2.0]}))


def test_a_number_encoding_without_values_is_constant() -> None:
    _, values = encode(pd.DataFrame({"a": [np.nan, np.nan], "b": [1.0, 2.0]}))
    assert np.isfinite(values).all()
    assert NumberEncoding("a").is_plain
