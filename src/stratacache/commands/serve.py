"""Start the gateway and keep it running until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from stratacache.errors import StrataError
from stratacache.settings import EmbeddedSettings, Settings, load

if TYPE_CHECKING:
    from stratacache.workers.link import Link

EXAMPLE = """example:
  stratacache serve                              built-in embedded model on http://127.0.0.1:8900/v1
  stratacache --config prod.yaml serve
  STRATACACHE__SERVER__PORT=9000 stratacache serve

SIGHUP reads the configuration again: scenes, aliases, auth.keys and max_error change at once; anything else is refused,
with its name in the log, and the old configuration stays."""

log = logging.getLogger(__name__)

KEEP_ALIVE = 75
"""Seconds; longer than clients keep idle connections, so that they never send into a closing one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="announce the address as one JSON line on stdout")


def run(args: argparse.Namespace) -> int:
    settings = load(args.config, os.environ)
    listener = listen(settings)
    announce = partial(_announce, listener, as_json=args.json)
    reread = partial(load, args.config, os.environ)
    if settings.server.workers > 1:
        return serve_together(settings, os.environ, listener, announce, reread)
    return serve(settings, os.environ, listener, announce, reread)


def _announce(listener: socket.socket, *, as_json: bool) -> None:
    host, port = listener.getsockname()[:2]
    root = f"http://{'[' + host + ']' if ':' in host else host}:{port}"
    url = f"{root}/v1"
    if as_json:
        print(msgspec.json.encode({"url": url, "pid": os.getpid()}).decode(), flush=True)
    else:
        print(
            f"stratacache: listening on {url} (OpenAI base URL); stop with Ctrl-C\n"
            f"stratacache: dashboard at {root}/dashboard",
            file=sys.stderr,
            flush=True,
        )


def listen(settings: Settings, *, beside: socket.socket | None = None) -> socket.socket:
    """A bound socket. ``beside`` is one that holds the port for several: the kernel spreads connections over them.

    Raises:
        StrataError: the address is in use or is not this machine's; says which setting to change.
    """
    server = settings.server
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    # Named as TCP, or asyncio's own loop leaves Nagle's algorithm on: 40 ms for a hit on a kept connection.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if beside is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((server.host, beside.getsockname()[1] if beside is not None else server.port))
    except OSError as error:
        listener.close()
        raise StrataError(
            f"cannot listen on {server.host}:{server.port} ({error.strerror}); "
            "change server.host or server.port, or stop what holds the port"
        ) from None
    return listener


def serve_together(
    settings: Settings,
    environ: Mapping[str, str],
    holder: socket.socket,
    announce: Callable[[], None],
    reread: Callable[[], Settings],
) -> int:
    """Run ``server.workers`` gateways on the port of ``holder`` until told to stop; 0 after a clean drain.

    ``announce`` is called once all of them accept connections.

    Raises:
        StrataError: a part cannot start, or a worker dies again and again; says which and what to do.
    """
    # Loaded once, before the fork: workers then share this memory and start in a few milliseconds.
    import stratacache.wiring  # noqa: F401
    from stratacache.gateway import protocol  # noqa: F401
    from stratacache.workers.engines import run_engines
    from stratacache.workers.member import Job
    from stratacache.workers.supervisor import Supervisor

    # Bound alone, so that a port in use was refused; from now on others of this user may join. It never listens.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)

    def work(link: Link) -> int:
        return serve(settings, environ, listen(settings, beside=holder), link.ready, reread, link)

    jobs = [Job(f"worker {number}", work) for number in range(1, settings.server.workers + 1)]
    engines = [one for one in settings.upstreams if isinstance(one, EmbeddedSettings)]
    if engines:
        run = partial(run_engines, engines, prefix_cache=settings.tiers.kv.enabled)
        jobs.append(Job("engine supervisor", run, counts=False, last=True))
    return Supervisor(jobs, drain=settings.server.drain_timeout, announce=announce).run()


def serve(
    settings: Settings,
    environ: Mapping[str, str],
    listener: socket.socket,
    announce: Callable[[], None],
    reread: Callable[[], Settings],
    link: Link | None = None,
) -> int:
    """Run the gateway on ``listener`` until it is told to stop; 0 after a clean drain.

    ``announce`` is called once connections are accepted and signals obeyed. SIGHUP has the settings of ``reread`` taken
    over. ``link`` joins it to other workers.

    Raises:
        StrataError: a part cannot start; says which and what to do.
    """
    import uvicorn

    from stratacache.gateway.protocol import BoundedProtocol
    from stratacache.wiring import System
    from stratacache.wiring.reload import adopt

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            calm_collector()
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
            if link is not None:
                reload()  # one that takes a dead worker's place was made with the settings of the start
            announce()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if waiting := len(self.server_state.tasks):
                print(
                    f"stratacache: stopping; {waiting} answer(s) have up to {settings.server.drain_timeout:g} s to end"
                    " (Ctrl-C again: at once)",
                    file=sys.stderr,
                )
            await super().shutdown(sockets)

    system = System(settings, environ, link=link)
    config = uvicorn.Config(
        system.app,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        log_level="warning",
        timeout_graceful_shutdown=max(1, round(settings.server.drain_timeout)),
    )
    server = Server(config)
    # What refused the start is told below, in words of ours.
    logging.getLogger("uvicorn.error").addFilter(lambda record: system.app.start_failure is None)

    def reload() -> None:
        try:
            adopt(system, reread())
        except StrataError as error:
            log.error("the configuration is not taken over: %s", error)

    def stop(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    # Until uvicorn sets handlers of its own, a signal must not be lost. It drains on a signal and then raises it
    # again for whoever handled it before: here nobody has to, so a drained gateway ends with exit code 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to take a configuration over
    try:
        server.run(sockets=[listener])
    except SystemExit:
        if system.app.start_failure is None:
            raise
        raise system.app.start_failure from None
    return 0


def calm_collector() -> None:
    """Keep full garbage collections from holding up the event loop.

    A full collection visits every object it knows while the loop stands still: 30 to 40 ms with the imports in
    it, about 10 without. So what a start has made is taken out of its sight, and it runs a hundred times more
    rarely; young objects are collected as ever, and what a request makes is in no cycle that would need more.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 1000)
