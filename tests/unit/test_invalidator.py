"""What an invalidation may name, what it does, and that no trouble with a store or a log passes in silence."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import FakeClock

from stratacache.consistency import invalidation
from stratacache.consistency.audit import AuditLog
from stratacache.consistency.invalidation import Invalidator
from stratacache.consistency.selection import FIELDS, MAX_ITEMS, Selection, read_selection
from stratacache.errors import RequestError, StoreError
from stratacache.policy.tags import EVERYTHING, bucket_tag, is_tag, model_tag, tenant_tag
from stratacache.stores.memory import MemoryStore
from stratacache.types import Absent, Entry, Invalidated

ID = "00112233445566778899aabbccddeeff"
DIGEST = bytes.fromhex(ID)
BUCKET = bucket_tag(DIGEST)


@pytest.mark.parametrize(
    ("body", "tags", "digests"),
    [
        ({"tags": ["prices", "kb:faq"]}, ("kb:faq", "prices"), ()),
        ({"tags": ["prices", "prices"]}, ("prices",), ()),
        ({"tags": ["model:gpt-4o mini".replace(" ", "-"), "tenant:acme"]}, ("model:gpt-4o-mini", "tenant:acme"), ()),
        ({"tags": ["model:模型"]}, ("model:模型",), ()),
        ({"tenant": "acme"}, ("tenant:acme",), ()),
        ({"all": True}, ("*",), ()),
        ({"all": False, "tags": ["a"], "keys": None}, ("a",), ()),
        ({"entries": [ID]}, (BUCKET,), (DIGEST,)),
        ({"keys": [ID.upper()]}, (BUCKET,), (DIGEST,)),
        ({"keys": [ID + "f" * 32], "entries": [ID]}, (BUCKET,), (DIGEST,)),
        ({"entries": [ID], "tags": ["prices"]}, (BUCKET, "prices"), (DIGEST,)),
    ],
)  # fmt: skip
def test_what_can_be_selected(
    body: dict[str, Any], tags: tuple[str, ...], digests: tuple[bytes, ...]
) -> None:
    selection = read_selection(body)
    assert (selection.tags, selection.digests, selection.dry_run) == (tags, digests, False)
    assert read_selection({**body, "dry_run": True}).dry_run


@pytest.mark.parametrize(
    ("body", "param", "code", "told"),
    [
        ({}, None, "missing_required_parameter", "nothing is selected"),
        ({"dry_run": True}, None, "missing_required_parameter", "nothing is selected"),
        ({"all": False}, None, "missing_required_parameter", "nothing is selected"),
        ({"tag": ["a"]}, "tag", "unknown_parameter", "did you mean 'tags'?"),
        ({"x" * 500: 1}, "x" * 64, "unknown_parameter", "known: tags, keys"),
        ({"tags": "a"}, "tags", "invalid_type", "array of strings"),
        ({"tags": []}, "tags", "empty_array", "is empty"),
        ({"tags": ["a", 5]}, "tags[1]", "invalid_type", "must be a string"),
        ({"tags": ["kb:*"]}, "tags[0]", "invalid_value", "is a pattern"),
        ({"tags": ["*"]}, "tags[0]", "invalid_value", "say all: true"),
        ({"tags": ["a b"]}, "tags[0]", "invalid_value", "cannot be a tag"),
        ({"tags": [""]}, "tags[0]", "invalid_value", "cannot be a tag"),
        ({"tags": ["model:a\ud800"]}, "tags[0]", "invalid_value", "cannot be a tag"),
        ({"tags": ["a"] * (MAX_ITEMS + 1)}, "tags", "invalid_value", "at most 1000"),
        ({"tags": ["a"] * MAX_ITEMS, "entries": [ID]}, "tags", "invalid_value", "at most 1000"),
        ({"entries": [ID[1:]]}, "entries[0]", "invalid_value", "32 hex digits, as in x-strata-entry"),
        ({"entries": [ID * 2]}, "entries[0]", "invalid_value", "32 hex digits"),
        ({"keys": [ID + "0"]}, "keys[0]", "invalid_value", "32 or 64 hex digits"),
        ({"keys": [" " + ID[1:]]}, "keys[0]", "invalid_value", "32 or 64 hex digits"),
        ({"tenant": 5}, "tenant", "invalid_type", "must be a string"),
        ({"tenant": ""}, "tenant", "invalid_value", "1 to 64 letters"),
        ({"tenant": "acme", "tags": ["a"]}, "tenant", "invalid_value", "a tag is shared by all tenants"),
        ({"tenant": "acme", "entries": [ID]}, "tenant", "invalid_value", "send two requests"),
        ({"all": True, "tags": ["a"]}, "all", "invalid_value", "cannot be given together"),
        ({"all": True, "tenant": "acme"}, "tenant", "invalid_value", "cannot be given together"),
        ({"all": "yes"}, "all", "invalid_type", "true or false"),
        ({"tags": ["a"], "dry_run": 1}, "dry_run", "invalid_type", "true or false"),
    ],
)
def test_refusals_name_the_field(body: dict[str, Any], param: str | None, code: str, told: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_selection(body)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)
    assert told in caught.value.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from([ID, ID * 2, "a", "*"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*FIELDS, "tag", "force"]), JSON))
def test_whatever_is_sent_is_a_selection_or_refused(body: dict[str, Any]) -> None:
    try:
        selection = read_selection(body)
    except RequestError:
        return
    assert selection.tags
    assert all(tag == EVERYTHING or is_tag(tag) for tag in selection.tags)
    assert all(len(digest) == 16 and bucket_tag(digest) in selection.tags for digest in selection.digests)
    assert (EVERYTHING in selection.tags) == (body.get("all") is True)


@given(st.text(max_size=70))
def test_what_entries_carry_can_be_named(name: str) -> None:
    assert is_tag(bucket_tag(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:16]))
    if name.isascii() and name.isalnum() and len(name) <= 64:
        assert is_tag(name)
        assert is_tag(tenant_tag(name))
        assert is_tag(model_tag(name))


class Heard:
    def __init__(self) -> None:
        self.calls: list[tuple[Invalidated, tuple[bytes, ...]]] = []

    def __call__(self, what: Invalidated, digests: Sequence[bytes]) -> None:
        self.calls.append((what, tuple(digests)))


class Broken(MemoryStore):
    """Fails, or takes for ever."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__(1 << 20, FakeClock())
        self._error = error

    async def invalidate(self, *_: Any, **__: Any) -> Invalidated:
        raise self._error("boom")


