"""The engine's published figures once the last request was aborted: its blocks must not look leaked for ever."""

from __future__ import annotations

import queue
from typing import Any, cast

import pytest
from tests.engine.engine_kit import greedy, tiny_engine, words

from stratacache.engine.errors import ContextLengthExceeded
from stratacache.engine.loop import EngineThread, Job, Progress
from stratacache.engine.tokenizer import Tokenizer


class Spelling:
    """Spells every token "x"."""

    strips = False

    def token_bytes(self, token: int) -> bytes:
        return b"x"


@pytest.mark.parametrize("stops", [(), ("x",)], ids=["cancelled", "stop string"])
def test_an_abort_shows_in_the_figures_without_a_further_step(stops: tuple[str, ...]) -> None:
    thread = EngineThread(tiny_engine(), cast(Tokenizer, cast(Any, Spelling())))
    reports: queue.Queue[Progress] = queue.Queue()
    thread.start()
    thread.submit(Job(greedy("a", words(9), 100), stops, reports.put))
    assert reports.get(timeout=60).finish_reason == ("stop" if stops else None)
    thread.cancel("a")
    refusals: queue.Queue[Progress] = queue.Queue()
    thread.submit(Job(greedy("too long", words(1000), 1), (), refusals.put))
    assert isinstance(refusals.get(timeout=60).error, ContextLengthExceeded)  # the cancel before it is done
    stats = thread.stats
    assert (stats.running, stats.blocks_active) == (0, 0)
    thread.stop()
