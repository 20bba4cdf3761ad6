"""Talks to a running gateway for the commands that ask it something."""

from __future__ import annotations

import argparse
import http.client
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from stratacache.errors import StrataError
from stratacache.settings import load
from stratacache.types import JSON

TIMEOUT = 10.0  # seconds


def add_gateway_arguments(parser: argparse.ArgumentParser) -> None:
    """``--url``, ``--api-key-env`` and ``--json``."""
    parser.add_argument("--url", help="the gateway's address (default: from the configuration)")
    parser.add_argument(
        "--api-key-env",
        metavar="NAME",
        default="STRATACACHE_API_KEY",
        help="environment variable that holds a key with admin rights (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def ask_gateway(
    args: argparse.Namespace,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    member: str,
    timeout: float = TIMEOUT,
    more: Mapping[str, str] | None = None,
) -> JSON:
    """The decoded JSON answer, an object; ``member`` is one that a gateway's answer always has.

    ``timeout`` in seconds; ``more`` are further headers.

    Raises:
        StrataError: nobody answers there, or the gateway refused; says why.
    """
    url = args.url or configured_url(args.config)
    connection = _connection(url, timeout)
    key = os.environ.get(args.api_key_env)
    headers = {"content-type": "application/json", **(more or {})}
    if key:
        headers["authorization"] = f"Bearer {key}"
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise StrataError(
            f"no gateway answers at {url} ({error}); start one with 'stratacache serve'"
        ) from None
    finally:
        connection.close()
    return _checked(url, response.status, answer, member)


def _connection(url: str, timeout: float) -> http.client.HTTPConnection:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise StrataError(f"--url {url!r} is not an http(s) address")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(host, port, timeout=timeout)


def _checked(url: str, status: int, answer: bytes, member: str) -> JSON:
    try:
        value = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        raise StrataError(
            f"{url} answered {status} with something that is not JSON; is it a gateway?"
        ) from None
    if status not in (200, 202):
        error = value.get("error") if isinstance(value, dict) else None
        reason = error.get("message") if isinstance(error, dict) else None
        raise StrataError(f"the gateway refused ({status}): {reason or 'no reason given'}")
    if not isinstance(value, dict) or member not in value:
        raise StrataError(f"{url} answered with something that no gateway says; is it a gateway?")
    return value


def configured_url(config: str | None) -> str:
    """Where the gateway of this configuration is reached from its own machine."""
    server = load(config, os.environ).server
    host = "127.0.0.1" if server.host in ("0.0.0.0", "::") else server.host  # noqa: S104 - compares, does not bind
    return f"http://{'[' + host + ']' if ':' in host else host}:{server.port}"
