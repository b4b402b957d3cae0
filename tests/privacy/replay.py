"""One fit watched, and the same fit on a neighbouring data set that is given the very same released numbers.

Everything that a fit may depend on is public or released. Given the same releases, a neighbour's fit must therefore ask
the same questions with the same sensitivities and noise, and end with the same parameters. What differs is what each
question is about, and no further than its sensitivity.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from conddp.algorithms.algorithm import Algorithm
from conddp.bounds import Bounds
from conddp.data import Labels, PrivateFeatures, PublicFeatures, Records
from conddp.models.result import FitResult
from conddp.privacy import Curator, PrivacyBudget, RandomSource

METHODS = (
    "release_gaussian",
    "release_integers",
    "release_laplace",
    "release_staircase",
    "release_response",
    "release_weighted_sums",
)


@dataclass
class Question:
    """One call of a curator: its private argument, everything else it was given, and what it released."""

    method: str
    private: Any
    public: dict[str, Any]
    released: Any

    @property
    def sensitivity(self) -> float:
        return float(np.max(self.public["sensitivity"]))

    @property
    def noise_std(self) -> float:
        return float(np.min(self.public["noise_std"]))


@dataclass
class Recorder:
    """Makes curators that write down every question, or answer with what another recorder has heard."""

    answers: list[Any] | None = None
    questions: list[Question] = field(default_factory=list)

    def make_curator(self, *arguments: Any, **settings: Any) -> Curator:
        curator = Curator(*arguments, **settings)
        for method in METHODS:
            setattr(curator, method, self._watch(method, getattr(curator, method)))
        return curator

    def _watch(self, method: str, release: Callable[..., Any]) -> Callable[..., Any]:
        def watched(private: Any, *arguments: Any, **settings: Any) -> Any:
            released = release(private, *arguments, **settings)  # also where it is not used: chance goes on alike
            public = dict(settings) | {f"argument {number}": each for number, each in enumerate(arguments)}
            if method == "release_gaussian":
                public |= {"sensitivity": private.sensitivity, "what": private.what}
                private = private.value
            if self.answers is not None:
                released = self.answers[len(self.questions)]
            self.questions.append(Question(method, np.array(private), public, np.array(released)))
            return np.array(released)

        return watched


def fit_watched(
    algorithm: Algorithm,
    records: Records,
    budget: PrivacyBudget,
    recorder: Recorder,
    *,
    seed: int = 0,
    **settings: Any,
) -> FitResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conddp.algorithms.algorithm.Curator", recorder.make_curator)
        return algorithm.fit(records, budget, random_source=RandomSource.for_neighbours(seed), **settings)


def fit_both(
    algorithm: Algorithm, records: Records, neighbour: Records, budget: PrivacyBudget, **settings: Any
) -> tuple[list[Question], list[Question]]:
    """Questions of both fits, after everything that must be alike has been compared."""
    first = Recorder()
    result = fit_watched(algorithm, records, budget, first, **settings)
    second = Recorder(answers=[question.released for question in first.questions])
    other = fit_watched(algorithm, neighbour, budget, second, **settings)
    assert len(first.questions) == len(second.questions)
    for question, same in zip(first.questions, second.questions, strict=True):
        assert question.method == same.method
        assert set(question.public) == set(same.public)
        for name, value in question.public.items():
            assert np.array_equal(value, same.public[name]), f"{name} depends on private values"
    assert np.array_equal(result.model.parameters, other.model.parameters), "something was not released"
    assert result.transcript == other.transcript
    assert str(result.guarantee) == str(other.guarantee)
    assert result.diagnostics == other.diagnostics
    assert {**result.settings} == {**other.settings}
    return first.questions, second.questions


LABEL_BOUNDS, PRIVATE_BOUNDS = Bounds(-4.0, 6.0), (Bounds(-1.0, 2.0), Bounds(0.0, 1.0))


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
        hidden = PrivateFeatures(values, hidden.bounds, hidden.names)
    return Records(records.public, hidden, Labels(labels, records.label.bounds))


def longest_row(records: Records) -> int:
    """Position of the record with the most leverage, which can move a sum furthest."""
    X = np.column_stack([records.public.values, np.ones(records.num_records)])
    return int(np.argmax((np.linalg.qr(X)[0] ** 2).sum(axis=1)))
