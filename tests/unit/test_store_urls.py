"""Stores are named by URL; a wrong one is refused with what would be right, and not repeated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.clock import FakeClock
from tests.contract.backends import close

from stratacache.errors import SettingsError
from stratacache.stores import open_backend
from stratacache.stores.memory import MemoryStore


def test_memory() -> None:
    assert isinstance(open_backend("memory://", max_bytes=1000, clock=FakeClock()).store, MemoryStore)


async def test_sqlite_takes_relative_and_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url, path in [
        ("sqlite:///a/b.db", tmp_path / "a/b.db"),
        (f"sqlite:///{tmp_path}/c.db", tmp_path / "c.db"),
    ]:
        backend = open_backend(url, max_bytes=1000, clock=FakeClock())
        assert path.is_file()
        await close(backend)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlit:///x.db", "unknown kind of store; did you mean sqlite://"),
        ("sqlite", "must be a URL"),
        ("sqlite://", "must name a file"),
        ("sqlite:///", "must name a file"),
        ("sqlite://x.db", "must name a file"),
        ("memory://x", "takes nothing after it"),
        ("redis://:hunter2@", "names no host"),
    ],
)
def test_a_url_that_names_no_store_is_refused_without_being_repeated(url: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told) as caught:
        open_backend(url, max_bytes=1000, clock=FakeClock())
    assert "hunter2" not in str(caught.value)


def test_a_backend_is_imported_only_when_named() -> None:
    program = "import sys, stratacache.stores; print('sqlite3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
