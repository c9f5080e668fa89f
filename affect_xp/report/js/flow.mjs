// @ts-check
// The flow of clusters on a canvas, which can be zoomed and moved.
import { button, byId, count, html, inkOn, svg, withTip } from "./elements.mjs";
import { curveAt, fewestOf, greatest, panned, ribbonsTo, showing, stacked, timeTicks, zoomed } from "./layout.mjs";
import { colourOf } from "./run.mjs";

/** @typedef {import("./address.mjs").App} App */
/** @typedef {import("./layout.mjs").Ribbon} Ribbon */

/** @type {Record<string, string>} */
const MARKS = {
  split: "M4,-5v10l-8,-5z", merge: "M-4,-5v10l8,-5z", birth: "M-1.5,-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
  return: "M0,-5l5,5l-5,5l-5,-5z", death: "M-5,-3l2,-2l3,3l3,-3l2,2l-3,3l3,3l-2,2l-3,-3l-3,3l-2,-2l3,-3z",
};
const LEAVING = ["split", "death"];
const INSET = 14, ZOOM = 1.6, MIN_APART_OF_MARKS = 20, MAX_RIBBONS = 8_000, THIN = 1.5;

/** @param {App} app */
export function makeFlow(app) {
  const { run } = app, T = run.T;
  const place = byId("flow"), canvas = /** @type {HTMLCanvasElement} */ (place.querySelector("canvas"));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  let view = { from: 0, to: Math.max(0, T - 1) }, width = 0, height = 0, waiting = false;
  let { stacks, scale } = stacked(run, 1);
  const seen = new Set(run.events.flat().map((event) => event.kind).filter((kind) => kind in MARKS));
  /** @type {Map<number, Ribbon[]>} */
  const ribbons = new Map(); // by step, once they are needed

  const apart = () => (view.to > view.from ? (width - 2 * INSET) / (view.to - view.from) : 0);
  const barWidth = () => Math.min(16, Math.max(1.5, (T > 1 ? apart() : 40) * 0.4));
  const x = (/** @type {number} */ t) => (T > 1 ? INSET + (t - view.from) * apart() : width / 2);
  const inView = () => [Math.max(0, Math.floor(view.from) - 1), Math.min(T, Math.ceil(view.to) + 2)];
  const ribbonsAt = (/** @type {number} */ t) => {
    if (!ribbons.has(t)) ribbons.set(t, ribbonsTo(run, t, stacks, scale));
    return ribbons.get(t) ?? [];
  };

  function resize() {
    width = place.clientWidth;
    const most = greatest(run.sizes.map((sizes) => sizes.length));
    height = Math.min(800, Math.max(width < 560 ? 300 : 360, 9 * most));
    const sharp = Math.min(3, devicePixelRatio || 1);
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
    canvas.style.height = `${height}px`;
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    ({ stacks, scale } = stacked(run, height - 34));
    ribbons.clear();
    later();
  }

  function later() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }

  function draw() {
    if (width === 0) return;
    const style = getComputedStyle(place), paint = (/** @type {string} */ name) => style.getPropertyValue(name);
    const [from, to] = inView();
    pen.clearRect(0, 0, width, height);
    pen.font = `11px ${style.fontFamily}`;
    pen.textAlign = "center";
    const half = Math.max(barWidth(), Math.min(apart(), 60)) / 2;
    pen.fillStyle = paint("--chosen");
    pen.fillRect(x(app.at.t) - half, 0, 2 * half, height - 24);
    const fewest = fewestOf(run.links.slice(Math.max(1, from), to).flatMap((links) => links.map(([, , n]) => n)), MAX_RIBBONS);
    for (let t = Math.max(1, from); t < to; t += 1) drawRibbons(t, fewest);
    for (let t = from; t < to; t += 1) drawBars(t, paint("--faint"), paint("--ink"), paint("--card"));
    if (app.at.row !== null) drawPath(app.at.row, from, to, paint("--ink"), paint("--card"));
    const marked = apart() >= MIN_APART_OF_MARKS;
    if (marked) drawMarks(from, to, paint("--ink"), paint("--card"));
    byId("marks-hint").hidden = marked || !seen.size;
    pen.fillStyle = paint("--faint");
    pen.font = `11px ${style.fontFamily}`;
    const first = Math.ceil(view.from - 0.01), last = Math.floor(view.to + 0.01) + 1;
    for (const [, middle, text] of timeTicks(run.times, x, first, last, width)) pen.fillText(text, middle, height - 7);
    const shown = view.to - view.from < T - 1 ? `Steps ${first + 1} to ${last} of ${T}.` : "";
    const hidden = fewest > 1 ? ` Ribbons of fewer than ${count(fewest)} are hidden; zoom in or select a cluster to see them.` : "";
    byId("window").textContent = shown + hidden;
    for (const name of ["zoom-out", "zoom-all"]) byId(name).toggleAttribute("disabled", view.to - view.from >= T - 1);
    canvas.dataset.view = `${first + 1}-${last}`;
  }

  /** @param {number} t @param {number} fewest objects of a ribbon */
  function drawRibbons(t, fewest) {
    const x0 = x(t - 1) + barWidth() / 2, x1 = x(t) - barWidth() / 2, middle = (x0 + x1) / 2, chosen = app.at.cluster;
    for (const { source, target, n, wide, y0, y1 } of ribbonsAt(t)) {
      const isChosen = chosen !== null && (source === chosen || target === chosen);
      if (n < fewest && !isChosen) continue;
      pen.globalAlpha = isChosen ? 0.55 : chosen === null ? 0.35 : 0.1;
      pen.fillStyle = pen.strokeStyle = colourOf(run, source);
      pen.beginPath();
      if (wide < THIN) { // a line is faster
        pen.lineWidth = Math.max(0.4, wide);
        pen.moveTo(x0, y0 + wide / 2);
        pen.bezierCurveTo(middle, y0 + wide / 2, middle, y1 + wide / 2, x1, y1 + wide / 2);
        pen.stroke();
        continue;
      }
      pen.moveTo(x0, y0);
      pen.bezierCurveTo(middle, y0, middle, y1, x1, y1);
      pen.lineTo(x1, y1 + wide);
      pen.bezierCurveTo(middle, y1 + wide, middle, y0 + wide, x0, y0 + wide);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  /** @param {number} t @param {string} faint @param {string} ink @param {string} paper */
  function drawBars(t, faint, ink, paper) {
    const wide = barWidth(), left = x(t) - wide / 2, named = [Math.ceil(view.from), app.at.t, Math.floor(view.to)];
    pen.font = `10px ${getComputedStyle(place).fontFamily}`;
    for (const [name, { top, height: tall }] of stacks[t]) {
      const isChosen = app.at.cluster === null || app.at.cluster === name;
      pen.globalAlpha = isChosen ? 1 : 0.3;
      pen.fillStyle = colourOf(run, name);
      pen.fillRect(left, top, wide, Math.max(1, tall));
      const fits = wide >= 6.2 * String(name).length + 1;
      if (tall < 11 || (!fits && !named.includes(t))) continue;
      pen.globalAlpha = 1;
      pen.fillStyle = isChosen ? inkOn(colourOf(run, name)) : faint;
      if (!fits) { // beside the bar, on paper
        pen.lineWidth = 3;
        pen.strokeStyle = paper;
        pen.fillStyle = ink;
        pen.strokeText(String(name), x(t), top + tall / 2 + 3.5);
      }
      pen.fillText(String(name), x(t), top + tall / 2 + 3.5);
    }
    pen.globalAlpha = 1;
  }

  /** The way of one object. @param {number} row @param {number} from @param {number} to @param {string} ink @param {string} paper */
  function drawPath(row, from, to, ink, paper) {
    const path = new Path2D();
    let before = false;
    for (let t = from; t < to; t += 1) {
      const stack = stacks[t].get(run.labels[t][row]);
      if (stack) {
        const y = stack.top + stack.height / 4; // names are in the middle
        if (before) path.lineTo(x(t), y);
        else path.moveTo(x(t) - 1, y);
        path.lineTo(x(t) + 1, y);
      }
      before = Boolean(stack);
    }
    pen.lineJoin = "round";
    for (const [colour, wide] of /** @type {[string, number][]} */ ([[paper, 5], [ink, 2.2]])) {
      pen.strokeStyle = colour;
      pen.lineWidth = wide;
      pen.stroke(path);
    }
  }

  /** @param {number} from @param {number} to @param {string} ink @param {string} paper */
  function drawMarks(from, to, ink, paper) {
    for (let t = Math.max(1, from); t < to; t += 1) {
      for (const event of run.events[t]) {
        if (!(event.kind in MARKS)) continue;
        const leaving = LEAVING.includes(event.kind), at = leaving ? t - 1 : t;
        for (const name of leaving ? event.before : event.after) {
          const stack = stacks[at]?.get(name);
          if (!stack) continue;
          const path = new Path2D();
          const shift = new DOMMatrix([1, 0, 0, 1, x(at) + (leaving ? 1 : -1) * (barWidth() / 2 + 6), stack.top + stack.height / 2]);
          path.addPath(new Path2D(MARKS[event.kind]), shift);
          pen.lineWidth = 2.4;
          pen.strokeStyle = paper;
          pen.stroke(path);
          pen.fillStyle = ink;
          pen.fill(path);
        }
      }
    }
  }

  /** What is at a point: a step, and a cluster or a ribbon to the step. @param {{clientX: number, clientY: number}} event */
  function find(event) {
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    const step = T > 1 ? view.from + (px - INSET) / apart() : 0;
    const t = Math.min(T - 1, Math.max(0, Math.round(step)));
    if (Math.abs(px - x(t)) <= barWidth() / 2 + 2) {
      for (const [name, { top, height: tall }] of stacks[t]) {
        if (py >= top - 1 && py <= top + Math.max(1, tall) + 1) return { t, name, ribbon: null, to: t };
      }
    }
    const to = Math.min(T - 1, Math.max(1, Math.ceil(step)));
    const x0 = x(to - 1) + barWidth() / 2, x1 = x(to) - barWidth() / 2;
    const across = (px - x0) / Math.max(1, x1 - x0);
    const hit = T > 1 && across > 0 && across < 1
      ? ribbonsAt(to).findLast(({ y0, y1, wide }) => {
        const y = curveAt(y0, y1, across);
        return py >= y && py <= y + Math.max(1, wide);
      }) : undefined;
    return { t, name: null, ribbon: hit ?? null, to };
  }

  withTip(canvas, (event) => {
    const { t, name, ribbon, to } = find(event);
    if (name !== null) {
      const happened = run.events[t].filter(({ after, before }) => after.includes(name) || before.includes(name));
      return [run.when[t], `cluster ${name}: ${count(run.sizeOf[t].get(name) ?? 0)}`, ...happened.map(({ text }) => text)].join("\n");
    }
    if (!ribbon) return run.when[t];
    const { source, target, n } = ribbon;
    const where = source === target ? `stayed in cluster ${source}` : `cluster ${source} → cluster ${target}`;
    return `${run.when[to - 1]} → ${run.when[to]}\n${count(n)}: ${where}`;
  });

  /** @param {number} factor @param {number} at */
  function zoom(factor, at = Math.min(view.to, Math.max(view.from, app.at.t))) {
    view = zoomed(view, factor, at, T);
    later();
  }
  const stepAt = (/** @type {number} */ clientX) => view.from + (clientX - canvas.getBoundingClientRect().left - INSET) / Math.max(1e-9, apart());

  canvas.addEventListener("wheel", (event) => {
    // Without Ctrl the page scrolls, unless the picture has the focus.
    const asked = event.ctrlKey || event.metaKey || document.activeElement === canvas;
    const along = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (along && view.to - view.from < T - 1) view = panned(view, event.deltaX / Math.max(1, apart()), T);
    else if (asked && !along) {
      const before = view;
      view = zoomed(view, Math.exp(Math.max(-50, Math.min(50, event.deltaY)) * 0.006), stepAt(event.clientX), T);
      if (before.from === view.from && before.to === view.to && !event.ctrlKey) return; // nothing left to zoom: scroll
    } else return;
    event.preventDefault();
    later();
  }, { passive: false });

  /** @type {Map<number, PointerEvent>} */
  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    if (!pointers.size) moved = 0;
    pointers.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = pointers.get(event.pointerId);
    if (!last) return;
    const others = [...pointers.values()].filter((other) => other.pointerId !== event.pointerId);
    moved += Math.abs(event.clientX - last.clientX) + Math.abs(event.clientY - last.clientY) + (others.length ? 9 : 0);
    if (others.length === 1) { // a pinch
      const still = others[0].clientX, was = Math.abs(last.clientX - still), now = Math.abs(event.clientX - still);
      if (was > 10 && now > 10) view = zoomed(view, was / now, stepAt(still), T);
    } else if (moved > 5 && apart() > 0) view = panned(view, (last.clientX - event.clientX) / apart(), T);
    pointers.set(event.pointerId, event);
    later();
  });
  canvas.addEventListener("pointerup", (event) => {
    const known = pointers.delete(event.pointerId);
    if (!known || moved > 5) return;
    const { t, name } = find(event);
    app.choose(name === null ? { t } : { t, cluster: name });
  });
  canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));

  /** @type {Record<string, () => void>} */
  const keys = {
    "+": () => zoom(1 / ZOOM), "=": () => zoom(1 / ZOOM), "-": () => zoom(ZOOM), 0: () => zoom(Infinity),
    ArrowLeft: () => app.choose({ t: app.at.t - 1 }, { replace: true }),
    ArrowRight: () => app.choose({ t: app.at.t + 1 }, { replace: true }),
    ArrowUp: () => nextCluster(-1), ArrowDown: () => nextCluster(1), Escape: () => app.choose({ cluster: null }),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  /** @param {number} by */
  function nextCluster(by) {
    const names = [...stacks[app.at.t].keys()], place = app.at.cluster === null ? -1 : names.indexOf(app.at.cluster);
    const next = place < 0 ? (by > 0 ? 0 : names.length - 1) : Math.min(names.length - 1, Math.max(0, place + by));
    if (names.length) app.choose({ cluster: names[next] }, { replace: true });
  }

  byId("zoom").replaceChildren(
    button(() => zoom(ZOOM), { id: "zoom-out", "aria-label": "show more steps" }, "−"),
    button(() => zoom(1 / ZOOM), { id: "zoom-in", "aria-label": "show fewer steps" }, "+"),
    button(() => zoom(Infinity), { id: "zoom-all" }, "all"),
  );
  byId("zoom").hidden = T < 5;
  byId("marks").replaceChildren(
    ...Object.keys(MARKS).filter((kind) => seen.has(kind)).map((kind) => (
      html("li", {}, svg("svg", { viewBox: "-6 -6 12 12" }, svg("path", { class: "mark", d: MARKS[kind] })), kind)
    )),
    html("li", { id: "marks-hint" }, "(zoom in to see them)"),
  );

  return {
    resize,
    /** Draw what is selected. */
    update() {
      view = showing(view, app.at.t, T);
      later();
    },
  };
}
