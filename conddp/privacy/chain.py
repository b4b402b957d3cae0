"""File of JSON lines in which every line carries a digest of itself and of all lines before it.

A line that was edited, moved, removed or taken from another file breaks the chain from there on. Lines of the first
format have no digest; the chain includes their content from the first line that has one.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from conddp.errors import LedgerError, SchemaError
from conddp.stored import read_bytes

__all__ = ["FORMAT", "Chain", "append_line", "create_file", "lock_file", "read_chain"]

DIGEST = "digest"
FORMAT = "conddp_ledger"  # in the first line
LARGEST_LEDGER = 1 << 30  # bytes


@dataclass(frozen=True)
class Chain:
    """Lines of a file that are complete.

    Parameters
    ----------
    lines : tuple of dict
        Content of the lines, without their digests.
    digests : tuple of str
        Digest after each line, whether or not the line carries it.
    num_bare : int
        Number of lines at the beginning that carry no digest.
    num_bytes : int
        Length of the complete lines. What follows is the beginning of a line whose writing was interrupted.
    """

    lines: tuple[dict[str, Any], ...] = ()
    digests: tuple[str, ...] = ()
    num_bare: int = 0
    num_bytes: int = 0

    @property
    def digest(self) -> str:
        """Digest after the last line; empty if there is none."""
        return self.digests[-1] if self.digests else ""


def read_chain(path: Path, *, newest: int) -> Chain:
    """Read the complete lines of a file and check their digests.

    An incomplete last line is left out. It belongs to an entry whose writing was interrupted, so that nothing was done
    on the strength of it.

    Parameters
    ----------
    path : Path
        The file.
    newest : int
        Newest format that can be read; what a newer one looks like is not known.

    Raises
    ------
    LedgerError
        If the file cannot be read, has a newer format, a line is not a JSON object, or the chain is broken.
    """
    try:
        blob = read_bytes(path, at_most=LARGEST_LEDGER)
    except SchemaError as error:
        raise LedgerError(f"the ledger {error}") from None
    try:
        blob.decode("utf-8")
    except UnicodeDecodeError:
        raise LedgerError(f"'{path}' is not a ledger: it is not a text file.") from None
    end = blob.rfind(b"\n") + 1
    if _follows(blob[end:], blob[:end]):  # only the line break is missing, which some editors remove
        blob, end = blob + b"\n", len(blob)
    else:
        blob = blob[:end]
    lines: list[dict[str, Any]] = []
    digests: list[str] = []
    num_bare = 0
    for number, raw in enumerate(blob.split(b"\n")[:-1], start=1):
        try:
            content = json.loads(raw)
            if not isinstance(content, dict):
                raise ValueError("not an object")
            stated = content.pop(DIGEST, None)
            digest = _link(digests[-1] if digests else "", content)
        except (ValueError, RecursionError):
            if number == 1:
                raise LedgerError(f"'{path}' is not a ledger, or its first line is damaged.") from None
            raise LedgerError(
                f"line {number} of the ledger '{path}' is damaged. Nothing can be spent on a damaged ledger. "
                "Restore the file from a copy."
            ) from None
        version = content.get(FORMAT)
        if number == 1 and isinstance(version, int) and version > newest:
            raise LedgerError(
                f"the ledger '{path}' has format {version}, newer than the latest format that this version can read "
                f"({newest}). Install a newer conddp."
            )
        if stated is None and num_bare == number - 1:
            num_bare = number
        elif stated != digest:
            raise LedgerError(
                f"line {number} of the ledger '{path}' does not follow from the lines before it: a line up to here was "
                "edited, moved, removed, or comes from another ledger. Nothing can be spent on it. Restore the file "
                "from a copy; a ledger is never edited."
            )
        lines.append(content)
        digests.append(digest)
    return Chain(tuple(lines), tuple(digests), num_bare, end)


def _follows(tail: bytes, before: bytes) -> bool:
    """Whether a last line without a line break is complete: its digest follows from the line before it."""
    try:
        content, previous = json.loads(tail), json.loads(before.rstrip(b"\n").rsplit(b"\n", 1)[-1])
        return bool(content.pop(DIGEST) == _link(previous[DIGEST], content))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


def create_file(path: Path, lines: list[dict[str, Any]]) -> str:
    """Write a new file with these lines and return the last digest. Raises FileExistsError if it exists."""
    digest = ""
    with path.open("xb") as file:
        for content in lines:
            digest = append_line(file, content, digest)
    return digest


def append_line(file: IO[bytes], content: Mapping[str, Any], previous: str) -> str:
    """Write one line with its digest, force it to disk, and return the digest."""
    plain = json.loads(json.dumps(content))  # as it will be read, for example with lists for tuples
    digest = _link(previous, plain)
    file.write(json.dumps({**plain, DIGEST: digest}).encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())
    return digest


@contextmanager
def lock_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading and writing, locked against other processes where the operating system supports it."""
    while True:
        try:
            file = path.open("r+b")
        except OSError as error:
            raise LedgerError(f"the ledger '{path}' cannot be written: {error.strerror}.") from None
        with file:
            try:
                import fcntl
            except ImportError:  # not on Windows
                yield file
                return
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file, path):
                continue  # replaced while we were waiting, for example by a backup
            yield file
            return


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _link(previous: str, content: Mapping[str, Any]) -> str:
    """Digest of a line: over the digest before it and its content as canonical JSON."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{previous}\n{canonical}".encode("utf-8", "surrogatepass")).hexdigest()
