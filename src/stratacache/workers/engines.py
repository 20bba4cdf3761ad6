"""The process that runs the embedded engines of all workers, so that a worker's death does not end them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from functools import partial

from stratacache.observe.metrics import Metrics
from stratacache.settings import EmbeddedSettings
from stratacache.upstream.embedded import answers, engine_command, require_engine
from stratacache.upstream.engine_process import EngineProcess
from stratacache.workers.link import Link


def run_engines(engines: Sequence[EmbeddedSettings], link: Link, *, prefix_cache: bool) -> int:
    """Keep ``engines`` running until SIGTERM; 0 once they have stopped.

    Raises:
        SettingsError: the engine is not installed.
    """
    for settings in engines:
        require_engine(settings)
    asyncio.run(_run(engines, link, prefix_cache=prefix_cache))
    return 0


async def _run(engines: Sequence[EmbeddedSettings], link: Link, *, prefix_cache: bool) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await link.start(Metrics(), {})
    processes = [
        EngineProcess(
            settings.name,
            engine_command(settings, prefix_cache=prefix_cache),
            partial(link.publish, settings.name),
            partial(answers, settings),
        )
        for settings in engines
    ]
    for process in processes:
        process.start()
    link.ready()
    await stopping.wait()
    await asyncio.gather(*(process.stop() for process in processes))
    await link.close()
