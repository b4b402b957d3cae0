"""Things in the place of files: folders, devices, pipes, links, huge files, and models that claim to be huge."""

import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from conddp.data.schema import Schema
from conddp.errors import BudgetExceeded, CondDPError
from conddp.files import load_records
from conddp.heads import MLP
from conddp.models.saving import ModelFileError, _digest, load_model, save_model, sign_record
from conddp.planning import load_record
from conddp.privacy import Neighbouring, PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger
from tests.hostile.targets import SCHEMA, make_results

READERS: dict[str, Callable[[Path], object]] = {
    "table.csv": lambda path: load_records(path, SCHEMA),
    "table.parquet": lambda path: load_records(path, SCHEMA),
    "schema.toml": Schema.load,
    "plan.json": load_record,
    "ledger.jsonl": PrivacyLedger.load,
}


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Nothing here may take long or much memory."""
    make_results()  # not part of what is measured
    memory, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert grown < 300_000  # kilobytes
    assert time.process_time() - started < 20


def put_folder(path: Path) -> None:
    path.mkdir()


def put_nothing(path: Path) -> None:
    path.write_bytes(b"")


def put_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_broken_link(path: Path) -> None:
    path.symlink_to(path.parent / "absent")


def put_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def put_bytes(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00\x01" * 100)


def put_long_line(path: Path) -> None:
    path.write_bytes(b"a" * (20 << 20))


def put_depth(path: Path) -> None:
    path.write_bytes(b'{"a":' * 200_000)


PUT = (put_folder, put_nothing, put_device, put_pipe, put_broken_link, put_link_to_itself, put_bytes)


@pytest.mark.parametrize("put", [*PUT, put_long_line, put_depth])
@pytest.mark.parametrize("name", list(READERS))
def test_anything_in_the_place_of_a_file_is_refused(name: str, put: Callable[[Path], None], tmp_path: Path) -> None:
    put(tmp_path / name)
    with pytest.raises(CondDPError, match=name.split(".")[0]):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("name", ["schema.toml", "plan.json"])
def test_a_huge_file_is_not_read(name: str, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 40)  # takes no space on disk
    with pytest.raises(CondDPError, match="bytes, more than"):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("put", PUT)
@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "ledger.jsonl"])
def test_anything_in_the_place_of_a_part_of_a_model_is_refused(
    name: str, put: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = save_model(tmp_path / "model", make_results()[0])
    (folder / name).unlink()
    put(folder / name)
    with pytest.raises(CondDPError, match=name.split(".")[0]):
        load_model(folder)


def change(folder: Path, **entries: Any) -> None:
    record = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_bytes(sign_record({**record, **entries}))


HUGE: dict[str, dict[str, Any]] = {
    "a wide layer": {"kind": "MLP", "hidden": [10**12], "activation": "relu", "embedding": None},
    "wide layers": {"kind": "MLP", "hidden": [10**9] * 50, "activation": "relu", "embedding": 10**15},
    "many layers": {"kind": "MLP", "hidden": [1] * 20_000, "activation": "relu", "embedding": None},
    "a wide head": {"kind": "Wide", "width": 2**62},
    "a number beyond floating point": {"kind": "Wide", "width": 10**350},
    "rank": {"kind": "FactorizationMachine", "rank": 10**13, "initial_scale": 0.1},
    "text for a width": {"kind": "Wide", "width": "x" * 10**6},
    "unknown settings": {"kind": "Linear", "width": 3},
    "no settings": {},
}


@pytest.mark.parametrize("name", list(HUGE))
def test_a_model_that_claims_to_be_huge_is_refused_without_allocating_it(name: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", make_results()[0])
    change(folder, head=HUGE[name])
    with pytest.raises(ModelFileError) as refused:
        load_model(folder)
    assert len(str(refused.value)) < 1000


def test_a_schema_with_more_columns_than_weights_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", make_results()[0])
    wide = Schema.of(label="price", label_bounds=(-5, 5), public=[f"x{number}" for number in range(20_000)])
    change(folder, schema=wide.to_toml())
    with pytest.raises(ModelFileError, match="shapes"):
        load_model(folder)


def other_shape(weights: Any) -> Any:
    return {name: each.reshape(-1, 1) for name, each in weights.items()}


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (other_shape, "names, shapes or types"),
        (lambda weights: {name: each.astype(np.float32) for name, each in weights.items()}, "names, shapes or types"),
        (lambda weights: {name: each.astype(np.int64) for name, each in weights.items()}, "names, shapes or types"),
        (lambda weights: {}, "names, shapes or types"),
        (lambda weights: {**weights, "more": np.zeros(3)}, "names, shapes or types"),
        (lambda weights: {name: np.full_like(each, np.nan) for name, each in weights.items()}, "not finite"),
    ],
)
def test_weights_of_another_shape_or_type_are_refused(alter: Any, message: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", make_results()[2])
    assert isinstance(load_model(folder).model.head, MLP)
    blob = save(alter(load((folder / "model.safetensors").read_bytes())))
    (folder / "model.safetensors").write_bytes(blob)
    change(folder, weights=_digest(blob))
    with pytest.raises(ModelFileError, match=message):
        load_model(folder)


def test_deltas_that_add_up_to_one_leave_nothing_to_spend(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    entry = {"what": "a fit", "cost": {"epsilon": 0.1, "delta": 0.6}, "reason": "", "details": {}, "time": ""}
    header = {"conddp_ledger": 1, "budget": {"epsilon": 1.0, "delta": 0.9}, "neighbouring": "replace"}
    path.write_text("".join(json.dumps(each) + "\n" for each in (header, entry, entry)))
    ledger = PrivacyLedger.load(path)
    assert ledger.remaining.epsilon == 0.0
    with pytest.raises(BudgetExceeded):
        ledger.check("a fit", PrivacyBudget(0.1, 1e-6), Neighbouring.REPLACE)
