"""Which Redis server answers for a part of the keys: one, the master that sentinels name, or a cluster's."""

from __future__ import annotations

import asyncio
import binascii
import hashlib
from collections.abc import Sequence
from typing import Any

from stratacache.errors import StoreError
from stratacache.stores.redis_url import Address, RedisPlace
from stratacache.stores.resp import Login, Node, Refused, Reply, joined

CLUSTER_PARTITIONS = 16
"""The keys of a cluster are divided into so many parts, each with its own versions. Changing it empties the cache."""

_SLOTS = 16384
_REDIRECTS = 3  # a slot that moves answers MOVED once, and ASK once
_PAUSE = 0.2  # seconds between two searches for a server
_LOST = frozenset({"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED"})


class Script:
    """A Lua script that runs on the server, known there by its SHA-1."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Nodes:
    """The servers of one deployment.

    A *partition* is a part of the keys that lives on one server, so that scripts may touch all of it; its keys share a
    hash tag. Every method raises StoreError and is safe to call concurrently.
    """

    def __init__(self, place: RedisPlace) -> None:
        self._login = Login(
            user=place.user,
            password=place.password,
            database=place.database,
            tls=place.tls,
            tls_name=place.tls_name,
            master_only=place.topology != "cluster",  # a replica of one redirects
        )
        self._nodes: dict[Address, Node] = {}
        self._aside: dict[Address, Node] = {}
        self._closed = False
        count = CLUSTER_PARTITIONS if place.topology == "cluster" else 1
        self.prefixes = [
            f"{{{place.prefix}:{number}}}" if count > 1 else f"{{{place.prefix}}}" for number in range(count)
        ]
        self.slots = [binascii.crc_hqx(prefix[1:-1].encode(), 0) % _SLOTS for prefix in self.prefixes]

    def partition_of(self, digest: bytes) -> int:
        """Where the keys of ``digest`` live."""
        return digest[0] % len(self.prefixes)

    async def call(self, partition: int, *command: bytes | str | int) -> Reply:
        """The reply of the server of ``partition``."""
        for _ in range(_REDIRECTS):
            node = await self.node(partition)
            try:
                return await node.call(*command)
            except Refused as refusal:
                if refusal.word == "MOVED":
                    self.moved(partition, _target(refusal, node))
                elif refusal.word == "ASK":
                    asked = await self._node_at(_target(refusal, node)).call_all([("ASKING",), command])
                    return asked[1]
                else:
                    if refusal.word in _LOST:
                        self.lost(node)
                    if refusal.word == "READONLY":
                        node.drop("it has become a replica")
                    raise
            except StoreError:
                self.lost(node)
                raise
        raise StoreError("redis: the cluster keeps redirecting")

    async def run(
        self, partition: int, script: Script, keys: Sequence[str | bytes], *arguments: bytes | str | int
    ) -> Reply:
        """The result of ``script``, which is sent once to each server."""
        try:
            return await self.call(partition, "EVALSHA", script.sha, len(keys), *keys, *arguments)
        except Refused as refusal:
            if refusal.word != "NOSCRIPT":
                raise
        return await self.call(partition, "EVAL", script.text, len(keys), *keys, *arguments)

    async def aside(self, partition: int) -> Node:
        """A second connection to the server of ``partition``, for commands that others must not wait behind."""
        node = await self.node(partition)
        if node.address not in self._aside:
            self._aside[node.address] = Node(*node.address, self._login)
        return self._aside[node.address]

    async def node(self, partition: int) -> Node:
        """The server of ``partition``. A caller that is cancelled does not end the search for the others."""
        raise NotImplementedError

    def moved(self, partition: int, address: Address) -> None:
        """``partition`` is at ``address`` now."""
        raise NotImplementedError

    def lost(self, node: Node) -> None:
        """``node`` does not answer, or is not what it was."""
        raise NotImplementedError

    async def masters(self) -> list[Node]:
        """Every server that holds a part of the keys."""
        found = [await self.node(partition) for partition in range(len(self.prefixes))]
        return list({node.address: node for node in found}.values())

    def close(self) -> None:
        """Give up all connections. Idempotent."""
        self._closed = True
        for node in (*self._nodes.values(), *self._aside.values()):
            node.close()

    def _node_at(self, address: Address) -> Node:
        if self._closed:
            raise StoreError("the Redis store is closed")
        if address not in self._nodes:
            self._nodes[address] = Node(*address, self._login)
        return self._nodes[address]


class OneServer(Nodes):
    """A server by itself."""

    def __init__(self, place: RedisPlace) -> None:
        super().__init__(place)
        self._address = place.addresses[0]

    async def node(self, partition: int) -> Node:
        return self._node_at(self._address)

    def moved(self, partition: int, address: Address) -> None:
        raise StoreError("redis: the server belongs to a cluster; use redis+cluster://")

    def lost(self, node: Node) -> None:
        """Nothing to do: it connects anew when it is next asked."""


class _Searching(Nodes):
    """Servers that have to be found. One search runs at a time, for all who wait for it."""

    def __init__(self, place: RedisPlace) -> None:
        super().__init__(place)
        self._search: asyncio.Task[None] | None = None
        self._next_search = 0.0

    async def _find(self) -> None:
        raise NotImplementedError

    async def _searched(self) -> None:
        """After a search; raises what it raised. A failed one is not repeated at once."""
        loop = asyncio.get_running_loop()
        if self._search is None:
            if loop.time() < self._next_search:
                raise StoreError("redis: no server can be found")
            self._next_search = loop.time() + _PAUSE
            self._search = loop.create_task(self._find(), name="find redis")
            self._search.add_done_callback(self._done)
        await joined(self._search)

    def _done(self, search: asyncio.Task[None]) -> None:
        self._search = None
        if not search.cancelled():
            search.exception()  # whoever waited has it; nobody may have

    def close(self) -> None:
        super().close()
        if self._search is not None:
            self._search.cancel()


class Sentinels(_Searching):
    """The master that the sentinels name. Replicas are never read: they may lag behind an invalidation."""

    def __init__(self, place: RedisPlace) -> None:
        super().__init__(place)
        login = Login(password=place.sentinel_password, tls=place.tls, tls_name=place.tls_name)
        self._sentinels = [Node(*address, login) for address in place.addresses]
        self._name = place.master
        self._master: Node | None = None

    async def node(self, partition: int) -> Node:
        if self._master is None:
            await self._searched()
        if self._master is None:
            raise StoreError(f"redis: the sentinels name no master {self._name!r} that is one")
        return self._master

    def moved(self, partition: int, address: Address) -> None:
        raise StoreError("redis: the servers behind the sentinels belong to a cluster")

    def lost(self, node: Node) -> None:
        if node is self._master:
            self._master = None

    def close(self) -> None:
        super().close()
        for sentinel in self._sentinels:
            sentinel.close()

    async def _find(self) -> None:
        """Ask one sentinel after the other; what it names must say that it is a master."""
        for sentinel in self._sentinels:
            try:
                named = await sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name)
                if named is None:
                    continue
                node = self._node_at((named[0].decode(), int(named[1])))
                await node.call("PING")  # to be let in it must be a master
                self._master = node
                return
            except StoreError:
                continue
        raise StoreError(f"redis: the sentinels name no master {self._name!r} that answers")


class Cluster(_Searching):
    """A Redis cluster: follows its slots as they move."""

    def __init__(self, place: RedisPlace) -> None:
        super().__init__(place)
        self._seeds = place.addresses
        self._places: dict[int, Address] = {}

    async def node(self, partition: int) -> Node:
        if partition not in self._places:
            await self._searched()
        if partition not in self._places:
            raise StoreError("redis: a part of the cluster's slots has no server")
        return self._node_at(self._places[partition])

    def moved(self, partition: int, address: Address) -> None:
        self._places[partition] = address

    def lost(self, node: Node) -> None:
        self._places = {part: address for part, address in self._places.items() if address != node.address}

    async def _find(self) -> None:
        """Ask the servers that are known, one after the other, until one knows who holds all the slots."""
        best: dict[int, Address] = {}
        for address in dict.fromkeys((*self._nodes, *self._seeds)):
            try:
                ranges = await self._node_at(address).call("CLUSTER", "SLOTS")
            except StoreError:
                continue
            places = self._holders(ranges, address)
            if len(places) > len(best):
                best = places
            if len(best) == len(self.slots):
                self._forget_but(
                    {_address(server, address) for _, _, *servers in ranges for server in servers}
                )
                break
        if not best:
            raise StoreError("redis: no server of the cluster answers")
        self._places = best

    def _holders(self, ranges: Sequence[Any], asked: Address) -> dict[int, Address]:
        return {
            partition: _address(master, asked)
            for partition, slot in enumerate(self.slots)
            for first, last, master, *_ in ranges
            if first <= slot <= last
        }

    def _forget_but(self, members: set[Address]) -> None:
        """Give up servers that have left the cluster: each would be asked, and waited for, at every search."""
        for nodes in (self._nodes, self._aside):
            for address in nodes.keys() - members:
                nodes.pop(address).close()


def connect(place: RedisPlace) -> Nodes:
    """The deployment at ``place``. Nothing is connected before the first command."""
    kinds = {"standalone": OneServer, "sentinel": Sentinels, "cluster": Cluster}
    return kinds[place.topology](place)


def _target(refusal: Refused, node: Node) -> Address:
    """``MOVED 3999 127.0.0.1:6381`` → its address; without a host it is that of ``node``, who says so."""
    host, _, port = refusal.text.rpartition(" ")[2].rpartition(":")
    return host or node.address[0], int(port)


def _address(server: Sequence[Any], asked: Address) -> Address:
    """Of a server in the reply to CLUSTER SLOTS, which leaves the host out when it is that of who was ``asked``."""
    return (server[0] or b"").decode() or asked[0], int(server[1])
