"""A real ``stratacache serve`` in a process of its own, for tests of the SDK, the commands, signals and crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from tests.fakes.upstream import FakeUpstream

STOP_LIMIT = 30  # seconds; beyond it the test has failed


def environ(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without settings of a gateway."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("STRATACACHE", "OPENAI"))}
    return {**kept, **(more or {})}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "stratacache.cli", *args]


def run(*args: str, cwd: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ended:
    """Run one ``stratacache`` command to its end."""
    done = subprocess.run(
        command(*args), cwd=cwd, input=stdin, capture_output=True, timeout=60, env=environ(env)
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


class Ended(msgspec.Struct, frozen=True):
    """How a command ended."""

    code: int
    out: str
    err: str


def upstream_of(fake: FakeUpstream, **more: Any) -> dict[str, Any]:
    return {"name": "fake", "kind": "openai", "base_url": fake.base_url, "models": ["fake-model"], **more}


class Serving:
    """A running gateway process; ``url`` ends in ``/v1``."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, errors: IO[bytes]) -> None:
        self.process = process
        self.url = url
        self.root = url.removesuffix("/v1")
        self._errors = errors

    @property
    def port(self) -> int:
        return int(self.root.rpartition(":")[2])

    def terminate(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_LIMIT)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(STOP_LIMIT)

    def errors(self) -> str:
        """What it has said on stderr so far."""
        self._errors.seek(0)
        return self._errors.read().decode()


@contextmanager
def serving(folder: Path, config: Mapping[str, Any], args: Sequence[str] = ()) -> Iterator[Serving]:
    """Start a gateway with ``config`` (its port is a free one) in ``folder``; killed when left running.

    The semantic tier, which takes seconds to load, is off unless ``config`` says something of it.
    """
    tiers = {"semantic": {"enabled": False}, **config.get("tiers", {})}
    file = folder / "gateway.yaml"
    file.write_bytes(msgspec.json.encode({"server": {"port": 0}, **config, "tiers": tiers}))
    with (folder / "stderr.txt").open("ab+") as errors:
        process = subprocess.Popen(
            command("--config", str(file), "serve", "--json", *args),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environ(),
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, f"the gateway did not start: {(folder / 'stderr.txt').read_text()}"
            yield Serving(process, msgspec.json.decode(line)["url"], errors)
        finally:
            process.kill()
            process.wait(STOP_LIMIT)
            process.stdout.close()
