"""Stores are named by URL, and a wrong name is answered with the right ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.clock import FakeClock

from stratacache.errors import SettingsError
from stratacache.stores import open_store
from stratacache.stores.memory import MemoryStore


def test_memory() -> None:
    assert isinstance(open_store("memory://", max_bytes=1000, clock=FakeClock()), MemoryStore)


async def test_sqlite_takes_relative_and_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url, path in [
        ("sqlite:///a/b.db", tmp_path / "a/b.db"),
        (f"sqlite:///{tmp_path}/c.db", tmp_path / "c.db"),
    ]:
        store = open_store(url, max_bytes=1000, clock=FakeClock())
        assert path.is_file()
        await store.close()


@pytest.mark.parametrize(
    ("url", "nearest"), [("sqlit:///x.db", "sqlite://"), ("memmory://", "memory://"), ("sqlite", "sqlite://")]
)
def test_an_unknown_scheme_is_refused_with_the_nearest_first(url: str, nearest: str) -> None:
    with pytest.raises(SettingsError, match=f"valid schemes are {nearest}, "):
        open_store(url, max_bytes=1000, clock=FakeClock())


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://x.db", "memory://x"])
def test_a_path_where_none_belongs_and_none_where_one_does(url: str) -> None:
    with pytest.raises(SettingsError, match="path"):
        open_store(url, max_bytes=1000, clock=FakeClock())


def test_a_backend_is_imported_only_when_named() -> None:
    program = "import sys, stratacache.stores; print('sqlite3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
