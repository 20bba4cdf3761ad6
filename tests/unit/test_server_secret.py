"""The server's secret: one for all workers, kept from others' eyes, and never guessed."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stratacache.errors import SettingsError
from stratacache.settings import AuthKey, AuthSettings, Settings
from stratacache.wiring.secret import LENGTH, kept_secret, secret_of

KEY = AuthKey(key_hash="sha256:" + "0" * 64)


def test_all_who_begin_at_once_read_one_secret(tmp_path: Path) -> None:
    path = tmp_path / "new" / "cache.db.secret"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(kept_secret, [path] * 32))
    assert len(found) == 1
    assert len(found.pop()) == LENGTH
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_it_is_kept_beside_the_store_and_only_the_owner_reads_it(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path}/cache.db")
    assert secret_of(settings, {}) == secret_of(settings, {})
    assert stat.S_IMODE((tmp_path / "cache.db.secret").stat().st_mode) == 0o600


def test_one_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    kept_secret(path)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="others may read"):
        kept_secret(path)


def test_a_file_without_a_whole_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    with pytest.raises(SettingsError, match="holds no secret"):
        kept_secret(path)


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="secret"):
        kept_secret(tmp_path / "file" / "secret")


def test_a_store_in_memory_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(store="memory://")
    assert secret_of(settings, {}) != secret_of(settings, {})
    assert not list(tmp_path.iterdir())


def test_a_stores_server_has_no_files_so_it_is_kept_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(store="redis://localhost")
    assert secret_of(settings, {}) == secret_of(settings, {})
    assert (tmp_path / ".stratacache" / "secret").exists()


def test_the_environment_wins(tmp_path: Path) -> None:
    auth = AuthSettings(keys=(KEY,), secret_env="SALT_SECRET")
    settings = Settings(auth=auth, store=f"sqlite:///{tmp_path}/cache.db")
    assert secret_of(settings, {"SALT_SECRET": "x" * 32}) == b"x" * 32
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("environ", [{}, {"SALT_SECRET": "short"}])
def test_a_missing_or_short_one_is_refused_without_being_shown(environ: dict[str, str]) -> None:
    auth = AuthSettings(keys=(KEY,), secret_env="SALT_SECRET")
    with pytest.raises(SettingsError) as refused:
        secret_of(Settings(auth=auth), environ)
    assert "short" not in str(refused.value)
