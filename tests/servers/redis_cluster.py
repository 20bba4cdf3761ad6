"""A Redis cluster of three masters and three replicas, whose slots a test moves and whose nodes it kills."""

from __future__ import annotations

from typing import Any, Self

from tests.servers.redis import Binary, RedisServer, reserve_port, wait_until

SLOTS = 16_384

_MASTERS = 3
_START = 10.0  # seconds
_MIGRATE_MS = 5000
_SETTINGS = (
    *("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"),
    *("--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"),
    *("--repl-ping-replica-period", "1"),  # CLUSTER SLOTS leaves replicas out until they got something
)


class ClusterDeployment:
    """Six processes; a context manager. A master's replica takes over some seconds after its death."""

    def __init__(self, binary: Binary = "redis", options: tuple[str, ...] = ()) -> None:
        self._reserved = [reserve_port() for _ in range(2 * _MASTERS)]
        self._bus_ports: list[int] = [each.getsockname()[1] for each in self._reserved]
        self.nodes = [
            RedisServer(binary, (*_SETTINGS, "--cluster-port", str(bus), *options)) for bus in self._bus_ports
        ]
        self.masters = self.nodes[:_MASTERS]
        """At the start; later see ``node_for_slot``."""
        self._changed = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(each.address for each in self.nodes)}"

    @property
    def whole(self) -> bool:
        """Whether all nodes run, none was killed and no slot was moved."""
        return not self._changed and all(each.running for each in self.nodes)

    def start(self) -> None:
        """Returns when every node knows all slots and every replica follows.

        Raises:
            RuntimeError, TimeoutError: it cannot be had.
        """
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        self._share_slots()
        self._introduce()
        masters = zip(self.nodes[_MASTERS:], self.masters, strict=True)
        for replica, master in masters:
            replica.command("CLUSTER", "REPLICATE", _id(master))
        wait_until(self._complete, "the cluster is complete", _START)

    def stop(self) -> None:
        for node, bus_port in zip(self.nodes, self._reserved, strict=True):
            node.stop()
            bus_port.close()

    def flush(self) -> None:
        """Empty all masters, and return when their replicas are so too."""
        for master in {self.node_for_slot(first) for first, *_ in self._ranges(self._living()[0])}:
            with master.connect() as connection:  # WAIT counts the writes of its own connection
                connection.command("FLUSHALL")
                connection.command("WAIT", 1, 5000)

    def node_for_slot(self, slot: int) -> RedisServer:
        """Its master, as the first running node knows it."""
        for first, last, master, *_ in self._ranges(self._living()[0]):
            if first <= slot <= last:
                return next(each for each in self.nodes if each.port == master[1])
        raise LookupError(f"no node has slot {slot}")

    def slot_of(self, key: str | bytes) -> int:
        return int(self._living()[0].command("CLUSTER", "KEYSLOT", key))

    def move_slot(self, slot: int, to_node: RedisServer, *, half_way: bool = False) -> None:
        """Move a slot and its keys to another master.

        ``half_way``: stop with half of its keys (rounded up) moved and the slot still the old node's, which answers ASK
        for keys that it has no more, or never had. A second call completes it.
        """
        self._changed = True
        source = self.node_for_slot(slot)
        to_node.command("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(source))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(to_node))
        keys = source.command(
            "CLUSTER", "GETKEYSINSLOT", slot, source.command("CLUSTER", "COUNTKEYSINSLOT", slot)
        )
        moving = keys[: (len(keys) + 1) // 2] if half_way else keys
        if moving:
            source.command("MIGRATE", "127.0.0.1", to_node.port, "", 0, _MIGRATE_MS, "KEYS", *moving)
        if half_way:
            return
        owner = _id(to_node)
        to_node.command("CLUSTER", "SETSLOT", slot, "NODE", owner)
        source.command("CLUSTER", "SETSLOT", slot, "NODE", owner)
        wait_until(
            lambda: all(self._owner(each, slot) == to_node.port for each in self._living()), "slot moved"
        )

    def kill(self, node: RedisServer) -> None:
        """SIGKILL; after a master's death ``wait_for_failover`` waits for its replica to take over."""
        node.kill()

    def wait_for_failover(self, deadline: float = 15.0) -> None:
        """Returns when all running nodes know running masters for all slots.

        Raises:
            TimeoutError: not within ``deadline`` seconds.
        """
        running = {each.port for each in self._living()}
        wait_until(lambda: all(self._served(each, running) for each in self._living()), "failover", deadline)

    def _share_slots(self) -> None:
        bounds = [SLOTS * each // _MASTERS for each in range(_MASTERS + 1)]
        for epoch, (master, first, end) in enumerate(zip(self.masters, bounds, bounds[1:], strict=False), 1):
            master.command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            master.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)

    def _introduce(self) -> None:
        for node, bus_port in zip(self.nodes[1:], self._bus_ports[1:], strict=True):
            self.nodes[0].command("CLUSTER", "MEET", "127.0.0.1", node.port, bus_port)
        wait_until(lambda: all(map(self._knows_all, self.nodes)), "the nodes know one another", _START)

    def _knows_all(self, node: RedisServer) -> bool:
        known = node.command("CLUSTER", "NODES").splitlines()
        return len(known) == len(self.nodes) and not any(b"handshake" in each for each in known)

    def _complete(self) -> bool:
        running = {each.port for each in self.nodes}
        if not all(self._served(each, running) for each in self.nodes):
            return False
        if any(len(each) != 4 for each in self._ranges(self.nodes[0])):  # first, last, master, replica
            return False
        return all(
            b"master_link_status:up" in each.command("INFO", "replication") for each in self.nodes[_MASTERS:]
        )

    def _served(self, node: RedisServer, running: set[int]) -> bool:
        if b"cluster_state:ok" not in node.command("CLUSTER", "INFO"):
            return False
        ranges = self._ranges(node)
        served = sum(last - first + 1 for first, last, master, *_ in ranges if master[1] in running)
        return bool(served == SLOTS)

    def _owner(self, node: RedisServer, slot: int) -> int | None:
        owners = (master[1] for first, last, master, *_ in self._ranges(node) if first <= slot <= last)
        return next(owners, None)

    def _ranges(self, node: RedisServer) -> list[Any]:
        return list(node.command("CLUSTER", "SLOTS"))

    def _living(self) -> list[RedisServer]:
        return [each for each in self.nodes if each.running]


def _id(node: RedisServer) -> bytes:
    return bytes(node.command("CLUSTER", "MYID"))
