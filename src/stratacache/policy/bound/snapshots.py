"""The bound's state as JSON, with its version; counts add up, so snapshots of several processes can be merged."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stratacache.policy.bound.curve import Labels
from stratacache.policy.bound.drift import Drift
from stratacache.policy.bound.entries import Entries
from stratacache.policy.bound.ledger import Ledger
from stratacache.policy.bound.scale import BINS

VERSION = 1

_Key = tuple[str, str]


class _Written(msgspec.Struct):
    version: int
    ledgers: list[tuple[str, str, Ledger]]
    labels: list[tuple[str, str, Labels]]
    drifts: list[tuple[str, str, Drift]]
    entries: dict[str, tuple[float, float]]  # by the entry in hexadecimal: wrong, expected wrong
    verifier: str = ""


class State(msgspec.Struct):
    ledgers: dict[_Key, Ledger]
    labels: dict[_Key, Labels]
    drifts: dict[_Key, Drift]
    entries: dict[bytes, tuple[float, float]]


def encode(
    verifier: str,
    ledgers: Mapping[_Key, Ledger],
    labels: Mapping[_Key, Labels],
    drifts: Mapping[_Key, Drift],
    entries: Entries,
) -> bytes:
    return msgspec.json.encode(
        _Written(
            VERSION,
            [(*key, ledger) for key, ledger in ledgers.items()],
            [(*key, counts) for key, counts in labels.items()],
            [(*key, drift) for key, drift in drifts.items()],
            {entry.hex(): counts for entry, counts in entries.items()},
            verifier,
        )
    )


def decode(snapshot: bytes, verifier: str) -> State:
    """Raises ValueError: not JSON, another version or verifier, or counts on another scale."""
    written = msgspec.json.decode(snapshot, type=_Written)
    if written.version != VERSION:
        raise ValueError(f"a snapshot of version {written.version}, not {VERSION}")
    if written.verifier != verifier:
        raise ValueError("a snapshot of what was learned of another verifier")
    for *_, ledger in written.ledgers:
        _check(ledger.offered, ledger.served, ledger.suspect)
    for *_, counts in written.labels:
        _check(counts.right, counts.wrong)
    return State(
        {(scene, risk): ledger for scene, risk, ledger in written.ledgers},
        {(scene, language): counts for scene, language, counts in written.labels},
        {(scene, risk): drift for scene, risk, drift in written.drifts},
        {bytes.fromhex(entry): counts for entry, counts in written.entries.items()},
    )


def _check(*bins: list[float]) -> None:
    if any(len(counts) != BINS or min(counts) < 0 for counts in bins):
        raise ValueError("a snapshot whose counts are on another scale")
