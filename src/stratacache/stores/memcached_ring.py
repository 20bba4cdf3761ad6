"""Several Memcached servers as one: which of them has a key, and commands sent to all concerned at once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Iterable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from stratacache.stores.memcached_wire import Item, Reply, Server, get

DEFAULT_PORT = 11211

T = TypeVar("T")


class Ring:
    """Servers, each the home of the keys with which its hash is the highest (rendezvous hashing).

    A key never moves to another server because its home is down: when that came back, it would still hold a version
    from before. For the same reason all instances must name the same servers in the same words, and after a change of
    the list every server must be emptied (restarted).
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = tuple(servers)

    @classmethod
    def of(cls, hosts: str) -> Ring:
        """The servers named ``host:port,host:port``; a port may be left out, an IPv6 address is in brackets."""
        servers = []
        for name in hosts.split(","):
            parts = urlsplit(f"//{name}")
            servers.append(Server(parts.hostname or "", parts.port or DEFAULT_PORT))
        return cls(servers)

    def home(self, key: bytes) -> Server:
        if len(self._servers) == 1:
            return self._servers[0]
        return max(self._servers, key=lambda server: _weight(server.name, key))

    async def call(self, commands: Sequence[tuple[bytes, bytes]]) -> list[Reply]:
        """The replies to (key, command) pairs, in order. A server carries out its own in this order.

        Raises:
            StoreError: a server failed; any of the commands may have been carried out, or be so later.
        """
        places: dict[Server, list[int]] = {}
        for place, (key, _) in enumerate(commands):
            places.setdefault(self.home(key), []).append(place)
        answers = await _all(
            [server.call(*[commands[place][1] for place in mine]) for server, mine in places.items()]
        )
        replies = [Reply()] * len(commands)
        for mine, answer in zip(places.values(), answers, strict=True):
            for place, reply in zip(mine, answer, strict=True):
                replies[place] = reply
        return replies

    async def get(self, keys: Iterable[bytes]) -> dict[bytes, Item]:
        """What is there under ``keys``, in one round trip to each server that is home to some of them."""
        mine: dict[Server, list[bytes]] = {}
        for key in dict.fromkeys(keys):
            mine.setdefault(self.home(key), []).append(key)
        found: dict[bytes, Item] = {}
        for (reply,) in await _all([server.call(get(keys)) for server, keys in mine.items()]):
            found |= reply.items
        return found

    async def ask_all(self, command: bytes) -> list[Reply]:
        """Every server's reply to ``command``."""
        return [reply for (reply,) in await _all([server.call(command) for server in self._servers])]

    def close(self) -> None:
        """Calls that wait end with StoreError, and so do further ones. Idempotent."""
        for server in self._servers:
            server.close()


async def _all(calls: Sequence[Awaitable[T]]) -> list[T]:
    if len(calls) == 1:  # spares the usual case a task
        return [await calls[0]]
    return await asyncio.gather(*calls)


def _weight(name: str, key: bytes) -> bytes:
    return hashlib.blake2b(name.encode() + b" " + key, digest_size=8).digest()
