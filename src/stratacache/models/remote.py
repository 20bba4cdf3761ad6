"""An embedder behind HTTP: any server with the OpenAI API's ``/v1/embeddings``, one text a call."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable

import aiohttp
import msgspec
from yarl import URL

from stratacache.dialects.usage import usage_of
from stratacache.errors import ModelError, SettingsError
from stratacache.models.text import RULES, embeddable, unit
from stratacache.ports import Vector
from stratacache.types import JSON, Call, Secret

MAX_ANSWER = 1 << 20
"""Bytes of an answer that are read: 16,384 numbers of 64 characters."""
_KEEP_ALIVE = 30.0  # seconds
_CALLS = 64  # at a time; more are shed


class _Item(msgspec.Struct, frozen=True):
    embedding: list[float]
    index: int = 0


class _Answer(msgspec.Struct, frozen=True):
    data: list[_Item]
    usage: JSON = None


_decoder = msgspec.json.Decoder(_Answer)


class RemoteEmbedder:
    """A ``ports.Embedder``. Follows no redirects, uses no proxy of the environment and keeps no cookies.

    ``dimension`` is that of the first answer unless it is given, 0 before it; an answer of another one is refused: the
    model was exchanged behind its name. The fingerprint is made of the address and the model's name: a new model needs
    a new name.

    Args:
        base_url: up to and with ``/v1``. Its user-info is sent as Basic when there is no key.
        model: what the server calls it.
        api_key: sent as a bearer token.
        budget: seconds for one text, connecting included.
        dimension: of the model's vectors; 0 to learn it.
        charge: told of every call that is to be paid for.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: Secret | None,
        budget: float,
        dimension: int = 0,
        charge: Callable[[Call], None] = lambda call: None,
    ) -> None:
        url = URL(base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise SettingsError("the embeddings server's URL must be http:// or https:// with a host")
        bare = url.with_user(None).with_query(None).with_fragment(None)
        address = hashlib.sha256(str(bare).rstrip("/").encode()).hexdigest()[:12]
        self.fingerprint = f"{model}/{address}/r{RULES}"
        self.dimension = dimension
        target = (bare if api_key is not None else url.with_query(None).with_fragment(None)) / "embeddings"
        self._url = target
        self._model = model
        self._budget = budget
        self._charge = charge
        # Identity: what is compressed may unfold to fill all memory.
        self._headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._session: aiohttp.ClientSession | None = None
        self._calls = 0
        self._closed = False

    async def embed(self, text: str) -> Vector:
        short = embeddable(text)
        if self._calls >= _CALLS:
            raise ModelError(f"{_CALLS} calls of the embeddings server are under way", code="overloaded")
        self._calls += 1
        try:
            async with asyncio.timeout(self._budget):
                body = await self._post(short)
        except TimeoutError as error:
            message = f"the embeddings server did not answer within {self._budget:g} s"
            raise ModelError(message, code="embedder_slow") from error
        except (aiohttp.ClientError, OSError) as error:
            # Without the error's text, which may hold the URL and so a password.
            message = f"the embeddings server cannot be reached: {type(error).__name__}"
            raise ModelError(message, code="embedder_error") from error
        finally:
            self._calls -= 1
        answer = _decoded(body)
        usage = usage_of({"usage": answer.usage})
        self._charge(Call("embedder", self._model, usage, purpose="embedding"))
        return self._pinned(_read(answer))

    async def close(self) -> None:
        """Close the connections; calls under way break off with ModelError. Idempotent."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, text: str) -> bytes:
        """The answer's body; asked again when a kept connection was closed meanwhile: embedding changes nothing."""
        request = {"model": self._model, "input": [text], "encoding_format": "float"}
        body = msgspec.json.encode(request)
        try:
            return await self._post_once(body)
        except (aiohttp.ServerDisconnectedError, ConnectionResetError):
            return await self._post_once(body)

    async def _post_once(self, body: bytes) -> bytes:
        async with self._pool().post(
            self._url, data=body, headers=self._headers, allow_redirects=False
        ) as response:
            if response.status != 200:
                message = f"the embeddings server answered with status {response.status}"
                raise ModelError(message, code="overloaded" if response.status == 429 else "embedder_error")
            answer = bytearray()
            async for chunk in response.content.iter_any():
                answer += chunk
                if len(answer) > MAX_ANSWER:
                    message = f"the embeddings server sent more than {MAX_ANSWER} bytes"
                    raise ModelError(message, code="embedder_error")
            return bytes(answer)

    def _pool(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ModelError("the embedder is closed", code="overloaded")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            )
        return self._session

    def _pinned(self, raw: list[float]) -> Vector:
        vector = unit(raw, "the embeddings server")
        if not self.dimension:
            self.dimension = len(vector)
        if len(vector) != self.dimension:
            message = (
                f"the embeddings server gave {len(vector)} numbers instead of {self.dimension}: its model was "
                "exchanged; restart to begin a new index"
            )
            raise ModelError(message, code="embedder_changed")
        return vector


def _decoded(body: bytes) -> _Answer:
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        message = "the embeddings server's answer is no list of embeddings"
        raise ModelError(message, code="embedder_error") from error


def _read(answer: _Answer) -> list[float]:
    """The one vector of an answer to one text; whatever else it may be is refused, not guessed at."""
    if len(answer.data) != 1 or answer.data[0].index != 0:
        message = (
            f"the embeddings server gave {len(answer.data)} embeddings, or another index than 0, for one text"
        )
        raise ModelError(message, code="embedder_error")
    raw = answer.data[0].embedding
    if not all(map(math.isfinite, raw)):
        raise ModelError("the embeddings server gave numbers that are not finite", code="embedder_error")
    return raw
