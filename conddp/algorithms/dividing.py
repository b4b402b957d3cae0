"""Fits that are divided over ranks: what they agree on before, and what they are told when a rank is lost."""

import hashlib
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from conddp.algorithms.identity import list_public
from conddp.data.records import Records
from conddp.distributed import is_one_of_several
from conddp.errors import PrivacyWarning, RankLost, RankMismatch
from conddp.models.result import FitResult
from conddp.privacy.digest import update_digest
from conddp.privacy.locked import Locked
from conddp.training.ranks import Ranks, Share, get_ranks

__all__ = ["agree", "assist_fit", "lead_ranks", "send_result", "warn_of_separate_fits"]

SETTINGS = ("algorithm", "budget", "head", "loss", "neighbouring", "fit_intercept")
PACKAGES = ("conddp", "numpy", "randomgen", "scipy")  # on which samples and rows depend


def agree(
    ranks: Ranks, records: Records, *parts: object, settings: Sequence[bytes], divides_work: bool, name: str
) -> None:
    """Raise on every rank unless all of them have the same public columns, settings and versions.

    Privacy
        Compares public information only, before anything is spent.

    Parameters
    ----------
    ranks : Ranks
        The ranks.
    records : Records
        Records of this rank, of which public columns, declared bounds, units and weights are compared.
    *parts : object
        Head and loss, which must be of classes that the other ranks can import.
    settings : sequence of bytes
        Algorithm, budget, head, loss, neighbouring relation and whether there is an intercept.
    divides_work : bool
        Whether the algorithm runs on several ranks.
    name : str
        Name of the algorithm.
    """
    if not divides_work:
        raise ValueError(
            f"{name} runs in one process, but this fit is divided over {ranks.size} ranks. Use DPSGD, CondDP or "
            "SwitchCondDP, or one rank."
        )
    if records.num_records < ranks.size:
        raise ValueError(f"{records.num_records} records cannot be divided over {ranks.size} ranks. Use fewer ranks.")
    if ranks.is_lost:
        raise RankLost("a rank was lost in an earlier fit. Start all ranks again.")
    try:
        pickle.dumps(parts)
    except (pickle.PicklingError, AttributeError, TypeError):
        raise ValueError(
            "the head of a fit on several ranks must be of a class that other processes can import. Define it at the "
            "top level of a module."
        ) from None
    mine = _describe(records, settings)
    try:
        if ranks.rank > 0:
            ranks.report(mine)
            differences = ranks.hear()
        else:
            differences = [
                f"rank {rank}: {', '.join(what for what in mine if theirs.get(what) != mine[what])}"
                for rank, theirs in enumerate(ranks.collect(), start=1)
                if theirs != mine
            ]
            ranks.tell(differences)
    except RankLost as lost:
        raise RankLost(f"{lost} Nothing was spent.") from None
    if differences:
        raise RankMismatch(
            "every rank must be given the same records and settings. Different from rank 0 are: "
            f"{'; '.join(differences)}. Nothing was spent."
        )


def warn_of_separate_fits(*, stacklevel: int = 3) -> None:
    """Warn if each of several processes makes a fit of its own, with its own cost."""
    if get_ranks() is None and is_one_of_several():
        warnings.warn(
            "torchrun has started several processes, and each of them makes this fit with its own noise and at its own "
            "cost. Divide one fit over them, as the page on several processes shows, or fit on one rank only.",
            PrivacyWarning,
            stacklevel=stacklevel,
        )


def _describe(records: Records, settings: Sequence[bytes]) -> dict[str, str]:
    """Digests of everything that must be equal on all ranks, by what it is."""
    parts: dict[str, Any] = dict(zip(SETTINGS, ([each] for each in settings), strict=True))
    parts["number of records"] = [str(records.num_records).encode()]
    parts["columns and bounds"] = [repr((records.schema, records.public.names)).encode()]
    parts["public values, units or weights"] = list_public(records)
    versions = [f"{package} {version(package)}" for package in PACKAGES]
    parts["versions of Python or packages"] = [repr((sys.version_info[:2], versions)).encode()]
    return {what: update_digest(hashlib.sha256(), each).hexdigest() for what, each in parts.items()}


@contextmanager
def lead_ranks(ranks: Ranks, locked: Locked[Records], *, checkpoint: str | Path | None) -> Iterator[None]:
    """On rank 0: tell the other ranks if the fit fails, and say what became of the budget if a rank is lost."""
    try:
        yield
    except BaseException as error:
        ranks.fail(error)
        if isinstance(error, RankLost):
            spent = "" if locked.paid is None else _explain(checkpoint)
            raise RankLost(f"{error} {spent or 'Nothing was spent.'}") from None
        raise


def assist_fit(share: Share, assist: Callable[[], None], *, checkpoint: str | Path | None) -> FitResult:
    """On other ranks: work for rank 0, and return its result with a copy of its ledger, on which nothing can be spent.

    Parameters
    ----------
    share : Share
        Records of this rank.
    assist : callable
        Does the work.
    checkpoint : path, optional
        Checkpoint of rank 0, for messages.
    """
    try:
        assist()
        result: FitResult = share.ranks.hear()
    except RankLost as lost:
        raise RankLost(f"{lost} If the fit had begun: {_explain(checkpoint)}") from None
    except BaseException as error:
        share.ranks.fail(error)
        raise
    return result


def send_result(ranks: Ranks, result: FitResult) -> None:
    """Send the result of rank 0 to all other ranks."""
    ledger = pickle.loads(pickle.dumps(result.ledger))
    ledger.is_copy = True
    ranks.tell(replace(result, ledger=ledger))


def _explain(checkpoint: str | Path | None) -> str:
    """What became of the budget."""
    if checkpoint is None:
        return (
            "The cost is in the ledger of rank 0 and counts as spent. There is no model, and another fit costs its "
            "budget again; with a checkpoint it would go on."
        )
    return (
        "The cost is in the ledger of rank 0 and counts once. Start all ranks again with the checkpoint "
        f"'{checkpoint}' to go on at no further cost."
    )
