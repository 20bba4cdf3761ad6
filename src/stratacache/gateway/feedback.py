"""What callers say of answers, and the administrator's hold on the semantic tier: its mode and its labels."""

from __future__ import annotations

import asyncio
import difflib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import msgspec

from stratacache.consistency.invalidation import Invalidator
from stratacache.consistency.selection import Selection
from stratacache.dialects.wire import decode_body
from stratacache.errors import RequestError, StoreError, VectorIndexError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, read_body, send_json
from stratacache.gateway.prepare import join_headers
from stratacache.pipeline.semantic import Kindred
from stratacache.policy.allowance import Allowance
from stratacache.policy.bound.picture import Picture
from stratacache.policy.tags import bucket_tag, tenant_tag
from stratacache.ports import Clock, Store
from stratacache.tiers.semantic import Mode
from stratacache.types import JSON, Absent, Entry, Scope

log = logging.getLogger(__name__)

MAX_BODY = 64 << 10
MAX_NOTE = 2000
PER_MINUTE = 60  # verdicts of one caller: each "wrong" costs a model call
MODES: tuple[str, ...] = get_args(Mode)
_ID = re.compile(r"[0-9A-Fa-f]{32}")
_TIMEOUT = 8.0  # seconds for the store


class Feedback:
    """``POST /v1/feedback {entry, verdict: right | wrong, note?}`` for callers who got that entry's answer.

    An answer that is called wrong is gone at once, from all tiers and instances.

    Args:
        kindred: told of every verdict; None without a semantic tier.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        store: Store,
        invalidator: Invalidator,
        kindred: Kindred | None,
        clock: Clock,
    ) -> None:
        self._authenticator = authenticator
        self._store = store
        self._invalidator = invalidator
        self._kindred = kindred
        self._clock = clock
        self._allowance = Allowance(PER_MINUTE)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        headers = join_headers(scope["headers"])
        caller = self._authenticator.identify(headers, "chat")
        body = decode_body(await read_body(receive, MAX_BODY))
        found, verdict = read_verdict(body, "entry", "x-strata-entry", ("right", "wrong"))
        digest, right = bytes.fromhex(found), verdict == "right"
        if not self._allowance.take(caller.principal or caller.tenant, self._clock.monotonic()):
            raise RequestError(
                f"at most {PER_MINUTE} verdicts a minute",
                status=429,
                code="too_much_feedback",
                headers=(("retry-after", "60"),),
            )
        entry = await self._entry(digest, caller)
        if not right:
            selection = Selection((bucket_tag(digest),), (digest,), dry_run=False, asked={"feedback": body})
            await self._invalidator.invalidate(selection, actor=self._authenticator.actor(headers))
        await self._tell(digest, entry, right=right)
        await send_json(send, {"entry": digest.hex(), "verdict": body["verdict"], "removed": not right})

    async def _entry(self, digest: bytes, caller: Scope) -> Entry:
        """The entry, which must be the caller's tenant's: to another it does not exist."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                found = await self._store.get(digest, (tenant_tag(caller.tenant),))
        except (StoreError, TimeoutError) as error:
            raise RequestError(
                "the store does not answer; try again", status=503, code="store_unavailable"
            ) from error
        if isinstance(found, Absent) or found.tenant != caller.tenant:
            raise RequestError(
                "there is no such entry (any more)", status=404, param="entry", code="not_found"
            )
        return found

    async def _tell(self, digest: bytes, entry: Entry, *, right: bool) -> None:
        if self._kindred is None:
            return
        try:
            await self._kindred.told(digest, entry.gone_at, right=right)
        except (StoreError, VectorIndexError, TimeoutError) as error:
            # Its entry is gone, so what an index still finds answers nobody.
            log.warning("a question whose answer is wrong may still be in an index: %s", error)


class SemanticControl:
    """``GET`` and ``PUT /admin/mode``, ``GET /admin/labels`` and ``GET /admin/bound``.

    Args:
        pictures: the curves of this process's error bound; None where it tells none.
        alone: this process is the whole gateway; else a mode set here would not hold for the others.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        kindred: Kindred | None,
        pictures: Callable[[], Sequence[Picture]] | None,
        *,
        alone: bool,
    ) -> None:
        self._authenticator = authenticator
        self._kindred = kindred
        self._pictures = pictures
        self._alone = alone

    async def told(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{semantic, fixed}``: the mode, null without a semantic tier, and why it cannot be changed here, or null."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        mode = self._kindred.tier.mode if self._kindred is not None else None
        await send_json(send, {"semantic": mode, "fixed": self._fixed()})

    async def bound(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{curves, workers}``: what this worker's error bound believes; ``workers``: it is one of several."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        curves = self._pictures() if self._pictures is not None else []
        await send_json(send, {"curves": curves, "workers": not self._alone})

    async def mode(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``{semantic: serve | shadow | off}`` → the same, until the next start."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        body = decode_body(await read_body(receive, MAX_BODY))
        mode = body.get("semantic")
        if mode not in MODES or len(body) != 1:
            raise RequestError(
                f'the body must be {{"semantic": one of {", ".join(MODES)}}}',
                param="semantic",
                code="invalid_value",
            )
        why = self._fixed()
        if self._kindred is None or why is not None:
            raise RequestError(f"{why}: change the configuration", status=409, code="mode_fixed")
        self._kindred.tier.mode = mode
        await send_json(send, {"semantic": mode})

    def _fixed(self) -> str | None:
        if not self._alone:
            return "there are several workers"
        return "the semantic tier is not configured" if self._kindred is None else None

    async def labels(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """What is known of answers, right or wrong, as ``{labels: […]}``, oldest first: what calibrate reads."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        try:
            labels = await self._kindred.labels() if self._kindred is not None else []
        except StoreError as error:
            raise RequestError(str(error), status=503, code="store_unavailable") from error
        await send_json(send, {"labels": msgspec.to_builtins(labels)})


def read_verdict(
    body: Mapping[str, JSON], identity: str, where: str, verdicts: Sequence[str]
) -> tuple[str, str]:
    """What ``{<identity>, verdict, note?}`` is about, 32 hex digits to be found ``where``, and the verdict.

    Raises:
        RequestError: 400, naming the field.
    """
    fields = (identity, "verdict", "note")
    for name in body:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise RequestError(
                f"unknown field {name[:64]!r}{hint}", param=name[:64], code="unknown_parameter"
            )
    what, verdict, note = body.get(identity), body.get("verdict"), body.get("note")
    if not isinstance(what, str) or not _ID.fullmatch(what):
        raise RequestError(
            f"{identity} must be 32 hex digits, as in {where}", param=identity, code="invalid_value"
        )
    if not isinstance(verdict, str) or verdict not in verdicts:
        raise RequestError(
            f"verdict must be {', '.join(verdicts[:-1])} or {verdicts[-1]}",
            param="verdict",
            code="invalid_value",
        )
    if note is not None and (not isinstance(note, str) or len(note) > MAX_NOTE):
        raise RequestError(
            f"note must be a text of at most {MAX_NOTE} characters", param="note", code="invalid_value"
        )
    return what.lower(), verdict
