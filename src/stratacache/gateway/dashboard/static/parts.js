// The parts beside the gateway: which work, what the store holds, what KV memory is used for.

import { $, bytes, count, dot, el, percent, seconds, show, table } from "./page.js";
import { t } from "./words.js";

const SQUARES = 240;
const STATES = [["ok", "ok", "good"], ["half", "half", "warn"], ["down", "down", "bad"]];

export function draw(feed) {
  drawHealth(feed);
  const engines = Object.entries(feed.engines ?? {}).filter(([, one]) => one?.blocks?.total);
  // Providers tell nothing of their memory; engines do.
  const replicas = Object.keys(feed.levels.stratacache_replica_up ?? {}).filter((one) =>
    Object.entries(feed.levels).some(([name, level]) => name.startsWith("stratacache_engine_") && one in level),
  );
  $("kv").hidden = !engines.length && !replicas.length;
  show($("kv-maps"), engines.map(blockMap), replicas.length ? replicaTable(replicas, feed.levels) : null);
}

function drawHealth(feed) {
  const rows = Object.entries(feed.upstreams_ready ?? {}).map(([name, ready]) =>
    line(t("upstream", { name }), ready ? 0 : 2, ready ? t("ok") : t("upstream_down")),
  );
  for (const [name, level] of Object.entries(feed.levels.stratacache_breaker_state ?? {})) {
    rows.push(line(t("breaker", { name }), level, t(`breaker_${STATES[level]?.[0] ?? "down"}`)));
  }
  const store = feed.store;
  const holds = store && t("store_holds", { n: count(store.entries), size: bytes(store.bytes) });
  rows.push(line(t("store"), store ? 0 : 2, holds ?? t("upstream_down")));
  if (feed.index) rows.push(indexLine(feed));
  if (Object.values(feed.levels.stratacache_semantic_alarm ?? {}).some((on) => on > 0)) {
    rows.push(line(t("alarm"), 1, t("alarm_on")));
  }
  show($("health"), table([[t("part")], [t("state")]], rows));
}

function indexLine(feed) {
  const n = count(feed.index.vectors);
  const lag = feed.levels.stratacache_index_lag_seconds?.[""] ?? 0;
  if (lag < 1) return line(t("index"), 0, t("index_holds", { n }));
  return line(t("index"), lag > 10 ? 1 : 0, t("index_lag", { n, lag: seconds(lag) }));
}

function line(name, level, words) {
  const [, kind, colour] = STATES[level] ?? STATES[2];
  return [name, el("span", { class: level ? colour : "" }, dot(kind), words)];
}

function blockMap([name, figures]) {
  const { total, free, active, cached, kept = 0 } = figures.blocks;
  const squares = Math.min(SQUARES, total);
  const parts = [["active", active], ["kept", kept], ["cached", cached - kept], ["free", free]];
  const cells = [];
  let upTo = 0;
  for (const [kind, n] of parts) {
    upTo += n;
    const end = Math.round((squares * upTo) / total);
    while (cells.length < end) cells.push(el("i", { class: kind }));
  }
  const queue = t("kv_queue", { running: count(figures.running), waiting: count(figures.waiting) });
  const cell = t("kv_cell", { n: (total / squares).toFixed(total % squares ? 1 : 0), total: count(total) });
  return el(
    "div",
    {},
    el("h3", {}, `${name} · ${queue} · ${cell}`),
    el("div", { class: "blocks", role: "img", "aria-label": t("kv") }, cells),
    el("div", { class: "legend" }, parts.map(([kind, n]) =>
      el("span", {}, dot(kind), `${t(`kv_${kind}`)} ${count(n)} (${percent(n / total, 0)})`))),
  );
}

function replicaTable(replicas, levels) {
  const level = (name, replica) => levels[`stratacache_${name}`]?.[replica];
  const rows = replicas.map((replica) => {
    const queried = level("engine_prefix_queried_tokens", replica);
    const told = level("engine_prefix_hit_rate", replica);
    const found = queried ? level("engine_prefix_hit_tokens", replica) / queried : told;
    return [
      el("span", {}, dot(level("replica_up", replica) ? "ok" : "down"), replica),
      percent(level("engine_kv_usage", replica), 0),
      percent(found, 0),
      count(level("engine_running", replica)),
      count(level("engine_waiting", replica)),
    ];
  });
  const columns = [[t("replica")], [t("kv_used"), true], [t("prefix_hits"), true], [t("running"), true], [t("waiting"), true]];
  return table(columns, rows);
}
