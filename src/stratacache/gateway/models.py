"""``GET /v1/models``: configured names and aliases, and what upstreams with wildcards list themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from stratacache.errors import UpstreamError
from stratacache.gateway.prepare import Preparer
from stratacache.ports import Upstream
from stratacache.types import JSON
from stratacache.upstream.router import Router

log = logging.getLogger(__name__)

LIST_TIMEOUT = 3.0  # seconds an upstream may take to list its models; then it is left out


class ModelList:
    """Lists what a client may ask for."""

    def __init__(self, preparer: Preparer, router: Router, upstreams: Mapping[str, Upstream]) -> None:
        self._preparer = preparer
        self._router = router
        self._upstreams = upstreams

    async def all(self, headers: Mapping[str, str]) -> dict[str, JSON]:
        """OpenAI's list object. The caller's credential goes to upstreams that have no key of their own."""
        owners = dict(self._router.models())
        lists = await asyncio.gather(
            *(self._ask(name, headers) for name in self._router.wildcard_upstreams())
        )
        for name, models in lists:
            owners.update({m: name for m in models if m not in owners and self._router.serves(name, m)})
        return {"object": "list", "data": [_model(name, owner) for name, owner in sorted(owners.items())]}

    def one(self, name: str) -> dict[str, JSON]:
        """OpenAI's model object; RequestError 404 when nobody serves ``name``."""
        return _model(name, self._router.resolve(name).upstream)

    async def _ask(self, name: str, headers: Mapping[str, str]) -> tuple[str, list[str]]:
        credential = self._preparer.forwarded_credential(headers, name)
        sent = {"authorization": str(credential)} if credential else {}
        try:
            async with asyncio.timeout(LIST_TIMEOUT):
                response = await self._upstreams[name].forward("GET", "/models", "", b"", sent)
                try:
                    listed = msgspec.json.decode(await response.read(), type=_Listed)
                finally:
                    await response.close()
        except (UpstreamError, TimeoutError, msgspec.DecodeError, RecursionError) as error:
            log.warning("upstream %s lists no models: %s", name, str(error) or "it took too long")
            return name, []
        return name, [model.id for model in listed.data]


class _ListedModel(msgspec.Struct):
    id: str


class _Listed(msgspec.Struct):
    data: list[_ListedModel] = []


def _model(name: str, owner: str) -> dict[str, JSON]:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}
