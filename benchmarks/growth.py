"""Growth: time, memory and bytes moved of the default on tables in files, against rows, columns, partitions, workers.

python benchmarks/growth.py rows        # 1 to 20 million rows on two processes: memory must stay flat
python benchmarks/growth.py workers     # 10 million rows on one and two processes and Dask workers, in turns
python benchmarks/growth.py columns     # 1 million rows with 10 to 300 columns
python benchmarks/growth.py partitions  # 2 million rows in 2 to 64 partitions
python benchmarks/growth.py kill        # a worker is killed during the fit, on processes and on Dask

Every fit runs in a process of its own. Tables are simulated and written to a temporary folder (--folder); 20 million
rows take 2.4 GB. Each row of the printed table says what was measured, and the load of the machine at its beginning.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

ROWS_PER_FILE = 1_000_000
ROW_GROUP = 131_072
LEVELS = 20


def make_table(folder: Path, num_rows: int, num_columns: int, *, row_group: int = ROW_GROUP) -> Path:
    """Write numbers, a category of 20 levels and a label; a folder that is there is used again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = folder / f"{num_rows}x{num_columns}-{row_group}"
    if out.exists():
        return out
    making = out.with_suffix(".making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    weights = np.random.default_rng(0).normal(size=num_columns) / np.sqrt(num_columns)
    names = pa.array([f"level {number}" for number in range(LEVELS)])
    for number, start in enumerate(range(0, num_rows, ROWS_PER_FILE)):
        rng, size = np.random.default_rng([1, number]), min(ROWS_PER_FILE, num_rows - start)
        X, level = rng.normal(size=(size, num_columns)).astype(np.float32), rng.integers(0, LEVELS, size=size)
        label = np.clip(X @ weights + 0.1 * level - 1 + rng.normal(size=size), -5, 5)
        columns: dict[str, Any] = {f"x{place}": X[:, place] for place in range(num_columns)}
        columns["group"] = pa.DictionaryArray.from_arrays(pa.array(level.astype(np.int32)), names)
        columns["label"] = label
        pq.write_table(pa.table(columns), making / f"part-{number:03d}.parquet", row_group_size=row_group)
    making.rename(out)
    return out


def fit(folder: Path, workers: int, cluster: str | None, *, kill_after: float = 0.0) -> dict[str, Any]:
    """Fit the default in this process and its workers, and measure."""
    import psutil
    import pyarrow.parquet as pq

    from conddp.data import tasks
    from conddp.data.schema import Schema
    from conddp.files import fit_file

    moved = {"to": 0, "from": 0, "passes": 0}
    pack, read = tasks.PackedFunction.of, tasks.Replies.read

    def count_sent(function: Any) -> Any:
        packed = pack(function)
        moved["to"] += workers * len(packed.content)
        moved["passes"] += 1
        return packed

    def count_received(replies: Any, *arguments: Any) -> Any:
        moved["from"] += replies.num_bytes
        return read(replies, *arguments)

    tasks.PackedFunction.of, tasks.Replies.read = count_sent, count_received  # type: ignore[method-assign, assignment]  # to count bytes
    killed: list[int] = []

    def kill() -> None:
        time.sleep(kill_after)
        found = [
            each
            for each in psutil.Process().children(recursive=True)
            if any(word in " ".join(each.cmdline()) for word in ("conddp.data.worker", "spawn_main"))
        ]
        busiest = max(found, key=lambda each: each.cpu_times().user)
        killed.append(busiest.pid)
        busiest.kill()

    names = pq.read_schema(next(folder.glob("*.parquet"))).names
    schema = Schema.of(label="label", label_bounds=(-5, 5), public=[name for name in names if name != "label"])
    if kill_after:
        threading.Thread(target=kill, daemon=True).start()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        result = fit_file(
            folder, schema, Path(out) / "model", epsilon=1.0, seed=0, num_workers=workers, cluster=cluster
        )
    seconds = time.perf_counter() - began
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "seconds": seconds,
        "busy": sum(each.ru_utime + each.ru_stime for each in used),
        "driver_mb": used[0].ru_maxrss / 1e3,
        "worker_mb": used[1].ru_maxrss / 1e3 if workers > 1 or cluster else 0.0,
        "sent_mb": moved["to"] / 1e6,
        "received_mb": moved["from"] / 1e6,
        "passes": moved["passes"],
        "killed": len(killed),
        "model": hashlib.sha256(result.model.parameters.tobytes()).hexdigest()[:12],
    }


