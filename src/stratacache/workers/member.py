"""One process as its parent sees it: forked, heard, told, and buried."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable

import msgspec

from stratacache.errors import StrataError
from stratacache.workers.link import Link
from stratacache.workers.messages import Failed, Inbox, ToParent, ToWorker, pack

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1
_MAX_UNREAD = 4 << 20  # bytes; a process that leaves more unread is not listening
_CHUNK = 1 << 16

_decoder: msgspec.msgpack.Decoder[ToParent] = msgspec.msgpack.Decoder(ToParent)


class Job(msgspec.Struct, frozen=True):
    """What a process does: ``run`` returns its exit code.

    ``counts``: it takes part in the totals. A ``last`` one serves the others, so it is stopped after them.
    """

    name: str
    run: Callable[[Link], int]
    counts: bool = True
    last: bool = False


class Member:
    """A forked process. ``heard_at`` and ``born_at`` are monotonic seconds."""

    def __init__(self, job: Job, pid: int, line: socket.socket, now: float) -> None:
        self.job = job
        self.pid = pid
        self.born_at = self.heard_at = now
        self.ready = False
        self.failure: Failed | None = None
        self.line = line
        self.pidfd = os.pidfd_open(pid)
        self._inbox = Inbox()
        self._unread = bytearray()

    @property
    def has_unread(self) -> bool:
        return bool(self._unread)

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def send(self, message: ToWorker) -> None:
        """Queue ``message``; a process that reads nothing is killed."""
        if len(self._unread) > _MAX_UNREAD:
            self.signal(signal.SIGKILL)
            return
        self._unread += pack(message)
        self.flush()

    def flush(self) -> None:
        """Write what the socket takes."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._unread:
                del self._unread[: self.line.send(self._unread)]

    def receive(self) -> list[ToParent] | None:
        """The messages that have come; None once it has hung up."""
        messages: list[ToParent] = []
        try:
            while data := self.line.recv(_CHUNK):
                messages += [_decoder.decode(body) for body in self._inbox.feed(data)]
        except BlockingIOError:
            return messages
        except (ConnectionResetError, ValueError, msgspec.MsgspecError):
            pass
        return messages or None

    def bury(self) -> int:
        """Free what is left of an ended process; its exit code, negative: the signal that ended it."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        self.line.close()
        return os.waitstatus_to_exitcode(status)


def fork(job: Job, inherited: Iterable[int], now: float) -> Member:
    """Start ``job`` in a copy of this process, which must have no other threads and no event loop.

    ``inherited`` are the parent's own descriptors, which the copy closes. It ends when this process does.
    """
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    gc.freeze()  # or the copy's collector would touch, and so copy, every page that it shares with the parent
    # A signal must not fall between the fork and the handlers of the new process.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            for descriptor in (ours.detach(), *inherited):
                os.close(descriptor)
            os._exit(_run(job, theirs, parent))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    theirs.close()
    ours.setblocking(False)
    return Member(job, pid, ours, now)


def _run(job: Job, line: socket.socket, parent: int) -> int:
    """In the new process: obey no terminal, end with the parent, do the job; the exit code."""
    signal.set_wakeup_fd(-1)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    os.setpgid(
        0, 0
    )  # Ctrl-C signals a terminal's whole group; the parent passes on what is meant for this one
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    link = Link(line)
    code = 1
    try:
        code = job.run(link)
    except StrataError as error:
        link.failed(error)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - the last resort of a process: whatever it is, show it and end
        traceback.print_exc()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code
