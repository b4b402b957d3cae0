"""Data sets by name: the paper's synthetic design, and real sets whose files are on this machine.

Files are searched in the folder named by ``CONDDP_DATA``, then in ``../shared/data`` beside a checkout, then in
``data`` under the user's cache folder, which :mod:`conddp.research.fetching` fills. Loading downloads nothing. The
content of every file is compared with its known digest.
"""

import csv
import gzip
import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from conddp._validate import one_of
from conddp.bounds import Bounds
from conddp.cache import cache_folder
from conddp.data.parts import Labels, PublicFeatures
from conddp.data.records import Records
from conddp.errors import CondDPError

__all__ = [
    "DATASETS",
    "DatasetDamaged",
    "DatasetNotFound",
    "Source",
    "check_digest",
    "data_folders",
    "describe_dataset",
    "get_source",
    "list_datasets",
    "load_dataset",
    "locate_dataset",
    "make_synthetic",
    "prepare_dataset",
]


class DatasetNotFound(CondDPError, FileNotFoundError):  # noqa: N818  (reads as what happened)
    """The file of a named data set is not on this machine."""


class DatasetDamaged(CondDPError, ValueError):  # noqa: N818  (reads as what happened)
    """The content of a file is not what its source publishes."""


@dataclass(frozen=True)
class Source:
    """Where a data set comes from and how its file is read.

    Parameters
    ----------
    title, licence : str
        Description, and the licence of the source.
    file : str
        Path below the data folder, of a CSV file compressed with gzip; empty for a set that is converted.
    label : str
        Name of the label column.
    bounds : Bounds
        Declared range of the label, from what is known of the measurement, not from the file.
    url, member : str
        Address of the archive, and the name of the file in it.
    digests : tuple of str
        Of the uncompressed content: "sha256:..." or git's "blob:...". One of them must match.
    num_records : int
        Rows of the whole set.
    log : str
        Path of a file that users download themselves and convert, because of its size or licence.
    sample, sample_digest : str
        A smaller file, used if the whole set is not on this machine.
    leave_out : tuple of str
        Columns that are not features.
    delimiter : str
        Between cells.
    columns : tuple of str
        Names, for a file without a header line.
    paper_scaling : (origin, unit) or None
        What the paper seems to have subtracted from the label and divided it by; None for its minimum and range.
    paper_columns : {"as they are", "standardized"}
        How the paper may have prepared the features, which it does not say.
    note : str
        What users should know.
    """

    title: str
    licence: str
    file: str
    label: str
    bounds: Bounds
    url: str
    member: str = ""
    digests: tuple[str, ...] = ()
    num_records: int = 0
    log: str = ""
    sample: str = ""
    sample_digest: str = ""
    leave_out: tuple[str, ...] = ()
    delimiter: str = ","
    columns: tuple[str, ...] = ()
    paper_scaling: tuple[float, float] | None = (0.0, 1.0)
    paper_columns: Literal["as they are", "standardized"] = "as they are"
    note: str = ""


_BUZZ_MEASURES = ("NCD", "BL", "NAD", "AI", "NAC", "ND", "CS", "AT", "NA", "ADL", "AS_NA", "AS_NAC")

