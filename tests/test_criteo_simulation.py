"""Simulated Criteo rows: reproducible in any order, and close to the published figures."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from conddp.data.schema import Schema
from conddp.errors import OutputExists
from conddp.research.criteo import simulate_criteo, write_simulation
from conddp.research.criteo.catalogue import draw_zipf
from conddp.research.criteo.columns import CATEGORIES, NUMBERS, ROW_GROUP, SCHEMA
from conddp.research.criteo.folder import PartFolder, is_for_test
from conddp.research.criteo.mixing import as_uniform, mix, scale_to_bins
from conddp.research.criteo.profile import CLICKS, DELAY, KNOWN, NUM_CLICKS, PRICE, VALUE
from conddp.research.criteo.simulation import Sales, draw_sales, simulate_piece

PINNED = {
    "value": [232.9, 17.52, 28.31],
    "product_price": [85.0, 30.73, 19.9],
    "product_brand": [641, 2108, 3547],
    "product_id": [3143, 2713, 2794],
    "partner_id": [1281, 883, 788],
    "user_id": [3078, 945, 799],
}


@pytest.fixture(scope="module")
def sales() -> Sales:
    return draw_sales(0, seed=1)


def test_rows_have_the_converted_schema_and_allowed_values() -> None:
    table = next(simulate_criteo(2000, seed=3, num_bins=50))
    assert table.schema.equals(SCHEMA) and table.num_rows == 2000
    assert pc.min(table["value"]).as_py() >= 0 and pc.max(table["value"]).as_py() == 400
    for name in CATEGORIES:
        assert 0 <= pc.min(table[name]).as_py() and pc.max(table[name]).as_py() < 50
    assert table["nb_clicks_1week"].null_count > 0 and table["product_price"].null_count == 0
    assert pc.min(table["product_price"]).as_py() > 0  # a sale has a price


def test_fewer_rows_are_the_beginning_of_more() -> None:
    short = pa.concat_tables(simulate_criteo(1000, seed=2))
    longer = pa.concat_tables(simulate_criteo(1500, seed=2))
    assert longer.slice(0, 1000).equals(short)
    assert not next(simulate_criteo(1000, seed=4)).equals(short)


def test_a_piece_depends_on_its_place_only() -> None:
    rows = pa.concat_tables(simulate_criteo(ROW_GROUP + 500, seed=2))
    assert rows.slice(ROW_GROUP).combine_chunks().equals(simulate_piece(1, num_rows=500, seed=2))
    assert not simulate_piece(0, num_rows=500, seed=2).equals(simulate_piece(1, num_rows=500, seed=2))


def test_rows_of_a_seed_stay_what_they_are() -> None:
    table = next(simulate_criteo(3, seed=9))
    assert {name: table[name].to_pylist() for name in PINNED} == PINNED


@pytest.mark.parametrize(
    ("name", "distribution"), [("value", VALUE), *zip(NUMBERS, (DELAY, CLICKS, PRICE), strict=True)]
)
def test_quartiles_are_the_published_ones(sales: Sales, name: str, distribution: Any) -> None:
    published = np.array(distribution.values[3:6])
    numbers = sales.value if name == "value" else sales.numbers[name]
    found = np.quantile(numbers[numbers >= 0], [0.25, 0.5, 0.75])
    # 131,072 rows: four standard errors of a quartile are 1.3 % in probability, and products repeat
    assert found == pytest.approx(published, rel=0.12)


def test_means_and_largest_values_are_like_the_published_ones(sales: Sales) -> None:
    assert sales.value.mean() == pytest.approx(122.53, rel=0.05)
    assert np.minimum(sales.value, 400).var() == pytest.approx(11_200, rel=0.03)
    assert np.mean(sales.value > 400) == pytest.approx(0.05, abs=0.005)
    assert sales.numbers["time_delay_for_conversion"].max() <= 2_588_699


@pytest.mark.parametrize("name", CATEGORIES)
def test_gaps_are_as_frequent_as_published(sales: Sales, name: str) -> None:
    assert np.mean(sales.levels[name] >= 0) == pytest.approx(KNOWN[name] / NUM_CLICKS, abs=0.015)


def test_users_are_nearly_unique_and_products_are_not(sales: Sales) -> None:
    distinct = {name: len(np.unique(sales.levels[name])) / ROW_GROUP for name in ("user_id", "product_id")}
    assert distinct["user_id"] > 0.99 and 0.2 < distinct["product_id"] < 0.6


def determines(finer: np.ndarray, coarser: np.ndarray) -> bool:
    known = (finer >= 0) & (coarser >= 0)
    return len(np.unique((finer[known] << 32) + coarser[known])) == len(np.unique(finer[known]))


@pytest.mark.parametrize("level", range(2, 8))
def test_categories_are_nested(sales: Sales, level: int) -> None:
    finer, coarser = (sales.levels[f"product_category({each})"] for each in (level, level - 1))
    assert determines(finer, coarser)
    assert not np.any((finer >= 0) & (coarser < 0))


@pytest.mark.parametrize("name", ["product_brand", "product_title", "partner_id", "product_country", "product_gender"])
def test_a_product_determines_what_is_said_about_it(sales: Sales, name: str) -> None:
    assert determines(sales.levels["product_id"], sales.levels[name])
    assert not determines(sales.levels["user_id"] % 1000, sales.levels[name])  # the check can fail


def test_a_product_determines_its_price(sales: Sales) -> None:
    cents = np.round(100 * sales.numbers["product_price"]).astype(np.int64)
    assert determines(sales.levels["product_id"], cents)


def test_value_follows_price_and_a_curve_explains_more_than_a_line(sales: Sales) -> None:
    value = np.minimum(sales.value, 400)
    price = np.log1p(sales.numbers["product_price"])
    line = np.polyval(np.polyfit(price, value, 1), price)
    tenths = np.searchsorted(np.quantile(price, np.arange(0.02, 1, 0.02)), price)
    curve = (np.bincount(tenths, value) / np.bincount(tenths))[tenths]
    linear, nonlinear = (1 - np.mean((value - each) ** 2) / value.var() for each in (line, curve))
    assert 0.3 < linear < 0.55 and linear + 0.03 < nonlinear < 0.62


def test_zipf_levels_have_their_frequencies() -> None:
    uniform = (np.arange(200_000) + 0.5) / 200_000
    for exponent in (1.0, 1.7):
        levels = draw_zipf(uniform, 30, exponent=exponent, offset=2.0)
        assert levels.min() == 0 and levels.max() == 29
        edges = np.arange(3.0, 34.0)
        mass = np.diff(np.log(edges)) if exponent == 1.0 else -np.diff(edges ** (1 - exponent))
        assert np.bincount(levels) / len(levels) == pytest.approx(mass / mass.sum(), abs=1e-4)


def test_mixed_keys_are_even_and_streams_are_unrelated() -> None:
    keys = np.arange(100_000)
    counts = np.bincount(scale_to_bins(mix(keys, 5), 100), minlength=100)
    assert ((counts - 1000) ** 2 / 1000).sum() < 149  # chi-square with 99 degrees of freedom: p = 0.001
    first, second = as_uniform(mix(keys, 5)), as_uniform(mix(keys, 6))
    for shift in range(3):
        assert abs(np.corrcoef(first[shift:], second[: len(second) - shift])[0, 1]) < 0.015  # 4.7 standard errors


def test_a_folder_is_written_split_and_described(tmp_path: Path) -> None:
    manifest = write_simulation(tmp_path / "out", 3000, seed=2, test_fraction=0.3)
    train, test = (pq.read_table(tmp_path / "out" / kind / "part-00000.parquet") for kind in ("train", "test"))
    assert (train.num_rows, test.num_rows) == (manifest.train_rows[0], manifest.test_rows[0])
    rows = next(simulate_criteo(3000, seed=2))
    chosen = is_for_test(np.arange(3000), test_fraction=0.3, seed=0)
    assert test.equals(rows.filter(pa.array(chosen))) and train.equals(rows.filter(pa.array(~chosen)))
    assert test.num_rows == pytest.approx(900, abs=100)
    schema = Schema.load(tmp_path / "out" / "schema.toml")
    assert schema.label.name == "value" and schema.public == (*NUMBERS, *CATEGORIES)


def test_a_killed_simulation_continues_with_the_next_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("simulation", "simulated_folder"):
        monkeypatch.setattr(f"conddp.research.criteo.{module}.ROW_GROUP", 500)
    whole = write_simulation(tmp_path / "whole", 1700)

    def die(done: int, total: int) -> None:
        if done >= 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_simulation(tmp_path / "killed", 1700, callback=die)
    stopped = PartFolder.find(tmp_path / "killed")
    assert stopped is not None and not stopped.manifest.finished and len(stopped.manifest.train_rows) == 2
    first = tmp_path / "killed" / "train" / "part-00000.parquet"
    written = first.stat().st_mtime_ns
    assert write_simulation(tmp_path / "killed", 1700) == whole
    assert first.stat().st_mtime_ns == written
    for path in sorted((tmp_path / "whole").rglob("*.parquet")):
        assert pq.read_table(path).equals(pq.read_table(tmp_path / "killed" / path.relative_to(tmp_path / "whole")))


def test_another_simulation_does_not_mix_with_an_old_one(tmp_path: Path) -> None:
    write_simulation(tmp_path / "out", 300)
    with pytest.raises(OutputExists, match="other settings"):
        write_simulation(tmp_path / "out", 301)
    assert write_simulation(tmp_path / "out", 301, overwrite=True).num_lines == 301
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputExists, match="other files"):
        write_simulation(tmp_path / "mine", 300, overwrite=True)


@pytest.mark.parametrize("settings", [{"num_rows": 0}, {"seed": -1}, {"num_bins": 0}])
def test_bad_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        next(simulate_criteo(**{"num_rows": 10, **settings}))
