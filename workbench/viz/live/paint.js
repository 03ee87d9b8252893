// @ts-check
// Marks to elements, and the cursor over them.
import { tallOf } from "./compose.js";
import { stretchDock } from "./panel_height.js";
import { clamp, pageAround, s } from "./elements.js";
import { signAt } from "./heads.js";
import { veil } from "./strips.js";
import { X, colOf, seenAt, xOf } from "./window.js";
import { findingsIn } from "./words.js";

const BEHIND = 16; // pixels from the sign of an access to the cursor behind it

/** @param {any} v */
export function paint(v) {
  const tall = tallOf(v);
  v.plot.style.height = `${tall}px`;
  v.spacer.style.height = `${v.bottom + v.head + 12}px`;
  stretchDock(v, tall);
  v.picture.setAttribute("width", String(v.wide));
  v.picture.setAttribute("height", String(tall));
  v.picture.setAttribute("viewBox", `0 0 ${v.wide} ${tall}`);
  const active = pageAround(v.picture).activeElement, had = v.picture.contains(active) ? active?.getAttribute("data-key") : null;
  const body = s("g", { transform: `translate(0 ${v.head - v.plot.scrollTop})`, "clip-path": `url(#${v.uid}-body)` });
  const plotted = s("g", { "clip-path": `url(#${v.uid}-plot)` }), names = s("g", {}), top = s("g", {}), cells = s("g", {}), topCells = s("g", {});
  v.dated = [];
  v.veils = [];
  let inHead = false, tab = null, near = null;
  for (const mark of v.marks) {
    if (mark.cls === "headground") inHead = true;
    const node = elementFor(mark);
    if (mark.cls === "cell") {
      (mark.lane ? cells : topCells).append(node);
      const here = v.focus.e >= mark.col.a && v.focus.e < mark.col.b;
      if (here && (mark.lane ? mark.lane.k : -1) === v.focus.lane) tab = node;
      else if (here && !mark.lane) near = node;
      continue;
    }
    if (mark.strip) v.veils.push({ node, strip: mark.strip });
    if (mark.e !== undefined) v.dated.push({ node, e: mark.e });
    if (mark.cls.startsWith("guide")) plotted.prepend(node);
    else if (inHead) top.append(node);
    else if (/^(rule|chip|mono|note|faint|hot)/.test(mark.cls) && (Number(mark.given.x ?? 0) < v.left - 4)) names.append(node);
    else plotted.append(node);
  }
  (tab ?? near ?? topCells.firstElementChild)?.setAttribute("tabindex", "0");
  body.append(names, plotted, cells);
  v.picture.replaceChildren(definitions(v, tall), body, top, v.cursorLine, v.cursorBox, v.cursorText, topCells);
  if (had) (v.picture.querySelector(`[data-key="${CSS.escape(had)}"]`) ?? v.picture.querySelector("[tabindex='0']"))?.focus({ preventScroll: true });
  v.picture.dataset.marks = String(v.picture.querySelectorAll("*").length);
}

/** @param {any} mark */
function elementFor(mark) {
  const node = s(mark.tag, { class: mark.cls, ...mark.given }, mark.text || undefined);
  if (mark.cls !== "cell") return node;
  node.setAttribute("aria-label", mark.label);
  node.setAttribute("data-lm-suppress-shortcuts", "true");
  /** @type {any} */ (node).mark = mark;
  return node;
}