SYNTHETIC: dict[str, Any] = {
    "name": "synthetic",
    "title": "The paper's synthetic design, generated when needed",
    "licence": "-",
    "source": "conddp.research.datasets.make_synthetic(power=p, num_records=n, num_columns=d, seed=s)",
    "label": "label",
    "declared bounds": [-1.0, 1.0],
    "records": 5000,
    "note": "singular values 1 / i^p; the paper does not say how labels are made: ours put the same signal on every "
    "singular direction, add noise of standard deviation 0.1, and are clamped",
}
DATASETS = {
    "boston_housing": Source(
        "Boston house prices; Harrison and Rubinfeld 1978, StatLib",
        "none stated by the source",
        "Boston_housing/boston_house_prices.csv.gz",
        "MEDV",
        Bounds(0, 50),  # the source caps it at 50
        "https://raw.githubusercontent.com/scikit-learn/scikit-learn/1.1.3/sklearn/datasets/data/boston_house_prices.csv",
        digests=("sha256:fd6aae7c42ed5998b4157a6149aa35d47c60fc0664c5bcfea5f3df4f423376cc",),
        num_records=506,
        leave_out=("B",),
        paper_scaling=None,
        note="column B, which encodes race, is left out",
    ),
    "wine": Source(
        "White wine quality; Cortez et al. 2009, UCI, doi 10.24432/C56S3T",
        "CC BY 4.0",
        "wine/winequality-white.csv.gz",
        "quality",
        Bounds(0, 10),  # the scale of the tasters
        "https://archive.ics.uci.edu/static/public/186/wine+quality.zip",
        "winequality-white.csv",
        ("sha256:76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836",),
        num_records=4898,
        delimiter=";",
    ),
    "energy": Source(
        "Appliances energy prediction; Candanedo et al. 2017, UCI, doi 10.24432/C5VC8G",
        "CC BY 4.0",
        "energy/energydata_complete.csv.gz",
        "Appliances",
        Bounds(0, 1100),  # Wh in ten minutes: 6.6 kW, what one household's appliances draw
        "https://archive.ics.uci.edu/static/public/374/appliances+energy+prediction.zip",
        "energydata_complete.csv",
        ("sha256:2820bf712ad0275cb18b85a05250926100d8e65ebb9f4d2d016ca91ea152a25d",),
        num_records=19735,
        leave_out=("date", "rv1", "rv2"),
        paper_scaling=None,
    ),
    "ca_housing": Source(
        "California housing; Pace and Barry 1997, StatLib",
        "none stated by the source",
        "CA_housing/california_housing.csv.gz",
        "MedHouseVal",
        Bounds(0, 5),  # the census caps it at 500,000 dollars
        "https://ndownloader.figshare.com/files/5976036",
        "cal_housing.data",
        ("sha256:94ef369b909f5c725340b512b7c9a05c1550a554b6592d29303990e3ba521a1f",),
        num_records=20640,
    ),
    "supercond": Source(
        "Superconductivity; Hamidieh 2018, UCI, doi 10.24432/C53P47",
        "CC BY 4.0",
        "supercond/train.csv.gz",
        "critical_temp",
        Bounds(0, 185),  # kelvin
        "https://archive.ics.uci.edu/static/public/464/superconductivty+data.zip",
        "train.csv",
        ("blob:51bc6e66c5b83dc1d1c906197ed406fb18d130c0",),
        num_records=21263,
        sample="supercond/superconductivity_sample_4252.csv.gz",
        sample_digest="sha256:a03d5d1dba92ce928c0854f4dc84d8d5e9e8ae9133cca0159760b1d61c19349a",
        paper_scaling=(0.0, 185.0),
        paper_columns="standardized",
    ),
    "toms_hardware": Source(
        "Buzz in social media, Tom's Hardware; Kawala et al. 2013, UCI, doi 10.24432/C56G6V",
        "see the source",
        "TomsHardware/TomsHardware.data.gz",
        "displays",
        Bounds(0, 300_000),  # displays of one topic in a week; the source goes up to 265,917
        "https://archive.ics.uci.edu/static/public/248/buzz+in+social+media.zip",
        "TomsHardware.data",
        ("sha256:eb18c0265e669813c6a9d32d11eb4d01125970fa46a7d4f75c3da0f0ccb3110c",),
        num_records=28179,
        columns=tuple(f"{measure}_{week}" for measure in _BUZZ_MEASURES for week in range(8)) + ("displays",),
        paper_scaling=(0.0, 10_000.0),
    ),
    "wave": Source(
        "Large-scale wave energy farm, Perth, 49 converters; Neshat et al. 2023, UCI, doi 10.24432/C5GG7Q",
        "CC BY 4.0",
        "wave/WEC_Perth_49.csv.gz",
        "Total_Power",
        Bounds(0, 5_000_000),  # watts: 49 converters of about 100 kW
        "https://archive.ics.uci.edu/static/public/882/large-scale+wave+energy+farm.zip",
        "WEC_Perth_49.csv",
        ("blob:6dfe126ca90445da57c32e9dfaad81d283ce47f9", "blob:92663db55d26eb65b79dd0a74672e8f315f2331e"),
        num_records=36043,
        leave_out=(*(f"Power{number}" for number in range(1, 50)), "qW"),
        paper_scaling=None,
        paper_columns="standardized",
    ),
    "criteo_ssc": Source(
        "Criteo Sponsored Search Conversion Log; Tallis and Yadav 2018, arXiv 1806.08211",
        "CC BY-NC-SA 4.0",
        "",
        "SalesAmountInEuro",
        Bounds(0, 400),
        "https://ailab.criteo.com/criteo-sponsored-search-conversion-log-dataset/",
        num_records=15_995_634,
        log="Criteo_Conversion_Search/CriteoSearchData",
        note="6.4 GB, available from its page after accepting the licence; 1,732,721 records have a label",
    ),
}


