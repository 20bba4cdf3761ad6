"""The dashboard's cost beside real traffic, and its pictures: a gateway, the traffic of `stratacache load`, a browser.

    python -m benchmarks.dashboard                    CPU of one feed, in milliseconds
    python -m benchmarks.dashboard docs/guide/images  the same, and the pictures of the guide

The traffic's answers come from an echo that takes 120 ms, and some from the embedded engine; the semantic tier is real.
Pictures need the test extra, and Debian's `chromium`.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from tests.gateway_process import serving

from benchmarks import report
from benchmarks.observe_speed import cpu_nanoseconds
from stratacache.lab import load_traffic, traffic
from stratacache.lab.load_echo import MODEL as ECHO
from stratacache.lab.load_echo import echo_app

COMMAND = "python -m benchmarks.dashboard"
FEEDS = 300
ASKS = 1500
CROWD = 4
DELAY = 0.12  # seconds of the echo
WATCHED = 100  # seconds before the pictures
TALL = {"width": 1400, "height": 1000}


def config(upstream: int, folder: str) -> dict[str, Any]:
    prices = Path(folder) / "prices.yaml"
    prices.write_text(f"prices:\n  - {{model: {ECHO}, input: 3, output: 15}}\n")
    return {
        "store": f"sqlite:///{folder}/cache.db",
        "audit": {"path": f"{folder}/audit.jsonl"},
        "prices": str(prices),
        "tiers": {"semantic": {"enabled": True}},
        "upstreams": [
            {
                "name": "remote",
                "kind": "openai",
                "base_url": f"http://127.0.0.1:{upstream}/v1",
                "models": [ECHO],
            },
            {"name": "local", "kind": "embedded", "models": [traffic.MODEL], "kv_memory": "64MiB"},
        ],
    }


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """An upstream; gives its port."""
    runner = web.AppRunner(echo_app(load_traffic.built_in_bank(), DELAY))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def ask(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
    async with http.post(f"{url}/chat/completions", json=body) as answer:
        await answer.read()


async def ask_all(http: aiohttp.ClientSession, url: str, bodies: Iterator[dict[str, Any]]) -> None:
    async def client() -> None:
        for body in bodies:
            await ask(http, url, body)

    await asyncio.gather(*(client() for _ in range(CROWD)))


async def ask_paced(http: aiohttp.ClientSession, url: str, bodies: Iterator[dict[str, Any]]) -> None:
    """About ten a second, in waves, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for number, body in enumerate(bodies):
            group.create_task(ask(http, url, body))
            await asyncio.sleep(0.1 + 0.06 * math.sin(number / 60))


async def until_loaded(http: aiohttp.ClientSession, root: str) -> None:
    """Return when the models of the semantic tier and the engine are loaded."""
    async with asyncio.timeout(120):
        while True:
            async with http.get(f"{root}/readyz") as answer:
                ready = await answer.json()
            if answer.status == 200 and all(ready["upstreams"].values()):
                return
            await asyncio.sleep(0.5)


async def feed_cost(http: aiohttp.ClientSession, root: str, pid: int) -> dict[str, float]:
    """Milliseconds of CPU that one feed takes the gateway, HTTP included, and its size."""
    size = 0
    rounds = []
    for _ in range(5):
        before = cpu_nanoseconds(pid)
        for _ in range(FEEDS // 5):
            async with http.get(f"{root}/admin/feed") as answer:
                size = len(await answer.read())
        rounds.append((cpu_nanoseconds(pid) - before) / (FEEDS // 5) / 1e6)
    return {"cpu_ms_per_feed": report.median(rounds), "bytes": size}


async def run(pictures: Path | None) -> dict[str, float]:
    bank = load_traffic.built_in_bank()
    asked = load_traffic.asks(bank, load_traffic.Mix(repeated=0.6, similar=0.3))
    bodies = (
        {"model": ECHO, "messages": [{"role": "user", "content": one.text}], "temperature": 0}
        for one in asked
    )
    with tempfile.TemporaryDirectory() as folder:
        async with echo() as port, aiohttp.ClientSession() as http:
            with serving(Path(folder), config(port, folder)) as gateway:
                await until_loaded(http, gateway.root)
                engine = asyncio.create_task(
                    ask_all(http, gateway.url, iter([traffic.support(q) for q in traffic.SUPPORT_QUESTIONS]))
                )
                if pictures is None:
                    await ask_all(http, gateway.url, islice(bodies, ASKS))
                else:
                    await photograph(http, gateway.url, gateway.root, bodies, pictures)
                await engine
                return await feed_cost(http, gateway.root, gateway.process.pid)


async def photograph(
    http: aiohttp.ClientSession, url: str, root: str, bodies: Iterator[dict[str, Any]], folder: Path
) -> None:
    """Watch the traffic with a browser, and take its pictures."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = await browser.new_page(viewport=TALL, color_scheme="light", locale="en")
        await ask_all(http, url, islice(bodies, ASKS))
        await page.goto(f"{root}/dashboard")
        going_on = asyncio.create_task(ask_paced(http, url, bodies))
        await page.wait_for_timeout(1000 * WATCHED)
        await page.screenshot(path=folder / "dashboard-light.png", full_page=True)
        await page.click("#theme")
        await page.click("#language")
        await page.wait_for_timeout(1_500)
        await page.screenshot(path=folder / "dashboard-dark.png", full_page=True)
        await page.set_viewport_size({"width": 420, "height": 900})
        await page.wait_for_timeout(1_500)
        await page.screenshot(path=Path(tempfile.gettempdir()) / "narrow.png", full_page=True)
        going_on.cancel()
        await browser.close()


def main() -> None:
    pictures = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    figures = asyncio.run(run(pictures))
    share = figures["cpu_ms_per_feed"] / 1000
    print(
        f"{figures['cpu_ms_per_feed']:.2f} ms CPU a feed of {figures['bytes']:,.0f} bytes: {share:.2%} of a core"
    )
    print(report.write("dashboard", COMMAND, figures))


if __name__ == "__main__":
    main()
