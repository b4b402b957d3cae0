"""How close simulated Criteo rows come to the published figures, and how well their values can be predicted.

python benchmarks/criteo_simulation.py figures [--clicks 15995634] [--rows 1732721]
python benchmarks/criteo_simulation.py errors [--rows 1732721] [--epochs 12]

Both print Markdown tables. The first compares cells that are known, different values, quartiles and means. The second
prints test errors without privacy: of the mean, of ridge regression on 4,003 features and of embeddings with a network
of 128 and 64 hidden units, trained with torch.
"""

import argparse
import time

import numpy as np
import torch

from conddp.bounds import Bounds
from conddp.data.parts import Labels
from conddp.research.criteo.columns import CATEGORIES, LABEL, LARGEST_VALUE, NUM_BINS, NUMBERS, ROW_GROUP
from conddp.research.criteo.folder import is_for_test
from conddp.research.criteo.loading import BinnedRows, prepare_numbers
from conddp.research.criteo.profile import CLICKS, DELAY, DISTINCT, KNOWN, NUM_CLICKS, NUM_SALES, PRICE, VALUE
from conddp.research.criteo.simulation import draw_sales, simulate_piece

QUARTILES = [0.25, 0.5, 0.75]
MEANS = {LABEL: 122.53, "product_price": 107.79, "nb_clicks_1week": 239.66}
DISTRIBUTIONS = {LABEL: VALUE, **dict(zip(NUMBERS, (DELAY, CLICKS, PRICE), strict=True))}
BATCH = 8192


def compare_figures(num_clicks: int, num_rows: int) -> None:
    """Print published and simulated figures side by side."""
    seen = {name: np.zeros(50_000_000 if name == "user_id" else 4_000_000, dtype=bool) for name in CATEGORIES}
    known = dict.fromkeys(CATEGORIES, 0)
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in DISTRIBUTIONS}
    began = time.perf_counter()
    for piece, start in enumerate(range(0, num_clicks, ROW_GROUP)):
        sales = draw_sales(piece, seed=0, num_rows=min(ROW_GROUP, num_clicks - start))
        for name in CATEGORIES:
            levels = sales.levels[name][sales.levels[name] >= 0]
            known[name] += len(levels)
            seen[name][levels] = True
        if start < num_rows:
            for name, numbers in ((LABEL, sales.value), *sales.numbers.items()):
                drawn[name].append(numbers[: num_rows - start])
    print(f"{num_clicks:,} simulated clicks, {time.perf_counter() - began:.0f} s\n")
    print("| column | known, published | simulated | distinct, published | simulated |\n|---|---:|---:|---:|---:|")
    for name in CATEGORIES:
        shares = f"{KNOWN[name] / NUM_CLICKS:.2%} | {known[name] / num_clicks:.2%}"
        print(f"| {name} | {shares} | {DISTINCT[name]:,} | {seen[name].sum():,} |")
    print("\n| column | quartiles, published | simulated | mean, published | simulated |\n|---|---|---|---:|---:|")
    for name, distribution in DISTRIBUTIONS.items():
        numbers = np.concatenate(drawn[name])
        numbers = numbers[numbers >= 0]
        published = " / ".join(f"{each:,.6g}" for each in distribution.values[3:6])
        simulated = " / ".join(f"{each:,.6g}" for each in np.quantile(numbers, QUARTILES))
        mean = f"{MEANS[name]:.4g}" if name in MEANS else ""
        print(f"| {name} | {published} | {simulated} | {mean} | {numbers.mean():.4g} |")


def make_rows(num_rows: int) -> tuple[BinnedRows, BinnedRows]:
    """Simulated training and test rows, in memory."""
    parts = []
    for piece, start in enumerate(range(0, num_rows, ROW_GROUP)):
        table = simulate_piece(piece, num_rows=min(ROW_GROUP, num_rows - start))
        numbers = prepare_numbers(np.column_stack([table[name].to_numpy() for name in NUMBERS]))
        parts.append(
            (numbers, np.column_stack([table[name].to_numpy() for name in CATEGORIES]), table[LABEL].to_numpy())
        )
    numbers, bins, value = (np.concatenate(each) for each in zip(*parts, strict=True))
    for_test = is_for_test(np.arange(num_rows), test_fraction=0.2, seed=0)
    bounds = Bounds(0, LARGEST_VALUE)
    train, test = (
        BinnedRows(numbers[chosen], bins[chosen], Labels(value[chosen], bounds), NUM_BINS)
        for chosen in (~for_test, for_test)
    )
    return train, test


