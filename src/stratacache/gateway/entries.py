"""The administrator's view of what is stored: browse it, take it out, bring it back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from stratacache.consistency.audit import AuditLog, Record, moment, noted
from stratacache.dialects.table import said_by
from stratacache.dialects.wire import decode_answer, decode_body
from stratacache.errors import RequestError, StoreError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, read_body, read_number, read_query, send_json
from stratacache.gateway.prepare import join_headers
from stratacache.policy.partition import scope_of
from stratacache.policy.portable import Line, Travelling, pack, unpack
from stratacache.policy.tags import is_tag
from stratacache.ports import Clock, Listing, Store
from stratacache.types import JSON, Entry, Question

MAX_SHOWN = 200
MAX_TAGS = 1000
MAX_BODY = 64 << 20
PAGE_BYTES = 4 << 20  # of entries in one answer, about
_SCANNED = 2000  # entries looked at for one answer
_TOGETHER = 200
_EXCERPT = 300  # characters
_TIMEOUT = 8.0  # seconds for the store

T = TypeVar("T")
FindQuestion = Callable[[bytes], Question | None]
Restore = Callable[[Question], Awaitable[None]]


class Entries:
    """``GET /admin/entries`` and ``/admin/export``, ``POST /admin/import`` and ``/admin/versions``.

    Args:
        patient: the store without the time limit of a look-up.
        listing: None where the store cannot name its entries.
        find: the question of an entry, None where the semantic tier is off or its index cannot tell.
        restore: makes a question findable again.
        audit: None when there is no log.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        store: Store,
        patient: Store,
        listing: Listing | None,
        find: FindQuestion | None,
        restore: Restore | None,
        audit: AuditLog | None,
        clock: Clock,
    ) -> None:
        self._authenticator = authenticator
        self._store = store
        self._patient = patient
        self._listing = listing
        self._find = find
        self._restore = restore
        self._audit = audit
        self._clock = clock

    async def browse(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``?query=&tag=&tenant=&limit=20&after=`` → ``{entries, after}``: excerpts, and where to go on (null: done).

        At most 2,000 entries are looked at for one answer, so there may be none in it and more to come.
        """
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        limit = read_number(scope, "limit", default=20, most=MAX_SHOWN)
        query = (read_query(scope, "query") or "").casefold()
        shown: list[JSON] = []

        def take(digest: bytes, entry: Entry) -> bool:
            told = self._told(digest, entry)
            if query in f"{told['question']}\n{told['answer']}".casefold():
                shown.append({**told, "answer": told["answer"][:_EXCERPT]})
            return len(shown) < limit

        after = await self._walk(scope, take)
        await send_json(send, {"entries": shown, "after": after})

    async def export(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``?tag=&tenant=&after=`` → ``{lines, after, now}``: some entries, as ``POST /admin/import`` takes them."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        lines: list[Line] = []
        size = 0

        def take(digest: bytes, entry: Entry) -> bool:
            nonlocal size
            question = self._find(digest) if self._find is not None else None
            lines.append(pack(Travelling(digest, entry, question)))
            size += entry.size
            return size < PAGE_BYTES

        after = await self._walk(scope, take)
        await send_json(send, {"lines": lines, "after": after, "now": self._clock.now()})

    async def bring(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{lines}`` → ``{stored, outdated, declined, expired}``, counts.

        An entry is stored under the versions that it comes with: one of a tag that was invalidated since is refused by
        the store as ``outdated``, and so are all where the store never gave those versions.
        """
        headers = join_headers(scope["headers"])
        self._authenticator.identify(headers, "admin")
        body = await read_body(receive, MAX_BODY)
        try:
            lines = msgspec.json.decode(body, type=_Lines).lines
            brought = [unpack(line) for line in lines]
        except (msgspec.MsgspecError, ValueError) as error:
            raise RequestError(
                f"lines must be those of an export: {error}", param="lines", code="invalid_value"
            ) from None
        counts: Counter[str] = Counter(stored=0, outdated=0, declined=0, expired=0)
        for one in brought:
            counts[await self._put(one)] += 1
        await self._note(self._authenticator.actor(headers), counts)
        await send_json(send, counts)

    async def versions(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{tags}`` → ``{versions}``, as of now; a tag that has none is given one."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        tags = decode_body(await read_body(receive, MAX_BODY)).get("tags")
        if (
            not isinstance(tags, list)
            or len(tags) > MAX_TAGS
            or not all(isinstance(tag, str) and (tag == "*" or is_tag(tag)) for tag in tags)
        ):
            raise RequestError(
                f"tags must be an array of at most {MAX_TAGS} tags", param="tags", code="invalid_value"
            )
        # Nothing is under the digest of nothing, so the answer is what a new question would be told.
        absent = await self._asked(self._patient.get(bytes(16), sorted({str(tag) for tag in tags})))
        versions = [] if isinstance(absent, Entry) else absent.versions
        await send_json(send, {"versions": dict(versions)})

    async def _walk(self, scope: ASGIScope, take: Callable[[bytes, Entry], bool]) -> str | None:
        """Show ``take`` the entries that the query string selects until it has enough; where to go on, None: done."""
        if self._listing is None:
            raise RequestError("this store cannot list its entries", status=409, code="store_cannot_list")
        after = _position(read_query(scope, "after"))
        tag, tenant = read_query(scope, "tag"), read_query(scope, "tenant")
        looked, wants = 0, True
        while wants and looked < _SCANNED:
            page = await self._asked(self._listing.scan(after, _TOGETHER))
            for digest, entry in page.entries:
                if (tag is None or tag in entry.tags) and (tenant is None or tenant == entry.tenant):
                    wants = take(digest, entry)
            looked += _TOGETHER
            if page.after is None:
                return None
            after = page.after
            await asyncio.sleep(0)  # a store in memory does not suspend
        return after.hex()

    def _told(self, digest: bytes, entry: Entry) -> dict[str, JSON]:
        asked = scope_of(entry.form)
        return {
            "id": digest.hex(),
            "tenant": entry.tenant,
            "model": entry.model,
            "tags": entry.tags,
            "created_at": entry.created_at,
            "expires_at": entry.expires_at,
            "bytes": entry.size,
            "negative": entry.negative,
            "question": asked.text[:_EXCERPT] if asked is not None else "",
            "answer": said_by(decode_answer(entry.body)) or "",
        }

    async def _put(self, one: Travelling) -> str:
        if not one.entry.gone_at > self._clock.now():
            return "expired"
        result = await self._asked(self._store.put(one.digest, one.entry))
        if result == "stored" and one.question is not None and self._restore is not None:
            await self._restore(one.question)
        return result

    async def _note(self, actor: str, counts: Counter[str]) -> None:
        record = Record(
            time=moment(self._clock.now()),
            actor=actor,
            outcome="done",
            dry_run=False,
            selection={"import": dict(counts)},
            affected=counts["stored"],
            versions={},
        )
        await noted(self._audit, record, "an import")

    async def _asked(self, step: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await step
        except (StoreError, TimeoutError) as error:
            raise RequestError(
                f"the store cannot be used now: {error or 'it is slow'}; try again",
                status=503,
                code="store_unavailable",
            ) from error


class _Lines(msgspec.Struct, frozen=True):
    lines: Sequence[Line]


def _position(text: str | None) -> bytes:
    try:
        return bytes.fromhex(text or "")
    except ValueError:
        raise RequestError(
            "after must be what the answer before said", param="after", code="invalid_value"
        ) from None
