// @ts-check
// The table of events, and tables to download.
import { button, byId, clicked, download, html } from "./elements.mjs";
import { alphaCsv, eventsCsv, labelsCsv } from "./run.mjs";

/** @typedef {import("./address.mjs").App} App */

const EVENTS_AT_ONCE = 200;

/** @param {App} app */
export function makeEvents(app) {
  const { run } = app;
  const all = run.events.flatMap((events, t) => events.map((event) => ({ t, ...event })));
  const kinds = [...new Set(all.map((event) => event.kind))];
  const hidden = new Set();
  let shown = EVENTS_AT_ONCE;
  const draw = () => {
    const listed = all.filter((event) => !hidden.has(event.kind));
    byId("events").replaceChildren(...listed.slice(0, shown).map(({ t, kind, text, before, after }) => {
      const cluster = after[0] ?? before[0] ?? null;
      const go = button(() => app.choose({ t, cluster }), {}, run.when[t]);
      return html("tr", {}, html("td", {}, go), html("td", {}, kind), html("td", {}, text));
    }));
    byId("more").hidden = listed.length <= shown;
  };
  byId("kinds").replaceChildren(...kinds.map((kind) => {
    const n = all.filter((event) => event.kind === kind).length;
    const node = button(() => {
      if (!hidden.delete(kind)) hidden.add(kind);
      node.setAttribute("aria-pressed", String(!hidden.has(kind)));
      draw();
    }, { "aria-pressed": true }, `${kind} ${n}`);
    return node;
  }));
  clicked(byId("more"), () => { shown += EVENTS_AT_ONCE; draw(); });
  byId("no-events").hidden = kinds.length > 0;
  byId("events-table").hidden = kinds.length === 0;
  draw();
}

/** @param {App} app */
export function makeDownloads({ run }) {
  const part = run.ids.length < run.nObjects ? ` of ${run.ids.length.toLocaleString("en")} objects` : "";
  byId("downloads").replaceChildren(
    button(() => download("labels.csv", labelsCsv(run)), {}, `labels${part}`),
    button(() => download("alpha.csv", alphaCsv(run)), {}, "α and stability"),
    button(() => download("events.csv", eventsCsv(run)), {}, "events"),
  );
}
