"""Places beside a store's file: one a process, free again when it ends, and none is no error."""

from __future__ import annotations

from pathlib import Path

from stratacache.wiring.slots import SLOTS, take_slot


def test_each_takes_the_first_that_is_free(tmp_path: Path) -> None:
    file = tmp_path / "new" / "cache.db"
    first, second = take_slot(file), take_slot(file)
    assert first is not None
    assert second is not None
    assert (first.path("index").name, second.path("bound").name) == ("cache.db.0.index", "cache.db.1.bound")
    first.close()
    first.close()
    again = take_slot(file)
    assert again is not None
    assert again.path("index") == first.path("index")


def test_without_a_place_nothing_is_kept(tmp_path: Path) -> None:
    taken = [take_slot(tmp_path / "cache.db") for _ in range(SLOTS)]
    assert all(taken)
    assert take_slot(tmp_path / "cache.db") is None
    (tmp_path / "file").touch()
    assert take_slot(tmp_path / "file" / "cache.db") is None
