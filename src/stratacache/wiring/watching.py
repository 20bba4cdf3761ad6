"""Builds the dashboard, and what administrators watch and set by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from stratacache.gateway.app import Endpoint
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.dashboard import PATH, Dashboard
from stratacache.gateway.feed import Feed
from stratacache.gateway.feedback import SemanticControl
from stratacache.gateway.ledger import LedgerEndpoint
from stratacache.observe.census import TakeCensus
from stratacache.observe.ledger import UsageLedger
from stratacache.policy.prices import PriceTable
from stratacache.ports import Clock
from stratacache.types import JSON
from stratacache.wiring.semantic import SemanticParts


def watching(
    authenticator: Authenticator,
    census: TakeCensus,
    standing: Callable[[], Awaitable[dict[str, JSON]]],
    semantic: SemanticParts | None,
    ledger: UsageLedger,
    prices: PriceTable,
    clock: Clock,
    *,
    alone: bool,
) -> dict[str, Mapping[str, Endpoint]]:
    """Path to method to endpoint; ``alone``: there are no other workers."""
    dashboard = Dashboard(authenticator)
    control = SemanticControl(
        authenticator,
        semantic.kindred if semantic is not None else None,
        semantic.models.pictures if semantic is not None else None,
        alone=alone,
    )
    return {
        PATH: {"GET": dashboard},
        f"{PATH}/*": {"GET": dashboard},
        "/admin/feed": {"GET": Feed(authenticator, census, standing, clock)},
        "/admin/ledger": {"GET": LedgerEndpoint(authenticator, ledger, prices, census)},
        "/admin/mode": {"GET": control.told, "PUT": control.mode},
        "/admin/bound": {"GET": control.bound},
        "/admin/labels": {"GET": control.labels},
    }
