"""Distillation of predictions that the releases of fits determine into nonlinear heads."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from conddp.algorithms.task import Task
from conddp.data.parts import PublicFeatures
from conddp.data.scaling import scale_bounds
from conddp.training.distillation import Student, learn_together, mix_rows

__all__ = ["NOTE", "Predictor", "distil"]

Vector = NDArray[np.float64]
Predictor = Callable[[PublicFeatures], Vector]  # predictions in units of the label range, about its middle

NOTE = "The model was fitted to predictions that these releases determine, at no further cost."


def distil(tasks: Sequence[Task], predictors: Sequence[Predictor]) -> list[Vector]:
    """Train the heads of several tasks to reproduce a predictor each, and return their parameters.

    The predictors may be evaluated on any public rows. Heads learn on those of the records and, unless they learn
    briefly, on mixtures of them. Those with the same random numbers are trained at once.

    Privacy
        Post-processing: reads public columns and predictors that have been released only.

    Parameters
    ----------
    tasks : sequence of Task
        Fits of the same head to the same public columns.
    predictors : sequence of callables
        What was released of each of them.
    """
    first = tasks[0]
    briefly = first.shared is not None and first.shared.briefly
    mixed = None if briefly else first.share("mixed rows", lambda: mix_rows(first.public))
    blank = first.share(
        ("student", mixed is None),
        lambda: Student.of(first.head, first.public, constant=first.fit_intercept, weights=first.weights, mixed=mixed),
    )
    students = [replace(blank) for _ in tasks]
    targets = [_predict(task, predictor, mixed) for task, predictor in zip(tasks, predictors, strict=True)]
    for group in _group(tasks):
        rng = tasks[group[0]].make_generator("weights")
        learn_together([students[i] for i in group], [targets[i] for i in group], rng, briefly=briefly)
    return [student.export() for student in students]


def _predict(task: Task, predictor: Predictor, mixed: PublicFeatures | None) -> Vector:
    """Predictions for the rows that a head learns on, in units of its own predictions."""
    bounds, center = task.schema.label_bounds, task.fit_intercept
    parts = [predictor(rows) for rows in (task.public, mixed) if rows is not None]
    offset = 0.0 if center else bounds.midpoint / bounds.width
    return np.clip(np.concatenate(parts) + offset, *scale_bounds(bounds, center=center))


def _group(tasks: Sequence[Task]) -> list[list[int]]:
    """Numbers of tasks with the same random numbers, by group. Without a seed, none have the same."""
    groups: list[list[int]] = []
    for number, task in enumerate(tasks):
        for group in groups:
            source = tasks[group[0]].random_source
            if source.seeded and source == task.random_source:
                group.append(number)
                break
        else:
            groups.append([number])
    return groups
