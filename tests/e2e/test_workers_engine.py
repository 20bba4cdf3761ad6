"""Two workers before one real engine: it outlives a worker, comes back after its supervisor, and ends last."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gateway_process import Serving, serving

MODEL = "smollm2-135m"
MODELS = Path(__file__).parents[2] / ".stratacache"
LIMIT = 120  # seconds; beyond it the test has failed
CONFIG = {
    "server": {"port": 0, "workers": 2},
    "store": "sqlite:///cache.db",
    "upstreams": [
        {"name": "local", "kind": "embedded", "models": [MODEL], "kv_memory": "64MiB", "max_context": 512}
    ],
}


def post(gateway: Serving, text: str, **more: Any) -> http.client.HTTPResponse:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "temperature": 0, **more}
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=LIMIT)
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    return connection.getresponse()


def ask(gateway: Serving) -> bool:
    """Whether a short question is answered, each time on a new connection."""
    try:
        response = post(gateway, "Say yes.", max_tokens=4)
        response.read()
    except (http.client.HTTPException, OSError):  # its worker has just been killed
        return False
    return response.status == 200


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def engines(folder: Path) -> dict[int, int]:
    """The engines started in ``folder``, each with the process that runs it."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if b"stratacache.engine" in command and (entry / "cwd").resolve() == folder.resolve():
                found[int(entry.name)] = int(command[command.index(b"--parent-pid") + 1])
        except OSError:
            continue
    return found


def workers(gateway: Serving) -> set[int]:
    """The living workers; none when the one that was asked has just been killed."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=LIMIT)
    try:
        connection.request("GET", "/admin/stats")
        return {share["pid"] for share in json.loads(connection.getresponse().read())["workers"]}
    except (http.client.HTTPException, OSError):
        return set()


def prepare(folder: Path) -> None:
    MODELS.mkdir(exist_ok=True)
    (folder / ".stratacache").symlink_to(MODELS)  # the converted model is made once per checkout


def test_all_workers_share_one_engine_that_ends_last(tmp_path: Path) -> None:
    prepare(tmp_path)
    with serving(tmp_path, CONFIG) as gateway:
        assert all(ask(gateway) for _ in range(8))
        ((engine, supervisor),) = engines(tmp_path).items()
        assert len(workers(gateway)) == 2
        assert supervisor not in workers(gateway)

        victim = min(workers(gateway))
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(workers(gateway) - {victim}) == 2)
        assert all(ask(gateway) for _ in range(8))
        assert list(engines(tmp_path)) == [engine]

        os.kill(supervisor, signal.SIGKILL)
        until(lambda: engines(tmp_path) and engine not in engines(tmp_path))
        until(lambda: ask(gateway))
        assert all(ask(gateway) for _ in range(8))
        assert len(engines(tmp_path)) == 1

        running = post(gateway, "Write a long story about a harbour.", max_tokens=60, stream=True)
        assert running.readline().startswith(b"data:")
        gateway.process.send_signal(signal.SIGTERM)
        assert running.read().endswith(b"data: [DONE]\n\n")
        assert gateway.process.wait(LIMIT) == 0
        assert engines(tmp_path) == {}


def test_a_killed_parent_takes_the_engine_with_it(tmp_path: Path) -> None:
    prepare(tmp_path)
    with serving(tmp_path, CONFIG) as gateway:
        until(lambda: ask(gateway))
        (engine,) = engines(tmp_path)
        descriptor = os.pidfd_open(engine)
        gateway.kill()
        assert select.select([descriptor], [], [], LIMIT)[0]
        os.close(descriptor)
