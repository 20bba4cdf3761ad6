"""L3: marks the prefixes of requests for their provider's prompt cache, where the expected reuse pays for it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from stratacache.policy.fields import CHAT, MESSAGES
from stratacache.policy.prompt import plan as planning
from stratacache.policy.prompt.marks import Sketch, sketch, with_marks
from stratacache.policy.prompt.plan import Plan, Seen
from stratacache.policy.prompt.reuse import Reuse
from stratacache.policy.prompt.segments import Chain, Form
from stratacache.policy.salt import cache_key
from stratacache.ports import Clock
from stratacache.settings import CacheRule, ProviderTable
from stratacache.types import JSON, Request, Usage

log = logging.getLogger(__name__)

REFUSED_FOR: Final = 3600.0
"""Seconds that a model gets no marks after its server refused a request with, and took it without."""
MAX_MODELS: Final = 1000
KEY: Final = "prompt_cache_key"
_FORMS: Final[Mapping[str, Form]] = {CHAT: "chat", MESSAGES: "messages"}
_UNKNOWN: Final = Plan("unknown", "no rules are known for this server, model or kind of request")
_FAILED: Final = Plan("failed", "planning failed, and the log says how; the request went as it was")
_REFUSED: Final = Plan(
    "refused", "the server refused a marked request of late and took the same without marks"
)


class Tally(Protocol):
    """Counts what the tier did: ``observe.metrics``."""

    def planned(self, provider: str, decision: str) -> None:
        """A request to ``provider`` was sent with ``decision``."""
        ...

    def prompt_read(self, provider: str, result: str) -> None:
        """An answer told what of its prompt was read: ``as_expected``, ``less`` or ``unforeseen``, ``none``."""
        ...


class Prepared(msgspec.Struct, frozen=True):
    """The ``body`` to send and the plan that made it. Without ``rule`` there is nothing to learn from it; ``family``
    is the prefix that a key was made of, b"" without a key."""

    body: dict[str, JSON]
    plan: Plan
    provider: str = ""
    scope: bytes = b""
    made: Sketch | None = None
    seen: Seen | None = None
    rule: CacheRule | None = None
    family: bytes = b""
    changed: bool = False


class PromptTier:
    """Plans each call of the upstreams whose provider is known. For one event loop.

    Args:
        providers: by upstream, whose rules its cache follows; the others' requests stay as they are.
        secret: of the server; keys that providers see are made with it, and tell nothing of tenants or prompts.
    """

    def __init__(
        self, providers: Mapping[str, str], table: ProviderTable, secret: bytes, clock: Clock, tally: Tally
    ) -> None:
        self._providers = providers
        self._table = table
        self._secret = secret
        self._clock = clock
        self._tally = tally
        self._chain = Chain()
        self._reuse = Reuse()
        self._refused: dict[tuple[str, str], float] = {}
        self._rules: dict[tuple[str, str], CacheRule] = {}

    def prepare(self, request: Request, body: dict[str, JSON]) -> Prepared:
        """``body`` of a call that is about to be made, with marks where they pay; never raises.

        ``body`` is not changed. What the request needs is noted for the plans of later ones.
        """
        provider = self._providers.get(request.upstream)
        if provider is None or request.endpoint not in _FORMS:
            return Prepared(body, _UNKNOWN)
        try:
            prepared = self._prepare(request, body, provider)
            made, seen, rule = prepared.made, prepared.seen, prepared.rule
            if made is not None and seen is not None and rule is not None:
                planning.record(made.layout, seen, rule, self._reuse, prepared.scope, self._now())
            if prepared.family:
                self._reuse.arrive(prepared.family, self._now())
        except Exception:
            log.exception("a request is sent without marks, as planning them failed")
            prepared = Prepared(body, _FAILED, provider)
        self._tally.planned(provider, prepared.plan.decision)
        return prepared

    def unwritten(self, prepared: Prepared) -> list[bytes]:
        """The marked prefixes, the shortest first, that are not believed to be in the cache."""
        if prepared.made is None:
            return []
        digests = [prepared.made.layout.digests[mark.position] for mark in prepared.plan.marks]
        now = self._now()
        return [one for one in digests if (node := self._reuse.node(one)) is None or node.until <= now]

    def refused(self, request: Request, prepared: Prepared) -> None:
        """The server refused ``prepared`` and took the same request without what was added."""
        while len(self._refused) >= MAX_MODELS:
            del self._refused[next(iter(self._refused))]
        self._refused[request.upstream, request.resolved_model] = self._now() + REFUSED_FOR
        self._tally.planned(prepared.provider, _REFUSED.decision)

    def settle(self, prepared: Prepared, status: int, usage: Usage) -> None:
        """The call was answered: what it wrote can be read by others, and its ``usage`` tells what was read. Never
        raises."""
        made, rule, plan = prepared.made, prepared.rule, prepared.plan
        if status != 200 or made is None or rule is None or plan.decision == "no_gain":
            return
        try:
            now = self._now()
            expected = planning.expected_read(made.layout, plan, rule, self._reuse, now)
            planning.settle(made.layout, plan, rule, self._reuse, now)
        except Exception:
            log.exception("what a marked request wrote is not taken note of")
            return
        if usage.cached_prompt is not None:
            self._tally.prompt_read(prepared.provider, _result(usage.cached_prompt, expected))

    def explain(self, request: Request, body: dict[str, JSON]) -> dict[str, JSON]:
        """What :meth:`prepare` would do and why, as JSON. Mutates nothing that decides."""
        provider = self._providers.get(request.upstream)
        if provider is None:
            return {"outcome": _UNKNOWN.decision, "reason": _UNKNOWN.why}
        prepared = self._prepare(request, body, provider)
        plan, made = prepared.plan, prepared.made
        return {
            "outcome": plan.decision,
            "reason": plan.why,
            "provider": provider,
            "expected_gain_tokens": round(plan.gain),
            "marks": [
                {
                    "at": made.segments[mark.position].name,
                    "ttl": mark.ttl,
                    "tokens": mark.tokens,
                    "chances": [round(p, 3) for p in mark.chances],
                }
                for mark in plan.marks
                if made is not None
            ],
            "key": KEY in prepared.body and KEY not in body,
        }

    def check(self) -> None:
        """Raise AssertionError when something is over its bound."""
        self._reuse.check()
        self._chain.check()
        assert len(self._refused) <= MAX_MODELS

    def _prepare(self, request: Request, body: dict[str, JSON], provider: str) -> Prepared:
        form, model = _FORMS.get(request.endpoint), request.resolved_model
        rule = self._rule(provider, model)
        if form is None or rule is None or form not in rule.forms:
            return Prepared(body, _UNKNOWN, provider)
        if rule.style == "automatic":
            return Prepared(body, planning.AUTOMATIC, provider)
        if self._refused.get((request.upstream, model), 0.0) > self._now():
            return Prepared(body, _REFUSED, provider)
        scope = _scope(request)
        made = sketch(body, form, self._chain, scope)
        seen = planning.look(made.layout, self._reuse)
        plan = planning.consider(made.layout, seen, rule, self._reuse, scope, self._now())
        explicit = rule.style == "breakpoints"
        changed, family = body, b""
        if plan.marks or not plan.implicit:
            changed = with_marks(body, form, made, plan, explicit=explicit)
        if rule.takes_key and plan.decision in ("marked", "keyed") and body.get(KEY) is None:
            family = scope + (made.layout.family or made.layout.digests[0])
            changed = {**changed, KEY: self._key(made, rule, family)}
        noted = rule if rule.style != "key" and plan.decision in ("marked", "keyed", "no_gain") else None
        return Prepared(changed, plan, provider, scope, made, seen, noted, family, changed is not body)

    def _rule(self, provider: str, model: str) -> CacheRule | None:
        """That of the table, remembered: clients choose models where an upstream serves a pattern."""
        known = self._rules.get((provider, model))
        if known is None and (known := self._table.rule(provider, model)) is not None:
            if len(self._rules) >= MAX_MODELS:
                self._rules.clear()
            self._rules[provider, model] = known
        return known

    def _key(self, made: Sketch, rule: CacheRule, family: bytes) -> str:
        """The key that keeps requests with this prefix on one machine, or on several when one would be too few.

        A conversation stays with its machine: which of them is decided by its first position after the system.
        """
        layout = made.layout
        first = layout.digests[min(layout.system, len(layout.digests) - 1)]
        rate, machines = self._reuse.rate(family, self._now()), 1
        while machines * rule.key_rate < rate:
            machines *= 2
        return cache_key(self._secret, family, int.from_bytes(first[:8], "big") % machines)

    def _now(self) -> float:
        return self._clock.monotonic()


def _scope(request: Request) -> bytes:
    """Whose traffic it is: nobody's plans depend on what others ask."""
    scope = request.scope
    names = (request.upstream, request.resolved_model, scope.tenant, scope.credential)
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()[:8]


def _result(read: int, expected: int) -> str:
    if expected:
        return "as_expected" if read * 5 >= expected * 4 else "less"
    return "unforeseen" if read else "none"
