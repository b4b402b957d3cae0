"""Sections of the benchmark, in the order of the page."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from .results import Scope, Work

__all__ = ["SECTIONS", "Section"]


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Parameters
    ----------
    title : str
        Its heading.
    module, function : str
        Where its works are listed.
    threads : tuple of int
        Numbers of threads with which it is measured.
    environments : tuple of str
        Rivals that have environments of their own.
    """

    title: str
    module: str
    function: str = "list_works"
    threads: tuple[int, ...] = (1,)
    environments: tuple[str, ...] = ()

    def list_works(self, scope: Scope) -> dict[str, Work]:
        """Works by title."""
        function: Callable[[Scope], dict[str, Work]] = getattr(
            import_module(f"{__package__}.{self.module}"), self.function
        )
        return function(scope)


SECTIONS = {
    "target": Section("Time to a given error", "target", environments=("diffprivlib", "interpret")),
    "steps": Section("Private steps", "steps", threads=(1, 2), environments=("jax-privacy",)),
    "sparse-steps": Section("Private steps on sparse columns", "sparse_steps", threads=(1, 2)),
    "configurations": Section("Many configurations at once", "configurations"),
    "fits": Section("Default fits", "fits", threads=(1, 2), environments=("diffprivlib",)),
    "sparse-fits": Section("Default fits on sparse columns", "fits", function="list_sparse_works", threads=(2,)),
    "heads": Section("Nonlinear heads", "heads", threads=(1, 2), environments=("interpret",)),
    "planning": Section("Plans", "planning"),
    "accounting": Section("Accounting", "accounting"),
    "start": Section("Imports and the command line", "start"),
}
