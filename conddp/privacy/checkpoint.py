"""Checkpoint of an unfinished fit: what has been released so far, so that a killed fit can go on.

A fit depends on private data through its releases only. Given the same releases again, it makes the same choices and
asks the same questions. A resumed fit is therefore started anew with its old answers until they are used up. From there
on it asks for new ones, with new noise. Algorithms with thousands of steps store their state instead of every answer.
"""

import hashlib
import hmac
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from conddp.errors import CheckpointError
from conddp.privacy.digest import Part, update_digest
from conddp.privacy.transcript import Transcript
from conddp.privacy.witness import state_folder

__all__ = ["Checkpoint"]

FORMAT_VERSION = 1
INTERVAL = float(os.environ.get("CONDDP_CHECKPOINT_INTERVAL", "5"))  # seconds between writes
KEY_FILE = "checkpoint.key"


class Checkpoint:
    """Working file of one fit, on disk while the fit is unfinished.

    Privacy
        Holds released numbers, public settings and a keyed hash of the records, whose key stays in the user's state
        folder. An answer that was not on disk when the fit was killed has been seen by nobody: it is asked for again,
        with new noise. With ``always``, every answer is on disk before a callback can see it. After an error or an
        interruption from the keyboard, all answers are on disk. The ledger notes every resumption and the end of the
        fit, so that no copy of the file can be resumed as well.

    Parameters
    ----------
    path : path
        The file. If it exists, the fit goes on where it was interrupted.
    plan : iterable of bytes
        Everything public that makes the fit this fit: algorithm, settings, budget, public columns.
    private : iterable of bytes
        All private cells.
    payer : str
        Name of the ledger file that pays for the fit; empty for a ledger in memory.
    always : bool
        Whether to write every answer at once instead of every few seconds.

    Attributes
    ----------
    fit_id : str
        Random name of the fit, which its ledger entry bears.
    generation : int
        How often the fit was resumed.

    Raises
    ------
    CheckpointError
        If the file is damaged, or belongs to other records, settings or another user.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        plan: Iterable[Part],
        private: Iterable[Part],
        payer: str = "",
        always: bool = False,
    ) -> None:
        self.path = Path(path)
        self._payer = payer
        self._always, self._written = always, time.monotonic()
        self._plan = update_digest(hashlib.sha256(), plan).hexdigest()
        self._seal = update_digest(hmac.new(_load_key(), digestmod=hashlib.sha256), private).hexdigest()
        self.fit_id, self.generation = secrets.token_hex(16), 0
        self.weights_seed = secrets.token_bytes(32)
        self._questions: list[dict[str, Any]] = []
        self._answers: list[NDArray[Any]] = []
        self._used = 0
        self._is_written = True  # whether all answers are on disk
        self._transcript = Transcript()  # of what the state covers
        self._state: dict[str, Any] = {}
        self._lock = _lock(self.path)
        try:
            if self.path.exists():
                self._load()
                self._check_witness()
                self.generation += 1
            self.write()
        except BaseException:
            self.close()
            raise

    @property
    def resumption(self) -> str:
        """Name of this resumption, which no other fit or resumption has."""
        return f"fit {self.fit_id} resumed {self.generation} times"

    def recall(self, question: Mapping[str, Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
        """Return the stored answer to the next question, or None if there is none yet.

        Raises
        ------
        CheckpointError
            If another question was asked at this point of the interrupted fit.
        """
        if self._used == len(self._questions):
            return None
        if self._questions[self._used] != _to_json(question) or self._answers[self._used].shape != shape:
            raise CheckpointError(
                f"the fit asks for something else than it did when '{self.path}' was written, so its answers cannot be "
                "used. This can happen with another version of conddp or NumPy. Go on with the version that wrote the "
                "file, or remove the file and fit again, which costs the budget again."
            )
        self._used += 1
        return np.array(self._answers[self._used - 1])

    def record(self, question: Mapping[str, Any], answer: NDArray[Any]) -> None:
        """Store the answer to a new question."""
        asked, given = _to_json(question), np.array(answer)
        self._is_written = False
        self._answers.append(given)  # first: an interruption may come between these lines
        self._questions.append(asked)
        self._used += 1
        if self.is_due:
            self.write()

    @property
    def is_due(self) -> bool:
        """Whether the file should be written now."""
        return self._always or time.monotonic() - self._written > INTERVAL

    def save_state(self, state: Mapping[str, Any], transcript: Transcript) -> None:
        """Store the state of an algorithm, which replaces all answers so far.

        Parameters
        ----------
        state : mapping
            Arrays and numbers by name.
        transcript : Transcript
            All releases that the state depends on.
        """
        stored = dict(state)
        # In one line without calls, so that no interruption comes in between.
        self._state, self._transcript, self._questions, self._answers, self._used = stored, transcript, [], [], 0
        self.write()

    def load_state(self) -> tuple[Mapping[str, Any], Transcript] | None:
        """Return the stored state of an interrupted fit and the releases that it depends on; None if there is none."""
        return (self._state, self._transcript) if self._state else None

    def remove(self) -> None:
        """Delete the file and what belongs to it."""
        for file in (self.path, self._witness, _lock_path(self.path)):
            file.unlink(missing_ok=True)

    def close(self) -> None:
        """Write answers that are not on disk yet, as after an error, and let other processes go on from the file."""
        if not self._is_written:
            with suppress(CheckpointError):  # what ended the fit is more important
                self.write()
        if self._lock is not None:
            self._lock.close()

    @property
    def _witness(self) -> Path:
        return state_folder() / "checkpoints" / f"{self.fit_id}.json"

    def _check_witness(self) -> None:
        """Raise if the file is older than the last one that was written."""
        try:
            seen = tuple(json.loads(self._witness.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            seen = None
        if seen is None or seen > self._progress:
            raise CheckpointError(
                f"'{self.path}' is an older copy of a checkpoint, or its record in '{self._witness.parent}' is missing."
                " Going on from it would release more than was paid for. Remove the file; a new fit costs its budget."
            )

    @property
    def _progress(self) -> tuple[int, int]:
        return self.generation, len(self._transcript) + len(self._questions)

    def write(self) -> None:
        """Write the file, all or nothing, and force it to disk."""
        from safetensors.numpy import save

        answers = self._answers[: len(self._questions)]
        arrays = {f"answer.{number}": np.ascontiguousarray(answer) for number, answer in enumerate(answers)}
        numbers = {}
        for name, value in self._state.items():
            if isinstance(value, np.ndarray):
                arrays[f"state.{name}"] = np.ascontiguousarray(value)
            else:
                numbers[name] = value
        record = {
            "conddp_checkpoint": FORMAT_VERSION,
            "plan": self._plan,
            "seal": self._seal,
            "payer": self._payer,
            "fit": self.fit_id,
            "generation": self.generation,
            "weights_seed": self.weights_seed.hex(),
            "questions": self._questions,
            "transcript": self._transcript.to_json(),
            "state": numbers,
        }
        blob = save(arrays, metadata={"record": json.dumps(record)})
        try:
            self._witness.parent.mkdir(parents=True, exist_ok=True)
            if not self._witness.exists():  # before the file: a file without its witness is not resumed
                _write_atomically(self._witness, json.dumps((0, 0)).encode())
            _write_atomically(self.path, blob)
            _write_atomically(self._witness, json.dumps(self._progress).encode())
        except OSError as error:
            raise CheckpointError(f"the checkpoint '{self.path}' cannot be written: {error.strerror}.") from None
        self._written, self._is_written = time.monotonic(), True

    def _load(self) -> None:
        from safetensors import SafetensorError, safe_open

        if not self.path.is_file():
            raise CheckpointError(f"the checkpoint '{self.path}' cannot be read: it is not a file.")
        try:
            with safe_open(self.path, framework="numpy") as file:
                record = json.loads(file.metadata()["record"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}
            version = record["conddp_checkpoint"]
            questions = [dict(each) for each in record["questions"]]
            loaded = {
                "fit_id": str(record["fit"]),
                "generation": int(record["generation"]),
                "weights_seed": bytes.fromhex(record["weights_seed"]),
                "_questions": questions,
                "_answers": [arrays[f"answer.{number}"] for number in range(len(questions))],
                "_transcript": Transcript.from_json(record["transcript"]),
                "_state": dict(record["state"])
                | {name[6:]: value for name, value in arrays.items() if name.startswith("state.")},
            }
            plan, seal, payer = record["plan"], record["seal"], record["payer"]
        except OSError as error:
            raise CheckpointError(f"the checkpoint '{self.path}' cannot be read: {error.strerror}.") from None
        except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError):
            raise CheckpointError(
                f"'{self.path}' is damaged, or not a checkpoint. Remove the file and fit again, which costs the budget "
                "again."
            ) from None
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"the checkpoint '{self.path}' has format {version}, but this version of conddp reads format "
                f"{FORMAT_VERSION}. Go on with the version that wrote it."
            )
        if plan != self._plan:
            raise CheckpointError(
                f"the checkpoint '{self.path}' belongs to another fit: other settings, budget or public columns. Go on "
                "with the same ones, or choose another checkpoint."
            )
        if not hmac.compare_digest(str(seal), self._seal):
            raise CheckpointError(
                f"the checkpoint '{self.path}' belongs to other private values, or was written by another user or on "
                "another machine. Go on with the same table, or choose another checkpoint."
            )
        if payer != self._payer:
            raise CheckpointError(
                f"the fit of the checkpoint '{self.path}' was charged to {'another' if payer else 'no'} ledger. Go on "
                "with the same ledger, so that it counts once."
            )
        self.__dict__.update(loaded)


def _write_atomically(path: Path, content: bytes) -> None:
    """Replace a file, all or nothing, and force it to disk."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _lock(path: Path) -> IO[str] | None:
    """Keep other processes from running the same fit; None where the operating system has no such locks."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return None
    try:
        file = _lock_path(path).open("a", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"the checkpoint '{path}' cannot be written: {error.strerror}.") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise CheckpointError(f"the fit of the checkpoint '{path}' is still running in another process.") from None
    return file


def _to_json(question: Mapping[str, Any]) -> dict[str, Any]:
    """The question as it is after a trip through a file."""
    converted: dict[str, Any] = json.loads(json.dumps(dict(question)))
    return converted


def _load_key() -> bytes:
    """Secret key of this user on this machine, made at the first use: it keeps the hash of private cells secret."""
    path = state_folder() / KEY_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
    except FileExistsError:
        pass
    except OSError as error:
        raise CheckpointError(
            f"a checkpoint needs a key in '{path.parent}', which cannot be written: {error.strerror}. Set CONDDP_STATE "
            "to another folder."
        ) from None
    key = path.read_bytes()
    if len(key) < 32:
        raise CheckpointError(f"'{path}' is damaged. Remove it; interrupted fits can then not be resumed.")
    return key
