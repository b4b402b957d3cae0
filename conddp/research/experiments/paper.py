"""The numbers printed in the paper.

The file ``paper_tables.csv`` holds every cell of the tables in the appendix "Full experiment results" of "Private
Learning with Public Feature Conditioning": mean and standard deviation over five runs of the validation MSE.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Printed", "get_printed"]


@dataclass(frozen=True)
class Printed:
    """A printed cell: mean and standard deviation, the latter None where none is printed."""

    mse: float
    std: float | None


@cache
def _read() -> dict[tuple[str, str, str, float], Printed]:
    text = files("conddp.research.experiments").joinpath("paper_tables.csv").read_text(encoding="utf-8")
    return {
        (row["table"], row["dataset"], row["method"], float(row["epsilon"])): Printed(
            float(row["mse"]), float(row["std"]) if row["std"] else None
        )
        for row in csv.DictReader(text.splitlines())
    }


def get_printed(table: str, data: str, method: str, epsilon: float) -> Printed | None:
    """The printed cell for a data set, method and epsilon, or None."""
    return _read().get((table, data, method, epsilon))
