"""The gateway as a process: ready line, drain, restart, kill -9, and the commands that ask it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.upstream import FakeUpstream, Reply, in_thread
from tests.gateway_process import Serving, environ, run, serving, upstream_of
from tests.harness import question


@pytest.fixture
def fake() -> Iterator[FakeUpstream]:
    with in_thread() as server:
        yield server


def config(fake: FakeUpstream, **more: Any) -> dict[str, Any]:
    return {"store": "sqlite:///cache.db", "upstreams": [upstream_of(fake)], **more}


def post(gateway: Serving, body: dict[str, Any]) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    return connection.getresponse()


def ask(gateway: Serving, text: str) -> tuple[str, str]:
    """The outcome and the answer."""
    response = post(gateway, question(text))
    body = json.loads(response.read())
    assert response.status == 200, body
    return response.headers["x-strata-cache"], body["choices"][0]["message"]["content"]


def test_what_was_answered_before_a_stop_is_a_hit_after_it(fake: FakeUpstream, tmp_path: Path) -> None:
    fake.responder = lambda call: Reply(text=f"On {call.json['messages'][0]['content']}")
    for expected in ("miss", "hit"):
        with serving(tmp_path, config(fake)) as gateway:
            for text in ("rivers", "mountains"):
                assert ask(gateway, text) == (expected, f"On {text}")
            assert gateway.terminate() == 0
            assert gateway.errors() == ""
    assert fake.chat_calls == 2


class HeldStream:
    """A model server that sends half of a stream, and the rest when it is told to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self.half_sent = threading.Event()
        self.go_on = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + self._chunk("one ")
            )
            self.half_sent.set()
            self.go_on.wait(30)
            connection.sendall(self._chunk("two", "stop") + b"data: [DONE]\n\n")

    @staticmethod
    def _chunk(text: str, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"

    def close(self) -> None:
        self.go_on.set()
        self._listener.close()
        self._thread.join(30)


def test_a_stream_that_runs_at_sigterm_is_finished_and_stored(fake: FakeUpstream, tmp_path: Path) -> None:
    held = HeldStream()
    upstream = {**upstream_of(fake), "base_url": held.base_url}
    with serving(tmp_path, config(fake, upstreams=[upstream])) as gateway:
        response = post(gateway, question("count", stream=True))
        first = response.readline()
        assert b"one " in first
        gateway.process.send_signal(signal.SIGTERM)
        while _accepts(gateway.port):
            pass
        held.go_on.set()
        rest = response.read()
        assert b'"two"' in rest
        assert rest.endswith(b"data: [DONE]\n\n")
        assert gateway.process.wait(30) == 0
        (said,) = gateway.errors().splitlines()
        assert said.startswith("stratacache: stopping")
    held.close()
    with serving(tmp_path, config(fake, upstreams=[upstream])) as gateway:
        assert ask(gateway, "count") == ("hit", "one two")
        assert gateway.terminate() == 0
    assert fake.chat_calls == 0


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_kill_9_while_writing_leaves_whole_answers(fake: FakeUpstream, tmp_path: Path) -> None:
    def answer(text: str) -> str:
        return f"On {text}: " + text * 500

    fake.responder = lambda call: Reply(text=answer(call.json["messages"][0]["content"]))
    asked: list[str] = []
    for round_ in range(3):
        with serving(tmp_path, config(fake)) as gateway:
            for text in asked:  # whatever survived is right
                assert ask(gateway, text)[1] == answer(text)
            for number in range(15):
                text = f"topic {round_} {number} "
                asked.append(text)
                assert ask(gateway, text) == ("miss", answer(text))
            gateway.kill()  # the last answers are still on their way to the store
    with serving(tmp_path, config(fake)) as gateway:
        calls = fake.chat_calls
        for text in asked:
            assert ask(gateway, text)[1] == answer(text)
        assert fake.chat_calls - calls <= len(asked) // 2  # most had been written
        assert gateway.terminate() == 0
        assert gateway.errors() == ""


def test_a_port_in_use_is_one_clear_line(fake: FakeUpstream, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(
            "serve",
            cwd=tmp_path,
            env={"STRATACACHE__SERVER__PORT": str(port), "STRATACACHE__STORE": "memory://"},
        )
    assert ended.code == 1
    assert ended.out == ""
    assert len(ended.err.splitlines()) == 1
    assert str(port) in ended.err
    assert "server.port" in ended.err


def test_an_engine_that_is_not_installed_is_2_with_the_command_that_installs_it(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['gguf'] = None\n"
        "from stratacache.cli import main; sys.exit(main(['serve', '--json']))"
    )
    env = environ({"STRATACACHE__SERVER__PORT": "0"})
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"pip install 'stratacache[engine]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_store_that_is_another_programs_file_is_refused(fake: FakeUpstream, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(json.dumps(config(fake, server={"port": 0})))
    (tmp_path / "cache.db").mkdir()
    ended = run("--config", "c.yaml", "serve", cwd=tmp_path)
    assert ended.code == 1
    assert len(ended.err.splitlines()) == 1
    assert "cache.db" in ended.err


def test_a_second_gateway_says_what_it_cannot_have(fake: FakeUpstream, tmp_path: Path) -> None:
    with serving(tmp_path, config(fake)) as gateway:
        (tmp_path / "second.yaml").write_text(json.dumps(config(fake, server={"port": gateway.port})))
        ended = run("--config", "second.yaml", "serve", cwd=tmp_path)
        assert (ended.code, len(ended.err.splitlines())) == (1, 1)
        assert ask(gateway, "still there?")[0] == "miss"


def test_the_commands_ask_the_gateway_of_the_configuration(fake: FakeUpstream, tmp_path: Path) -> None:
    with serving(tmp_path, config(fake)) as gateway:
        asked = json.dumps(question("What is a cache?"))
        (tmp_path / "body.json").write_text(asked)
        url = ("--url", gateway.root)

        told = json.loads(run("explain", "body.json", "--json", *url, cwd=tmp_path).out)
        assert told["tiers"]["exact"] == {"outcome": "miss", "reason": "not_found"}
        assert told["would_call_upstream"]
        assert fake.chat_calls == 0
        ask(gateway, "What is a cache?")
        ask(gateway, "What is a cache?")
        shown = run("explain", "-", *url, cwd=tmp_path, stdin=asked.encode())
        assert shown.code == 0
        assert "hit (exact" in shown.out
        assert "would not be called" in shown.out

        refused = run("explain", "-", *url, cwd=tmp_path, stdin=b"{")
        assert refused.code == 1
        assert "not valid JSON" in refused.err
        assert len(refused.err.splitlines()) == 1

        port = {"STRATACACHE__SERVER__PORT": str(gateway.port)}
        figures = json.loads(run("stats", "--json", cwd=tmp_path, env=port).out)
        assert figures["outcomes"] == {"miss": 1, "hit": 1}
        assert figures["writeback"] == {"stored": 1}
        table = run("stats", *url, cwd=tmp_path)
        assert table.code == 0
        assert "50.0%" in table.out
        assert "stored 1" in table.out
        assert gateway.terminate() == 0


def test_commands_send_the_admin_key(fake: FakeUpstream, tmp_path: Path) -> None:
    import hashlib

    digest = "sha256:" + hashlib.sha256(b"admin-key").hexdigest()
    auth = {"keys": [{"key_hash": digest, "rights": ["admin"]}]}
    with serving(tmp_path, config(fake, auth=auth)) as gateway:
        refused = run("stats", "--url", gateway.root, cwd=tmp_path)
        assert refused.code == 1
        assert "401" in refused.err
        allowed = run(
            "stats",
            "--url",
            gateway.root,
            "--api-key-env",
            "MY_KEY",
            cwd=tmp_path,
            env={"MY_KEY": "admin-key"},
        )
        assert allowed.code == 0


def test_output_into_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "stratacache.cli", "config", "--schema"],
        cwd=tmp_path,
        env=environ(),
        stdout=write_end,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(write_end)
    assert done.stderr == b""
