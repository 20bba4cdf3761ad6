"""The event-stream parser and encoder on the standard's own cases and on servers' habits."""

import pytest

from stratacache.dialects.sse import DONE, Event, SSEParser, encode, encode_stream
from stratacache.errors import UpstreamError


def parse(*chunks: bytes, max_event: int = 1000) -> list[Event]:
    parser = SSEParser(max_event)
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.finish()


def data(*chunks: bytes) -> list[bytes]:
    return [event.data for event in parse(*chunks)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b'data: {"a":1}\n\ndata: [DONE]\n\n', [b'{"a":1}', DONE]),
        (b'data:{"a":1}\n\n', [b'{"a":1}']),
        (b"data:  two spaces\n\n", [b" two spaces"]),
        (b"id: 1\ndata:  two spaces\n\n", [b" two spaces"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\n\ndata: b\n\r\n", [b"a", b"b"]),
        (b"data: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"\n\ndata: a\n\n", [b"a"]),
        (b": keep-alive\n\ndata: a\n\n: PROCESSING\n\n", [b"a"]),
        (b":\ndata: a\n:\n\n", [b"a"]),
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [b"YHOO\n+2\n10"]),
        (b"data\n\ndata\ndata\n\ndata:", [b"", b"\n", b""]),
        (b"test: x\nretry: 5\n\ndata: a\n\n", [b"a"]),
        (b"data : a\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [b"b"]),
        (b"", []),
        (b"\xef\xbb", []),
    ],
)
def test_the_standards_cases(stream: bytes, expected: list[bytes]) -> None:
    assert data(stream) == expected
    assert data(*(stream[i : i + 1] for i in range(len(stream)))) == expected


def test_event_and_id_belong_to_their_own_event() -> None:
    events = parse(b"event: ping\nid: 7\ndata: a\n\ndata: b\n\nevent: only\n\n")
    assert events == [Event(b"a", "ping", "7"), Event(b"b")]


def test_a_character_split_over_two_chunks_stays_whole() -> None:
    whole = "data: 缓存\n\n".encode()
    for cut in range(len(whole)):
        assert data(whole[:cut], whole[cut:]) == ["缓存".encode()]


def test_a_cr_at_the_end_of_a_chunk_ends_the_event_at_once() -> None:
    parser = SSEParser()
    assert parser.feed(b"data: a\r\n\r") == [Event(b"a")]
    assert parser.feed(b"\ndata: b\n\n") == [Event(b"b")]


def test_a_cr_at_the_end_of_a_rest_keeps_its_lf() -> None:
    parser = SSEParser()
    assert parser.feed(b"data: a\r\n\r\ndata: b\r") == [Event(b"a")]
    assert parser.feed(b"\ndata: c\r\n\r\n") == [Event(b"b\nc")]


def test_a_stream_that_ends_without_an_empty_line_hands_out_its_last_event() -> None:
    assert data(b"data: a\n\ndata: [DONE]") == [b"a", DONE]
    assert data(b"data: a\n\ndata: [DONE]\n") == [b"a", DONE]


def test_an_event_may_have_max_event_bytes_and_no_more() -> None:
    event = b"data: " + b"x" * 94
    assert len(event) == 100
    for tail in (b"\n\n", b"\r\n\r\n", b"\n", b""):
        assert len(parse(b"\n" + event, tail, max_event=100)) == 1
        assert len(parse(b"data: a\n\n" + event, tail, max_event=100)) == 2
        with pytest.raises(UpstreamError, match="more than 100 bytes") as caught:
            parse(event + b"y" + tail, max_event=100)
        assert caught.value.code == "upstream_malformed"


def test_an_endless_event_is_refused_while_it_arrives() -> None:
    parser = SSEParser(100)
    for _ in range(10):
        assert parser.feed(b"data: 0123") == []
    with pytest.raises(UpstreamError):
        parser.feed(b"data: 0123")


def test_encode_and_parse_are_inverse() -> None:
    assert encode(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert data(encode(b"a\nb\r\nc")) == [b"a\nb\nc"]
    assert encode_stream([b"1", b"2"]) == encode(b"1") + encode(b"2") + encode(DONE)
    assert encode_stream([]) == encode(DONE)
