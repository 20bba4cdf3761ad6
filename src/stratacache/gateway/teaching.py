"""``POST /admin/teach``: an answer that people wrote is kept as if a model had given it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from stratacache.dialects import wire
from stratacache.dialects.convert_answers import message_answer
from stratacache.errors import RequestError, StoreError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, read_body, send_json
from stratacache.gateway.prepare import Prepared, Preparer, join_headers
from stratacache.pipeline.call import Caller
from stratacache.policy.fields import MESSAGES
from stratacache.ports import Clock, Store
from stratacache.types import JSON, Entry

_TIMEOUT = 8.0  # seconds for the store


class Teaching:
    """For administrators; the answer is for the tenant, namespace and profile of their key."""

    def __init__(
        self,
        authenticator: Authenticator,
        preparer: Preparer,
        caller: Caller,
        store: Store,
        clock: Clock,
        *,
        max_body: int,
    ) -> None:
        self._authenticator = authenticator
        self._preparer = preparer
        self._caller = caller
        self._store = store
        self._clock = clock
        self._max_body = max_body

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{request: a chat request, answer: text}`` → ``{entry, result}``; headers count as they do in a request.

        ``result`` is ``queued``, or the reason word why the answer may not be kept.
        """
        headers = join_headers(scope["headers"])
        caller = self._authenticator.identify(headers, "admin")
        body = wire.decode_body(await read_body(receive, self._max_body))
        asked, answer = body.get("request"), body.get("answer")
        if not isinstance(asked, dict) or not isinstance(answer, str) or not answer.strip():
            raise RequestError(
                'the body must be {"request": a chat request, "answer": a text}',
                param="answer" if isinstance(asked, dict) else "request",
                code="invalid_value",
            )
        prepared = await self._preparer.build(headers, wire.encode(asked), caller)
        result = prepared.plan.bypass or "not_stored"
        if prepared.plan.store:
            result = await self._keep(prepared, answer)
        await send_json(send, {"entry": prepared.key.entry_id, "result": result})

    async def _keep(self, prepared: Prepared, text: str) -> str:
        request, key, plan = prepared.request, prepared.key, prepared.plan
        try:
            async with asyncio.timeout(_TIMEOUT):
                found = await self._store.get(key.digest, plan.tags)
        except (StoreError, TimeoutError) as error:
            raise RequestError(
                f"the store cannot be used now: {error or 'it is slow'}; try again",
                status=503,
                code="store_unavailable",
            ) from error
        versions = found.versions
        if isinstance(found, Entry) and set(plan.tags) != set(found.tags):
            # It carries more tags than this answer is to depend on.
            versions = tuple(pair for pair in versions if pair[0] in plan.tags)
        answer = _chat_answer(text, request.resolved_model, key.entry_id, self._clock.now())
        if request.endpoint == MESSAGES:
            answer = message_answer(answer)
        return self._caller.given(request, plan, key, versions, answer)


def _chat_answer(text: str, model: str, name: str, now: float) -> dict[str, JSON]:
    message: Mapping[str, JSON] = {"role": "assistant", "content": text, "refusal": None}
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": int(now),
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
    }
