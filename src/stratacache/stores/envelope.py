"""How an entry is written as one value, for stores that keep plain bytes, and how a foreign value is told."""

from __future__ import annotations

import zlib
from struct import Struct

import msgspec

from stratacache.types import Entry, Versions

_MAGIC = b"SC1"
_HEAD = Struct("<3sIII")  # magic, CRC-32 of all that follows and of the digest, lengths of meta and form


class _Meta(msgspec.Struct, array_like=True, frozen=True):
    """The small fields. Kept as an array: new fields go to the end with a default, so old values stay readable."""

    created_at: float
    expires_at: float
    tenant: str
    model: str
    versions: Versions
    prompt_tokens: int
    completion_tokens: int
    stale_until: float
    seconds: float
    status: int
    negative: bool


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Meta)


def encode(digest: bytes, entry: Entry) -> bytes:
    """``entry`` as one value, bound to ``digest`` by its checksum.

    Raises:
        UnicodeEncodeError: a name holds half of a surrogate pair.
    """
    meta = _encoder.encode(
        _Meta(
            entry.created_at,
            entry.expires_at,
            entry.tenant,
            entry.model,
            entry.versions,
            entry.prompt_tokens,
            entry.completion_tokens,
            entry.stale_until,
            entry.seconds,
            entry.status,
            entry.negative,
        )
    )
    checked = b"".join((_lengths(meta, entry.form), meta, entry.form, entry.body))
    return b"".join((_MAGIC, _checksum(digest, checked), checked))


def decode(digest: bytes, value: bytes) -> Entry | None:
    """The entry in ``value``, or None when that is torn, foreign or of another digest."""
    if len(value) < _HEAD.size or value[:3] != _MAGIC:
        return None
    view = memoryview(value)
    if value[3:7] != _checksum(digest, view[7:]):
        return None
    _, _, meta_size, form_size = _HEAD.unpack_from(value)
    form_at = _HEAD.size + meta_size
    body_at = form_at + form_size
    if body_at > len(value):
        return None
    try:
        meta = _decoder.decode(view[_HEAD.size : form_at])
    except msgspec.MsgspecError:
        return None  # our checksum over a meta that this version cannot read: written by a later version
    return Entry(value[form_at:body_at], value[body_at:], *msgspec.structs.astuple(meta))


def _lengths(meta: bytes, form: bytes) -> bytes:
    return len(meta).to_bytes(4, "little") + len(form).to_bytes(4, "little")


def _checksum(digest: bytes, checked: bytes | memoryview) -> bytes:
    return zlib.crc32(checked, zlib.crc32(digest)).to_bytes(4, "little")
