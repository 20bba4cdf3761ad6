"""The settings of L3, the prompt tier."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stratacache.settings.section import HOUR, Section, duration


class PromptSettings(Section, frozen=True, kw_only=True):
    """L3: the prefix repeats at a provider."""

    enabled: Annotated[bool, Meta(description="mark prefixes for the provider's cache where that pays")] = (
        True
    )
    rules: Annotated[
        str | None, Meta(description="file of the providers' rules, in place of the packaged ones")
    ] = None
    canonicalise: Annotated[
        bool, Meta(description="send tools by name, and the members of their schemas in one order")
    ] = False
    relocate_volatile: Annotated[
        bool,
        Meta(description="tell dates, ids and names of the system prompt in the user's last message instead"),
    ] = False
    sibling_wait: Annotated[
        float,
        duration("requests wait this long for another that writes their prefix; 0 for not", 0, HOUR),
    ] = 2.0
