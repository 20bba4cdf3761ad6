"""The dashboard in a real browser: what it shows, what it does, and who may."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import Browser, Page, async_playwright, expect
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Embedder, FixedBound, Verifier, models

from stratacache.policy.bound.pooled import Bound

STORED = "What is the way to bake bread?"
ASKED = "how do you bake bread at home"
NEARLY = "how is bread baked"
HOSTILE = "bread <img src=x onerror=\"document.title='owned'\"> how"
ADMIN, CHAT = "sk-admin-secret", "sk-chat-secret"
LOADED = "#board:not([hidden])"


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    path = shutil.which("chromium")
    assert path is not None, "the tests need Debian's chromium: make test installs it"
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        await running.close()


@pytest.fixture
async def kit(fake: FakeUpstream, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway in which ``ASKED`` and ``HOSTILE`` get the answer to ``STORED``, and ``NEARLY`` does not."""
    fake.default = Reply(text="Knead, wait, bake.")
    verifier = Verifier()
    verifier.table |= {(ASKED, STORED): 0.97, (NEARLY, STORED): 0.4, (HOSTILE, STORED): 0.95}
    learned = Bound()
    for number in range(50):
        learned.looked("default")
        learned.observe("default", bytes([number] * 16), 0.95, number != 7, language="en")
    made = msgspec.structs.replace(
        models(Embedder(), verifier, FixedBound()), report=learned.report, pictures=learned.pictures
    )
    config = {"audit": {"path": f"{tmp_path}/audit.jsonl"}}
    async with running_gateway(fake, config, models=made) as gateway:
        yield gateway


async def traffic(gateway: Gateway, *texts: str) -> None:
    """``STORED``, and then the others."""
    await gateway.ask(question(STORED), {"x-strata-tags": "baking"})
    await gateway.stored()
    for text in texts:
        await gateway.ask(question(text), {"x-strata-tags": "baking"})
    await gateway.labelled()
    semantic = gateway.system.semantic
    assert semantic is not None
    await semantic.kindred.review.settled()


