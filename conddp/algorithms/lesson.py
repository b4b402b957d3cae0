"""Distillation of the released predictions of CondNewton into a nonlinear head, during its steps and at their end."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.task import Task
from conddp.data.scaling import scale_bounds
from conddp.features.whitening import WhitenedRows
from conddp.newton.release import Rows
from conddp.privacy.randomness import RandomSource
from conddp.training import distillation
from conddp.training.distillation import Student

__all__ = ["Lesson", "learn_together"]

Vector = NDArray[np.float64]


@dataclass
class Lesson:
    """A student that learns what was released of one fit.

    Privacy
        Post-processing: reads public columns and released predictions only.

    Parameters
    ----------
    student : Student
        Head that is trained.
    label_range : (low, high)
        Bounds to which predictions are clamped.
    rng : numpy.random.Generator
        Generator for initial weights and batches.
    num_tangents : int
        Maximum number of directions of the head's Jacobian.
    random_source : RandomSource
        Source of ``rng``.
    briefly : bool
        Whether the student learns in half of the steps.
    num_learned : int
        How often the student has learned.
    """

    student: Student
    label_range: tuple[float, float]
    rng: np.random.Generator
    num_tangents: int
    random_source: RandomSource
    briefly: bool = False
    num_learned: int = 0

    @classmethod
    def of(cls, task: Task, num_tangents: int) -> "Lesson":
        """Make a lesson with an untrained student."""
        blank = task.share(
            "student",
            lambda: Student.of(task.head, task.public, constant=task.fit_intercept, weights=task.weights),
        )
        return cls(
            replace(blank),
            scale_bounds(task.schema.label_bounds, center=task.fit_intercept),
            task.make_generator("weights"),
            num_tangents,
            task.random_source,
            task.shared is not None and task.shared.briefly,
        )

    def add_directions(self, rows: Rows) -> Callable[[Vector], WhitenedRows]:
        """Make a callback that distils the current predictions and returns the tangent directions of the head."""

        def add(coefficients: Vector) -> WhitenedRows:
            learn_together([self], [rows], [coefficients])
            return self.compute_tangents(rows)

        return add

    def compute_tangents(self, rows: Rows) -> WhitenedRows:
        """Compute tangent directions of the head, orthogonal to those of the rows."""
        assert isinstance(rows, WhitenedRows)
        return self.student.compute_tangents(rows, at_most=self.num_tangents)

    def goes_with(self, other: "Lesson") -> bool:
        """Whether both are about to learn on the same inputs with the same random numbers."""
        return (
            self.random_source.seeded
            and self.random_source == other.random_source
            and (self.num_learned, self.briefly) == (other.num_learned, other.briefly)
            and self.student.inputs is other.student.inputs
        )


def learn_together(lessons: Sequence[Lesson], rows: Sequence[Rows], coefficients: Sequence[Vector]) -> None:
    """Distil the predictions of several runs; those that have the same random numbers, at once.

    Parameters
    ----------
    lessons : sequence of Lesson
        The lessons.
    rows : sequence of WhitenedRows
        Rows of each run.
    coefficients : sequence of arrays of shape (k,)
        Coefficients of each run, which have been released.
    """
    groups: list[list[int]] = []
    for number, lesson in enumerate(lessons):
        for group in groups:
            if lessons[group[0]].goes_with(lesson):
                group.append(number)
                break
        else:
            groups.append([number])
    for group in groups:
        some, predictions = [lessons[number] for number in group], []
        for number in group:
            known = rows[number]
            assert isinstance(known, WhitenedRows)
            predictions.append(np.clip(known.predict(coefficients[number]), *lessons[number].label_range))
        students, briefly = [each.student for each in some], some[0].briefly
        distillation.learn_together(students, predictions, some[0].rng, briefly=briefly)
        for lesson in some:
            lesson.num_learned += 1
            if lesson is not some[0]:
                lesson.rng = copy.deepcopy(some[0].rng)
