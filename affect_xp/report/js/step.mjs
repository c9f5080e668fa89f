// @ts-check
// The selected step: what happened, who moved, and its clusters.
import { button, byId, count, html, percent, showSome, svg, withTip } from "./elements.mjs";
import { inShort } from "./layout.mjs";
import { colourOf, factsOf, leftAt, membersAt, MIN_PROBABILITY, movesAt, nameOf, NO_CLUSTER, proximityName } from "./run.mjs";

/** @typedef {import("./address.mjs").App} App */
/** @typedef {ReturnType<typeof factsOf>} Facts */

const MOVES_AT_ONCE = 24;
const cardsAtOnce = () => (innerWidth < 560 ? 12 : 24);

/** @param {App} app */
export function drawStep(app) {
  const { run, at: { t } } = app;
  byId("detail-title").textContent = `Step ${t + 1} of ${run.T}: ${run.when[t]}`;
  const facts = [`${count(run.n[t])} in ${count(run.k[t], "cluster")}`];
  if (run.alpha[t] !== null) facts.push(`α = ${run.alpha[t]?.toFixed(3)}`);
  if (run.kept[t] !== null) facts.push(`${percent(run.kept[t])} of the members kept`);
  if (run.cohesion) facts.push(`${run.measure} ${inShort(run.cohesion[t])}`);
  byId("step-events").replaceChildren(
    html("li", {}, facts.join(", ")),
    ...run.events[t].map((event) => html("li", {}, html("span", { class: "kind" }, event.kind), " ", event.text)),
  );
  drawMoves(app);
  const members = membersAt(run, t);
  const names = run.sizes[t].map(([name]) => name);
  if (members.has(NO_CLUSTER)) names.push(NO_CLUSTER);
  const chosen = names.filter((name) => name === app.at.cluster), others = names.filter((name) => name !== app.at.cluster);
  showSome(byId("clusters"), [...chosen, ...others], cardsAtOnce(), (name) => card(app, name, members.get(name) ?? []));
  const gone = app.at.cluster !== null && !chosen.length;
  byId("no-cluster").textContent = gone ? `Cluster ${app.at.cluster} has no objects at this step.` : "";
}

/** @param {App} app */
function drawMoves(app) {
  const { run, at: { t } } = app, moves = movesAt(run, t), byRow = new Map(moves.map((move) => [move.row, move]));
  const known = run.moved[t] !== null, changed = moves.filter(({ from, to }) => from !== to).length;
  const probable = moves.filter(({ p }) => p !== null && p >= MIN_PROBABILITY).length;
  const listed = run.ids.length < run.nObjects ? " of those listed" : "", counted = `${changed ? count(changed) : "No object"}${listed}`;
  byId("moved-title").textContent = t === 0 ? "" : known ? `${counted} changed clusters, ${probable} probably moved` : `${counted} moved`;
  byId("moved-hint").textContent = known && moves.length ? "Numbers are probabilities of a move." : "";
  showSome(byId("moves"), moves.map(({ row }) => row), MOVES_AT_ONCE, (row) => {
    const { from, to, p } = /** @type {import("./run.mjs").Move} */ (byRow.get(row));
    const probability = p === null ? "" : ` ${p.toFixed(2)}`;
    const way = from === to ? [swatch(app, to)] : [swatch(app, from), "→", swatch(app, to)];
    const route = html("span", { class: "route" }, ...way, probability);
    const text = `${run.ids[row]}\n${from === to ? "" : `${nameOf(from)} → `}${nameOf(to)}${p === null ? "" : `\nprobability of a move ${p.toFixed(2)}`}`;
    return html("li", p !== null && p < MIN_PROBABILITY ? { class: "unsure" } : {}, memberButton(app, row, text, route));
  });
}

/** @param {App} app @param {number} name */
function swatch(app, name) {
  const node = html("i", { class: "swatch" }, name < 0 ? "–" : String(name));
  if (name >= 0) node.style.borderBottomColor = colourOf(app.run, name);
  return node;
}

/** An id that can be followed. @param {App} app @param {number} row @param {string} text @param {...Node} more */
function memberButton(app, row, text, ...more) {
  const isFollowed = app.at.row === row;
  const node = button(() => app.choose({ row: isFollowed ? null : row }), { "aria-pressed": isFollowed, "data-key": `row ${row}` }, html("span", { class: "id" }, app.run.ids[row]), ...more);
  return withTip(node, text);
}

