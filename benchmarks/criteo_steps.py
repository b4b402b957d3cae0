"""Private training steps at the size of the paper's Criteo experiments, against Opacus and PyTorch, in one process.

The records have 17 categories in 4,000 shared bins and 3 numbers. The batch has 8,192 records. All contestants take
the same batch, clip norm, noise multiplier and Adam, and run on the same number of threads. PyTorch and Opacus work in
float32. conddp computes sums of gradients in float64, and so everything in the linear model; the activations of the
network are in float32. Its steps include noise from its cryptographic generator, and use compiled kernels unless
CONDDP_FAST=0 is in the environment. Opacus gets outputs of shape (n,), because its ghost clipping is wrong for outputs
of shape (n, 1) with a squared loss.

Contestants take turns, and a ratio is the median over turns of (time of the rival) / (time of conddp) within a turn.
"with sampling" adds the Poisson sample and the gathering of its records from all records; the other contestants repeat
one batch.

    python benchmarks/criteo_steps.py [--turns 7] [--threads 1] [--hooks]
"""

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import wrap_model
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from scipy.sparse import csr_array
from torch import Tensor, nn

from conddp.features.conditioned_rows import ConditionedRows
from conddp.features.scaled_rows import ScaledRows
from conddp.heads.embeddings import Embeddings
from conddp.heads.head import Head, Inputs
from conddp.heads.linear import Linear
from conddp.privacy.noise import NoiseStream, gaussian
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import Adam

BATCH, NUM_CATEGORIES, NUM_NUMBERS, NUM_BINS, WIDTH, HIDDEN = 8192, 17, 3, 4000, 8, (128, 64)
CLIP_NORM, NOISE_MULTIPLIER, LEARNING_RATE = 1.0, 5.0, 1e-3

Step = Callable[[int], None]  # runs so many steps


class Bins(nn.Module):
    """A linear model with one weight per bin, or embeddings followed by a network; outputs have shape (n,)."""

    def __init__(self, width: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.table = nn.Embedding(NUM_BINS, width)
        if hidden:
            widths = (NUM_CATEGORIES * width + NUM_NUMBERS, *hidden, 1)
            layers: list[nn.Module] = []
            for below, above in zip(widths[:-1], widths[1:], strict=True):
                layers += [nn.Linear(below, above), nn.ReLU()]
            self.net: nn.Module = nn.Sequential(*layers[:-1])
        else:
            self.net = nn.Linear(NUM_NUMBERS, 1)
        self.is_linear = not hidden

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predictions."""
        looked_up = self.table(codes)
        if self.is_linear:
            output: Tensor = looked_up.sum(dim=(1, 2)) + self.net(numbers).flatten()
        else:
            output = self.net(torch.cat([looked_up.flatten(1), numbers], dim=1)).flatten()
        return output


class Bag(nn.Module):
    """A linear model with one weight per bin, summed by EmbeddingBag."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(NUM_BINS, 1, mode="sum")
        self.net = nn.Linear(NUM_NUMBERS, 1)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predictions."""
        output: Tensor = (self.table(codes) + self.net(numbers)).flatten()
        return output


class Dense(nn.Module):
    """A linear model on indicators."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(NUM_BINS + NUM_NUMBERS, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Predictions."""
        output: Tensor = self.net(rows)
        return output.flatten()


def conddp_steps(
    head: Head, inputs: Inputs, label: Any, *, parameters: Any, num_public: int, probability: float = 1.0
) -> Step:
    """The library's own loop, with its cryptographic generator."""
    generator = RandomSource.of(None).generator("noise")
    layout = head.layout(num_public, 0)

    def run(num_steps: int) -> None:
        train(
            TrainingPlan(num_steps, CLIP_NORM, NOISE_MULTIPLIER, probability),
            head,
            layout,
            inputs,
            label,
            parameters,
            optimizer=Adam(LEARNING_RATE),
            curator=Curator(generator, num_records=label.shape[0]),
            rng=generator,
        )

    return run


def torch_steps(net: nn.Module, inputs: tuple[Tensor, ...], label: Tensor) -> Step:
    """Non-private PyTorch."""
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)

    def run(num_steps: int) -> None:
        for _ in range(num_steps):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(*inputs), label).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()

    return run


