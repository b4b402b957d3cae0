"""One rank of several processes that share fits. Run as a program, it prints what happened as JSON.

Usage: ``python tests/rank_processes.py FOLDER``, with the environment variables of ``torchrun``.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from conddp import DPSGD, MLP, PrivacyLedger, PrivateRegressor, SwitchCondDP
from conddp.distributed import use_ranks
from conddp.privacy import Curator
from conddp.training.ranks import Ranks

SETTINGS: dict[str, Any] = {"label_bounds": (-4, 4), "head": MLP(hidden=(4,)), "random_state": 5}
LAST_STEP = 3  # of the rank that is killed


def make_table() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(201, 3))
    return X, np.clip(X[:, 0] + 0.3 * rng.normal(size=201), -4, 4)


def describe(work: Callable[[], Any]) -> Any:
    """What a fit predicts, or why it failed."""
    try:
        return work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main(folder: Path) -> None:
    """Fit together, then with different budgets, then with a rank that is killed in the middle."""
    (X, y), told = make_table(), {}
    ledger = PrivacyLedger.load(folder / "ledger.jsonl")

    def fit(algorithm: Any, epsilon: float = 1.0, **more: Any) -> Any:
        model = PrivateRegressor(epsilon, algorithm=algorithm, ledger=ledger, **SETTINGS).fit(X, y, **more)
        return model.predict(X[:5]).tolist()

    with use_ranks(timeout=80) as rank:
        made = Curator.__init__
        curators = []
        Curator.__init__ = lambda self, *args, **more: (curators.append(1), made(self, *args, **more))[1]  # type: ignore[method-assign, func-returns-value]  # counts curators
        told["together"] = describe(lambda: fit(SwitchCondDP(num_steps=6, batch_size=40)))
        told["mismatch"] = describe(lambda: fit(DPSGD(num_steps=2), 1.0 + 0.5 * rank))
        told["curators"] = len(curators)
    with use_ranks(timeout=80):  # a second block
        answer, count = Ranks.answer, [0]

        def killed(self: Ranks, sums: Any) -> None:
            count[0] += 1
            if count[0] == LAST_STEP:
                print(json.dumps(told), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            answer(self, sums)

        Ranks.answer = killed  # type: ignore[method-assign]  # is killed
        start = time.monotonic()
        told["killed"] = describe(lambda: fit(DPSGD(num_steps=10), checkpoint=folder / "checkpoint"))
        told["seconds"] = time.monotonic() - start
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
