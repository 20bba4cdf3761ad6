"""Builds what administrators ask of the stored entries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from stratacache.consistency.audit import AuditLog
from stratacache.gateway.app import Endpoint
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.entries import Entries
from stratacache.gateway.shadow import ShadowReport
from stratacache.observe.census import TakeCensus
from stratacache.ports import Clock, Listing, Store
from stratacache.settings import Settings
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
    settings: Settings,
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
    return {
        "/admin/shadow": {"GET": shadow},
        "/admin/entries": {"GET": entries.browse},
        "/admin/export": {"GET": entries.export},
        "/admin/import": {"POST": entries.bring},
        "/admin/versions": {"POST": entries.versions},
    }


def _max_error(settings: Settings, scene: str) -> float:
    own = settings.scenes[scene].max_error if scene in settings.scenes else None
    return settings.tiers.semantic.max_error if own is None else own
