// @ts-check
// Search for an object and follow it through time.
import { button, byId, html, showSome, svg, withTip } from "./elements.mjs";
import { ABSENT, changesOf, colourOf, nameOf, search, staysOf } from "./run.mjs";

/** @typedef {import("./address.mjs").App} App */

/** @param {App} app */
export function makeSearch(app) {
  const input = /** @type {HTMLInputElement} */ (byId("search")), results = byId("results");
  const show = () => {
    const rows = search(app.run, input.value);
    showSome(results, rows, 12, (row) => html("li", {}, button(() => follow(row), {}, html("span", { class: "id" }, app.run.ids[row]))));
    if (input.value.trim() && !rows.length) results.replaceChildren(html("li", { class: "hint" }, notFound(app)));
  };
  const follow = (/** @type {number} */ row) => {
    input.value = "";
    results.replaceChildren();
    app.choose({ row });
  };
  input.addEventListener("input", show);
  input.addEventListener("keydown", (event) => {
    const [first] = search(app.run, input.value);
    if (event.key === "Enter" && first !== undefined) follow(first);
  });
}

/** @param {App} app */
const notFound = ({ run }) => (run.ids.length < run.nObjects ? "None of the listed objects has such an id." : "No object has such an id.");

/** @param {App} app */
export function drawFollowed(app) {
  const { run, at: { row } } = app, place = byId("followed");
  place.hidden = row === null;
  if (row === null) return;
  const stays = staysOf(run, row), n = changesOf(stays);
  const head = html(
    "h3", {}, html("span", { class: "id" }, run.ids[row]),
    button(() => app.choose({ row: null }), { id: "unfollow", "aria-label": "stop following" }, "×"),
  );
  const strip = svg("svg", { viewBox: `0 0 ${run.T} 10`, preserveAspectRatio: "none", role: "img", class: "strip" });
  for (const { first, last, name } of stays) {
    if (name === ABSENT) continue;
    const piece = svg("rect", { x: first, y: 0, width: last - first + 1, height: 10, fill: colourOf(run, name) });
    piece.addEventListener("click", () => app.choose({ t: first, cluster: name < 0 ? null : name }));
    strip.append(withTip(piece, `${period(app, first, last)}\n${nameOf(name)}`));
  }
  strip.append(svg("rect", { class: "here", x: app.at.t, y: 0, width: 1, height: 10 }));
  const list = showSome(html("ul", { class: "ids stays" }), stays.map((_, i) => i), 60, (i) => {
    const { first, last, name } = stays[i];
    const go = button(() => app.choose({ t: first, cluster: name < 0 ? null : name }), {}, `${nameOf(name)}: ${period(app, first, last)}`);
    if (name >= 0) go.style.borderLeftColor = colourOf(run, name);
    return html("li", first <= app.at.t && app.at.t <= last ? { class: "new" } : {}, go);
  });
  const changes = n === 0 ? "It never changed its cluster." : `It changed its cluster ${n === 1 ? "once" : `${n} times`}.`;
  place.replaceChildren(head, strip, html("p", { class: "hint" }, changes), list);
}

/** @param {App} app @param {number} first @param {number} last */
const period = ({ run }, first, last) => (first === last ? run.when[first] : `${run.when[first]} – ${run.when[last]}`);
