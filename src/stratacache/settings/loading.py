"""Finds the configuration, lays the environment over it, decodes and checks it."""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any

import msgspec

from stratacache.errors import SettingsError
from stratacache.settings.decode import MISSING, Decoder
from stratacache.settings.prices import PACKAGED as PACKAGED_PRICES
from stratacache.settings.prices import Price, PriceFile
from stratacache.settings.providers import PACKAGED as PACKAGED_PROVIDERS
from stratacache.settings.providers import ProviderTable, table_problems
from stratacache.settings.rules import check_tree
from stratacache.settings.section import Section
from stratacache.settings.semantic import SemanticSettings
from stratacache.settings.source import (
    MAX_BYTES,
    Origins,
    Problem,
    YamlError,
    YamlReader,
    overlay,
    report,
)
from stratacache.settings.tree import BUILT_IN_SCENES, RemoteSettings, Settings

DEFAULT_FILE = "stratacache.yaml"
_MAX_KEY_BYTES = 8192
_MIN_SECRET = 32  # characters: 128 bits even when they are hex digits


def load(path: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Settings:
    """The settings from ``path`` (None: ``./stratacache.yaml`` if there is one, else the built-in defaults).

    Environment variables ``STRATACACHE__SECTION__KEY`` win over the file. Every key file and environment
    variable that an upstream names must exist.

    Raises:
        SettingsError: one line a problem, each with its place, the key's path and what is wrong.
    """
    file = _find(path)
    origins = Origins(str(file) if file is not None else "built-in settings")
    tree, problems = _read(file, origins)
    return _checked(tree, problems, origins, environ)


def load_mapping(config: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """As :func:`load`, from what a file would say."""
    return _checked(copy.deepcopy(dict(config)), [], Origins("the configuration"), environ)


def _checked(
    tree: dict[str, Any], problems: list[Problem], origins: Origins, environ: Mapping[str, str]
) -> Settings:
    problems += overlay(tree, environ, origins)
    decoder = Decoder()
    settings = decoder.section(Settings, tree, ())
    problems += decoder.problems
    if settings is not MISSING:
        problems += check_tree(settings)
        problems += _key_problems(settings, environ)
        problems += _price_problems(settings)
        problems += _provider_problems(settings)
    if problems:
        raise SettingsError(report(problems, origins))
    return _with_built_in_scenes(settings)


def api_key(upstream: RemoteSettings, environ: Mapping[str, str]) -> str | None:
    """The upstream's own API key, or None when it has none. Settings hold the key's place, never the key.

    Raises SettingsError, without the key, when the variable or file is missing, empty or no header value.
    """
    if upstream.api_key_env is not None:
        key = environ.get(upstream.api_key_env)
        if key is None:
            raise SettingsError(f"the environment variable {upstream.api_key_env} is not set")
        return _usable(key, f"the environment variable {upstream.api_key_env}")
    if upstream.api_key_file is not None:
        text = _read_text(FilePath(upstream.api_key_file), _MAX_KEY_BYTES)
        return _usable(text, f"the file {upstream.api_key_file}")
    return None


def embedder_key(semantic: SemanticSettings, environ: Mapping[str, str]) -> str | None:
    """The embeddings server's API key, None when it has none. Raises SettingsError as :func:`api_key`."""
    if semantic.embedder_key_env is None:
        return None
    key = environ.get(semantic.embedder_key_env)
    if key is None:
        raise SettingsError(f"the environment variable {semantic.embedder_key_env} is not set")
    return _usable(key, f"the environment variable {semantic.embedder_key_env}")


def server_secret(settings: Settings, environ: Mapping[str, str]) -> bytes | None:
    """The server's secret that ``auth.secret_env`` names, None when it names none.

    Raises SettingsError as :func:`api_key`, and for a secret that could be guessed.
    """
    name = settings.auth.secret_env if settings.auth is not None else None
    if name is None:
        return None
    secret = environ.get(name)
    if secret is None:
        raise SettingsError(f"the environment variable {name} is not set")
    if len(secret) < _MIN_SECRET:
        raise SettingsError(f"the environment variable {name} holds fewer than {_MIN_SECRET} characters")
    return secret.encode("utf-8", "surrogateescape")


def read_prices(file: FilePath) -> tuple[Price, ...]:
    """The rows of a price table. Raises SettingsError: one line a problem, with its place and the key's path."""
    prices: tuple[Price, ...] = _read_table(file, PriceFile)[0].prices
    return prices


@cache
def packaged_prices() -> tuple[Price, ...]:
    """Those of the package, read once."""
    return read_prices(PACKAGED_PRICES)


def read_providers(path: str | None) -> ProviderTable:
    """The rules of providers' caches in the file ``path``, None for those that are packaged. Raises SettingsError as
    :func:`read_prices`."""
    return _packaged_providers() if path is None else _read_providers(FilePath(path).expanduser())


@cache
def _packaged_providers() -> ProviderTable:
    return _read_providers(PACKAGED_PROVIDERS)


def _read_providers(file: FilePath) -> ProviderTable:
    read, origins = _read_table(file, ProviderTable)
    problems = list(table_problems(read))
    if problems:
        raise SettingsError(report(problems, origins))
    table: ProviderTable = read
    return table


def _read_table(file: FilePath, kind: type[Section]) -> tuple[Any, Origins]:
    """The whole of a file that has one section."""
    origins = Origins(str(file))
    tree, problems = _read(file, origins)
    decoder = Decoder()
    read = decoder.section(kind, tree, ())
    problems += decoder.problems
    if problems or read is MISSING:
        raise SettingsError(report(problems, origins))
    return read, origins


def json_schema() -> dict[str, Any]:
    """JSON Schema of the configuration file."""
    # Through JSON and back: defaults become lists and mappings instead of tuples and structs.
    plain = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(Settings)))
    schema = _with_text_forms(plain)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Stratacache", **schema}


