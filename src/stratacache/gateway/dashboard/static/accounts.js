// What comes more rarely: the ledger, and where prompts part from those before them.

import { askIfThere } from "./api.js";
import { $, clock, count, dollars, dot, el, say, show, table } from "./page.js";
import { t } from "./words.js";

const DAYS = 7;
const PARTED_SHOWN = 8;
let ledger = null;
let parted = null;

export async function refresh() {
  [ledger, parted] = await Promise.all([askIfThere(`ledger?days=${DAYS}`), askIfThere("divergences")]);
  draw();
}

export function draw() {
  drawLedger();
  drawParted(parted?.divergences ?? []);
}

function drawLedger() {
  $("ledger").hidden = ledger === null;
  const total = ledger?.total;
  say("f-saved", total ? dollars(total.net_usd ?? total.saved_usd) : "–");
  say("f-saved-more", total ? t("tokens_saved", { n: count(total.saved_tokens) }) : "");
  if (!total) return;
  say("ledger-days", t("ledger_days", { from: ledger.from, to: ledger.to }));
  const rows = Object.entries(total.saved).map(([tier, one]) => [
    el("span", {}, dot(tier), tier),
    count(one.requests),
    count(one.tokens),
    dollars(one.usd),
  ]);
  const costs = Object.values(total.costs_usd).filter((one) => one !== null);
  rows.push([t("ledger_costs"), "", "", dollars(costs.length ? -costs.reduce((a, b) => a + b, 0) : null)]);
  rows.push([el("b", {}, t("ledger_sum")), "", count(total.saved_tokens), el("b", {}, dollars(total.net_usd))]);
  rows.push([t("ledger_spent"), count(total.calls), "", dollars(total.spent_usd)]);
  const columns = [[t("tier")], [t("hits"), true], [t("tokens"), true], [t("money"), true]];
  show($("ledger-table"), table(columns, rows));
  say("ledger-note", total.unpriced_tokens ? t("unpriced", { n: count(total.unpriced_tokens) }) : "");
}

function drawParted(found) {
  $("parted").hidden = !found.length;
  const rows = found.slice(0, PARTED_SHOWN).map((one) => [
    clock(one.at),
    `${one.segment}@${one.offset}`,
    [one.cause.replaceAll("_", " "), one.excerpt].filter(Boolean).join(": "),
    count(one.lost),
  ]);
  const columns = [[t("when")], [t("place")], [t("cause")], [t("lost"), true]];
  show($("parted-list"), table(columns, rows));
}

export const days = DAYS;