def opacus_steps(net: nn.Module, inputs: tuple[Tensor, ...], label: Tensor, mode: str) -> Step:
    """Opacus in one of its modes."""
    settings = {"max_grad_norm": CLIP_NORM} if mode == "ghost" else {}
    model = wrap_model(net, grad_sample_mode=mode, **settings)
    kind = DPOptimizerFastGradientClipping if mode == "ghost" else DPOptimizer
    optimizer = kind(
        torch.optim.Adam(model.parameters(), lr=LEARNING_RATE),
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=BATCH,
    )
    criterion: Any = nn.MSELoss()
    if mode == "ghost":
        criterion = DPLossFastGradientClipping(model, optimizer, nn.MSELoss(reduction="mean"), "mean")

    def run(num_steps: int) -> None:
        for _ in range(num_steps):
            optimizer.zero_grad()
            criterion(model(*inputs), label).backward()
            optimizer.step()

    return run


def measure(contestants: dict[str, tuple[Step, int]], base: str, turns: int) -> dict[str, Any]:
    """Milliseconds per step of each, wall and processor, and the median ratio to ``base`` within a turn."""
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    busy: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        for name, (run, num_steps) in contestants.items():
            start, worked = time.perf_counter(), time.process_time()
            run(num_steps)
            if turn > 0:  # the first turn warms up
                wall[name].append((time.perf_counter() - start) / num_steps * 1e3)
                busy[name].append((time.process_time() - worked) / num_steps * 1e3)
    return {
        name: {
            "ms_per_step": round(statistics.median(wall[name]), 3),
            "cpu_ms_per_step": round(statistics.median(busy[name]), 3),
            "ratio": round(statistics.median(t / o for t, o in zip(wall[name], wall[base], strict=True)), 2),
            "cpu_ratio": round(statistics.median(t / o for t, o in zip(busy[name], busy[base], strict=True)), 2),
        }
        for name in contestants
    }


