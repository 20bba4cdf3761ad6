"""Reads what an administrator wants invalidated: strictly, as a typing error must not leave a wrong answer in place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

import msgspec

from stratacache.errors import RequestError
from stratacache.policy.tags import EVERYTHING, bucket_tag, is_tag, tenant_tag
from stratacache.types import JSON

FIELDS = ("tags", "keys", "entries", "tenant", "all", "dry_run")
MAX_ITEMS = 1000
_ALONE = ("tenant", "all")
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FORMS = {
    "entries": (re.compile(r"[0-9A-Fa-f]{32}"), "32 hex digits, as in x-strata-entry"),
    "keys": (
        re.compile(r"[0-9A-Fa-f]{32}(?:[0-9A-Fa-f]{32})?"),
        "32 or 64 hex digits: a key's SHA-256 or its first half",
    ),
}
_DIGEST_CHARS = 32


class Selection(msgspec.Struct, frozen=True):
    """What goes: every entry that carries one of ``tags``, and those under ``digests``.

    ``asked`` is the request without what it left open, for the record.
    """

    tags: tuple[str, ...]
    digests: tuple[bytes, ...]
    dry_run: bool
    asked: Mapping[str, JSON]


def read_selection(body: Mapping[str, JSON]) -> Selection:
    """The selection in the body of ``POST /admin/invalidate``.

    The digest of an entry comes with the tag of its bucket: that fences answers for it which are still in flight.

    Raises:
        RequestError: 400 with the field as ``param``.
    """
    asked = {name: value for name, value in body.items() if value is not None}
    for name in asked:
        if name not in FIELDS:
            raise _unknown(name)
    dry_run = _flag(asked, "dry_run")
    everything = _flag(asked, "all")
    tags = _texts(asked, "tags")
    ids = [text for name in _FORMS for text in _texts(asked, name)]
    tenant = _tenant(asked)
    _check_together(asked, everything=everything)
    digests = tuple(dict.fromkeys(bytes.fromhex(text[:_DIGEST_CHARS]) for text in ids))
    named = [EVERYTHING] if everything else [tenant_tag(tenant)] if tenant else tags
    return Selection(
        tags=tuple(sorted({*named, *map(bucket_tag, digests)})), digests=digests, dry_run=dry_run, asked=asked
    )


def _check_together(asked: Mapping[str, JSON], *, everything: bool) -> None:
    chosen = [name for name in FIELDS if name in asked and name not in ("all", "dry_run")]
    chosen += ["all"] if everything else []
    if not chosen:
        raise RequestError(
            "nothing is selected; give tags, entries, keys, tenant or all: true",
            code="missing_required_parameter",
        )
    alone = next((name for name in _ALONE if name in chosen), None)
    if alone is not None and len(chosen) > 1:
        other = next(name for name in chosen if name != alone)
        why = (
            f"a tag is shared by all tenants, so {alone} cannot narrow it"
            if other == "tags"
            else "neither narrows the other"
        )
        raise RequestError(
            f"{alone} and {other} cannot be given together: {why}; send two requests",
            param=alone,
            code="invalid_value",
        )
    items = sum(len(asked[name]) for name in ("tags", *_FORMS) if name in asked)
    if items > MAX_ITEMS:
        raise RequestError(
            f"at most {MAX_ITEMS} tags and ids in one request; got {items}",
            param=chosen[0],
            code="invalid_value",
        )


def _texts(asked: Mapping[str, JSON], name: str) -> list[str]:
    """The list under ``name``, every item of the right form; [] when it was not given."""
    if name not in asked:
        return []
    value = asked[name]
    if not isinstance(value, list):
        raise RequestError(f"{name} must be an array of strings", param=name, code="invalid_type")
    if not value:
        raise RequestError(f"{name} is empty; leave it out or name something", param=name, code="empty_array")
    for index, item in enumerate(value[: MAX_ITEMS + 1]):
        where = f"{name}[{index}]"
        if not isinstance(item, str):
            raise RequestError(f"{where} must be a string", param=where, code="invalid_type")
        problem = _tag_problem(item) if name == "tags" else _id_problem(item, name)
        if problem:
            raise RequestError(f"{where} {problem}", param=where, code="invalid_value")
    return value


def _id_problem(text: str, name: str) -> str | None:
    form, expected = _FORMS[name]
    return None if form.fullmatch(text) else f"must be {expected}"


def _tag_problem(tag: str) -> str | None:
    if tag == EVERYTHING:
        return "is every entry; say all: true if that is meant"
    if is_tag(tag):
        return None
    if "*" in tag or "?" in tag:
        return "is a pattern, which no entry carries; name each tag as it is"
    return "cannot be a tag: 1 to 64 letters, digits, '_.:/-', or model:NAME"


def _tenant(asked: Mapping[str, JSON]) -> str | None:
    tenant = asked.get("tenant")
    if tenant is None:
        return None
    if not isinstance(tenant, str):
        raise RequestError("tenant must be a string", param="tenant", code="invalid_type")
    if not is_tenant(tenant):
        raise RequestError(
            "tenant must be 1 to 64 letters, digits, '.', '_' or '-'", param="tenant", code="invalid_value"
        )
    return tenant


def is_tenant(name: str) -> bool:
    """Whether a tenant can be called so."""
    return _TENANT.fullmatch(name) is not None


def _flag(asked: Mapping[str, JSON], name: str) -> bool:
    value = asked.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false", param=name, code="invalid_type")
    return value


def _unknown(name: str) -> RequestError:
    near = difflib.get_close_matches(name, FIELDS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return RequestError(
        f"unknown field {name[:64]!r}; {hint}known: {', '.join(FIELDS)}",
        param=name[:64],
        code="unknown_parameter",
    )
