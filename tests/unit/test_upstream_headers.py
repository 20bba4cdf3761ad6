"""Which headers cross the gateway, in either direction."""

from __future__ import annotations

import pytest

from stratacache.upstream.headers import incoming, outgoing

STAY = [
    "Connection",
    "Keep-Alive",
    "Proxy-Authorization",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Host",
    "Content-Length",
    "Accept-Encoding",
    "Expect",
    "Cookie",
    "X-Strata-Scene",
    "x-strata-anything",
]


@pytest.mark.parametrize("name", STAY)
def test_headers_of_the_clients_connection_stay_here(name: str) -> None:
    assert outgoing({name: "x", "X-Trace": "t"}, own={}, credentials=True) == {"x-trace": "t"}


def test_headers_that_connection_names_stay_here() -> None:
    headers = {"connection": "close, X-Hop", "x-hop": "1", "x-far": "2"}
    assert outgoing(headers, own={}, credentials=True) == {"x-far": "2"}


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "api-key"])
def test_the_callers_credential_travels_only_when_it_is_the_upstreams(name: str) -> None:
    assert outgoing({name: "secret"}, own={}, credentials=True) == {name.lower(): "secret"}
    assert outgoing({name: "secret"}, own={}, credentials=False) == {}


def test_our_own_headers_win() -> None:
    sent = outgoing(
        {"Content-Type": "text/plain"}, own={"content-type": "application/json"}, credentials=False
    )
    assert sent == {"content-type": "application/json"}


@pytest.mark.parametrize(
    "name", ["Set-Cookie", "Alt-Svc", "Transfer-Encoding", "Connection", "Date", "Server", "x-strata-cache"]
)
def test_headers_of_the_upstreams_connection_do_not_come_back(name: str) -> None:
    assert incoming({name: "x", "Retry-After": "7"}) == {"retry-after": "7"}


def test_a_decoded_body_keeps_no_encoding_and_no_length() -> None:
    assert incoming({"Content-Length": "5"}) == {"content-length": "5"}
    assert incoming({"Content-Length": "5", "Content-Encoding": "gzip"}) == {}
