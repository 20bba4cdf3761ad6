"""A Redis master with two replicas, watched by three sentinels that fail over within seconds."""

from __future__ import annotations

import contextlib
from typing import Self

from tests.servers.redis import Binary, RedisServer, wait_until
from tests.servers.resp import RedisError

MASTER = "main"
"""The name under which the sentinels know it."""

_QUORUM = 2
_SENTINELS = 3
_REPLICAS = 2
_START = 10.0  # seconds
# How often sentinels look, in ms; by default 1 to 10 seconds. Not ping-period: they promote no replica whose INFO is
# older than five of it, and while the master is down they ask for INFO once a second, whatever info-period is.
_PERIODS = {"info-period": 200, "publish-period": 200, "ask-period": 200}
_REPLICATION = ("--repl-diskless-sync-delay", "0")


class SentinelDeployment:
    """Six processes; a context manager. A master is down after 500 ms of silence, a failover ends within 2 s."""

    def __init__(self, binary: Binary = "redis") -> None:
        first = RedisServer(binary, _REPLICATION)
        follow = ("--replicaof", "127.0.0.1", str(first.port), *_REPLICATION)
        self.servers = [first, *(RedisServer(binary, follow) for _ in range(_REPLICAS))]
        self.sentinels = [_Sentinel(binary, first.port) for _ in range(_SENTINELS)]
        self._killed: RedisServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(each.address for each in self.sentinels)}/{MASTER}"

    @property
    def whole(self) -> bool:
        """Whether all its processes run."""
        return all(each.running for each in (*self.servers, *self.sentinels))

    def start(self) -> None:
        """Returns when all sentinels know the replicas and one another, and the replicas follow.

        Raises:
            RuntimeError, TimeoutError: it cannot be had.
        """
        self._wait_for(self.servers)
        wait_until(lambda: all(map(_follows, self.servers[1:])), "the replicas follow", _START)
        self._wait_for(self.sentinels)
        for sentinel in self.sentinels:
            for name, period in _PERIODS.items():
                sentinel.command("SENTINEL", "DEBUG", name, period)
        wait_until(lambda: all(each.ready() for each in self.sentinels), "the sentinels agree", _START)

    def stop(self) -> None:
        for each in (*self.sentinels, *self.servers):
            each.stop()

    def master(self) -> RedisServer:
        """The server that most sentinels name."""
        named = [each.master_port() for each in self.sentinels if each.running]
        most = max(named, key=named.count)
        return next(each for each in self.servers if each.port == most)

    def kill_master(self) -> RedisServer:
        """The one killed; ``wait_for_failover`` waits for another."""
        self._killed = self.master()
        self._killed.kill()
        return self._killed

    def wait_for_failover(self, deadline: float = 15.0) -> RedisServer:
        """The new master, when it takes writes and all running sentinels name it.

        Raises:
            TimeoutError: not within ``deadline`` seconds.
        """
        assert self._killed is not None
        old = self._killed.port

        def agreed() -> bool:
            named = {each.master_port() for each in self.sentinels if each.running}
            return old not in named and len(named) == 1 and self.master().command("ROLE")[0] == b"master"

        wait_until(agreed, "another master", deadline)
        return self.master()

    def flush(self) -> None:
        """Empty the master, and return when its replicas are so too."""
        master = self.master()
        with master.connect() as connection:  # WAIT counts the writes of its own connection
            connection.command("FLUSHALL")
            connection.command("WAIT", _REPLICAS, 5000)

    def _wait_for(self, servers: list[RedisServer] | list[_Sentinel]) -> None:
        for each in servers:
            each.launch()
        for each in servers:
            each.wait_ready()


class _Sentinel(RedisServer):
    def __init__(self, binary: Binary, watched: int) -> None:
        super().__init__(binary)
        self._watched = watched

    def master_port(self) -> int:
        return int(self.command("SENTINEL", "get-master-addr-by-name", MASTER)[1])

    def ready(self) -> bool:
        with contextlib.suppress(RedisError):  # no master is known yet
            answer = self.command("SENTINEL", "MASTER", MASTER)
            state = dict(zip(answer[::2], answer[1::2], strict=True))
            counts = (int(state[b"num-slaves"]), int(state[b"num-other-sentinels"]))
            return counts == (_REPLICAS, _SENTINELS - 1) and state[b"flags"] == b"master"
        return False

    def _config(self) -> tuple[str, ...]:
        file = self.folder / "sentinel.conf"
        if not file.exists():  # what it wrote there is what a restarted sentinel knows
            lines = (
                f"sentinel monitor {MASTER} 127.0.0.1 {self._watched} {_QUORUM}",
                f"sentinel down-after-milliseconds {MASTER} 500",
                f"sentinel failover-timeout {MASTER} 2000",
            )
            file.write_text("\n".join(lines) + "\n")
        return (str(file), "--sentinel")


def _follows(replica: RedisServer) -> bool:
    return b"master_link_status:up" in replica.command("INFO", "replication")
