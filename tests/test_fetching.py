"""Downloads, from a server on this machine that serves small files of the same format."""

import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from conddp.research.datasets import DATASETS, DatasetDamaged, data_folders, load_dataset, locate_dataset
from conddp.research.fetching import FetchFailed, fetch_dataset

WINE = b'"acidity";"alcohol";"quality"\n7;8.8;6\n6.3;9.5;5\n8.1;10.1;7\n'
BOSTON = b'"CRIM","B","MEDV"\n0.1,390,24\n0.2,380,21.6\n'
CALIFORNIA = b"-122.23,37.88,41.0,880.0,129.0,322.0,126.0,8.3252,452600.0\n"
TOMS = b",".join([b"1.5"] * 96 + [b"359.5"]) + b"\n" + b",".join([b"0"] * 97) + b"\n"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address under which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data set is at hand, and the cache is empty."""
    monkeypatch.setattr("conddp.research.datasets._folders", lambda: iter([tmp_path / "elsewhere", tmp_path / "cache"]))


def digest(content: bytes) -> tuple[str, ...]:
    return (f"sha256:{hashlib.sha256(content).hexdigest()}",)


def make_zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in members.items():
            archive.writestr(path, content)
    return buffer.getvalue()


def make_tar(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, content in members.items():
            info = tarfile.TarInfo(path)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def expect(monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, url: str) -> None:
    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], digests=digest(content), url=url))


ARCHIVES: dict[str, tuple[Callable[[], bytes], bytes, int]] = {
    # name: (what the source serves, the content that is kept, its records)
    "wine": (lambda: make_zip({"a/winequality-red.csv": b"no", "a/winequality-white.csv": WINE}), WINE, 3),
    "toms_hardware": (
        lambda: make_zip({"regression.tar.gz": make_tar({"./regression/TomsHardware/TomsHardware.data": TOMS})}),
        TOMS,
        2,
    ),
    "boston_housing": (lambda: b"506,13,\n".replace(b",\n", b"\n") + BOSTON, BOSTON, 2),
    "ca_housing": (
        lambda: make_tar({"CaliforniaHousing/cal_housing.data": CALIFORNIA}),
        b"MedInc,HouseAge,AveRooms,AveBedrms,Population,AveOccup,Latitude,Longitude,MedHouseVal\n"
        b"8.3252,41.0,6.984126984126984,1.0238095238095237,322.0,2.5555555555555554,37.88,-122.23,4.526\n",
        1,
    ),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_set_is_fetched_checked_and_loaded(
    name: str, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = served
    make, content, num_records = ARCHIVES[name]
    (folder / "archive").write_bytes(make())
    expect(monkeypatch, name, content, f"{address}/archive")
    seen: list[tuple[int, int]] = []
    path = fetch_dataset(name, callback=lambda done, total: seen.append((done, total)))
    assert path == data_folders()[-1] / DATASETS[name].file
    assert gzip.decompress(path.read_bytes()) == content
    assert seen[-1][0] == seen[-1][1] == len(make())
    assert load_dataset(name).num_records == num_records
    assert locate_dataset(name) == (path, False)


def test_averages_of_california_are_those_of_the_published_table() -> None:
    dataset = ARCHIVES["ca_housing"][1].decode().splitlines()[1].split(",")
    assert np.float64(dataset[2]) == pytest.approx(880 / 126, rel=1e-15)
    assert np.float64(dataset[8]) == pytest.approx(4.526)


def test_other_content_is_refused_and_nothing_is_written(
    served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = served
    (folder / "wine.zip").write_bytes(make_zip({"winequality-white.csv": WINE + b"1;1;9\n"}))
    expect(monkeypatch, "wine", WINE, f"{address}/wine.zip")
    with pytest.raises(DatasetDamaged, match="is not the expected file"):
        fetch_dataset("wine")
    assert not data_folders()[-1].exists()


def test_an_archive_without_the_file_says_so(served: tuple[Path, str]) -> None:
    folder, address = served
    (folder / "wine.zip").write_bytes(make_zip({"other.csv": WINE}))
    with pytest.raises(FetchFailed, match=r"does not hold winequality-white\.csv"):
        fetch_dataset("wine", url=f"{address}/wine.zip")


def test_an_archive_that_is_none_is_damaged(served: tuple[Path, str]) -> None:
    folder, address = served
    (folder / "wine.zip").write_bytes(b"<html>come back later</html>")
    with pytest.raises(DatasetDamaged, match="cannot be read"):
        fetch_dataset("wine", url=f"{address}/wine.zip")


@pytest.mark.parametrize("url", ["{address}/absent.zip", "http://127.0.0.1:9/closed.zip", "no address"])
def test_a_source_that_does_not_answer_is_explained(url: str, served: tuple[Path, str]) -> None:
    with pytest.raises(FetchFailed, match=r"could not be downloaded: .* CONDDP_DATA"):
        fetch_dataset("wine", url=url.format(address=served[1]))


def test_a_file_that_is_cut_off_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "cache" / DATASETS["wine"].file
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(WINE)[:-9])
    with pytest.raises(DatasetDamaged, match="Delete it and fetch it again"):
        load_dataset("wine")


def test_a_file_that_was_changed_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "cache" / DATASETS["wine"].file
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(WINE))
    with pytest.raises(DatasetDamaged, match="expected digest sha256:76c3f809"):
        load_dataset("wine")


def test_criteo_is_had_by_hand() -> None:
    with pytest.raises(FetchFailed, match=r"accepting the licence.*https://ailab\.criteo\.com"):
        fetch_dataset("criteo_ssc")


def test_wave_is_read_from_a_file_of_its_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{kind}{number}" for kind in ("X", "Y", "Power") for number in range(1, 50)] + ["qW", "Total_Power"]
    rows = [[str(number + place) for place in range(len(names))] for number in (0, 100)]
    content = "\n".join(",".join(line) for line in (names, *rows)).encode() + b"\n"
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    monkeypatch.setitem(DATASETS, "wave", replace(DATASETS["wave"], digests=(f"blob:{'0' * 40}", f"blob:{blob}")))
    path = tmp_path / "cache" / DATASETS["wave"].file
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(content))
    dataset = load_dataset("wave")
    assert dataset.public.names == tuple(names[:98])
    assert dataset.public.values[:, 0].tolist() == [0, 100]
    assert dataset.label.values.tolist() == [148, 248]
