// @ts-check
// Lines over all steps: α, cohesion and stability, sizes.
import { byId, clicked, count, percent, svg, withTip } from "./elements.mjs";
import { inShort, niceTop, timeTicks } from "./layout.mjs";
import { colourOf, factsOf } from "./run.mjs";

/** @typedef {import("./address.mjs").App} App */
/** @typedef {{values: (number | null)[], name: string, colour?: string, kind?: string}} Line */
/** @typedef {(t: number) => string} Describe */

const LINES_AT_ONCE = 40;

/** @type {Map<HTMLElement, (t: number) => void>} */
const bands = new Map(); // functions that mark the selected step

/** Mark the selected step in all charts. @param {number} t */
export function markStep(t) {
  for (const show of bands.values()) show(t);
}

/**
 * @param {App} app @param {HTMLElement} place @param {Line[]} lines
 * @param {{bottom?: number, top: number, height: number, marks?: number[], describe: Describe}} options
 */
function lineChart(app, place, lines, { bottom = 0, top, height, marks = [], describe }) {
  const { T, times } = app.run, width = place.clientWidth, left = 44, right = 26, ceiling = 12, floor = height - 24;
  const x = (/** @type {number} */ t) => (T === 1 ? (left + width - right) / 2 : left + (t / (T - 1)) * (width - left - right));
  const y = (/** @type {number} */ value) => floor - ((value - bottom) / (top - bottom)) * (floor - ceiling);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  const half = Math.max(3, T > 1 ? (x(1) - x(0)) / 2 : 12);
  const band = svg("rect", { class: "chosen", y: ceiling, height: floor - ceiling });
  bands.set(place, (t) => {
    const from = Math.max(left - 8, x(t) - half), to = Math.min(width - right + 8, x(t) + half);
    band.setAttribute("x", String(from));
    band.setAttribute("width", String(to - from));
  });
  bands.get(place)?.(app.at.t);
  picture.append(band);
  for (const value of [bottom, (bottom + top) / 2, top]) {
    picture.append(
      svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toLocaleString("en")),
    );
  }
  for (const t of marks) {
    picture.append(
      svg("line", { class: "change", x1: x(t), x2: x(t), y1: ceiling, y2: floor }),
      svg("path", { class: "triangle", d: `M${x(t) - 5},${ceiling - 9}h10l-5,9z` }),
    );
  }
  for (const line of lines) picture.append(...drawnLine(line, x, y, T <= 60));
  picture.append(...endNames(lines, width - right + 5, y));
  for (const [, middle, text] of timeTicks(times, x, 0, T, width)) {
    picture.append(svg("text", { x: middle, y: height - 6, "text-anchor": "middle" }, text));
  }
  const at = (/** @type {PointerEvent} */ event) => {
    const across = event.clientX - picture.getBoundingClientRect().left;
    const t = Math.round(((across - left) / Math.max(1, width - left - right)) * (T - 1));
    return Math.min(T - 1, Math.max(0, t));
  };
  const hit = svg("rect", { class: "hit", x: left - 8, y: 0, width: width - left - right + 16, height });
  picture.append(clicked(withTip(hit, (event) => describe(at(event))), (event) => app.choose({ t: at(event) })));
  place.replaceChildren(picture);
}

/** @param {Line} line @param {(t: number) => number} x @param {(value: number) => number} y @param {boolean} dotted */
function drawnLine({ values, colour, kind = "alpha" }, x, y, dotted) {
  let path = "";
  const dots = [];
  /** @type {import("./elements.mjs").Attributes} */
  const paint = colour ? { class: kind, stroke: colour } : { class: kind };
  for (const [t, value] of values.entries()) {
    if (value === null) continue;
    const starts = (values[t - 1] ?? null) === null, alone = starts && (values[t + 1] ?? null) === null;
    path += `${starts ? "M" : "L"}${x(t).toFixed(1)},${y(value).toFixed(1)}`;
    if (alone || dotted) dots.push(svg("circle", { ...paint, cx: x(t), cy: y(value), r: 1.5 }));
  }
  return [svg("path", { ...paint, d: path }), ...dots];
}

