"""The cache in-process: the gateway's own application and pipeline, without a server before them."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from stratacache.dialects.clients import CLIENTS
from stratacache.dialects.sse import DONE, SSEParser
from stratacache.errors import AnswerError, UpstreamError
from stratacache.integrations.functions import GUEST, FunctionCall, FunctionUpstream, Make
from stratacache.integrations.functions import call as call_function
from stratacache.integrations.inprocess import Application, BrokenAnswer, Exchange, begin
from stratacache.library.reply import Reply
from stratacache.settings import Settings, load, load_mapping
from stratacache.types import JSON
from stratacache.wiring import SemanticModels, System

Endpoint = Literal["chat.completions", "messages", "embeddings"]
Config = Settings | Mapping[str, Any] | str | os.PathLike[str] | None


class Stratacache:
    """Every tier of the gateway for one program. An asynchronous context manager that starts and stops it.

    ``SyncStratacache`` is the same for programs without an event loop.
    """

    is_sync = False
    portal = None

    def __init__(
        self,
        config: Config = None,
        *,
        api_key: str = "",
        environ: Mapping[str, str] | None = None,
        models: SemanticModels | None = None,
    ) -> None:
        """Read the settings; nothing is started yet.

        Args:
            config: what a configuration file holds, as a mapping; or the file's path; or None for
                ``./stratacache.yaml`` or else the defaults. ``server.host``, ``port`` and ``workers`` do not matter.
            api_key: whose requests these are, where ``auth.keys`` are configured; a request may bring another one.
            environ: in place of the process's environment.
            models: in place of those that the settings name.

        Raises:
            SettingsError: one line a problem.
        """
        self._environ = os.environ if environ is None else environ
        self.settings = _settings(config, self._environ)
        self._key = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._models = models
        self._names: set[str] = set()
        self._system: System | None = None

    async def __aenter__(self) -> Self:
        """Open the store and start upstreams; returns before a slow engine is ready.

        Raises:
            StrataError: a part cannot start.
        """
        if self._system is not None:
            raise RuntimeError("this cache is running already")
        guest = (GUEST, FunctionUpstream())
        self._system = System(self.settings, self._environ, models=self._models, guest=guest)
        try:
            await self._system.start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let answers reach the store, then close everything."""
        await self._stop()

    async def _stop(self) -> None:
        system, self._system = self._system, None
        if system is not None:
            await system.stop()

    @property
    def system(self) -> System:
        """All parts. Raises RuntimeError outside of ``async with``."""
        if self._system is None:
            raise RuntimeError(
                "this cache is not running: use it inside of 'async with Stratacache(...) as cache'"
            )
        return self._system

    @property
    def app(self) -> Application:
        """The gateway's ASGI application, already started."""
        return self.system.app

    async def answer(
        self,
        request: Mapping[str, Any],
        *,
        endpoint: Endpoint = "chat.completions",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """The whole answer to a request of OpenAI's or Anthropic's API, from a tier or from the model.

        Args:
            request: the body as the API's documentation has it; ``stream`` is not to be asked for here.
            headers: those that a client of the gateway may send: ``x-strata-*``, ``cache-control``.

        Raises:
            AnswerError: the answer is an error.
        """
        if request.get("stream"):
            raise ValueError("the request asks for a stream: use stream() in place of answer()")
        path = CLIENTS[endpoint].path
        return await self._ask("POST", path, msgspec.json.encode(request), headers)

    async def stream(
        self,
        request: Mapping[str, Any],
        *,
        endpoint: Endpoint = "chat.completions",
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[JSON]:
        """The answer's events as they come, decoded: chunks of a chat completion, or events of a message.

        Raises:
            AnswerError: the answer is an error, or broke off.
        """
        body = msgspec.json.encode({**request, "stream": True})
        exchange = await self._begin("POST", CLIENTS[endpoint].path, body, headers)
        try:
            if exchange.status >= 400:
                raise _error(await _whole(exchange))
            parser = SSEParser()
            async for piece in exchange.pieces():
                for event in parser.feed(piece):
                    if event.data != DONE:
                        yield msgspec.json.decode(event.data)
        except (BrokenAnswer, UpstreamError) as error:
            raise _broken(error) from error
        finally:
            await exchange.close()

    async def explain(
        self, request: Mapping[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> dict[str, JSON]:
        """What each tier would do with a chat request and why; nothing is called or stored."""
        reply = await self._ask("POST", "/admin/explain", msgspec.json.encode(request), headers)
        found: dict[str, JSON] = reply.body
        return found

    async def invalidate(
        self,
        *,
        tags: Sequence[str] = (),
        entries: Sequence[str] = (),
        tenant: str | None = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> dict[str, JSON]:
        """End all answers that carry one of ``tags``, or these, or a tenant's, here and on every instance.

        Returns ``{"affected": …, "versions": …}``. The API key needs admin rights, where keys are configured.
        """
        chosen = {"tags": list(tags), "entries": list(entries), "tenant": tenant, "all": everything}
        asked = {name: value for name, value in chosen.items() if value}
        body = msgspec.json.encode({**asked, "dry_run": dry_run})
        done: dict[str, JSON] = (await self._ask("POST", "/admin/invalidate", body, None)).body
        return done

    async def feedback(self, entry: str, verdict: Literal["right", "wrong"], *, note: str = "") -> None:
        """Say whether a stored answer was right; a wrong one is gone at once."""
        told = {"entry": entry, "verdict": verdict, **({"note": note} if note else {})}
        await self._ask("POST", "/v1/feedback", msgspec.json.encode(told), None)

    async def stats(self) -> dict[str, JSON]:
        """Counts and shares since the start. The API key needs admin rights, where keys are configured."""
        found: dict[str, JSON] = (await self._ask("GET", "/admin/stats", b"", None)).body
        return found

    async def settled(self) -> bool:
        """Wait until the answers so far have reached the store; False when that took too long."""
        return await self.system.writeback.drain(10.0)

    async def call(self, asked: FunctionCall, make: Make, headers: Mapping[str, str]) -> Any:
        """The kept or new result of a Python function: what ``cached_answer`` and the integrations are made of.

        Raises:
            TypeError: arguments are no JSON values.
        """
        system = self.system
        said = {**self._key, **headers}
        return await call_function(system.pipeline, system.preparer.prepare, asked, make, said)

    def claim(self, name: str) -> None:
        """Note that a function has ``name``; raises ValueError when another one has."""
        if name in self._names:
            raise ValueError(f"another function is called {name}: results would be mixed up; pass name=")
        self._names.add(name)

    async def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str] | None) -> Reply:
        exchange = await self._begin(method, path, body, headers)
        try:
            reply = await _whole(exchange)
        except BrokenAnswer as error:
            raise _broken(error) from error
        finally:
            await exchange.close()
        if reply.status >= 400:
            raise _error(reply)
        return reply

    async def _begin(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str] | None
    ) -> Exchange:
        said = {**self._key, **{name.lower(): value for name, value in (headers or {}).items()}}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in said.items()]
        try:
            return await begin(self.app, method, path, raw, body)
        except BrokenAnswer as error:
            raise _broken(error) from error


def _settings(config: Config, environ: Mapping[str, str]) -> Settings:
    if isinstance(config, Settings):
        return config
    if isinstance(config, Mapping):
        return load_mapping(config, environ)
    return load(config, environ)


async def _whole(exchange: Exchange) -> Reply:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers}
    return Reply(exchange.status, headers, await exchange.read())


def _broken(error: Exception) -> AnswerError:
    return AnswerError(str(error), status=502, code="upstream_cut", headers={})


def _error(reply: Reply) -> AnswerError:
    """OpenAI's and Anthropic's errors have their words in one place; a proxy's page is told as it is."""
    try:
        told = reply.body["error"]
        message, code = str(told["message"]), str(told.get("code") or told.get("type") or "")
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError):
        message, code = reply.content[:500].decode("utf-8", "replace"), ""
    return AnswerError(message, status=reply.status, code=code, headers=reply.headers)
