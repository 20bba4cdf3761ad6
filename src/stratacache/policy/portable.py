"""An entry as it travels from one store to another: whole, checked, and with the versions of its tags. Pure."""

from __future__ import annotations

import hashlib

import msgspec

from stratacache.policy.key import KEY_VERSION
from stratacache.policy.tags import EVERYTHING, bucket_tag, model_tag, tenant_tag
from stratacache.types import JSON, Entry, Question

CHECK_DIGITS = 32  # hex digits of SHA-256: against damage, not against forgery


class Travelling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry, the digest that it is under, and its question where the semantic tier knew it."""

    digest: bytes
    entry: Entry
    question: Question | None = None


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``check`` is of the bytes of ``data``, which is a :class:`Travelling`."""

    check: str
    data: msgspec.Raw


_decode = msgspec.json.Decoder(Travelling).decode


def pack(travelling: Travelling) -> Line:
    """As a line of an export. Raises ValueError: a name in it has no UTF-8."""
    data = msgspec.json.encode(travelling)
    return Line(check_of(data), msgspec.Raw(data))


def unpack(line: Line) -> Travelling:
    """What ``line`` holds.

    Raises:
        ValueError: it is damaged, or no entry that this version could serve or invalidate; says why.
    """
    data = bytes(line.data)
    if check_of(data) != line.check:
        raise ValueError("the checksum is not that of the line")
    try:
        travelling = _decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no entry: {error}") from None
    problem = _problem(travelling)
    if problem:
        raise ValueError(problem)
    return travelling


def check_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:CHECK_DIGITS]


def _problem(travelling: Travelling) -> str:
    """Why the entry must not be stored: it could never be found, or what should invalidate it would miss it."""
    digest, entry, question = travelling.digest, travelling.entry, travelling.question
    if hashlib.sha256(entry.form).digest()[:16] != digest:
        return "the digest is not that of the canonical form"
    made = form_of(entry.form)
    if made is None or made[0][:2] != ["stratacache", KEY_VERSION]:
        return f"the canonical form is not of key version {KEY_VERSION}: nobody would ask for it"
    if made[4][0] != entry.tenant:
        return "the tenant is not that of the canonical form"
    needed = {EVERYTHING, bucket_tag(digest), model_tag(entry.model), tenant_tag(entry.tenant)}
    if lacking := sorted(needed - set(entry.tags)):
        return f"it lacks the tag {lacking[0]!r}, so an invalidation could miss it"
    if question is not None and question.digest != digest:
        return "the question is another entry's"
    return ""


def form_of(form: bytes) -> list[JSON] | None:
    """The members of a canonical form, as ``policy.key`` lists them; None when it is none."""
    try:
        made = msgspec.json.decode(form, type=list)
    except msgspec.DecodeError:
        return None
    shaped = len(made) == 7 and isinstance(made[0], list) and isinstance(made[4], list) and len(made[4]) == 4
    return made if shaped else None
