"""What a Redis URL says: where the servers are, how they hang together, and who asks."""

from __future__ import annotations

import ssl
from typing import Literal
from urllib.parse import parse_qsl, unquote

import msgspec

from stratacache.errors import SettingsError
from stratacache.types import Secret

Address = tuple[str, int]
"""Host and port."""

Topology = Literal["standalone", "cluster", "sentinel"]

DEFAULT_PREFIX = "strata"
_PORTS: dict[Topology, int] = {"standalone": 6379, "cluster": 6379, "sentinel": 26379}


class RedisPlace(msgspec.Struct, frozen=True):
    """A Redis deployment. ``addresses`` are seeds of a cluster, or the sentinels that watch ``master``.

    ``tls`` is None for clear text; the same certificates serve for sentinels and servers.
    """

    topology: Topology
    addresses: tuple[Address, ...]
    user: str = ""
    password: Secret = Secret()
    database: int = 0
    master: str = ""
    prefix: str = DEFAULT_PREFIX
    sentinel_password: Secret = Secret()
    tls: ssl.SSLContext | None = None
    tls_name: str = ""


def parse_redis_url(url: str) -> RedisPlace:
    """``redis[s][+cluster|+sentinel]://[user[:password]@]host[:port],…[/master][/database][?option=value&…]``.

    Options: ``prefix`` of all keys; ``sentinel_password``; with TLS ``ca``, ``cert`` and ``key`` (PEM files) and
    ``tls_name`` (the name that the certificate must have, when it is not the host's).

    Raises:
        SettingsError: it is no such URL, or a file of it cannot be used. The message never repeats the URL.
    """
    scheme, _, rest = url.partition("://")
    secure = scheme.startswith("rediss")
    topology = _topology(scheme)
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    login, _, hosts = authority.rpartition("@")
    user, _, password = login.partition(":")
    options = dict(parse_qsl(query, keep_blank_values=True))
    master, database = _master_and_database(topology, path)
    place = RedisPlace(
        topology=topology,
        addresses=tuple(_address(host, _PORTS[topology]) for host in hosts.split(",")),
        user=unquote(user),
        password=Secret(unquote(password)),
        database=database,
        master=master,
        prefix=options.pop("prefix", DEFAULT_PREFIX),
        sentinel_password=Secret(options.pop("sentinel_password", "")),
        tls=_tls(options) if secure else None,
        tls_name=options.pop("tls_name", "") if secure else "",
    )
    if options:
        raise SettingsError(f"store: a {scheme}:// URL has an option that it does not know")
    return place


def _topology(scheme: str) -> Topology:
    kinds: dict[str, Topology] = {"": "standalone", "+cluster": "cluster", "+sentinel": "sentinel"}
    kind = kinds.get(scheme.removeprefix("rediss").removeprefix("redis"))
    if kind is None or not scheme.startswith("redis"):
        raise SettingsError("store: must be redis:// or rediss://, with +cluster or +sentinel")
    return kind


def _address(text: str, port: int) -> Address:
    host, given = text, ""
    if text.startswith("["):  # an IPv6 address
        host, _, given = text[1:].partition("]")
        given = given.removeprefix(":")
    elif ":" in text:
        host, _, given = text.rpartition(":")
    if not host or (given and not (given.isdecimal() and 0 < int(given) < 65536)):
        raise SettingsError(
            "store: a Redis URL must name hosts as host:port, several with commas between them"
        )
    return host, int(given or port)


def _master_and_database(topology: Topology, path: str) -> tuple[str, int]:
    master = ""
    if topology == "sentinel":
        master, _, path = path.partition("/")
        if not master:
            raise SettingsError("store: must name the master that the sentinels watch: …:26379/mymaster")
    if path and not path.isdecimal():
        raise SettingsError(
            "store: the number of a database stands after the host of a Redis URL, such as /0"
        )
    if topology == "cluster" and int(path or 0):
        raise SettingsError("store: a Redis cluster has the database 0 only")
    return master, int(path or 0)


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    """Certificates and host names are always verified; an own authority is named by ``ca``."""
    ca, cert, key = options.pop("ca", None), options.pop("cert", None), options.pop("key", None)
    for name, path in (("ca", ca), ("cert", cert), ("key", key)):
        _require_readable(name, path)
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is one
        given = ", ".join(
            f"{name}={path}" for name, path in (("ca", ca), ("cert", cert), ("key", key)) if path
        )
        reason = error.strerror or "no certificate or key in PEM form"
        raise SettingsError(f"store: a TLS file cannot be used ({given}): {reason}") from None
    return context


def _require_readable(name: str, path: str | None) -> None:
    """ssl says what is wrong with a file, and not with which."""
    try:
        if path is not None:
            with open(path, "rb"):
                pass
    except OSError as error:
        raise SettingsError(f"store: the TLS file {name}={path}: {error.strerror}") from None
