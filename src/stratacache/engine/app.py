"""The engine's HTTP face: a bare ASGI app with chat, models, health and figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from stratacache.engine.asgi import ClientGone, Receive, Scope, Send, read_body, send_bytes, send_json
from stratacache.engine.chat import Chat
from stratacache.engine.engine import Stats
from stratacache.engine.errors import Overloaded, RequestError
from stratacache.engine.grammar import GrammarCompiler
from stratacache.engine.loop import EngineThread
from stratacache.engine.protocol import parse_chat
from stratacache.engine.replies import Json, error_body
from stratacache.engine.template import ChatTemplate
from stratacache.engine.tokenizer import Tokenizer


class NotFound(RequestError):
    """No such path or model."""

    status = 404
    code = "not_found"


class ModelNotFound(NotFound):
    """The request names a model that is not served here."""

    code = "model_not_found"


class App:
    """ASGI application. Lives on one event loop."""

    def __init__(
        self,
        engine: EngineThread,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        grammars: GrammarCompiler,
        *,
        model: str,
        fingerprint: str,
        default_max_tokens: int | None = None,
        request_timeout: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`request_timeout`: seconds after which any request is dropped."""
        self._engine = engine
        self._model = model
        self._started = int(clock())
        self._chat = Chat(
            engine,
            tokenizer,
            template,
            grammars,
            model=model,
            fingerprint=fingerprint,
            default_max_tokens=default_max_tokens,
            request_timeout=request_timeout,
            clock=clock,
        )
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        try:
            await self._route(scope, receive, send)
        except RequestError as error:
            await send_json(send, error.status, error_body(error))
        except ClientGone:
            return

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        if (method, path) == ("POST", "/v1/chat/completions"):
            await self._answer(scope, receive, send)
        elif method != "GET":
            raise NotFound(f"There is no {method} {path} here")
        elif path == "/healthz":
            await self._health(send)
        elif path == "/metrics":
            await send_bytes(send, 200, metrics(self._engine.stats).encode(), b"text/plain; version=0.0.4")
        elif path == "/stats":
            await send_json(send, 200, asdict(self._engine.stats))
        elif path == "/v1/models":
            await send_json(send, 200, {"object": "list", "data": [self._model_card()]})
        elif path == f"/v1/models/{self._model}":
            await send_json(send, 200, self._model_card())
        else:
            raise NotFound(f"There is no {method} {path} here")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = parse_chat(await read_body(scope, receive))
        if request.model != self._model:
            raise ModelNotFound(
                f"The model '{request.model}' is not served here, only '{self._model}'", "model"
            )
        if self.draining:
            raise Overloaded("the engine is shutting down")
        await self._chat.answer(request, receive, send)

    async def _health(self, send: Send) -> None:
        state = "failed" if self._engine.failed else "draining" if self.draining else "ok"
        await send_json(send, 200 if state == "ok" else 503, {"status": state})

    def _model_card(self) -> Json:
        return {"id": self._model, "object": "model", "created": self._started, "owned_by": "stratacache"}


_GAUGES = ("waiting", "running", "conversations", "blocks_kept", "block_size")
_COUNTERS = (
    "prefix_queries",
    "prefix_hits",
    "preemptions",
    "forks",
    "steps",
    "computed_tokens",
    "generated_tokens",
)


def metrics(stats: Stats) -> str:
    """Prometheus' text form of the counters."""
    lines = ["# TYPE stratacache_kv_blocks gauge"]
    blocks = {"free": stats.blocks_free, "cached": stats.blocks_cached, "active": stats.blocks_active}
    lines += [f'stratacache_kv_blocks{{state="{state}"}} {count}' for state, count in blocks.items()]
    for name in _GAUGES:
        metric = f"stratacache_engine_{name}"
        lines += [f"# TYPE {metric} gauge", f"{metric} {getattr(stats, name)}"]
    for name in _COUNTERS:
        metric = f"stratacache_engine_{name}_total"
        lines += [f"# TYPE {metric} counter", f"{metric} {getattr(stats, name)}"]
    metric = "stratacache_engine_conversations_given_up_total"
    lines.append(f"# TYPE {metric} counter")
    lines += [f'{metric}{{reason="{reason}"}} {count}' for reason, count in sorted(stats.given_up.items())]
    return "\n".join(lines) + "\n"