/** @param {App} app @param {number} name @param {number[]} rows */
function card(app, name, rows) {
  const { run, at: { t, cluster } } = app, isChosen = cluster === name, facts = factsOf(run, t, name);
  const change = facts.before === null || facts.before === facts.size ? "" : ` (${facts.size > facts.before ? "+" : "−"}${Math.abs(facts.size - facts.before)})`;
  const title = name < 0 ? html("span", {}, "In no cluster") : button(
    () => app.choose({ cluster: isChosen ? null : name }), { "aria-pressed": isChosen, "data-key": `cluster ${name}` }, `Cluster ${name}`,
  );
  const head = html("h3", {}, title, html("span", { class: "size" }, name < 0 ? "" : count(facts.size) + change));
  const list = html("ul", { class: "ids" });
  const few = isChosen ? 200 : Math.max(6, Math.min(innerWidth < 560 ? 18 : 40, Math.floor(400 / run.sizes[t].length))); // many cards stay short
  showSome(list, rows, few, (row) => memberItem(app, row, name));
  const body = rows.length ? list : html("p", { class: "hint" }, "None of its objects is among those listed.");
  const node = html("li", { class: isChosen ? "card wide" : "card" }, head, summary(app, facts));
  if (isChosen) node.append(...details(app, name, facts));
  node.append(body);
  if (name >= 0) node.style.borderLeftColor = colourOf(run, name);
  return node;
}

/** One line about a cluster. @param {App} app @param {Facts} facts */
function summary({ run }, { kept, density, features }) {
  const parts = [];
  if (kept !== null) parts.push(`${percent(kept)} kept`);
  if (density) parts.push(`${proximityName(run)} ${inShort(density[0])} inside, ${inShort(density[1])} outside`);
  const distinct = features.filter(({ difference }) => Math.abs(difference) >= 0.05);
  for (const { name, difference } of distinct.slice(0, 2)) parts.push(`${name} ${signed(difference)}\u00a0sd`);
  return html("p", { class: "hint" }, parts.join(" · "));
}

/** @param {number} value */
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)}`;

/** @param {App} app @param {number} name @param {Facts} facts @returns {Node[]} */
function details(app, name, { density, features }) {
  const { run, at: { t } } = app, parts = [];
  if (density?.[2].length) {
    const central = html("ul", { class: "ids" }, ...density[2].map((row) => memberItem(app, row, name)));
    parts.push(html("h4", {}, "Most central members"), central);
  }
  if (features.length) {
    parts.push(
      html("h4", {}, "Features that differ most from all objects"),
      html("p", { class: "hint" }, "Mean and standard deviation of the members, in standard deviations of all objects from their mean."),
      html("div", { class: "profile" }, ...features.flatMap(featureRow)),
    );
  }
  const left = leftAt(run, t, name);
  if (left.length) {
    const list = showSome(html("ul", { class: "ids" }), left, 40, (row) => {
      const to = run.labels[t][row], text = `${run.ids[row]}\nnow ${nameOf(to)}`;
      return html("li", {}, memberButton(app, row, text, html("span", { class: "route" }, to === -2 ? "absent" : "→", ...(to === -2 ? [] : [swatch(app, to)]))));
    });
    parts.push(html("h4", {}, `Left since the previous step (${left.length.toLocaleString("en")})`), list);
  }
  parts.push(html("h4", {}, "Members"));
  return parts;
}

/** @param {Facts["features"][number]} feature */
function featureRow({ name, mean, std, meanOfAll, stdOfAll, difference, spread }) {
  const most = 3.5, x = (/** @type {number} */ value) => 100 + (100 * Math.max(-most, Math.min(most, value))) / most;
  const picture = svg(
    "svg", { viewBox: "0 0 200 16", preserveAspectRatio: "none", role: "img" },
    svg("line", { class: "grid", x1: 100, x2: 100, y1: 0, y2: 16 }),
    svg("rect", { class: "mean", x: Math.min(100, x(difference)), y: 4, width: Math.abs(x(difference) - 100), height: 8 }),
    svg("line", { class: "spread", x1: x(difference - spread), x2: x(difference + spread), y1: 8, y2: 8 }),
  );
  const numbers = `${inShort(mean)} ± ${inShort(std)}`, all = `${inShort(meanOfAll)} ± ${inShort(stdOfAll)}`;
  const row = [html("span", { class: "id" }, name), picture, html("span", { class: "numbers" }, numbers, html("small", {}, ` all ${all}`))];
  return row.map((node) => withTip(/** @type {Element} */ (node), `${name}\nmembers ${numbers}\nall ${all}\ndifference ${signed(difference)} standard deviations`));
}

/** @param {App} app @param {number} row @param {number} name */
function memberItem(app, row, name) {
  const { run, at: { t } } = app, before = t > 0 ? run.labels[t - 1][row] : name;
  const came = before === name ? "" : before < 0 ? `was ${nameOf(before)}` : `came from cluster ${before}`;
  const text = came ? `${run.ids[row]}\n${came}` : run.ids[row];
  return html("li", came ? { class: "new" } : {}, memberButton(app, row, text));
}
