"""Plans and comparisons on disk: whole, damaged, and of other versions."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conddp.data.parts import PublicFeatures
from conddp.data.schema import Schema
from conddp.errors import CondDPError, OutputExists, SchemaError
from conddp.planning import Comparison, Plan, load_record, make_plan, save_record
from conddp.report import render_html, render_json, report_comparison, report_plan

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    3,
    1e-320,
    1e300,
    10**400,
    float("nan"),
    float("inf"),
    "x",
    [],
    [[1]],
    ["x"],
    {},
    {"a": 1},
)
OLDER = '{"conddp_plan": 1}'
NEWER = '{"conddp_plan": 99}'


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_small_plan()


@cache
def make_small_plan() -> Plan:
    public = PublicFeatures(np.random.default_rng(0).normal(size=(60, 2)), ("rooms", "age"))
    schema = Schema.of(label="price", label_bounds=(0, 500), public=public.names)
    return make_plan(public, schema, algorithms=["auto", "mean"])


def store_plan(folder: Path) -> Path:
    """A plan in a file, for tests that need one."""
    save_record(make_small_plan(), folder / "stored.json", overwrite=True)
    return folder / "stored.json"


def list_paths(content: Any, depth: int, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of values, down to a depth; of a list the last one."""
    if path:
        yield path
    if isinstance(content, dict) and len(path) < depth:
        for name, value in content.items():
            yield from list_paths(value, depth, (*path, name))
    elif isinstance(content, list) and content and len(path) < depth:
        yield from list_paths(content[-1], depth, (*path, len(content) - 1))


def change(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(content)
    part = changed
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return changed


def test_both_come_back(plan: Plan, tmp_path: Path) -> None:
    records: tuple[Plan | Comparison, ...] = (plan, plan.comparison)
    for number, record in enumerate(records):
        path = tmp_path / "deep" / f"{number}.json"
        save_record(record, path)
        assert load_record(path) == record
        with pytest.raises(OutputExists, match="exists already.*pass overwrite=True"):
            save_record(record, path)
        save_record(record, path, overwrite=True)


@pytest.mark.parametrize("kind", ["plan", "comparison"])
def test_a_wrong_value_anywhere_is_refused_or_does_no_harm(plan: Plan, tmp_path: Path, kind: str) -> None:
    """What is not refused makes sense: a report can be made of it, or conddp explains why not."""
    path = tmp_path / "stored.json"
    save_record(plan if kind == "plan" else plan.comparison, path)
    content = json.loads(path.read_text())
    refused = 0
    for place in list_paths(content, depth=4):
        for value in WRONG:
            path.write_text(json.dumps(change(content, place, value)))
            try:
                record = load_record(path)
            except SchemaError as error:
                assert str(path) in str(error)
                refused += 1
                continue
            try:
                document = report_plan(record) if isinstance(record, Plan) else report_comparison(record)
                render_html(document), render_json(document)
            except CondDPError:
                pass
    assert refused > 150


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("epsilon",), "1", "'plan.epsilon' must be a number, got text"),
        (("design", "rank"), None, "'plan.design.rank' must be a whole number, got null"),
        (("design", "columns"), ["rooms", 7], r"'plan.design.columns\[1\]' must be text, got a number"),
        (("design", "singular_values"), {}, "'plan.design.singular_values' must be a list, got an object"),
        (("design", "columns"), ["rooms", "town"], "not of the same data"),
        (("schema",), "[label]", "the schema has no label"),
        (("comparison",), [], "'comparison' must be an object, got a list"),
        (("comparison", "neighbouring"), "near", "'comparison.neighbouring' must be one of"),
        (("comparison", "epsilons"), [1.0, 0.5], "must be rising numbers"),
        (("comparison", "constant"), [1.0], "must have a list per epsilon"),
        (("comparison", "magic"), 1, r"has unknown fields \['magic'\]"),
    ],
)
def test_damage_is_named(plan: Plan, tmp_path: Path, place: tuple[Any, ...], value: Any, message: str) -> None:
    path = tmp_path / "plan.json"
    save_record(plan, path)
    path.write_text(json.dumps(change(json.loads(path.read_text()), place, value)))
    with pytest.raises(SchemaError, match=f"is damaged: .*{message}"):
        load_record(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1, 2]", "neither a plan nor a comparison"),
        ('{"conddp_plan": 3, "conddp_comparison": 3}', "neither a plan nor a comparison"),
        ('{"conddp_plan": "3"}', "neither a plan nor a comparison"),
        (OLDER, "written by an older conddp"),
        (NEWER, "newer than this conddp reads"),
        ('{"conddp_plan": 3}', "lacks"),
    ],
)
def test_other_files_are_told_apart(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(SchemaError, match=message):
        load_record(path)
    with pytest.raises(SchemaError, match="cannot be read"):
        load_record(tmp_path / "absent.json")


def test_a_comparison_in_memory_is_checked_too(plan: Plan) -> None:
    stored = json.loads(json.dumps(plan.comparison.to_json()))
    assert Comparison.from_json(stored) == plan.comparison
    with pytest.raises(SchemaError, match="lacks"):
        Comparison.from_json({})
