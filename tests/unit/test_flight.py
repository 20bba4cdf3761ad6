"""Single-flight: one call per key, live chunks for followers, nobody taken down by another client."""

from __future__ import annotations

import asyncio

import pytest

from stratacache.errors import UpstreamError
from stratacache.pipeline.flight import OUTDATED, Chunk, Flight, FlightTable, Head, Landing
from stratacache.types import Key, Usage

KEY = Key(b"d" * 32, b"form")
SNAPSHOT = (("*", 7),)
OTHER = Key(b"e" * 32, b"other form")
HEAD = Head(200, (), streaming=True, seconds=0.0)
LANDING = Landing(b"{}", {}, Usage(), done=True)


class Script:
    """A call that does what the test tells it, step by step."""

    def __init__(self) -> None:
        self.runs = 0
        self.flight: Flight | None = None
        self.cancelled = False
        self.finish = asyncio.Event()

    async def __call__(self, flight: Flight) -> None:
        self.runs += 1
        self.flight = flight
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_identical_requests_share_one_call() -> None:
    table, script = FlightTable(), Script()
    seats = [table.board(KEY, SNAPSHOT, True, script, share=True) for _ in range(16)]
    await settle()
    assert script.runs == 1
    assert [seat.led for seat in seats] == [True] + [False] * 15
    table.check()
    for seat in seats:
        seat.leave()


async def test_other_keys_and_unshared_requests_fly_alone() -> None:
    table, script = FlightTable(), Script()
    seats = [
        table.board(KEY, SNAPSHOT, True, script, share=True),
        table.board(OTHER, SNAPSHOT, True, script, share=True),
        table.board(KEY, SNAPSHOT, True, script, share=False),
    ]
    await settle()
    assert script.runs == 3
    assert all(seat.led for seat in seats)
    for seat in seats:
        seat.leave()


async def test_equal_digest_with_another_form_is_not_joined() -> None:
    table, script = FlightTable(), Script()
    first = table.board(KEY, SNAPSHOT, True, script, share=True)
    second = table.board(Key(KEY.digest, b"another form"), SNAPSHOT, True, script, share=True)
    assert second.led
    table.check()
    first.leave()
    second.leave()


async def test_followers_hear_chunks_live_and_from_the_first_on() -> None:
    table, script = FlightTable(), Script()
    leader = table.board(KEY, SNAPSHOT, True, script, share=True)
    await settle()
    flight = leader.flight
    flight.depart(HEAD)
    flight.relay([Chunk(b"1", b"1")])
    follower = table.board(KEY, SNAPSHOT, True, script, share=True)
    heard = follower.flight.listen()
    assert [c.payload for c in await anext(heard)] == [b"1"]
    waiting = asyncio.ensure_future(anext(heard))
    await settle()
    assert not waiting.done()
    flight.relay([Chunk(b"2", b"2")])
    assert [c.payload for c in await waiting] == [b"2"]
    flight.land(LANDING)
    with pytest.raises(StopAsyncIteration):
        await anext(heard)
    leader.leave()
    follower.leave()


async def test_a_leader_that_leaves_takes_nobody_with_it() -> None:
    table, script = FlightTable(), Script()
    leader = table.board(KEY, SNAPSHOT, False, script, share=True)
    follower = table.board(KEY, SNAPSHOT, False, script, share=True)
    await settle()
    leader.leave()
    await settle()
    assert not script.cancelled
    follower.flight.land(LANDING)
    assert await follower.flight.wait_landing() == LANDING
    follower.leave()


async def test_the_call_is_aborted_when_the_last_listener_leaves() -> None:
    table, script = FlightTable(), Script()
    seats = [table.board(KEY, SNAPSHOT, True, script, share=True) for _ in range(2)]
    await settle()
    for seat in seats:
        seat.leave()
        seat.leave()
    assert len(table) == 0
    await settle()
    assert script.cancelled
    assert seats[0].flight.failure is not None
    newcomer = table.board(KEY, SNAPSHOT, True, script, share=True)
    assert newcomer.led
    newcomer.leave()


async def test_a_failure_reaches_everybody() -> None:
    table, script = FlightTable(), Script()
    seats = [table.board(KEY, SNAPSHOT, True, script, share=True) for _ in range(3)]
    await settle()
    waits = [asyncio.ensure_future(seat.flight.wait_head()) for seat in seats]
    await settle()
    seats[0].flight.fail(UpstreamError("gone"))
    for wait in waits:
        with pytest.raises(UpstreamError, match="gone"):
            await wait
    for seat in seats:
        seat.leave()


