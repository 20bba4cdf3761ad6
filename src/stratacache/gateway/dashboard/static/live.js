// What comes once a second: figures, traffic, hit rates, and where the time goes.

import { $, count, dot, el, percent, say, seconds, show, small, span, svg, table } from "./page.js";
import { BARS, KINDS, STEP, kinds, waterfall } from "./window.js";
import { t } from "./words.js";

const ERROR = "stratacache_semantic_observed_error";

export function draw(samples, mode) {
  const feed = samples.last;
  const recent = samples.recent();
  const window = recent.seconds === null ? t("since_start") : t("last_span", { span: span(recent.seconds) });
  const fall = waterfall(recent);
  drawFigures(samples, recent, window, fall, mode);
  drawTraffic(samples.bars());
  drawTiers(feed, recent, mode);
  drawWhy(recent.feed.unanswered);
  say("waterfall-window", window);
  drawWaterfall(fall);
  say("bottleneck", bottleneck(fall, feed));
}

function drawFigures(samples, { feed: recent }, window, fall, mode) {
  const feed = samples.last;
  say("f-requests", samples.rate().toFixed(1));
  say("f-requests-more", t("requests_total", { n: count(feed.requests) }));
  const share = kinds(recent);
  const all = recent.requests || NaN;
  say("f-hits", percent((share.exact + share.semantic) / all));
  const parts = { exact: percent(share.exact / all), semantic: percent(share.semantic / all), window };
  say("f-hits-more", t("hits_by", parts));
  const error = observed(feed);
  say("f-error", errorWords(error, mode));
  $("f-error").className = `beside ${error && error.alarm ? "bad" : "dim"}`;
  const upstream = fall.rows.find((row) => row.name === "upstream");
  say("f-time", seconds(fall.rows.length ? fall.total - (upstream?.mean ?? 0) : null));
  const took = upstream && (upstream.mean * recent.requests) / upstream.times;
  say("f-time-more", upstream ? t("model_takes", { time: seconds(took) }) : t("no_calls"));
}

// The scene with the highest limit of its interval; null while there was no semantic answer.
function observed({ levels }) {
  const highs = levels[`${ERROR}_high`] ?? {};
  const scene = Object.keys(highs).reduce((a, b) => (highs[b] > (highs[a] ?? 0) ? b : a), "");
  if (!highs[scene]) return null;
  const alarm = Object.values(levels.stratacache_semantic_alarm ?? {}).some((on) => on > 0);
  return { error: levels[ERROR][scene], low: levels[`${ERROR}_low`][scene], high: highs[scene], alarm };
}

function errorWords(error, mode) {
  if (error) return t("wrong", { error: small(error.error), low: small(error.low), high: small(error.high) });
  return mode && mode !== "off" ? t("wrong_unknown") : t("wrong_off");
}

function drawTraffic(bars) {
  const [width, height, left, bottom] = [760, 262, 34, 20];
  const peak = Math.max(4, ...bars.map((bar) => KINDS.reduce((sum, kind) => sum + (bar[kind] ?? 0), 0)));
  const top = niceCeiling(peak);
  const y = (n) => height - bottom - ((height - bottom - 8) * n) / top;
  const drawn = [];
  for (const n of [0, top / 2, top]) {
    drawn.push(svg("line", { class: "grid", x1: left, x2: width, y1: y(n), y2: y(n) }));
    drawn.push(svg("text", { x: left - 6, y: y(n) + 4, "text-anchor": "end" }, count(n)));
  }
  const step = (width - left) / BARS;
  bars.forEach((bar, at) => {
    let under = 0;
    for (const kind of KINDS) {
      const n = bar[kind] ?? 0;
      if (n <= 0) continue;
      const place = { x: (left + at * step + 1).toFixed(1), width: (step - 2).toFixed(1) };
      drawn.push(svg("rect", { class: kind, ...place, y: y(under + n).toFixed(1), height: (y(under) - y(under + n)).toFixed(1) }));
      under += n;
    }
  });
  for (const minutes of [4, 2]) {
    const x = width - (minutes * 60 * step) / STEP;
    drawn.push(svg("text", { x, y: height - 4, "text-anchor": "middle" }, t("ago", { n: minutes })));
  }
  drawn.push(svg("text", { x: width, y: height - 4, "text-anchor": "end" }, t("at_once")));
  show($("traffic-chart"), svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": t("traffic") }, drawn));
  show($("traffic-legend"), KINDS.map((kind) => el("span", {}, dot(kind), t(`kind_${kind}`))));
  say("traffic-window", t("traffic_window", { step: STEP }));
}

function niceCeiling(n) {
  const size = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 4, 6, 8, 10].map((m) => m * size).find((m) => m >= n);
}

