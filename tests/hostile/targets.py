"""What is attacked: each target prepares good files and returns a function that damages one of them and uses it.

The property is the same for all: a result, or an error of conddp that says what to do; no other exception, no warning,
and no private cell in an error, on the terminal or in a report.
"""

import gzip
import io
import json
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

import conddp.privacy.accounting as accounting
from conddp.algorithms import CondDP, CondNewton, PrivateMean, RROnBins
from conddp.bounds import Bounds
from conddp.cache import cache_folder
from conddp.cli import main as cli
from conddp.data.parts import Labels, PrivateFeatures, PublicFeatures
from conddp.data.readers import check_header, read_column_names, read_column_types, stream_table
from conddp.data.records import Records
from conddp.data.schema import Schema
from conddp.errors import CondDPError
from conddp.estimators import PrivateRegressor
from conddp.features.column_encodings import CategoryEncoding, DateEncoding
from conddp.files import load_public, load_records
from conddp.heads import MLP, Additive, Learned
from conddp.models.result import FitResult
from conddp.models.saving import _digest, load_model, save_model, sign_record
from conddp.planning import Plan, load_record, save_record
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.randomness import RandomSource
from conddp.report import render_html, render_json, report_comparison, report_fit, report_plan
from conddp.theory.design import Design
from tests.hostile.mutate import damage_bytes, damage_json, dump
from tests.test_storage import make_small_plan

__all__ = ["TARGETS", "Attack", "Leak", "guarded"]

SECRETS = ("SECRETtext17", "918273")
OLD_MODELS = sorted((Path(__file__).parents[1] / "data" / "saved_models").glob("format_*"))
SCHEMA = Schema.of(label="price", label_bounds=(0, 500), public=["rooms", "age"], private={"income": (0, 100)})
Attack = Callable[[Random], bool]  # whether the damaged file was refused


class Leak(AssertionError):  # noqa: N818  (reads as what happened)
    """A private cell was shown."""


@contextmanager
def guarded() -> Iterator[list[str]]:
    """Let errors of conddp pass, and raise for private cells in what is said; yields what was refused."""
    refused: list[str] = []
    said = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(said), redirect_stderr(said):
        warnings.simplefilter("error")
        try:
            yield refused
        except CondDPError as error:
            refused.append(str(error))
            said.write("".join(traceback.format_exception(error)))
    for secret in SECRETS:
        if secret in said.getvalue():
            raise Leak(f"{secret} in {said.getvalue()[-2000:]!r}")


def run_command(*arguments: object) -> int:
    """Run the command line in this process and return the exit code."""
    before, sys.argv = sys.argv, ["conddp", *map(str, arguments)]
    try:
        cli.main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    finally:
        sys.argv = before
    return 0


def make_table(num_rows: int = 12) -> dict[str, list[Any]]:
    """A table whose private cells are easy to recognise."""
    rng = np.random.default_rng(0)
    table: dict[str, list[Any]] = {
        "rooms": rng.uniform(1, 9, num_rows).round(3).tolist(),
        "age": rng.uniform(1, 90, num_rows).round(1).tolist(),
        "income": [918273.64] * num_rows,
        "town": ["SECRETtext17"] * num_rows,
        "price": [918273.5] * num_rows,
    }
    return table


def make_csv() -> bytes:
    table = make_table()
    rows = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    return ("\n".join(rows) + "\n").encode()


def use_table(path: Path, random: Random) -> None:
    """Read a table in every way that there is, and sometimes from the command line."""
    uses: list[Callable[[], object]] = [
        lambda: load_records(path, SCHEMA),
        lambda: list(stream_table(path, SCHEMA.names)),
        lambda: load_public(path, SCHEMA),
        lambda: read_column_types(path),
        lambda: read_column_names(path, leave_out=["price", "income"]),
        lambda: check_header(path),
        lambda: run_command("schema", "init", path, "--label", "price", "--out", path.parent / "s.toml", "--force"),
        lambda: run_command(
            *("fit", path, "--label", "price", "--label-bounds", "0,500", "--public", "all"),
            *("--private", "income=0,100", "--epsilon", "0.5", "--out", path.parent / "absent" / "\0"),
        ),
    ]
    for use in random.sample(uses, 3):
        use()


def attack_csv(folder: Path) -> Attack:
    """Damage to the bytes of a CSV file, to its header, or to its compressed form."""
    good = make_csv()
    header, _, body = good.partition(b"\n")

    def attack(random: Random) -> bool:
        kind = random.randrange(5)
        path = folder / "table.csv"
        content = damage_bytes(good, random)
        if kind == 0:
            content = body  # no header
            content = content if random.random() < 0.5 else damage_bytes(content, random)
        elif kind == 1:
            content = damage_bytes(header, random) + b"\n" + body
        elif kind == 2:  # text in every cell of a first line that is a record
            names = [random.choice(("SECRETtext17", "SECRETtext17 b", "NA", "price", "x")) for _ in range(5)]
            content = ",".join(names).encode() + b"\n" + body
        elif kind == 3:
            path, content = folder / "table.csv.gz", gzip.compress(content, mtime=0)
            content = content if random.random() < 0.5 else damage_bytes(content, random)
        path.write_bytes(content)
        with guarded() as refused:
            use_table(path, random)
        return bool(refused)

    return attack


