"""Which request headers travel upstream, and which response headers travel back."""

from __future__ import annotations

from collections.abc import Mapping

# RFC 9110 section 7.6.1: these describe one connection and end with it.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Host, length and encoding are the new connection's own, and Expect was answered here. Cookies were meant for
# this server and not for what stands behind it.
_NOT_FORWARDED = _HOP_BY_HOP | {"host", "content-length", "accept-encoding", "expect", "cookie"}
_CREDENTIALS = frozenset({"authorization", "api-key", "x-api-key"})
# Cookies, alternative addresses and transport rules hold for the upstream's host, not for this one; this
# server writes its own Date and Server.
_NOT_RELAYED = _HOP_BY_HOP | {"set-cookie", "alt-svc", "strict-transport-security", "date", "server"}
_OURS = "x-strata-"


def outgoing(headers: Mapping[str, str], *, own: Mapping[str, str], credentials: bool) -> dict[str, str]:
    """The request headers to send, lower-case names: those that may travel, then ``own``, which win.

    The caller's credential travels only when ``credentials`` is True.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    named = {token.strip().lower() for token in lower.get("connection", "").split(",")}
    dropped = _NOT_FORWARDED | named | (frozenset() if credentials else _CREDENTIALS)
    kept = {n: v for n, v in lower.items() if n not in dropped and not n.startswith(_OURS)}
    return {**kept, **own}


def incoming(headers: Mapping[str, str]) -> dict[str, str]:
    """The response headers that describe the answer rather than the connection, lower-case names.

    The body is handed on decoded, so a content-encoding and the encoded length are dropped.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    named = {token.strip().lower() for token in lower.get("connection", "").split(",")}
    dropped = _NOT_RELAYED | named
    if "content-encoding" in lower:
        dropped = dropped | {"content-encoding", "content-length"}
    return {n: v for n, v in lower.items() if n not in dropped and not n.startswith(_OURS)}
