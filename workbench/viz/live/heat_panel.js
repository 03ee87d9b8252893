// @ts-check
// The panel of the heat-maps: value and adjoint of one array at the moment of the cursor.
import { clamp, h, pageAround, short } from "./elements.js";
import { cellOf, floats, heatmap, raw } from "./heat.js";
import { entered, section, wholeNumbers } from "./section.js";

const HEATS = "value and adjoint at the cursor", ARRAYS = 2000;

/** @param {any} v */
export function heatPanel(v) {
  /** @type {any} */ const p = { v, ...section("wb-heats", HEATS), windowed: [], fixed: [], frame: null, marked: "" };
  const pick = (/** @type {number[]} */ at, /** @type {number[]} */ cell) => picked(p, at, cell);
  p.choice = h("select", { "aria-label": "array", onchange: () => v.set({ array: Number(p.choice.value), element: [] }) },
    h("option", { value: "-1" }, "choose an array"),
    ...v.meta.arrays.slice(0, ARRAYS).map((/** @type {any} */ a, /** @type {number} */ k) => h("option", { value: String(k) }, `${a[0]}  ${a[5]} (${a[4].join(", ")})`)));
  p.index = h("input", {
    type: "text", size: "8", placeholder: "index", "aria-label": "index of the element, such as 7 or 3, 1", onchange: () => typedIndex(p), onkeydown: entered,
  });
  p.whole = h("button", { style: "display:none", onclick: () => { p.windowed = []; p.ask(); } }, "whole");
  p.axes = h("span", "wb-axes");
  p.note = h("p", "wb-muted wb-note");
  p.leftSays = h("figcaption", {});
  p.rightSays = h("figcaption", "wb-hot");
  p.left = h("figure", {}, p.leftSays);
  p.right = h("figure", {}, p.rightSays);
  p.pair = h("div", { class: "wb-pair", style: "display:none" }, p.left, p.right);
  p.box.append(h("div", "wb-choice", p.whole, p.axes), p.note, p.pair);
  p.values = heatmap(p.left, { label: "value", pick, room: () => roomOf(p), tall: () => tallFor(p) });
  p.adjoints = heatmap(p.right, { label: "adjoint", pick, room: () => roomOf(p), tall: () => tallFor(p) });
  watchRoom(p);
  p.ask = v.keen("heat", () => (v.get("array") < 0 ? null : { array: v.get("array"), cursor: v.get("cursor"), element: v.get("element"), fixed: p.fixed, window: p.windowed }),
    (/** @type {any} */ answer, /** @type {any} */ asked) => showMaps(p, answer, asked),
    (/** @type {string} */ error) => { p.note.textContent = error; p.note.style.display = ""; });
  return {
    element: p.box, choice: h("span", "wb-choice", p.choice, p.index), ask: p.ask, mark: () => markElement(p), reset: () => reset(p),
    repaint: () => { p.values.repaint(); p.adjoints.repaint(); },
  };
}

/** Both maps anew when their room has changed, as it does when the view comes onto the page. @param {any} p */
function watchRoom(p) {
  let last = 0;
  const watcher = new ResizeObserver(() => {
    const now = p.box.clientWidth;
    if (now && Math.abs(now - last) < 24) return; // a scroll bar is no change
    last = now;
    if (!now) return; // out of sight
    p.values.repaint();
    p.adjoints.repaint();
  });
  watcher.observe(p.box);
  p.v.signal?.addEventListener("abort", () => watcher.disconnect());
}

/** The width that one of the two maps has: half of the panel, or all of it where it is narrow or there is one map.
 * @param {any} p */
function roomOf(p) {
  const wide = p.box.clientWidth - 26;
  if (wide <= 0) return 0; // not on the page yet
  return wide < 560 || p.right.style.display === "none" ? wide : wide / 2 - 16;
}

/** The height that one of the two maps has, so that both are in sight: what the captions around it leave. @param {any} p */
function tallFor(p) {
  const box = p.box.getBoundingClientRect(), canvas = p.left.querySelector("canvas"), around = p.left.offsetHeight - canvas.offsetHeight;
  const all = box.bottom - p.pair.getBoundingClientRect().top + p.box.scrollTop - 10, rows = p.pair.offsetHeight > 1.5 * p.left.offsetHeight ? 2 : 1;
  return clamp((all - (rows - 1) * 8) / rows - around, 36, 420);
}

/** A cell was chosen; where it stands for many numbers, it opens first. @param {any} p @param {number[]} at @param {number[]} cell */
function picked(p, at, cell) {
  const [br, bc] = p.frame.block;
  if (br * bc > 1) {
    const r = p.frame.window[0] + cell[0] * br, c = p.frame.window[1] + cell[1] * bc;
    p.windowed = [Math.max(r - 12 * br, 0), Math.max(c - 12 * bc, 0), 24 * br, 24 * bc];
    if (br > 4 || bc > 4) { p.ask(); return; }
    p.windowed = [r, c, 48, 48];
    p.ask();
  }
  p.v.set({ element: at });
}

