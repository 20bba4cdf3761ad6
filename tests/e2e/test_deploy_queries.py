"""The dashboard and the alert rules ask for what a running gateway shows, name for name and label for label."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.fakes.upstream import FakeUpstream, Reply
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import models

from stratacache.observe.names import AMOUNTS, COUNTERS, GAUGES
from stratacache.policy.bound.pooled import Bound, Limits

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "stratacache.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"

# The Prometheus set of the interface contract, with the labels that it names.
CONTRACT: dict[str, set[str]] = {
    "stratacache_requests_total": {"endpoint", "model", "scene", "outcome", "tier", "reason"},
    "stratacache_stage_seconds_bucket": {"stage", "le"},
    "stratacache_upstream_seconds_bucket": {"upstream", "le"},
    "stratacache_writeback_total": {"result"},
    "stratacache_semantic_observed_error": {"scene"},
    "stratacache_semantic_observed_error_low": {"scene"},
    "stratacache_semantic_observed_error_high": {"scene"},
    "stratacache_saved_tokens_total": {"tier"},
    "stratacache_saved_usd_total": {"tier"},
    "stratacache_singleflight_followers_total": set(),
    "stratacache_store_entries": set(),
    "stratacache_store_bytes": set(),
    "stratacache_index_vectors": set(),
    "stratacache_kv_blocks": {"state"},
    "stratacache_prompt_tokens_total": {"kind"},
    "stratacache_breaker_state": {"dependency"},
}

FUNCTIONS = frozenset(
    {"sum", "rate", "increase", "max", "min", "topk", "histogram_quantile", "vector", "or", "by", "ignoring"}
    | {"group_left", "offset"}
)
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
SELECTOR = re.compile(r"\b(stratacache_[a-z0-9_]+)\s*(?:\{([^}]*)\})?")
MATCHER = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"[^"]*"')
WORD = re.compile(r"(?<![\w.$])[a-zA-Z_]\w*")


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def targets() -> Iterator[tuple[str, str, str]]:
    """Title, query and legend of everything that the dashboard draws."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]


def queries() -> dict[str, str]:
    """Every query by where it stands, with Grafana's variables filled in."""
    drawn = {f"{title}: {expr}": expr for title, expr, _ in targets()}
    filled = {
        place: expr.replace("$__rate_interval", "5m").replace("$model", ".*") for place, expr in drawn.items()
    }
    return filled | {rule["alert"]: rule["expr"] for rule in rules()}


def used(expr: str) -> dict[str, set[str]]:
    """Metrics of a query by name, with the labels that it takes from each."""
    found: dict[str, set[str]] = {}
    for name, matchers in SELECTOR.findall(expr):
        found.setdefault(name, set()).update(MATCHER.findall(matchers))
    return found


def grouped(expr: str) -> set[str]:
    return {
        label.strip() for labels in GROUPING.findall(expr) for label in labels.split(",") if label.strip()
    }


@asynccontextmanager
async def busy_gateway(fake: FakeUpstream, folder: Path) -> AsyncIterator[Gateway]:
    """One with every tier on and something counted everywhere."""
    prices = folder / "prices.yaml"
    prices.write_text("prices:\n  - {model: fake-model, input: 1, output: 2, read: 0.5, write_5m: 1.25}\n")
    config = {
        "store": f"sqlite:///{folder}/cache.db",
        "prices": str(prices),
        "upstreams": [
            {
                "name": "fake",
                "kind": "openai",
                "replicas": [fake.base_url, fake.base_url.replace("127.0.0.1", "localhost")],
                "engine": "vllm",
                "api_key_env": "FAKE_KEY",
                "models": ["fake-model"],
            },
            {
                "name": "own",
                "kind": "embedded",
                "models": ["smollm2-135m"],
                "model_dir": str(folder / "none"),
            },
        ],
    }
    bound = Bound(Limits(max_error=0.01))
    parts = msgspec.structs.replace(models(), report=bound.report, alarms=bound.alarms)
    async with running_gateway(fake, config, models=parts) as gateway:
        fake.default = Reply(text="Flour, water, time.", usage=(12, 5, 8))
        for text in ("What is the way to bake bread?", "What is the way to bake bread?", "How are you?"):
            await gateway.ask(question(text, user="u"))
            await gateway.stored()
        fake.default = Reply(finish_reason="length")
        await gateway.ask(question("Tell me everything."))
        await gateway.ask(b"{")
        yield gateway


