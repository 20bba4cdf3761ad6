"""Any split of an event stream's bytes gives the same events."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stratacache.dialects.sse import Event, SSEParser, encode
from stratacache.errors import UpstreamError

LINES = st.sampled_from(
    [
        b"data: a",
        b"data:",
        b"data: \xe7\xbc\x93",
        b": c",
        b"event: e",
        b"id: 1",
        b"x",
        b"",
        b"\xef\xbb\xbfdata: b",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n"])
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=12).map(lambda lines: b"".join(a + b for a, b in lines))


def parse(chunks: list[bytes], max_event: int) -> list[Event] | None:
    parser = SSEParser(max_event)
    try:
        return [event for chunk in chunks for event in parser.feed(chunk)] + parser.finish()
    except UpstreamError:
        return None


def by_lines(stream: bytes) -> list[Event]:
    """The standard's own algorithm, line by line."""
    events, data, event, ident = [], [], "", ""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in [*text.split(b"\n"), b""]:
        name, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if not line:
            if data:
                events.append(Event(b"\n".join(data), event, ident))
            data, event, ident = [], "", ""
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode()
        elif name == b"id":
            ident = value.decode()
    return events


@given(STREAMS, st.lists(st.integers(0, 200)), st.sampled_from([12, 1000]))
def test_any_split_gives_the_same_events(stream: bytes, cuts: list[int], max_event: int) -> None:
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in pairwise(places)]
    expected = parse([stream], max_event)
    assert parse(chunks, max_event) == expected
    assert parse([stream[i : i + 1] for i in range(len(stream))], max_event) == expected
    if max_event == 1000:
        assert expected == by_lines(stream)


@given(st.lists(st.binary(max_size=20).filter(lambda payload: b"\r" not in payload)))
def test_what_encode_writes_the_parser_reads(payloads: list[bytes]) -> None:
    assert parse([b"".join(map(encode, payloads))], 1000) == [Event(payload) for payload in payloads]
