// Makes elements and numbers. Texts of users become text nodes, never markup.

import { language, t } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) element.append(child);
  return element;
}

// Replaces what stands in `place` only when it would look different: no flicker, no lost selection.
export function show(place, ...children) {
  const fresh = el("div", {}, children);
  if (place.innerHTML !== fresh.innerHTML) place.replaceChildren(...fresh.childNodes);
}

export function say(id, text) {
  const place = $(id);
  if (place.textContent !== text) place.textContent = text;
}

// `columns`: [title, is it a number?]; `rows`: lists of texts or elements.
export function table(columns, rows) {
  const cls = (number) => (number ? { class: "n" } : {});
  const head = el("tr", {}, columns.map(([title, number]) => el("th", { scope: "col", ...cls(number) }, title)));
  const body = rows.map((row) => el("tr", {}, row.map((cell, at) => el("td", cls(columns[at][1]), cell))));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}

export const dot = (kind) => el("i", { class: `dot ${kind}`, "aria-hidden": "true" });

export const count = (n) => (n === null || n === undefined ? "–" : Math.round(n).toLocaleString(language()));

export function percent(share, digits = 1) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  return `${(100 * share).toFixed(digits)} %`;
}

// A small share needs more digits than a hit rate.
export function small(share) {
  if (share === null || share === undefined) return "–";
  return percent(share, share > 0 && share < 0.01 ? 2 : 1);
}

export function seconds(s) {
  if (s === null || s === undefined || !Number.isFinite(s)) return "–";
  if (s >= 10) return `${s.toFixed(1)} s`;
  if (s >= 1) return `${s.toFixed(2)} s`;
  if (s >= 0.01) return `${(1000 * s).toFixed(0)} ms`;
  return `${(1000 * s).toFixed(2)} ms`;
}

export function dollars(usd) {
  if (usd === null || usd === undefined) return "–";
  const sign = usd < 0 ? "−" : "";
  const size = Math.abs(usd);
  return `${sign}$${size.toFixed(size > 0 && size < 1 ? 4 : 2)}`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (n >= 1024 && at < units.length - 1) [n, at] = [n / 1024, at + 1];
  return `${n.toFixed(at ? 1 : 0)} ${units[at]}`;
}

export function span(secs) {
  return secs >= 90 ? t("minutes", { n: Math.round(secs / 60) }) : t("seconds", { n: Math.round(secs) });
}

export const clock = (epoch) => new Date(1000 * epoch).toLocaleString(language());
