// @ts-check
// What is selected, as the part of the address after #: step=6&cluster=3&id=name. Steps count from 1.
/** @typedef {import("./run.mjs").Run} Run */
/** @typedef {{t: number, cluster: number | null, row: number | null}} Selection */
/** @typedef {{run: Run, at: Selection, choose: (change: Partial<Selection>, how?: {replace?: boolean}) => void}} App */

/** @param {string} hash @param {Run} run @returns {Selection} */
export function parseAddress(hash, run) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const step = /^\d+$/.test(given.get("step") ?? "") ? Number(given.get("step")) : run.T;
  const cluster = given.get("cluster") ?? "";
  const row = given.has("id") ? run.ids.indexOf(given.get("id") ?? "") : -1;
  return {
    t: Math.min(run.T, Math.max(1, step)) - 1,
    cluster: Object.hasOwn(run.colours, cluster) ? Number(cluster) : null,
    row: row < 0 ? null : row,
  };
}

/** @param {Selection} selection @param {Run} run */
export function formatAddress({ t, cluster, row }, run) {
  const parts = [`step=${t + 1}`];
  if (cluster !== null) parts.push(`cluster=${cluster}`);
  if (row !== null) parts.push(`id=${encodeURIComponent(run.ids[row])}`);
  return `#${parts.join("&")}`;
}
