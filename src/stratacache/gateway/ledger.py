"""``GET /admin/ledger``: what was spent and saved, beside what is known of wrong answers."""

from __future__ import annotations

from collections.abc import Mapping

from stratacache.errors import RequestError, StoreError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, Receive, Send, read_number, read_query, send_json
from stratacache.gateway.prepare import join_headers
from stratacache.observe.census import TakeCensus
from stratacache.observe.ledger import UsageLedger
from stratacache.observe.ledger_report import report
from stratacache.policy.prices import PriceTable
from stratacache.stores.ledger_file import KEPT_DAYS
from stratacache.types import JSON

DEFAULT_DAYS = 7
_ERROR = "stratacache_semantic_observed_error"


class LedgerEndpoint:
    """Tells the ledger to administrators."""

    def __init__(
        self, authenticator: Authenticator, ledger: UsageLedger, prices: PriceTable, census: TakeCensus
    ) -> None:
        self._authenticator = authenticator
        self._ledger = ledger
        self._prices = prices
        self._census = census

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """``?days=`` (today is one of them, UTC) and ``?tenant=`` narrow it."""
        self._authenticator.identify(join_headers(scope["headers"]), "admin")
        days = read_number(scope, "days", default=DEFAULT_DAYS, most=KEPT_DAYS)
        tenant = read_query(scope, "tenant")
        try:
            today, accounts = await self._ledger.read(days)
        except StoreError as error:
            raise RequestError(str(error), status=503, code="ledger_unavailable") from error
        if tenant is not None:
            accounts = [(account, sheet) for account, sheet in accounts if account[1] == tenant]
        told = report(accounts, self._prices, today=today, days=days)
        levels = (await self._census()).metrics.levels()
        await send_json(send, {**told, "risk": _risk(levels)})


def _risk(levels: Mapping[str, Mapping[str, float]]) -> list[JSON]:
    """By scene: the share of requests that semantic answers got wrong, of late, with its 95 % interval."""
    low, high = levels.get(f"{_ERROR}_low", {}), levels.get(f"{_ERROR}_high", {})
    return [
        {"scene": scene, "error": error, "low": low.get(scene), "high": high.get(scene)}
        for scene, error in levels.get(_ERROR, {}).items()
        if high.get(scene)
    ]