class Watched:
    """A page that takes note of what must not happen."""

    def __init__(self, page: Page, root: str) -> None:
        self.page = page
        self.root = root
        self.faults: list[str] = []
        self.strangers: list[str] = []
        page.on("console", lambda m: self.faults.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on(
            "request", lambda r: None if r.url.startswith((root, "data:")) else self.strangers.append(r.url)
        )

    async def open(self) -> Page:
        await self.page.goto(f"{self.root}/dashboard")
        await self.page.wait_for_selector(LOADED)
        return self.page


async def watched(browser: Browser, gateway: Gateway, **options: Any) -> Watched:
    return Watched(await browser.new_page(**{"locale": "en", **options}), gateway.root)


async def test_it_shows_what_happened_and_asks_nobody_else(browser: Browser, kit: Gateway) -> None:
    await traffic(kit, STORED, ASKED, NEARLY)
    watch = await watched(browser, kit)
    page = await watch.open()
    await expect(page.locator("#f-requests-more")).to_have_text("4 since the gateway started")
    await expect(page.locator("#f-hits")).to_have_text("50.0 %")
    await expect(page.locator("#f-hits-more")).to_contain_text("exact 25.0 % · semantic 25.0 %")
    await expect(page.locator("#f-error")).not_to_be_empty()
    await expect(page.locator("#bottleneck")).to_contain_text("Bottleneck")
    await expect(page.locator("#waterfall .stage.worst")).to_have_count(1)
    await expect(page.locator("#why")).to_contain_text("explored")
    await expect(page.locator("#bound-say")).to_contain_text("Allowed: 1.0 % wrong")
    await expect(page.locator("#bound-chart polyline.risk")).to_have_count(1)
    await expect(page.locator("#near-list")).to_contain_text(NEARLY)
    await expect(page.locator("#health")).to_contain_text("Upstream fake")
    await expect(page.locator("#ledger-table")).to_contain_text("exact")
    await kit.ask(question(STORED))  # and what happens now, too
    kit.clock.advance(6)
    await expect(page.locator("#f-requests-more")).to_have_text("5 since the gateway started")
    await expect(page.locator("#f-hits-more")).to_contain_text("exact 100.0 %")
    await expect(page.locator("#traffic-chart rect.exact")).to_have_count(1)
    await expect(page.locator("#health")).to_contain_text("2 entries")
    assert (watch.faults, watch.strangers) == ([], [])


async def test_one_key_settles_a_pair(browser: Browser, kit: Gateway) -> None:
    await traffic(kit, ASKED, NEARLY)
    watch = await watched(browser, kit)
    page = await watch.open()
    await expect(page.locator("#review-lengths")).to_contain_text("near misses 1")
    item = page.locator("#review-item")
    await expect(item).to_contain_text(ASKED)
    await page.keyboard.press("w")
    await expect(page.locator("#review-told")).to_have_text(
        "Noted: wrong. The answer is gone from both tiers."
    )
    await expect(item).to_have_text("Nothing waits for review.")  # the near miss was on the same entry
    _, got, _ = await kit.ask(question(STORED))
    assert got["x-strata-cache"] == "miss"
    assert watch.faults == []


async def test_keys_in_a_field_are_no_verdicts(browser: Browser, kit: Gateway) -> None:
    await traffic(kit, ASKED)
    page = await (await watched(browser, kit)).open()
    await page.focus("#inv-which")
    await page.keyboard.press("w")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Control+s")
    await page.keyboard.press("s")
    await expect(page.locator("#review-told")).to_have_text("Noted: Skip.")
    _, got, _ = await kit.ask(question(STORED))
    assert got["x-strata-cache"] == "hit"


async def test_nothing_is_invalidated_without_a_dry_run(browser: Browser, kit: Gateway) -> None:
    await traffic(kit)
    watch = await watched(browser, kit)
    page = await watch.open()
    told, confirm = page.locator("#inv-told"), page.locator("#inv-do")
    await page.fill("#inv-which", "baking")
    await page.keyboard.press("Enter")
    await expect(told).to_have_text("Would affect at most 1 entries. Nothing was done yet.")
    _, got, _ = await kit.ask(question(STORED))
    assert got["x-strata-cache"] == "hit"
    await page.fill("#inv-which", "other")  # of this there was no dry run
    await expect(confirm).to_be_hidden()
    await page.fill("#inv-which", "baking")
    await page.keyboard.press("Enter")
    await expect(confirm).to_have_text("Invalidate baking")
    await confirm.click()
    await expect(told).to_have_text("Done: at most 1 entries can no longer be served.")
    _, got, _ = await kit.ask(question(STORED))
    assert got["x-strata-cache"] == "miss"
    await page.click("#audit summary")
    await expect(page.locator("#audit-list")).to_contain_text("dry run")
    await page.select_option("#inv-what", "tenant")
    await page.fill("#inv-which", "no such/tenant")
    await page.keyboard.press("Enter")
    await expect(told).to_contain_text("The gateway refused: tenant must be")


async def test_an_entry_is_found_and_chosen(browser: Browser, kit: Gateway) -> None:
    await traffic(kit)
    page = await (await watched(browser, kit)).open()
    await page.click("#entries summary")
    await page.fill("#entries-query", "KNEAD")
    await page.keyboard.press("Enter")
    await page.click("#entries-list button")
    _, got, _ = await kit.ask(question(STORED))
    assert await page.input_value("#inv-which") == got["x-strata-entry"]


async def test_what_users_say_is_text(browser: Browser, kit: Gateway) -> None:
    await traffic(kit, HOSTILE)
    watch = await watched(browser, kit)
    page = await watch.open()
    await expect(page.locator("#review-item")).to_contain_text("<img src=x onerror=")
    assert await page.locator("#review-item img").count() == 0
    assert await page.title() == "Stratacache"
    assert watch.faults == []


async def test_the_policy_of_the_page_holds(browser: Browser, kit: Gateway) -> None:
    watch = await watched(browser, kit)
    page = await watch.open()
    assert watch.faults == []
    with pytest.raises(Exception, match="TrustedHTML"):
        await page.evaluate("document.body.innerHTML = '<b>x</b>'")
    ran = await page.evaluate(
        """async () => {
            const style = document.createElement('style');
            style.textContent = 'body { opacity: .5 }';
            document.body.append(style);
            const left = await fetch('http://localhost:1/').then(() => 'left', () => 'stayed');
            return [getComputedStyle(document.body).opacity, left];
        }"""
    )
    assert ran == ["1", "stayed"]
    assert any("connect-src" in fault for fault in watch.faults)


async def test_language_and_colours_are_kept(browser: Browser, kit: Gateway) -> None:
    await traffic(kit, ASKED)
    watch = await watched(browser, kit, color_scheme="dark")
    page = await watch.open()
    html = page.locator("html")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    await expect(html).to_have_attribute("data-theme", "dark")
    dark = await page.evaluate(ground)
    await page.click("#theme")
    assert await page.evaluate(ground) != dark
    await page.click("#language")
    await expect(html).to_have_attribute("lang", "zh-CN")
    for _ in range(2):
        await expect(page.locator("#review h2")).to_have_text("审核队列")
        await expect(page.locator("#review-keys button").first).to_contain_text("正确")
        await expect(page.locator("#f-requests-more")).to_have_text("自启动以来 2 次")
        await page.reload()
    await expect(html).to_have_attribute("data-theme", "light")
    chinese = await page.evaluate("import('./dashboard/words.js').then((m) => m.untranslated())")
    assert chinese == []
    assert watch.faults == []


async def test_the_mode_is_changed(browser: Browser, kit: Gateway) -> None:
    await traffic(kit)
    page = await (await watched(browser, kit)).open()
    await page.locator("#mode label", has_text="Shadow").click()
    semantic = kit.system.semantic
    assert semantic is not None
    await expect(page.locator("#mode input[value=shadow]")).to_be_checked()
    async with kit.http.get(f"{kit.root}/admin/mode") as answer:
        assert await answer.json() == {"semantic": "shadow", "fixed": None}
    await kit.ask(question(ASKED))
    _, got, _ = await kit.ask(question(ASKED), {"cache-control": "no-store"})
    assert got["x-strata-cache"] != "hit"


def keys() -> dict[str, Any]:
    def key(secret: str, rights: list[str]) -> dict[str, Any]:
        digest = hashlib.sha256(secret.encode()).hexdigest()
        return {"key_hash": f"sha256:{digest}", "tenant": "acme", "rights": rights}

    return {"auth": {"keys": [key(ADMIN, ["chat", "admin"]), key(CHAT, ["chat"])]}}


async def test_only_an_administrators_key_opens_it(browser: Browser, fake: FakeUpstream) -> None:
    async with running_gateway(fake, keys()) as gateway:
        watch = await watched(browser, gateway)
        page = watch.page
        urls: list[str] = []
        page.on("request", lambda request: urls.append(request.url))
        await page.goto(f"{gateway.root}/dashboard")
        refused = page.locator("#key-refused")
        for secret, words in (("sk-wrong", "not known here"), (CHAT, "lacks the right “admin”")):
            await page.fill("#key-value", secret)
            await page.keyboard.press("Enter")
            await expect(refused).to_contain_text(words)
            await expect(page.locator("#board")).to_be_hidden()
        await page.fill("#key-value", ADMIN)
        await page.keyboard.press("Enter")
        await page.wait_for_selector(LOADED)
        await page.reload()
        await page.wait_for_selector(LOADED)
        assert not any("sk-" in url for url in urls)
        assert await page.evaluate("JSON.stringify(localStorage)") == "{}"
        await page.click("#leave")
        await expect(page.locator("#key-value")).to_be_visible()
        assert await page.evaluate("JSON.stringify(sessionStorage)") == "{}"


async def test_a_gateway_that_is_gone_is_said_to_be(browser: Browser, fake: FakeUpstream) -> None:
    async with running_gateway(fake) as gateway:
        page = await (await watched(browser, gateway)).open()
        await expect(page.locator("#status")).to_have_text("Ready")
        await expect(page.locator("#bound")).to_be_hidden()  # there is no semantic tier
        await expect(page.locator("#f-error")).to_have_text("semantic tier off: exact answers only")
        await page.route("**/admin/feed", lambda route: route.abort())
        await expect(page.locator("#notice")).to_contain_text("has not answered since")
        await page.unroute("**/admin/feed")
        await expect(page.locator("#notice")).to_be_hidden()


async def test_the_feed_tells_what_stats_tells_to_administrators(fake: FakeUpstream) -> None:
    async with running_gateway(fake, keys()) as gateway:
        admin = {"authorization": f"Bearer {ADMIN}"}
        for _ in range(3):
            await gateway.ask(question(STORED), admin)
            await gateway.stored()
        told = {}
        for name in ("feed", "stats"):
            async with gateway.http.get(f"{gateway.root}/admin/{name}", headers=admin) as answer:
                told[name] = await answer.json()
        feed, stats = told["feed"], told["stats"]
        for name in ("requests", "outcomes", "hits_by_tier", "levels", "store", "upstreams_ready", "workers"):
            assert feed[name] == stats[name], name
        assert sum(feed["stages"]["exact"]["counts"]) == stats["stages"]["exact"]["count"] == 3
        assert len(feed["stages"]["exact"]["counts"]) == len(feed["buckets"]) + 1
        assert feed["unanswered"] == {"not_found": 1}
        for path in ("feed", "mode", "bound"):
            for headers, status in (({}, 401), ({"authorization": f"Bearer {CHAT}"}, 403)):
                async with gateway.http.get(f"{gateway.root}/admin/{path}", headers=headers) as answer:
                    assert answer.status == status, path


async def test_the_files(gateway: Gateway) -> None:
    async with gateway.http.get(f"{gateway.root}/dashboard") as answer:
        page = await answer.text()
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "style=" not in page
        assert "onclick" not in page
    wanted = {
        "style.css": (200, "text/css; charset=utf-8"),
        "app.js": (200, "text/javascript; charset=utf-8"),
        "%2e%2e/feed.py": (404, "application/json"),
        "nothing.js": (404, "application/json"),
    }
    for name, (status, kind) in wanted.items():
        async with gateway.http.get(f"{gateway.root}/dashboard/{name}") as answer:
            assert (answer.status, answer.headers["content-type"]) == (status, kind)
    async with gateway.http.get(f"{gateway.root}/dashboard/") as answer:
        assert str(answer.url) == f"{gateway.root}/dashboard"
    async with gateway.http.get(f"{gateway.root}/dashboard", headers={"host": "evil.example"}) as answer:
        assert answer.status == 403
