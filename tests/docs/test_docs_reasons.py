"""docs/guide/reasons.md names every word that the code can say, and no other."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import get_args, get_type_hints

import pytest
from tests.docs.doc_pages import ROOT, SOURCE, first_column, section

from stratacache.dialects import anthropic_messages, openai_chat
from stratacache.errors import StoreDown, StoreError, StoreSlow
from stratacache.policy.cacheability import CACHEABLE, REASONS
from stratacache.policy.fields import BYPASS_REASONS
from stratacache.tiers.semantic import NOTHING_NEAR
from stratacache.types import Absent, PutResult

TOLD_BEFORE = {"empty", "long"}
"""Words of the classifier that nobody is told: ``no_question`` and ``question_too_long`` come first."""
PAGE = ROOT / "docs" / "guide" / "reasons.md"
GATEWAY = ("consistency", "dialects", "gateway", "models", "pipeline", "tiers", "upstream")
"""Packages whose errors clients see. The engine's own errors are passed on and documented with the engine."""


@cache
def tree(path: str) -> ast.Module:
    return ast.parse((SOURCE / path).read_text(encoding="utf-8"))


def texts(node: ast.AST) -> set[str]:
    """Every string constant below ``node``."""
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def function(path: str, name: str) -> ast.AST:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return next(n for n in ast.walk(tree(path)) if isinstance(n, kinds) and n.name == name)


def returned(path: str, *names: str) -> set[str]:
    """The words that functions return: strings in their return statements, but no keys of look-ups."""
    found: set[str] = set()
    for name in names:
        for node in ast.walk(function(path, name)):
            if isinstance(node, ast.Return) and node.value is not None:
                found |= _results(node.value)
    return found


def _results(value: ast.expr) -> set[str]:
    if isinstance(value, ast.IfExp):
        return _results(value.body) | _results(value.orelse)
    return {value.value} if isinstance(value, ast.Constant) and isinstance(value.value, str) else set()


def calls(paths: Iterable[str], name: str) -> Iterator[ast.Call]:
    """Every call of ``name`` or ``….name``."""
    for path in paths:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call):
                called = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                if called == name:
                    yield node


def modules(*packages: str) -> list[str]:
    return [
        p.relative_to(SOURCE).as_posix() for name in packages for p in sorted((SOURCE / name).rglob("*.py"))
    ]


def codes(exception: str) -> set[str]:
    """The ``code`` of every such exception that the gateway raises or derives from it, and its default."""
    raised = list(calls(modules(*GATEWAY), exception))
    for path in modules(*GATEWAY):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and exception in {
                getattr(base, "id", "") for base in node.bases
            }:
                raised += [call for call in ast.walk(node) if isinstance(call, ast.Call)]
    found = {
        keyword.value.value
        for call in raised
        for keyword in call.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
    }
    for node in ast.walk(tree("errors.py")):
        if isinstance(node, ast.ClassDef) and node.name == exception:
            found |= {text for text in texts(node.body[-1].args) if text.isidentifier()}
    return found


def hit_reasons() -> set[str]:
    """The third field of each Hit, and what is told to those who joined a call."""
    hits = {word for call in calls(modules("tiers"), "Hit") for word in texts(call.args[2])}
    for node in ast.walk(function("pipeline/outcome.py", "describe_call")):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            hits |= texts(node.value) - {"hit"}
    return hits


def miss_reasons() -> set[str]:
    """What the exact tier says, what a store says through it, and what ``serve`` finds."""
    missed = {word for call in calls(modules("tiers"), "Miss") for word in texts(call.args[0])}
    stale = returned("tiers/exact.py", "staleness")
    stores = {error.code for error in (StoreError, StoreSlow, StoreDown)} | set(
        get_args(get_type_hints(Absent)["reason"])
    )
    served = {word for node in ast.walk(function("pipeline/serve.py", "_exact_says")) if isinstance(node, ast.IfExp)
              for word in texts(node.body)}  # fmt: skip
    decided = {call.args[2].value for call in calls(["pipeline/serve.py"], "describe")
               if isinstance(call.args[2], ast.Constant)}  # fmt: skip
    return (missed | stale | stores | served | decided) - {""}


