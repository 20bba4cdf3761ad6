"""The command line without a gateway: help, examples, exit codes, one clear line for every fault."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from stratacache.cli import COMMANDS, build_parser, main
from stratacache.commands.serve import listen
from stratacache.settings import load

NAMES = [module.__name__.rpartition(".")[2].strip("_").replace("_", "-") for module in COMMANDS]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("stratacache: ")
    return lines[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_help_shows_an_example_and_exits_0(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "example:" in shown
    assert f"stratacache {name}" in shown or f"{name}" in shown.partition("example:")[2]


@pytest.mark.parametrize("name", NAMES)
def test_every_example_parses(name: str) -> None:
    module = COMMANDS[NAMES.index(name)]
    parser = build_parser()
    examples = [line.rpartition("| ")[2].strip() for line in module.EXAMPLE.splitlines()]
    parsed = 0
    for example in examples:
        call = example.split("   ")[0].partition(">")[0].split()
        while call and "=" in call[0]:
            call.pop(0)
        if call[:1] == ["stratacache"]:
            parser.parse_args(call[1:])
            parsed += 1
    assert parsed


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--version", "--help"):
        with pytest.raises(SystemExit) as ended:
            main([option])
        assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in NAMES)


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["nonsense"],
        ["stats", "--nonsense"],
        ["explain"],
        ["invalidate"],
        ["invalidate", "--dry-run"],
        ["invalidate", "--log", "--tag", "a"],
        ["invalidate", "--log", "--limit", "many"],
    ],
)
def test_wrong_usage_is_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code == 2
    assert "usage: stratacache" in capsys.readouterr().err


def test_config_prints_what_would_run_and_masks_secrets(
    capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    assert main(["config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["server"]["port"] == 8900
    file = empty_folder / "c.yaml"
    file.write_text("upstreams: [{name: u, kind: openai, base_url: 'http://me:s3cret@h/v1', models: [m]}]\n")
    assert main(["--config", str(file), "config", "--json"]) == 0
    text = capsys.readouterr().out
    assert "s3cret" not in text
    assert json.loads(text)["upstreams"][0]["name"] == "u"


def test_the_default_file_and_the_environment_are_read(
    capsys: pytest.CaptureFixture[str], empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_folder / "stratacache.yaml").write_text("server: {port: 9001}\n")
    monkeypatch.setenv("STRATACACHE__STORE", "memory://")
    assert main(["config", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["server"]["port"], shown["store"]) == (9001, "memory://")


def test_the_schema_is_a_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert "$defs" in schema or "properties" in schema


@pytest.mark.parametrize("command", ["config", "serve", "stats"])
def test_a_broken_config_is_2_with_key_line_and_nearest_name(
    command: str, capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    file = empty_folder / "broken.yaml"
    file.write_text("server:\n  prot: 8900\n")
    assert main(["--config", str(file), command]) == 2
    told = capsys.readouterr().err
    assert "server.prot" in told
    assert "2" in told
    assert "'port'" in told or "port" in told.replace("prot", "")
    assert "Traceback" not in told


def test_a_missing_config_file_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", "nowhere.yaml", "config"]) == 2
    assert "nowhere.yaml" in one_line(capsys)


def test_without_a_gateway_the_commands_say_so(
    capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    (empty_folder / "body.json").write_text("{}")
    with (
        socket.socket() as taken
    ):  # bound but not listening: nobody else gets the port, connections are refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for args in (["stats"], ["explain", "body.json"]):
            assert main([*args, "--url", url]) == 1
            line = one_line(capsys)
            assert url in line
            assert "stratacache serve" in line


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://h", "http://", "http://h:port", "http://[::1", "http://h:99999"]
)
def test_a_url_that_is_none_is_one_clear_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--url", url]) == 1
    assert repr(url) in one_line(capsys)


def test_a_file_that_cannot_be_read(capsys: pytest.CaptureFixture[str], empty_folder: Path) -> None:
    assert main(["explain", "nowhere.json"]) == 1
    assert "nowhere.json" in one_line(capsys)
    assert main(["explain", str(empty_folder)]) == 1
    assert "directory" in one_line(capsys)


@contextmanager
def stranger(status: int, body: bytes) -> Iterator[str]:
    """A server that is no gateway; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b"<html>", "not JSON"),
        (500, b'{"error": "boom"}', "no reason given"),
        (404, b"[]", "no reason given"),
        (403, b'{"error": {"message": "not allowed"}}', "not allowed"),
        (200, b"[]", "is it a gateway?"),
        (200, b'{"hello": "world"}', "is it a gateway?"),
    ],
)
def test_a_server_that_is_no_gateway(
    status: int, body: bytes, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with stranger(status, body) as url:
        assert main(["stats", "--url", url]) == 1
    assert told in one_line(capsys)


def test_accepted_connections_send_small_answers_at_once() -> None:
    settings = load(None, {"STRATACACHE__SERVER__PORT": "0"})
    with listen(settings) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # what asyncio turns Nagle's algorithm off by


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_the_configuration_may_be_named_on_either_side_of_the_command(
    before: bool, empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty_folder / "mine.yaml").write_text("server: {port: 4711}\n")
    option = ["--config", "mine.yaml"]
    assert main([*option, "config", "--json"] if before else ["config", *option, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["server"]["port"] == 4711


def test_an_engine_without_its_packages_says_what_is_missing() -> None:
    script = "import sys; sys.modules['torch'] = None; from stratacache.cli import main; sys.exit(main(['engine']))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "torch" in ended.stderr
    assert "the extra 'engine'" in ended.stderr
