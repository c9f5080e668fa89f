// @ts-check
// The run: questions about the embedded data. Nothing here draws.

/**
 * @typedef {{kind: string, text: string, before: number[], after: number[], counts: number[]}} Event
 * @typedef {{row: number, from: number, to: number, p: number | null}} Move
 * @typedef {{first: number, last: number, name: number}} Stay
 * @typedef {{
 *   times: string[], n: number[], k: number[], alpha: (number | null)[], changes: number[], changesNote: string,
 *   palette: string[], order: number[], colours: Record<string, number>, sizes: [number, number][][],
 *   links: [number, number, number][][], events: Event[][], ids: string[], labels: number[][],
 *   moved: ([number, number][] | null)[], nObjects: number, notes: string[], kept: (number | null)[],
 *   keptByCluster: (number | null)[][], measure?: string, cohesion: (number | null)[] | null, features?: string[],
 *   profiles: (number[][] | null)[][] | null, densities: ([number, number, number[]] | null)[][] | null,
 * }} Data
 * @typedef {Data & {T: number, when: string[], sizeOf: Map<number, number>[]}} Run
 */

export const NO_CLUSTER = -1, ABSENT = -2;
export const MIN_PROBABILITY = 0.5; // of a move

/** @param {Data} data @returns {Run} */
export function makeRun(data) {
  const counted = data.times.every((time, t) => time === String(t)); // no times were given
  const when = counted ? data.times.map((time) => `t = ${time}`) : data.times;
  return { ...data, when, T: data.times.length, sizeOf: data.sizes.map((sizes) => new Map(sizes)) };
}

/** @param {Run} run @param {number} name */
export const colourOf = (run, name) => (name < 0 ? "#808080" : run.palette[run.colours[name]]);

/** @param {number} name */
export const nameOf = (name) => (name === ABSENT ? "absent" : name === NO_CLUSTER ? "in no cluster" : `cluster ${name}`);

/** The rows of each cluster at a step; those that came since the step before are first. @param {Run} run @param {number} t */
export function membersAt(run, t) {
  /** @type {Map<number, number[]>} */
  const came = new Map();
  /** @type {Map<number, number[]>} */
  const stayed = new Map();
  run.labels[t].forEach((name, row) => {
    const group = t > 0 && run.labels[t - 1][row] !== name ? came : stayed;
    if (!group.has(name)) group.set(name, []);
    group.get(name)?.push(row);
  });
  const names = new Set([...came.keys(), ...stayed.keys()]);
  names.delete(ABSENT);
  return new Map([...names].map((name) => [name, [...(came.get(name) ?? []), ...(stayed.get(name) ?? [])]]));
}

/** The rows that were in a cluster at the step before and are not now. @param {Run} run @param {number} t @param {number} name */
export function leftAt(run, t, name) {
  if (t === 0) return [];
  return run.labels[t - 1].flatMap((before, row) => (before === name && run.labels[t][row] !== name ? [row] : []));
}

/**
 * Objects that moved, the most probable first. Where no probabilities are known, they are in another cluster.
 * @param {Run} run @param {number} t @returns {Move[]}
 */
export function movesAt(run, t) {
  if (t === 0) return [];
  const before = run.labels[t - 1], now = run.labels[t], known = run.moved[t];
  if (known) {
    const moves = known.map(([row, p]) => ({ row, from: before[row], to: now[row], p }));
    return moves.sort((a, b) => b.p - a.p);
  }
  return now.flatMap((to, row) => {
    const from = before[row];
    return from === to || from === ABSENT || to === ABSENT ? [] : [{ row, from, to, p: null }];
  });
}

/** The clusters of an object over time, as runs of equal ones. @param {Run} run @param {number} row @returns {Stay[]} */
export function staysOf(run, row) {
  /** @type {Stay[]} */
  const stays = [];
  run.labels.forEach((labels, t) => {
    const last = stays.at(-1);
    if (last && last.name === labels[row]) last.last = t;
    else stays.push({ first: t, last: t, name: labels[row] });
  });
  return stays;
}

/** How often an object changed its cluster while it was there. @param {Stay[]} stays */
export function changesOf(stays) {
  const names = stays.map(({ name }) => name).filter((name) => name !== ABSENT);
  return names.filter((name, i) => i > 0 && name !== names[i - 1]).length;
}

/** Rows whose id contains a text: equal ids first, then those that start with it. @param {Run} run @param {string} text */
export function search(run, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const rank = run.ids.flatMap((id, row) => {
    const at = id.toLowerCase().indexOf(wanted);
    return at < 0 ? [] : [{ row, rank: id.length === wanted.length ? 0 : at === 0 ? 1 : 2 }];
  });
  return rank.sort((a, b) => a.rank - b.rank).map(({ row }) => row);
}

/** What is known of a cluster at a step. @param {Run} run @param {number} t @param {number} name */
export function factsOf(run, t, name) {
  const place = run.sizes[t].findIndex(([other]) => other === name);
  const before = t > 0 ? run.sizeOf[t - 1].get(name) ?? null : null;
  return {
    size: run.sizeOf[t].get(name) ?? 0,
    before,
    kept: place < 0 ? null : run.keptByCluster[t][place],
    density: run.densities?.[t][place] ?? null,
    features: (run.profiles?.[t][place] ?? []).map(([feature, mean, std, meanOfAll, stdOfAll]) => ({
      name: run.features?.[feature] ?? "", mean, std, meanOfAll, stdOfAll,
      difference: stdOfAll > 0 ? (mean - meanOfAll) / stdOfAll : 0,
      spread: stdOfAll > 0 ? std / stdOfAll : 0,
    })),
  };
}

/** What proximities inside and outside of clusters are called. @param {Run} run */
export function proximityName(run) {
  if (run.measure !== "modularity") return "mean proximity";
  const weighted = (run.densities ?? []).some((step) => step.some((density) => density !== null && density[0] > 1));
  return weighted ? "mean weight" : "density";
}

/** One line of a table of values separated by commas. @param {unknown[]} values */
export const csvLine = (values) => `${values.map((value) => {
  const text = String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}).join(",")}\r\n`;

/** @param {Run} run */
export function labelsCsv(run) {
  const lines = [csvLine(["time", "id", "cluster"])];
  run.labels.forEach((labels, t) => labels.forEach((name, row) => {
    if (name !== ABSENT) lines.push(csvLine([run.times[t], run.ids[row], name]));
  }));
  return lines.join("");
}

/** @param {Run} run */
export function alphaCsv(run) {
  const lines = run.times.map((time, t) => (
    csvLine([t + 1, time, run.n[t], run.k[t], run.alpha[t], run.kept[t], ...(run.cohesion ? [run.cohesion[t]] : [])])
  ));
  return csvLine(["step", "time", "n", "k", "alpha", "kept", ...(run.cohesion ? [run.measure] : [])]) + lines.join("");
}

/** @param {Run} run */
export function eventsCsv(run) {
  const head = ["time", "event", "before", "after", "n_common", "size_before", "size_after", "text"];
  const lines = run.events.flatMap((events, t) => events.map(({ kind, before, after, counts, text }) => (
    csvLine([run.times[t], kind, before.join(" "), after.join(" "), ...counts, text])
  )));
  return csvLine(head) + lines.join("");
}
