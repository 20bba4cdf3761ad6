// The review queue, one pair at a time and one key a verdict, and the near misses in it.

import { Refused, ask, askIfThere } from "./api.js";
import { $, el, say, show } from "./page.js";
import { t } from "./words.js";

const VERDICTS = { r: "right", w: "wrong", s: "skip" };
const TITLES = { right: "right", wrong: "wrong_key", skip: "skip_key" };
const NEAR_SHOWN = 5;
let told = null;
let current = null;
let busy = false;

export async function refresh() {
  if (busy) return;
  told = await askIfThere("review?limit=40");
  draw();
}

export function draw() {
  const items = told?.items ?? [];
  const inUse = told !== null && Object.keys(told.lengths).length > 0;
  $("review").hidden = $("near").hidden = !inUse;
  if (!inUse) return;
  say("review-lengths", t("review_lengths", told.lengths));
  // Whoever is reading a pair keeps it, as long as it waits.
  current = items.find((one) => one.id === current?.id) ?? items[0] ?? null;
  show($("review-item"), current ? pair(current) : el("p", { class: "empty" }, t("review_empty")));
  $("review-keys").hidden = current === null;
  drawKeys();
  const near = items.filter((one) => one.kind === "near_miss").slice(0, NEAR_SHOWN);
  show($("near-list"), near.length ? near.map(nearMiss) : el("p", { class: "empty" }, t("none")));
}

function drawKeys() {
  const place = $("review-keys");
  if (!place.children.length) {
    for (const [key, verdict] of Object.entries(VERDICTS)) {
      const button = el("button", { type: "button", "data-verdict": verdict, "aria-keyshortcuts": key });
      button.addEventListener("click", () => settle(verdict));
      place.append(button);
    }
    place.append(el("span", { class: "dim" }));
  }
  for (const button of place.querySelectorAll("button")) {
    const { verdict } = button.dataset;
    show(button, t(TITLES[verdict]), el("kbd", {}, verdict[0].toUpperCase()));
  }
  show(place.querySelector("span"), t("review_help"));
}

function pair(item) {
  const rows = [
    ["asked", item.asked, "asked"],
    ["stored", item.stored],
    ["answer", item.answer],
    ["judged", judgement(item)],
  ];
  return el("dl", { class: "texts" }, rows.map(([title, text, cls]) => [el("dt", {}, t(title)), el("dd", { class: cls }, text)]));
}

function judgement(item) {
  const p = item.probability === null ? "–" : item.probability.toFixed(3);
  const line = t("judged_line", { kind: t(`kind_${item.kind}`), p, cosine: item.similarity.toFixed(3) });
  return [line, item.reason.replaceAll("_", " "), ...item.guards, item.scene].filter(Boolean).join(" · ");
}

function nearMiss(item) {
  return el(
    "div",
    { class: "near" },
    el("p", {}, item.asked),
    el("p", { class: "dim" }, `${t("stored")}: ${item.stored}`),
    el("p", { class: "dim" }, judgement(item)),
  );
}

async function settle(verdict) {
  if (busy || current === null) return;
  busy = true;
  const { id } = current;
  try {
    const done = await ask("review", { method: "POST", body: { id, verdict } });
    say("review-told", done.removed ? t("review_removed") : t("review_noted", { verdict: t(TITLES[verdict]) }));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    say("review-told", t("failed", { message: error.message }));
  } finally {
    busy = false;
  }
  told.items = told.items.filter((one) => one.id !== id);
  draw();
  await refresh();
}

export function listen() {
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=radio]), select, textarea");
    const verdict = VERDICTS[event.key.toLowerCase()];
    if (!verdict || typing || event.repeat || event.ctrlKey || event.metaKey || event.altKey || $("board").hidden) return;
    event.preventDefault();
    settle(verdict);
  });
}
