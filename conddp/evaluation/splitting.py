"""Public random splits of records into those for training and those that are held out."""

import secrets
from dataclasses import replace

import numpy as np

from conddp._validate import in_range
from conddp.data.records import Records
from conddp.errors import SchemaError
from conddp.features.stored_features import StoredFeatures
from conddp.privacy.randomness import RandomSource
from conddp.privacy.sides import Side
from conddp.training.ranks import get_ranks

__all__ = ["check_fraction", "hold_out"]

FEWEST = 10  # records or units on either side


def check_fraction(fraction: float, *, checkpoint: object = None) -> None:
    """Raise unless this fraction of the records can be held out of a fit.

    Parameters
    ----------
    fraction : float
        Fraction of the records.
    checkpoint : path, optional
        Checkpoint of the fit, which must not be given: a fit that goes on would need the same split.
    """
    in_range(0.0, 1.0, evaluation_fraction=fraction)
    if not 0 < fraction < 1:
        raise ValueError(f"evaluation_fraction must lie strictly between 0 and 1, got {fraction!r}.")
    if checkpoint is not None:
        raise ValueError(
            "a fit with a checkpoint cannot hold out records: a fit that goes on would divide them anew. Leave "
            "evaluation_fraction out, and evaluate the model on records of a file of their own."
        )
    if get_ranks() is not None:
        raise ValueError("a fit that several processes share cannot hold out records. Leave evaluation_fraction out.")


def hold_out(records: Records, fraction: float, random_source: RandomSource) -> tuple[Records, Records]:
    """Divide records at random into training records and held-out ones. All records of a unit are on one side.

    Privacy
        Depends on the number of records and on units only, which are public: no cost. Both sides carry the name of the
        split, by which a ledger knows that they are disjoint.
    """
    if isinstance(records.public, StoredFeatures):
        raise SchemaError(
            "records cannot be held out of a table that is read block by block. Leave evaluation_fraction out, and "
            "evaluate the model on files of their own."
        )
    number = records.num_records if records.units is None else records.units.num_units
    if min(fraction, 1 - fraction) * number < FEWEST:
        what = "records" if records.units is None else "units"
        raise SchemaError(
            f"evaluation_fraction={fraction:g} of {number} {what} leaves fewer than {FEWEST} on one side. Choose "
            "another fraction, or leave it out."
        )
    seed = int(random_source.generator("split").integers(2**32))
    sides, name = records.split(test_fraction=fraction, random_state=seed), secrets.token_hex(8)
    if any(side.weights is not None and np.count_nonzero(side.weights) < FEWEST for side in sides):
        raise SchemaError(
            f"evaluation_fraction={fraction:g} leaves fewer than {FEWEST} records with a weight above zero on one "
            "side. Choose another fraction, or leave it out."
        )
    table = records.fingerprint
    training, held_out = (
        replace(side, table=table, side=Side(name, of))
        for side, of in zip(sides, ("training", "held-out"), strict=True)
    )
    return training, held_out
