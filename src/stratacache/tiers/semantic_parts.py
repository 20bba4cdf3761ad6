"""What the semantic tier is made of: the decisions it is given, the models and index it asks, and how it asks them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from stratacache.errors import ModelError, VectorIndexError
from stratacache.policy.breaker import FAILURES, Breaker, BreakerState
from stratacache.ports import Clock, Embedder, Vector

log = logging.getLogger(__name__)
T = TypeVar("T")

_BLAMELESS = frozenset(
    {"overloaded", "model_loading", "nothing_to_embed", "question_too_long", "verifier_missing"}
)
"""Codes of model errors that say nothing about whether the next call would fail."""


class Cacheable(Protocol):
    """What the classifier says of a question: ``policy.cacheability.Cacheability``."""

    @property
    def cacheable(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def stands_alone(self) -> bool: ...
    @property
    def risk(self) -> str: ...


class Found(Protocol):
    """One guard's word on a pair: ``policy.guards.Finding``."""

    @property
    def guard(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def detail(self) -> str: ...


class Examined(Protocol):
    """What all guards say of a pair: ``policy.guards.Examination``."""

    @property
    def verdict(self) -> Literal["veto", "pass", "unsure"]: ...
    @property
    def findings(self) -> Sequence[Found]: ...


Source = Literal["explored", "checked", "feedback", "review"]
"""Where a label comes from: a fresh answer that was needed anyway, one for a hit that was drawn, or people."""


class Ruled(Protocol):
    """What the error bound says of a candidate: ``policy.bound.pooled.Ruling``."""

    @property
    def choice(self) -> Literal["serve", "explore", "reject"]: ...
    @property
    def threshold(self) -> float: ...
    @property
    def checked(self) -> float: ...


class Bound(Protocol):
    """The error bound: ``policy.bound.pooled.Bound``."""

    def looked(self, scene: str, risk: str = "") -> None: ...
    def decide(
        self, scene: str, entry: bytes, probability: float, draw: float, *, risk: str = "", language: str = ""
    ) -> Ruled: ...
    def observe(
        self,
        scene: str,
        entry: bytes,
        probability: float,
        right: bool,
        *,
        source: Source = "explored",
        weight: float = 1.0,
        risk: str = "",
        language: str = "",
    ) -> None: ...
    def forget(self, entry: bytes) -> None: ...
    def explain(
        self, scene: str, entry: bytes, probability: float, *, risk: str = "", language: str = ""
    ) -> dict[str, float]: ...


class Decisions(msgspec.Struct, frozen=True):
    """The pure parts: ``classify`` a question by its words, ``confirm`` what was said by its vector and the fingerprint
    of the embedder that made it, tell its ``language``, ``examine`` the asked and the stored one."""

    classify: Callable[[str], Cacheable]
    confirm: Callable[[Any, Vector, str], Cacheable]
    language: Callable[[str], str]
    examine: Callable[[str, str], Examined]


class Limits(msgspec.Struct, frozen=True):
    """``candidates`` nearest questions with a cosine of at least ``floor``, of which ``verify`` are verified at most.

    ``budget``: seconds of one look-up. ``corroboration``: other principals who must have got an agreeing answer before
    one crosses principals. ``least``: the verifier's probability below which nothing is served, whatever the bound
    would afford; ``least_unsure`` where a guard has doubts. ``worth``: the probability from which on a fresh answer
    beside a candidate is a label; ``sure``: that from which on nothing better is looked for.
    """

    candidates: int = 10
    floor: float = 0.5
    verify: int = 3
    budget: float = 0.25
    corroboration: int = 0
    least: float = 0.7
    least_unsure: float = 0.85
    worth: float = 0.3
    sure: float = 0.9


def embedder_of(vector: Vector, embedder: Embedder) -> str:
    """The fingerprint of the one that made ``vector``: what it says itself still holds when another has taken over."""
    return str(getattr(vector, "fingerprint", embedder.fingerprint))


class Passed(Exception):
    """The tier is passed over; ``reason`` is the word that says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Dependency:
    """Asks one model or index: no longer than the look-up has, and not at all while its breaker is open.

    Args:
        name: ``embedder``, ``index`` or ``verifier``; the reasons are made of it.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._breaker = Breaker()
        self._answered = 0  # calls

    def current(self) -> BreakerState:
        """The state of its breaker."""
        return self._breaker.state(self._clock.monotonic())

    async def ask(self, call: Callable[[], Awaitable[T]], until: float) -> T:
        """What ``call`` gives by ``until``, a time of the event loop.

        Raises:
            Passed: the error's own word, or ``…_slow``, ``…_down`` (it failed too often) or ``…_error``.
        """
        if not self._breaker.allows(self._clock.monotonic()):
            raise Passed(f"{self._name}_down")
        answered = self._answered
        try:
            async with asyncio.timeout_at(until):
                answer = await call()
        except TimeoutError:
            if self._answered > answered:  # it answers others: busy, and no better for being left alone
                raise Passed(f"{self._name}_slow") from None
            raise self._failed(f"{self._name}_slow", "it did not answer in time") from None
        except (ModelError, VectorIndexError) as error:
            if error.code in _BLAMELESS:
                raise Passed(error.code) from error
            raise self._failed(error.code, str(error)) from error
        except Exception as error:  # a look-up never raises: the request has a model to go to
            log.exception("the %s failed in a way that it does not announce", self._name)
            raise self._failed(f"{self._name}_error", repr(error)) from error
        self._answered += 1
        if self._breaker.succeeded():
            log.warning("the %s answers again", self._name)
        return answer

    def _failed(self, reason: str, why: str) -> Passed:
        if self._breaker.failed(self._clock.monotonic()):
            log.warning(
                "the %s failed %d times in a row and is left alone for a while: %s", self._name, FAILURES, why
            )
        return Passed(reason)
