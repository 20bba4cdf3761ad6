"""Renders a conversation to the prompt text with the model's own chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from stratacache.engine.errors import InvalidRequest, ModelUnavailable


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


class ChatTemplate:
    """A compiled template. It comes from a file that somebody downloaded: hence the sandbox."""

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None) -> None:
        """`tokens`: what the template may name, such as bos_token."""
        # The settings are what chat templates are written for (as in transformers).
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals |= tokens or {}
        environment.globals["raise_exception"] = _raise
        self.source = source
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ModelUnavailable(f"the chat template cannot be read: {error}") from error

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTemplate:
        """The template of a converted model folder."""
        tokens = json.loads((folder / "special_tokens.json").read_text(encoding="utf-8"))
        return cls((folder / "chat_template.jinja").read_text(encoding="utf-8"), tokens)

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt for `messages` (role, content), open for the assistant's answer."""
        try:
            return self._template.render(messages=list(messages), add_generation_prompt=True)
        except TemplateError as error:
            raise InvalidRequest(f"the chat template refuses these messages: {error}", "messages") from error