async def test_a_listener_hears_what_came_before_the_break_and_then_the_break() -> None:
    table, script = FlightTable(), Script()
    seat = table.board(KEY, SNAPSHOT, True, script, share=True)
    await settle()
    seat.flight.depart(HEAD)
    seat.flight.relay([Chunk(b"1", None)])
    seat.flight.fail(UpstreamError("cut", code="upstream_cut"))
    heard = seat.flight.listen()
    assert [c.payload for c in await anext(heard)] == [b"1"]
    with pytest.raises(UpstreamError, match="cut"):
        await anext(heard)
    seat.leave()


async def test_a_run_that_ends_without_a_word_fails_its_listeners() -> None:
    async def silent(flight: Flight) -> None:
        return

    table = FlightTable()
    seat = table.board(KEY, SNAPSHOT, True, silent, share=True)
    with pytest.raises(UpstreamError):
        await seat.flight.wait_landing()
    seat.leave()


async def test_a_cancelled_waiter_harms_no_other() -> None:
    table, script = FlightTable(), Script()
    first = table.board(KEY, SNAPSHOT, True, script, share=True)
    second = table.board(KEY, SNAPSHOT, True, script, share=True)
    await settle()
    doomed = asyncio.ensure_future(first.flight.wait_landing())
    patient = asyncio.ensure_future(second.flight.wait_landing())
    await settle()
    doomed.cancel()
    first.leave()
    second.flight.land(LANDING)
    assert await patient == LANDING
    second.leave()


async def test_nobody_joins_a_run_that_ended_without_a_word() -> None:
    async def silent(flight: Flight) -> None:
        return

    table = FlightTable()
    seat = table.board(KEY, SNAPSHOT, True, silent, share=True)
    with pytest.raises(UpstreamError):
        await seat.flight.wait_landing()
    newcomer = table.board(KEY, SNAPSHOT, True, Script(), share=True)
    assert newcomer.led
    table.check()
    newcomer.leave()
    seat.leave()


async def test_those_who_ask_again_do_so_together_but_only_with_their_like() -> None:
    table, script = FlightTable(), Script()
    plain, stream = {"stream": False}, {"stream": True}
    first = table.board(KEY, SNAPSHOT, plain, script, share=True, alike=True)
    second = table.board(KEY, SNAPSHOT, plain, script, share=True, alike=True)
    other = table.board(KEY, SNAPSHOT, stream, script, share=True, alike=True)
    newcomer = table.board(KEY, SNAPSHOT, stream, script, share=True)
    assert [seat.led for seat in (first, second, other, newcomer)] == [True, False, True, True]
    table.check()
    for seat in (first, second, other, newcomer):
        seat.leave()
    assert len(table) == 0


async def test_requests_of_two_snapshots_do_not_share_a_call() -> None:
    table, before, after = FlightTable(), Script(), Script()
    old = table.board(KEY, SNAPSHOT, True, before, share=True)
    new = table.board(KEY, (("*", 8),), True, after, share=True)
    await settle()
    assert (old.led, new.led, before.runs, after.runs) == (True, True, 1, 1)
    for seat in (old, new):
        seat.leave()


async def test_after_the_grace_a_silent_call_for_an_invalidated_tag_is_given_up() -> None:
    table, silent, streaming, other = FlightTable(), Script(), Script(), Script()
    seats = [
        table.board(KEY, SNAPSHOT, True, silent, share=True),
        table.board(OTHER, SNAPSHOT, True, streaming, share=True),
        table.board(OTHER, (("*", 9),), True, other, share=True),
    ]
    await settle()
    assert streaming.flight is not None
    streaming.flight.depart(HEAD)
    table.hear((("*", 9),), 0.0)
    with pytest.raises(UpstreamError) as given_up:
        await seats[0].flight.wait_landing()
    assert given_up.value.code == OUTDATED
    await settle()
    assert (silent.cancelled, streaming.cancelled, other.cancelled) == (True, False, False)
    for seat in seats:
        seat.leave()


async def test_who_fails_is_off_the_table_at_once_though_the_call_goes_on() -> None:
    table, script = FlightTable(), Script()
    seat = table.board(KEY, SNAPSHOT, True, script, share=True)
    await settle()
    seat.flight.fail(UpstreamError("stored meanwhile"))
    table.check()
    assert len(table) == 0
    assert seat.flight.closed.is_set()
    assert table.board(KEY, SNAPSHOT, True, script, share=True).led
    script.finish.set()
    await settle()
    seat.leave()
