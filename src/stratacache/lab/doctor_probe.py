"""Asks a store's server and looks at a store's files, for ``stratacache doctor``. Changes nothing."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stratacache.errors import SettingsError, StoreError
from stratacache.lab.doctor_evidence import RedisFacts
from stratacache.settings import mask_url, path_of

PINGS = 5
TIMEOUT = 5.0  # seconds for all that is asked of the servers
_OOM = re.compile(rb"errorstat_OOM:count=(\d+)")


async def redis_facts(url: str, now: Callable[[], float] = time.time) -> Sequence[RedisFacts]:
    """Of every master of the deployment.

    Raises:
        StoreError: it does not answer, or the client library is missing.
    """
    try:
        from stratacache.stores.redis_nodes import connect
        from stratacache.stores.redis_url import parse_redis_url
        from stratacache.stores.resp import Node
    except ModuleNotFoundError as error:
        raise StoreError(f"{mask_url(url)} needs {error.name}: pip install 'stratacache[redis]'") from None

    async def ask(node: Node) -> RedisFacts:
        pings = []
        for _ in range(PINGS):
            began = time.perf_counter()
            await node.call("PING")
            pings.append(time.perf_counter() - began)
        before = now()
        seconds, micros = await node.call("TIME")
        between = (before + now()) / 2
        sections = [("INFO", name) for name in ("memory", "stats", "errorstats")]
        memory, counts, errors = await node.call_all(sections)
        refused = _OOM.search(errors)
        return RedisFacts(
            address=f"{node.address[0]}:{node.address[1]}",
            ping=statistics.median(pings),
            offset=int(seconds) + int(micros) / 1e6 - between,
            used=int(_value(memory, "used_memory") or 0),
            limit=int(_value(memory, "maxmemory") or 0),
            policy=_value(memory, "maxmemory_policy"),
            evicted=int(_value(counts, "evicted_keys") or 0),
            refused=int(refused[1]) if refused else 0,
        )

    try:
        nodes = connect(parse_redis_url(url))
    except SettingsError as error:
        raise StoreError(str(error)) from error
    try:
        async with asyncio.timeout(TIMEOUT):
            return [await ask(node) for node in await nodes.masters()]
    except TimeoutError:
        raise StoreError(f"{mask_url(url)} does not answer within {TIMEOUT:g} s") from None
    finally:
        nodes.close()


def _value(info: bytes, name: str) -> str:
    """What INFO says of ``name``; "" when it says nothing."""
    found = re.search(rb"^%s:([^\r\n]*)" % name.encode(), info, re.MULTILINE)
    return found[1].decode() if found else ""


def leftovers(url: str) -> Sequence[str] | None:
    """Names of the files that were set aside as damaged, None where the store is in no file of this machine."""
    path = path_of(url)
    if path is None or not path.parent.is_dir():
        return None
    aside = sorted(Path(path.parent).glob(f"{path.name}*.corrupt-*"))
    return [one.name for one in aside if not one.name.endswith(("-wal", "-shm"))]
