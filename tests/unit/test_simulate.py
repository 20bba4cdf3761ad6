"""The simulator: figures of a trace small enough to count by hand, and every policy over the same trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from stratacache.errors import StrataError
from stratacache.lab.simulate import FleetSize, Router, bounds, percentile, rate_for, replay, routers
from stratacache.lab.simulate_traces import TraceRequest, read_trace, summary, text_blocks


def request(at: float, *blocks: str) -> TraceRequest:
    return TraceRequest(at, tuple(block.encode() for block in blocks))


def conversations(count: int, turns: int) -> list[TraceRequest]:
    """All begin with the same block; every turn adds one, conversations take turns."""
    return [
        request(float(turn * count + who), "system", *(f"{who}:{i}" for i in range(turn + 1)))
        for turn in range(turns)
        for who in range(count)
    ]


class First:
    def route(self, prefix: Sequence[bytes], backlog: Sequence[float]) -> int:
        return 0

    def served(self, cached: int) -> None: ...


def first(size: FleetSize, caches: object) -> Router:
    return First()


def test_figures_that_can_be_counted_by_hand() -> None:
    trace = [
        request(0, "a", "b", "c"),
        request(0, "a", "b", "d"),
        request(1, "x"),
        request(10, "a", "b", "c"),
    ]
    outcome = replay(trace, FleetSize(2, 4, 2.0), "first", first)
    # The second finds a and b. Then x pushes out c, and the last finds a and b.
    assert outcome.hits == pytest.approx(4 / 10)
    assert outcome.backlog == 4  # 3, then 3 + 1; a second later 2 + 1; at last 1
    assert outcome.busiest == 2


def test_bounds() -> None:
    trace = [request(0, "a", "b"), request(1, "c", "d"), request(2, "a", "b")]
    most = bounds(trace, sizes=(2, 4))
    assert most.infinite == pytest.approx(2 / 6)
    assert most.lru == {2: 0, 4: pytest.approx(2 / 6)}


def test_affinity_finds_what_is_to_be_found_and_spreads_it() -> None:
    trace = conversations(count=40, turns=6)
    size = FleetSize(4, 1000, rate_for(trace, 4, 0.5))
    found = {name: replay(trace, size, name, make) for name, make in routers().items()}
    most = bounds(trace).infinite
    assert found["affinity"].hits >= most - 0.02
    assert found["affinity"].busiest < 1.3
    assert found["hash of the first block"].busiest == 4
    assert found["round robin"].hits <= most


def test_the_same_trace_gives_the_same_figures() -> None:
    trace = conversations(count=10, turns=4)
    size = FleetSize(3, 20, 2.0)
    for name, make in routers().items():
        assert replay(trace, size, name, make) == replay(trace, size, name, make)


def test_reports_correct_a_model_that_believes_in_caches_twice_as_large() -> None:
    trace = conversations(count=40, turns=8)
    size = FleetSize(4, 40, rate_for(trace, 4, 0.5))
    found = {name: replay(trace, size, name, make).hits for name, make in routers().items()}
    assert found["affinity, believes 2 x"] >= 0.8 * found["affinity"]


def test_rates_and_percentiles() -> None:
    trace = [request(0, "a"), request(10, *"bcdefghij")]
    assert rate_for(trace, 2, 0.5) == 1.0  # ten blocks in ten seconds over two, half of the time
    assert percentile([3, 1, 2], 0.99) == 3
    assert percentile(list(range(1, 101)), 0.5) == 50


def test_mooncakes_format(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 3000, "input_length": 600, "output_length": 5, "hash_ids": [0, 7]},
        {"timestamp": 1000, "input_length": 100, "output_length": 5, "hash_ids": [0]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    trace = read_trace(path, 512)
    assert trace == [TraceRequest(0, (b"0",)), TraceRequest(2, (b"0", b"7"))]
    assert summary(trace) == {"requests": 2, "seconds": 2, "blocks": 3, "longest": 2}


def test_texts_are_cut_into_a_chain_of_blocks(tmp_path: Path) -> None:
    one, two = text_blocks("x" * 200, 16), text_blocks("x" * 128 + "y" * 100, 16)
    assert len(one) == len(two) == 3
    assert one[:2] == two[:2]
    assert one[2] != two[2]
    assert one[0] != one[1]  # the same text, after another beginning
    path = tmp_path / "agent.jsonl"
    path.write_text(json.dumps({"timestamp": 5_000_000, "input": "x" * 200, "output": "", "session_id": "s"}))
    assert read_trace(path, 16) == [TraceRequest(0, one)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no requests in it"),
        ("TIMESTAMP\tContextTokens\n", "lengths and no prefixes"),
        ('{"timestamp": 1, "input_length": 3}', "line 1 has lengths and no prefixes"),
        ('{"hash_ids": [1]}', "no timestamp"),
        ('{"timestamp": 1, "hash_ids": ["a"]}', "line 1: "),
        ("{", "line 1: "),
    ],
)
def test_files_that_are_no_trace(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(StrataError, match=words):
        read_trace(path, 512)
    with pytest.raises(StrataError, match="cannot read"):
        read_trace(tmp_path / "none", 512)
