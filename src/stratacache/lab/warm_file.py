"""Reads what a cache is to be warmed with: questions with or without answers, or a log of requests."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stratacache.errors import StrataError
from stratacache.types import JSON

LONGEST = 64 << 20  # bytes of a line


class Row(msgspec.Struct, frozen=True):
    """A ``question``, or a whole chat ``request``; with the ``answer`` that it is to get, None to ask the model."""

    question: str = ""
    request: dict[str, JSON] | None = None
    answer: str | None = None


def rows(path: Path) -> Iterator[Row]:
    """The rows of a ``.csv`` file with a head that names ``question`` and maybe ``answer``, or of a file of JSON lines.

    A line is ``{question, answer?}``, a chat request with its ``messages``, or an object that has one as ``request`` or
    ``body``, as logs and batch files do.

    Raises:
        StrataError: the file cannot be read, or a row is none of that; says which.
    """
    try:
        if path.suffix.lower() == ".csv":
            yield from _from_csv(path)
            return
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST), b""), 1):
                if line.strip():
                    yield _from_json(line, f"{path}:{number}")
    except OSError as error:
        raise StrataError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StrataError(f"{path} is not UTF-8") from None


def _from_csv(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        if "question" not in (reader.fieldnames or ()):
            raise StrataError(f"{path}: the first line must name the columns, 'question' among them")
        for record in reader:
            question = (record["question"] or "").strip()
            if not question:
                raise StrataError(f"{path}:{reader.line_num}: there is no question")
            yield Row(question, answer=(record.get("answer") or "").strip() or None)


def _from_json(line: bytes, where: str) -> Row:
    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise StrataError(f"{where}: no JSON: {error}") from None
    if not isinstance(value, dict):
        raise StrataError(f"{where}: must be an object")
    answer = value.get("answer")
    if not (answer is None or isinstance(answer, str)):
        raise StrataError(f"{where}: answer must be a text")
    answer = (answer or "").strip() or None
    question = value.get("question")
    if isinstance(question, str) and question.strip():
        return Row(question.strip(), answer=answer)
    for request in (value.get("request"), value.get("body"), value):
        if isinstance(request, dict) and isinstance(request.get("messages"), list):
            return Row(request={n: v for n, v in request.items() if n != "answer"}, answer=answer)
    raise StrataError(f"{where}: has neither a question nor a request with messages")
