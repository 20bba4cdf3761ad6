"""`/v1/chat/completions`: from a checked request to a job of the engine, and from its reports to JSON or SSE."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field

from stratacache.engine.asgi import (
    ClientGone,
    Receive,
    Send,
    end_stream,
    send_events,
    send_json,
    start_stream,
)
from stratacache.engine.conversations import Context, digest
from stratacache.engine.errors import ContextLengthExceeded, InvalidRequest, RequestError
from stratacache.engine.grammar import GrammarCompiler
from stratacache.engine.loop import EngineThread, Job, Progress
from stratacache.engine.protocol import ChatRequest
from stratacache.engine.replies import Header, Json, choice, error_body, token_logprobs, usage
from stratacache.engine.sequence import Generation
from stratacache.engine.template import ChatTemplate
from stratacache.engine.tokenizer import Tokenizer
from stratacache.engine.transcripts import Transcripts


class EngineDown(RequestError):
    """The core has failed: the request is lost, and the process is about to end."""

    status = 500
    kind = "server_error"
    code = "engine_failed"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation, its ids, and the digest of what its history depends on."""

    text: str
    ids: tuple[int, ...]
    fingerprint: bytes


@dataclass(slots=True)
class _Answer:
    """What one answer of a request has produced so far."""

    texts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)


