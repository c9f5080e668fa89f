// @ts-check
// Reads the data, draws the page, and keeps it and its address in step with what is selected.
import { formatAddress, parseAddress } from "./address.mjs";
import { drawAlpha, drawQuality, drawSizes, markStep } from "./charts.mjs";
import { byId, clicked, followPointer, html } from "./elements.mjs";
import { makeDownloads, makeEvents } from "./events.mjs";
import { makeFlow } from "./flow.mjs";
import { makeMembers, markMembers } from "./members.mjs";
import { drawFollowed, makeSearch } from "./objects.mjs";
import { makeRun } from "./run.mjs";
import { drawStep } from "./step.mjs";

/** @typedef {import("./address.mjs").App} App */

const run = makeRun(JSON.parse(byId("data").textContent ?? ""));

function start() {
  const slider = /** @type {HTMLInputElement} */ (byId("step"));
  const main = /** @type {HTMLElement} */ (document.querySelector("main"));
  /** @type {App} */
  const app = { run, at: parseAddress(location.hash, run), choose };
  const flow = makeFlow(app);
  let waiting = 0;

  /** @type {App["choose"]} */
  function choose(change, { replace = false } = {}) {
    const next = { ...app.at, ...change };
    next.t = Math.min(run.T - 1, Math.max(0, next.t));
    const address = formatAddress(next, run);
    if (address === formatAddress(app.at, run)) return;
    clearTimeout(waiting);
    if (replace) waiting = setTimeout(() => history.replaceState(null, "", address), 200); // browsers limit how often
    else history.pushState(null, "", address);
    show(next);
  }
  /** @param {import("./address.mjs").Selection} next */
  function show(next) {
    const { cluster } = app.at;
    app.at = next;
    if (cluster !== next.cluster) {
      drawQuality(app);
      drawSizes(app);
    }
    drawSelected();
  }
  function drawSelected() {
    const { t } = app.at, key = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.key;
    slider.value = String(t);
    slider.setAttribute("aria-valuetext", run.when[t]);
    byId("chosen").textContent = run.when[t];
    /** @type {HTMLButtonElement} */ (byId("previous")).disabled = t === 0;
    /** @type {HTMLButtonElement} */ (byId("next")).disabled = t === run.T - 1;
    flow.update();
    markStep(t);
    drawStep(app);
    drawFollowed(app);
    markMembers(app);
    // What has the focus may have been drawn again.
    if (key) /** @type {HTMLElement | null} */ (document.querySelector(`[data-key="${key}"]`))?.focus({ preventScroll: true });
  }
  function drawCharts() {
    if (main.clientWidth < 100) return; // not laid out yet
    drawAlpha(app);
    drawQuality(app);
    drawSizes(app);
    flow.resize();
  }

  slider.max = String(run.T - 1);
  slider.addEventListener("input", () => choose({ t: Number(slider.value) }, { replace: true }));
  clicked(byId("previous"), () => choose({ t: app.at.t - 1 }));
  clicked(byId("next"), () => choose({ t: app.at.t + 1 }));
  addEventListener("popstate", () => {
    clearTimeout(waiting);
    show(parseAddress(location.hash, run));
  });
  followPointer();
  drawSummary();
  makeMembers(app);
  makeEvents(app);
  makeDownloads(app);
  makeSearch(app);
  drawCharts();
  drawSelected();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => flow.update());
  let width = main.clientWidth;
  new ResizeObserver(() => {
    if (main.clientWidth !== width) drawCharts();
    width = main.clientWidth;
  }).observe(main);
}

function drawSummary() {
  const alphas = run.alpha.filter((alpha) => alpha !== null);
  const mean = alphas.length ? (alphas.reduce((sum, alpha) => sum + alpha, 0) / alphas.length).toFixed(3) : "–";
  /** @type {[string, string | number][]} */
  const facts = [
    [run.T === 1 ? "step" : "steps", run.T.toLocaleString("en")], [run.nObjects === 1 ? "object" : "objects", run.nObjects.toLocaleString("en")],
    [run.k[run.T - 1] === 1 ? "cluster at the end" : "clusters at the end", run.k[run.T - 1]],
    ["mean α", mean], [run.changes.length === 1 ? "change point" : "change points", run.changes.length || (run.changesNote ? "–" : 0)],
  ];
  byId("summary").replaceChildren(...facts.map(([name, value]) => (
    html("li", {}, html("b", {}, String(value)), html("span", {}, name))
  )));
  byId("changes-note").textContent = run.changesNote;
  byId("notes").replaceChildren(...run.notes.map((note) => html("p", { class: "note" }, note)));
}

if (run.T === 0) document.querySelector("main")?.replaceChildren(html("p", {}, "This run has no steps."));
else start();
