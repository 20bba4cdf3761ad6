"""The settings of L3, the prompt tier."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stratacache.settings.section import Section


class PromptSettings(Section, frozen=True, kw_only=True):
    """L3: the prefix repeats at a provider."""

    enabled: Annotated[bool, Meta(description="mark prefixes for the provider's cache where that pays")] = (
        True
    )
    rules: Annotated[
        str | None, Meta(description="file of the providers' rules, in place of the packaged ones")
    ] = None
