"""One fit watched, and the same fit on a neighbouring data set that is given the very same released numbers.

Everything that a fit may depend on is public or released. Given the same releases, the fit of a neighbour must ask the
same questions with the same sensitivities and noise, and end with the same parameters. What differs is the private
content of each question, and by no more than its sensitivity.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.algorithm import Algorithm
from conddp.data.records import Records
from conddp.models.result import FitResult
from conddp.privacy.bounded_sum import BoundedSum
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.randomness import RandomSource
from conddp.privacy.release import Curator

__all__ = ["CoupledFits", "Question", "Recorder", "fit_coupled", "fit_watched", "make_coupled_source"]


def make_coupled_source(seed: Any) -> RandomSource:
    """Make a source that gives two neighbouring fits the same samples, initial weights and public weights.

    Parameters
    ----------
    seed : int or tuple of int
        Two sources with the same seed give the same numbers, whatever the records are.
    """
    number = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    return RandomSource.for_neighbours(number)


@dataclass(frozen=True)
class Question:
    """One call of a curator: its private argument, everything else it was given, and what it released.

    Parameters
    ----------
    method : str
        Name of the release method.
    private : array
        The private argument. For a sum it is the value of the sum.
    public : dict
        All other arguments, which must be public, by name or by "argument" and position.
    released : array
        The released numbers.
    ask : callable
        Puts the same question to another curator and returns what that one releases.
    """

    method: str
    private: NDArray[Any] = field(repr=False)
    public: dict[str, Any]
    released: NDArray[Any]
    ask: Callable[[Curator], Any] = field(repr=False, compare=False)

    @property
    def sensitivity(self) -> float:
        """The declared sensitivity, the largest if there are several."""
        return float(np.max(self.public["sensitivity"]))

    @property
    def noise_std(self) -> float:
        """The declared standard deviation of the noise, the smallest if there are several."""
        return float(np.min(self.public["noise_std"]))

    @property
    def sampling_probability(self) -> float:
        """The declared probability with which a record is in the sum."""
        return float(self.public.get("sampling_probability", 1.0))

    @property
    def what(self) -> str:
        """Description of what is released."""
        return str(self.public.get("what", self.method))


@dataclass
class Recorder:
    """Makes curators that write down every question, or that answer with what another recorder has heard.

    Parameters
    ----------
    answers : list, optional
        Released numbers to answer with, in order. Real ones are drawn as well, so that chance goes on alike.
    questions : list of Question
        What was asked so far.
    """

    answers: Sequence[Any] | None = None
    questions: list[Question] = field(default_factory=list)

    def make_class(self, base: type[Curator] = Curator) -> type[Curator]:
        """Make a curator class that behaves as ``base`` and reports to this recorder."""
        recorder = self

        class WatchedCurator(base):  # type: ignore[misc, valid-type]  # a class chosen by the caller
            def __init__(self, *arguments: Any, **settings: Any) -> None:
                super().__init__(*arguments, **settings)
                for method in dir(base):
                    if method.startswith("release_"):
                        setattr(self, method, recorder._watch(method, getattr(self, method)))

        return WatchedCurator

    def _watch(self, method: str, release: Callable[..., Any]) -> Callable[..., Any]:
        def watched(private: Any, *arguments: Any, **settings: Any) -> Any:
            if isinstance(private, BoundedSum):
                private = replace(private, value=np.array(private.value))  # callers reuse the memory of their sums
            released = release(private, *arguments, **settings)
            if method == "release_unprotected":  # not an array, and as it is in both fits
                self.questions.append(Question(method, np.empty(0), dict(settings), np.empty(0), lambda curator: None))
                return released
            if not isinstance(private, (BoundedSum, np.ndarray)):
                raise ValueError(f"{method} cannot be watched, because its private content is not an array.")
            public = dict(settings) | {f"argument {number}": each for number, each in enumerate(arguments)}
            content = private
            if isinstance(private, BoundedSum):
                public |= {"sensitivity": private.sensitivity, "what": private.what}
                content = private.value
            else:
                private = np.array(private)
            number = len(self.questions)
            if self.answers is not None and number < len(self.answers):
                released = self.answers[number]

            def ask(curator: Curator) -> Any:
                return getattr(curator, method)(private, *arguments, **settings)

            self.questions.append(Question(method, np.array(content), public, np.array(released), ask))
            return np.array(released)

        return watched


def fit_watched(
    algorithm: Algorithm,
    records: Records,
    budget: PrivacyBudget,
    recorder: Recorder,
    *,
    seed: Any = 0,
    curator_class: type[Curator] = Curator,
    **settings: Any,
) -> FitResult:
    """Fit with a curator that reports to the recorder.

    Privacy
        The recorder holds private values and noise. Use it on made-up labels only.

    Parameters
    ----------
    algorithm, records, budget
        As in :meth:`Algorithm.fit <conddp.algorithms.algorithm.Algorithm.fit>`.
    recorder : Recorder
        What is asked is written to it.
    seed : int or tuple of int
        Seed of :func:`make_coupled_source`.
    curator_class : type of Curator
        Class of the curator that is watched.
    **settings
        Other arguments of the fit.
    """
    return algorithm.fit(
        records,
        budget,
        random_source=make_coupled_source(seed),
        curator_class=recorder.make_class(curator_class),
        **settings,
    )


@dataclass(frozen=True)
class CoupledFits:
    """Questions of a fit and of its neighbour under the same releases.

    Parameters
    ----------
    questions, others : list of Question
        What was asked in the first fit and in that of the neighbour.
    differences : tuple of str
        Things that differ although they must be alike; empty if only the private content of questions differs. The
        texts name what differs and contain no value.
    """

    questions: list[Question]
    others: list[Question]
    differences: tuple[str, ...]


def fit_coupled(
    algorithm: Algorithm, records: Records, neighbour: Records, budget: PrivacyBudget, **settings: Any
) -> CoupledFits:
    """Fit two neighbouring data sets, the second one with the released numbers of the first, and compare.

    Parameters
    ----------
    algorithm, budget
        As in :meth:`Algorithm.fit <conddp.algorithms.algorithm.Algorithm.fit>`.
    records, neighbour : Records
        The two data sets.
    **settings
        Other arguments of :func:`fit_watched`.
    """
    first = Recorder()
    result = fit_watched(algorithm, records, budget, first, **settings)
    second = Recorder(answers=[question.released for question in first.questions])
    other = fit_watched(algorithm, neighbour, budget, second, **settings)
    differences = [*_compare_questions(first.questions, second.questions), *_compare_results(result, other)]
    return CoupledFits(first.questions, second.questions, tuple(dict.fromkeys(differences)))


def _compare_questions(questions: Sequence[Question], others: Sequence[Question]) -> list[str]:
    if len(questions) != len(others):
        return ["the number of releases depends on private values"]
    differences = []
    for question, same in zip(questions, others, strict=True):
        if question.method != same.method or set(question.public) != set(same.public):
            differences.append("the kind of a release depends on private values")
            continue
        for name, value in question.public.items():
            if not np.array_equal(value, same.public[name]):
                differences.append(f"{name} of {question.what} depends on private values")
        if question.private.shape != same.private.shape:
            differences.append(f"the shape of {question.what} depends on private values")
    return differences


def _compare_results(result: FitResult, other: FitResult) -> list[str]:
    if any(release.kind == "unprotected" for release in result.transcript):
        return []  # nothing is promised
    pairs: dict[str, tuple[Any, Any]] = {
        "the parameters of the model depend": (result.model.parameters, other.model.parameters),
        "the transcript depends": (result.transcript, other.transcript),
        "the guarantee depends": (str(result.guarantee), str(other.guarantee)),
        "the diagnostics depend": (result.diagnostics, other.diagnostics),
        "the settings depend": ({**result.settings}, {**other.settings}),
        "the uncertainty depends": (_list_uncertainty(result), _list_uncertainty(other)),
    }
    return [
        f"{clause} on private values beyond the releases"
        for clause, (one, same) in pairs.items()
        if not (np.array_equal(one, same) if isinstance(one, np.ndarray) else one == same)
    ]


def _list_uncertainty(result: FitResult) -> dict[str, bytes]:
    known = result.uncertainty
    return {} if known is None else {name: array.tobytes() for name, array in known.get_arrays().items()}
