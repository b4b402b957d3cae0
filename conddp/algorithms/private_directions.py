"""Directions of private columns, for the Newton steps of a task."""

from conddp.algorithms.task import Task
from conddp.data.records import Records
from conddp.data.scaling import PrivateSpan, scale_private
from conddp.features.whitening import WhitenedRows
from conddp.newton.private_columns import PrivateRows, release_moments

__all__ = ["MOMENT_FRACTION", "add_private_columns"]

MOMENT_FRACTION = 0.2  # fraction of the budget for the second moments of private columns


def add_private_columns(task: Task, records: Records, public_rows: WhitenedRows, *, mu: float) -> PrivateRows:
    """Release the second moments of the private columns and append the whitened columns to the public rows.

    Privacy
        One Gaussian release with parameter ``mu`` (:func:`conddp.newton.private_columns.release_moments`).
    """
    assert records.private is not None
    private = scale_private(records.private, center=task.fit_intercept)
    span = PrivateSpan.of(task.schema.private_domains, center=task.fit_intercept)
    moments = release_moments(public_rows, private, span, mu=mu, neighbouring=task.neighbouring, curator=task.curator)
    return PrivateRows.of(public_rows, private, moments)
