"""Data sets by name: the paper's synthetic design, and real sets where their files are at hand.

Files are looked for in the folder named by ``CONDDP_DATA``, then in ``../shared/data`` beside a checkout, then in
``data`` under the user's cache folder. Nothing is downloaded.
"""

import csv
import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conddp.data import Dataset, Labels, PublicFeatures
from conddp.errors import CondDPError
from conddp.schema import Bounds

__all__ = ["DATASETS", "DatasetNotFound", "load_dataset", "make_synthetic"]


class DatasetNotFound(CondDPError, FileNotFoundError):  # noqa: N818  (reads as what happened)
    """The file of a named data set is not on this machine."""


@dataclass(frozen=True)
class Source:
    """Where a data set comes from and how its file is read.

    Parameters
    ----------
    file : str
        Path below the data folder.
    label : str
        Name of the label column.
    bounds : Bounds
        Declared range of the label, from what is known of the measurement, not from the file.
    origin : str
        Where the file can be had.
    leave_out : tuple of str
        Columns that are not features.
    delimiter : str
        Between cells.
    columns : tuple of str
        Names, for a file without a header line.
    """

    file: str
    label: str
    bounds: Bounds
    origin: str
    leave_out: tuple[str, ...] = ()
    delimiter: str = ","
    columns: tuple[str, ...] = ()


_BUZZ_MEASURES = ("NCD", "BL", "NAD", "AI", "NAC", "ND", "CS", "AT", "NA", "ADL", "AS_NA", "AS_NAC")

DATASETS = {
    "wine": Source(
        "wine/winequality-white.csv.gz",
        "quality",
        Bounds(0, 10),  # the scale of the tasters
        "UCI Machine Learning Repository, Wine Quality, doi 10.24432/C56S3T",
        delimiter=";",
    ),
    "boston_housing": Source(
        "Boston_housing/boston_house_prices.csv.gz",
        "MEDV",
        Bounds(0, 50),  # the source caps it at 50
        "StatLib, Boston house prices",
        leave_out=("B",),
    ),
    "energy": Source(
        "energy/energydata_complete.csv.gz",
        "Appliances",
        Bounds(0, 1100),  # Wh in ten minutes: 6.6 kW, what one household's appliances draw
        "UCI Machine Learning Repository, Appliances Energy Prediction, doi 10.24432/C5VC8G",
        leave_out=("date", "rv1", "rv2"),
    ),
    "ca_housing": Source(
        "CA_housing/california_housing.csv.gz",
        "MedHouseVal",
        Bounds(0, 5),  # the census caps it at 500,000 dollars
        "StatLib, California housing",
    ),
    "supercond": Source(
        "supercond/superconductivity_sample_4252.csv.gz",
        "critical_temp",
        Bounds(0, 185),  # kelvin
        "UCI Machine Learning Repository, Superconductivty Data, doi 10.24432/C53P47 (a sample of 4252 rows)",
    ),
    "toms_hardware": Source(
        "TomsHardware/TomsHardware.data.gz",
        "displays",
        Bounds(0, 100_000),
        "UCI Machine Learning Repository, Buzz in social media, doi 10.24432/C56G6V",
        columns=tuple(f"{measure}_{week}" for measure in _BUZZ_MEASURES for week in range(8)) + ("displays",),
    ),
}


def load_dataset(name: str) -> Dataset:
    """A real data set, all features public.

    Raises
    ------
    DatasetNotFound
        If its file is not on this machine; the message says where it comes from and where to put it.
    """
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}. Known: {', '.join(sorted(DATASETS))}.")
    source = DATASETS[name]
    path = _find(name, source)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter=source.delimiter)
        names = list(source.columns) or next(rows)
        values = {column: index for index, column in enumerate(names)}
        features = [column for column in names if column != source.label and column not in source.leave_out]
        wanted = [values[column] for column in (*features, source.label)]
        table = np.array([[float(row[index]) for index in wanted] for row in rows])
    return Dataset(
        PublicFeatures(table[:, :-1], tuple(features)),
        None,
        Labels(table[:, -1], source.bounds, source.label),
    )


def make_synthetic(
    *, power: float = 1.0, num_records: int = 5000, num_columns: int = 100, noise: float = 0.1, seed: int = 0
) -> Dataset:
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
    return Dataset(PublicFeatures((U * spectrum) @ V.T), None, Labels(bounds.clamp(label), bounds))


def _folders() -> Iterator[Path]:
    """Where files may be, in order."""
    if "CONDDP_DATA" in os.environ:
        yield Path(os.environ["CONDDP_DATA"])
    yield Path(__file__).resolve().parents[2] / "shared" / "data"
    yield Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "conddp" / "data"


def _find(name: str, source: Source) -> Path:
    for folder in _folders():
        if (folder / source.file).exists():
            return folder / source.file
    raise DatasetNotFound(
        f"data set '{name}' is not on this machine. It comes from {source.origin}; put the file at "
        f"{source.file} below a folder and name that folder in the environment variable CONDDP_DATA."
    )