def get_source(name: str) -> Source:
    """The source of a data set.

    Raises
    ------
    ValueError
        If there is no such data set; the message names all of them.
    """
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}. Known: {', '.join(sorted(DATASETS))}.")
    return DATASETS[name]


def load_dataset(name: str) -> Records:
    """A real data set, all features public.

    Raises
    ------
    DatasetNotFound
        If its file is not on this machine; the message says how to get it.
    DatasetDamaged
        If its content is not what the source publishes.
    """
    source = get_source(name)
    path, is_sample = locate_dataset(name)
    if source.log:
        raise DatasetNotFound(f"data set '{name}' must be converted before it is loaded: {_how_to_convert(path)}")
    try:
        with gzip.open(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError) as error:
        raise DatasetDamaged(f"{path} cannot be read as a gzip file: {error}. Delete it and fetch it again.") from error
    check_digest(content, (source.sample_digest,) if is_sample else source.digests, what=str(path))
    rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), delimiter=source.delimiter)
    names = list(source.columns) or next(rows)
    features = [column for column in names if column != source.label and column not in source.leave_out]
    wanted = [names.index(column) for column in (*features, source.label)]
    table = np.array([[float(row[index]) for index in wanted] for row in rows])
    return Records(
        PublicFeatures(table[:, :-1], tuple(features)),
        None,
        Labels(table[:, -1], source.bounds, source.label),
    )


def prepare_dataset(name: str, preparation: Literal["paper", "ours"]) -> Records:
    """A data set with its label in the paper's units.

    Parameters
    ----------
    name : str
        Of a real set, or "synthetic" with the decay of its spectrum behind it: "synthetic 0.5".
    preparation : {"paper", "ours"}
        The range of the label: "paper" takes it from the data, as the paper seems to have done (not private), "ours" as
        it was declared beforehand.
    """
    one_of(("paper", "ours"), preparation=preparation)
    if name.split()[0] == "synthetic":
        return make_synthetic(power=float(name.removeprefix("synthetic") or 1.0))
    dataset, source = load_dataset(name), get_source(name)
    public, label, scaling = dataset.public, dataset.label.values, source.paper_scaling
    if preparation == "paper" and source.paper_columns == "standardized":
        public = PublicFeatures(_standardize(public.values), public.names)
    low, high = float(label.min()), float(label.max())
    origin, unit = scaling or (low, high - low)
    bounds = dataset.label.bounds if preparation == "ours" else Bounds(low, high)
    scaled = Bounds((bounds.low - origin) / unit, (bounds.high - origin) / unit)
    return Records(public, None, Labels((label - origin) / unit, scaled, dataset.label.name))


