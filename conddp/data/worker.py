"""A worker process of :class:`~conddp.data.processes.Processes`: it answers requests until its input is closed.

A request is a packed function, or None for the last one, and the spans of some partitions. Requests come from standard
input and replies go to standard output, as pickles. The worker prints nothing, whatever the function does.
"""

import os
import pickle
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from conddp.data.tasks import PackedFunction, compute_replies

__all__ = ["READY", "serve"]

READY = b"ready"
Request = tuple[bytes | None, list[slice]]


def serve() -> None:
    """Answer requests until standard input is closed, which also happens when the parent is killed."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _send(READY, replies)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    inbox: SimpleQueue[Request] = SimpleQueue()
    Thread(target=_receive, args=(requests, inbox), daemon=True).start()
    packed = PackedFunction(b"")
    while True:
        content, spans = inbox.get()
        if content is not None:
            packed = PackedFunction(content)
            del content
        _send(compute_replies(packed, spans), replies)
        packed.content = b""  # it has been unpacked


def _receive(requests: IO[bytes], inbox: "SimpleQueue[Request]") -> None:
    """Wait for requests on a thread of its own, so that the process also ends in the middle of a computation."""
    while True:
        try:
            inbox.put(pickle.load(requests))
        except BaseException:
            os._exit(1)


def _send(reply: Any, replies: IO[bytes]) -> None:
    try:
        pickle.dump(reply, replies, protocol=pickle.HIGHEST_PROTOCOL)
        replies.flush()
    except OSError:  # the parent is gone
        os._exit(1)