def attack_parquet(folder: Path) -> Attack:
    """Damage to the bytes of a Parquet file."""
    path = folder / "table.parquet"
    pa.parquet.write_table(pa.table(make_table()), path)
    good = path.read_bytes()

    def attack(random: Random) -> bool:
        path.write_bytes(damage_bytes(good, random))
        with guarded() as refused:
            use_table(path, random)
        return bool(refused)

    return attack


def attack_schema(folder: Path) -> Attack:
    """Damage to a schema file, or a table in its place."""
    path = folder / "schema.toml"

    def attack(random: Random) -> bool:
        good = random.choice((SCHEMA.to_toml().encode(), SCHEMA.to_toml().encode(), make_csv()))
        path.write_bytes(damage_bytes(good, random) if random.random() < 0.95 else good)
        with guarded() as refused:
            schema = Schema.load(path)
            assert Schema.from_toml(schema.to_toml()) == schema
        return bool(refused)

    return attack


@cache
def make_results() -> tuple[FitResult, ...]:
    """Models of several kinds."""
    rng = np.random.default_rng(0)
    X, c = rng.normal(size=(60, 2)), rng.uniform(size=(60, 1))
    public, label = PublicFeatures(X, ("a", "b")), Labels(X @ [1.0, -1.0], Bounds(-5, 5), "price")
    with_private = Records(public, PrivateFeatures(c, (Bounds(0, 1),), ("c",)), label)
    without = Records(public, None, label)
    budget, source = PrivacyBudget(1.0, 1e-6), RandomSource.of(0)
    return (
        replace(CondNewton().fit(without, budget, random_source=source), design=Design.of(public)),
        CondNewton().fit(with_private, budget, random_source=source),
        CondDP(num_steps=4).fit(with_private, budget, head=MLP(hidden=(3,)), random_source=source),
        CondDP(num_steps=4, batch_size=20).fit(without, budget, random_source=source),
        RROnBins().fit(without, budget, random_source=source),
        PrivateMean().fit(without, budget, random_source=source),
        CondNewton().fit(with_private, budget, head=Learned(width=20), random_source=source),
        make_additive_model(),
    )


def make_additive_model() -> FitResult:
    """A model with curves of numbers, categories and dates, and of pairs of columns."""
    rng, n = np.random.default_rng(0), 200
    table = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "town": np.array(["here", "there", "nowhere"])[rng.integers(0, 3, n)],
            "sold": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, n), unit="D"),
        }
    )
    label = (table["a"] * (table["town"] == "here")).clip(-5, 5).to_numpy()
    head = Additive(width=40, pairs=3)
    model = PrivateRegressor(20.0, label_bounds=(-5, 5), head=head, random_state=0).fit(table, label)
    assert len(model.curves_) > 3 and model.curves_.pairs
    return model.result_


def attack_model(folder: Path) -> Attack:
    """Damage to a file of a model folder; most of the time the digests are made to fit again."""
    return attack_folders([save_model(folder / f"model{number}", each) for number, each in enumerate(make_results())])


def attack_old_model(folder: Path) -> Attack:
    """The same for folders of old formats, which have a digest of the weights only."""
    return attack_folders([Path(shutil.copytree(source, folder / source.name)) for source in OLD_MODELS])


def attack_folders(folders: list[Path]) -> Attack:
    good = {place: {file.name: file.read_bytes() for file in place.iterdir()} for place in folders}

    def attack(random: Random) -> bool:
        place = random.choice(folders)
        for name, content in good[place].items():
            (place / name).write_bytes(content)
        record = json.loads(good[place]["model.json"])
        seal = sign_record if "digest" in record else dump
        kind = random.randrange(10)
        if kind < 6:
            damaged = damage_json(record, random)
            (place / "model.json").write_bytes(seal(damaged) if isinstance(damaged, dict) and kind else dump(damaged))
        elif kind == 6:
            (place / "model.json").write_bytes(damage_bytes(good[place]["model.json"], random))
        else:
            files = (
                *(("model.safetensors", "weights"), ("ledger.jsonl", "ledger")),
                ("uncertainty.safetensors", "uncertainty"),
            )
            name, field = random.choice([each for each in files if each[0] in good[place]])
            content = good[place][name]
            content = (
                damage_lines(content, random) if field == "ledger" and kind == 7 else damage_bytes(content, random)
            )
            (place / name).write_bytes(content)
            digest: Any = _digest(content)
            if field == "uncertainty":
                digest = {**record["uncertainty"], "digest": digest}
            changed = {**record, field: digest} if field in record else record
            (place / "model.json").write_bytes(seal(changed))
        with guarded() as refused:
            use_model(place, random)
        return bool(refused)

    return attack


