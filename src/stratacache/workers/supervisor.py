"""The parent of several workers: starts them, starts them again when they die, drains them, adds up their counts."""

from __future__ import annotations

import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

from stratacache.errors import SettingsError, StrataError
from stratacache.upstream.engine_process import EngineState
from stratacache.workers.ledger import Ledger
from stratacache.workers.member import STOP_SIGNALS, Job, Member, fork
from stratacache.workers.messages import Ask, Counts, EngineNews, Failed, Ready, Tell, ToParent, Totals
from stratacache.workers.restarts import Restarts

START_LIMIT = 60.0  # seconds for a process to become ready
HUNG = 30.0  # seconds without a sign of life after which a process is killed
TELL_LIMIT = 1.0  # seconds that a worker has to tell its counts; after that the last known ones are taken
STOP_MARGIN = (
    15.0  # seconds: beyond the drain, for finished answers to reach the store; and for an engine to stop
)


class _Round:
    """A worker has asked for totals: who is still to tell its counts."""

    def __init__(self, asker: Member, number: int, waiting: set[Member], deadline: float) -> None:
        self.asker = asker
        self.number = number
        self.waiting = waiting
        self.deadline = deadline


class Supervisor:
    """Runs ``jobs``, each in a process of its own, until it is told to stop.

    Args:
        drain: seconds that answers in flight may take at a stop.
        announce: called once, when every process is ready.
        restarts: makes the policy of one process.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        drain: float,
        announce: Callable[[], None],
        restarts: Callable[[], Restarts] = Restarts,
        hung: float = HUNG,
    ) -> None:
        self._jobs = jobs
        self._drain = drain
        self._announce = announce
        self._hung = hung
        self._policies = {job.name: restarts() for job in jobs}
        self._members: list[Member] = []
        self._due: list[tuple[float, Job]] = []  # restarts, with their time
        self._rounds: list[_Round] = []
        self._number = 0
        self._ledger = Ledger()
        self._engines: dict[str, EngineState] = {}
        self._announced = False
        self._signals: list[int] = []
        self._stopping = False
        self._kill_at = float("inf")
        self._code = 0
        self._error: StrataError | None = None

    def run(self) -> int:
        """0 after a clean drain, 1 when a process had to be killed or failed in it. Call it in a main thread.

        Raises:
            StrataError: a process cannot start, or dies again and again; the others have been stopped.
        """
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        handlers = {
            number: signal.signal(number, self._on_signal) for number in (*STOP_SIGNALS, signal.SIGHUP)
        }
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        try:
            for job in self._jobs:
                self._start(job)
            while self._members or not self._stopping:
                self._turn()
        finally:
            for member in self._members:  # none, unless this process itself has a fault
                member.signal(signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._selector.close()
            self._woken.close()
            self._waker.close()
        if self._error is not None:
            raise self._error
        return self._code

    def _turn(self) -> None:
        for key, events in self._selector.select(self._patience()):
            member = key.data
            if member is None:
                self._woken.recv(4096)
            elif key.fileobj == member.pidfd:
                self._bury(member)
            elif member in self._members:  # it may have been buried a moment ago
                if events & selectors.EVENT_WRITE:
                    member.flush()
                self._hear(member)
        while self._signals:
            self._obey(self._signals.pop(0))
        self._look_at_the_clock()
        for member in self._members:
            self._watch(member)

    def _patience(self) -> float:
        """Seconds until there is something to do; at most one, which is often enough to find the hung."""
        times = (
            [when for when, _ in self._due] + [round_.deadline for round_ in self._rounds] + [self._kill_at]
        )
        return min(1.0, max(0.0, min(times) - time.monotonic()))

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        due, self._due = self._due, []
        for when, job in due:
            if when <= now:
                self._start(job)
            else:
                self._due.append((when, job))
        for round_ in [one for one in self._rounds if one.deadline <= now]:
            self._finish(round_)
        for member in self._members:
            limit = self._hung if member.ready else START_LIMIT
            if now - member.heard_at > limit and not self._stopping:
                _say(f"{member.job.name} (process {member.pid}) gives no sign of life; killing it")
                member.heard_at = now
                member.signal(signal.SIGKILL)
        if now >= self._kill_at:
            self._kill_at = now + STOP_MARGIN
            self._code = 1
            for member in self._members:
                _say(f"{member.job.name} (process {member.pid}) did not end in time; killing it")
                member.signal(signal.SIGKILL)

    def _start(self, job: Job) -> None:
        own = [self._woken, self._waker, *(member.line for member in self._members)]
        inherited = [one.fileno() for one in own] + [member.pidfd for member in self._members]
        member = fork(job, [*inherited, self._selector.fileno()], time.monotonic())
        self._members.append(member)
        self._selector.register(member.pidfd, selectors.EVENT_READ, member)
        self._selector.register(member.line, selectors.EVENT_READ, member)
        for name, state in self._engines.items():
            member.send(EngineNews(name, state))

    def _watch(self, member: Member) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if member.has_unread else 0)
        if member.line in self._selector.get_map() and self._selector.get_key(member.line).events != events:
            self._selector.modify(member.line, events, member)

    def _hear(self, member: Member) -> None:
        messages = member.receive()
        if messages is None:
            self._selector.unregister(member.line)
            return
        member.heard_at = time.monotonic()
        for message in messages:
            self._take(member, message)

    def _take(self, member: Member, message: ToParent) -> None:
        if isinstance(message, Counts):
            self._count(member, message)
        elif isinstance(message, Ask):
            self._ledger.update(member.pid, message.figures)
            self._ask_others(member)
        elif isinstance(message, EngineNews):
            self._engines[message.name] = message.state
            self._tell_all(message)
        elif isinstance(message, Failed):
            member.failure = message
        elif isinstance(message, Ready):
            member.ready = True
            if not self._announced and len(self._members) == sum(one.ready for one in self._members):
                self._announced = True
                self._announce()

    def _count(self, member: Member, message: Counts) -> None:
        if member.job.counts:
            self._ledger.update(member.pid, message.figures)
        for round_ in list(self._rounds):
            if message.tell >= round_.number:
                self._told(round_, member)

    def _ask_others(self, asker: Member) -> None:
        self._number += 1
        others = {one for one in self._members if one.job.counts and one.ready and one is not asker}
        round_ = _Round(asker, self._number, others, time.monotonic() + TELL_LIMIT)
        self._rounds.append(round_)
        for other in others:
            other.send(Tell(self._number))
        if not others:
            self._finish(round_)

    def _told(self, round_: _Round, member: Member) -> None:
        round_.waiting.discard(member)
        if not round_.waiting:
            self._finish(round_)

    def _finish(self, round_: _Round) -> None:
        self._rounds.remove(round_)
        round_.asker.send(Totals(self._ledger.total(), self._ledger.shares()))

    def _tell_all(self, news: EngineNews) -> None:
        for member in self._members:
            if member.job.counts:
                member.send(news)

    def _bury(self, member: Member) -> None:
        if member.line in self._selector.get_map():
            self._hear(member)  # its last words
        for fileobj in (member.pidfd, member.line):
            if fileobj in self._selector.get_map():
                self._selector.unregister(fileobj)
        self._members.remove(member)
        code = member.bury()
        self._ledger.retire(member.pid)
        self._rounds = [round_ for round_ in self._rounds if round_.asker is not member]
        for round_ in list(self._rounds):
            self._told(round_, member)
        if self._stopping:
            self._code = self._code or int(code != 0 and member.ready)
            if not member.job.last and all(one.job.last for one in self._members):
                self._end(self._members, STOP_MARGIN)
        else:
            self._replace(member, code)

    def _replace(self, member: Member, code: int) -> None:
        """It died: plan the next start, or give up when that is pointless."""
        job = member.job
        if not job.counts:
            for name in self._engines:
                self._engines[name] = EngineState(None, "its supervisor has ended")
                self._tell_all(EngineNews(name, self._engines[name]))
        now = time.monotonic()
        wait = self._policies[job.name].ended(now - member.born_at) if self._announced else None
        if wait is None:
            self._error = _reason(member, code)
            self._stop()
            return
        _say(f"{job.name} (process {member.pid}) {_ending(code)}; starting it again")
        self._due.append((now + wait, job))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _obey(self, number: int) -> None:
        if number == signal.SIGHUP:  # each reads the configuration again
            for member in self._members:
                if member.job.counts:
                    member.signal(signal.SIGHUP)
        elif not self._stopping:
            self._stop()
        elif number == signal.SIGINT:  # again: at once
            for member in self._members:
                member.signal(signal.SIGINT)

    def _stop(self) -> None:
        self._stopping = True
        self._due.clear()
        workers = [member for member in self._members if not member.job.last]
        self._end(workers or self._members, self._drain + STOP_MARGIN)

    def _end(self, members: Sequence[Member], limit: float) -> None:
        self._kill_at = time.monotonic() + limit
        for member in members:
            member.signal(signal.SIGTERM)


def _reason(member: Member, code: int) -> StrataError:
    if member.failure is not None:
        return (SettingsError if member.failure.usage else StrataError)(member.failure.message)
    return StrataError(f"{member.job.name} {_ending(code)}, and would again; what it said is above")


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _say(text: str) -> None:
    print(f"stratacache: {text}", file=sys.stderr, flush=True)
