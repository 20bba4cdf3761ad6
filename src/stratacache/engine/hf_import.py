"""Reads a model folder as Hugging Face's tools write it: config, safetensors, tokenizer, chat template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from stratacache.engine.errors import ModelUnavailable

_TEXTS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


class HuggingFaceFolder:
    """A folder with at least config.json, tokenizer.json, tokenizer_config.json and *.safetensors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            if not (path / name).is_file():
                raise ModelUnavailable(f"{path} has no {name}")
        if not self._weights():
            raise ModelUnavailable(f"{path} has no *.safetensors; other files of weights are not read")
        self._settings = self._json("tokenizer_config.json")

    def files(self) -> list[Path]:
        """Every file that the converted folder depends on, in a fixed order."""
        return [*(self._path / name for name in _TEXTS if (self._path / name).is_file()), *self._weights()]

    def config(self) -> dict[str, Any]:
        """config.json, with the ends of text that generation_config.json names, if it does."""
        config = self._json("config.json")
        if "quantization_config" in config:
            raise ModelUnavailable("quantization_config: quantised folders are not supported; GGUF files are")
        end = self._json("generation_config.json").get("eos_token_id")
        return config if end is None else config | {"eos_token_id": end}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by its name, as it was saved."""
        from safetensors import safe_open

        for path in self._weights():
            with safe_open(path, framework="pt") as file:
                yield from ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118 - it is no dict

    def chat_template(self) -> str:
        """The Jinja source; of several the one that is called default."""
        path = self._path / "chat_template.jinja"
        if path.is_file():
            return path.read_text(encoding="utf-8")
        found = self._settings.get("chat_template")
        if isinstance(found, list):
            found = {each["name"]: each["template"] for each in found}.get("default")
        if not found:
            raise ModelUnavailable(f"{self._path}: tokenizer_config.json has no chat_template")
        return str(found)

    def tokenizer_json(self) -> str:
        """The tokenizer, as it is."""
        return (self._path / "tokenizer.json").read_text(encoding="utf-8")

    def special_tokens(self) -> dict[str, str]:
        """What the chat template may call bos_token and eos_token."""
        given = {name: self._settings.get(name) for name in ("bos_token", "eos_token")}
        texts = {name: one["content"] if isinstance(one, dict) else one for name, one in given.items()}
        return {name: text for name, text in texts.items() if text}

    def _weights(self) -> list[Path]:
        return sorted(self._path.glob("*.safetensors"))

    def _json(self, name: str) -> dict[str, Any]:
        path = self._path / name
        try:
            return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
        except ValueError as error:
            raise ModelUnavailable(f"{path} is no JSON object: {error}") from error
