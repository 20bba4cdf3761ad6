"""One server of several that are alike: its health, what it has to do, and its answers, which teach what it caches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

from stratacache.errors import UpstreamError
from stratacache.policy.breaker import Breaker, BreakerState
from stratacache.ports import ANSWERED_BY, Upstream, UpstreamResponse
from stratacache.upstream.engines import TAIL, PromptUse, prompt_use


class Replica:
    """Its state, as of the calls and probes that were made. Times are monotonic seconds.

    Args:
        name: what headers and metrics call it.
        client: for the API.
        control: the same server, but its paths outside ``/v1``; None when it is asked nothing there.
    """

    def __init__(self, name: str, client: Upstream, control: Upstream | None = None) -> None:
        self.name = name
        self.client = client
        self.control = control
        self.active = 0  # calls that are not over
        self.work = 0.0  # blocks of prompt that those calls have it compute
        self.figures: Mapping[str, float] = {}  # what its engine said of itself last
        self._breaker = Breaker()
        self._rests_until = 0.0

    def takes_requests(self, now: float) -> bool:
        """Whether it is well and has not asked to be left alone."""
        return self._breaker.state(now) == "closed" and now >= self._rests_until

    def state(self, now: float) -> BreakerState:
        return self._breaker.state(now)

    def may_be_probed(self, now: float) -> bool:
        """Whether to see now if it is well again; says yes once a pause, and pauses grow."""
        return self._breaker.state(now) != "closed" and self._breaker.allows(now)

    def rest(self, until: float) -> None:
        """It asked for no more requests before ``until``."""
        self._rests_until = max(self._rests_until, until)

    def succeeded(self) -> bool:
        """It answered; True when it had been out."""
        return self._breaker.succeeded()

    def failed(self, now: float, *, certain: bool = False) -> bool:
        """It did not answer as a healthy server does; ``certain`` when one time is enough to know. True: it is out."""
        return self._breaker.trip(now) if certain else self._breaker.failed(now)


class ReplicaResponse:
    """A ``ports.UpstreamResponse`` that tells how it ended.

    ``ended`` is called once, at the latest by ``close``, with the error that broke the body off, if one did, and with
    what the answer's end says of its prompt.
    """

    def __init__(
        self,
        response: UpstreamResponse,
        replica: str,
        ended: Callable[[UpstreamError | None, PromptUse | None], None],
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {**response.headers, ANSWERED_BY: replica}
        self._response = response
        self._ended: Callable[[UpstreamError | None, PromptUse | None], None] | None = ended
        self._tail = b""

    async def read(self) -> bytes:
        try:
            body = await self._response.read()
        except UpstreamError as error:
            self._end(error)
            raise
        self._tail = body[-TAIL:]
        self._end(None)
        return body

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.chunks():
                self._tail = (self._tail + chunk)[-TAIL:] if len(chunk) < TAIL else chunk[-TAIL:]
                yield chunk
        except UpstreamError as error:
            self._end(error)
            raise
        self._end(None)

    async def close(self) -> None:
        self._end(None)
        await self._response.close()

    def _end(self, error: UpstreamError | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(error, prompt_use(self._tail))
