"""From bytes to a frozen Request and its key, remembered for bodies that come again letter for letter."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from stratacache.dialects import chat_to_messages, messages_to_chat, wire
from stratacache.dialects.base import Parsed, Voice
from stratacache.dialects.clients import CLIENTS, Client
from stratacache.dialects.voices import voice
from stratacache.errors import RequestError
from stratacache.gateway.auth import Authenticator, credential_digest
from stratacache.gateway.control import DIRECTIVE_HEADERS, Directives, read_directives
from stratacache.gateway.http import RawHeaders
from stratacache.pipeline.plan import CachePolicy, Plan, plan_request
from stratacache.policy.fields import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES
from stratacache.policy.key import exact_key
from stratacache.policy.scenes import matched_headers, scene_of
from stratacache.ports import Upstream
from stratacache.settings import SceneSettings
from stratacache.types import JSON, CacheControl, Key, Request, Scope, Secret
from stratacache.upstream.router import Route, Router

_OPENAI_HEADERS = ("openai-organization", "openai-project", "openai-beta")
ANSWER_HEADERS = {
    CHAT: _OPENAI_HEADERS,
    COMPLETIONS: _OPENAI_HEADERS,
    RESPONSES: _OPENAI_HEADERS,
    EMBEDDINGS: _OPENAI_HEADERS,
    MESSAGES: (
        "anthropic-version",
        "anthropic-beta",
        "anthropic-workspace-id",
        "anthropic-user-profile-id",
    ),
}
"""Client headers that are forwarded to an API because they may change its answer; so they are in the key."""

API_KEY_SCHEME = "x-api-key "

READ_HEADERS = frozenset(
    name.encode()
    for name in (
        *(name for names in ANSWER_HEADERS.values() for name in names),
        *DIRECTIVE_HEADERS,
        "host",
        "origin",
        "authorization",
        "x-api-key",
    )
)
"""Every request header that has a say in a request, but for those that scenes are matched by."""

MemoKey = tuple[
    str, bytes, tuple[tuple[bytes, bytes], ...]
]  # endpoint, body, and the headers that have a say

MANY_PARTS = 64  # more are keyed in a thread
LONG_BODY = 16 << 10  # bytes; longer ones are prepared in a thread


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A request that passed every check, its exact key, what is planned for it, and how its client is spoken to."""

    request: Request
    key: Key
    plan: Plan
    voice: Voice


