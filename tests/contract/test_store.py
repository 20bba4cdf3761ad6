"""What every store promises, tried on every store for real."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from tests.clock import FakeClock
from tests.contract.backends import KINDS, Kind, kinds

from stratacache.errors import StoreError
from stratacache.ports import Store
from stratacache.types import Absent, Entry, Versions

MAX_BYTES = 200_000
TAGS = ("*", "model:m", "价格")


def digest_of(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()[:16]


def entry_of(
    clock: FakeClock, text: str = "answer", *, ttl: float = 600.0, size: int = 0, versions: Versions = ()
) -> Entry:
    now = clock.now()
    body = text.encode().ljust(size)
    return Entry(b"form of " + text.encode(), body, created_at=now, expires_at=now + ttl, versions=versions)


async def found(store: Store, digest: bytes, tags: Sequence[str] = ()) -> Entry | None:
    result = await store.get(digest, tags)
    return result if isinstance(result, Entry) else None


async def absent(store: Store, digest: bytes, tags: Sequence[str] = ()) -> Absent:
    result = await store.get(digest, tags)
    assert isinstance(result, Absent)
    return result


async def versions_of(store: Store, *tags: str) -> Versions:
    """The versions at this moment, as a request for a question that nobody asked sees them."""
    return (await absent(store, digest_of("a question that nobody asked"), tags)).versions


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=KINDS, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
async def store(kind: Kind, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Store]:
    async with kind.open(clock, MAX_BYTES, tmp_path) as backend:
        yield backend.store
        await backend.store.check()


# --- entries


async def test_an_unknown_digest_is_a_miss(store: Store) -> None:
    assert await store.get(digest_of("nobody")) == Absent("not_found", ())


async def test_every_field_of_an_entry_comes_back(store: Store, clock: FakeClock) -> None:
    entry = Entry(
        form=b"\x00form\xff",
        body="答案 \x00".encode(),
        created_at=clock.now() - 1.25,
        expires_at=clock.now() + 10.5,
        tenant="acme",
        model="smollm2-135m",
        versions=await versions_of(store, "价格", "b"),
        prompt_tokens=12,
        completion_tokens=34,
        stale_until=clock.now() + 20.25,
        seconds=1.5,
        status=404,
        negative=True,
    )
    defaults = msgspec.structs.asdict(Entry(form=b"", body=b"", created_at=0.0, expires_at=0.0))
    assert all(
        getattr(entry, name) != value for name, value in defaults.items()
    )  # a new field must be set above
    assert await store.put(digest_of("a"), entry) == "stored"
    assert await store.get(digest_of("a")) == entry
    assert await store.get(digest_of("a"), ("b",)) == entry


async def test_empty_form_and_body_come_back(store: Store, clock: FakeClock) -> None:
    entry = Entry(form=b"", body=b"", created_at=clock.now(), expires_at=clock.now() + 1)
    await store.put(digest_of("a"), entry)
    assert await store.get(digest_of("a")) == entry


async def test_a_put_replaces(store: Store, clock: FakeClock, kind: Kind) -> None:
    await store.put(digest_of("a"), entry_of(clock, "old", size=5000))
    assert await store.put(digest_of("a"), entry_of(clock, "new")) == "stored"
    assert await store.get(digest_of("a")) == entry_of(clock, "new")
    if kind.sizes:
        assert (await store.stats()).entries == 1


async def test_digests_of_any_bytes_are_told_apart(store: Store, clock: FakeClock) -> None:
    digests = [
        bytes(16),
        b"\xff" * 16,
        b"a" * 16,
        b"a" * 15 + b"\x00",
        b" \r\n\t{}:*?[]%\x00\x7f\x80\xfe"[:16],
    ]
    for number, digest in enumerate(digests):
        await store.put(digest, entry_of(clock, str(number)))
    for number, digest in enumerate(digests):
        assert await store.get(digest) == entry_of(clock, str(number))


async def test_an_entry_lives_until_its_expiry_and_no_longer(store: Store, clock: FakeClock) -> None:
    await store.put(digest_of("a"), entry_of(clock, ttl=10.0))
    clock.advance(9.5)
    assert await found(store, digest_of("a"))
    clock.advance(0.5)
    assert (await absent(store, digest_of("a"))).reason == "not_found"


async def test_an_entry_that_may_answer_stale_is_kept_until_then(store: Store, clock: FakeClock) -> None:
    entry = msgspec.structs.replace(entry_of(clock, ttl=10.0), stale_until=clock.now() + 20)
    await store.put(digest_of("a"), entry)
    clock.advance(19.5)
    assert await found(store, digest_of("a")) == entry
    clock.advance(0.5)
    assert await found(store, digest_of("a")) is None


async def test_an_entry_that_is_only_stale_is_stored(store: Store, clock: FakeClock) -> None:
    entry = msgspec.structs.replace(entry_of(clock, ttl=-1.0), stale_until=clock.now() + 20)
    assert await store.put(digest_of("a"), entry) == "stored"
    assert await found(store, digest_of("a")) == entry


async def test_an_expired_entry_is_declined_and_what_it_replaces_is_gone(
    store: Store, clock: FakeClock, kind: Kind
) -> None:
    await store.put(digest_of("a"), entry_of(clock))
    assert await store.put(digest_of("a"), entry_of(clock, ttl=0.0)) == "declined"
    assert await found(store, digest_of("a")) is None
    assert (await store.stats()).rejections == 1


@pytest.mark.parametrize("expires", [math.nan, -math.inf])
async def test_an_expiry_that_is_no_time_is_declined(store: Store, clock: FakeClock, expires: float) -> None:
    entry = Entry(form=b"f", body=b"b", created_at=clock.now(), expires_at=expires)
    assert await store.put(digest_of("a"), entry) == "declined"
    assert await found(store, digest_of("a")) is None


async def test_an_entry_may_live_for_ever(store: Store, clock: FakeClock) -> None:
    versions = await versions_of(store, *TAGS)
    entry = Entry(b"f", b"b", created_at=clock.now(), expires_at=math.inf, versions=versions)
    await store.put(digest_of("a"), entry)
    clock.advance(1e9)
    assert await store.get(digest_of("a"), TAGS) == entry


async def test_setting_the_clock_back_does_not_revive_what_was_seen_expired(
    store: Store, clock: FakeClock
) -> None:
    await store.put(digest_of("a"), entry_of(clock, ttl=10.0))
    clock.advance(11)
    assert await found(store, digest_of("a")) is None
    clock.jump(-8)
    assert await found(store, digest_of("a")) is None


async def test_setting_the_clock_forward_and_back_does_not_revive_either(
    store: Store, clock: FakeClock
) -> None:
    await store.put(digest_of("a"), entry_of(clock, ttl=10.0))
    clock.jump(11)
    assert await found(store, digest_of("a")) is None
    clock.jump(-8)
    assert await found(store, digest_of("a")) is None


async def test_a_clock_that_jumps_breaks_nothing(store: Store, clock: FakeClock) -> None:
    for number, jump in enumerate([0, 3600, -7200, 1e6, -1e6]):
        clock.jump(jump)
        entry = entry_of(clock, str(number), versions=await versions_of(store, *TAGS))
        assert await store.put(digest_of(number), entry) == "stored"
        assert await store.get(digest_of(number), TAGS) == entry
        await store.invalidate(["价格"])
        assert (await absent(store, digest_of(number), TAGS)).reason == "outdated"
        await store.check()


@kinds(bounded=True)
async def test_an_entry_that_would_fill_the_store_is_declined(store: Store, clock: FakeClock) -> None:
    await store.put(digest_of("a"), entry_of(clock, "older"))
    assert await store.put(digest_of("a"), entry_of(clock, size=MAX_BYTES // 4)) == "declined"
    assert await found(store, digest_of("a")) is None, "the older answer was superseded"
    assert await store.put(digest_of("b"), entry_of(clock, size=MAX_BYTES // 5)) == "stored"


@kinds(bounded=True)
async def test_the_bound_holds_whatever_is_put(store: Store, clock: FakeClock) -> None:
    versions = await versions_of(store, *TAGS)
    for number in range(300):
        size = (number * 977) % 9000
        await store.put(digest_of(number), entry_of(clock, str(number), size=size, versions=versions))
    stats = await store.stats()
    assert MAX_BYTES // 2 < stats.bytes <= MAX_BYTES
    assert stats.evictions > 0


@kinds(sizes=True)
async def test_bytes_cover_the_payload(store: Store, clock: FakeClock) -> None:
    entries = [entry_of(clock, str(number), size=2000) for number in range(20)]
    for number, entry in enumerate(entries):
        await store.put(digest_of(number), entry)
    stats = await store.stats()
    assert stats.entries == 20
    assert stats.bytes > sum(entry.size for entry in entries)
    await store.invalidate([], [digest_of(number) for number in range(20)])
    assert (await store.stats()).entries == 0


@kinds(bounded=True)
async def test_room_is_made_from_expired_entries_first(store: Store, clock: FakeClock) -> None:
    for number in range(20):
        await store.put(digest_of(f"short {number}"), entry_of(clock, ttl=5.0, size=4000))
    clock.advance(60)
    for number in range(35):
        entry = entry_of(clock, str(number), size=4000)
        assert await store.put(digest_of(f"long {number}"), entry) == "stored"
    assert (await store.stats()).evictions == 0
    for number in range(35):
        assert await found(store, digest_of(f"long {number}"))


@kinds(bounded=True)
async def test_what_is_asked_for_again_and_again_outlives_a_scan(store: Store, clock: FakeClock) -> None:
    for number in range(10):
        await store.put(digest_of(f"hot {number}"), entry_of(clock, str(number), size=2000))
    for number in range(200):
        clock.advance(61)  # a store may note recency coarsely
        for hot in range(10):
            await store.get(digest_of(f"hot {hot}"))
        await store.put(digest_of(f"scan {number}"), entry_of(clock, size=2000, ttl=1e6))
        if number == 5:
            for hot in range(10):  # so that expiry plays no part
                await store.put(digest_of(f"hot {hot}"), entry_of(clock, str(hot), size=2000, ttl=1e6))
    assert all([await found(store, digest_of(f"hot {number}")) for number in range(10)])


# --- versions


async def test_a_miss_tells_a_version_of_every_asked_tag_and_keeps_it(store: Store) -> None:
    first = await versions_of(store, *TAGS)
    assert [tag for tag, _ in first] == sorted(TAGS)
    assert await versions_of(store, *TAGS) == first
    assert dict(await versions_of(store, "model:m", "another"))["model:m"] == dict(first)["model:m"]


async def test_an_entry_stored_under_a_snapshot_answers(store: Store, clock: FakeClock) -> None:
    entry = entry_of(clock, versions=(await absent(store, digest_of("a"), TAGS)).versions)
    assert await store.put(digest_of("a"), entry) == "stored"
    assert await store.get(digest_of("a"), TAGS) == entry
    assert await store.get(digest_of("a"), TAGS[:1]) == entry


@pytest.mark.parametrize("tag", TAGS)
async def test_a_new_version_of_any_tag_outdates(store: Store, clock: FakeClock, tag: str) -> None:
    before = await versions_of(store, *TAGS)
    await store.put(digest_of("a"), entry_of(clock, versions=before))
    told = await store.invalidate([tag])
    assert [name for name, _ in told.versions] == [tag]
    assert dict(told.versions)[tag] > dict(before)[tag]
    # Asked with one tag only, the snapshot names all that the entry carried: the new answer is to carry them too.
    assert await store.get(digest_of("a"), ("*",)) == Absent(
        "outdated", tuple(sorted((dict(before) | dict(told.versions)).items()))
    )
    assert await found(store, digest_of("a"), TAGS) is None


async def test_what_does_not_carry_the_tag_stays(store: Store, clock: FakeClock) -> None:
    await store.put(digest_of("a"), entry_of(clock, versions=await versions_of(store, "a")))
    await store.put(digest_of("b"), entry_of(clock, versions=await versions_of(store, "b")))
    await store.put(digest_of("none"), entry_of(clock))
    await store.invalidate(["a"])
    assert await found(store, digest_of("a"), ("a",)) is None
    assert await found(store, digest_of("b"), ("b",))
    assert await found(store, digest_of("none"))


async def test_an_answer_begun_before_an_invalidation_never_lands(store: Store, clock: FakeClock) -> None:
    before = await versions_of(store, *TAGS)
    await store.invalidate(["价格"])
    assert await store.put(digest_of("a"), entry_of(clock, "old", versions=before)) == "outdated"
    assert await found(store, digest_of("a"), TAGS) is None
    newer = entry_of(clock, "new", versions=await versions_of(store, *TAGS))
    assert await store.put(digest_of("a"), newer) == "stored"
    assert await store.put(digest_of("a"), entry_of(clock, "old", versions=before)) == "outdated"
    assert await store.get(digest_of("a"), TAGS) == newer, "what was there stays"


async def test_an_outdated_entry_that_is_also_dead_is_outdated(store: Store, clock: FakeClock) -> None:
    before = await versions_of(store, *TAGS)
    await store.invalidate(["*"])
    newer = entry_of(clock, versions=await versions_of(store, *TAGS))
    await store.put(digest_of("a"), newer)
    assert await store.put(digest_of("a"), entry_of(clock, ttl=-1, versions=before)) == "outdated"
    assert await store.get(digest_of("a")) == newer


async def test_a_version_that_no_store_gave_is_outdated(store: Store, clock: FakeClock) -> None:
    assert await store.put(digest_of("a"), entry_of(clock, versions=(("unheard of", 1),))) == "outdated"
    assert await found(store, digest_of("a")) is None


async def test_an_entry_that_lacks_an_asked_tag_does_not_answer(store: Store, clock: FakeClock) -> None:
    versions = await versions_of(store, "*", "b")
    await store.put(digest_of("a"), entry_of(clock, versions=versions))
    refused = await absent(store, digest_of("a"), ("*", "a"))
    assert refused.reason == "untagged"
    assert [tag for tag, _ in refused.versions] == ["*", "a", "b"]
    assert set(versions) <= set(refused.versions)
    assert await found(store, digest_of("a"), ("*",)), "it answers those whom it did answer"
    better = entry_of(clock, "better", versions=refused.versions)
    assert await store.put(digest_of("a"), better) == "stored"
    assert await store.get(digest_of("a"), ("*", "a")) == better


async def test_versions_rise_and_never_repeat(store: Store, clock: FakeClock) -> None:
    seen = [dict(await versions_of(store, "a"))["a"]]
    for jump in (0, 10, -100_000, 5, 0):
        clock.jump(jump)
        seen.append(dict((await store.invalidate(["a"])).versions)["a"])
        assert dict(await versions_of(store, "a"))["a"] == seen[-1]
    assert seen == sorted(set(seen))
    assert all(0 < version < 2**63 for version in seen)


async def test_unknown_tags_can_be_invalidated(store: Store, clock: FakeClock) -> None:
    told = await store.invalidate(["b", "a", "b"])
    assert [tag for tag, _ in told.versions] == ["a", "b"]
    assert told.affected in (0, None)
    assert await versions_of(store, "a", "b") == told.versions
    assert await store.put(digest_of("x"), entry_of(clock, versions=told.versions)) == "stored"
    assert await found(store, digest_of("x"), ("a", "b"))


async def test_digests_are_removed_and_counted(store: Store, clock: FakeClock) -> None:
    for name in "abc":
        await store.put(digest_of(name), entry_of(clock))
    told = await store.invalidate([], [digest_of("a"), digest_of("nobody"), digest_of("a")])
    assert (told.affected, told.versions) == (1, ())  # also where nobody counts who carries a tag
    assert await found(store, digest_of("a")) is None
    assert await found(store, digest_of("b"))
    assert (await store.invalidate([])).versions == ()


async def test_tags_and_digests_go_together(store: Store, clock: FakeClock, kind: Kind) -> None:
    await store.put(digest_of("a"), entry_of(clock, versions=await versions_of(store, "a")))
    await store.put(digest_of("b"), entry_of(clock))
    told = await store.invalidate(["a"], [digest_of("b")])
    assert told.affected == (2 if kind.counts else None)
    assert await found(store, digest_of("a")) is None
    assert await found(store, digest_of("b")) is None


async def test_a_dry_run_only_tells(store: Store, clock: FakeClock, kind: Kind) -> None:
    before = await versions_of(store, *TAGS)
    await store.put(digest_of("a"), entry_of(clock, versions=before))
    await store.put(digest_of("b"), entry_of(clock))
    told = await store.invalidate(["*", "价格"], [digest_of("b")], dry_run=True)
    assert set(told.versions) <= set(before)
    assert [tag for tag, _ in told.versions] == ["*", "价格"]
    assert await found(store, digest_of("a"), TAGS)
    assert await found(store, digest_of("b"))
    assert await versions_of(store, *TAGS) == before
    if kind.counts:
        assert told.affected is not None
        assert 2 <= told.affected <= 3, "at most: an entry may be counted for each of its tags"


@kinds(counts=True)
async def test_affected_is_never_too_low(store: Store, clock: FakeClock) -> None:
    versions = dict(await versions_of(store, "*", "even", "odd"))
    for number in range(20):
        tag = "odd" if number % 2 else "even"
        carried = (("*", versions["*"]), (tag, versions[tag]))
        await store.put(digest_of(number), entry_of(clock, str(number), versions=carried))
        await store.put(digest_of(number), entry_of(clock, "again", versions=carried))
    even = await store.invalidate(["even"])
    assert even.affected is not None
    assert 10 <= even.affected <= 20
    assert (await store.invalidate(["even"])).affected == 0, "what is outdated already is not affected again"
    everything = await store.invalidate(["*"], [digest_of(1)])
    assert everything.affected is not None
    assert 10 <= everything.affected <= 40


async def test_many_tasks_see_whole_and_current_entries_only(store: Store, clock: FakeClock) -> None:
    bumped = dict.fromkeys("01234", 0)  # the version of each tag as of the last invalidation that returned

    async def work(worker: int) -> None:
        for step in range(20):
            tag = str((worker * 7 + step) % 5)
            least = bumped[tag]
            result = await store.get(digest_of(tag), (tag,))
            if isinstance(result, Entry):
                assert result.body.decode().startswith(f"{tag} by ")
                assert result.form == b"form of " + result.body
                assert dict(result.versions)[tag] >= least, "outdated before the look-up began"
            else:
                entry = entry_of(clock, f"{tag} by {worker}", versions=result.versions)
                await store.put(digest_of(tag), entry)
            if step % 7 == 0:
                told = await store.invalidate([tag])
                bumped[tag] = max(bumped[tag], dict(told.versions)[tag])

    await asyncio.gather(*(work(worker) for worker in range(30)))


# --- two instances


@pytest.fixture
async def second(store: Store, kind: Kind, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Store]:
    """Another instance on the data of ``store``."""
    async with kind.open(clock, MAX_BYTES, tmp_path) as backend:
        yield backend.store


@kinds(shared=True)
async def test_what_one_instance_stores_another_finds(store: Store, second: Store, clock: FakeClock) -> None:
    versions = await versions_of(store, *TAGS)
    assert await versions_of(second, *TAGS) == versions
    entry = entry_of(clock, versions=versions)
    assert await store.put(digest_of("a"), entry) == "stored"
    assert await second.get(digest_of("a"), TAGS) == entry


@kinds(shared=True)
async def test_an_invalidation_by_one_is_seen_by_the_other_at_once(
    store: Store, second: Store, clock: FakeClock
) -> None:
    for turn in range(10):
        one, other = (store, second) if turn % 2 else (second, store)
        versions = await versions_of(other, *TAGS)
        await other.put(digest_of("a"), entry_of(clock, versions=versions))
        assert await found(other, digest_of("a"), TAGS)
        await one.invalidate(["model:m"])
        assert (await absent(other, digest_of("a"), TAGS)).reason in ("outdated", "not_found")
        assert await other.put(digest_of("a"), entry_of(clock, versions=versions)) == "outdated"


@kinds(shared=True)
async def test_a_digest_removed_by_one_is_gone_for_the_other(
    store: Store, second: Store, clock: FakeClock
) -> None:
    await store.put(digest_of("a"), entry_of(clock))
    assert await found(second, digest_of("a"))
    await second.invalidate([], [digest_of("a")])
    assert await found(store, digest_of("a")) is None


@kinds(shared=True)
async def test_instances_that_ask_at_once_get_one_version(store: Store, second: Store) -> None:
    asked = [versions_of(one, "a", "b") for one in (store, second) * 5]
    assert len(set(await asyncio.gather(*asked))) == 1


@kinds(durable=True)
async def test_entries_and_versions_outlive_the_instance(
    kind: Kind, clock: FakeClock, tmp_path: Path
) -> None:
    async with kind.open(clock, MAX_BYTES, tmp_path) as backend:
        versions = await versions_of(backend.store, *TAGS)
        await backend.store.put(digest_of("a"), entry_of(clock, versions=versions))
    async with kind.open(clock, MAX_BYTES, tmp_path) as backend:
        assert await found(backend.store, digest_of("a"), TAGS) == entry_of(clock, versions=versions)
        await backend.store.check()


# --- the end


async def test_after_close_every_call_is_an_error_but_close(
    kind: Kind, clock: FakeClock, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        store = (await stack.enter_async_context(kind.open(clock, MAX_BYTES, tmp_path))).store
        await store.put(digest_of("a"), entry_of(clock))
        await store.close()
        await store.close()
        calls = [
            store.get(digest_of("a")),
            store.get(digest_of("a"), TAGS),
            store.put(digest_of("a"), entry_of(clock)),
            store.invalidate(["*"], [digest_of("a")]),
            store.invalidate(["*"], dry_run=True),
            store.stats(),
            store.check(),
        ]
        for call in calls:
            with pytest.raises(StoreError, match="closed"):
                await call