class Chat:
    """Serves chat requests on an engine. Lives on one event loop; computing happens on the engine's thread."""

    def __init__(
        self,
        engine: EngineThread,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        grammars: GrammarCompiler,
        *,
        model: str,
        fingerprint: str,
        default_max_tokens: int | None,
        request_timeout: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._template = template
        self._grammars = grammars
        self._model = model
        self._fingerprint = fingerprint
        self._default_max_tokens = default_max_tokens
        self._request_timeout = request_timeout
        self._clock = clock
        self._transcripts = Transcripts(tokenizer)

    async def answer(self, request: ChatRequest, receive: Receive, send: Send) -> None:
        """Answers one request. Raises RequestError before anything was sent, and ClientGone."""
        deadline = self._deadline(request)
        # Rendering, tokenising and compiling take a while: not on the event loop.
        prompt = await asyncio.to_thread(self._encode, request)
        grammar = await asyncio.to_thread(self._grammars.compile, request.schema) if request.schema else None
        header = Header(f"chatcmpl-{uuid.uuid4().hex}", int(self._clock()), self._model, self._fingerprint)
        generation = Generation(
            header.id,
            prompt.ids,
            request.max_tokens or self._default_max_tokens,
            request.sampling,
            request.salt,
            request.ignore_eos,
            request.n,
            grammar,
            request.priority,
            self._context(request, prompt),
            request.topic,
        )
        async with contextlib.aclosing(self._generate(generation, request, deadline, receive)) as progress:
            respond = self._respond_stream if request.stream else self._respond_whole
            await respond(header, request, prompt, progress, send)

    def _deadline(self, request: ChatRequest) -> float | None:
        limits = [limit for limit in (request.timeout, self._request_timeout) if limit is not None]
        return self._engine.clock() + min(limits) if limits else None

    def _encode(self, request: ChatRequest) -> Prompt:
        text = self._template.render(request.messages)
        fewest = self._tokenizer.fewest_tokens(text)
        if fewest >= self._engine.context_limit:  # or megabytes would be tokenised (2 s each) to be refused
            raise ContextLengthExceeded(self._engine.context_limit, fewest, at_least=True)
        system = [message["content"] for message in request.messages if message["role"] == "system"]
        fingerprint = digest(
            request.salt, request.topic, self._model, self._fingerprint, self._template.source, *system
        )
        ids = self._transcripts.encode(fingerprint, text, request.messages, self._template.render)
        if not ids:
            raise InvalidRequest("the messages make an empty prompt", "messages")
        return Prompt(text, tuple(ids), fingerprint)

    @staticmethod
    def _context(request: ChatRequest, prompt: Prompt) -> Context | None:
        if request.conversation is None:
            return None
        return Context(digest(request.salt, request.conversation), prompt.fingerprint)

    async def _generate(
        self, generation: Generation, request: ChatRequest, deadline: float | None, receive: Receive
    ) -> AsyncGenerator[Progress, None]:
        """Runs the request; ends it in the engine when the client or the consumer goes away."""
        loop = asyncio.get_running_loop()
        reports: asyncio.Queue[Progress | None] = asyncio.Queue()

        def report(progress: Progress) -> None:
            loop.call_soon_threadsafe(reports.put_nowait, progress)

        self._engine.submit(Job(generation, request.stops, report, deadline))
        watcher = asyncio.create_task(_watch(receive, reports))
        unfinished = request.n
        try:
            while unfinished:
                progress = await reports.get()
                if progress is None:
                    raise ClientGone
                if isinstance(progress.error, RequestError):
                    raise progress.error
                if progress.error:
                    raise EngineDown(str(progress.error))
                unfinished -= progress.finish_reason is not None
                yield progress
        finally:
            watcher.cancel()
            self._engine.cancel(generation.id)

    def _take(self, answer: _Answer, part: Progress, prompt: Prompt) -> Json | None:
        """Adds a report to what its answer has; returns its own `logprobs`, if they were asked for."""
        answer.texts.append(part.text)
        plain = part.token is not None and bool(self._tokenizer.token_bytes(part.token))
        if part.token is not None and (plain or not part.finish_reason):
            answer.ids.append(part.token)
        if part.finish_reason:
            text = "".join(answer.texts)
            self._transcripts.remember(prompt.fingerprint, prompt.text, text, prompt.ids, answer.ids)
        if part.logprobs is None or part.token is None:
            return None
        content = [token_logprobs(self._tokenizer, part.token, part.logprobs)] if plain else []
        answer.logprobs += content
        return {"content": content, "refusal": None}

    async def _respond_whole(
        self,
        header: Header,
        request: ChatRequest,
        prompt: Prompt,
        progress: AsyncIterator[Progress],
        send: Send,
    ) -> None:
        answers = [_Answer() for _ in range(request.n)]
        choices: dict[int, Json] = {}
        counts: Json = {}
        async for part in progress:
            answer = answers[part.index]
            logprobs = self._take(answer, part, prompt)
            if part.finish_reason:
                whole = None if logprobs is None else {"content": answer.logprobs, "refusal": None}
                text = "".join(answer.texts)
                choices[part.index] = choice(part.index, text, part.finish_reason, whole)
            counts = usage(len(prompt.ids), part.completion_tokens, part.cached_tokens)
        await send_json(send, 200, header.answer([choices[index] for index in sorted(choices)], counts))

    async def _respond_stream(
        self,
        header: Header,
        request: ChatRequest,
        prompt: Prompt,
        progress: AsyncIterator[Progress],
        send: Send,
    ) -> None:
        answers: dict[int, _Answer] = {}
        counts: Json = {}
        try:
            async for part in progress:
                if not answers:  # only now, so that a refusal has its own status
                    await start_stream(send)
                fresh = part.index not in answers
                logprobs = self._take(answers.setdefault(part.index, _Answer()), part, prompt)
                await send_events(send, _chunks(header, request, part, logprobs, fresh))
                counts = usage(len(prompt.ids), part.completion_tokens, part.cached_tokens)
        except RequestError as error:
            if not answers:
                raise
            await send_events(send, [error_body(error)])  # and no [DONE]: the answer is not whole
            await end_stream(send)
        else:
            await send_events(send, [header.usage_chunk(counts)] if request.include_usage else [])
            await end_stream(send, b"data: [DONE]\n\n")


def _chunks(
    header: Header, request: ChatRequest, part: Progress, logprobs: Json | None, fresh: bool
) -> list[Json]:
    """The events that one report makes."""
    events = []
    if fresh:
        role = {"role": "assistant", "content": ""}
        events.append(header.chunk(part.index, role, None, request.include_usage))
    if part.text or (logprobs and logprobs["content"]):
        delta = {"content": part.text}
        events.append(header.chunk(part.index, delta, None, request.include_usage, logprobs))
    if part.finish_reason:
        events.append(header.chunk(part.index, {}, part.finish_reason, request.include_usage))
    return events


async def _watch(receive: Receive, reports: asyncio.Queue[Progress | None]) -> None:
    """Tells the consumer when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    reports.put_nowait(None)