/** Names of the lines that reach the last step, if they do not overlap. @param {Line[]} lines @param {number} x @param {(value: number) => number} y */
function endNames(lines, x, y) {
  const ends = lines.flatMap(({ name, values }) => {
    const last = values.at(-1) ?? null;
    return last === null || !name ? [] : [{ name, at: y(last) + 4 }];
  }).sort((a, b) => a.at - b.at);
  let lowest = -Infinity;
  return ends.flatMap(({ name, at }) => {
    if (at - lowest < 10) return [];
    lowest = at;
    return [svg("text", { x, y: at }, name)];
  });
}

/** @param {App} app */
export function drawAlpha(app) {
  const { alpha, changes, when } = app.run;
  const describe = (/** @type {number} */ t) => {
    const text = alpha[t] !== null ? `α = ${alpha[t]?.toFixed(3)}` : t === 0 ? "no past yet" : "α is not known";
    return `${when[t]}\n${text}${changes.includes(t) ? "\nchange point" : ""}`;
  };
  lineChart(app, byId("alpha"), [{ values: alpha, name: "" }], { top: 1, height: 190, marks: changes, describe });
}

/** @param {App} app */
export function drawQuality(app) {
  const { run, at: { cluster } } = app;
  /** @type {Line[]} */
  const lines = [{ values: run.kept, name: "", kind: "kept" }];
  if (run.cohesion) lines.push({ values: run.cohesion, name: "", kind: "cohesion" });
  const ofCluster = cluster === null ? [] : run.times.map((_, t) => factsOf(run, t, cluster).kept);
  if (cluster !== null) lines.push({ values: ofCluster, name: String(cluster), kind: "size", colour: colourOf(run, cluster) });
  const least = (run.cohesion ?? []).reduce((/** @type {number} */ low, value) => Math.min(low, value ?? 0), 0);
  const describe = (/** @type {number} */ t) => [
    run.when[t],
    run.kept[t] === null ? "no members to keep" : `${percent(run.kept[t])} of the members kept`,
    ...(cluster === null ? [] : [`${percent(ofCluster[t])} of those of cluster ${cluster}`]),
    ...(run.cohesion ? [`${run.measure} ${inShort(run.cohesion[t])}`] : []),
  ].join("\n");
  byId("measure").textContent = run.cohesion ? `${run.measure} of the clusters, from what was observed at the step` : "";
  byId("measure-key").hidden = !run.cohesion;
  byId("no-measure").hidden = Boolean(run.cohesion);
  byId("cluster-key").hidden = cluster === null;
  byId("kept-cluster").textContent = `members of cluster ${cluster} kept`;
  byId("cluster-key").style.color = cluster === null ? "" : colourOf(run, cluster);
  lineChart(app, byId("quality"), lines, { bottom: least < -0.5 ? -1 : least < 0 ? -0.5 : 0, top: 1, height: 170, describe });
}

/** @param {App} app */
export function drawSizes(app) {
  const { run, at } = app;
  /** @type {Map<number, number>} */
  const peak = new Map(); // the largest size of each cluster
  for (const [name, size] of run.sizes.flat()) peak.set(name, Math.max(size, peak.get(name) ?? 0));
  const all = [...peak].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const names = all.slice(0, LINES_AT_ONCE).filter((name) => name !== at.cluster);
  if (at.cluster !== null && peak.has(at.cluster)) names.push(at.cluster); // drawn above the others
  const lines = names.map((name) => ({
    name: String(name), colour: colourOf(run, name), values: run.sizeOf.map((sizes) => sizes.get(name) ?? null),
    kind: at.cluster === null || at.cluster === name ? "size" : "size faded",
  }));
  byId("lines").textContent = all.length > names.length ? `The ${names.length} largest of ${count(all.length, "cluster")}.` : "";
  const describe = (/** @type {number} */ t) => {
    const sorted = [...run.sizes[t]].sort((a, b) => b[1] - a[1]);
    const listed = sorted.slice(0, 12).map(([name, size]) => `cluster ${name}: ${count(size)}`);
    const rest = sorted.length > 12 ? [`and ${count(sorted.length - 12, "more cluster")}`] : [];
    return [run.when[t], ...listed, ...rest].join("\n");
  };
  const largest = names.reduce((most, name) => Math.max(most, peak.get(name) ?? 0), 1);
  lineChart(app, byId("sizes"), lines, { top: niceTop(largest), height: 220, describe });
}
