"""What a guard says of a pair."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["veto", "pass", "unsure"]


class Finding(msgspec.Struct, frozen=True):
    """One guard's word on a pair.

    ``detail`` is for people: what differs, the asked question's side first ("30 days / 60 days").
    """

    guard: str
    verdict: Verdict
    detail: str


class Examination(msgspec.Struct, frozen=True):
    """All findings on a pair, and what follows: one veto vetoes, else one doubt leaves it to the verifier.

    ``findings`` holds only what was noticed; a guard that saw nothing of its kind says nothing.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
