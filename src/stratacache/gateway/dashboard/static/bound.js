// The curve of the error bound: the chance of a wrong answer by the verifier's probability, and where answers begin.

import { askIfThere } from "./api.js";
import { $, count, el, percent, say, show, small, svg } from "./page.js";
import { t } from "./words.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [560, 230, 46, 34, 10];
const LEAST = 0.0005; // the chart's lowest chance
let told = null;

export async function refresh() {
  told = await askIfThere("bound");
  draw();
}

export function draw() {
  const curves = told?.curves ?? [];
  $("bound").hidden = !curves.length;
  if (!curves.length) return;
  const choice = $("bound-scene");
  const names = curves.map(nameOf);
  if ([...choice.options].map((one) => one.value).join("\n") !== names.join("\n")) {
    const before = choice.value;
    choice.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
    choice.value = names.includes(before) ? before : names[0];
  }
  drawCurve(curves[Math.max(0, names.indexOf(choice.value))]);
}

const nameOf = ({ scene, risk, language }) => [scene, language, risk].filter(Boolean).join(" · ");

function drawCurve(curve) {
  const limit = small(curve.max_error);
  const from = curve.threshold_p;
  const word = from === null ? "bound_none" : "bound_say";
  say("bound-say", t(word, { p: from?.toFixed(3), limit }));
  const sum = (name) => count(curve.points.reduce((all, point) => all + point[name], 0));
  const numbers = { right: sum("right"), wrong: sum("wrong"), hits: count(curve.hits), requests: count(curve.requests) };
  say("bound-note", t("bound_note", numbers) + (told.workers ? ` ${t("bound_worker")}` : ""));
  show($("bound-chart"), svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": t("bound") }, drawing(curve)));
}

// The verifier's probabilities crowd at 1, so the axis is of their log-odds; chances go over magnitudes.
const odds = (p) => Math.log(p / (1 - p));

function drawing({ points, max_error: limit, threshold_p: from }) {
  const [low, high] = [odds(points[0].p), odds(points.at(-1).p)];
  const x = (p) => LEFT + ((WIDTH - LEFT - 8) * (Math.min(high, Math.max(low, odds(p))) - low)) / (high - low);
  const y = (risk) => TOP + ((HEIGHT - BOTTOM - TOP) * Math.log(Math.max(LEAST, risk))) / Math.log(LEAST);
  const base = y(LEAST);
  const at = (point, name) => `${x(point.p).toFixed(1)},${y(point[name]).toFixed(1)}`;
  const drawn = [];
  for (const risk of [1, 0.1, 0.01, 0.001]) {
    drawn.push(svg("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(risk), y2: y(risk) }));
    drawn.push(svg("text", { x: LEFT - 6, y: y(risk) + 4, "text-anchor": "end" }, percent(risk, risk < 0.01 ? 1 : 0)));
  }
  for (const p of [0.1, 0.5, 0.9, 0.99, 0.999]) {
    drawn.push(svg("text", { x: x(p), y: HEIGHT - 18, "text-anchor": "middle" }, `${p}`));
  }
  drawn.push(svg("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, t("bound_x")));
  drawn.push(...labels(points, x, base));
  const edge = [...points.map((one) => at(one, "upper")), ...points.toReversed().map((one) => at(one, "risk"))];
  drawn.push(svg("polygon", { class: "band", points: edge.join(" ") }));
  drawn.push(svg("polyline", { class: "risk", points: points.map((one) => at(one, "risk")).join(" ") }));
  drawn.push(svg("line", { class: "limit", x1: LEFT, x2: WIDTH, y1: y(limit), y2: y(limit) }));
  drawn.push(svg("text", { class: "limit-word", x: LEFT + 4, y: y(limit) - 4 }, `${t("allowed")} ${small(limit)}`));
  if (from !== null) {
    const start = x(from);
    drawn.push(svg("rect", { class: "served", x: start, y: TOP, width: WIDTH - start, height: base - TOP }));
    drawn.push(svg("line", { class: "floor", x1: start, x2: start, y1: TOP, y2: base }));
    const room = WIDTH - start > 110;
    drawn.push(svg("text", { class: "floor-word", x: start + (room ? 5 : -5), y: TOP + 11, "text-anchor": room ? "start" : "end" }, t("serves_from")));
  }
  return drawn;
}

// Labels by bin, as small bars on the ground: how much the curve rests on.
function labels(points, x, base) {
  const most = Math.max(1, ...points.map((one) => one.right + one.wrong));
  const width = 6;
  return points.flatMap((point) => {
    const [right, wrong] = [point.right, point.wrong].map((n) => (44 * n) / most);
    const place = { x: x(point.p) - width / 2, width };
    return [
      right > 0 ? svg("rect", { class: "right", ...place, y: base - right, height: right }) : null,
      wrong > 0 ? svg("rect", { class: "wrong", ...place, y: base - right - wrong, height: wrong }) : null,
    ];
  });
}
