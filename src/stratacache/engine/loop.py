"""The engine's thread: takes requests in, steps the core, hands text out. The only owner of the core."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from stratacache.engine.engine import Engine, Output, Stats
from stratacache.engine.errors import DeadlineExceeded, EngineError, Overloaded, RequestError
from stratacache.engine.sampling import TokenLogprobs
from stratacache.engine.sequence import Generation
from stratacache.engine.text import TextStream
from stratacache.engine.tokenizer import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a request has to hear of its answer `index`: a token, the text (maybe none) it makes certain, its end.

    `completion_tokens` counts all answers of the request. An error ends them all.
    """

    text: str
    completion_tokens: int
    cached_tokens: int
    finish_reason: Literal["stop", "length"] | None = None
    error: EngineError | None = None
    index: int = 0
    token: int | None = None
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A request with its stop strings and where to report; `report` is called on the engine's thread.

    `deadline`: on the engine's clock, when it is dropped wherever it is; None for never.
    """

    generation: Generation
    stops: tuple[str, ...]
    report: Callable[[Progress], None]
    deadline: float | None = None


class EngineFailed(EngineError):
    """The core broke an invariant or ran out of memory; the process should be replaced."""


class _Live:
    """A job in the core, with the text that each of its answers has produced while open."""

    __slots__ = ("cached", "job", "streams", "tokens")

    def __init__(self, job: Job, tokenizer: Tokenizer) -> None:
        self.job = job
        self.streams = {index: TextStream(tokenizer, job.stops) for index in range(job.generation.n)}
        self.tokens = 0
        self.cached = 0


class EngineThread:
    """Runs an Engine on its own thread. `submit`, `cancel` and `stop` are safe from any thread."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        on_failure: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self.context_limit = engine.context_limit
        self._tokenizer = tokenizer
        self._on_failure = on_failure or (lambda: None)
        self.clock = clock
        self._inbox: queue.SimpleQueue[Job | str | None] = queue.SimpleQueue()
        self._live: dict[str, _Live] = {}
        self._stopping = False
        self._closed: EngineError | None = None
        self._closing = threading.Lock()  # a job is either in the inbox before the end, or refused after it
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.stats: Stats = (
            engine.stats()
        )  # replaced as a whole after each step and abort: readable from any thread
        self.failed = False

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queues a request; refusals and results all come through `job.report`."""
        with self._closing:
            if self._closed is None:
                self._inbox.put(job)
                return
        job.report(Progress("", 0, 0, error=self._closed))

    def cancel(self, request_id: str) -> None:
        """Ends a request without a further report. Harmless when it is done already."""
        self._inbox.put(request_id)

    def stop(self) -> None:
        """Ends the thread after the step under way; open requests hear Overloaded. May be repeated."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._take_in()
                self._end_late()
                outputs = self._engine.step()
                self.stats = self._engine.stats()  # before anybody hears of this step's results
                for output in outputs:
                    self._deliver(output)
            for request_id in self._live:
                self._engine.abort(request_id)
            self.stats = self._engine.stats()
            self._end_all(Overloaded("the engine is shutting down"))
        except Exception as error:
            log.exception("the engine failed")
            self.failed = True
            self._end_all(EngineFailed(f"the engine failed: {error}"))
            self._on_failure()

    def _take_in(self) -> None:
        """Handles what is queued; waits for something when the core has nothing to do."""
        while not self._stopping:
            pause = self._engine.expire()
            try:
                item = self._inbox.get(block=not self._engine.has_work, timeout=pause)
            except queue.Empty:
                if self._engine.has_work:
                    return
                self.stats = self._engine.stats()  # idle, and conversations may have been given up
                continue
            if item is None:
                self._stopping = True
            elif isinstance(item, str):
                if self._live.pop(item, None):
                    self._abort(item)
            else:
                self._admit(item)

    def _admit(self, job: Job) -> None:
        try:
            self._engine.add(job.generation)
        except RequestError as error:
            job.report(Progress("", 0, 0, error=error))
        else:
            self._live[job.generation.id] = _Live(job, self._tokenizer)

    def _end_late(self) -> None:
        """Drops jobs whose deadline has come, in line or under way."""
        now = self.clock()
        late = [
            one for one in self._live.values() if one.job.deadline is not None and one.job.deadline <= now
        ]
        for live in late:
            del self._live[live.job.generation.id]
            self._abort(live.job.generation.id)
            error = DeadlineExceeded("the request's time was over before its answer was done")
            live.job.report(Progress("", live.tokens, live.cached, error=error))

    def _deliver(self, output: Output) -> None:
        live = self._live[output.request_id]
        stream = live.streams[output.index]
        live.tokens += 1
        live.cached = output.cached_tokens
        text = stream.push(output.token)
        reason = output.finish_reason
        if stream.stopped:
            if reason is None:
                self._engine.abort_one(output.request_id, output.index)
                self.stats = self._engine.stats()
            reason = "stop"
        elif reason:
            text += stream.flush()
            reason = "stop" if stream.stopped else reason
        if reason:
            del live.streams[output.index]
            if not live.streams:
                del self._live[output.request_id]
        live.job.report(
            Progress(
                text,
                live.tokens,
                live.cached,
                reason,
                index=output.index,
                token=output.token,
                logprobs=output.logprobs,
            )
        )

    def _abort(self, request_id: str) -> None:
        """Drops a request, and shows it: no step may follow that would, and its blocks would look leaked."""
        self._engine.abort(request_id)
        self.stats = self._engine.stats()

    def _end_all(self, error: EngineError) -> None:
        """Reports the end to every open request, those still queued included."""
        with self._closing:
            self._closed = error
        for live in self._live.values():
            live.job.report(Progress("", live.tokens, live.cached, error=error))
        self._live.clear()
        while not self._inbox.empty():
            item = self._inbox.get()
            if isinstance(item, Job):
                item.report(Progress("", 0, 0, error=error))
