"""No verifier: what stands in when none is installed."""

from __future__ import annotations

from stratacache.errors import ModelError


class NullVerifier:
    """A ``ports.Verifier`` that verifies nothing; only questions that are the same can be answered then."""

    fingerprint = "null"

    async def verify(self, asked: str, stored: str) -> float:
        """Raises ModelError: ``verifier_missing``."""
        raise ModelError("there is no verifier", code="verifier_missing")

    async def close(self) -> None:
        """Nothing to release."""