async def exposed(gateway: Gateway) -> dict[str, set[str]]:
    """Names of samples as a running gateway shows them, with their labels."""
    async with gateway.http.get(gateway.root + "/metrics") as response:
        text = await response.text()
    shown: dict[str, set[str]] = {}
    counters = {one.name: one for one in (*COUNTERS.values(), *AMOUNTS.values())}
    for family in text_string_to_metric_families(text):
        # Of these there may be no sample yet.
        if (gauge := GAUGES.get(family.name)) is not None:
            shown[family.name] = {gauge.label} if gauge.label else set()
        if (counter := counters.get(family.name)) is not None:
            shown[f"{family.name}_total"] = set(counter.labels)
        for sample in family.samples:
            shown.setdefault(sample.name, set()).update(sample.labels)
    return shown


async def test_every_query_names_metrics_and_labels_that_exist(fake: FakeUpstream, tmp_path: Path) -> None:
    async with busy_gateway(fake, tmp_path) as gateway:
        shown = await exposed(gateway)
    for place, expr in queries().items():
        taken = used(expr)
        assert taken, place
        for name, labels in taken.items():
            assert name in shown, f"{place}: there is no {name}"
            assert labels <= shown[name], f"{place}: {name} has no label {labels - shown[name]}"
        known = set().union(*(shown[name] for name in taken))
        assert grouped(expr) <= known, f"{place}: {grouped(expr) - known}"
        bare = GROUPING.sub("", SELECTOR.sub("", expr))
        assert set(WORD.findall(re.sub(r"\[[^]]*\]|\b\d+\w*", "", bare))) <= FUNCTIONS, place
    for title, expr, legend in targets():
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= grouped(expr), title


async def test_the_whole_set_of_the_interface_is_shown(fake: FakeUpstream, tmp_path: Path) -> None:
    async with busy_gateway(fake, tmp_path) as gateway:
        shown = await exposed(gateway)
    assert {name: shown.get(name) for name in CONTRACT} == CONTRACT


def test_the_dashboard_needs_no_setting_but_the_data_source() -> None:
    board = dashboard()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24


def test_every_alert_says_what_it_means_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["annotations"]["description"], rule["alert"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_no_fault_in_the_rules() -> None:
    checked = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


async def answers(http: aiohttp.ClientSession, root: str, expr: str) -> Any:
    async with http.get(f"{root}/api/v1/query", params={"query": expr}) as response:
        return await response.json()


@pytest.mark.peers
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")
async def test_a_real_prometheus_answers_every_query(
    fake: FakeUpstream, tmp_path: Path, unused_tcp_port: int
) -> None:
    root = f"http://127.0.0.1:{unused_tcp_port}"
    async with busy_gateway(fake, tmp_path) as gateway:
        scrape = {"job_name": "stratacache", "static_configs": [{"targets": [f"127.0.0.1:{gateway.port}"]}]}
        config = {
            "global": {"scrape_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [scrape],
        }
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        server = await asyncio.create_subprocess_exec(
            "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb",
            f"--web.listen-address=127.0.0.1:{unused_tcp_port}", "--log.level=error",
        )  # fmt: skip
        try:
            async with asyncio.timeout(60):
                while not await scraped(gateway.http, root):  # noqa: ASYNC110 - another program has no event for it
                    await asyncio.sleep(0.2)
            for place, expr in queries().items():
                told = await answers(gateway.http, root, expr)
                assert told["status"] == "success", f"{place}: {told}"
            hits = await answers(gateway.http, root, 'sum(stratacache_requests_total{outcome="hit"})')
            assert float(hits["data"]["result"][0]["value"][1]) == 1
        finally:
            server.terminate()
            await server.wait()


async def scraped(http: aiohttp.ClientSession, root: str) -> bool:
    try:
        told = await answers(http, root, "stratacache_index_vectors")
    except (aiohttp.ClientError, ValueError):
        return False
    return bool(told.get("data", {}).get("result"))