def use_model(place: Path, random: Random) -> None:
    result = load_model(place)
    document = report_fit(result)
    render_html(document), render_json(document)
    number = json.loads((place / "model.json").read_bytes())["conddp_model"]
    assert str(result.guarantee).startswith("This model was saved in format") == (number < 5)
    regressor = PrivateRegressor.load(place)
    names = result.feature_order or (*result.schema.public, *result.schema.private)
    cells: dict[str, Any] = dict.fromkeys(names, [0.0, 1.0])
    for column in () if result.encoding is None else result.encoding.columns:
        if isinstance(column, CategoryEncoding):
            cells[column.column] = ["here", "elsewhere"]
        elif isinstance(column, DateEncoding):
            cells[column.column] = np.array(["2024-05-01", "2030-01-01"], dtype="datetime64[us]")
    table = pa.table(cells)
    assert np.isfinite(regressor.predict(table)).all()
    if result.uncertainty is not None:
        str(regressor.summary()), regressor.summary()._repr_html_()
        assert not np.isnan(regressor.predict(table, return_std=True)[1]).any()
    if result.diagnostics.residual_deviations:
        assert np.isfinite(regressor.predict_interval(table)).all()
    repr(result.ledger), str(result.guarantee)
    if random.random() < 0.1:
        run_command("ledger", "show", place)
        run_command("ledger", "show", place, "--json")


def damage_lines(content: bytes, random: Random) -> bytes:
    """Damage a value in JSON Lines, or the order of lines."""
    lines = [json.loads(line) for line in content.splitlines()]
    if random.random() < 0.2:
        random.shuffle(lines)
    number = random.randrange(len(lines))
    lines[number] = damage_json(lines[number], random)
    return b"".join(dump(line) + b"\n" for line in lines)


def attack_ledger(folder: Path) -> Attack:
    """Damage to a ledger file; then it is shown, and something is spent on it."""
    path = folder / "ledger.jsonl"
    ledger = PrivacyLedger(PrivacyBudget(3.0, 1e-5), path=path)
    for number in range(3):
        ledger.spend(LedgerEntry(f"fit {number}", PrivacyBudget(0.5, 1e-6), "a reason", {"num_steps": 3}))
    good = path.read_bytes()

    def attack(random: Random) -> bool:
        path.write_bytes(damage_lines(good, random) if random.random() < 0.7 else damage_bytes(good, random))
        with guarded() as refused:
            damaged = PrivacyLedger.load(path)
            repr(damaged), str(damaged.spent), str(damaged.remaining), damaged.entries
            run_command("ledger", "show", path, *random.choice(([], ["--json"])))
            damaged.check("a fit", PrivacyBudget(0.1, 1e-7), Neighbouring.REPLACE)
            damaged.spend(LedgerEntry("a fit", PrivacyBudget(0.1, 1e-7)))
            damaged.write_copy(folder / "copy.jsonl")
        (folder / "copy.jsonl").unlink(missing_ok=True)
        return bool(refused)

    return attack


def attack_plan(folder: Path) -> Attack:
    """Damage to a stored plan or comparison; then a report is made of it."""
    plan = make_small_plan()
    path = folder / "plan.json"
    goods = []
    for each in (plan, plan.comparison):
        save_record(each, path, overwrite=True)
        goods.append(path.read_bytes())

    def attack(random: Random) -> bool:
        good = random.choice(goods)
        as_values = random.random() < 0.8
        path.write_bytes(dump(damage_json(json.loads(good), random)) if as_values else damage_bytes(good, random))
        with guarded() as refused:
            record = load_record(path)
            document = report_plan(record) if isinstance(record, Plan) else report_comparison(record)
            render_html(document), render_json(document)
        return bool(refused)

    return attack


def attack_calibrations(folder: Path) -> Attack:
    """Damage to the cache of calibrations, whose digests are made to fit again; the noise must never be smaller."""
    setting: dict[str, Any] = {"num_steps": 30, "sampling_probability": 0.05}
    right = accounting.calibrate_noise_multiplier(1.0, 1e-5, **setting)
    path = cache_folder() / accounting.CALIBRATIONS
    good = [line for line in path.read_bytes().splitlines() if repr(right).encode() in line][-1]

    def attack(random: Random) -> bool:
        from conddp.cache import _digest as digest_line

        content = damage_json(json.loads(good)["content"], random)
        line = (
            dump({"content": content, "digest": digest_line(content)})
            if random.random() < 0.7
            else damage_bytes(good, random)
        )
        path.write_bytes(line + b"\n")
        before, accounting._calibrate_by_pld = accounting._calibrate_by_pld, lambda *_, **__: right  # anew, but quickly
        try:
            with guarded():
                assert accounting.calibrate_noise_multiplier(1.0, 1e-5, **setting) >= right * (1 - 1e-3)
        finally:
            accounting._calibrate_by_pld = before
        return False

    return attack


TARGETS: dict[str, Callable[[Path], Attack]] = {
    "csv": attack_csv,
    "parquet": attack_parquet,
    "schema": attack_schema,
    "model": attack_model,
    "old model": attack_old_model,
    "ledger": attack_ledger,
    "plan": attack_plan,
    "calibrations": attack_calibrations,
}
