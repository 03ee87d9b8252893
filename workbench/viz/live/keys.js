// @ts-check
// Mouse and keys on the picture: what is under the pointer, what a key does, what is chosen.
import { clamp, pageAround } from "./elements.js";
import { showRow, toggleFamily } from "./families.js";
import { showKeys } from "./help.js";
import { lower, middleOf, unitOf } from "./lanes.js";
import { play } from "./play.js";
import { eventIn } from "./strips.js";
import { tell } from "./tips.js";
import { endRange, rangeOf, showRange } from "./range.js";
import { look, pitch, step, toggle, zoom } from "./window.js";
import { describe, laneText } from "./words.js";

/** @param {any} v */
export function listenToPicture(v) {
  const on = (/** @type {string} */ name, /** @type {(v: any, event: any) => void} */ act) => v.picture.addEventListener(name, (/** @type {any} */ event) => act(v, event));
  on("pointerdown", pressed);
  on("pointermove", moved);
  on("pointerleave", () => tell(v, "", null));
  on("pointerup", released);
  on("pointercancel", () => { v.drag = null; });
  v.rootEl.addEventListener("keydown", (/** @type {any} */ event) => typed(v, event));
  v.picture.addEventListener("wheel", (/** @type {WheelEvent} */ event) => turned(v, event), { passive: false });
  v.plot.addEventListener("scroll", () => v.draw());
}

/** @param {any} v @param {any} event */
function pressed(v, event) {
  tell(v, "", null);
  if (event.button === 0) v.drag = { x: event.clientX, u0: v.u0, u1: v.u1, moved: false, from: event.shiftKey ? axisAt(v, event) : null };
}

/** The place on the axis under the pointer. @param {any} v @param {any} event */
const axisAt = (v, event) => v.u0 + (event.clientX - v.picture.getBoundingClientRect().left - v.left) / pitch(v);

/** A drag pans, with shift it chooses a range; else the tip says what is here. @param {any} v @param {any} event */
function moved(v, event) {
  if (v.drag && Math.abs(event.clientX - v.drag.x) > 4) {
    if (!v.drag.moved) v.picture.setPointerCapture?.(event.pointerId);
    v.drag.moved = true;
    if (v.drag.from !== null) { v.range = rangeOf(v, v.drag.from, axisAt(v, event)); v.draw(); return; }
    const by = (v.drag.x - event.clientX) / pitch(v);
    look(v, v.drag.u0 + by, v.drag.u1 + by);
    return;
  }
  const at = under(v, event), text = at.col ? describe(v, turnAt(v, at), at.lane) : at.lane ? laneText(at.lane) : "";
  tell(v, text, text ? thingAt(v, at) : null);
}

/** What a tip is about: a launch's head, its part of a lane, the names of a lane. @param {any} v @param {any} at */
function thingAt(v, { col, lane }) {
  const box = v.picture.getBoundingClientRect(), top = box.top + (lane ? v.head + lane.top - v.plot.scrollTop : 0);
  return col ? new DOMRect(box.left + col.x - col.w / 2, top, col.w, lane ? lane.height : v.head) : new DOMRect(box.left, top, v.left - 6, lane.height);
}

/** A click chooses what it is on. @param {any} v @param {any} event */
function released(v, event) {
  const moved = v.drag?.moved, from = v.drag?.from ?? null;
  v.drag = null;
  if (moved && from !== null) showRange(v);
  if (moved || event.button) return;
  endRange(v);
  v.inSight();
  const target = event.target, fold = target.closest?.("[data-fold]"), mark = target.closest?.("[data-finding]"), at = under(v, event);
  const behind = pageAround(v.rootEl).elementsFromPoint(event.clientX, event.clientY).find((/** @type {any} */ one) => /** @type {any} */ (one).dataset?.fold ?? /** @type {any} */ (one).dataset?.finding);
  const data = /** @type {any} */ (fold ?? mark ?? behind)?.dataset;
  if (data?.fold) toggle(v, Number(data.fold));
  else if (data?.family) toggleFamily(v, Number(data.family));
  else if (data?.finding) v.showFinding(Number(data.finding));
  else if (target.dataset?.lane) pickLane(v, Number(target.dataset.lane), target.dataset.name);
  else if (at.col) choose(v, turnAt(v, at), at.lane);
  else if (at.lane?.members) toggleFamily(v, at.lane.family);
  else if (at.lane) pickLane(v, at.lane.k, "");
}

