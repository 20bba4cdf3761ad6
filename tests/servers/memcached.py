"""Real Memcached servers on loopback, to be killed, stopped and restarted by tests."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

_DEADLINE = 10.0  # seconds for a server to answer


class MemcachedServer:
    """One server process on a port of its own; ``options`` as on its command line."""

    def __init__(self, *options: str) -> None:
        binary = shutil.which("memcached")
        if binary is None:
            raise RuntimeError("the tests need memcached: apt-get install memcached")
        self.port = _free_port()
        user = ("-u", "nobody") if os.geteuid() == 0 else ()
        self._command = (binary, *user, "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", *options)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _DEADLINE
        while True:
            try:
                self.say(b"version\r\n")
                return
            except OSError:
                if self._process.poll() is not None:
                    raise RuntimeError(f"memcached ended: {self._command}") from None
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """It accepts connections (its kernel does) and never answers, until ``thaw``."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        os.waitpid(self._process.pid, os.WUNTRACED)  # until all its threads stand still

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def say(self, command: bytes) -> bytes:
        """The first of what it answers to ``command``."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_DEADLINE) as connection:
            connection.sendall(command)
            return connection.recv(65_536)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@contextmanager
def memcached(*options: str) -> Iterator[MemcachedServer]:
    """A server for one test."""
    server = MemcachedServer(*options)
    try:
        yield server
    finally:
        server.kill()


@functools.cache
def shared_servers() -> tuple[MemcachedServer, MemcachedServer]:
    """Two servers for the whole run, for tests that have a key prefix of their own and harm no server."""
    servers = (MemcachedServer(), MemcachedServer())
    for server in servers:
        atexit.register(server.kill)
    return servers


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
