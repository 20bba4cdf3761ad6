"""What the parent and its processes say to each other over a socket pair: typed messages with a length before each."""

from __future__ import annotations

import msgspec

from stratacache.observe.census import Share
from stratacache.observe.figures import Figures
from stratacache.upstream.engine_process import EngineState

_PREFIX = 4  # bytes, big endian
MAX_MESSAGE = 64 << 20  # figures are bounded by their labels, far below this


class Ready(msgspec.Struct, tag=True):
    """To the parent: this process serves and obeys signals."""


class Failed(msgspec.Struct, tag=True):
    """To the parent: this process cannot start; ``usage`` when the configuration is wrong."""

    message: str
    usage: bool


class Counts(msgspec.Struct, tag=True):
    """To the parent: what this worker has counted after it had read ``Tell`` number ``tell``; also a sign of life."""

    figures: Figures
    tell: int = 0


class Ask(msgspec.Struct, tag=True):
    """To the parent: what have all counted together? Brings what this worker has counted."""

    figures: Figures


class Tell(msgspec.Struct, tag=True):
    """To a worker: what have you counted? Answered by ``Counts``."""

    number: int


class Totals(msgspec.Struct, tag=True):
    """To the worker that asked: what all have counted, those that have ended included."""

    figures: Figures
    shares: list[Share]


class EngineNews(msgspec.Struct, tag=True):
    """From the process that runs the engines to the parent, and from it to every worker."""

    name: str
    state: EngineState


ToParent = Ready | Failed | Counts | Ask | EngineNews
ToWorker = Tell | Totals | EngineNews


def pack(message: ToParent | ToWorker) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(_PREFIX, "big") + body


class Inbox:
    """Takes bytes as they come and gives the whole messages in them."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that ``data`` completes. Raises ValueError on a length that no message has."""
        self._held += data
        bodies = []
        while len(self._held) >= _PREFIX:
            size = int.from_bytes(self._held[:_PREFIX], "big")
            if size > MAX_MESSAGE:
                raise ValueError(f"a message of {size} bytes")
            if len(self._held) < _PREFIX + size:
                break
            bodies.append(bytes(self._held[_PREFIX : _PREFIX + size]))
            del self._held[: _PREFIX + size]
        return bodies
