"""Redis masters die behind sentinels and in a cluster, and slots move: nothing stale is read, and all of it heals."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.contract.redis_kit import DIGEST, TAGS, entry_of, eventually, instance, stored
from tests.servers.redis import wait_until
from tests.servers.redis_cluster import ClusterDeployment
from tests.servers.redis_sentinels import SentinelDeployment

from stratacache.errors import StoreError
from stratacache.ports import Store
from stratacache.stores import Backend
from stratacache.types import Absent, Entry

pytest_plugins = ["tests.servers.fixtures"]

DIGESTS = [bytes([number]) * 16 for number in range(16)]  # one in each part of a cluster


# --- sentinels


async def test_a_failover_is_followed_and_keeps_what_was_invalidated(
    redis_sentinels: SentinelDeployment,
) -> None:
    async with instance(redis_sentinels.url) as one, instance(redis_sentinels.url) as other:
        await stored(one.store)
        done = await one.store.invalidate(["prices"])
        entry = await stored(one.store, "new")
        await one.store.invalidate(["another"])  # returns when a replica has all that was written before
        redis_sentinels.kill_master()
        with pytest.raises(StoreError):
            await one.store.get(DIGEST, TAGS)
        redis_sentinels.wait_for_failover()
        for backend in (one, other):
            assert await eventually(lambda backend=backend: backend.store.get(DIGEST, TAGS)) == entry
            assert dict(entry.versions)["prices"] == dict(done.versions)["prices"]
            await backend.store.check()


async def test_an_invalidation_that_a_failover_lost_is_made_again(
    redis_sentinels: SentinelDeployment,
) -> None:
    """No replica has it when the master dies: it was stopped, so that the invalidation did not wait for long."""
    async with instance(redis_sentinels.url) as one, instance(redis_sentinels.url) as other:
        assert other.bulletin is not None
        await other.bulletin.start(lambda what, digests: None)
        entry = await stored(one.store)
        master = redis_sentinels.master()
        replicas = [each for each in redis_sentinels.servers if each is not master]
        wait_until(lambda: all(each.command("DBSIZE") for each in replicas), "the replicas have the entry")
        for replica in replicas:
            replica.pause()
        await one.store.invalidate(["prices"])
        redis_sentinels.kill_master()
        for replica in replicas:
            replica.resume()
        redis_sentinels.wait_for_failover()
        for backend in (other, one):
            refused = await eventually(lambda backend=backend: backend.store.get(DIGEST, TAGS))
            assert isinstance(refused, Absent)
            assert refused.reason == "outdated"
            assert await backend.store.put(DIGEST, entry) == "outdated"
        await stored(other.store, "new")


async def test_sentinels_that_know_no_such_master_are_a_store_error(
    redis_sentinels: SentinelDeployment,
) -> None:
    async with instance(f"{redis_sentinels.url}-not") as backend:
        with pytest.raises(StoreError, match="master"):
            await backend.store.get(DIGEST, TAGS)


# --- a cluster


@pytest.fixture
async def backend(redis_cluster: ClusterDeployment) -> AsyncIterator[Backend]:
    async with instance(redis_cluster.url) as opened:
        yield opened


async def test_a_snapshot_taken_in_one_part_serves_all_parts(backend: Backend) -> None:
    missed = await backend.store.get(DIGESTS[3], TAGS)
    assert isinstance(missed, Absent)
    for digest in DIGESTS:
        assert await backend.store.put(digest, entry_of("answer", missed.versions)) == "stored"
    for digest in DIGESTS:
        assert isinstance(await backend.store.get(digest, TAGS), Entry)
    done = await backend.store.invalidate(["prices"], DIGESTS[:4])
    assert done.affected == 16 + 4 - 4 or done.affected == 16 + 4  # at most: removed ones are counted twice
    for digest in DIGESTS:
        refused = await backend.store.get(digest, TAGS)
        assert isinstance(refused, Absent)
        assert dict(refused.versions)["prices"] == dict(done.versions)["prices"]


@pytest.mark.parametrize("lost_by", [0, 5])
async def test_a_part_that_lost_a_version_revives_nothing(
    redis_cluster: ClusterDeployment, backend: Backend, lost_by: int
) -> None:
    for digest in DIGESTS:
        await stored(backend.store, digest=digest)
    first = await backend.store.invalidate(["prices"])
    key = f"{{strata:{lost_by}}}v:prices"
    redis_cluster.node_for_slot(redis_cluster.slot_of(key)).command("DEL", key)
    for digest in DIGESTS:
        assert isinstance(await backend.store.get(digest, TAGS), Absent)
    again = await backend.store.invalidate(["prices"])
    assert dict(again.versions)["prices"] > dict(first.versions)["prices"]
    for digest in DIGESTS:
        await stored(backend.store, "new", digest)


async def test_a_slot_moves_while_it_is_used(redis_cluster: ClusterDeployment, backend: Backend) -> None:
    """Half of its keys moved: what needs both halves fails, and is a miss; nothing is wrong, then or afterwards."""
    entries = {digest: await stored(backend.store, digest.hex(), digest) for digest in DIGESTS}
    slot = redis_cluster.slot_of("{strata:3}")
    source = redis_cluster.node_for_slot(slot)
    target = next(each for each in redis_cluster.masters if each is not source)
    redis_cluster.move_slot(slot, target, half_way=True)
    for digest, entry in entries.items():
        assert await _tried(backend.store, digest) in (entry, None)
    with contextlib.suppress(StoreError):  # when the version is in the other half than the count
        await backend.store.invalidate(["prices"])
        assert [await _tried(backend.store, digest) for digest in DIGESTS] == [None] * len(DIGESTS)
    redis_cluster.move_slot(slot, target)
    await backend.store.invalidate(["prices"])
    for digest in DIGESTS:
        assert isinstance(await backend.store.get(digest, TAGS), Absent)
        await stored(backend.store, "new", digest)


async def test_an_empty_slot_that_moves_is_asked_for_where_it_goes(
    redis_cluster: ClusterDeployment, backend: Backend
) -> None:
    assert isinstance(await backend.store.get(DIGESTS[0], ()), Absent)  # connected
    slot = redis_cluster.slot_of("{strata:3}")
    source = redis_cluster.node_for_slot(slot)
    target = next(each for each in redis_cluster.masters if each is not source)
    redis_cluster.move_slot(slot, target, half_way=True)
    assert await backend.store.put(DIGESTS[3], entry_of()) == "stored"
    assert isinstance(await backend.store.get(DIGESTS[3]), Entry)
    redis_cluster.move_slot(slot, target)
    assert isinstance(await backend.store.get(DIGESTS[3]), Entry)


async def test_a_master_of_a_cluster_dies(redis_cluster: ClusterDeployment, backend: Backend) -> None:
    entries = {digest: await stored(backend.store, digest.hex(), digest) for digest in DIGESTS}
    await backend.store.invalidate(["another"])  # returns when the replicas have all that was written before
    redis_cluster.kill(redis_cluster.node_for_slot(redis_cluster.slot_of("{strata:0}")))
    tried = [await _tried(backend.store, digest) for digest in DIGESTS]
    assert None in tried
    assert any(tried), "the other masters answer"
    with pytest.raises(StoreError):
        await backend.store.invalidate(["prices"])
    redis_cluster.wait_for_failover()
    for digest, entry in entries.items():
        found = await eventually(lambda digest=digest: backend.store.get(digest, TAGS))
        assert isinstance(found, Absent) or found == entry  # the invalidation failed: some may still answer
    await eventually(lambda: backend.store.invalidate(["prices"]))
    for digest in DIGESTS:
        assert isinstance(await backend.store.get(digest, TAGS), Absent)


async def _tried(store: Store, digest: bytes) -> Entry | None:
    """The entry; None for a miss and for an error."""
    try:
        found = await store.get(digest, TAGS)
    except StoreError:
        return None
    return found if isinstance(found, Entry) else None
