"""What the error bound has learned survives a stop, a crash but for the last minute, and a disk that refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.harness import settings_from

from stratacache.policy.bound.pooled import Bound
from stratacache.settings import Settings
from stratacache.wiring.learned import BoundKeeper, open_bound, slot_without_file


def settings(**config: Any) -> Settings:
    return settings_from(config)


def learn(bound: Bound, times: int = 1) -> None:
    for _ in range(times):
        bound.looked("default")
        bound.observe("default", b"e" * 16, 0.9, True)


async def test_it_is_saved_while_it_runs_and_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "bound"
    bound = open_bound(settings(), file, "v")
    keeper = BoundKeeper(bound, file, seconds=0.01)
    keeper.start()
    learn(bound)
    async with asyncio.timeout(20):
        while not file.exists() or open_bound(settings(), file, "v").report("default").labels < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    learn(bound, 2)
    await keeper.close()
    await keeper.close()
    assert open_bound(settings(), file, "v").report("default").labels == 3
    assert [path.name for path in tmp_path.iterdir()] == ["bound"]  # noqa: ASYNC240


async def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    file = tmp_path / "bound"
    bound = open_bound(settings(), file, "v")
    learn(bound)
    keeper = BoundKeeper(bound, file)
    await keeper.save()
    file.unlink()
    await keeper.save()
    assert not file.exists()
    learn(bound)
    await keeper.save()
    assert file.exists()


async def test_a_disk_that_refuses_is_told_and_the_next_time_may_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "gone"
    bound = Bound(verifier="v")
    learn(bound)
    keeper = BoundKeeper(bound, folder / "bound")
    await keeper.save()
    assert "is not kept" in caplog.text
    folder.mkdir()
    await keeper.save()
    assert open_bound(settings(), folder / "bound", "v").report("default").labels == 1


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 99}'])
def test_a_file_that_is_none_is_learned_anew(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bound").write_bytes(content)
    assert open_bound(settings(), tmp_path / "bound", "v").report("default").labels == 0
    assert "it is learned anew" in caplog.text


async def test_what_was_learned_of_another_verifier_is_learned_anew(tmp_path: Path) -> None:
    bound = Bound(verifier="before")
    learn(bound)
    await BoundKeeper(bound, tmp_path / "bound").save()
    assert open_bound(settings(), tmp_path / "bound", "v").report("default").labels == 0
    assert open_bound(settings(), tmp_path / "bound", "before").report("default").labels == 1


def test_scenes_have_their_own_bound() -> None:
    made = open_bound(settings(scenes={"support": {"max_error": 0.005}}), None, "v")
    assert (made.limits.of("support", ""), made.limits.of("default", "")) == (0.005, 0.01)


def test_a_store_that_is_no_file_has_a_place_beside_the_audit_log(tmp_path: Path) -> None:
    audit = {"path": str(tmp_path / "data" / "audit.jsonl")}
    one = slot_without_file(settings(store="redis://user:secret@host:6379/1", audit=audit))
    other = slot_without_file(settings(store="memory://", audit=audit))
    again = slot_without_file(settings(store="redis://user:other@host:6379/1", audit=audit))
    assert one is not None
    assert other is not None
    assert again is not None
    names = [slot.path("bound").name for slot in (one, other, again)]
    assert [name.rpartition(".0.")[0] == "" for name in names] == [False, False, True]
    assert names[2] == names[0].replace(".0.", ".1.")  # the same deployment, whose first place is taken
    for slot in (one, other, again):
        slot.close()
    assert slot_without_file(settings(store=f"sqlite:///{tmp_path}/cache.db", audit=audit)) is None
    assert slot_without_file(settings(store="memory://", audit={"path": None})) is None
