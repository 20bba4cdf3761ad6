"""A real Milvus Lite server on loopback, to be killed, stopped and restarted by tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from tests.servers.redis import die_with_parent, reserve_port, wait_until


class MilvusServer:
    """One server on a port of its own; a context manager. Its data outlive ``kill``, not ``stop``."""

    def __init__(self) -> None:
        self._reserved = reserve_port()
        self.port: int = self._reserved.getsockname()[1]
        self._folder = Path(tempfile.mkdtemp(prefix="stratacache-milvus-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"milvus://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = (
            sys.executable,
            "-m",
            "milvus_lite.cmdline",
            "server",
            "--data-dir",
            str(self._folder / "data"),
        )
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                (*command, "--port", str(self.port)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 -- as there
            )
        wait_until(lambda: self._ended() or self._listens(), "milvus listens", 60.0)
        if self._ended():
            log_text = (self._folder / "log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"milvus-lite did not start on port {self.port}:\n{log_text}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: it accepts connections (its kernel does) and never answers, until ``resume``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        self._reserved.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 0.2).close()
        except OSError:
            return False
        return True