class Preparer:
    """Makes requests. Pure but for its memo: the same bytes, headers and settings give the same result.

    The memo matters for speed: parsing, normalising and hashing cost more than the rest of a hit, and traffic
    that hits the exact tier is mostly the same bytes again. Its key is all that a request is made of.

    Args:
        limits: by the name of each upstream that speaks Anthropic's API, the ``max_tokens`` for who names none.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        router: Router,
        upstreams: Mapping[str, Upstream],
        policy: CachePolicy,
        scenes: Mapping[str, SceneSettings],
        *,
        limits: Mapping[str, int] | None = None,
        memo_entries: int = 1024,
        memo_bytes: int = 1 << 20,
    ) -> None:
        self._authenticator = authenticator
        self._router = router
        self._upstreams = upstreams
        self._policy = policy
        self._scenes = scenes
        self._limits = limits or {}
        self._read_headers = READ_HEADERS | {name.encode() for name in matched_headers(scenes)}
        self._memo: OrderedDict[MemoKey, Prepared] = OrderedDict()
        self._memo_entries = memo_entries
        self._memo_bytes = memo_bytes
        self._memo_used = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prepare")

    async def prepare(self, raw_headers: RawHeaders, body: bytes, endpoint: str = CHAT) -> Prepared:
        """Check and key one request to ``endpoint``.

        Raises:
            RequestError: whatever is wrong with it, from credentials to fields.
        """
        relevant = tuple([pair for pair in raw_headers if pair[0] in self._read_headers])
        memo_key = (endpoint, body, relevant)
        known = self._memo.get(memo_key)
        if known is not None:
            self._memo.move_to_end(memo_key)
            return known
        headers = join_headers(relevant)
        caller = self._authenticator.identify(headers, "chat")
        memo = self._memo
        prepared = await self.build(headers, body, caller, endpoint)
        if memo is self._memo:  # else the settings that it was made by were exchanged meanwhile
            self._remember(memo_key, prepared)
        return prepared

    def adopt(self, policy: CachePolicy, scenes: Mapping[str, SceneSettings]) -> None:
        """Prepare by these from now on, and forget what was prepared: keys and aliases may have changed too."""
        self._policy = policy
        self._scenes = scenes
        self._read_headers = READ_HEADERS | {name.encode() for name in matched_headers(scenes)}
        self._memo = OrderedDict()
        self._memo_used = 0

    def check(self) -> None:
        """Raise AssertionError when the memo's byte count is wrong or over its bounds."""
        assert self._memo_used == sum(map(_size, self._memo))
        assert self._memo_used <= self._memo_bytes
        assert len(self._memo) <= self._memo_entries

    async def build(
        self, headers: Mapping[str, str], body: bytes, caller: Scope, endpoint: str = CHAT
    ) -> Prepared:
        """As :meth:`prepare`, for a caller that is known already, and without the memo."""
        if len(body) <= LONG_BODY:
            return self._build(headers, body, caller, CLIENTS[endpoint])
        # A long text takes milliseconds to normalise: it must not hold up the event loop for everybody else.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._build, headers, body, caller, CLIENTS[endpoint])

    def close(self) -> None:
        """Stop the thread for long bodies. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _build(self, headers: Mapping[str, str], body: bytes, caller: Scope, client: Client) -> Prepared:
        parsed = client.parse(wire.decode_body(body))
        directives = read_directives(headers, parsed.cache, self._scenes)
        route = self._router.resolve(parsed.model)
        endpoint = self._answered(client.endpoint, route)
        credential = self.forwarded_credential(headers, route.upstream)
        spoken = self._spoken(parsed, route, client.endpoint, endpoint)
        said = headers
        if endpoint == MESSAGES and "anthropic-version" not in headers:
            said = {**headers, "anthropic-version": chat_to_messages.version_for(spoken)}
        request = Request(
            endpoint=endpoint,
            model=parsed.model,
            resolved_model=route.model,
            upstream=route.upstream,
            server=route.server,
            body=spoken,
            scope=_narrow(caller, directives, credential),
            control=self._with_scene(directives, headers, route.model, client.path),
            stream=parsed.stream,
            include_usage=parsed.include_usage,
            headers=tuple((name, said[name]) for name in ANSWER_HEADERS[endpoint] if name in said),
            credential=credential,
            conversation=directives.conversation,
        )
        key = exact_key(request, history_window=self._policy.history_window)
        plan = plan_request(request, key, self._policy)
        return Prepared(request, key, plan, voice(client.endpoint, endpoint))

    async def split(self, prepared: Prepared, bodies: Sequence[dict[str, JSON]]) -> list[Prepared]:
        """The parts of a request, each with a body, a key and a plan of its own."""
        if len(bodies) <= MANY_PARTS:
            return self._split(prepared, bodies)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._split, prepared, bodies)

    def _split(self, prepared: Prepared, bodies: Sequence[dict[str, JSON]]) -> list[Prepared]:
        parts = []
        for body in bodies:
            request = msgspec.structs.replace(prepared.request, body=body)
            key = exact_key(request, history_window=self._policy.history_window)
            plan = plan_request(request, key, self._policy)
            parts.append(Prepared(request, key, plan, prepared.voice))
        return parts

    def _answered(self, asked: str, route: Route) -> str:
        """The endpoint of the upstream that answers what a client asked of another or the same."""
        speaks_anthropic = route.upstream in self._limits
        if asked in (CHAT, MESSAGES):
            return MESSAGES if speaks_anthropic else CHAT
        if speaks_anthropic:
            raise RequestError(
                f"the upstream {route.upstream!r}, which serves this model, has no {asked}",
                status=404,
                param="model",
                code="not_found",
            )
        return asked

    def _spoken(self, parsed: Parsed, route: Route, asked: str, answered: str) -> dict[str, JSON]:
        """The body in the upstream's dialect, which is the one that keys, tiers and flights see (decision 0021)."""
        if asked == answered:
            return parsed.body
        if answered == MESSAGES:
            return chat_to_messages.request(parsed.body, max_tokens=self._limits[route.upstream])
        return messages_to_chat.request(parsed.body, resolved_model=route.model)

    def _with_scene(
        self, directives: Directives, headers: Mapping[str, str], model: str, path: str
    ) -> CacheControl:
        control = directives.control
        scene = scene_of(
            directives.scene,
            route=path,
            model=model,
            tags=control.tags,
            headers=headers,
            scenes=self._scenes,
        )
        return control if scene == control.scene else msgspec.structs.replace(control, scene=scene)

    def forwarded_credential(self, headers: Mapping[str, str], upstream: str) -> Secret:
        """The client's own credential, as an Authorization value, when ``upstream`` is to see it: it has no key of its
        own, nor have we. A key in ``x-api-key`` stays in it where that is known: there it takes the scheme's place."""
        if not (self._authenticator.open and self._upstreams[upstream].forwards_credentials):
            return Secret()
        key, scheme = headers.get("x-api-key", ""), API_KEY_SCHEME if upstream in self._limits else "Bearer "
        return Secret(headers.get("authorization", "") or (f"{scheme}{key}" if key else ""))

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
    _, body, headers = memo_key
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