/** @param {any} v @param {number} tall */
export function definitions(v, tall) {
  const defs = s("defs", {});
  const part = (/** @type {string} */ tag, /** @type {string} */ name, /** @type {any[]} */ parts, given = {}) => {
    const node = s(tag, { id: `${v.uid}-${name}`, ...given });
    node.append(...parts);
    defs.append(node);
  };
  const pattern = (/** @type {string} */ name, /** @type {number} */ size, /** @type {any[]} */ parts, more = {}) => part("pattern", name, parts, { width: size, height: size, patternUnits: "userSpaceOnUse", ...more });
  pattern("shared", 7, [s("rect", { class: "sharedground", width: 7, height: 7 }), s("rect", { class: "sharedstripe", width: 2, height: 7 })], { patternTransform: "rotate(45)" });
  pattern("strided", 6, [s("rect", { class: "stridedground", width: 6, height: 6 }), s("path", { class: "stridedline", d: "M0 6L6 0" })]);
  pattern("wrong", 6, [s("rect", { class: "wrongground", width: 6, height: 6 }), s("rect", { class: "wrongstripe", width: 4, height: 6 })], { patternTransform: "rotate(45)" });
  pattern("absent", 6, [s("path", { class: "absentline", d: "M0 6L6 0" })]);
  const marker = (/** @type {string} */ name, /** @type {string} */ d, /** @type {any} */ size) => part("marker", name, [s("path", { class: name, d })], { markerUnits: "userSpaceOnUse", orient: "auto", ...size });
  for (const tip of ["tip", "illtip"]) marker(tip, "M0 0.5L8 4L0 7.5z", { viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 9, markerHeight: 9 });
  marker("stop", "M2 0V12M6 0V12", { viewBox: "0 0 8 12", refX: 6, refY: 6, markerWidth: 8, markerHeight: 12 });
  part("clipPath", "plot", [s("rect", { x: v.left - 8, y: -10000, width: v.wide - v.left + 8, height: 1e6 })]);
  part("clipPath", "body", [s("rect", { x: 0, y: v.plot.scrollTop, width: v.wide, height: tall - v.head })]);
  return defs;
}

/** @param {any} v */
export function moveCursor(v) {
  const c = v.get("cursor"), e = seenAt(v), behind = e < c, col = v.cols[colOf(v, e)], x = e >= v.n ? Math.min(X(v, v.all.count) + 6, v.wide - 12) : xOf(v, e) + (behind ? Math.min(BEHIND, (col?.w ?? 0) / 3) : 0), text = `reverse ${v.n - c}/${v.n}`, w = text.length * 5.5 + 12;
  const inside = (e >= v.n ? v.u1 >= v.all.size - 0.01 : col) && x >= v.left - 6;
  for (const node of [v.cursorLine, v.cursorBox, v.cursorText]) node.setAttribute("visibility", inside ? "visible" : "hidden");
  v.cursorLine.setAttribute("d", `M${x} ${v.head - 22}V4000`);
  const signs = v.findings.length ? v.cols.filter((/** @type {any} */ one) => findingsIn(v, one).length).map((/** @type {any} */ one) => signAt(v, one)) : [];
  const places = [x, x + w / 2 - 6, x - w / 2 + 6].map((to) => clamp(to, v.left + w / 2, v.wide - w / 2 - 2));
  const at = places.find((to) => signs.every((/** @type {number} */ sign) => Math.abs(sign - to) > w / 2 + 7)) ?? places[0]; // a finding is not to be hidden
  v.cursorBox.setAttribute("x", String(at - w / 2));
  v.cursorBox.setAttribute("y", String(v.head - 37 - v.box));
  v.cursorBox.setAttribute("width", String(w));
  v.cursorText.setAttribute("x", String(at));
  v.cursorText.setAttribute("y", String(v.head - 26.6 - v.box));
  v.cursorText.textContent = text;
  v.moment.textContent = c < v.n ? `${v.n - c} of ${v.n} reversed` : "only the seed";
  markMoment(v, c, e);
}

/** What is not yet reversed is faint; the column at which the cursor is seen is pressed.
 * @param {any} v @param {number} c @param {number} at */
function markMoment(v, c, at) {
  veil(v, c);
  for (const { node, e } of v.dated) node.classList.toggle("later", e < c);
  for (const node of v.picture.querySelectorAll(".event")) node.classList.toggle("current", Number(node.dataset.a) <= at && at < Number(node.dataset.b));
  for (const node of v.picture.querySelectorAll(".cell")) {
    const { col, lane } = node.mark;
    const pressed = lane ? v.get("array") >= 0 && v.meta.arrays[v.get("array")][1] === lane.k && col.a <= at && at < col.b : col.a <= at && at < col.b;
    node.setAttribute("aria-pressed", String(pressed));
  }
}
