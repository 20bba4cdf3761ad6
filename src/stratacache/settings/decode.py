"""Turns plain values into the settings tree, collecting every problem instead of stopping at the first."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from stratacache.settings import units
from stratacache.settings.mask import is_secret
from stratacache.settings.rules import check_section
from stratacache.settings.section import Section
from stratacache.settings.source import EnvText, Path, Problem, YamlError, parse_variable
from stratacache.settings.tree import (
    BUILT_IN_SCENES,
    AnthropicSettings,
    EmbeddedSettings,
    OpenAISettings,
    SceneSettings,
    UpstreamSettings,
)

MISSING = object()  # what a value that was refused decodes to

_UNITS = {"seconds": units.seconds, "bytes": units.size}
_KINDS: dict[str, type[Section]] = {
    "embedded": EmbeddedSettings,
    "openai": OpenAISettings,
    "anthropic": AnthropicSettings,
}
# Names of the interface contract whose code does not exist yet: "unknown key" would send people searching
# for a typing error.
_NOT_YET = {
    "PromptSettings": {"canonicalise", "relocate_volatile"},
}
_SHOWN = 60


class Decoder:
    """Decodes one tree. ``problems`` holds what was refused, in the order of the tree."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def section(self, kind: type[Section], value: Any, path: Path) -> Any:
        """A Section of ``kind`` from a mapping, or MISSING when any of it was refused."""
        value = self._parsed(value, path)
        if value is MISSING:
            return MISSING
        if not isinstance(value, dict):
            return self._refuse(
                path, f"must be a mapping with the keys {_listed(_keys(kind))}{_got(path, value)}"
            )
        before = len(self.problems)
        hints = get_type_hints(kind, include_extras=True)
        tag = kind.__struct_config__.tag_field
        for key in value:
            if key not in hints and key != tag:
                self._refuse((*path, key), _unknown(kind, key))
        made = {
            key: self.value(hints[key], item, (*path, key)) for key, item in value.items() if key in hints
        }
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in value:
                self._refuse(path, f"the key {field.name!r} is missing")
        if len(self.problems) > before:
            return MISSING
        built = msgspec.structs.replace(base, **made) if (base := _base(kind, path)) else kind(**made)
        for inner, message in check_section(built):
            self._refuse((*path, *inner), message)
        return built if len(self.problems) == before else MISSING

    def value(self, hint: Any, value: Any, path: Path) -> Any:
        """A value of the annotated type ``hint``, or MISSING."""
        hint, optional = _without_none(hint)
        if optional and (value is None or (isinstance(value, EnvText) and value in ("", "null"))):
            return None
        bare = _bare(hint)
        if isinstance(bare, type) and issubclass(bare, Section):
            return self.section(bare, value, path)
        if bare == UpstreamSettings:
            return self._upstream(value, path)
        if get_origin(bare) is tuple:
            return self._list(get_args(bare)[0], value, path)
        if get_origin(bare) is Mapping:
            return self._mapping(get_args(bare)[1], value, path)
        return self._leaf(hint, value, path)

    def _upstream(self, value: Any, path: Path) -> Any:
        kinds = _listed(_KINDS)
        if not isinstance(value, dict):
            return self._refuse(
                path, f"must be a mapping with name, kind ({kinds}) and models; got {_shown(value)}"
            )
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in _KINDS:
            where = (*path, "kind") if "kind" in value else path
            said = _got(where, kind) if "kind" in value else "; it is missing"
            return self._refuse(where, f"kind must be one of {kinds}{said}")
        return self.section(_KINDS[kind], value, path)

    def _list(self, item: Any, value: Any, path: Path) -> Any:
        value = self._parsed(value, path)
        if value is MISSING:
            return MISSING
        if not isinstance(value, list):
            return self._refuse(path, f"must be a list{_got(path, value)}")
        made = [self.value(item, one, (*path, index)) for index, one in enumerate(value)]
        return MISSING if any(one is MISSING for one in made) else tuple(made)

    def _mapping(self, item: Any, value: Any, path: Path) -> Any:
        value = self._parsed(value, path)
        if value is MISSING:
            return MISSING
        if not isinstance(value, dict):
            return self._refuse(path, f"must be a mapping{_got(path, value)}")
        made = {key: self.value(item, one, (*path, key)) for key, one in value.items()}
        return MISSING if any(one is MISSING for one in made.values()) else made

    def _leaf(self, hint: Any, value: Any, path: Path) -> Any:
        meta = _meta(hint)
        wants_text = _bare(hint) is str or "unit" in meta
        if isinstance(value, EnvText):
            value = str(value) if wants_text else self._parsed(value, path)
            if value is MISSING:
                return MISSING
        if isinstance(value, str) and not value.isprintable():
            return self._refuse(path, "must not contain line breaks or control characters")
        try:
            plain = _UNITS[meta["unit"]](value) if "unit" in meta else value
            return msgspec.convert(plain, hint, strict=True)
        except (ValueError, msgspec.ValidationError):
            return self._refuse(
                path, f"must be {meta.get('expect') or _expectation(hint)}{_got(path, value)}"
            )

    def _parsed(self, value: Any, path: Path) -> Any:
        if not isinstance(value, EnvText):
            return value
        try:
            return parse_variable(value)
        except YamlError as error:
            return self._refuse(path, error.message)

    def _refuse(self, path: Path, message: str) -> Any:
        self.problems.append(Problem(path, message))
        return MISSING


def _base(kind: type[Section], path: Path) -> Section | None:
    """What a section changes rather than replaces: a built-in scene keeps the values that are not given anew."""
    return BUILT_IN_SCENES.get(str(path[-1])) if kind is SceneSettings else None


def _without_none(hint: Any) -> tuple[Any, bool]:
    """``Annotated[X | None, …]`` or ``X | None`` → (the same without None, True)."""
    bare = _bare(hint)
    if get_origin(bare) not in (types.UnionType, Union) or type(None) not in get_args(bare):
        return hint, False
    inner = next(part for part in get_args(bare) if part is not type(None))
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return (Annotated[inner, *marks] if marks else inner), True


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _meta(hint: Any) -> dict[str, Any]:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return {k: v for mark in marks for k, v in (mark.extra or {}).items()}


def _expectation(hint: Any) -> str:
    bare = _bare(hint)
    if get_origin(bare) is Literal:
        return f"one of {', '.join(str(choice) for choice in get_args(bare))}"
    return {bool: "true or false", str: "text"}.get(bare, "another kind of value")


def _unknown(kind: type[Section], key: str) -> str:
    families = [kind.__name__, *(base.__name__ for base in kind.__bases__)]
    if any(key in _NOT_YET.get(family, ()) for family in families):
        return "not available in this version"
    for name, other in _KINDS.items():
        if kind in _KINDS.values() and key in _keys(other):
            return f"not a key of this kind of upstream; it belongs to kind {name}"
    near = difflib.get_close_matches(key, _keys(kind), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown key; {hint}valid keys: {_listed(_keys(kind))}"


def _keys(kind: type[Section]) -> list[str]:
    tag = kind.__struct_config__.tag_field
    return sorted([*kind.__struct_fields__, *([tag] if tag else [])])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _got(path: Path, value: object) -> str:
    """The refused value, unless it may be a secret in the wrong place: below a *key* name, or with an ``@``."""
    hidden = any("key" in str(part) or is_secret(str(part)) for part in path) or "@" in str(value)
    return "" if hidden else f"; got {_shown(value)}"


def _shown(value: object) -> str:
    """A refused value for a message: short, and never more of a container than its kind."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