def fit_ridge(train: BinnedRows, test: BinnedRows) -> float:
    """Test error of ridge regression with an intercept and a penalty of 1."""
    X, y = train.to_records().public.sparse, train.label.values
    assert X is not None
    gram = np.zeros((X.shape[1] + 1,) * 2)
    gram[:-1, :-1] = (X.T @ X).toarray()
    gram[-1, :-1] = gram[:-1, -1] = X.sum(axis=0)
    gram[-1, -1] = len(y)
    gram[np.arange(X.shape[1]), np.arange(X.shape[1])] += 1.0
    weights = np.linalg.solve(gram, np.append(X.T @ y, y.sum()))
    return measure(test, test.to_records().public.matrix @ weights[:-1] + weights[-1])


def fit_network(train: BinnedRows, test: BinnedRows, epochs: int) -> list[float]:
    """Test errors of embeddings and two hidden layers, after every epoch."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(NUM_BINS, 8)
    torch.nn.init.normal_(table.weight, std=0.1)
    head = torch.nn.Sequential(
        torch.nn.Linear(17 * 8 + 3, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 1),
    )
    optimizer = torch.optim.RMSprop([*table.parameters(), *head.parameters()], lr=1e-3, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)

    def predict(rows: BinnedRows, chosen: np.ndarray) -> torch.Tensor:
        embedded = table(torch.from_numpy(rows.bins[chosen].astype(np.int64))).flatten(1)
        return torch.squeeze(head(torch.cat([embedded, torch.from_numpy(rows.numbers[chosen]).float()], dim=1)), 1)

    errors, rng, target = [], np.random.default_rng(0), torch.from_numpy(train.label.values / 100).float()
    for _ in range(epochs):
        order = rng.permutation(len(train))
        for start in range(0, len(train), BATCH):
            batch = order[start : start + BATCH]
            loss = ((predict(train, batch) - target[batch]) ** 2).mean()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        schedule.step()
        with torch.no_grad():
            parts = np.array_split(np.arange(len(test)), max(1, len(test) // 2**16))
            predictions = 100 * torch.cat([predict(test, part) for part in parts]).numpy()
        errors.append(measure(test, predictions))
    return errors


def measure(test: BinnedRows, predictions: np.ndarray) -> float:
    """Test error of predictions that are clamped to the declared range."""
    return float(np.mean((np.clip(predictions, 0, LARGEST_VALUE) - test.label.values) ** 2))


def compare_errors(num_rows: int, epochs: int) -> None:
    """Print test errors without privacy beside those of the paper on the real log."""
    train, test = make_rows(num_rows)
    constant = measure(test, np.full(len(test), train.label.values.mean()))
    network = fit_network(train, test, epochs)
    rows = {
        "mean of the training values": ("", constant),
        "linear, 4,003 features": ("4,727", fit_ridge(train, test)),
        f"embeddings and MLP 128-64, {epochs} epochs": ("4,128 to 4,296", network[-1]),
    }
    print(
        f"{len(train):,} training and {len(test):,} test rows; network by epoch: {[round(each) for each in network]}\n"
    )
    print("| model without privacy | paper, real log | test MSE, simulated | R² |\n|---|---:|---:|---:|")
    for name, (paper, error) in rows.items():
        print(f"| {name} | {paper} | {error:,.0f} | {1 - error / constant:.3f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["figures", "errors"])
    parser.add_argument("--clicks", type=int, default=NUM_CLICKS)
    parser.add_argument("--rows", type=int, default=NUM_SALES)
    parser.add_argument("--epochs", type=int, default=12)
    settings = parser.parse_args()
    if settings.what == "figures":
        compare_figures(settings.clicks, settings.rows)
    else:
        compare_errors(settings.rows, settings.epochs)
