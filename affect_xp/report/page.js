"use strict";
// Draws the report from the embedded JSON. Ids and times are untrusted data: they are only used as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const T = data.times.length;
  const byId = (name) => document.getElementById(name);
  const colour = (name) => data.palette[data.colours[name]];
  const count = (n, word = "object") => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
  const EVENTS_AT_ONCE = 200, LINES_AT_ONCE = 40;
  const greatest = (values) => values.reduce((a, b) => Math.max(a, b), 0); // Math.max limits the number of arguments
  let chosen = 0;

  // ---- elements --------------------------------------------------------------------------------------
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  function withTip(node, text) {
    node.tip = text; // a string, or a function of the pointer event
    return node;
  }
  function clicked(node, action) {
    node.addEventListener("click", action);
    return node;
  }

  // ---- tooltip ---------------------------------------------------------------------------------------
  const tip = byId("tip");
  function showTip(event) {
    let node = event.target;
    while (node && node.tip === undefined) node = node.parentNode;
    const text = node ? (typeof node.tip === "function" ? node.tip(event) : node.tip) : "";
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - width - 6);
    const above = event.clientY + 18 + height > innerHeight;
    tip.style.left = `${Math.max(6, left)}px`;
    tip.style.top = `${above ? event.clientY - height - 12 : event.clientY + 18}px`;
  }
  document.addEventListener("pointermove", showTip);
  document.addEventListener("pointerdown", showTip);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // ---- axes ------------------------------------------------------------------------------------------
  /** Times below a chart of this width, as many as fit beside each other. */
  function timeAxis(x, from, to, y, width) {
    const short = (t) => (data.times[t].length > 16 ? `${data.times[t].slice(0, 15)}…` : data.times[t]);
    const wide = (t) => short(t).length * 6.5;
    const longest = greatest(data.times.slice(from, to).map((_, i) => wide(from + i)));
    const every = Math.max(1, Math.ceil(((to - from) * (longest + 14)) / width));
    const group = svg("g");
    let end = -Infinity;
    for (let t = from; t < to; t += every) {
      const middle = Math.min(width - wide(t) / 2, Math.max(wide(t) / 2, x(t)));
      if (middle - wide(t) / 2 < end + 6) continue; // those at the edges are moved inwards
      end = middle + wide(t) / 2;
      group.append(svg("text", { x: middle, y, "text-anchor": "middle" }, short(t)));
    }
    return group;
  }
  function niceTop(value) {
    const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
    return [1, 2, 3, 4, 6, 8, 10].map((m) => m * power).find((m) => m >= value);
  }

  /** A chart over all steps; its lines are {values, colour or null, name}. */
  function lineChart(place, lines, { top, height, marks = [], describe }) {
    const width = place.clientWidth, left = 44, right = 26, ceiling = 12, floor = height - 24;
    const x = (t) => (T === 1 ? (left + width - right) / 2 : left + (t / (T - 1)) * (width - left - right));
    const y = (value) => floor - (value / top) * (floor - ceiling);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
    const half = Math.max(3, T > 1 ? (x(1) - x(0)) / 2 : 12);
    const band = svg("rect", { class: "chosen", y: ceiling, width: 2 * half, height: floor - ceiling });
    place.showChosen = () => band.setAttribute("x", x(chosen) - half);
    place.showChosen();
    picture.append(band);
    for (const share of [0, 0.5, 1]) {
      const label = top === 1 ? String(share) : (share * top).toLocaleString("en");
      picture.append(
        svg("line", { class: "grid", x1: left, x2: width - right, y1: y(share * top), y2: y(share * top) }),
        svg("text", { x: left - 6, y: y(share * top) + 4, "text-anchor": "end" }, label),
      );
    }
    for (const t of marks) {
      picture.append(
        svg("line", { class: "change", x1: x(t), x2: x(t), y1: ceiling, y2: floor }),
        svg("path", { class: "triangle", d: `M${x(t) - 5},${ceiling - 9}h10l-5,9z` }),
      );
    }
    for (const line of lines) picture.append(...drawnLine(line, x, y));
    picture.append(...endNames(lines, width - right + 5, y), timeAxis(x, 0, T, height - 6, width));
    const at = (event) => {
      const across = event.clientX - picture.getBoundingClientRect().left;
      const t = Math.round(((across - left) / Math.max(1, width - left - right)) * (T - 1));
      return Math.min(T - 1, Math.max(0, t));
    };
    const hit = svg("rect", { class: "hit", x: left - 8, y: 0, width: width - left - right + 16, height });
    picture.append(clicked(withTip(hit, (event) => describe(at(event))), (event) => choose(at(event))));
    place.replaceChildren(picture);
  }
  function drawnLine({ values, colour: stroke }, x, y) {
    let path = "";
    const dots = [];
    const paint = stroke ? { stroke, fill: "none", "stroke-width": 2 } : { class: "alpha" };
    values.forEach((value, t) => {
      if (value === null) return;
      const alone = (values[t - 1] ?? null) === null && (values[t + 1] ?? null) === null;
      path += `${(values[t - 1] ?? null) === null ? "M" : "L"}${x(t).toFixed(1)},${y(value).toFixed(1)}`;
      if (alone || T <= 60) dots.push(svg("circle", { ...paint, cx: x(t), cy: y(value), r: 1.5 }));
    });
    return [svg("path", { ...paint, d: path, "stroke-linejoin": "round" }), ...dots];
  }
  /** The names of the lines that reach the last step, apart from each other; none if there are too many. */
  function endNames(lines, x, y) {
    const ends = lines.filter((line) => line.name && line.values[T - 1] !== null);
    ends.sort((a, b) => a.values[T - 1] - b.values[T - 1]);
    if (ends.length > 14) return [];
    let low = Infinity;
    return ends.map((line) => {
      low = Math.min(y(line.values[T - 1]) + 4, low - 11);
      return svg("text", { x, y: low }, line.name);
    });
  }

  function drawAlpha() {
    const line = { values: data.alpha };
    const describe = (t) => {
      const alpha = data.alpha[t] === null ? "no past yet" : `α = ${data.alpha[t].toFixed(3)}`;
      return `${data.times[t]}\n${alpha}${data.changes.includes(t) ? "\nchange point" : ""}`;
    };
    lineChart(byId("alpha"), [line], { top: 1, height: 190, marks: data.changes, describe });
  }

  const sizeOf = data.sizes.map((sizes) => new Map(sizes));
  const peak = new Map(); // the largest size of each cluster
  for (const [name, size] of data.sizes.flat()) peak.set(name, Math.max(size, peak.get(name) ?? 0));
  function drawSizes() {
    const names = [...peak.keys()].sort((a, b) => peak.get(b) - peak.get(a)).slice(0, LINES_AT_ONCE);
    const lines = names.map((name) => (
      { name: String(name), colour: colour(name), values: sizeOf.map((sizes) => sizes.get(name) ?? null) }
    ));
    byId("lines").textContent = peak.size > names.length ? `The ${names.length} largest of ${count(peak.size, "cluster")}.` : "";
    const largest = Math.max(1, ...names.map((name) => peak.get(name)));
    const describe = (t) => {
      const sorted = [...data.sizes[t]].sort((a, b) => b[1] - a[1]);
      const listed = sorted.slice(0, 12).map(([name, size]) => `cluster ${name}: ${count(size)}`);
      const rest = sorted.length > 12 ? [`and ${count(sorted.length - 12, "more cluster")}`] : [];
      return [data.times[t], ...listed, ...rest].join("\n");
    };
    lineChart(byId("sizes"), lines, { top: niceTop(largest), height: 220, describe });
  }

  // ---- flow ------------------------------------------------------------------------------------------
  const MARKS = {
    split: "M4,-5v10l-8,-5z", merge: "M-4,-5v10l8,-5z", birth: "M-1.5,-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    return: "M0,-5l5,5l-5,5l-5,-5z", death: "M-5,-3l2,-2l3,3l3,-3l2,2l-3,3l3,3l-2,2l-3,-3l-3,3l-2,-2l3,-3z",
  };
  const LEAVING = ["split", "death"];
  const BAR = 16;

  function drawFlow() {
    const place = byId("flow"), width = place.clientWidth;
    const most = greatest(sizeOf.map((sizes) => sizes.size));
    const height = Math.min(800, Math.max(width < 560 ? 300 : 360, 14 * most));
    const shown = Math.min(T, Math.max(4, Math.floor(width / (width < 560 ? 52 : 64))));
    const from = Math.min(T - shown, Math.max(0, chosen - Math.floor(shown / 2))), to = from + shown;
    byId("window").textContent = shown < T ? `Steps ${from + 1} to ${to} of ${T}, around the selected one.` : "";
    const inset = 14, apart = shown > 1 ? (width - 2 * inset - BAR) / (shown - 1) : 0;
    const x = (t) => (shown > 1 ? inset + (t - from) * apart : width / 2 - BAR / 2); // left edge of a bar
    const stacks = stacked(from, to, height - 30);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
    const half = Math.max(BAR, Math.min(apart, 60)) / 2;
    picture.append(svg("rect", { class: "chosen", x: x(chosen) + BAR / 2 - half, y: 0, width: 2 * half, height: height - 22 }));
    for (let t = from + 1; t < to; t += 1) picture.append(...ribbons(t, stacks, x));
    for (let t = from; t < to; t += 1) picture.append(...bars(t, stacks[t], x(t)));
    for (let t = Math.max(1, from); t < to; t += 1) picture.append(...flowMarks(t, stacks, x));
    picture.append(timeAxis((t) => x(t) + BAR / 2, from, to, height - 6, width));
    place.replaceChildren(picture);
  }
  /** Where the clusters of each step stand: maps of name to {top, size, height}, and objects to pixels. */
  function stacked(from, to, height) {
    const stacks = { scale: 0 };
    const steps = data.sizes.slice(from, to);
    const gap = Math.min(8, height / 3 / Math.max(1, ...steps.map((sizes) => sizes.length)));
    stacks.scale = Math.min(...steps.map((sizes) => {
      const total = sizes.reduce((sum, [, size]) => sum + size, 0);
      return (height - gap * sizes.length) / Math.max(1, total);
    }));
    for (let t = from; t < to; t += 1) {
      let top = 4;
      stacks[t] = new Map();
      for (const [name, size] of data.sizes[t]) {
        stacks[t].set(name, { top, size, height: size * stacks.scale });
        top += size * stacks.scale + gap;
      }
    }
    return stacks;
  }
  function ribbons(t, stacks, x) {
    const leaves = new Map(), enters = new Map();
    const taken = (used, stack, name, wide) => {
      const top = used.get(name) ?? stack.get(name).top;
      used.set(name, top + wide);
      return top;
    };
    return data.links[t].map(([source, target, n]) => {
      const wide = n * stacks.scale, x0 = x(t - 1) + BAR, x1 = x(t), middle = (x0 + x1) / 2;
      const y0 = taken(leaves, stacks[t - 1], source, wide), y1 = taken(enters, stacks[t], target, wide);
      const d = `M${x0},${y0}C${middle},${y0} ${middle},${y1} ${x1},${y1}v${wide}`
        + `C${middle},${y1 + wide} ${middle},${y0 + wide} ${x0},${y0 + wide}z`;
      const where = source === target ? `stayed in cluster ${source}` : `cluster ${source} → cluster ${target}`;
      const text = `${data.times[t - 1]} → ${data.times[t]}\n${count(n)}: ${where}`;
      return withTip(svg("path", { class: "ribbon", d, fill: colour(source) }), text);
    });
  }
  function bars(t, stack, left) {
    const drawn = [];
    for (const [name, { top, size, height }] of stack) {
      const bar = svg("rect", { class: "bar", x: left, y: top, width: BAR, height: Math.max(1, height), fill: colour(name), rx: 2 });
      drawn.push(clicked(withTip(bar, `${data.times[t]}\ncluster ${name}: ${count(size)}`), () => choose(t)));
      if (height >= 12) drawn.push(barName(name, left + BAR / 2, top + height / 2 + 3.5));
    }
    return drawn;
  }
  function barName(name, x, y) {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour(name).slice(i, i + 2), 16));
    const text = svg("text", { class: "name", x, y, "text-anchor": "middle" }, String(name));
    text.style.fill = 0.3 * r + 0.59 * g + 0.11 * b > 115 ? "#000" : "#fff"; // readable on the bar
    return text;
  }
  function flowMarks(t, stacks, x) {
    const drawn = [];
    for (const event of data.events[t]) {
      if (!(event.kind in MARKS)) continue;
      const leaving = LEAVING.includes(event.kind), at = leaving ? t - 1 : t;
      if (!stacks[at]) continue;
      for (const name of leaving ? event.before : event.after) {
        const stack = stacks[at].get(name);
        if (!stack) continue;
        const place = `translate(${x(at) + (leaving ? BAR + 6 : -6)},${stack.top + stack.height / 2})`;
        drawn.push(withTip(svg("path", { class: "mark", d: MARKS[event.kind], transform: place }), `${data.times[t]}\n${event.text}`));
      }
    }
    return drawn;
  }
  function drawMarksLegend() {
    const seen = new Set(data.events.slice(1).flat().map((event) => event.kind));
    byId("marks").replaceChildren(...Object.keys(MARKS).filter((kind) => seen.has(kind)).map((kind) => (
      html("li", {}, svg("svg", { viewBox: "-6 -6 12 12" }, svg("path", { class: "mark", d: MARKS[kind] })), kind)
    )));
  }

  // ---- selected step ---------------------------------------------------------------------------------
  function drawStep() {
    const alpha = data.alpha[chosen] === null ? "" : `, α = ${data.alpha[chosen].toFixed(3)}`;
    byId("detail-title").textContent = `Step ${chosen + 1} of ${T}: ${data.times[chosen]}`;
    const first = html("li", {}, `${count(data.n[chosen])} in ${count(data.k[chosen], "cluster")}${alpha}`);
    const events = data.events[chosen].map((event) => (
      html("li", {}, html("span", { class: "kind" }, event.kind), " ", event.text)
    ));
    byId("step-events").replaceChildren(first, ...events);
    const members = new Map();
    data.labels[chosen].forEach((name, i) => {
      if (!members.has(name)) members.set(name, []);
      members.get(name).push(i);
    });
    const cards = data.sizes[chosen].map(([name, size]) => card(`Cluster ${name}`, name, size, members.get(name) ?? []));
    if (members.has(-1)) cards.push(card("In no cluster", -1, null, members.get(-1)));
    byId("clusters").replaceChildren(...cards);
  }
  function card(title, name, size, rows) {
    const before = chosen > 0 ? sizeOf[chosen - 1].get(name) : undefined;
    const change = size === null || before === undefined || before === size ? "" : ` (${size > before ? "+" : "−"}${Math.abs(size - before)})`;
    const list = html("ul", { class: "ids" });
    const few = Math.max(6, Math.min(40, Math.floor(400 / data.sizes[chosen].length))); // many cards stay short
    const show = (all) => {
      const some = all ? rows : rows.slice(0, few);
      list.replaceChildren(...some.map((i) => memberOf(i, name)));
      if (some.length === rows.length) return;
      const more = html("button", { type: "button" }, `and ${(rows.length - some.length).toLocaleString("en")} more`);
      list.append(html("li", { class: "more" }, clicked(more, () => show(true))));
    };
    show(false);
    const body = rows.length ? list : html("p", { class: "hint" }, "None of its objects is among those listed.");
    const head = html("h3", {}, title, html("span", {}, size === null ? "" : count(size) + change));
    const node = html("div", { class: "card" }, head, body);
    if (name >= 0) node.style.borderLeftColor = colour(name);
    return node;
  }
  function memberOf(i, name) {
    const before = chosen > 0 ? data.labels[chosen - 1][i] : name;
    const came = before === name ? "" : before === -2 ? "was absent" : before === -1 ? "was in no cluster" : `came from cluster ${before}`;
    const node = html("li", came ? { class: "new" } : {}, data.ids[i]);
    return withTip(node, came ? `${data.ids[i]}\n${came}` : data.ids[i]);
  }

  // ---- memberships -----------------------------------------------------------------------------------
  function drawMembers() {
    const place = byId("members"), canvas = place.querySelector("canvas"), rows = data.ids.length;
    canvas.width = Math.min(T, 4000); // browsers bound the size of a canvas
    canvas.height = Math.max(1, rows);
    canvas.style.height = `${Math.min(520, Math.max(120, rows * 4))}px`;
    const pixels = new ImageData(canvas.width, canvas.height);
    const step = (column) => Math.floor((column * T) / canvas.width);
    for (let column = 0; column < canvas.width; column += 1) {
      data.labels[step(column)].forEach((name, row) => {
        if (name === -2) return; // transparent
        const code = name === -1 ? "#808080" : colour(name), at = 4 * (row * canvas.width + column);
        for (let i = 0; i < 3; i += 1) pixels.data[at + i] = parseInt(code.slice(1 + 2 * i, 3 + 2 * i), 16);
        pixels.data[at + 3] = name === -1 ? 90 : 255;
      });
    }
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      const share = (value, n) => Math.min(n - 1, Math.max(0, Math.floor(value * n)));
      return [share((event.clientX - box.left) / box.width, T), share((event.clientY - box.top) / box.height, rows)];
    };
    clicked(withTip(canvas, (event) => {
      const [t, row] = at(event), name = data.labels[t][row];
      return `${data.ids[row]}\n${data.times[t]}\n${name === -2 ? "absent" : name === -1 ? "in no cluster" : `cluster ${name}`}`;
    }), (event) => choose(at(event)[0]));
  }
  function moveCursor() {
    const cursor = byId("members").querySelector(".cursor");
    cursor.style.left = `${(100 * chosen) / T}%`;
    cursor.style.width = `max(3px, ${100 / T}%)`;
  }

  // ---- table of events -------------------------------------------------------------------------------
  const everyEvent = data.events.flatMap((events, t) => events.map((event) => ({ t, ...event })));
  const kinds = [...new Set(everyEvent.map((event) => event.kind))];
  const hidden = new Set();
  let rowsShown = EVENTS_AT_ONCE;
  function drawEvents() {
    const listed = everyEvent.filter((event) => !hidden.has(event.kind));
    byId("events").replaceChildren(...listed.slice(0, rowsShown).map(({ t, kind, text }) => {
      const go = clicked(html("button", { type: "button" }, data.times[t]), () => choose(t));
      return html("tr", {}, html("td", {}, go), html("td", {}, kind), html("td", {}, text));
    }));
    byId("more").hidden = listed.length <= rowsShown;
  }
  function drawKinds() {
    byId("kinds").replaceChildren(...kinds.map((kind) => {
      const n = everyEvent.filter((event) => event.kind === kind).length;
      const button = html("button", { type: "button", "aria-pressed": !hidden.has(kind) }, `${kind} ${n}`);
      return clicked(button, () => {
        if (!hidden.delete(kind)) hidden.add(kind);
        button.setAttribute("aria-pressed", !hidden.has(kind));
        drawEvents();
      });
    }));
    if (kinds.length) return;
    byId("kinds").replaceChildren("There are no events.");
    document.querySelector("table").hidden = true;
  }

  // ---- main ------------------------------------------------------------------------------------------
  function drawSummary() {
    const alphas = data.alpha.slice(1);
    const mean = alphas.length ? (alphas.reduce((sum, alpha) => sum + alpha, 0) / alphas.length).toFixed(3) : "–";
    const facts = [
      ["steps", T], ["objects", data.nObjects.toLocaleString("en")], ["clusters at the end", data.k[T - 1]],
      ["mean α", mean], ["change points", data.changes.length || (data.changesNote ? "–" : 0)],
    ];
    byId("summary").replaceChildren(...facts.map(([name, value]) => (
      html("li", {}, html("b", {}, String(value)), html("span", {}, name))
    )));
    byId("changes-note").textContent = data.changesNote;
    byId("notes").replaceChildren(...data.notes.map((note) => html("p", { class: "note" }, note)));
  }
  function drawCharts() {
    drawAlpha();
    drawFlow();
    drawSizes();
  }
  function choose(t) {
    chosen = Math.min(T - 1, Math.max(0, t));
    byId("step").value = chosen;
    byId("step").setAttribute("aria-valuetext", data.times[chosen]);
    byId("chosen").textContent = data.times[chosen];
    byId("previous").disabled = chosen === 0;
    byId("next").disabled = chosen === T - 1;
    drawFlow();
    byId("alpha").showChosen();
    byId("sizes").showChosen();
    drawStep();
    moveCursor();
  }

  if (T === 0) {
    document.querySelector("main").replaceChildren(html("p", {}, "This run has no steps."));
    return;
  }
  byId("step").max = T - 1;
  byId("step").addEventListener("input", (event) => choose(Number(event.target.value)));
  clicked(byId("previous"), () => choose(chosen - 1));
  clicked(byId("next"), () => choose(chosen + 1));
  clicked(byId("more"), () => { rowsShown += EVENTS_AT_ONCE; drawEvents(); });
  drawSummary();
  drawMarksLegend();
  drawMembers();
  drawKinds();
  drawEvents();
  chosen = T - 1;
  drawCharts();
  choose(chosen);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) drawCharts(); // phones also fire it when their toolbars show or hide
    width = innerWidth;
  });
})();
