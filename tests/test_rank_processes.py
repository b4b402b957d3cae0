"""Fits that are divided over real processes, which talk through torch.distributed."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp import DPSGD, PrivacyBudget, PrivacyLedger, PrivateRegressor, SwitchCondDP
from conddp.cli.main import app
from conddp.models.saving import load_model
from tests.rank_processes import LAST_STEP, SETTINGS, make_table

pytest.importorskip("torch")

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run_processes(commands: list[list[str]]) -> list[subprocess.CompletedProcess[str]]:
    """Run a command on each of several ranks, with the environment that torchrun would give it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(len(commands)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, command in enumerate(commands)
    ]
    outcomes = []
    for process, command in zip(started, commands, strict=True):
        out, errors = process.communicate(timeout=100)
        outcomes.append(subprocess.CompletedProcess(command, process.returncode, out, errors))
    return outcomes


def test_processes_fit_together_and_end_if_one_is_killed(tmp_path: Path) -> None:
    """One launch for all of it, because torch takes seconds to import."""
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(PrivacyBudget(9.0, 1e-4), path=path)
    X, y = make_table()
    alone = PrivateRegressor(1.0, algorithm=SwitchCondDP(num_steps=6, batch_size=40), **SETTINGS).fit(X, y)
    first, second = run_processes([["-m", "tests.rank_processes", str(tmp_path)]] * 2)
    assert first.returncode == 0, first.stderr
    assert second.returncode == -signal.SIGKILL, second.stderr
    told: list[dict[str, Any]] = [json.loads(each.stdout) for each in (first, second)]

    assert told[0]["together"] == told[1]["together"]
    np.testing.assert_allclose(told[0]["together"], alone.predict(X[:5]), rtol=1e-8)
    assert [each["curators"] for each in told] == [1, 0]

    for each in told:
        assert each["mismatch"].startswith("RankMismatch") and "rank 1: budget" in each["mismatch"]

    assert told[0]["killed"].startswith(f"RankLost: rank 1 has ended or does not answer in step {LAST_STEP}.")
    assert "Start all ranks again with the checkpoint" in told[0]["killed"]
    assert told[0]["seconds"] < 60  # noticed at once, not after the time limit
    paid = [entry.cost.epsilon for entry in PrivacyLedger.load(path).entries if entry.cost.epsilon]
    assert paid == [1.0, 1.0]  # together and killed; the mismatch cost nothing

    algorithm = DPSGD(num_steps=10)
    PrivateRegressor(1.0, algorithm=algorithm, ledger=ledger, **SETTINGS).fit(X, y, checkpoint=tmp_path / "checkpoint")
    paid = [entry.cost.epsilon for entry in PrivacyLedger.load(path).entries if entry.cost.epsilon]
    assert paid == [1.0, 1.0]  # one process has gone on at no further cost


def make_command(table: Path, out: Path) -> list[str]:
    columns = ["--label", "price", "--label-bounds", "0,500", "--public", "rooms,age", "--private", "income=0,100"]
    return ["fit", str(table), *columns, "--drop", "town", "--algorithm", "dpsgd", "--out", str(out), "--seed", "3"]


@pytest.mark.slow
def test_torchrun_starts_the_command_line_and_the_first_process_prints(table: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    together, alone = tmp_path / "together", tmp_path / "alone"
    command = [*LAUNCH, "-m", "conddp", *make_command(table, together)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Model:") == 1
    assert CliRunner().invoke(app, make_command(table, alone)).exit_code == 0
    one, other = load_model(together), load_model(alone)
    np.testing.assert_allclose(one.model.parameters, other.model.parameters, rtol=1e-6)
    assert [entry.what for entry in one.ledger.entries] == [entry.what for entry in other.ledger.entries]


@pytest.mark.slow
def test_the_command_line_says_which_process_failed(table: Path, tmp_path: Path) -> None:
    """The second process is given another budget."""
    command = [*make_command(table, tmp_path / "model"), "--epsilon"]
    outcomes = run_processes([["-m", "conddp", *command, epsilon] for epsilon in ("1", "2")])
    assert [each.returncode for each in outcomes] == [1, 1]
    assert outcomes[0].stderr.startswith("RankMismatch: every rank must be given the same records and settings.")
    assert outcomes[1].stderr.startswith("rank 1: RankMismatch")
    assert not (tmp_path / "model").exists()
