"""Every field of a request classed: in the key, proved irrelevant to the answer, or not to be cached at all.

A deny-list: what is not named here is in the key, so a field that nobody knows yet costs hits and never serves
a wrong answer (requirement B1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

import msgspec

from stratacache.types import JSON

CHAT = "chat.completions"
MESSAGES = "messages"
EMBEDDINGS = "embeddings"
COMPLETIONS = "completions"
RESPONSES = "responses"


class FieldClass(Enum):
    """What a field means for the exact key."""

    IN_KEY = "in key"
    IRRELEVANT = "irrelevant"
    BYPASSES = "bypasses"


class Bypass(msgspec.Struct, frozen=True):
    """A field whose presence (in a value that ``applies``) makes a request uncacheable.

    ``reason`` is the word in ``x-strata-reason``, ``why`` one line for people. A value that does not apply
    (null, false) leaves the field in the key.
    """

    reason: str
    why: str
    applies: Callable[[JSON], bool]


class Dialect(msgspec.Struct, frozen=True):
    """The classes of one endpoint's fields; ``irrelevant`` maps a field to its proof in one line, ``defaults`` one to
    what holds where it is absent, for those that bypass then."""

    irrelevant: Mapping[str, str]
    bypasses: Mapping[str, Bypass]
    defaults: Mapping[str, JSON] = {}


def _given(value: JSON) -> bool:
    return value is not None and value is not False


def _wants_audio(value: JSON) -> bool:
    return isinstance(value, list) and any(v != "text" for v in value)


def _has_hosted_tool(value: JSON) -> bool:
    """A tool that the upstream runs itself: its results are live, or it acts. Malformed tools count as hosted."""
    if not isinstance(value, list):
        return value is not None
    return any(not isinstance(tool, dict) or tool.get("type") not in ("function", "custom") for tool in value)


# Anthropic's own tools that the client runs. Others that are named by a type run at Anthropic.
_CLIENT_TOOLS = ("bash_", "text_editor_", "computer_", "browser_", "memory_")


def _has_server_tool(value: JSON) -> bool:
    """As ``_has_hosted_tool``, in Anthropic's form: a plain tool has no type, or ``custom``."""
    if not isinstance(value, list):
        return value is not None
    return any(not isinstance(tool, dict) or not _runs_at_the_client(tool.get("type")) for tool in value)


def _runs_at_the_client(kind: JSON) -> bool:
    return kind in (None, "custom") or (isinstance(kind, str) and kind.startswith(_CLIENT_TOOLS))


_LIVE_MODEL_PARTS = ("-search-preview", "-search-api", ":online")


def _searches_the_web(model: JSON) -> bool:
    return isinstance(model, str) and any(part in model for part in _LIVE_MODEL_PARTS)


def _refers_to_items(value: JSON) -> bool:
    """Whether items of a response's input are named by ids at the provider."""
    items = value if isinstance(value, list) else []
    return any(isinstance(item, dict) and item.get("type") == "item_reference" for item in items)


_ELSEWHERE = "a part of the prompt is kept at the provider under an id, and not in the request"
_LIVE = "the answer depends on a live search"
_CREDENTIAL = "a credential in the body must not be stored with the key"

_CREDENTIALS = {
    name: Bypass("credential_in_body", _CREDENTIAL, _given)
    for name in (
        "api_key",
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "azure_ad_token",
        "vertex_credentials",
    )
}
_ENGINE_STATE = {
    "kv_transfer_params": Bypass("engine_state", "names blocks in another engine's memory", _given),
    "session_params": Bypass("engine_state", "continues a session kept in the engine", _given),
}

_CHAT = Dialect(
    irrelevant={
        "stream": "one answer in pieces or whole; a stored answer replays either way",
        "stream_options": "adds usage or padding chunks to a stream, which the replay makes itself",
        "user": "an end-user id for the provider's abuse monitoring and cache bucketing",
        "safety_identifier": "an end-user id for the provider's abuse monitoring",
        "metadata": "labels that the provider keeps beside a stored completion",
        "prompt_cache_key": "routes to a machine whose prefix cache is warm; prefixes change cost, not output",
        "prompt_cache_retention": "how long the provider keeps a prefix; changes cost, not output",
        "prompt_cache_options": "where and how long the provider caches a prefix; changes cost, not output",
        "request_id": "vLLM: names the request in logs and in the response id",
        "rid": "SGLang: names the request so that it can be aborted",
    },
    bypasses={
        "store": Bypass(
            "stored_upstream", "the provider is asked to keep every completion: a side effect", _given
        ),
        "web_search_options": Bypass("live_search", _LIVE, _given),
        "search_parameters": Bypass("live_search", _LIVE, _given),
        "enable_search": Bypass("live_search", _LIVE, _given),
        "plugins": Bypass("live_search", _LIVE, _given),
        "model": Bypass("live_search", "the model searches the web for every answer", _searches_the_web),
        "audio": Bypass("audio_output", "an audio answer has an id that expires at the provider", _given),
        "modalities": Bypass(
            "audio_output", "an audio answer has an id that expires at the provider", _wants_audio
        ),
        "tools": Bypass("hosted_tool", "a tool that the provider runs is live or acts", _has_hosted_tool),
        **_ENGINE_STATE,
        **_CREDENTIALS,
    },
)