/** What a key does. In the inspector and in boxes of text most keys have a meaning of their own. @param {any} v @param {any} event */
function typed(v, event) {
  const { key, target } = event, { mark } = target, typing = target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || (typing && key !== "Escape")) return;
  if (key === "Escape") {
    if (!v.help.hidden) showKeys(v, false);
    else if (!endRange(v)) target.blur();
  } else if (key === "?") showKeys(v, v.help.hidden);
  else if (key === "[") step(v, v.get("cursor") - 1);
  else if (key === "]") step(v, v.get("cursor") + 1);
  else if (key === "p") play(v);
  else if (key === "/") v.searching.focus();
  else if (target.closest(".wb-dock, .wb-keys, details") || !typedOnPicture(v, key, mark)) return;
  event.preventDefault();
  event.stopPropagation();
  v.inSight();
}

const SAME = /** @type {Record<string, string>} */ ({ "=": "+", w: "+", s: "-", " ": "Enter" }); // keys that mean what another does

/** @param {any} v @param {string} key @param {any} mark @returns {boolean} did it mean anything */
function typedOnPicture(v, key, mark) {
  const c = mark ? v.cols.findIndex((one) => one.a === mark.col.a) : 0, wide = v.u1 - v.u0;
  const row = (/** @type {number} */ by) => moveFocus(v, c, nextRow(v, by)), pan = (/** @type {number} */ by) => look(v, v.u0 + by, v.u1 + by);
  const nearer = (/** @type {number} */ by) => zoom(v, by, middleOf(v.all, v.focus.e)), fold = (/** @type {number} */ k) => k >= 0 && toggle(v, k);
  /** @type {Record<string, () => void>} */ const acts = {
    ArrowLeft: () => stepColumn(v, -1), ArrowRight: () => stepColumn(v, 1), ArrowUp: () => row(-1), ArrowDown: () => row(1),
    Home() { look(v, 0, wide); step(v, 0); moveFocus(v, 0, v.focus.lane); },
    End() { look(v, v.all.size - wide, v.all.size); step(v, v.n); moveFocus(v, v.cols.length - 1, v.focus.lane); },
    "+": () => nearer(0.5), "-": () => nearer(2), f: () => look(v, 0, v.all.size), a: () => pan(-wide / 4), d: () => pan(wide / 4),
    ".": () => fold(foldAt(v, v.focus.e, false)), ",": () => fold(foldAt(v, v.focus.e, true)),
  };
  if (mark) acts.Enter = () => choose(v, mark.col, mark.lane);
  const act = acts[SAME[key] ?? key];
  act?.();
  return !!act;
}

/** One column of the reverse pass: the cursor goes there, and the keyboard with it. @param {any} v @param {number} by */
function stepColumn(v, by) {
  const c = v.get("cursor"), g = v.grouped, { all } = v, k = c < v.n ? unitOf(all, c) : all.count, inFold = c < v.n && c > all.starts[k];
  const unit = by > 0 ? Math.floor(k / g) * g + g : (Math.ceil((inFold ? k + 1 : k) / g) - 1) * g;
  step(v, all.starts[clamp(unit, 0, all.count)]);
  v.focus = { e: Math.min(v.get("cursor"), v.n - 1), lane: v.focus.lane };
  v.draw();
  focusCell(v);
}

/** The wheel zooms and pans, with a key. @param {any} v @param {any} event */
function turned(v, event) {
  if (event.ctrlKey || event.metaKey) {
    zoom(v, event.deltaY > 0 ? 1.25 : 0.8, axisAt(v, event));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    const by = (event.deltaX || event.deltaY) / pitch(v);
    look(v, v.u0 + by, v.u1 + by);
  } else return;
  event.preventDefault();
}

