"""What the pages show works: Python runs, configurations load, commands exist and requests are answered."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import io
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml
from tests.docs.doc_pages import ROOT, Block, blocks, make_targets
from tests.fakes.upstream import FakeUpstream
from tests.harness import Gateway, running_gateway

from stratacache.cli import build_parser
from stratacache.settings import load, read_prices

GATEWAY = "http://127.0.0.1:8900"
MODEL = "smollm2-135m"
NOT_CHECKED_HERE = {"git", "cd", "export", "echo", "curl", "request.json"}


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """Serves the packaged model's name from a fake, so that no page needs the real one here."""
    async with FakeUpstream() as fake:
        upstream = {
            "name": "local", "kind": "openai", "base_url": fake.base_url, "api_key_env": "FAKE_KEY",
            "models": [MODEL],
        }  # fmt: skip
        async with running_gateway(fake, {"upstreams": [upstream]}) as running:
            yield running


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", blocks("python", marked="run"), ids=str)
async def test_python_runs_against_a_gateway(block: Block, gateway: Gateway) -> None:
    assert GATEWAY in block.text, "a block that runs names the default address"
    code = compile(block.text.replace(GATEWAY, gateway.root), str(block), "exec")
    printed = io.StringIO()

    def run() -> None:
        with contextlib.redirect_stdout(printed):
            exec(code, {"__name__": "__main__"})

    await asyncio.to_thread(run)
    if "print(" in block.text:
        assert "Hello from the fake." in printed.getvalue()


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_is_yaml_and_configurations_load(block: Block, tmp_path: Path) -> None:
    value = yaml.safe_load(block.text)
    if "prometheus" in block.info:
        return
    path = tmp_path / "stratacache.yaml"
    path.write_text(block.text, encoding="utf-8")
    if "prices" in block.info:
        assert len(read_prices(path)) == len(value["prices"])
        return
    environ = dict.fromkeys(re.findall(r"key_env: (\w+)", block.text), "sk-made-up")
    assert set(load(path, environ).masked()) >= set(value)


def commands() -> Iterator[tuple[Block, str]]:
    """Each line after a ``$`` of a console block, with its continuation lines."""
    for block in blocks("console"):
        joined = block.text.replace("\\\n", " ")
        for line in joined.splitlines():
            if line.startswith("$ "):
                yield block, line[2:]


@pytest.mark.parametrize(("block", "line"), list(commands()), ids=str)
def test_a_command_that_a_page_shows_exists(block: Block, line: str) -> None:
    for part in re.split(r" \| | > ", line):
        words = shlex.split(part)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words[0] == "stratacache":
            build_parser().parse_args(words[1:])
        elif words[0] == "make":
            assert set(words[1:]) <= make_targets()
        elif words[0].startswith("python"):
            _check_python(words[1:])
        elif words[0] == "pip":
            _check_pip(words[1:])
        elif words[0] not in NOT_CHECKED_HERE:
            pytest.fail(f"{block}: nothing here knows how to check {words[0]!r}")


@pytest.mark.parametrize("line", [line for _, line in commands() if line.startswith("curl ")])
async def test_what_curl_would_send_is_answered(line: str, gateway: Gateway) -> None:
    await _check_curl(shlex.split(line)[1:], gateway)


async def _check_curl(words: list[str], gateway: Gateway) -> None:
    """Send what curl would send; the page's requests must be answered with 200."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d")
    parser.add_argument("-s", "-i", "-N", "-f", "-si", "-sN", action="store_true")
    asked = parser.parse_args(words)
    headers = dict(header.split(": ", 1) for header in asked.H)
    url = asked.url.replace(GATEWAY, gateway.root)
    async with gateway.http.request(
        "POST" if asked.d else "GET", url, data=asked.d, headers=headers
    ) as answer:
        assert answer.status == 200, await answer.text()


def _check_python(words: list[str]) -> None:
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]), f"there is no module {words[1]}"
        return
    assert words[0] == "-c"
    made = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout
    if "sha256:" in words[1]:
        key, key_hash = made.split()
        assert len(key) >= 32
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", key_hash)


def _check_pip(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert words[0] == "install"
    for extra in re.findall(r"\[(\w+)\]", " ".join(words)):
        assert extra in project["optional-dependencies"]


def test_every_command_is_in_the_readme_or_the_guide() -> None:
    parser = build_parser()
    listed = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices
    shown = "".join(
        path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    )
    for name, command in listed.items():
        assert f"stratacache {name}" in shown
        assert "example:" in command.format_help()


def test_a_made_key_opens_a_gateway_that_knows_its_hash(tmp_path: Path) -> None:
    """The command of the security page and the configuration fit together."""
    line = next(line for block, line in commands() if "token_urlsafe" in line)
    made = subprocess.run(
        [sys.executable, *shlex.split(line)[1:]], capture_output=True, text=True, check=True
    )
    _, key_hash = made.stdout.split()
    path = tmp_path / "stratacache.yaml"
    path.write_text(f"auth: {{keys: [{{key_hash: '{key_hash}'}}]}}", encoding="utf-8")
    settings = load(path, {})
    assert settings.auth is not None
    assert settings.auth.keys[0].key_hash == key_hash
