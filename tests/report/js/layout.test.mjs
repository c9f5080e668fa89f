// Addresses, and the geometry of pictures.
import assert from "node:assert/strict";
import { test } from "node:test";
import { formatAddress, parseAddress } from "../../../affect_xp/report/js/address.mjs";
import * as layout from "../../../affect_xp/report/js/layout.mjs";

const run = {
  T: 10, ids: ["a&b", "c=d #1"], colours: { 0: 0, 3: 1 },
  sizes: [[[0, 6], [3, 4]], [[0, 5], [3, 5]]], links: [[], [[0, 0, 5], [0, 3, 1], [3, 3, 4]]],
};

test("an address is read as it is written", () => {
  for (const row of [null, 0, 1]) {
    for (const cluster of [null, 0, 3]) {
      const at = { t: 4, cluster, row };
      assert.deepEqual(parseAddress(formatAddress(at, run), run), at);
    }
  }
  assert.equal(formatAddress({ t: 5, cluster: 3, row: null }, run), "#step=6&cluster=3");
});

test("what an address lacks or cannot mean is left out", () => {
  const last = { t: 9, cluster: null, row: null };
  assert.deepEqual(parseAddress("", run), last);
  assert.deepEqual(parseAddress("#step=99&cluster=5&id=nobody", run), last);
  assert.deepEqual(parseAddress("#step=0&cluster=toString", run), { ...last, t: 0 });
  assert.deepEqual(parseAddress("#step=-2", run), last);
});

test("zooming keeps the step under the pointer, within the run", () => {
  const all = { from: 0, to: 9 };
  const near = layout.zoomed(all, 0.5, 6, 10);
  assert.equal(near.to - near.from, 4.5);
  assert.ok(Math.abs((6 - near.from) / 4.5 - 6 / 9) < 1e-12);
  assert.deepEqual(layout.zoomed(near, Infinity, 6, 10), all);
  assert.equal(layout.zoomed(all, 1e-9, 0, 10).to, 3);
  assert.deepEqual(layout.zoomed({ from: 0, to: 0 }, 0.5, 0, 1), { from: 0, to: 0 });
  assert.deepEqual(layout.panned({ from: 2, to: 5 }, 100, 10), { from: 6, to: 9 });
  assert.deepEqual(layout.showing({ from: 2, to: 5 }, 8, 10), { from: 5, to: 8 });
  assert.deepEqual(layout.showing({ from: 2, to: 5 }, 1, 10), { from: 1, to: 4 });
  assert.deepEqual(layout.showing({ from: 2, to: 5 }, 3, 10), { from: 2, to: 5 });
});

test("stacks have the same scale, fit the height and do not overlap", () => {
  const { stacks, scale } = layout.stacked(run, 200);
  for (const [t, stack] of stacks.entries()) {
    let end = 0;
    for (const [name, size] of run.sizes[t]) {
      const { top, height } = stack.get(name);
      assert.ok(Math.abs(height - size * scale) < 1e-9 && top >= end);
      end = top + height;
    }
    assert.ok(end <= 204);
  }
});

test("ribbons fill their bars from the top", () => {
  const { stacks, scale } = layout.stacked(run, 200), [kept, moved, last] = layout.ribbonsTo(run, 1, stacks, scale);
  assert.equal(kept.y0, stacks[0].get(0).top);
  assert.ok(Math.abs(moved.y0 - (kept.y0 + kept.wide)) < 1e-9);
  assert.equal(moved.y1, stacks[1].get(3).top);
  assert.ok(Math.abs(last.y1 - (moved.y1 + moved.wide)) < 1e-9);
  assert.ok(Math.abs(layout.curveAt(10, 30, 0.5) - 20) < 1e-3);
  assert.ok(Math.abs(layout.curveAt(10, 30, 0) - 10) < 1e-3);
  assert.ok(Math.abs(layout.curveAt(10, 30, 1) - 30) < 1e-3);
});

test("only so many ribbons are drawn, the widest", () => {
  assert.equal(layout.fewestOf([3, 1, 2], 3), 1);
  assert.equal(layout.fewestOf([3, 1, 2, 2], 3), 2);
  assert.equal(layout.fewestOf([3, 1, 2, 2], 2), 3); // of equal ones, all or none
});

test("times below a chart do not overlap", () => {
  const times = Array.from({ length: 40 }, (_, t) => `2024-01-${t}`), x = (t) => 10 + t * 20;
  const ticks = layout.timeTicks(times, x, 0, 40, 820);
  assert.ok(ticks.length > 3);
  for (let i = 1; i < ticks.length; i += 1) assert.ok(ticks[i][1] - ticks[i - 1][1] >= 9 * 6.5);
  const steps = ticks.map(([t]) => t), apart = steps[1] - steps[0];
  assert.deepEqual(steps, steps.map((_, i) => i * apart)); // at regular distances, although the first is moved inwards
  assert.ok(ticks[0][1] > x(0));
});

test("numbers are short", () => {
  assert.deepEqual([0, 1234.56, -0.012345, 1e-7, 2.5e8, null].map(layout.inShort), ["0", "1235", "−0.0123", "1.0e−7", "2.5e+8", "–"]);
  assert.deepEqual([0, 1, 7, 25, 61].map(layout.niceTop), [1, 1, 8, 30, 80]);
  assert.equal(layout.greatest([]), 0);
});
