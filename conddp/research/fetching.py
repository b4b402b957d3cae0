"""Download of data sets from their public sources into the user's cache."""

import gzip
import io
import os
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.error import URLError

from conddp.errors import CondDPError
from conddp.research.datasets import DatasetDamaged, Source, check_digest, data_folders, get_source

__all__ = ["FetchFailed", "fetch_dataset"]

TIMEOUT = 60  # seconds without an answer
CHUNK = 1 << 16
LARGEST = 1 << 30  # bytes, far above any archive here: a larger answer is something else

ProgressCallback = Callable[[int, int], None]  # bytes so far, bytes in all or 0 if unknown


class FetchFailed(CondDPError, OSError):  # noqa: N818  (reads as what happened)
    """A data set could not be downloaded."""


def fetch_dataset(name: str, *, url: str | None = None, callback: ProgressCallback | None = None) -> Path:
    """Download a data set, check its digest and store it in the user's cache.

    Nothing is written unless the content has the known digest.

    Parameters
    ----------
    name : str
        The data set.
    url : str, optional
        Another address of the same archive.
    callback : callable, optional
        Called with the bytes so far and in all.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    FetchFailed
        If the source does not answer, or the file is not in the archive.
    DatasetDamaged
        If the content does not have the known digest.
    """
    source = get_source(name)
    if source.log:
        raise FetchFailed(
            f"data set '{name}' cannot be fetched: {source.note}. Page: {source.url}. Then convert the file with "
            "convert_criteo(log, folder)."
        )
    place = url or source.url
    archive = _download(place, callback)
    content = _find_member(archive, source, place)
    content = CONVERTERS.get(name, bytes)(content)
    check_digest(content, source.digests, what=f"what {place} holds for '{name}'")
    path = data_folders()[-1] / source.file
    _write(path, content)
    return path


def _download(url: str, callback: ProgressCallback | None) -> bytes:
    received = io.BytesIO()
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "conddp"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            total = int(answer.headers.get("Content-Length") or 0)
            while chunk := answer.read(CHUNK):
                received.write(chunk)
                if received.tell() > LARGEST:
                    raise FetchFailed(f"{url} sends more than {LARGEST >> 20} MB, more than any data set known here.")
                if callback is not None:
                    callback(received.tell(), total)
    except (URLError, HTTPException, OSError, ValueError) as error:
        if isinstance(error, FetchFailed):
            raise
        reason = getattr(error, "reason", None) or error
        raise FetchFailed(
            f"{url} could not be downloaded: {reason}. Check the connection, or download the file elsewhere and name "
            "its folder in CONDDP_DATA."
        ) from error
    return received.getvalue()


def _find_member(archive: bytes, source: Source, place: str) -> bytes:
    """The member of the archive, searched in nested archives too."""
    if not source.member:
        return archive
    try:
        for path, content in _walk(archive):
            if PurePosixPath(path).name == source.member:
                return content
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DatasetDamaged(f"the archive at {place} cannot be read: {error}. Try again later.") from error
    raise FetchFailed(f"the archive at {place} does not hold {source.member}.")


def _walk(archive: bytes) -> Iterator[tuple[str, bytes]]:
    buffer = io.BytesIO(archive)
    if zipfile.is_zipfile(buffer):
        with zipfile.ZipFile(buffer) as opened:
            members = ((info.filename, opened.read(info)) for info in opened.infolist() if not info.is_dir())
            for path, content in members:
                yield path, content
                if path.endswith((".zip", ".tar.gz", ".tgz")):
                    yield from _walk(content)
        return
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file.read()


def _write(path: Path, content: bytes) -> None:
    """Write a gzip file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(gzip.compress(content, mtime=0))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _convert_boston(content: bytes) -> bytes:
    """The copy that scikit-learn shipped has a first line with counts only."""
    first, _, rest = content.partition(b"\n")
    return rest if first.strip().count(b",") == 1 else content


def _convert_california(content: bytes) -> bytes:
    """Block groups as StatLib has them, turned into averages per household."""
    names = (
        "MedInc",
        "HouseAge",
        "AveRooms",
        "AveBedrms",
        "Population",
        "AveOccup",
        "Latitude",
        "Longitude",
        "MedHouseVal",
    )
    lines = [",".join(names)]
    for line in content.decode("ascii").split():
        try:
            longitude, latitude, age, rooms, bedrooms, population, households, income, value = map(
                float, line.split(",")
            )
        except ValueError as error:
            raise DatasetDamaged("a line of cal_housing.data does not have nine numbers.") from error
        cells = (
            income,
            age,
            rooms / households,
            bedrooms / households,
            population,
            population / households,
            latitude,
            longitude,
            value / 100_000,
        )
        lines.append(",".join(repr(cell) for cell in cells))
    return ("\n".join(lines) + "\n").encode("ascii")


CONVERTERS: dict[str, Callable[[bytes], bytes]] = {
    "boston_housing": _convert_boston,
    "ca_housing": _convert_california,
}
