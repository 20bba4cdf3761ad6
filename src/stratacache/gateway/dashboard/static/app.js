// Starts the page, asks the gateway once a second while somebody looks, and shows what it says.

import * as accounts from "./accounts.js";
import { Refused, ask, key, remember } from "./api.js";
import * as bound from "./bound.js";
import * as control from "./control.js";
import * as live from "./live.js";
import { $, say } from "./page.js";
import * as parts from "./parts.js";
import * as review from "./review.js";
import { Samples } from "./window.js";
import { switchLanguage, t, translate } from "./words.js";

const BEAT = 1000; // milliseconds between two feeds
const SLOW = 10; // beats between two looks at what changes rarely
const THEME = "stratacache.theme";

let samples = new Samples();
let beats = 0;
let timer = null;
let running = 0; // the number of the loop in force: an answer to an older one is late
let lostAt = null;

async function beat(loop) {
  const started = performance.now();
  try {
    const slow = beats++ % SLOW === 0;
    const feed = await ask("feed");
    if (loop !== running) return;
    samples.add(feed);
    lostAt = null;
    if (slow) await Promise.all([control.refreshMode(), review.refresh(), bound.refresh(), accounts.refresh()]);
    if (loop !== running) return;
    draw();
  } catch (error) {
    if (loop !== running) return;
    if (error instanceof Refused && [401, 403].includes(error.status)) {
      askForKey(error);
      return;
    }
    lostAt ??= new Date();
    drawStatus();
    if (!(error instanceof Refused || error instanceof TypeError || error.name === "TimeoutError")) throw error;
  } finally {
    if (loop === running && $("key").hidden) timer = setTimeout(beat, Math.max(0, BEAT - (performance.now() - started)), loop);
  }
}

function start() {
  clearTimeout(timer);
  beats = 0;
  beat(++running);
}

function stop() {
  clearTimeout(timer);
  running++;
}

function draw() {
  $("board").hidden = false;
  drawStatus();
  live.draw(samples, control.semanticMode());
  parts.draw(samples.last);
}

function drawStatus() {
  const feed = samples.last;
  const ready = feed && Object.values(feed.upstreams_ready ?? {}).some(Boolean);
  const [word, colour] = lostAt ? ["status_lost", "bad"] : ready ? ["status_ok", "good"] : ["status_not", "warn"];
  say("status", feed || lostAt ? t(word) : "");
  $("status").className = `chip ${colour}`;
  document.body.classList.toggle("late", lostAt !== null);
  say("notice", lostAt ? t("lost_since", { at: lostAt.toLocaleTimeString() }) : "");
  $("notice").hidden = lostAt === null;
  if (!feed) return;
  const words = { version: feed.version, n: feed.workers.length };
  say("about", t(feed.workers.length > 1 ? "about_workers" : "about", words));
}

function askForKey(error) {
  stop();
  samples = new Samples();
  const had = key() !== "";
  remember("");
  $("board").hidden = true;
  $("leave").hidden = true;
  $("mode").hidden = true;
  say("status", "");
  say("about", "");
  if (error?.code === "foreign_origin") {
    say("notice", error.message);
    $("notice").hidden = false;
    return;
  }
  $("key").hidden = false;
  const words = error?.code === "missing_right" ? "key_right" : "key_unknown";
  say("key-refused", had && error ? t(words) : "");
  $("key-value").focus();
}

function takeKey(event) {
  event.preventDefault();
  remember($("key-value").value.trim());
  $("key-value").value = "";
  $("key").hidden = true;
  $("leave").hidden = false;
  start();
}

function drawWords() {
  translate();
  $("language").textContent = document.documentElement.lang === "en" ? "中文" : "English";
  say("theme", t(document.documentElement.dataset.theme === "dark" ? "theme_light" : "theme_dark"));
  for (const title of document.querySelectorAll('[data-t="f_saved"]')) title.textContent = t("f_saved", { days: accounts.days });
  if (!samples.last) return;
  draw();
  for (const part of [review, bound, accounts, control]) part.draw();
}

function applyTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? (dark ? "dark" : "light");
}

function listen() {
  $("language").addEventListener("click", () => {
    switchLanguage();
    drawWords();
  });
  $("theme").addEventListener("click", () => {
    localStorage.setItem(THEME, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    applyTheme();
    drawWords();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    applyTheme();
    drawWords();
  });
  $("key-form").addEventListener("submit", takeKey);
  $("leave").addEventListener("click", () => askForKey(null));
  $("bound-scene").addEventListener("change", bound.draw);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    else if ($("key").hidden) start();
  });
  review.listen();
  control.listen();
}

applyTheme();
drawWords();
listen();
$("leave").hidden = key() === "";
start();