def _standardize(columns: NDArray[Any]) -> NDArray[Any]:
    """Columns of mean zero and unit variance; a constant one becomes zero."""
    spread = columns.std(axis=0)
    return np.asarray((columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def locate_dataset(name: str) -> tuple[Path, bool]:
    """The file of a data set, and whether it is only a sample.

    Raises
    ------
    DatasetNotFound
        If it is not on this machine.
    """
    source = get_source(name)
    packed = source.log and f"{source.log}.gz"
    for file, is_sample in ((source.file, False), (source.log, False), (packed, False), (source.sample, True)):
        for folder in data_folders():
            if file and (folder / file).exists():
                return folder / file, is_sample
    if source.log:
        raise DatasetNotFound(
            f"data set '{name}' must be downloaded by hand: {source.note}. Page: {source.url}. Put the file at "
            f"{source.log} below a folder, name that folder in CONDDP_DATA, and convert it. Simulated rows with the "
            "same columns: write_simulation(folder, num_rows)."
        )
    raise DatasetNotFound(
        f"data set '{name}' is not on this machine. Download it with fetch_dataset('{name}') from "
        f"{source.url}, or put the file at {source.file} below a folder and name that folder in CONDDP_DATA."
    )


def _how_to_convert(log: Path) -> str:
    return f"convert_criteo('{log}', folder), then load_criteo(folder)."


def data_folders() -> tuple[Path, ...]:
    """Folders to search, in order. The last is the user's cache, the only one that is written to."""
    return tuple(_folders())


def check_digest(content: bytes, digests: tuple[str, ...], *, what: str) -> None:
    """Raise unless the content has one of the digests; with no digest known, anything passes.

    Raises
    ------
    DatasetDamaged
        If it has none of them.
    """
    found = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "blob": hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest(),
    }
    if digests and not any(found[kind] == value for kind, _, value in (each.partition(":") for each in digests)):
        raise DatasetDamaged(
            f"{what} is not the expected file: expected digest {' or '.join(digests)}, got "
            f"sha256:{found['sha256']}. Delete it and fetch it again; if the source has changed its file, results "
            "are not comparable."
        )


def list_datasets() -> list[dict[str, Any]]:
    """All known data sets: name, number of records, licence, title, and the file if it is on this machine."""
    entries = []
    for name, source in DATASETS.items():
        try:
            path, is_sample = locate_dataset(name)
            state, file = ("a sample" if is_sample else "here"), str(path)
        except DatasetNotFound:
            state, file = ("by hand" if source.log else "fetch"), ""
        about = {"records": source.num_records, "licence": source.licence, "title": source.title}
        entries.append({"name": name, **about, "state": state, "file": file})
    about = {key: SYNTHETIC[key] for key in ("name", "records", "licence", "title")}
    return [*entries, {**about, "state": "made", "file": ""}]


def describe_dataset(name: str) -> dict[str, Any]:
    """Source and licence of a data set, and its columns if it is on this machine, or else how to get it."""
    if name == SYNTHETIC["name"]:
        return dict(SYNTHETIC)
    source = get_source(name)
    facts: dict[str, Any] = {
        "name": name,
        "title": source.title,
        "licence": source.licence,
        "source": source.url,
        "label": source.label,
        "declared bounds": [source.bounds.low, source.bounds.high],
        "records": source.num_records,
    }
    if source.note:
        facts["note"] = source.note
    try:
        path, is_sample = locate_dataset(name)
        if source.log:
            return {**facts, "file": str(path), "how to use it": _how_to_convert(path)}
        dataset = load_dataset(name)
    except DatasetNotFound as missing:
        return {**facts, "how to get it": str(missing)}
    facts |= {"file": str(path), "records here": dataset.num_records, "features": list(dataset.public.names)}
    if is_sample:
        facts["note"] = f"a sample of {dataset.num_records} of {source.num_records} records; results are on the sample"
    return facts


def make_synthetic(
    *, power: float = 1.0, num_records: int = 5000, num_columns: int = 100, noise: float = 0.1, seed: int = 0
) -> Records:
    r"""The paper's synthetic design, :math:`X = U S V^\top` with :math:`S_{ii} = i^{-p}`, and labels for it.

    The paper does not say how its labels are made. Ours put the same signal on every singular direction:
    :math:`y = \sqrt{n}\, U g + \mathrm{noise}` with g of norm 1/4, clamped to [-1, 1].

    Parameters
    ----------
    power : float
        Decay p of the spectrum.
    num_records, num_columns : int
        Size of the table.
    noise : float
        Standard deviation of the noise in the labels.
    seed : int
        Of the whole data set.
    """
    rng = np.random.default_rng(seed)
    U, _ = np.linalg.qr(rng.normal(size=(num_records, num_columns)))
    V, _ = np.linalg.qr(rng.normal(size=(num_columns, num_columns)))
    spectrum = np.arange(1, num_columns + 1) ** -float(power)
    direction = rng.normal(size=num_columns)
    direction *= 0.25 / np.linalg.norm(direction)
    label = np.sqrt(num_records) * (U @ direction) + noise * rng.normal(size=num_records)
    bounds = Bounds(-1, 1)
    return Records(PublicFeatures((U * spectrum) @ V.T), None, Labels(bounds.clamp(label), bounds))


def _folders() -> Iterator[Path]:
    """Folders to search, in order."""
    if "CONDDP_DATA" in os.environ:
        yield Path(os.environ["CONDDP_DATA"])
    yield Path(__file__).resolve().parents[3] / "shared" / "data"
    yield cache_folder() / "data"
