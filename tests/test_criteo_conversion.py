"""The published log, converted: compared with the rows it was made from, with damage of all kinds, and after a kill."""

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conddp.errors import OutputExists, SchemaError
from conddp.research.criteo import convert_criteo, load_criteo, load_criteo_bins, simulate_criteo, write_raw_log
from conddp.research.criteo.columns import CATEGORIES, NUMBERS, RAW_COLUMNS
from conddp.research.criteo.folder import PartFolder
from conddp.research.criteo.hashing import hash_column, hash_to_bin
from conddp.research.criteo.loading import prepare_numbers
from conddp.research.datasets import DatasetDamaged, DatasetNotFound

MANY = 2**31 - 1  # bins, so that hardly two values share one
SALE = dict(
    zip(
        RAW_COLUMNS,
        ("1", "12.5", "60", "1596439471", "7", "9.99", *(f"{place:032X}" for place in range(17))),
        strict=True,
    )
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("criteo") / "CriteoSearchData"
    write_raw_log(path, 6000, seed=5)
    return path


def line(**changed: str) -> bytes:
    cells = {
        **SALE,
        **{("product_category(1)" if name == "category" else name): cell for name, cell in changed.items()},
    }
    return "\t".join(cells.values()).encode("latin-1") + b"\n"


def convert(content: bytes, folder: Path, **settings: object) -> tuple[pa.Table, PartFolder]:
    (folder / "log").write_bytes(content)
    convert_criteo(folder / "log", folder / "out", test_fraction=0.0, **{"max_damaged": 1.0, **settings})  # type: ignore[arg-type]  # settings of different types
    return read(folder / "out"), PartFolder.find(folder / "out")  # type: ignore[return-value]  # there is a folder


def read(folder: Path, kind: str = "train") -> pa.Table:
    return pa.concat_tables(pq.read_table(part) for part in sorted((folder / kind).glob("*.parquet"))).combine_chunks()


def test_a_raw_log_has_the_published_form(log: Path) -> None:
    rows = [text.split("\t") for text in log.read_text(encoding="ascii").splitlines()]
    assert len(rows) == 6000 and {len(row) for row in rows} == {23}
    sold = [dict(zip(RAW_COLUMNS, row, strict=True)) for row in rows if row[0] == "1"]
    others = [row for row in rows if row[0] == "0"]
    assert len(sold) == pytest.approx(6000 * 0.1083, abs=100) and len(sold) + len(others) == 6000
    assert {(row[1], row[2], row[5]) for row in others} == {("-1", "-1", "0")}
    assert all(float(row["SalesAmountInEuro"]) >= 0 and float(row["product_price"]) > 0 for row in sold)
    words = [word for row in rows for cell in row[6:] for word in cell.split(" ") if cell != "-1"]
    assert all(len(word) == 32 and set(word) <= set("0123456789ABCDEF") for word in words)


def test_a_converted_log_has_the_rows_it_was_made_from(log: Path, tmp_path: Path) -> None:
    manifest = convert_criteo(log, tmp_path / "out", num_bins=MANY, test_fraction=0.0)
    converted = read(tmp_path / "out")
    expected = pa.concat_tables(simulate_criteo(converted.num_rows, seed=5, num_bins=MANY))
    assert manifest.counts == {"lines": 6000, "sales": len(converted), "sales without a value": 0, "damaged": 0}
    assert converted.select(["value", *NUMBERS]).equals(expected.select(["value", *NUMBERS]))
    for name in CATEGORIES:  # hashes differ, but rows have equal bins in one where they have equal bins in the other
        found, wanted = (
            np.unique(table[name].to_numpy(), return_index=True, return_inverse=True)[1:]
            for table in (converted, expected)
        )
        assert np.array_equal(found[0][found[1]], wanted[0][wanted[1]]), name


def test_gzip_and_block_size_change_nothing(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert_criteo(log, tmp_path / "plain")
    (tmp_path / "log.gz").write_bytes(gzip.compress(log.read_bytes()))
    monkeypatch.setattr("conddp.research.criteo.conversion.BLOCK", 200_003)
    convert_criteo(tmp_path / "log.gz", tmp_path / "packed")
    for kind in ("train", "test"):
        assert read(tmp_path / "plain", kind).equals(read(tmp_path / "packed", kind))


@pytest.mark.parametrize(
    ("column", "value", "few", "many"),
    [
        ("user_id", b"-1", 2168, 2099935276),
        ("user_id", b"", 2168, 2099935276),
        ("user_id", b"0123456789ABCDEF0123456789ABCDEF", 2434, 1305666515),
        ("product_title", b"A B", 1337, 1101973078),
        ("product_brand", b"\xff\xfe", 1868, 2129361912),
    ],
)
def test_bins_are_the_same_everywhere(column: str, value: bytes, few: int, many: int) -> None:
    assert (hash_to_bin(column, value, 4000), hash_to_bin(column, value, MANY)) == (few, many)
    assert hash_column(pa.array([b"x", value, value], pa.binary()), column, 4000).tolist()[1:] == [few, few]


def test_bins_are_even_and_depend_on_the_column() -> None:
    values = [f"{number:032X}".encode() for number in range(20_000)]
    bins = hash_column(pa.array(values, pa.binary()), "user_id", 50)
    counts = np.bincount(bins, minlength=50)
    assert ((counts - 400) ** 2 / 400).sum() < 86  # chi-square with 49 degrees of freedom: p = 0.001
    assert np.mean(bins == hash_column(pa.array(values, pa.binary()), "product_id", 50)) == pytest.approx(
        0.02, abs=0.005
    )


def test_values_are_clipped_and_gaps_kept(tmp_path: Path) -> None:
    rows, folder = convert(
        line(SalesAmountInEuro="1234.5", time_delay_for_conversion="-1", nb_clicks_1week="", user_id="")
        + line(SalesAmountInEuro="0", product_price="-1.0", user_id="-1")
        + line(Sale="0", SalesAmountInEuro="-1")
        + line(SalesAmountInEuro="-1"),
        tmp_path,
    )
    assert rows["value"].to_pylist() == [400.0, 0.0]
    assert [rows[name].to_pylist() for name in NUMBERS] == [[None, 60.0], [None, 7.0], [9.99, None]]
    assert rows["user_id"].to_pylist() == [hash_to_bin("user_id", b"-1", 4000)] * 2
    assert rows["product_category(1)"].to_pylist() == [hash_to_bin("product_category(1)", b"0" * 31 + b"5", 4000)] * 2
    assert folder.manifest.counts == {"lines": 4, "sales": 2, "sales without a value": 1, "damaged": 0}


DAMAGES = {
    "a field too few": line()[:-34] + b"\n",
    "a field too many": line(user_id="A\tB"),
    "an empty line": b"\n",
    "a header": "\t".join(RAW_COLUMNS).encode() + b"\n",
    "another flag": line(Sale="2"),
    "a longer flag": line(Sale="10"),
    "a NUL byte": line(user_id="A\0B"),
    "a NUL byte without a sale": line(Sale="0", user_id="A\0B"),
    "a carriage return": line(product_id="A\rB"),
    "text for a value": line(SalesAmountInEuro="secret"),
    "a negative value": line(SalesAmountInEuro="-2"),
    "an infinite value": line(SalesAmountInEuro="inf"),
    "no number": line(product_price="nan"),
    "text for clicks": line(nb_clicks_1week="7 clicks"),
    "a delay that is not UTF-8": line(time_delay_for_conversion="\xff"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_is_left_out_and_reported_by_its_number(damage: str, tmp_path: Path) -> None:
    good = line() + line(Sale="0") + line(SalesAmountInEuro="20")
    rows, folder = convert(good + DAMAGES[damage] + line(SalesAmountInEuro="30"), tmp_path)
    assert rows["value"].to_pylist() == [12.5, 20.0, 30.0]
    assert folder.manifest.damaged == (4,) and folder.manifest.counts["damaged"] == 1


def test_harmless_oddities_are_no_damage(tmp_path: Path) -> None:
    windows = line().replace(b"\n", b"\r\n")
    quoted = line(product_title='a "quoted, 32', partner_id="\xff\xfe", category='"')
    rows, folder = convert(windows + quoted + line()[:-1], tmp_path)
    assert folder.manifest.counts["damaged"] == 0 and rows.num_rows == 3
    assert len(set(rows["user_id"].to_pylist())) == 1
    assert rows["partner_id"].to_pylist()[1] == hash_to_bin("partner_id", b"\xff\xfe", 4000)


def test_a_truncated_last_line_is_damaged(tmp_path: Path) -> None:
    rows, folder = convert(line() + line()[:-5], tmp_path)
    assert rows.num_rows == 1 and folder.manifest.damaged == (2,)


def test_too_much_damage_is_refused_without_showing_content(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(line() * 50 + line(SalesAmountInEuro="secret") + line() * 50)
    with pytest.raises(DatasetDamaged, match=r"1 of 101 lines .*max_damaged=0.001. The first are: 51\.") as refused:
        convert_criteo(path, tmp_path / "out")
    assert "secret" not in str(refused.value)
    assert convert_criteo(path, tmp_path / "out", max_damaged=0.01).counts["sales"] == 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n", "2 of 2 lines are damaged"),
        (gzip.compress(line() * 500)[:-40], "cannot be read to its end"),
        (b"log".ljust(257, b"\0") + b"ustar" + line(), "is a tar archive"),
        (b"1" * (2 << 20), "a line of more than 1,048,576 bytes"),
    ],
)
def test_what_is_not_the_log_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(DatasetDamaged, match=message):
        convert_criteo(tmp_path / "log", tmp_path / "out")
    with pytest.raises(DatasetNotFound, match="not finished"):
        load_criteo(tmp_path / "out")
    (tmp_path / "good").write_bytes(line() * 20)
    assert convert_criteo(tmp_path / "good", tmp_path / "out").finished  # nothing stands in the way


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFound, match=r"no file.*describe_dataset\('criteo_ssc'\)"):
        convert_criteo(tmp_path / "absent", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_a_killed_conversion_continues_and_ends_with_the_same_parts(
    log: Path, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = log.read_bytes().split(b"\n")
    content[10] = content[4000] = b"damaged"
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(b"\n".join(content)) if packed else b"\n".join(content))
    monkeypatch.setattr("conddp.research.criteo.conversion.BLOCK", 50_000)
    monkeypatch.setattr("conddp.research.criteo.conversion.ROW_GROUP", 100)
    whole = convert_criteo(path, tmp_path / "whole", max_damaged=0.01)
    assert whole.damaged == (11, 4001) and len(whole.train_rows) > 4
    for attempt in range(3):
        calls = 0

        def die(done: int, total: int) -> None:
            nonlocal calls
            calls += 1
            if calls == 16:  # between two parts
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            convert_criteo(path, tmp_path / "killed", max_damaged=0.01, callback=die)
        (tmp_path / "killed" / "train" / "part-00099.parquet.partial").write_bytes(b"half a part")
        stopped = PartFolder.find(tmp_path / "killed")
        assert stopped is not None and len(stopped.manifest.train_rows) > attempt
        if attempt == 2:
            break
    assert convert_criteo(path, tmp_path / "killed", max_damaged=0.01) == whole
    for part in sorted((tmp_path / "whole").rglob("*.parquet")):
        assert pq.read_table(part).equals(pq.read_table(tmp_path / "killed" / part.relative_to(tmp_path / "whole")))


@pytest.mark.slow
def test_a_conversion_survives_kills_at_any_moment(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conddp.research.criteo.conversion.BLOCK", 10_000)
    monkeypatch.setattr("conddp.research.criteo.conversion.ROW_GROUP", 20)
    whole = convert_criteo(log, tmp_path / "whole")
    program = (
        "import sys; from conddp.research.criteo import conversion as c; c.BLOCK, c.ROW_GROUP = 10_000, 20\n"
        "print('go', flush=True); c.convert_criteo(sys.argv[1], sys.argv[2])"
    )
    rng, kills = np.random.default_rng(0), 0
    for _ in range(12):
        run = subprocess.Popen(
            [sys.executable, "-c", program, str(log), str(tmp_path / "killed")], stdout=subprocess.PIPE
        )
        assert run.stdout is not None and run.stdout.readline() == b"go\n"
        time.sleep(rng.uniform(0, 0.2))
        kills += run.poll() is None
        run.kill()
        run.communicate()
    assert kills >= 3  # otherwise nothing was tested
    assert convert_criteo(log, tmp_path / "killed") == whole
    for part in sorted((tmp_path / "whole").rglob("*.parquet")):
        assert pq.read_table(part).equals(pq.read_table(tmp_path / "killed" / part.relative_to(tmp_path / "whole")))


def test_a_finished_conversion_is_not_repeated(log: Path, tmp_path: Path) -> None:
    first = convert_criteo(log, tmp_path / "out")
    read_bytes: list[int] = []
    assert convert_criteo(log, tmp_path / "out", callback=lambda done, total: read_bytes.append(done)) == first
    assert not read_bytes
    with pytest.raises(OutputExists, match="other settings"):
        convert_criteo(log, tmp_path / "out", num_bins=10)
    with log.open("rb") as file:
        (tmp_path / log.name).write_bytes(file.read() + line())
    with pytest.raises(OutputExists, match="another source"):
        convert_criteo(tmp_path / log.name, tmp_path / "out")


def test_the_split_depends_on_line_and_seed_only(log: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        convert_criteo(log, tmp_path / name, split_seed=seed)
    sizes = [read(tmp_path / name, "test").num_rows for name in "ab"]
    assert sizes == pytest.approx([0.2 * 650] * 2, abs=45)  # four standard deviations
    tests = [set(read(tmp_path / name, "test")["user_id"].to_pylist()) for name in "ab"]
    assert tests[0] != tests[1]
    shortened = tmp_path / "short"
    shortened.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3000]))
    convert_criteo(shortened, tmp_path / "c")
    part = read(tmp_path / "c", "test")
    assert part.equals(read(tmp_path / "a", "test").slice(0, part.num_rows))


def test_loaded_features_count_bins(log: Path, tmp_path: Path) -> None:
    convert_criteo(log, tmp_path / "out", num_bins=40)
    train, test = load_criteo(tmp_path / "out")
    binned, _ = load_criteo_bins(tmp_path / "out")
    assert train.public.shape[1] == 43 and train.public.names[:4] == (*NUMBERS, "bin_0")
    assert (
        train.num_records + test.num_records
        == read(tmp_path / "out").num_rows + read(tmp_path / "out", "test").num_rows
    )
    dense = train.public.values
    for row in range(20):
        assert np.array_equal(dense[row, 3:], np.bincount(binned.bins[row], minlength=40))
    assert dense[:, 3:].max() > 1 and np.all(dense[:, 3:].sum(axis=1) == 17)
    assert np.array_equal(dense[:, :3], binned.numbers)
    assert np.array_equal(train.label.values, read(tmp_path / "out")["value"].to_numpy())
    assert (train.label.bounds.low, train.label.bounds.high) == (0.0, 400.0)
    assert binned.bins.dtype == np.int32 and binned.num_bins == 40 and len(binned) == train.num_records


def test_numbers_are_logarithms_in_fixed_units() -> None:
    numbers = np.array([[30 * 86400.0, np.nan, 400.0], [np.nan, 0.0, 19.0249844]])
    assert prepare_numbers(numbers) == pytest.approx(np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.5]]), abs=1e-6)


def test_missing_or_damaged_folders_are_refused(log: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFound, match="holds no converted rows"):
        load_criteo(tmp_path / "out")
    convert_criteo(log, tmp_path / "out")
    part = tmp_path / "out" / "test" / "part-00000.parquet"
    pq.write_table(pq.read_table(part).slice(1), part)
    with pytest.raises(DatasetDamaged, match="rows where the manifest says"):
        load_criteo(tmp_path / "out")
    part.write_bytes(b"not Parquet")
    with pytest.raises(DatasetDamaged, match="cannot be read"):
        load_criteo(tmp_path / "out")
    manifest = tmp_path / "out" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "num_bins": "many"}))
    with pytest.raises(SchemaError, match="num_bins"):
        load_criteo(tmp_path / "out")


def test_a_raw_log_is_not_overwritten_and_not_left_half_written(log: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputExists):
        write_raw_log(log, 10)

    def die(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_raw_log(tmp_path / "log.gz", 10, callback=die)
    assert not list(tmp_path.iterdir())
