"""Several servers of one model as one upstream: the one with the prefix is asked, another one when it fails."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Protocol

import msgspec

from stratacache.errors import UpstreamError
from stratacache.policy import retry
from stratacache.policy.affinity import Affinity, Choice, cached_blocks
from stratacache.policy.breaker import BreakerState
from stratacache.policy.prefix_blocks import prefix_blocks
from stratacache.ports import Clock, Upstream, UpstreamResponse
from stratacache.settings import matches
from stratacache.types import JSON, Request
from stratacache.upstream.engines import Engine, PromptUse, salted
from stratacache.upstream.health import Health, capacity_blocks
from stratacache.upstream.replica import Replica, ReplicaResponse

log = logging.getLogger(__name__)

_GENERATING = (
    "/completions",
    "/responses",
    "/messages",
)  # ends of paths whose requests an engine keeps a prefix of
_RESET_TIMEOUT = 5.0

Sender = Callable[[Upstream], Awaitable[UpstreamResponse]]


class Tally(Protocol):
    """Counts what replicas do; ``observe.metrics.Metrics``."""

    def replied(self, replica: str, result: str) -> None:
        """A call came to ``result``: ``ok``, ``refused`` (4xx), ``busy``, ``error``, or an UpstreamError's code."""
        ...

    def retried(self, upstream: str, why: str) -> None:
        """A call is made again, as it came to ``why`` the first time."""
        ...

    def placed(self, upstream: str, why: str) -> None:
        """A replica was chosen, for a reason of ``policy.affinity``."""
        ...


class Options(msgspec.Struct, frozen=True):
    """How a set of replicas is used.

    ``retries`` after a first try; ``timeout`` seconds in which they begin; ``affinity``: by prefix, rather than the one
    with the fewest calls; ``watch``: well ones are asked how they are every ``probe_interval`` seconds; ``reset_on``:
    tags, or patterns of them, whose invalidation empties the engines' prefix caches.
    """

    retries: int = 2
    timeout: float = 600.0
    affinity: bool = True
    watch: bool = False
    probe_interval: float = 10.0
    reset_on: tuple[str, ...] = ()


class Wish(msgspec.Struct, frozen=True):
    """What a call brings along for the choice: blocks of its prompt, and the conversation that it belongs to."""

    blocks: Sequence[bytes] = ()
    conversation: bytes | None = None


