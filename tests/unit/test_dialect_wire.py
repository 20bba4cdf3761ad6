"""Bad request bodies: one clear refusal each, and never more than linear work."""

import sys

import pytest

from stratacache.dialects.wire import MAX_CONTAINERS, decode_answer, decode_body, encode
from stratacache.errors import RequestError


@pytest.mark.parametrize(
    ("raw", "code", "words"),
    [
        (b"", "empty_body", "empty"),
        (b" \r\n", "empty_body", "empty"),
        (b"{", "invalid_json", "middle of a value at byte 1"),
        (b'{"a":1', "invalid_json", "at byte 6"),
        (b'{"a":1,}', "invalid_json", "trailing comma in object at byte 7"),
        (b'{"a":1} x', "invalid_json", "trailing characters"),
        (b"{'a':1}", "invalid_json", "object keys must be strings at byte 1"),
        (b'{"a":NaN}', "invalid_json", "invalid character at byte 5"),
        (b'{"a":"\x01"}', "invalid_json", "byte 6"),
        (b'{"a":1e999}', "invalid_json", "number that is out of range"),
        (b'{"a":' + b"9" * 5000 + b"}", "invalid_json", "number that is out of range"),
        (b'{"a":"\\ud83d"}', "invalid_json", "surrogate pair"),
        (b'{"a":"\\ud83d x"}', "invalid_json", "half of a surrogate pair"),
        (b"\xef\xbb\xbf{}", "invalid_json", "byte order mark"),
        (b'{"a":"\xff"}', "invalid_encoding", "byte 6"),
        (b'"\xff', "invalid_encoding", "byte 1"),
        ('{"a":1}'.encode("utf-16"), "invalid_encoding", "UTF-8"),
        (b"[1]", "invalid_json", "but is an array"),
        (b"null", "invalid_json", "but is null"),
        (b"true", "invalid_json", "but is a boolean"),
        (b'"a"', "invalid_json", "but is a string"),
        (b"1.5", "invalid_json", "but is a number"),
        (b"[" * 129 + b"]" * 129, "nesting_too_deep", "more than 128 deep"),
        (b'{"a":' * 129 + b"1" + b"}" * 129, "nesting_too_deep", "more than 128 deep"),
        (b"[" * 100_000 + b"]" * 100_000, "nesting_too_deep", "more than 128 deep"),
        (b"[" * 8_000_000, "too_many_values", "Split it"),
        (b'{"a":[' + b"[]," * MAX_CONTAINERS + b"1]}", "too_many_values", "Split it"),
    ],
)
def test_a_bad_body_is_refused_with_its_reason(raw: bytes, code: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        decode_body(raw)
    assert (caught.value.status, caught.value.code) == (400, code)
    assert decode_answer(raw) is None or code == "invalid_json"


def test_the_deepest_allowed_body_passes() -> None:
    body = decode_body(b'{"a":' * 127 + b"[]" + b"}" * 127)
    assert decode_answer(encode(body)) == body


def test_many_shallow_objects_are_not_deep() -> None:
    assert len(decode_body(b'{"a":[' + b'{"b":[]},' * 500 + b"1]}")["a"]) == 501


def test_brackets_inside_text_do_not_count() -> None:
    text = '[{\\"' * (MAX_CONTAINERS // 2 + 1)
    assert decode_body(f'{{"a":"{text}"}}'.encode())["a"].startswith('[{"')


def test_the_recursion_error_of_the_decoder_never_escapes() -> None:
    deep = b"[" * (sys.getrecursionlimit() * 3)
    with pytest.raises(RequestError, match="deep"):
        decode_body(deep + b"]" * len(deep), max_depth=10**9)
    assert decode_answer(deep, max_depth=10**9) is None


def test_large_and_exact_numbers_survive() -> None:
    raw = b'{"a":[0.1,1e22,-0.0,9007199254740993,123456789012345678901234567890]}'
    assert encode(decode_body(raw)) == raw


def test_of_a_name_given_twice_the_last_counts_for_us_and_the_upstream() -> None:
    assert encode(decode_body(b'{"model":"a","model":"b"}')) == b'{"model":"b"}'