function drawTiers(feed, recent, mode) {
  const share = kinds(recent.feed);
  const ever = kinds(feed);
  const all = recent.feed.requests || NaN;
  const error = observed(feed);
  const range = error ? `${small(error.error)} (${small(error.low)}–${small(error.high)})` : "–";
  const rows = [
    ["exact", el("span", { class: "dim" }, t("by_equality"))],
    ["semantic", mode === null ? t("wrong_off") : range],
  ].map(([tier, wrong]) => [
    el("span", {}, dot(tier), t(`kind_${tier}`)),
    percent(share[tier] / all),
    count(ever[tier]),
    wrong,
  ]);
  const columns = [[t("tier")], [t("hit_rate"), true], [t("hits"), true], [t("wrong_column"), true]];
  show($("tiers"), table(columns, rows));
}

function drawWhy(unanswered) {
  const reasons = Object.entries(unanswered).filter(([, n]) => n > 0);
  const all = reasons.reduce((sum, [, n]) => sum + n, 0);
  const rows = reasons
    .sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]))
    .slice(0, 6)
    .map(([reason, n]) => [reason.replaceAll("_", " "), count(n), percent(n / all, 0)]);
  const columns = [[t("cause")], ["", true], [t("share"), true]];
  show($("why"), rows.length ? table(columns, rows) : el("p", { class: "empty" }, t("none")));
}

function drawWaterfall({ rows, total: whole }) {
  if (!rows.length) {
    show($("waterfall"), el("p", { class: "empty" }, t("none")));
    return;
  }
  const worst = rows.reduce((a, b) => (b.mean > a.mean ? b : a));
  const titles = [[t("stage")], [""], [t("per_request"), "n"], [t("share"), "n"], [t("p50_p99"), "n tail"]];
  const head = el("div", { class: "stage head" }, titles.map(([title, cls]) => el("span", { class: cls }, title)));
  const lines = rows.map((row) => {
    const bar = el("i", { class: `bar ${row.name}` });
    bar.style.left = `${(99 * row.offset / (whole || 1)).toFixed(2)}%`;
    bar.style.width = `${(100 * row.share).toFixed(2)}%`;
    return el(
      "div",
      { class: row === worst ? "stage worst" : "stage" },
      el("span", {}, t(`stage_${row.name}`)),
      el("span", { class: "track" }, bar),
      el("span", { class: "n" }, seconds(row.mean)),
      el("span", { class: "n" }, percent(row.share, 0)),
      el("span", { class: "n tail dim" }, `≤ ${seconds(row.p50)} / ${seconds(row.p99)}`),
    );
  });
  show($("waterfall"), head, lines);
}

// The stage that takes most of the time, in words; beside the model also what takes most of the rest.
function bottleneck({ rows }, feed) {
  if (!rows.length) return "";
  const worst = rows.reduce((a, b) => (b.mean > a.mean ? b : a));
  const share = percent(worst.share, 0);
  if (worst.name !== "upstream") return t("bottleneck_other", { stage: t(`stage_${worst.name}`), share });
  const others = rows.filter((row) => row !== worst);
  const waiting = queued(feed);
  const queue = waiting > 0 ? ` ${t("bottleneck_queue", { n: count(waiting) })}` : "";
  if (!others.length) return t("bottleneck_only_model", { share }) + queue;
  const next = others.reduce((a, b) => (b.mean > a.mean ? b : a));
  return t("bottleneck_model", { share, stage: t(`stage_${next.name}`), time: seconds(next.mean) }) + queue;
}

function queued({ levels, engines }) {
  const replicas = Object.values(levels.stratacache_engine_waiting ?? {});
  const embedded = Object.values(engines ?? {}).map((one) => one?.waiting ?? 0);
  return [...replicas, ...embedded].reduce((a, b) => a + b, 0);
}