class ReplicaSet:
    """A ``ports.Upstream`` on one or more replicas that would all answer alike.

    Args:
        secret: what tenants' salts are made from.
        draw: uniform draws from [0, 1), for pauses. ``sleep`` as asyncio's.
    """

    def __init__(
        self,
        name: str,
        replicas: Sequence[Replica],
        engine: Engine | None,
        options: Options,
        tally: Tally,
        clock: Clock,
        *,
        secret: bytes,
        draw: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.replicas = replicas
        self._capacities = [capacity_blocks({})] * len(replicas)
        self.affinity = Affinity(self._capacities)
        interval = options.probe_interval if options.watch else None
        self.health = Health(replicas, engine, clock, interval, failed=self._failed, learned=self._learned)
        self.forwards_credentials = replicas[0].client.forwards_credentials
        self._engine = engine
        self._options = options
        self._tally = tally
        self._clock = clock
        self._secret = secret
        self._draw = draw
        self._sleep = sleep
        self._budget = retry.RetryBudget()
        self._turn = 0
        self.resetting: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the pools and begin to watch."""
        for replica in self.replicas:
            await replica.client.start()
        self.health.start()

    async def ready(self) -> bool:
        """True when at least one replica can answer; when all are out, they are probed now."""
        now = self._clock.monotonic()
        well = [one for one in self.replicas if one.state(now) == "closed"]
        if any(await asyncio.gather(*(one.client.ready() for one in well))):
            return True
        await self.health.probe(at_once=True)
        now = self._clock.monotonic()
        return any(one.state(now) == "closed" for one in self.replicas if one not in well)

    async def close(self) -> None:
        """Stop watching and close the pools; calls in flight break off. Idempotent."""
        await self.health.close()
        for task in self.resetting:
            task.cancel()
        await asyncio.gather(*self.resetting, return_exceptions=True)
        for replica in self.replicas:
            await replica.client.close()
            if replica.control is not None:
                await replica.control.close()

    async def send(
        self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]
    ) -> UpstreamResponse:
        """See ``ports.Upstream.send``. Tries again, elsewhere if it can, until an answer begins."""
        sent = salted(self._engine, body, request.scope, self._secret)
        return await self._call(self._wish(request, sent), lambda client: client.send(request, sent, headers))

    async def forward(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> UpstreamResponse:
        """See ``ports.Upstream.forward``. What is passed through has no tenant, so its prefix is shared with nobody."""
        if self._engine is not None and method == "POST" and path.endswith(_GENERATING):
            body = _unshared(body, self._engine)
        return await self._call(Wish(), lambda client: client.forward(method, path, query, body, headers))

    def invalidated(self, tags: Collection[str]) -> None:
        """Tags were invalidated: empty the engines' caches if one of them says so. Returns at once."""
        if self._engine is None or self._engine.reset is None:
            return
        if any(matches(tag, pattern) for tag in tags for pattern in self._options.reset_on):
            task = asyncio.ensure_future(self.reset())
            self.resetting.add(task)
            task.add_done_callback(self.resetting.discard)

    async def reset(self) -> None:
        """Empty the prefix cache of every replica; what fails is logged."""
        await asyncio.gather(*(self._reset(number) for number in range(len(self.replicas))))

    def levels(self, figure: str) -> dict[str, float]:
        """By replica: ``up``, ``active`` or ``believed_blocks``, or a figure of its engine, where it is known."""
        now = self._clock.monotonic()
        if figure == "up":
            return {one.name: float(one.state(now) == "closed") for one in self.replicas}
        if figure == "active":
            return {one.name: float(one.active) for one in self.replicas}
        if figure == "believed_blocks":
            return {one.name: float(self.affinity.held(i)) for i, one in enumerate(self.replicas)}
        return {one.name: one.figures[figure] for one in self.replicas if figure in one.figures}

    def breakers(self) -> dict[str, Callable[[], BreakerState]]:
        """By replica, how its circuit breaker stands; of a server that is alone it decides nothing."""
        if not self._options.watch:
            return {}
        return {one.name: lambda one=one: one.state(self._clock.monotonic()) for one in self.replicas}  # type: ignore[misc]

    def check(self) -> None:
        """Raise AssertionError unless counts and models agree. For tests, when no call is under way."""
        self.affinity.check()
        assert all(one.active == 0 and abs(one.work) < 1e-6 for one in self.replicas)

    def _wish(self, request: Request, sent: Mapping[str, JSON]) -> Wish:
        if not self._options.affinity or len(self.replicas) == 1:
            return Wish()
        scope, conversation = request.scope, request.conversation
        salt = sent.get("cache_salt", scope.tenant)
        known = f"{scope.tenant}\0{scope.credential}\0{conversation}".encode() if conversation else None
        return Wish(prefix_blocks(sent, f"{request.resolved_model}\0{salt}"), known)

    async def _call(self, wish: Wish, sender: Sender) -> UpstreamResponse:
        """Try until an answer begins that no other try would better, or no try is left."""
        self._budget.request()
        ends = self._clock.monotonic() + self._options.timeout
        tried: set[int] = set()
        for number in count():
            choice = self._choose(wish, tried)
            tried.add(choice.replica)
            came = await self._try(choice, wish, sender)
            wait = self._wait(came, number, tried)
            if wait is None or self._clock.monotonic() + wait > ends or not self._budget.spend():
                if isinstance(came, UpstreamError):
                    raise came
                return came
            self._tally.retried(self.name, _result(came))
            if isinstance(came, ReplicaResponse):
                await came.close()
            if wait > 0:
                await self._sleep(wait)
            if len(tried) == len(self.replicas):
                tried.clear()
        raise AssertionError("unreachable")

    def _choose(self, wish: Wish, tried: Collection[int]) -> Choice:
        """A replica that was not tried yet, if there is one; one that is out only when all are."""
        now = self._clock.monotonic()
        well = [i for i, one in enumerate(self.replicas) if i not in tried and one.takes_requests(now)]
        if well and self._options.affinity:
            loads = [one.work if i in well else None for i, one in enumerate(self.replicas)]
            choice = self.affinity.choose(wish.blocks, loads, wish.conversation)
        else:
            choice = None
        if choice is None:
            rest = well or [i for i in range(len(self.replicas)) if i not in tried]
            choice = self._in_turn(rest, "load" if well else "only")
        self._tally.placed(self.name, choice.why)
        return choice

    def _in_turn(self, numbers: Iterable[int], why: str) -> Choice:
        """The one with the fewest calls; of equal ones the next in turn."""
        many = len(self.replicas)
        best = min(numbers, key=lambda i: (self.replicas[i].active, (i - self._turn) % many))
        self._turn = (best + 1) % many
        return Choice(best, 0, "only" if why == "only" else "load")

    async def _try(self, choice: Choice, wish: Wish, sender: Sender) -> ReplicaResponse | UpstreamError:
        """One call; everything that it tells of the replica is noted, now or when its answer ends."""
        replica = self.replicas[choice.replica]
        placement = self.affinity.place(choice.replica, wish.blocks, wish.conversation)
        asyncio.get_running_loop().call_soon(self.affinity.catch_up)  # when the request is on its way
        work = len(wish.blocks) - choice.overlap + 1.0
        replica.active += 1
        replica.work += work

        def ended(error: UpstreamError | None, use: PromptUse | None) -> None:
            replica.active -= 1
            replica.work -= work
            found = cached_blocks(use.cached, use.prompt, len(wish.blocks)) if use is not None else None
            self.affinity.settle(placement, found)
            if error is not None:
                self._note_failure(choice.replica, error)

        try:
            response = await sender(replica.client)
        except UpstreamError as error:
            ended(error, None)
            return error
        except BaseException:
            ended(None, None)
            raise
        self._note_answer(choice.replica, response)
        return ReplicaResponse(response, replica.name, ended)

    def _note_answer(self, number: int, response: UpstreamResponse) -> None:
        replica, now = self.replicas[number], self._clock.monotonic()
        self._tally.replied(replica.name, _result(response))
        if response.status in (429, 503):
            asked = retry.retry_after(response.headers, self._clock.now())
            replica.rest(now + (retry.FIRST_PAUSE if asked is None else asked))
        if response.status < 500:
            replica.succeeded()
        elif response.status in retry.STATUSES:
            self._failed(number, False)

    def _note_failure(self, number: int, error: UpstreamError) -> None:
        self._tally.replied(self.replicas[number].name, error.code)
        self._failed(number, error.code == "upstream_unreachable")

    def _failed(self, number: int, certain: bool) -> None:
        replica = self.replicas[number]
        if replica.failed(self._clock.monotonic(), certain=certain) and self._options.watch:
            log.warning("%s is out until it answers a probe", replica.name)
            self.affinity.forget(number)  # it comes back, if it does, with an empty cache
            self.health.wake()

    def _wait(
        self, came: ReplicaResponse | UpstreamError, number: int, tried: Collection[int]
    ) -> float | None:
        """Seconds before the next try, None when there is to be none."""
        if number >= self._options.retries:
            return None
        now = self._clock.monotonic()
        elsewhere = any(i not in tried and one.takes_requests(now) for i, one in enumerate(self.replicas))
        if isinstance(came, UpstreamError):
            # What was sent to a server and broke off may have been computed there, and paid for: it is not asked the
            # same again. A server that cannot be reached has seen nothing.
            seen = came.code != "upstream_unreachable"
            return 0.0 if elsewhere else None if seen else retry.pause(number, self._draw())
        if not retry.may_fare_better(came.status, came.headers):
            return None
        if elsewhere:
            return 0.0
        asked = retry.retry_after(came.headers, self._clock.now()) or 0.0
        return None if asked > retry.LONGEST_WAIT else max(asked, retry.pause(number, self._draw()))

    async def _reset(self, number: int) -> None:
        replica, engine = self.replicas[number], self._engine
        assert engine is not None
        if replica.control is None or engine.reset is None:
            return
        try:
            async with asyncio.timeout(_RESET_TIMEOUT):
                response = await replica.control.forward("POST", engine.reset, "", b"", {})
                await response.close()
        except (TimeoutError, UpstreamError) as error:
            log.warning("the prefix cache of %s was not emptied: %s", replica.name, error or "no answer")
            return
        if response.status >= 400:
            log.warning("the prefix cache of %s was not emptied: status %d", replica.name, response.status)
            return
        self.affinity.forget(number)
        log.info("the prefix cache of %s is empty", replica.name)

    def _learned(self, number: int) -> None:
        """An engine said how much it holds: its model is made anew when that is not what was thought."""
        capacity = capacity_blocks(self.replicas[number].figures)
        if capacity != self._capacities[number]:
            self._capacities[number] = capacity
            self.affinity.remove(number)
            again = self.affinity.add(capacity)
            assert again == number  # the only number that is free


def _result(came: UpstreamResponse | UpstreamError) -> str:
    if isinstance(came, UpstreamError):
        return came.code
    if came.status < 400:
        return "ok"
    if came.status in (429, 503, 529):
        return "busy"
    return "error" if came.status >= 500 else "refused"


def _unshared(body: bytes, engine: Engine) -> bytes:
    """A JSON request with a salt that nobody else has; what is no JSON object is left to the engine to refuse."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body
    if not isinstance(decoded, dict):
        return body
    own = {"cache_salt": secrets.token_urlsafe(16)} if engine.salted else {"cache_prompt": False}
    return msgspec.json.encode({**decoded, **own})
