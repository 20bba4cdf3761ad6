"""Builds what administrators ask of the stored entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from stratacache.consistency.audit import AuditLog
from stratacache.consistency.erasure import Eraser, Step
from stratacache.consistency.invalidation import Invalidator
from stratacache.gateway.app import Endpoint
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.entries import Entries
from stratacache.gateway.erasure import Erasure
from stratacache.gateway.shadow import ShadowReport
from stratacache.gateway.vitals import Embedders, Vitals
from stratacache.observe.census import TakeCensus
from stratacache.observe.ledger import UsageLedger
from stratacache.ports import Clock, Listing, Store
from stratacache.settings import Settings
from stratacache.wiring.policies import error_limits
from stratacache.wiring.semantic import SemanticParts


def operating(
    authenticator: Authenticator,
    store: Store,
    patient: Store,
    listing: Listing | None,
    semantic: SemanticParts | None,
    audit: AuditLog | None,
    clock: Clock,
    census: TakeCensus,
    settings: Callable[[], Settings],
    invalidator: Invalidator,
    ledger: UsageLedger,
    teaching: Endpoint,
) -> dict[str, Mapping[str, Endpoint]]:
    """Path to method to endpoint."""
    entries = Entries(
        authenticator,
        store,
        patient,
        listing,
        semantic.opened.find if semantic is not None else None,
        semantic.kindred.learner.restore if semantic is not None else None,
        audit,
        clock,
    )
    kindred = semantic.kindred if semantic is not None else None
    shadow = ShadowReport(authenticator, kindred, census, partial(_max_error, settings))
    elsewhere: dict[str, Step] = {
        "ledger": ledger.erase,
        **({"review": kindred.erase} if kindred is not None else {}),
    }
    eraser = Eraser(
        invalidator,
        store,
        listing,
        semantic.opened.question_log if semantic is not None else None,
        kindred.learner.retract if kindred is not None else None,
        elsewhere,
        clock,
    )
    vitals = Vitals(authenticator, lambda: settings().masked(), _embedders(semantic), clock)
    return {
        "/admin/config": {"GET": vitals},
        "/admin/erase": {"POST": Erasure(authenticator, eraser)},
        "/admin/teach": {"POST": teaching},
        "/admin/shadow": {"GET": shadow},
        "/admin/entries": {"GET": entries.browse},
        "/admin/export": {"GET": entries.export},
        "/admin/import": {"POST": entries.bring},
        "/admin/versions": {"POST": entries.versions},
    }


def _embedders(semantic: SemanticParts | None) -> Embedders | None:
    return None if semantic is None else Embedders(semantic.models.embedder, semantic.opened.embedder)


def _max_error(settings: Callable[[], Settings], scene: str) -> float:
    return error_limits(settings()).of(scene, "")
