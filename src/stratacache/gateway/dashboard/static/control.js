// What an administrator does here: the mode of the semantic tier, and invalidation, never without a dry run.

import { Refused, ask, askIfThere } from "./api.js";
import { $, count, el, say, show, table } from "./page.js";
import { t } from "./words.js";

let mode = { semantic: null, fixed: null };
let planned = null; // the selection that the last dry run was of
let found = null;
let records = null;

export const semanticMode = () => mode.semantic;

export async function refreshMode() {
  mode = (await askIfThere("mode")) ?? mode;
  drawMode();
}

function drawMode() {
  const place = $("mode");
  place.hidden = mode.semantic === null;
  place.disabled = mode.fixed !== null;
  place.title = mode.fixed ? t("mode_fixed", { why: mode.fixed }) : "";
  for (const input of place.querySelectorAll("input")) input.checked = input.value === mode.semantic;
}

async function changeMode(event) {
  const wanted = event.target.value;
  await told("notice", async () => {
    mode = { ...mode, ...(await ask("mode", { method: "PUT", body: { semantic: wanted } })) };
  });
  drawMode();
}

// Does it; what the gateway refuses is said at `place`.
async function told(place, action) {
  try {
    await action();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    say(place, t("failed", { message: error.message }));
    $(place).hidden = false;
  }
}

function selection() {
  const what = $("inv-what").value;
  const which = $("inv-which").value.split(",").map((one) => one.trim()).filter(Boolean);
  if (what === "all") return { all: true };
  if (!which.length) return null;
  return { [what]: what === "tenant" ? which.join(",") : which };
}

async function dryRun(event) {
  event.preventDefault();
  forgetPlan();
  const wanted = selection();
  if (wanted === null) {
    say("inv-told", t("inv_nothing"));
    return;
  }
  await told("inv-told", async () => {
    const { affected } = await ask("invalidate", { method: "POST", body: { ...wanted, dry_run: true } });
    planned = wanted;
    say("inv-told", affected === null ? t("inv_would_unknown") : t("inv_would", { n: count(affected) }));
    say("inv-do", t("inv_do", { what: wanted.all ? t("everything") : Object.values(wanted).flat().join(", ") }));
    $("inv-confirm").hidden = false;
  });
}

async function invalidate() {
  const wanted = planned;
  forgetPlan();
  if (wanted === null) return;
  await told("inv-told", async () => {
    const { affected } = await ask("invalidate", { method: "POST", body: wanted });
    say("inv-told", t("inv_done", { n: count(affected) }));
  });
  await refreshAudit();
}

// Whatever is changed in the form was in no dry run.
function forgetPlan() {
  planned = null;
  $("inv-confirm").hidden = true;
  say("inv-told", "");
  $("inv-which").disabled = $("inv-what").value === "all";
}

async function refreshAudit() {
  if (!$("audit").open) return;
  records = await askIfThere("audit?limit=10");
  drawAudit();
}

function drawAudit() {
  if (records === null) return;
  if (!records.enabled || !records.records.length) {
    show($("audit-list"), el("p", { class: "empty" }, t(records.enabled ? "none" : "audit_off")));
    return;
  }
  const rows = records.records.map((one) => [
    one.time,
    one.actor,
    JSON.stringify(one.selection),
    one.dry_run ? t("dry") : one.outcome,
    count(one.affected),
  ]);
  show($("audit-list"), table([[t("when")], [t("who")], [t("inv_what")], [t("outcome")], [t("affected"), true]], rows));
}

async function findEntries(event) {
  event.preventDefault();
  const query = encodeURIComponent($("entries-query").value);
  await told("inv-told", async () => {
    found = await ask(`entries?limit=20&query=${query}`);
  });
  drawEntries();
}

function drawEntries() {
  if (found === null) return;
  const rows = found.entries.map((one) => {
    const pick = el("button", { type: "button", class: "plain" }, t("entries_pick"));
    pick.addEventListener("click", () => choose(one.id));
    return [one.question, one.answer, (one.tags ?? []).join(", "), pick];
  });
  const list = rows.length ? table([[t("asked")], [t("answer")], [t("inv_tags")], [""]], rows) : el("p", { class: "empty" }, t("none"));
  $("entries-list").replaceChildren(list, found.after ? el("p", { class: "dim" }, t("entries_more")) : "");
}

function choose(entry) {
  $("inv-what").value = "entries";
  $("inv-which").value = entry;
  forgetPlan();
  $("inv-which").focus();
}

export function draw() {
  drawMode();
  drawAudit();
  drawEntries();
  forgetPlan();
}

export function listen() {
  $("mode").addEventListener("change", changeMode);
  $("invalidate").addEventListener("submit", dryRun);
  for (const id of ["inv-what", "inv-which"]) $(id).addEventListener("input", forgetPlan);
  $("inv-do").addEventListener("click", invalidate);
  $("inv-not").addEventListener("click", forgetPlan);
  $("audit").addEventListener("toggle", refreshAudit);
  $("entries-form").addEventListener("submit", findEntries);
  $("entries").hidden = false;
}
