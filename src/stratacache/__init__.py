"""Stratacache: four cache layers in front of, and inside, an LLM service."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stratacache.errors import AnswerError, RequestError, SettingsError, StrataError
    from stratacache.integrations.decorator import cached_answer
    from stratacache.integrations.transport import StratacacheTransport
    from stratacache.library.cache import Stratacache
    from stratacache.library.reply import Reply
    from stratacache.library.sync import SyncStratacache

__version__ = "0.1.0"

__all__ = [
    "AnswerError",
    "Reply",
    "RequestError",
    "SettingsError",
    "StrataError",
    "Stratacache",
    "StratacacheTransport",
    "SyncStratacache",
    "__version__",
    "cached_answer",
]

_PLACES = {
    "AnswerError": "errors",
    "Reply": "library.reply",
    "RequestError": "errors",
    "SettingsError": "errors",
    "StrataError": "errors",
    "Stratacache": "library.cache",
    "StratacacheTransport": "integrations.transport",
    "SyncStratacache": "library.sync",
    "cached_answer": "integrations.decorator",
}


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: a command that prints its help does not wait for ONNX.
    if name in _PLACES:
        return getattr(importlib.import_module(f"stratacache.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'stratacache' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
