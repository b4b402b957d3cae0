"""Records to attack, and coupled fits of neighbours after everything that must be alike has been compared."""

from dataclasses import replace
from typing import Any

import numpy as np

from conddp.algorithms.algorithm import Algorithm
from conddp.auditing import Question, fit_coupled
from conddp.bounds import Bounds
from conddp.categories import Categories
from conddp.data import Domain, Labels, PrivateFeatures, PublicFeatures, Records
from conddp.privacy import PrivacyBudget


def fit_both(
    algorithm: Algorithm, records: Records, neighbour: Records, budget: PrivacyBudget, **settings: Any
) -> tuple[list[Question], list[Question]]:
    """Questions of both fits, which differ in nothing but their private content."""
    coupled = fit_coupled(algorithm, records, neighbour, budget, **settings)
    assert not coupled.differences
    return coupled.questions, coupled.others


LABEL_BOUNDS, PRIVATE_BOUNDS = Bounds(-4.0, 6.0), (Bounds(-1.0, 2.0), Bounds(0.0, 1.0))


CATEGORIES = Categories(("none", "mild", "severe", "unknown"))


def make_categories(n: int, *, mixed: bool = False) -> Records:
    """The same records with one private category, or beside it a private number that comes first."""
    records, rng = make_records(n, private=True), np.random.default_rng(1)
    assert records.private is not None
    levels = rng.integers(len(CATEGORIES), size=(n, 1)).astype(float)
    numbers = records.private.values[:, :1] if mixed else np.empty((n, 0))
    domains: tuple[Domain, ...] = (*PRIVATE_BOUNDS[: int(mixed)], CATEGORIES)
    return replace(records, private=PrivateFeatures(np.hstack([numbers, levels]), domains))


def make_records(n: int, *, private: bool, seed: int = 0, far: bool = False) -> Records:
    """Records with rows of all lengths, some of them far longer than the others."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, size=(n, 3)) * [1.0, 20.0, 0.1]
    bounds = (Bounds(999.0, 1002.0), PRIVATE_BOUNDS[1]) if far else PRIVATE_BOUNDS
    values = rng.uniform(-1, 2, size=(n, 2)) + [1000.0 * far, 0.0]
    hidden = PrivateFeatures(values, bounds, ("income", "ill")) if private else None
    label = rng.normal(1.0, 1.5, size=n) + np.clip(X[:, 0], -2, 2)
    return Records(PublicFeatures(X), hidden, Labels(label, LABEL_BOUNDS))


def replace_private_part(records: Records, position: int, label: float, private: Any = None) -> Records:
    """A neighbour: one record has another label and other private columns."""
    labels = records.label.values.copy()
    labels[position] = label
    hidden = records.private
    if hidden is not None:
        values = hidden.values.copy()
        values[position] = private
        hidden = PrivateFeatures(values, hidden.domains, hidden.names)
    return Records(records.public, hidden, Labels(labels, records.label.bounds))


def longest_row(records: Records) -> int:
    """Position of the record with the most leverage, which can move a sum furthest."""
    X = np.column_stack([records.public.values, np.ones(records.num_records)])
    return int(np.argmax((np.linalg.qr(X)[0] ** 2).sum(axis=1)))