/** @param {any} p @param {any} answer @param {any} asked */
function showMaps(p, answer, asked) {
  const { v } = p, [shown, known, adjoint] = answer.buffers, name = v.meta.arrays[asked.array][0], { state } = answer.value;
  p.frame = answer.frame;
  p.pair.style.display = "";
  p.head.textContent = `${name} ${momentName(v, asked.cursor)}`;
  p.right.style.display = answer.adjoint ? "" : "none";
  p.values.draw({ ...answer.value, frame: p.frame, cells: floats(shown), known: raw(known) }, `value of ${name}`);
  p.leftSays.textContent = ranged("value", answer.value);
  p.note.textContent = state === "not kept" ? `The value of ${name} at this moment was overwritten later and not kept: the reverse pass does not need it.`
    : state === "partly" ? "Hatched cells were overwritten later and not kept." : answer.value.note;
  p.note.style.display = p.note.textContent ? "" : "none";
  if (answer.adjoint) {
    p.adjoints.draw({ ...answer.adjoint, frame: p.frame, cells: floats(adjoint), known: null }, `adjoint of ${name}`);
    p.rightSays.textContent = ranged("adjoint", answer.adjoint);
  }
  p.whole.style.display = p.windowed.length ? "" : "none";
  markElement(p);
  spin(p);
}

/** A moment in words. @param {any} v @param {number} c */
function momentName(v, c) {
  if (v.behind >= 0 && c === v.behind + 1) return `after ${v.tape.heading(v.behind)}`;
  return c >= v.n ? "at the end of the tape" : `before ${v.tape.heading(c)}`;
}

/** The least and the most of a picture, and what is ill. @param {string} what @param {any} picture */
function ranged(what, picture) {
  if (picture.state === "not kept") return `${what}: not kept`;
  const ill = [picture.nan ? `${picture.nan} NaN` : "", picture.inf ? `${picture.inf} Inf` : "", picture.zero ? `${picture.zero} exactly 0` : ""].filter(Boolean);
  const finite = ill.length && !picture.least && !picture.most ? [] : [`${short(picture.least)} … ${short(picture.most)}`];
  return `${what}: ${[...finite, ...ill].join(", ")}`;
}

/** @param {any} p */
function typedIndex({ v, index }) {
  const shape = v.meta.arrays[v.get("array")]?.[4] ?? [], at = wholeNumbers(index.value);
  const fits = at.length === shape.length && at.every((i, k) => i >= -shape[k] && i < shape[k]);
  index.setAttribute("aria-invalid", String(!fits));
  if (fits) v.set({ element: at.map((i, k) => (i < 0 ? i + shape[k] : i)) });
  else v.say(`an index of ${v.meta.arrays[v.get("array")]?.[0]} is ${shape.length} numbers below (${shape.join(", ")})`);
}

/** Number boxes for the axes that are held. @param {any} p */
function spin(p) {
  const { frame, axes } = p;
  const held = frame.full.map((/** @type {number} */ _, /** @type {number} */ k) => k).filter((/** @type {number} */ k) => !frame.axes.includes(k));
  if (axes.childElementCount === held.length) return;
  axes.replaceChildren(...held.map((/** @type {number} */ k) => h("label", {}, ` axis ${k} `, h("input", {
    type: "number", min: "0", max: String(frame.full[k] - 1), value: String(frame.fixed[k] ?? 0),
    onchange: (/** @type {any} */ ev) => { p.fixed = [...p.frame.fixed]; p.fixed[k] = Number(ev.target.value); p.ask(); },
  }))));
}

/** Show which element is chosen; ask for another plane if it lies in one. @param {any} p */
function markElement(p) {
  const at = p.v.get("element"), { frame, index } = p;
  if (pageAround(index).activeElement !== index || String(at) !== p.marked) index.value = at.join(", ");
  p.marked = String(at);
  if (frame && at.length === frame.full.length && !cellOf(frame, at)) {
    const moved = frame.full.some((/** @type {number} */ _, /** @type {number} */ k) => !frame.axes.includes(k) && frame.fixed[k] !== at[k]);
    if (moved) { p.fixed = [...at]; p.axes.replaceChildren(); p.ask(); return; }
  }
  p.values.select(at);
  p.adjoints.select(at);
}

/** Another array. @param {any} p */
function reset(p) {
  const array = p.v.get("array");
  p.windowed = [];
  p.fixed = [];
  p.axes.replaceChildren();
  p.choice.value = String(array);
  if (array < 0) {
    p.pair.style.display = "none";
    p.head.textContent = HEATS;
  }
  p.ask();
}
