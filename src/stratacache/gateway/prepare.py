"""From bytes to a frozen Request and its key, remembered for bodies that come again letter for letter."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from stratacache.dialects import openai_chat, wire
from stratacache.gateway.auth import Authenticator, credential_digest
from stratacache.gateway.control import DIRECTIVE_HEADERS, Directives, read_directives
from stratacache.gateway.http import RawHeaders
from stratacache.pipeline.plan import CachePolicy, Plan, plan_request
from stratacache.policy.fields import CHAT
from stratacache.policy.key import exact_key
from stratacache.policy.scenes import matched_headers, scene_of
from stratacache.ports import Upstream
from stratacache.settings import SceneSettings
from stratacache.types import CacheControl, Key, Request, Scope, Secret
from stratacache.upstream.router import Router

CHAT_PATH = "/v1/chat/completions"

ANSWER_HEADERS = ("openai-organization", "openai-project", "openai-beta")
"""Client headers that are forwarded because they may change the answer; so they are in the key."""

READ_HEADERS = frozenset(
    name.encode()
    for name in (
        *ANSWER_HEADERS,
        *DIRECTIVE_HEADERS,
        "host",
        "origin",
        "authorization",
        "x-api-key",
    )
)
"""Every request header that has a say in a request, but for those that scenes are matched by."""

MemoKey = tuple[bytes, tuple[tuple[bytes, bytes], ...]]  # body, and the headers that have a say

LONG_BODY = 16 << 10  # bytes; longer ones are prepared in a thread


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A request that passed every check, with its exact key and what is planned for it."""

    request: Request
    key: Key
    plan: Plan


class Preparer:
    """Makes requests. Pure but for its memo: the same bytes, headers and settings give the same result.

    The memo matters for speed: parsing, normalising and hashing cost more than the rest of a hit, and traffic
    that hits the exact tier is mostly the same bytes again. Its key is all that a request is made of.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        router: Router,
        upstreams: Mapping[str, Upstream],
        policy: CachePolicy,
        scenes: Mapping[str, SceneSettings],
        *,
        memo_entries: int = 1024,
        memo_bytes: int = 1 << 20,
    ) -> None:
        self._authenticator = authenticator
        self._router = router
        self._upstreams = upstreams
        self._policy = policy
        self._scenes = scenes
        self._read_headers = READ_HEADERS | {name.encode() for name in matched_headers(scenes)}
        self._memo: OrderedDict[MemoKey, Prepared] = OrderedDict()
        self._memo_entries = memo_entries
        self._memo_bytes = memo_bytes
        self._memo_used = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prepare")

    async def prepare(self, raw_headers: RawHeaders, body: bytes) -> Prepared:
        """Check and key one chat request.

        Raises:
            RequestError: whatever is wrong with it, from credentials to fields.
        """
        relevant = tuple([pair for pair in raw_headers if pair[0] in self._read_headers])
        memo_key = (body, relevant)
        known = self._memo.get(memo_key)
        if known is not None:
            self._memo.move_to_end(memo_key)
            return known
        headers = join_headers(relevant)
        caller = self._authenticator.identify(headers, "chat")
        prepared = await self.build(headers, body, caller)
        self._remember(memo_key, prepared)
        return prepared

    def check(self) -> None:
        """Raise AssertionError when the memo's byte count is wrong or over its bounds."""
        assert self._memo_used == sum(map(_size, self._memo))
        assert self._memo_used <= self._memo_bytes
        assert len(self._memo) <= self._memo_entries

    async def build(self, headers: Mapping[str, str], body: bytes, caller: Scope) -> Prepared:
        """As :meth:`prepare`, for a caller that is known already, and without the memo."""
        if len(body) <= LONG_BODY:
            return self._build(headers, body, caller)
        # A long text takes milliseconds to normalise: it must not hold up the event loop for everybody else.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._build, headers, body, caller)

    def close(self) -> None:
        """Stop the thread for long bodies. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _build(self, headers: Mapping[str, str], body: bytes, caller: Scope) -> Prepared:
        parsed = openai_chat.parse(wire.decode_body(body))
        directives = read_directives(headers, parsed.cache, self._scenes)
        route = self._router.resolve(parsed.model)
        credential = self.forwarded_credential(headers, route.upstream)
        request = Request(
            endpoint=CHAT,
            model=parsed.model,
            resolved_model=route.model,
            upstream=route.upstream,
            server=route.server,
            body=parsed.body,
            scope=_narrow(caller, directives, credential),
            control=self._with_scene(directives, headers, route.model),
            stream=parsed.stream,
            include_usage=parsed.include_usage,
            headers=tuple((name, headers[name]) for name in ANSWER_HEADERS if name in headers),
            credential=credential,
            conversation=directives.conversation,
        )
        key = exact_key(request, history_window=self._policy.history_window)
        return Prepared(request, key, plan_request(request, key, self._policy))

    def _with_scene(self, directives: Directives, headers: Mapping[str, str], model: str) -> CacheControl:
        control = directives.control
        scene = scene_of(
            directives.scene,
            route=CHAT_PATH,
            model=model,
            tags=control.tags,
            headers=headers,
            scenes=self._scenes,
        )
        return control if scene == control.scene else msgspec.structs.replace(control, scene=scene)

    def forwarded_credential(self, headers: Mapping[str, str], upstream: str) -> Secret:
        """The client's Authorization when ``upstream`` is to see it: it has no key of its own, nor have we."""
        if self._authenticator.open and self._upstreams[upstream].forwards_credentials:
            return Secret(headers.get("authorization", ""))
        return Secret()

    def _remember(self, memo_key: MemoKey, prepared: Prepared) -> None:
        size = _size(memo_key)
        # Equal long bodies may have been prepared side by side.
        if size > self._memo_bytes // 16 or memo_key in self._memo:
            return
        self._memo[memo_key] = prepared
        self._memo_used += size
        while self._memo_used > self._memo_bytes or len(self._memo) > self._memo_entries:
            dropped, _ = self._memo.popitem(last=False)
            self._memo_used -= _size(dropped)


def _size(memo_key: MemoKey) -> int:
    body, headers = memo_key
    return len(body) + sum([len(value) for _, value in headers])


def _narrow(scope: Scope, directives: Directives, credential: Secret) -> Scope:
    """What the key's owner fixed stands; a caller may only name what was left open."""
    return Scope(
        tenant=scope.tenant,
        namespace=scope.namespace or directives.namespace,
        profile=scope.profile or directives.profile,
        credential=credential_digest(credential),
        rights=scope.rights,
        principal=scope.principal,
    )


def join_headers(pairs: Collection[tuple[bytes, bytes]]) -> dict[str, str]:
    """Header names to values; repeated ones are joined with commas (RFC 9110 section 5.3)."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
