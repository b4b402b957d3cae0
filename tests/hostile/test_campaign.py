"""Damaged files of every kind give a result or an explained error, within limits of memory and time."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from random import Random

import pytest

from conddp.errors import SchemaError
from tests.hostile.campaign import attack
from tests.hostile.targets import TARGETS, Leak, guarded

CASES = {
    "csv": 80,
    "parquet": 120,
    "schema": 300,
    "model": 150,
    "old model": 150,
    "ledger": 150,
    "plan": 200,
    "calibrations": 100,
}
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", list(TARGETS))
def test_damage_is_refused_or_does_no_harm(name: str, tmp_path: Path) -> None:
    refused, _, failures = attack(name, range(CASES[name]), tmp_path / name)
    assert not failures, "\n".join(failures)
    if name != "calibrations":  # which are never refused, but computed anew
        assert 0.5 * CASES[name] < refused < CASES[name]  # some damage is harmless, so that undamaged files are read


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TARGETS))
def test_a_long_campaign_stays_within_limits(name: str) -> None:
    """In a process of its own with four gigabytes of address space; each case may take half a minute."""
    command = [sys.executable, "-m", "tests.hostile.campaign", "--cases", "2000", "--start", "100000", "--target", name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_harness_notices_leaks_warnings_and_other_exceptions() -> None:
    with pytest.raises(Leak), guarded():
        raise SchemaError("the cell SECRETtext17 is not a number.")
    with pytest.raises(Leak), guarded():
        print("918273.64")
    with pytest.raises(Leak), guarded():
        try:
            float("SECRETtext17")
        except ValueError as error:
            raise SchemaError("a cell is not a number.") from error
    with pytest.raises(UserWarning), guarded():
        warnings.warn("a label is large", UserWarning, stacklevel=1)
    with pytest.raises(KeyError), guarded():
        raise KeyError("x")
    with guarded() as refused:
        raise SchemaError("a column is missing.")
    assert refused == ["a column is missing."]
    assert Random("csv 1").random() == Random("csv 1").random()  # a case can be repeated by its number
