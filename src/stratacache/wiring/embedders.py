"""Opens the embedder that the settings name, and remembers which one an index was made with."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from stratacache.models.memo import MemoEmbedder
from stratacache.models.pool import Pool
from stratacache.models.remote import RemoteEmbedder
from stratacache.models.sentence_transformers import SentenceTransformerEmbedder
from stratacache.models.use import UseEmbedder
from stratacache.ports import Embedder
from stratacache.settings import SemanticSettings, embedder_key, mask_url
from stratacache.types import Call, Secret

log = logging.getLogger(__name__)

_MEMO_BYTES = 8 << 20  # of recent questions and their vectors


async def at_once() -> None:
    """What is not loaded is ready."""


class Opened(msgspec.Struct, frozen=True):
    """An embedder; ``start`` begins to load it, ``ready`` returns when it is loaded or raises ModelError."""

    embedder: Embedder
    start: Callable[[], None] = lambda: None
    ready: Callable[[], Awaitable[None]] = at_once


class Choice(msgspec.Struct, frozen=True):
    """The keys of ``tiers.semantic`` that choose an embedder. No secrets: of a key the place alone."""

    embedder: str = "default"
    embedder_model: str | None = None
    embedder_dimension: int | None = None
    embedder_key_env: str | None = None

    @classmethod
    def of(cls, settings: SemanticSettings) -> Choice:
        return cls(**{name: getattr(settings, name) for name in cls.__struct_fields__})

    @property
    def is_served(self) -> bool:
        """Whether it is on a server, where the model may be exchanged behind its name."""
        return self.embedder.startswith(("http://", "https://"))


def open_embedder(
    choice: Choice,
    settings: SemanticSettings,
    environ: Mapping[str, str],
    pool: Pool,
    charge: Callable[[Call], None] = lambda call: None,
) -> Opened:
    """The embedder of ``choice``, with the limits of ``settings``; ``charge`` is told of calls that cost something.

    Raises:
        SettingsError: its key is missing.
        ModelError: its folder cannot be read.
    """
    kind, _, folder = choice.embedder.partition(":")
    if kind == "default":
        packaged = UseEmbedder(pool, budget=settings.budget)
        return Opened(MemoEmbedder(packaged, _MEMO_BYTES), packaged.start, packaged.ready)
    if kind == "sentence-transformers":
        local = SentenceTransformerEmbedder(Path(folder), pool, budget=settings.budget)
        return Opened(MemoEmbedder(local, _MEMO_BYTES), local.start, local.ready)
    key = embedder_key(msgspec.structs.replace(settings, embedder_key_env=choice.embedder_key_env), environ)
    remote = RemoteEmbedder(
        choice.embedder,
        choice.embedder_model or "",
        api_key=Secret(key) if key is not None else None,
        budget=settings.budget,
        dimension=choice.embedder_dimension or 0,
        charge=charge,
    )
    return Opened(MemoEmbedder(remote, _MEMO_BYTES))


class MadeWith(msgspec.Struct, frozen=True):
    """What the vectors of an index were made with: how it is opened again, and what tells it from others."""

    choice: Choice
    fingerprint: str
    dimension: int


def read_made_with(file: Path) -> MadeWith | None:
    """What :func:`note_made_with` wrote, None when there is nothing of use."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=MadeWith)
    except (OSError, msgspec.MsgspecError):
        return None


def note_made_with(file: Path, made_with: MadeWith) -> None:
    """Write it down for the next start. What holds a password is not written; then the next start does without."""
    if mask_url(made_with.choice.embedder) != made_with.choice.embedder:
        return
    new = file.with_name(file.name + ".new")
    try:
        new.write_bytes(msgspec.json.encode(made_with))
        os.replace(new, file)
    except OSError as error:
        log.warning("it is not noted which embedder the index was made with: %s", error)