def _with_text_forms(node: Any) -> Any:
    """Let numbers with a text among their examples (30s, 64MiB) be text too; msgspec keeps ``type`` to itself."""
    if isinstance(node, list):
        return [_with_text_forms(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: _with_text_forms(item) for key, item in node.items()}
    if any(isinstance(example, str) for example in node.get("examples", ())):
        made["type"] = [node["type"], "string"]
    return made


def _find(path: str | os.PathLike[str] | None) -> FilePath | None:
    if path is not None:
        return FilePath(path)
    default = FilePath(DEFAULT_FILE)
    return default if default.exists() else None


def _read(file: FilePath | None, origins: Origins) -> tuple[dict[str, Any], list[Problem]]:
    if file is None:
        return {}, []
    reader = YamlReader(origins)
    try:
        tree = reader.read(_read_text(file, MAX_BYTES))
    except YamlError as error:
        place = f"{file}:{error.line}" if error.line else str(file)
        raise SettingsError(f"{place}: {error.message}") from error
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise SettingsError(f"{file}: must be a mapping such as 'server: {{port: 8900}}'")
    return tree, reader.problems


def _read_text(file: FilePath, limit: int) -> str:
    try:
        with file.open("rb") as handle:
            data = handle.read(limit + 1)
        if len(data) > limit:
            raise SettingsError(f"{file}: larger than {limit} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: not UTF-8 text (byte {error.start})") from error


def _key_problems(settings: Settings, environ: Mapping[str, str]) -> list[Problem]:
    problems = []
    for index, upstream in enumerate(settings.upstreams):
        if isinstance(upstream, RemoteSettings):
            field = "api_key_env" if upstream.api_key_env is not None else "api_key_file"
            try:
                api_key(upstream, environ)
            except SettingsError as error:
                problems.append(Problem(("upstreams", index, field), str(error)))
    try:
        embedder_key(settings.tiers.semantic, environ)
    except SettingsError as error:
        problems.append(Problem(("tiers", "semantic", "embedder_key_env"), str(error)))
    try:
        server_secret(settings, environ)
    except SettingsError as error:
        problems.append(Problem(("auth", "secret_env"), str(error)))
    return problems


def _price_problems(settings: Settings) -> list[Problem]:
    if settings.prices is None:
        return []
    try:
        read_prices(FilePath(settings.prices).expanduser())
    except SettingsError as error:
        return [Problem(("prices",), f"cannot be used:\n{error}")]
    return []


def _provider_problems(settings: Settings) -> list[Problem]:
    named = [
        one for one in settings.upstreams if isinstance(one, RemoteSettings) and one.provider is not None
    ]
    if settings.tiers.prompt.rules is None and not named:
        return []
    try:
        names = [one.name for one in read_providers(settings.tiers.prompt.rules).providers]
    except SettingsError as error:
        return [Problem(("tiers", "prompt", "rules"), f"cannot be used:\n{error}")]
    return [
        Problem(
            ("upstreams", i, "provider"),
            f"must be one of {', '.join(names)}; got {one.provider!r}{_near(one.provider, names)}",
        )
        for i, one in enumerate(settings.upstreams)
        if isinstance(one, RemoteSettings) and one.provider is not None and one.provider not in names
    ]


def _near(given: str, known: list[str]) -> str:
    near = difflib.get_close_matches(given, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _usable(key: str, source: str) -> str:
    key = key.strip()
    if not key:
        raise SettingsError(f"{source} is empty")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise SettingsError(
            f"{source} does not hold an API key: it has spaces, line breaks or non-ASCII characters"
        )
    return key


def _with_built_in_scenes(settings: Settings) -> Settings:
    # The configured ones stay first, in their order: the first that matches a request takes it.
    missing = {name: scene for name, scene in BUILT_IN_SCENES.items() if name not in settings.scenes}
    return msgspec.structs.replace(settings, scenes={**settings.scenes, **missing})
