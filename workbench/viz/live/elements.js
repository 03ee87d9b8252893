// @ts-check
// Elements of the page, and short texts. User names only ever become text.

const SVG = "http://www.w3.org/2000/svg";

/** A short number. @param {number | string | null | undefined} v */
export function short(v, digits = 4) {
  if (v === null || v === undefined) return "";
  if (typeof v === "string") return { nan: "NaN", inf: "Inf", "-inf": "−Inf" }[v] ?? v;
  if (Number.isNaN(v)) return "NaN";
  if (!Number.isFinite(v)) return v > 0 ? "Inf" : "−Inf";
  const text = Number(v.toPrecision(digits));
  const size = Math.abs(text);
  const shown = size !== 0 && (size < 1e-4 || size >= 1e6) ? text.toExponential().replace("e+", "e") : String(text);
  return shown.replace(/^-/, "−");
}

/** An HTML element with attributes and listeners (or its class alone), and children. Text only ever becomes text.
 * @param {string} tag @param {Record<string, any> | string} [given] @param {...(Node | string)} children */
export function h(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  if (tag === "button") node.setAttribute("type", tag);
  for (const [key, value] of Object.entries(typeof given === "string" ? { class: given } : given)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false && value !== null) node.setAttribute(key, value === true ? "" : value);
  }
  if (node.matches("button,input,select,summary,a,[tabindex]")) node.dataset.lmSuppressShortcuts = "true";
  node.append(...children);
  return node;
}

/** The page, or the part of it that some hosts shut off around their outputs. @param {Node} node @returns {any} */
export const pageAround = (node) => node.getRootNode();

/** A button with a name to be read by. @param {string} text @param {string} label @param {() => void} act */
export function button(text, label, act) {
  return h("button", { title: label, "aria-label": label, onclick: act }, text);
}

/** @param {string} tag @param {Record<string, any>} given @param {string} [text] */
export function s(tag, given, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(given)) {
    node.setAttribute(key, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
  }
  if (text !== undefined) node.textContent = text;
  return node;
}

/** As much of a text as has room. @param {string} text @param {number} room @param {number} size */
export function fit(text, room, size) {
  const most = Math.floor(room / (size * 0.612));
  return text.length <= most ? text : most > 1 ? text.slice(0, most - 1) + "…" : "";
}

/** As much of the start of a text as has room, and its number (`#3`, `×200`) whole; around the letters [a, b) if they
 * are given. @param {string} text @param {number} room @param {number} size @param {number[]} [span] */
export function fitMiddle(text, room, size, [a, b] = [0, 0]) {
  const most = Math.floor(room / (size * 0.612)), [number = ""] = text.match(/ [#×]\S*$/) ?? [], { length } = number, n = text.length - length;
  if (text.length <= most) return text;
  for (let k = n; b && k >= 0; k--) {
    const head = Math.min(a, (k + 1) >> 1), tail = Math.max(n - (k >> 1), b), shown = `${text.slice(0, head)}${head < a ? "…" : ""}${text.slice(a, b)}${b < tail ? "…" : ""}${text.slice(tail)}`;
    if (shown.length <= most) return shown;
  }
  if (b) return fit(text.slice(a, b) + number, room, size);
  return most > length + 1 ? `${text.slice(0, most - 1 - length)}…${number}` : length - 1 <= most ? number.trim() : "";
}

/** A number within bounds. @param {number} x @param {number} least @param {number} most */
export const clamp = (x, least, most) => Math.min(Math.max(x, least), most);

/** `3 reads`. @param {number} n @param {string} one @param {string} [many] */
export const count = (n, one, many = one + "s") => `${n} ${n === 1 ? one : many}`;

/** Add a mark: what is drawn, as data. @param {any} v @param {string} tag @param {string} cls @param {any} given @param {string} [text] */
export function put(v, tag, cls, given, text = "") {
  const one = /** @type {any} */ ({ tag, cls, given, text });
  v.marks.push(one);
  return one;
}