/** @param {any} v @param {any} event */
export function under(v, event) {
  const box = v.picture.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const c = v.cols.findIndex((col) => x >= col.x - col.w / 2 && x < col.x + col.w / 2);
  const inBody = y - v.head + v.plot.scrollTop, lane = y < v.head ? null : v.lanes.find((one) => inBody >= one.top && inBody < one.top + one.height) ?? null;
  return { x, y, col: x < v.left - 6 ? null : v.cols[c] ?? null, lane, head: y < v.head };
}

/** The turn of a loop that is under a place on a lane in a column of many; else the column. @param {any} v @param {any} at */
function turnAt(v, { col, lane, x }) {
  const { turns } = col, e = eventIn(col, x);
  if (!turns || !lane) return col;
  const k = Math.max(lower(0, turns.length, (m) => turns[m], e + 1e-6) - 1, 0);
  const whole = col.fold >= 0 ? -1 : v.all.fold[unitOf(v.all, turns[k])];
  return { ...col, turn: true, a: turns[k], b: turns[k + 1] ?? col.b, name: whole < 0 ? `step ${k}` : v.meta.folds[whole][0] };
}

/** @param {any} v @param {any} col @param {any} lane */
export function choose(v, col, lane) {
  v.focus = { e: col.a, lane: lane ? lane.k : -1 };
  if (lane?.members) { toggleFamily(v, lane.family); return; }
  if (lane) pickLane(v, lane.k, "");
  else if (col.fold >= 0) { toggle(v, col.fold); return; }
  else if (col.b - col.a > 1) { look(v, col.from, col.to); return; }
  else if (v.tape.events.grid[col.a] >= 0) v.set({ launch: col.a, thread: threadFor(v, col.a) });
  step(v, col.a);
  v.draw();
}

/** @param {any} v @param {number} e */
export function threadFor(v, e) {
  const grid = v.meta.grids[v.tape.events.grid[e]] ?? [], now = v.get("chosen")?.[e] ?? v.get("thread");
  return grid.map((/** @type {number} */ m, /** @type {number} */ k) => (now.length === grid.length ? Math.min(now[k], m - 1) : 0));
}

/** @param {any} v @param {number} lane @param {string} name */
export function pickLane(v, lane, name) {
  const on = v.meta.arrays.map((/** @type {any} */ a, /** @type {number} */ k) => [k, a]).filter((/** @type {any} */ pair) => pair[1][1] === lane);
  const named = on.find((/** @type {any} */ pair) => pair[1][0] === name) ?? on[0];
  if (!named) return;
  if (named[0] !== v.get("array")) v.set({ array: named[0], element: [] });
  v.showPanel("values");
}

/** The fold that hides an event; to close: the innermost one that it lies open in.
 * @param {any} v @param {number} e @param {boolean} close */
export function foldAt(v, e, close) {
  if (!close) return v.all.fold[unitOf(v.all, e)] ?? -1;
  return v.meta.folds.findLastIndex((/** @type {any} */ f, /** @type {number} */ k) => f[1] <= e && e < f[2] && v.open.has(k));
}

/** The lane or family above or below the one that has the focus; -1 for the head. @param {any} v @param {number} by */
function nextRow(v, by) {
  const at = v.lanes.findIndex((/** @type {any} */ one) => one.k === v.focus.lane) + by;
  return at < 0 ? -1 : v.lanes[Math.min(at, v.lanes.length - 1)].k;
}

/** @param {any} v @param {number} c @param {number} lane */
export function moveFocus(v, c, lane) {
  const by = v.cols[0]?.w ? v.grouped : 1;
  if (c < 0) { look(v, v.u0 - by, v.u1 - by); c = 0; }
  if (c >= v.cols.length) { look(v, v.u0 + by, v.u1 + by); c = v.cols.length - 1; }
  if (!v.cols[c]) return;
  v.focus = { e: v.cols[c].a, lane };
  if (lane >= 0) showRow(v, v.lanes.find((/** @type {any} */ one) => one.k === lane));
  v.draw();
  focusCell(v);
}

/** @param {any} v */
function focusCell(v) {
  const node = /** @type {any} */ (v.picture.querySelector("[tabindex='0']"));
  node?.focus({ preventScroll: true });
  if (node) v.say(node.getAttribute("aria-label") ?? "");
}
