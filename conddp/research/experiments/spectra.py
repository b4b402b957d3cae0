"""Spectra of the public features of all data sets on this machine."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum
from conddp.research.datasets import DATASETS
from conddp.research.experiments.experiment import is_at_hand, is_sample
from conddp.research.split import load_split

__all__ = ["SPECTRUM_SETS", "DesignSummary", "render_spectra_markdown", "summarize_design", "write_spectra"]

SPECTRUM_SETS = ("synthetic 0", "synthetic 0.2", "synthetic 0.5", "synthetic 1", *DATASETS)


@dataclass(frozen=True)
class DesignSummary:
    """Summary of the public features of a training set: raw columns, no intercept, as in the paper.

    Parameters
    ----------
    data : str
        The data set.
    num_records, num_columns : int
        Of the training part.
    singular_values : tuple of float
        In decreasing order.
    largest_leverage : float
        Largest diagonal entry of the projection onto the columns, between d/n and 1.
    """

    data: str
    num_records: int
    num_columns: int
    singular_values: tuple[float, ...]
    largest_leverage: float

    @property
    def condition_number(self) -> float:
        """Largest over smallest singular value."""
        return self.singular_values[0] / self.singular_values[-1]

    @property
    def stable_rank(self) -> float:
        """Sum of squared singular values over the largest of them: the number of directions that matter."""
        squared = np.square(self.singular_values)
        return float(squared.sum() / squared.max())


def summarize_design(data: str) -> DesignSummary:
    """Spectrum and leverage of the public features of one data set."""
    train = load_split(data, "ours").train
    spectrum = Spectrum.of(train.public, constant=False)
    whitened = ConditioningMatrix.from_spectrum(spectrum).transform(train.public)
    leverage = float((whitened**2).sum(axis=1).max() / train.num_records)
    n, d = train.public.shape
    return DesignSummary(data, n, d, tuple(spectrum.singular_values.tolist()), leverage)


def list_spectra() -> list[DesignSummary]:
    """Summaries of all sets on this machine."""
    return [summarize_design(data) for data in SPECTRUM_SETS if is_at_hand(data)]


def write_spectra(path: Path, summaries: Iterable[DesignSummary]) -> None:
    """Write one line per data set and direction."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["data", "direction", "singular_value"])
        for summary in summaries:
            for number, value in enumerate(summary.singular_values, start=1):
                writer.writerow([summary.data, number, f"{value:.6g}"])


def render_spectra_markdown(summaries: Iterable[DesignSummary]) -> str:
    """One line per data set."""
    lines = [
        "| data set | records | columns | condition number | stable rank | largest leverage | times d/n |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in summaries:
        average = len(each.singular_values) / each.num_records
        name = f"{each.data} (a sample)" if is_sample(each.data) else each.data
        lines.append(
            f"| {name} | {each.num_records} | {each.num_columns} | {each.condition_number:.3g} "
            f"| {each.stable_rank:.3g} | {each.largest_leverage:.3g} | {each.largest_leverage / average:.3g} |"
        )
    return "\n".join(lines) + "\n"
