// @ts-check
// Where things are placed: numbers only. Nothing here draws.
/** @typedef {import("./run.mjs").Run} Run */
/** @typedef {{from: number, to: number}} View The steps in view, which may be fractions. */
/** @typedef {Map<number, {top: number, height: number}>} Stack */
/** @typedef {{source: number, target: number, n: number, y0: number, y1: number, wide: number}} Ribbon */

/** The largest value, or 0; Math.max limits the number of arguments. @param {number[]} values */
export const greatest = (values) => values.reduce((a, b) => Math.max(a, b), 0);

/** @param {number} value */
export function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 2, 3, 4, 6, 8, 10].map((m) => m * power).find((m) => m >= value) ?? value;
}

/** A number with about three digits. @param {number | null} value */
export function inShort(value) {
  if (value === null) return "–";
  const size = Math.abs(value);
  const tiny = size !== 0 && (size < 0.001 || size >= 1e6);
  const text = tiny ? value.toExponential(1) : String(Number(value.toPrecision(size >= 1000 ? 4 : 3)));
  return text.replaceAll("-", "−");
}

/**
 * Which times fit below a chart, and where: [step, x of the middle, text].
 * @param {string[]} times @param {(t: number) => number} x @param {number} from @param {number} to @param {number} width
 * @returns {[number, number, string][]}
 */
export function timeTicks(times, x, from, to, width) {
  const short = (/** @type {number} */ t) => (times[t].length > 16 ? `${times[t].slice(0, 15)}…` : times[t]);
  const wide = (/** @type {number} */ t) => short(t).length * 6.5;
  const longest = greatest(times.slice(from, to).map((_, i) => wide(from + i)));
  const apart = to - from > 1 ? x(from + 1) - x(from) : width;
  const shift = Math.max(0, wide(from) / 2 - x(from)); // of the first, which is moved inwards
  const every = Math.max(1, Math.ceil((longest + 14) / apart), shift > 0 ? Math.ceil((longest + 6 + shift) / apart) : 0);
  /** @type {[number, number, string][]} */
  const ticks = [];
  let end = -Infinity;
  for (let t = from; t < to; t += every) {
    const middle = Math.min(width - wide(t) / 2, Math.max(wide(t) / 2, x(t)));
    if (middle - wide(t) / 2 < end + 6) continue; // the last is moved inwards as well
    end = middle + wide(t) / 2;
    ticks.push([t, middle, short(t)]);
  }
  return ticks;
}

const MIN_SPAN = 3; // steps in view, less one

/** @param {View} view @param {number} T @returns {View} */
function inside(view, T) {
  const last = Math.max(0, T - 1), span = Math.min(last, view.to - view.from);
  const from = Math.min(last - span, Math.max(0, view.from));
  return { from, to: from + span };
}

/** The view with `factor` times as many steps, and the step `at` in its place. @param {View} view @param {number} factor @param {number} at @param {number} T */
export function zoomed(view, factor, at, T) {
  const span = view.to - view.from;
  const next = Math.min(Math.max(0, T - 1), Math.max(MIN_SPAN, span * factor));
  const share = span > 0 ? (at - view.from) / span : 0;
  return inside({ from: at - share * next, to: at + (1 - share) * next }, T);
}

/** @param {View} view @param {number} by @param {number} T */
export const panned = (view, by, T) => inside({ from: view.from + by, to: view.to + by }, T);

/** The view, moved so that a step is in it. @param {View} view @param {number} t @param {number} T */
export function showing(view, t, T) {
  if (t < view.from) return panned(view, t - view.from, T);
  return t > view.to ? panned(view, t - view.to, T) : view;
}

/** Where the clusters of each step are, from the top. @param {Run} run @param {number} height @returns {{stacks: Stack[], scale: number}} */
export function stacked(run, height) {
  const gap = Math.min(8, height / 3 / Math.max(1, greatest(run.sizes.map((sizes) => sizes.length))));
  const scale = run.sizes.reduce((least, sizes) => {
    const total = sizes.reduce((sum, [, size]) => sum + size, 0);
    return Math.min(least, (height - gap * sizes.length) / Math.max(1, total));
  }, Infinity);
  const stacks = run.sizes.map((sizes) => {
    let top = 4;
    /** @type {Stack} */
    const stack = new Map();
    for (const [name, size] of sizes) {
      stack.set(name, { top, height: size * scale });
      top += size * scale + gap;
    }
    return stack;
  });
  return { stacks, scale };
}

/** The ribbons from step t - 1 to t: y0 and y1 are their tops on both sides. @param {Run} run @param {number} t @param {Stack[]} stacks @param {number} scale @returns {Ribbon[]} */
export function ribbonsTo(run, t, stacks, scale) {
  /** @type {Map<number, number>} */
  const leaves = new Map();
  /** @type {Map<number, number>} */
  const enters = new Map();
  const taken = (/** @type {Map<number, number>} */ used, /** @type {Stack} */ stack, /** @type {number} */ name, /** @type {number} */ wide) => {
    const top = used.get(name) ?? stack.get(name)?.top ?? 0;
    used.set(name, top + wide);
    return top;
  };
  return run.links[t].map(([source, target, n]) => {
    const wide = n * scale;
    return { source, target, n, wide, y0: taken(leaves, stacks[t - 1], source, wide), y1: taken(enters, stacks[t], target, wide) };
  });
}

/** The least count such that at most `most` counts reach it; 1 if that is true of all. @param {number[]} counts @param {number} most */
export function fewestOf(counts, most) {
  if (counts.length <= most) return 1;
  const sorted = Float64Array.from(counts).sort().reverse();
  return sorted[most] + 1;
}

/** The height of a ribbon's top at a share of the way, 0 to 1, across; its curve has both controls in the middle. @param {number} y0 @param {number} y1 @param {number} across */
export function curveAt(y0, y1, across) {
  let low = 0, high = 1;
  for (let i = 0; i < 20; i += 1) {
    const u = (low + high) / 2;
    if (1.5 * (1 - u) * u + u ** 3 < across) low = u;
    else high = u;
  }
  return y0 + (y1 - y0) * (3 * low ** 2 - 2 * low ** 3);
}
