"""Private training steps of conddp against Opacus on the same work, in one process.

Both take the same records, model, clip norm, noise and Adam. Opacus gets outputs of shape (n,), because its ghost
clipping is wrong for outputs of shape (n, 1) with a squared loss, and works in float32, its usual precision. conddp
works in float64, as its algorithms do, and in float32 to compare like with like. It uses compiled kernels, as in long
runs; CONDDP_FAST=0 in the environment turns them off. Contestants take turns, and the figure is the median over turns
of (time of the rival) / (time of conddp) within a turn, because machines are shared.

    python benchmarks/opacus_steps.py [--turns 7] [--out benchmarks/results/opacus_steps.json]
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
import opacus
import torch
from opacus.grad_sample import wrap_model
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from conddp.heads.head import Head, Inputs
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator
from conddp.training.loop import TrainingPlan, train
from conddp.training.optimizers import Adam

MODES = ("hooks", "functorch", "ew", "ghost")
CLIP_NORM, NOISE_MULTIPLIER, LEARNING_RATE = 1.0, 5.0, 1e-3

Contestant = Callable[[int], None]  # runs so many steps


class Scalar(nn.Module):
    """A net whose output has shape (n,)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Predictions of shape (n,)."""
        output: Tensor = self.net(x)
        return output.flatten()


def conddp_steps(
    head: Head, X: np.ndarray[Any, Any], y: np.ndarray[Any, Any], probability: float, dtype: str
) -> Contestant:
    """The library's own loop, with its cryptographic generator."""
    X, y = X.astype(dtype), y.astype(dtype)
    inputs = Inputs.of(np.asfortranarray(X) if probability == 1.0 else X)  # as the algorithms do
    layout = head.layout(X.shape[1], 0)
    parameters = head.initialize(layout, np.random.default_rng(0))[None].astype(X.dtype)
    generator = RandomSource.of(None).generator("noise")

    def run(num_steps: int) -> None:
        plan = TrainingPlan(num_steps, CLIP_NORM, NOISE_MULTIPLIER, probability)
        train(
            plan,
            head,
            layout,
            inputs,
            y,
            parameters,
            optimizer=Adam(LEARNING_RATE),
            curator=Curator(generator, num_records=len(y), float32_without_guarantee=True),
            rng=generator,
        )

    return run


def opacus_steps(
    net: nn.Module, X: np.ndarray[Any, Any], y: np.ndarray[Any, Any], mode: str, batch_size: int | None
) -> Contestant:
    """Opacus in one of its modes, full batch or with its own Poisson loader."""
    features, label = torch.from_numpy(X), torch.from_numpy(y)
    model = (
        wrap_model(net, grad_sample_mode=mode, max_grad_norm=CLIP_NORM)
        if mode == "ghost"
        else wrap_model(net, grad_sample_mode=mode)
    )
    inner = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    kind = DPOptimizerFastGradientClipping if mode == "ghost" else DPOptimizer
    optimizer = kind(
        inner,
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=batch_size or len(X),
    )
    criterion: Any = nn.MSELoss()
    if mode == "ghost":
        criterion = DPLossFastGradientClipping(model, optimizer, nn.MSELoss(reduction="mean"), "mean")
    loader = None
    if batch_size is not None:
        plain = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(features, label), batch_size=batch_size)
        loader = opacus.data_loader.DPDataLoader.from_data_loader(plain)

    def step(x: Tensor, target: Tensor) -> None:
        optimizer.zero_grad()
        criterion(model(x), target).backward()
        optimizer.step()

    def run(num_steps: int) -> None:
        done = 0
        while loader is not None:
            for x, target in loader:
                step(x, target)
                done += 1
                if done == num_steps:
                    return
        for _ in range(num_steps):
            step(features, label)

    return run


def plain_steps(net: nn.Module, X: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> Contestant:
    """Non-private PyTorch, full batch."""
    features, label = torch.from_numpy(X), torch.from_numpy(y)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)

    def run(num_steps: int) -> None:
        for _ in range(num_steps):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(features), label).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()

    return run


def measure(contestants: dict[str, Contestant], num_steps: int, turns: int) -> dict[str, Any]:
    """Microseconds per step of each, and the median ratio to conddp within a turn."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run(num_steps)
            if turn > 0:  # the first turn warms up
                times[name].append((time.perf_counter() - start) / num_steps * 1e6)
    ours = times["conddp"]
    return {
        name: {
            "us_per_step": round(statistics.median(taken), 1),
            "ratio": round(statistics.median(t / o for t, o in zip(taken, ours, strict=True)), 2),
        }
        for name, taken in times.items()
    }


def records(n: int, d: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Random features and labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X, (0.3 * rng.normal(size=n)).astype(np.float32)


def run_all(turns: int) -> dict[str, Any]:
    """All works; a rival mode that cannot do a work is left out with its reason."""
    results: dict[str, Any] = {}
    for n, d in ((16512, 8), (4000, 100)):
        X, y = records(n, d)
        contestants = {"conddp": conddp_steps(Linear(), X, y, 1.0, "float64")}
        contestants["conddp float32"] = conddp_steps(Linear(), X, y, 1.0, "float32")
        contestants["torch, not private"] = plain_steps(Scalar(nn.Linear(d, 1)), X, y)
        for mode in MODES:
            contestants[f"opacus {mode}"] = opacus_steps(Scalar(nn.Linear(d, 1)), X, y, mode, None)
        results[f"linear, full batch {n} x {d}"] = measure(contestants, 200, turns)
    X, y = records(17010, 81)
    contestants = {"conddp": conddp_steps(MLP(hidden=(16, 8)), X, y, 100 / 17010, "float64")}
    contestants["conddp float32"] = conddp_steps(MLP(hidden=(16, 8)), X, y, 100 / 17010, "float32")
    for mode in MODES:
        net = Scalar(nn.Linear(81, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
        contestants[f"opacus {mode}"] = opacus_steps(net, X, y, mode, 100)
    results["MLP 81-16-8-1, Poisson loop, batch 100 of 17010"] = measure(contestants, 342, turns)
    return results


def main() -> None:
    """Measure, print a table, store JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="of BLAS and torch, for all contestants")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/opacus_steps.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    os.environ.setdefault("CONDDP_FAST", "1")
    warnings.simplefilter("ignore")  # Opacus warns about its own hooks
    from threadpoolctl import threadpool_limits

    with threadpool_limits(arguments.threads):
        results = run_all(arguments.turns)
    for work, rows in results.items():
        print(f"\n{work}")
        for name, row in rows.items():
            print(f"  {name:<22}{row['us_per_step']:>10.1f} us{row['ratio']:>9.1f} x")
        best = min(row["ratio"] for name, row in rows.items() if name.startswith("opacus"))
        like = best / rows["conddp float32"]["ratio"]
        print(f"  Opacus in its best mode takes {best:.1f} times as long as conddp, {like:.1f} times in float32 both.")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
