"""One frozen settings tree from a YAML file and the environment; whatever is wrong is said at start."""

from stratacache.settings.loading import api_key, embedder_key, json_schema, load, server_secret
from stratacache.settings.mask import mask_url
from stratacache.settings.rules import alias_chain, is_loopback, is_pattern, matches
from stratacache.settings.semantic import SemanticSettings
from stratacache.settings.store_urls import ONE_PROCESS, SCHEMES, path_of, scheme_of, store_problem
from stratacache.settings.tree import (
    BUILT_IN_SCENES,
    DEFAULT_SCENE,
    AuditSettings,
    AuthKey,
    AuthSettings,
    EmbeddedSettings,
    ExactSettings,
    KvSettings,
    MatchSettings,
    OpenAISettings,
    SceneSettings,
    ServerSettings,
    Settings,
    TiersSettings,
    UpstreamSettings,
    VersionsSettings,
)

__all__ = [
    "BUILT_IN_SCENES",
    "DEFAULT_SCENE",
    "ONE_PROCESS",
    "SCHEMES",
    "AuditSettings",
    "AuthKey",
    "AuthSettings",
    "EmbeddedSettings",
    "ExactSettings",
    "KvSettings",
    "MatchSettings",
    "OpenAISettings",
    "SceneSettings",
    "SemanticSettings",
    "ServerSettings",
    "Settings",
    "TiersSettings",
    "UpstreamSettings",
    "VersionsSettings",
    "alias_chain",
    "api_key",
    "embedder_key",
    "is_loopback",
    "is_pattern",
    "json_schema",
    "load",
    "mask_url",
    "matches",
    "path_of",
    "scheme_of",
    "server_secret",
    "store_problem",
]