def measure(folder: Path, *, workers: int, cluster: str | None = None, kill_after: float = 0.0) -> dict[str, Any]:
    """Run :func:`fit` in a process of its own."""
    load = os.getloadavg()[0]
    command = [sys.executable, __file__, "fit", "--table", str(folder), "--workers", str(workers)]
    command += ["--cluster", cluster] if cluster else []
    command += ["--kill-after", str(kill_after)] if kill_after else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return {**json.loads(done.stdout.splitlines()[-1]), "load": load}


def show(what: str, found: dict[str, Any]) -> None:
    workers = f" + {found['worker_mb']:5.0f}" if found["worker_mb"] else " " * 8
    print(
        f"{what:42s} {found['seconds']:7.1f} s ({found['busy']:6.1f} of cores)  {found['driver_mb']:5.0f}{workers} MB  "
        f"sent {found['sent_mb']:8.2f} MB  received {found['received_mb']:8.2f} MB  {found['passes']:3d} passes  "
        f"model {found['model']}  load {found['load']:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rows", "workers", "columns", "partitions", "kill", "fit"])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "conddp-growth")
    parser.add_argument("--millions", type=float, nargs="*", default=None, help="millions of rows")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cluster")
    parser.add_argument("--kill-after", type=float, default=0.0)
    given = parser.parse_args()
    rows = [round(each * 1e6) for each in given.millions or ()]
    if given.what == "fit":
        print(json.dumps(fit(given.table, given.workers, given.cluster, kill_after=given.kill_after)))
    elif given.what == "rows":
        for num_rows in rows or [1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000]:
            table = make_table(given.folder, num_rows, 10)
            show(f"{num_rows:,} rows, {given.workers} processes", measure(table, workers=given.workers))
    elif given.what == "workers":
        table = make_table(given.folder, (rows or [10_000_000])[0], 10)
        for _ in range(given.repeats):
            for workers, cluster in ((1, None), (2, None), (1, "local"), (2, "local")):
                kind = "Dask workers" if cluster else "processes"
                show(f"{workers} {kind}", measure(table, workers=workers, cluster=cluster))
    elif given.what == "columns":
        for num_columns in (10, 30, 100, 300):
            table = make_table(given.folder, (rows or [1_000_000])[0], num_columns, row_group=ROW_GROUP)
            show(f"{num_columns} columns", measure(table, workers=given.workers))
    elif given.what == "partitions":
        for row_group in (1_000_000, 500_000, 131_072, 65_536):
            table = make_table(given.folder, (rows or [2_000_000])[0], 10, row_group=row_group)
            show(f"row groups of {row_group:,}", measure(table, workers=given.workers))
    else:
        table = make_table(given.folder, (rows or [2_000_000])[0], 10)
        for cluster in (None, "local"):
            whole = measure(table, workers=2, cluster=cluster)
            kind = "Dask workers" if cluster else "processes"
            show(f"2 {kind}", whole)
            for part in (0.3, 0.7):
                found = measure(table, workers=2, cluster=cluster, kill_after=part * whole["seconds"])
                same = "the same model" if found["model"] == whole["model"] else "ANOTHER MODEL"
                show(f"2 {kind}, {found['killed']} killed at {part:.0%}: {same}", found)


if __name__ == "__main__":
    main()
