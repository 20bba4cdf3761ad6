"""Reads the configuration's text: bounded YAML into plain values, with the place where each value stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

Path = tuple[str | int, ...]

MAX_BYTES = 2**20
# The whole tree has a few dozen keys; these bounds only stop bombs (deep nesting, aliases of aliases of …).
MAX_DEPTH = 24
MAX_VALUES = 20_000
ENV_PREFIX = "STRATACACHE__"

_CONTAINER_STARTS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CONTAINER_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class Problem(NamedTuple):
    """One thing that is wrong: where in the tree, and what. An empty path is the file as a whole."""

    path: Path
    message: str


class EnvText(str):
    """Text of an environment variable, not parsed yet: whether it is YAML depends on its key."""

    __slots__ = ()


class Origins:
    """Where values come from: a line of the file or an environment variable."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._places: dict[Path, str] = {}

    def line(self, path: Path, line: int) -> None:
        self._places.setdefault(path, f"{self._file}:{line}")

    def variable(self, path: Path, name: str) -> None:
        self._places[path] = f"environment variable {name}"

    def place(self, path: Path) -> str:
        """The place of ``path`` or of the nearest ancestor that has one."""
        for end in range(len(path), -1, -1):
            if path[:end] in self._places:
                return self._places[path[:end]]
        return self._file


class YamlError(Exception):
    """The text is not acceptable YAML. ``line`` counts from 1, 0 when unknown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class YamlReader:
    """One text → plain values. Duplicate and non-text keys are collected as ``problems``."""

    def __init__(self, origins: Origins) -> None:
        self.problems: list[Problem] = []
        self._origins = origins
        self._values = 0

    def read(self, text: str) -> Any:
        """The document's value, None when empty. Raises YamlError for bad syntax or a bomb."""
        try:
            _refuse_bombs(text)
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
            return None if node is None else self._value(loader, node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise YamlError(f"not valid YAML: {error.problem}", mark.line + 1 if mark else 0) from error
        except yaml.YAMLError as error:  # a ReaderError: a character that YAML forbids
            raise YamlError("not valid YAML: it contains a character that YAML does not allow") from error

    def _value(self, loader: yaml.SafeLoader, node: yaml.Node, path: Path) -> Any:
        self._values += 1
        # An alias is the same node again, so a bomb grows here and nowhere before.
        if self._values > MAX_VALUES or len(path) > MAX_DEPTH:
            raise YamlError("too many or too deeply nested values (aliases count each time)", _line(node))
        self._origins.line(path, _line(node))
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(loader, node, path))
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, (*path, i)) for i, item in enumerate(node.value)]
        try:
            return loader.construct_object(node)
        except ValueError as error:  # such as the date 2024-13-45, or an integer of 5,000 digits
            raise YamlError(
                "a value that looks like a date or number but is none; quote it", _line(node)
            ) from error

    def _pairs(
        self, loader: yaml.SafeLoader, node: yaml.MappingNode, path: Path
    ) -> Iterator[tuple[str, Any]]:
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
                shown = f"the key {key!r}" if isinstance(key, str) else "a key"
                self.problems.append(Problem((*path, "?"), f"{shown} is not text; quote it"))
                self._origins.line((*path, "?"), _line(key_node))
            elif key in first_lines:
                message = f"line {_line(key_node)} gives this key again (first on line {first_lines[key]})"
                self.problems.append(Problem((*path, key), message))
            else:
                first_lines[key] = _line(key_node)
                self._origins.line((*path, key), _line(key_node))
                yield key, self._value(loader, value_node, (*path, key))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _refuse_bombs(text: str) -> None:
    """Bound depth and count on the event stream: it is not recursive, as composing the tree is."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        depth += isinstance(event, _CONTAINER_STARTS) - isinstance(event, _CONTAINER_ENDS)
        if depth > MAX_DEPTH or count > MAX_VALUES:
            mark = event.start_mark
            raise YamlError("too many or too deeply nested values", mark.line + 1 if mark else 0)


def parse_variable(text: str) -> Any:
    """An environment variable's text as YAML (JSON is YAML); raises YamlError."""
    if len(text) > MAX_BYTES:
        raise YamlError("longer than 1 MiB")
    reader = YamlReader(Origins(""))
    value = reader.read(text)
    if reader.problems:
        raise YamlError(reader.problems[0].message)
    return value


def overlay(tree: dict[str, Any], environ: Mapping[str, str], origins: Origins) -> list[Problem]:
    """Lay ``STRATACACHE__A__B=text`` over ``tree`` (changed in place) as EnvText leaves at ``a.b``.

    Shorter paths go first, so a variable for a whole section and one for a key in it work together.
    """
    problems: list[Problem] = []
    for name in sorted(name for name in environ if name.startswith(ENV_PREFIX)):
        path: Path = tuple(name[len(ENV_PREFIX) :].lower().split("__"))
        origins.variable(path, name)
        if "" in path:
            problems.append(Problem(path, "an empty name part; write it like STRATACACHE__SERVER__PORT"))
            continue
        problem = _set(tree, path, EnvText(environ[name]))
        if problem is not None:
            problems.append(problem)
    return problems


def _set(tree: dict[str, Any], path: Path, text: EnvText) -> Problem | None:
    here = tree
    for end, part in enumerate(path[:-1], start=1):
        below = here.get(str(part))
        if isinstance(below, EnvText):
            try:
                below = parse_variable(below)
            except YamlError as error:
                return Problem(path[:end], error.message)
        if below is None:
            below = {}
        if not isinstance(below, dict):
            return Problem(path, f"{dotted(path[:end])} is no mapping; set it as a whole, as JSON text")
        here[str(part)] = below
        here = below
    here[str(path[-1])] = text
    return None


def dotted(path: Path) -> str:
    """``("upstreams", 0, "name")`` → ``upstreams[0].name``."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).removeprefix(".")


def report(problems: list[Problem], origins: Origins) -> str:
    """One line a problem: place, key path, what is wrong."""
    lines = []
    for path, message in problems:
        key = f"{dotted(path)}: " if path and path[-1] != "?" else ""
        lines.append(f"{origins.place(path)}: {key}{message}")
    return "\n".join(dict.fromkeys(lines))
