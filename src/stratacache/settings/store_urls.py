"""The kinds of stores that the setting ``store`` may name, and the shape of their URLs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SCHEMES = (
    "memory",
    "sqlite",
    "rocksdb",
    "redis",
    "rediss",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
    "memcached",
)
ONE_PROCESS = frozenset({"memory", "rocksdb"})
"""Stores that only the process which opened them can use."""
_IN_FILES = frozenset({"sqlite", "rocksdb"})

_PLACES = "sqlite:///relative/path, sqlite:////absolute/path or memory://"
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_MASTER = re.compile(r"/[A-Za-z0-9._-]{1,64}(?:/[0-9]{1,4})?")
_DATABASE = re.compile(r"(?:/[0-9]{0,4})?")
_TLS_FILES = ("ca", "cert", "key")

Check = Callable[[str], str | None]  # what follows "://" → why it is wrong, without repeating it


def scheme_of(url: str) -> str:
    """``sqlite:///x`` → ``sqlite``; "" when it is no URL."""
    scheme, found, _ = url.partition("://")
    return scheme if found else ""


def path_of(url: str) -> Path | None:
    """The file or folder that a store's URL names, None for a store that is elsewhere."""
    scheme, _, rest = url.partition("://")
    return Path(rest[1:]).expanduser() if scheme in _IN_FILES else None


def store_problem(url: str) -> str | None:
    """Why ``url`` cannot be a store's, without repeating it (it may hold a password), or None. Opens nothing."""
    scheme, found, rest = url.partition("://")
    if not found:
        return f"must be a URL: {_PLACES}, or one of a shared server such as redis://host:6379"
    if scheme not in SCHEMES:
        near = difflib.get_close_matches(scheme, SCHEMES, n=1)
        hint = f"did you mean {near[0]}://? " if near else ""
        return f"unknown kind of store; {hint}known: {', '.join(f'{name}://' for name in SCHEMES)}"
    if re.search(r"\s|\\|[^ -~]", rest) and scheme not in ("sqlite", "rocksdb"):
        return "must not contain spaces, backslashes or non-ASCII characters; percent-encode them"
    if scheme == "memory":
        return None if not rest else "memory:// takes nothing after it"
    if scheme in ("sqlite", "rocksdb"):
        return _path_problem(scheme, rest)
    return _server_problem(scheme, rest)


def _path_problem(scheme: str, rest: str) -> str | None:
    if re.fullmatch(r"/[^?#]*[^?#/]", rest):
        return None
    kind = "file" if scheme == "sqlite" else "folder"
    return f"must name a {kind}: {scheme}:///relative/path or {scheme}:////absolute/path"


class _Server(NamedTuple):
    """The parts of a server's URL; ``user`` is None when there is no ``@``."""

    user: str | None
    hosts: list[str]
    path: str
    query: str


def _server_problem(scheme: str, rest: str) -> str | None:
    # A password with one of these in clear ends up, in part, where the hosts or the path are sought.
    if "#" in rest or "@" in re.sub(r"^[^/?@]*@", "", rest):
        return "holds a '#' or '@' where none belongs; in a user name or password write %23, %40, %2F and %3F"
    before, _, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    user, at, hosts = authority.rpartition("@")
    server = _Server(user if at else None, hosts.split(","), slash + path, query)
    return (
        _user_problem(scheme, server)
        or _hosts_problem(scheme, server)
        or _path_of_server_problem(scheme, server)
        or _options_problem(scheme, server)
    )


def _user_problem(scheme: str, server: _Server) -> str | None:
    if server.user is not None and scheme == "memcached":
        return "memcached:// takes no user or password; fence such servers by the network"
    if server.user is not None and not re.fullmatch(r"[^:]*(:[^:]*)?", server.user):
        return "holds more than user:password before the '@'; write ':' within them as %3A"
    return None


def _hosts_problem(scheme: str, server: _Server) -> str | None:
    if server.hosts == [""]:
        return f"names no host: {scheme}://host:port"
    for host in server.hosts:
        match = _HOST.fullmatch(host)
        if match is None or not 0 < int(match["port"] or 1) < 65536:
            return (
                "must name hosts as host:port with a port from 1 to 65535, several with commas between them"
            )
    if len(server.hosts) > 1 and scheme in ("redis", "rediss"):
        return f"names several hosts; use {scheme}+cluster:// or {scheme}+sentinel://"
    return None


def _path_of_server_problem(scheme: str, server: _Server) -> str | None:
    if scheme in ("redis", "rediss"):
        good = _DATABASE.fullmatch(server.path)
        return None if good else "takes nothing but the number of a database after the host, such as /0"
    if scheme.endswith("+sentinel"):
        good = _MASTER.fullmatch(server.path)
        return (
            None if good else f"must name the master that the sentinels watch: {scheme}://host:26379/mymaster"
        )
    good_paths = ("", "/", "/0") if scheme.endswith("+cluster") else ("", "/")
    return None if server.path in good_paths else f"{scheme}:// takes no path after the hosts"


def _options_problem(scheme: str, server: _Server) -> str | None:
    if not server.query:
        return None
    known = _options(scheme)
    given: dict[str, str] = {}
    for part in server.query.split("&"):
        name, _, value = part.partition("=")
        if name not in known:
            return _unknown_option(name, scheme, known)
        if name in given:
            return f"gives the option {name} twice"
        given[name] = value
        if not known[name].fullmatch(value):
            return f"has an option {name} whose value is none: {_EXPECTED[name]}"
    if ("cert" in given) != ("key" in given):
        return "needs cert and key together: the client's certificate and its private key"
    return None


_EXPECTED = {
    "prefix": "1 to 64 letters, digits, '.', '_', ':' or '-'",
    "tls_name": "the name in the server's certificate",
    "sentinel_password": "a password, percent-encoded",
    **dict.fromkeys(_TLS_FILES, "the path of a PEM file"),
}
_PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,64}")


def _options(scheme: str) -> dict[str, re.Pattern[str]]:
    """The options of one kind of server, each with the form of its value."""
    known = {"prefix": _PREFIX}
    if scheme.startswith("rediss"):
        known |= dict.fromkeys((*_TLS_FILES, "tls_name"), re.compile(r".+"))
    if scheme.endswith("+sentinel"):
        known["sentinel_password"] = re.compile(r".+")
    return known


def _unknown_option(name: str, scheme: str, known: dict[str, re.Pattern[str]]) -> str:
    if name in _TLS_FILES and scheme.startswith("redis"):
        return f"has the option {name}, which is for TLS: use {scheme.replace('redis', 'rediss', 1)}://"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"has an unknown option; {hint}known: {', '.join(known)}"
