"""One frozen settings tree from a YAML file and the environment; whatever is wrong is said at start."""

from stratacache.settings.loading import (
    api_key,
    embedder_key,
    json_schema,
    load,
    load_mapping,
    read_prices,
    read_providers,
    server_secret,
)
from stratacache.settings.mask import mask_url
from stratacache.settings.observe import ObserveSettings, OtelSettings
from stratacache.settings.prices import PACKAGED as PACKAGED_PRICES
from stratacache.settings.prices import Price
from stratacache.settings.providers import CacheRule, Life, Provider, ProviderTable
from stratacache.settings.rules import addresses, alias_chain, is_loopback, is_pattern, matches
from stratacache.settings.semantic import SemanticSettings
from stratacache.settings.store_urls import ONE_PROCESS, SCHEMES, path_of, scheme_of, store_problem
from stratacache.settings.tree import (
    BUILT_IN_SCENES,
    DEFAULT_SCENE,
    AnthropicSettings,
    AuditSettings,
    AuthKey,
    AuthSettings,
    EmbeddedSettings,
    ExactSettings,
    KvSettings,
    MatchSettings,
    OpenAISettings,
    RemoteSettings,
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
    "PACKAGED_PRICES",
    "SCHEMES",
    "AnthropicSettings",
    "AuditSettings",
    "AuthKey",
    "AuthSettings",
    "CacheRule",
    "EmbeddedSettings",
    "ExactSettings",
    "KvSettings",
    "Life",
    "MatchSettings",
    "ObserveSettings",
    "OpenAISettings",
    "OtelSettings",
    "Price",
    "Provider",
    "ProviderTable",
    "RemoteSettings",
    "SceneSettings",
    "SemanticSettings",
    "ServerSettings",
    "Settings",
    "TiersSettings",
    "UpstreamSettings",
    "VersionsSettings",
    "addresses",
    "alias_chain",
    "api_key",
    "embedder_key",
    "is_loopback",
    "is_pattern",
    "json_schema",
    "load",
    "load_mapping",
    "mask_url",
    "matches",
    "path_of",
    "read_prices",
    "read_providers",
    "scheme_of",
    "server_secret",
    "store_problem",
]