def semantic_reasons() -> set[str]:
    """What the semantic tier says besides what the store says through it, and how old an entry is."""
    unfit = {
        word
        for call in calls(["policy/partition.py", "tiers/semantic_question.py"], "Unfit")
        for word in texts(call.args[0])
    }
    ended = {word for call in calls(["tiers/semantic.py"], "end") for word in texts(call.args[1]) - {""}}
    refused = returned("tiers/semantic.py", "_refusal", "_entry") - {"not_found"}
    ruled = {word for node in ast.walk(function("tiers/semantic.py", "lookup")) if isinstance(node, ast.IfExp)
             for word in texts(node.body) | texts(node.orelse)}  # fmt: skip
    faults = {
        f"{part}_{how}" for part in ("embedder", "index", "verifier") for how in ("slow", "down", "error")
    }
    return (
        unfit
        | ended
        | refused
        | ruled
        | faults
        | codes("ModelError")
        | (REASONS - CACHEABLE - TOLD_BEFORE)
        | {"unclassified"}
        | {NOTHING_NEAR}
    )


def stale_reasons() -> set[str]:
    return {word for call in calls(["pipeline/serve.py"], "Hit") for word in texts(call.args[2])}


def refusals() -> set[str]:
    return returned("pipeline/gate.py", "admits")


def bypass_reasons() -> set[str]:
    words = set(BYPASS_REASONS) | returned("pipeline/plan.py", "_bypass")
    planned = function("pipeline/plan.py", "plan_request")
    words |= {text for node in ast.walk(planned) if isinstance(node, ast.IfExp) for text in texts(node)}
    relayed = function("gateway/passthrough.py", "_headers")
    assert isinstance(relayed, ast.FunctionDef)
    return words | {text for default in relayed.args.defaults for text in texts(default)}


def failures() -> set[str]:
    assigned = {
        text
        for node in ast.walk(function("pipeline/outcome.py", "describe_call"))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for text in texts(node.value)
    }
    return assigned - {""} | codes("UpstreamError")


def withheld() -> set[str]:
    dialect = returned("dialects/openai_chat.py", "completeness", "_choice_fault", "_message_fault")
    dialect |= returned("dialects/anthropic_messages.py", "completeness")
    verdicts = calls(["pipeline/plan.py", "pipeline/call.py"], "Verdict")
    planned = {word for call in verdicts for word in texts(call) - {"withheld", "answer", "negative"}}
    return dialect | planned | set(openai_chat._FAILED.values()) | set(anthropic_messages._FAILED.values())


def write_backs() -> set[str]:
    dropped = {call.args[0].value for call in calls(["pipeline/writeback.py"], "wrote")
               if isinstance(call.args[0], ast.Constant)}  # fmt: skip
    return returned("pipeline/writeback.py", "_attempt") - {"retry"} | dropped | set(get_args(PutResult))


@pytest.mark.parametrize(
    ("heading", "in_code"),
    [
        ("### Hits", hit_reasons),
        ("### Misses", miss_reasons),
        ("### Misses of the semantic tier", semantic_reasons),
        ("### Bypasses", bypass_reasons),
        ("### Turned away", refusals),
        ("### Upstream failures", failures),
        ("### An old answer for want of a better", stale_reasons),
        ("## Answers that are not stored", withheld),
        ("## Write-backs", write_backs),
        ("## Error codes", lambda: codes("RequestError") - {"invalid_request"}),
    ],
)  # fmt: skip
def test_the_words_are_those_of_the_code(heading: str, in_code: Callable[[], set[str]]) -> None:
    """``invalid_request`` is left out: it is the default of an exception that always gets a word of its own."""
    words = in_code()
    assert words, "the code was not understood; this test has to follow it"
    assert first_column(section(PAGE, heading)) == words


def test_every_request_error_has_a_word_of_its_own() -> None:
    for path in modules(*GATEWAY):
        for call in calls([path], "RequestError"):
            assert any(keyword.arg == "code" for keyword in call.keywords), f"{path}:{call.lineno}"


def test_stages_are_documented() -> None:
    """Names of stages are strings in pairs; Server-Timing and the stage metric show them."""
    timed = {call.args[0].value for call in calls(modules("tiers"), "stage")
             if isinstance(call.args[0], ast.Constant)}  # fmt: skip
    pairs = timed | {
        node.elts[0].value
        for path in ("gateway/chat.py", "pipeline/serve.py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Tuple) and len(node.elts) == 2
        and isinstance(node.elts[0], ast.Constant) and isinstance(node.elts[1], ast.BinOp)
    }  # fmt: skip
    assert pairs == first_column(section(ROOT / "docs" / "guide" / "observing.md", "## Stages"))