def make_records(n: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Bins with Zipf-like frequencies, numbers and labels."""
    rng = np.random.default_rng(0)
    codes = np.empty((n, NUM_CATEGORIES), dtype=np.int64)
    sizes = np.geomspace(10, 20_000, NUM_CATEGORIES).astype(int)
    for place, size in enumerate(sizes.tolist()):
        frequencies = 1 / np.arange(1.0, size + 1)
        levels = rng.choice(size, size=n, p=frequencies / frequencies.sum())
        codes[:, place] = rng.integers(0, NUM_BINS, size=size)[levels]
    return codes, rng.normal(size=(n, NUM_NUMBERS)), 0.3 * rng.normal(size=n)


def make_rows(codes: NDArray[np.int64], numbers: NDArray[np.float64]) -> csr_array[Any, tuple[int, int]]:
    """Indicators of bins and numbers as a CSR array in canonical form."""
    n = len(codes)
    columns = np.hstack([codes, np.tile(NUM_BINS + np.arange(NUM_NUMBERS), (n, 1))]).astype(np.int32)
    values = np.hstack([np.ones(codes.shape), numbers])
    rows = csr_array((values.ravel(), columns.ravel(), np.arange(n + 1) * columns.shape[1]), shape=(n, NUM_BINS + 3))
    rows.sum_duplicates()
    return rows


def compare_linear(n: int, turns: int) -> dict[str, Any]:
    """The linear model of 4,003 weights; conddp has an intercept too."""
    codes, numbers, label = make_records(n)
    d = NUM_BINS + NUM_NUMBERS
    scaled = ScaledRows.of(make_rows(codes, numbers), np.ones(d + 1), has_constant=True)
    batch, start = scaled[:BATCH], np.zeros((1, d + 1))
    rng = np.random.default_rng(1)
    C = rng.normal(size=(d, d + 1)) / np.sqrt(d)
    conditioned = ConditionedRows(batch.columns, np.zeros(d), C, rng.normal(size=d + 1))
    parts = torch.from_numpy(codes[:BATCH]), torch.from_numpy(numbers[:BATCH].astype(np.float32))
    dense = (torch.from_numpy(batch.columns.toarray().astype(np.float32)),)
    y = torch.from_numpy(label[:BATCH].astype(np.float32))
    head = Linear()
    settings: dict[str, Any] = {"parameters": start, "num_public": d + 1}
    contestants = {
        "conddp DP-SGD": (conddp_steps(head, Inputs.of(batch), label[:BATCH], **settings), 100),
        "conddp DP-SGD, with sampling": (
            conddp_steps(head, Inputs.of(scaled), label, probability=BATCH / n, **settings),
            50,
        ),
        "conddp Cond-DP": (conddp_steps(head, Inputs.of(conditioned), label[:BATCH], **settings), 5),
        "torch dense, not private": (torch_steps(Dense(), dense, y), 5),
        "torch Embedding, not private": (torch_steps(Bins(1, ()), parts, y), 5),
        "torch EmbeddingBag, not private": (torch_steps(Bag(), parts, y), 5),
    }
    for mode in ("hooks", "functorch", "ghost"):
        contestants[f"opacus {mode}, dense"] = (opacus_steps(Dense(), dense, y, mode), 2)
        contestants[f"opacus {mode}, Embedding"] = (opacus_steps(Bins(1, ()), parts, y, mode), 2)
    return measure(contestants, "conddp DP-SGD", turns)


def compare_networks(n: int, turns: int, *, hooks: bool) -> dict[str, Any]:
    """Embeddings of width 8 and a network 139-128-64-1."""
    codes, numbers, label = make_records(n)
    head = Embeddings(num_bins=NUM_BINS, width=WIDTH, hidden=HIDDEN, num_categories=NUM_CATEGORIES)
    num_public = NUM_CATEGORIES + NUM_NUMBERS + 1
    start = head.initialize(head.layout(num_public, 0), np.random.default_rng(0))[None]
    rows = np.hstack([codes, numbers, np.ones((n, 1))]).astype(np.float32)
    parts = torch.from_numpy(codes[:BATCH]), torch.from_numpy(numbers[:BATCH].astype(np.float32))
    y = torch.from_numpy(label[:BATCH].astype(np.float32))
    settings: dict[str, Any] = {"parameters": torch.from_numpy(start), "num_public": num_public}
    tensors, labels = torch.from_numpy(rows), torch.from_numpy(label)
    contestants = {
        "conddp": (conddp_steps(head, head.prepare(tensors[:BATCH], None), labels[:BATCH], **settings), 10),
        "conddp, with sampling": (
            conddp_steps(head, head.prepare(tensors, None), labels, probability=BATCH / n, **settings),
            10,
        ),
        "conddp on NumPy": (
            conddp_steps(
                head, head.prepare(rows[:BATCH], None), label[:BATCH], parameters=start, num_public=num_public
            ),
            5,
        ),
        "torch, not private": (torch_steps(Bins(WIDTH, HIDDEN), parts, y), 10),
        "opacus ghost": (opacus_steps(Bins(WIDTH, HIDDEN), parts, y, "ghost"), 2),
    }
    if hooks:
        contestants["opacus hooks"] = (opacus_steps(Bins(WIDTH, HIDDEN), parts, y, "hooks"), 1)
    results = measure(contestants, "conddp", turns)
    stream = NoiseStream(gaussian(), RandomSource.of(None).generator("noise"))

    def draw(num_steps: int) -> None:
        for _ in range(num_steps):
            stream.add(start[0], 1.0)

    results["noise alone"] = measure({"noise": (draw, 10)}, "noise", turns)["noise"]
    return results


def main() -> None:
    """Measure, print tables, store JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="of BLAS and torch, for all contestants")
    parser.add_argument("--records", type=int, default=1_386_176, help="from which batches are sampled")
    parser.add_argument("--hooks", action="store_true", help="also time Opacus hooks on the network (5 GB, slow)")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    os.environ.setdefault("CONDDP_FAST", "1")
    warnings.simplefilter("ignore")  # Opacus warns about its own hooks
    from threadpoolctl import threadpool_limits

    with threadpool_limits(arguments.threads):
        results = {
            "linear, 4,003 weights": compare_linear(arguments.records, arguments.turns),
            "4,000 x 8 embeddings, network 139-128-64-1": compare_networks(
                arguments.records, arguments.turns, hooks=arguments.hooks
            ),
        }
    results["machine"] = {"threads": arguments.threads, "load": os.getloadavg()[0], "records": arguments.records}
    for work, rows in results.items():
        print(f"\n{work}")
        if work == "machine":
            print(f"  {rows}")
            continue
        for name, row in rows.items():
            print(
                f"  {name:<32}{row['ms_per_step']:>10.2f} ms{row['ratio']:>9.2f} x   "
                f"processor {row['cpu_ms_per_step']:>10.2f} ms{row['cpu_ratio']:>9.2f} x"
            )
    out = arguments.out or Path(f"benchmarks/results/criteo_steps_{arguments.threads}.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
