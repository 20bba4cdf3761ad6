"""One frozen settings tree from a YAML file and the environment; whatever is wrong is said at start."""

from stratacache.settings.loading import api_key, json_schema, load
from stratacache.settings.mask import mask_url
from stratacache.settings.rules import alias_chain, is_loopback, is_pattern, matches, store_problem
from stratacache.settings.tree import (
    AuthKey,
    AuthSettings,
    EmbeddedSettings,
    ExactSettings,
    KvSettings,
    OpenAISettings,
    SceneSettings,
    ServerSettings,
    Settings,
    TiersSettings,
    UpstreamSettings,
)

__all__ = [
    "AuthKey",
    "AuthSettings",
    "EmbeddedSettings",
    "ExactSettings",
    "KvSettings",
    "OpenAISettings",
    "SceneSettings",
    "ServerSettings",
    "Settings",
    "TiersSettings",
    "UpstreamSettings",
    "alias_chain",
    "api_key",
    "is_loopback",
    "is_pattern",
    "json_schema",
    "load",
    "mask_url",
    "matches",
    "store_problem",
]
