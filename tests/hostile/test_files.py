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

from conddp.bounds import Bounds
from conddp.data.parts import PrivateFeatures, PublicFeatures
from conddp.data.schema import Schema
from conddp.errors import BudgetExceeded, CondDPError, SchemaError
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
    "many features": {"kind": "Learned", "width": 10, "num_knots": 3, "num_products": 10**12},
    "many knots": {"kind": "Additive", "width": 10, "num_knots": 10**13},
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


def set_all(name: str, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda weights: weights[name].fill(value)


IMPOSSIBLE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    **{f"huge {name}": (set_all(name, 1e308), "not of a usual size") for name in ("constant", "linear", "products")},
    **{f"huge {name}": (set_all(name, -1e308), "not of a usual size") for name in ("projections", "phases", "waves")},
    "huge private": (set_all("private", 1e308), "not of a usual size"),
    "a negative scale": (set_all("factor", -1.0), "that no column has"),
    "huge knots": (set_all("knots", 1e308), "that no column has"),
    "a huge center": (set_all("center", 1e308), "that no column has"),
    "knots that decrease": (lambda weights: weights.update(knots=weights["knots"][:, ::-1].copy()), "do not increase"),
    "ranks above 1": (set_all("ranks", 2.0), "not between 0 and 1"),
    "an unknown column": (set_all("places", 2.0), "of a column that the model does not have"),
    "half a column": (set_all("places", 0.5), "of a column that the model does not have"),
    "a negative frequency": (set_all("frequencies", -1.0), "frequency"),
}


@pytest.mark.parametrize("name", list(IMPOSSIBLE))
def test_learned_features_that_no_fit_gives_are_refused(name: str, tmp_path: Path) -> None:
    damage, message = IMPOSSIBLE[name]
    folder = save_model(tmp_path / "model", make_results()[-2])
    weights = {key: np.array(value) for key, value in load((folder / "model.safetensors").read_bytes()).items()}
    damage(weights)
    put_weights(folder, weights)
    with pytest.raises(ModelFileError, match=message):
        load_model(folder)


@pytest.mark.parametrize("place", [-2, -1])
def test_learned_features_of_sizes_that_do_not_fit_together_are_refused(place: int, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", make_results()[place])
    head = json.loads((folder / "model.json").read_text())["head"]
    change(folder, head={**head, "num_hinges": head["num_projections"] + 1})
    with pytest.raises(ModelFileError, match="more hinges than projections"):
        load_model(folder)
    weights = dict(load((folder / "model.safetensors").read_bytes()))
    none = {name: weights[name][:, :0].copy() for name in ("knots", "ranks")}
    put_weights(folder, {**weights, **none}, head={**head, "num_knots": 0})
    with pytest.raises(ModelFileError, match="no knots"):
        load_model(folder)
    P = 12_001
    many = {"places": np.zeros((P, 3)), "frequencies": np.zeros((P, 3)), "products": np.zeros(P)}
    put_weights(folder, {**weights, **many}, head={**head, "num_products": P})
    with pytest.raises(ModelFileError, match="more than 12,000 features"):
        load_model(folder)


def put_weights(folder: Path, weights: Any, **entries: Any) -> None:
    blob = save(weights)
    (folder / "model.safetensors").write_bytes(blob)
    change(folder, weights=_digest(blob), **entries)


@pytest.mark.parametrize("value", [1e308, -1e308])
@pytest.mark.parametrize("place", range(4))
def test_weights_that_overflow_give_a_prediction_or_an_explained_error(
    place: int, value: float, tmp_path: Path
) -> None:
    folder = save_model(tmp_path / "model", make_results()[place])
    weights = load((folder / "model.safetensors").read_bytes())
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=1000)
    put_weights(folder, {name: value * np.reshape(signs[: each.size], each.shape) for name, each in weights.items()})
    result = load_model(folder)
    rng = np.random.default_rng(1)
    public = PublicFeatures(rng.normal(size=(50, 2)), result.schema.public)
    private = PrivateFeatures(rng.uniform(size=(50, 1)), (Bounds(0, 1),)) if result.schema.private else None
    try:  # warnings are errors
        assert np.isfinite(result.predict(public, private)).all()
    except SchemaError as error:
        assert "too large for floating point" in str(error)


def test_a_prediction_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", make_results()[2])
    weights = load((folder / "model.safetensors").read_bytes())  # infinite hidden units times an output weight of zero
    put_weights(folder, {name: np.full_like(each, 1e308 * (name == "public")) for name, each in weights.items()})
    private = PrivateFeatures(np.ones((1, 1)), (Bounds(0, 1),))
    with pytest.raises(SchemaError, match="too large for floating point"):
        load_model(folder).predict(PublicFeatures([[10.0, 10.0]], ("a", "b")), private)


def make_singles(number: int, features: int = 1) -> list[dict[str, Any]]:
    single = {"is_category": False, "values": [0.0] * features, "effect": [0.0], "std": [0.0], "importance": 0.0}
    return [{**single, "features": list(range(each, each + features))} for each in range(number)]


def make_pair(first: int, second: int, values: list[float], other: list[float]) -> dict[str, Any]:
    numbers = [0.0] * 4
    pair = {"first": first, "second": second, "first_values": values, "second_values": other}
    return {**pair, "effect": numbers, "std": numbers, "importance": 0.0}


def make_effects(singles: list[dict[str, Any]], pairs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"constant": 0.0, "singles": singles, "pairs": pairs or []}


CATEGORY = {**make_singles(1, 2)[0], "is_category": True, "values": [0.0]}
SEVERAL = make_singles(1, 2)[0]
THIRD = {**make_singles(1)[0], "features": [2]}
EFFECTS: dict[str, tuple[dict[str, Any], str]] = {
    "many singles": (make_effects(make_singles(1) * 20_000), "two effects are of the same feature"),
    "many pairs": (
        make_effects(make_singles(2), [make_pair(0, 1, [0.0, 1.0], [0.0, 1.0])] * 13_000),
        "more effects of pairs",
    ),
    "equal pairs": (make_effects(make_singles(2), [make_pair(0, 1, [0.0, 1.0], [0.0, 1.0])] * 2), "two effects"),
    "a pair in the wrong order": (make_effects(make_singles(2), [make_pair(1, 0, [0.0, 1.0], [0.0, 1.0])]), "unknown"),
    "equal features": (make_effects([SEVERAL, *make_singles(2)]), "two effects are of the same feature"),
    "unknown levels of a pair": (make_effects([CATEGORY, THIRD], [make_pair(0, 1, [0.0, 9.0], [0.0, 1.0])]), "levels"),
    "equal levels of a pair": (make_effects([CATEGORY, THIRD], [make_pair(0, 1, [1.0, 1.0], [0.0, 1.0])]), "levels"),
    "half a level": (make_effects([CATEGORY, THIRD], [make_pair(0, 1, [0.0, 0.5], [0.0, 1.0])]), "levels"),
    "half a row": (make_effects([SEVERAL, THIRD], [make_pair(0, 1, [0.0] * 5, [0.0, 1.0])]), "for each of them"),
}


@pytest.mark.parametrize("name", list(EFFECTS))
def test_effects_that_do_not_fit_together_are_refused(name: str, tmp_path: Path) -> None:
    effects, message = EFFECTS[name]
    folder = save_model(tmp_path / "model", make_results()[-1])
    diagnostics = json.loads((folder / "model.json").read_text())["diagnostics"]
    change(folder, diagnostics={**diagnostics, "effects": effects})
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
