// @ts-check
// The heat map of memberships: objects × steps.
import { byId, clicked, html, withTip } from "./elements.mjs";
import { ABSENT, colourOf, nameOf, NO_CLUSTER } from "./run.mjs";

/** @typedef {import("./address.mjs").App} App */

const MAX_ROWS_WITH_NAMES = 60, ROW_HEIGHT = 14;

/** @param {App} app */
export function makeMembers(app) {
  const { run } = app, T = run.T, rows = run.ids.length, place = byId("members");
  const canvas = /** @type {HTMLCanvasElement} */ (place.querySelector("canvas"));
  const named = rows <= MAX_ROWS_WITH_NAMES;
  const height = named ? rows * ROW_HEIGHT : Math.min(520, Math.max(120, rows * 4));
  canvas.width = Math.min(T, 4000); // browsers bound the size of a canvas
  canvas.height = Math.max(1, rows);
  canvas.style.height = `${height}px`;
  paintRows(app, canvas);
  const names = byId("row-names");
  names.hidden = !named;
  if (named) {
    names.replaceChildren(...run.ids.map((id, row) => (
      withTip(clicked(html("li", {}, id), () => app.choose({ row })), id)
    )));
  }
  const find = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    const share = (/** @type {number} */ value, /** @type {number} */ n) => Math.min(n - 1, Math.max(0, Math.floor(value * n)));
    return [share((event.clientX - box.left) / box.width, T), share((event.clientY - box.top) / box.height, rows)];
  };
  withTip(canvas, (event) => {
    const [t, row] = find(event);
    return `${run.ids[row]}\n${run.when[t]}\n${nameOf(run.labels[t][row])}`;
  });
  clicked(canvas, (event) => {
    const [t, row] = find(event);
    app.choose({ t, row });
  });
}

/** @param {App} app @param {HTMLCanvasElement} canvas */
function paintRows({ run }, canvas) {
  const pixels = new ImageData(canvas.width, canvas.height);
  /** @type {Map<number, number[]>} */
  const paints = new Map();
  const paintOf = (/** @type {number} */ name) => {
    if (!paints.has(name)) {
      const code = colourOf(run, name);
      paints.set(name, [...[1, 3, 5].map((i) => parseInt(code.slice(i, i + 2), 16)), name === NO_CLUSTER ? 90 : 255]);
    }
    return /** @type {number[]} */ (paints.get(name));
  };
  for (let column = 0; column < canvas.width; column += 1) {
    run.labels[Math.floor((column * run.T) / canvas.width)].forEach((name, row) => {
      if (name !== ABSENT) pixels.data.set(paintOf(name), 4 * (row * canvas.width + column)); // others are transparent
    });
  }
  canvas.getContext("2d")?.putImageData(pixels, 0, 0);
}

/** Mark the selected step and object. @param {App} app */
export function markMembers({ run, at: { t, row } }) {
  const cursor = byId("cursor"), line = byId("row-cursor");
  cursor.style.left = `${(100 * t) / run.T}%`;
  cursor.style.width = `max(3px, ${100 / run.T}%)`;
  line.hidden = row === null;
  if (row === null) return;
  line.style.top = `${(100 * row) / run.ids.length}%`;
  line.style.height = `max(3px, ${100 / run.ids.length}%)`;
}