_MESSAGES = Dialect(
    irrelevant={
        "stream": "one answer in pieces or whole; a stored answer replays either way",
        "metadata": "an end-user id for the provider's abuse monitoring",
        "cache_control": "where the provider caches the prompt; prefixes change cost, not output",
    },
    bypasses={
        "container": Bypass("engine_state", "continues in a container kept at the provider", _given),
        "mcp_servers": Bypass("hosted_tool", "a tool that the provider runs is live or acts", _given),
        "tools": Bypass("hosted_tool", "a tool that the provider runs is live or acts", _has_server_tool),
    },
)

_EMBEDDINGS = Dialect(
    irrelevant={
        "encoding_format": "the same numbers as JSON or as base64; the gateway turns one into the other",
        "user": "an end-user id for the provider's abuse monitoring",
    },
    bypasses={"api_key": _CREDENTIALS["api_key"]},
)

_COMPLETIONS = Dialect(
    irrelevant={
        name: _CHAT.irrelevant[name] for name in ("stream", "stream_options", "user", "request_id", "rid")
    },
    bypasses={**_ENGINE_STATE, **_CREDENTIALS},
)

_RESPONSES = Dialect(
    irrelevant={
        name: _CHAT.irrelevant[name] for name in ("stream", "stream_options", "prompt_cache_options")
    },
    bypasses={
        "store": Bypass(
            "stored_upstream",
            "unless it is told not to, the provider keeps every response, and clients go on from its id",
            lambda value: value is not False,
        ),
        "previous_response_id": Bypass("kept_upstream", _ELSEWHERE, _given),
        "conversation": Bypass("kept_upstream", _ELSEWHERE, _given),
        "prompt": Bypass(
            "kept_upstream", "a template that is kept, and may be changed, at the provider", _given
        ),
        "input": Bypass("kept_upstream", _ELSEWHERE, _refers_to_items),
        "background": Bypass("stored_upstream", "the provider is asked to keep the response", _given),
        "tools": Bypass("hosted_tool", "a tool that the provider runs is live or acts", _has_hosted_tool),
        "model": Bypass("live_search", "the model searches the web for every answer", _searches_the_web),
        **_ENGINE_STATE,
        **_CREDENTIALS,
    },
    defaults={"store": True},
)

_NOTHING_PROVED = Dialect(irrelevant={}, bypasses={})
_DIALECTS: Mapping[str, Dialect] = {
    CHAT: _CHAT,
    MESSAGES: _MESSAGES,
    EMBEDDINGS: _EMBEDDINGS,
    COMPLETIONS: _COMPLETIONS,
    RESPONSES: _RESPONSES,
}
_IRRELEVANT = {endpoint: frozenset(dialect.irrelevant) for endpoint, dialect in _DIALECTS.items()}


def dialect(endpoint: str) -> Dialect:
    """The classes for ``endpoint``; of an unknown endpoint nothing is proved, so all fields are in its key."""
    return _DIALECTS.get(endpoint, _NOTHING_PROVED)


def irrelevant_fields(endpoint: str) -> frozenset[str]:
    """Names of the top-level body fields that are left out of the key of ``endpoint``."""
    return _IRRELEVANT.get(endpoint, frozenset())


def classify(endpoint: str, field: str) -> FieldClass:
    """The class of one top-level field; an unknown one is in the key."""
    known = dialect(endpoint)
    if field in known.irrelevant:
        return FieldClass.IRRELEVANT
    return FieldClass.BYPASSES if field in known.bypasses else FieldClass.IN_KEY


def bypass_reason(
    endpoint: str, body: Mapping[str, JSON], *, resolved_model: str | None = None
) -> str | None:
    """Why this body must not be answered from cache nor stored, as a word of ``BYPASS_REASONS``; None if it may.

    ``resolved_model`` is judged beside ``body["model"]``: an alias may stand for a model that searches the web.
    """
    known = dialect(endpoint)
    bypasses = known.bypasses
    told = {**known.defaults, **body} if known.defaults else body
    for field, value in told.items():
        rule = bypasses.get(field)
        if rule is not None and rule.applies(value):
            return rule.reason
    resolved = bypasses.get("model")
    return resolved.reason if resolved is not None and resolved.applies(resolved_model) else None


BYPASS_REASONS: frozenset[str] = frozenset(b.reason for d in _DIALECTS.values() for b in d.bypasses.values())
"""Every word that ``bypass_reason`` can return."""
