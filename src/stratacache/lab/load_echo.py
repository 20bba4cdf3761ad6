"""A stand-in for a model: answers each question with the family that it belongs to, so that wrong hits can be told."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec
from aiohttp import web

from stratacache.lab.load_traffic import Bank

MODEL = "echo"
_SAYS = "The answer to: "


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: str = MODEL


def family_in(content: str) -> str | None:
    """The family that an echo's answer is for; None when it is no echo's."""
    return content.removeprefix(_SAYS) if content.startswith(_SAYS) else None


def echo_app(bank: Bank, delay: float) -> web.Application:
    """``delay``: seconds before each answer."""
    numbers = itertools.count(1)

    async def answer(request: web.Request) -> web.Response:
        try:
            body = msgspec.json.decode(await request.read(), type=_Body)
        except msgspec.DecodeError as error:
            told = {"error": {"message": str(error), "type": "invalid_request_error"}}
            return web.json_response(told, status=400)
        if delay:
            await asyncio.sleep(delay)
        content = body.messages[-1].content if body.messages else ""
        asked = content if isinstance(content, str) else ""
        text = _SAYS + bank.family_of(asked)
        usage = {"prompt_tokens": len(asked) // 4 + 4, "completion_tokens": len(text) // 4 + 1}
        value = {
            "id": f"echo-{next(numbers)}",
            "object": "chat.completion",
            "created": 0,
            "model": body.model,
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            ],
            "usage": {**usage, "total_tokens": sum(usage.values())},
        }
        return web.Response(body=msgspec.json.encode(value), content_type="application/json")

    async def models(request: web.Request) -> web.Response:
        return web.json_response(
            {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "echo"}]}
        )

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/v1/models", models)
    return app