async def stocked(clock: FakeClock) -> MemoryStore:
    store = MemoryStore(1 << 20, clock)
    absent = await store.get(DIGEST, (BUCKET, "prices"))
    assert isinstance(absent, Absent)
    now = clock.now()
    await store.put(DIGEST, Entry(b"form", b"body", now, now + 60, versions=absent.versions))
    return store


async def test_it_happens_once_is_heard_and_is_noted(tmp_path: Path) -> None:
    clock, heard, audit = FakeClock(), Heard(), AuditLog(tmp_path / "a" / "audit.jsonl")
    store = await stocked(clock)
    invalidator = Invalidator(store, audit, clock, heard)
    outcome = await invalidator.invalidate(read_selection({"tags": ["prices"]}), actor="acme/12345678")
    assert (outcome.affected, outcome.dry_run, outcome.audited) == (1, False, True)
    assert list(outcome.versions) == ["prices"]
    assert isinstance(await store.get(DIGEST), Absent)
    assert [(dict(what.versions), digests) for what, digests in heard.calls] == [(outcome.versions, ())]
    (record,) = await audit.last(10)
    assert record == {
        "time": record["time"], "actor": "acme/12345678", "outcome": "done", "dry_run": False,
        "selection": {"tags": ["prices"]}, "affected": 1, "versions": outcome.versions,
    }  # fmt: skip
    audit.close()


async def test_an_entry_goes_with_the_answers_for_it_that_are_in_flight(tmp_path: Path) -> None:
    clock, heard = FakeClock(), Heard()
    store = await stocked(clock)
    before = await store.get(b"x" * 16, (BUCKET,))
    assert isinstance(before, Absent)
    outcome = await Invalidator(store, None, clock, heard).invalidate(
        read_selection({"entries": [ID]}), actor="loopback"
    )
    assert outcome.affected is not None
    assert outcome.affected >= 1
    assert not outcome.audited
    assert isinstance(await store.get(DIGEST), Absent)
    late = Entry(b"form", b"old", clock.now(), clock.now() + 60, versions=before.versions)
    assert await store.put(DIGEST, late) == "outdated"
    assert heard.calls[0][1] == (DIGEST,)


async def test_a_dry_run_only_tells(tmp_path: Path) -> None:
    clock, heard, audit = FakeClock(), Heard(), AuditLog(tmp_path / "audit.jsonl")
    store = await stocked(clock)
    invalidator = Invalidator(store, audit, clock, heard)
    selection = read_selection({"tags": ["prices"], "dry_run": True})
    first = await invalidator.invalidate(selection, actor="loopback")
    assert (first.affected, first.dry_run) == (1, True)
    assert first == await invalidator.invalidate(selection, actor="loopback")
    assert isinstance(await store.get(DIGEST), Entry)
    assert not heard.calls
    assert [record["dry_run"] for record in await audit.last(10)] == [True, True]
    audit.close()


@pytest.mark.parametrize("error", [StoreError, TimeoutError])
async def test_a_store_that_fails_is_said_and_noted(tmp_path: Path, error: type[Exception]) -> None:
    heard, audit = Heard(), AuditLog(tmp_path / "audit.jsonl")
    invalidator = Invalidator(Broken(error), audit, FakeClock(), heard)
    with pytest.raises(RequestError) as caught:
        await invalidator.invalidate(read_selection({"all": True}), actor="loopback")
    assert (caught.value.status, caught.value.code) == (503, "store_unavailable")
    assert "may still serve" in caught.value.message
    assert not heard.calls
    (record,) = await audit.last(1)
    assert (record["outcome"], record["affected"]) == ("failed", None)
    audit.close()


async def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    clock, heard, audit = FakeClock(), Heard(), AuditLog(tmp_path / "file" / "audit.jsonl")
    store = await stocked(clock)
    outcome = await Invalidator(store, audit, clock, heard).invalidate(
        Selection(tags=("prices",), digests=(), dry_run=False, asked={}), actor="loopback"
    )
    assert (outcome.affected, outcome.audited) == (1, False)
    assert len(heard.calls) == 1
    audit.close()


def test_the_limit_is_below_what_the_command_line_waits() -> None:
    from stratacache.commands import client

    assert invalidation.TIMEOUT < client.TIMEOUT
