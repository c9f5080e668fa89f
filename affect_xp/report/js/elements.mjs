// @ts-check
// Elements and tooltips. Ids and times are untrusted data: they are only used as text.

/** @param {string} name @returns {HTMLElement} */
export const byId = (name) => /** @type {HTMLElement} */ (document.getElementById(name));

/** @param {number} n */
export const count = (n, word = "object") => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

/** @param {number | null} share */
export const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)} %`);

/** @typedef {Record<string, string | number | boolean>} Attributes */

/** @template {Element} E @param {E} node @param {Attributes} attributes @param {(Node | string)[]} children @returns {E} */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** @param {string} tag @param {Attributes} attributes @param {...(Node | string)} children @returns {HTMLElement} */
export const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** @param {string} tag @param {Attributes} attributes @param {...(Node | string)} children @returns {SVGElement} */
export const svg = (tag, attributes = {}, ...children) => (
  /** @type {SVGElement} */ (fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children))
);

/** @param {(event: Event) => void} action @param {Attributes} attributes @param {...(Node | string)} children */
export const button = (action, attributes = {}, ...children) => (
  clicked(html("button", { type: "button", ...attributes }, ...children), action)
);

/** @template {Element} E @param {E} node @param {(event: any) => void} action @returns {E} */
export function clicked(node, action) {
  node.addEventListener("click", action);
  return node;
}

/** A list of some of many items, with a button for more. @param {HTMLElement} list @param {number[]} rows @param {number} few @param {(row: number) => Node} item */
export function showSome(list, rows, few, item) {
  const show = (/** @type {number} */ n) => {
    const focused = list.contains(document.activeElement);
    list.replaceChildren(...rows.slice(0, n).map(item));
    if (n >= rows.length) return;
    const more = button(() => show(n + 500), {}, `and ${(rows.length - n).toLocaleString("en")} more`);
    list.append(html("li", { class: "more" }, more));
    if (focused) more.focus();
  };
  show(few);
  return list;
}

/** @type {WeakMap<Node, string | ((event: PointerEvent) => string)>} */
const tips = new WeakMap();

/** @template {Element} E @param {E} node @param {string | ((event: PointerEvent) => string)} text @returns {E} */
export function withTip(node, text) {
  tips.set(node, text);
  return node;
}

/** @param {PointerEvent} event */
function showTip(event) {
  const tip = byId("tip");
  let node = /** @type {Node | null} */ (event.target);
  while (node && !tips.has(node)) node = node.parentNode;
  const found = node ? tips.get(node) ?? "" : "";
  const text = typeof found === "function" ? found(event) : found;
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - width - 6);
  const above = event.clientY + 18 + height > innerHeight;
  tip.style.left = `${Math.max(6, left)}px`;
  tip.style.top = `${above ? event.clientY - height - 12 : event.clientY + 18}px`;
}

export function followPointer() {
  document.addEventListener("pointermove", showTip);
  document.addEventListener("pointerdown", showTip);
  document.addEventListener("scroll", () => { byId("tip").hidden = true; }, { passive: true });
}

/** Black or white, whichever is readable on a colour. @param {string} colour */
export function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return 0.3 * r + 0.59 * g + 0.11 * b > 115 ? "#000" : "#fff";
}

/** @param {string} name @param {string} text */
export function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  html("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
