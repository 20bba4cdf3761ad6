"""Whatever is stored, invalidated, exported and imported, in any order: what was invalidated never answers again."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import FakeClock

from stratacache.lab.datafile import adopted
from stratacache.policy.key import KEY_VERSION
from stratacache.policy.portable import Line, Travelling, pack, unpack
from stratacache.policy.tags import bucket_tag
from stratacache.stores.memory import MemoryStore
from stratacache.types import Absent, Entry

TAGS = ("kb:a", "kb:b")
STEPS = st.one_of(
    st.tuples(st.just("answer"), st.integers(0, 3), st.sampled_from(TAGS)),
    st.tuples(st.just("invalidate"), st.sampled_from((*TAGS, "*", "tenant:acme"))),
    st.tuples(st.just("export")),
    st.tuples(st.just("import")),
    st.tuples(st.just("tick"), st.integers(1, 400)),
)


def travelling(number: int, tag: str, clock: FakeClock, body: bytes) -> Travelling:
    form = msgspec.json.encode(
        [
            ["stratacache", KEY_VERSION, 1, None],
            "chat",
            ["up", ""],
            "m",
            ["acme", "", "", ""],
            [],
            {"n": number},
        ]
    )
    digest = hashlib.sha256(form).digest()[:16]
    tags = sorted(("*", bucket_tag(digest), "model:m", "tenant:acme", tag))
    now = clock.now()
    entry = Entry(form, body, now, now + 1000, tenant="acme", model="m", versions=tuple((t, 0) for t in tags))
    return Travelling(digest, entry)


async def versions_of(store: MemoryStore, tags: tuple[str, ...]) -> dict[str, int]:
    absent = await store.get(bytes(16), tags)
    assert isinstance(absent, Absent)
    return dict(absent.versions)


class Model:
    """A store, its last export, and which bodies may not answer any more."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(1 << 20, self.clock)
        self.exported: list[Line] = []
        self.dead: set[bytes] = set()
        self.living: dict[bytes, Entry] = {}
        self.made = 0

    async def step(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("answer", number, tag):
                self.made += 1
                one = travelling(number, tag, self.clock, f"answer {self.made}".encode())
                one = adopted(one, await versions_of(self.store, one.entry.tags))
                assert await self.store.put(one.digest, one.entry) == "stored"
                self.living[one.entry.body] = one.entry
            case ("invalidate", tag):
                await self.store.invalidate((tag,))
                self.dead |= {body for body, entry in self.living.items() if tag in entry.tags}
            case ("export",):
                page = await self.store.scan(b"", 100)
                self.exported = [pack(Travelling(digest, entry)) for digest, entry in page.entries]
            case ("import",):
                for line in self.exported:
                    one = unpack(line)
                    await self.store.put(one.digest, one.entry)
            case ("tick", seconds):
                self.clock.advance(seconds)
        await self.check()

    async def check(self) -> None:
        for entry in self.living.values():
            found = await self.store.get(hashlib.sha256(entry.form).digest()[:16], ())
            if isinstance(found, Entry):
                assert found.body not in self.dead
                assert found.gone_at > self.clock.now()
        await self.store.check()


@given(st.lists(STEPS, max_size=25))
def test_an_import_into_its_own_store_revives_nothing(steps: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        model = Model()
        for step in steps:
            await model.step(step)

    asyncio.run(run())


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(TAGS)), min_size=1, max_size=6, unique_by=lambda one: one[0]),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from((*TAGS, "*", "tenant:acme"))), max_size=3),
)  # fmt: skip
def test_with_new_versions_what_is_invalidated_from_the_start_on_stays_gone(
    entries: list[tuple[int, str]], bumps: list[tuple[int, str]]
) -> None:
    """``bumps`` come before the entry of that number, in the middle of an import into an empty store."""

    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(1 << 20, clock)
        lines = [pack(travelling(number, tag, clock, b"x")) for number, tag in entries]
        tags = tuple(sorted({tag for line in lines for tag in unpack(line).entry.tags}))
        versions = await versions_of(store, tags)
        gone: set[str] = set()
        for place, line in enumerate(lines):
            for when, tag in bumps:
                if when == place:
                    await store.invalidate((tag,))
                    gone.add(tag)
            one = adopted(unpack(line), versions)
            expected = "outdated" if gone & set(one.entry.tags) else "stored"
            assert await store.put(one.digest, one.entry) == expected

    asyncio.run(run())


@given(st.binary(max_size=40), st.integers(0, 10_000))
def test_a_line_that_was_damaged_is_refused(body: bytes, place: int) -> None:
    line = pack(travelling(1, "kb:a", FakeClock(), body))
    data = bytearray(line.data)
    data[place % len(data)] ^= 1
    try:
        unpack(Line(line.check, msgspec.Raw(bytes(data))))
    except ValueError:
        return
    raise AssertionError("a damaged line was taken")
