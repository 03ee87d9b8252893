// @ts-check
// What of the tape is in sight: the window on the axis of units, its folds, and the moment that the cursor is at.
// A unit is an event, or a fold that is shut; a column is as many units as have room. On the axis an event is 1 wide.
import { clamp } from "./elements.js";
import { lower, middleOf, unitAt, unitOf, units } from "./lanes.js";
import { placeIn } from "./strips.js";

const FEW = 20;
export const NARROW = 38, RIGHT = 26;

/** The width that columns have. @param {any} v */
export const room = (v) => Math.max(v.wide - v.left - RIGHT, 200);
/** The width of one event. @param {any} v */
export const pitch = (v) => room(v) / (v.u1 - v.u0);
/** Where a unit begins. @param {any} v @param {number} unit */
export const X = (v, unit) => v.left + (v.all.at[unit] - v.u0) * pitch(v);

/** The fewest units per column so that columns are not too narrow. @param {number} shown of the axis @param {number} room */
export function bunch(shown, room) {
  let g = 1;
  while (shown / g > room / NARROW) g *= 2;
  return g;
}

/** Look at a part of the axis. @param {any} v @param {number} a @param {number} b */
export function look(v, a, b) {
  const most = Math.max(v.all.size, 1), size = clamp(b - a, Math.min(2, most), most);
  const from = clamp(a + (b - a - size) / 2, 0, Math.max(most - size, 0));
  v.u0 = from;
  v.u1 = from + size;
  v.draw();
}

/** @param {any} v @param {number} factor @param {number} [at] */
export function zoom(v, factor, at = (v.u0 + v.u1) / 2) {
  look(v, at - (at - v.u0) * factor, at + (v.u1 - at) * factor);
}

/** Fold everything, or unfold what is outermost. @param {any} v @param {boolean} shut */
export function foldAll(v, shut) {
  const before = [...v.open];
  v.open.clear();
  if (!shut) {
    before.forEach((k) => v.open.add(k));
    for (const k of v.all.fold.slice(0, v.all.count)) if (k >= 0) v.open.add(k);
  }
  refold(v);
}

/** @param {any} v @param {number} k */
export function toggle(v, k) {
  if (!v.open.delete(k)) v.open.add(k);
  refold(v, v.meta.folds[k][1], v.meta.folds[k][2]);
  v.say(`${v.meta.folds[k][0]} ${v.open.has(k) ? "unfolded" : "folded"}`);
}

/** Columns anew, with a look at events [first, last). @param {any} v @param {number} [first] @param {number} [last] */
export function refold(v, first = 0, last = v.n) {
  v.all = units(v.meta.folds, v.n, v.open);
  const { at, size } = v.all, a = at[unitOf(v.all, first)], b = at[unitOf(v.all, Math.max(last - 1, first)) + 1];
  const few = Math.min(FEW, Math.max(Math.floor(room(v) / NARROW) - 2, 4)); // that have a column each
  if (size <= few) look(v, 0, size);
  else look(v, a - 1, last === v.n && first === 0 ? size : a + Math.min(b - a, few) + 1);
  v.drawMap();
}

/** Unfold whatever hides an event. @param {any} v @param {number} e */
export function reveal(v, e) {
  let changed = false;
  v.meta.folds.forEach((/** @type {any} */ fold, /** @type {number} */ k) => {
    if (fold[1] <= e && e < fold[2] && !v.open.has(k)) {
      v.open.add(k);
      changed = true;
    }
  });
  if (changed) v.all = units(v.meta.folds, v.n, v.open);
  const at = middleOf(v.all, e), size = Math.min(v.u1 - v.u0, room(v) / 100);
  if (changed || at - 0.5 < v.u0 || at + 0.5 > v.u1 || v.grouped > 1) look(v, at - size / 2, at + size / 2);
  if (changed) v.drawMap();
}

/** Go to an event: a finding, a row of a ledger, a step; `behind` it: to what it wrote.
 * @param {any} v @param {number} e @param {boolean} [behind] */
export function goTo(v, e, behind = false) {
  if (e < 0) { step(v, v.n); return; }
  reveal(v, e);
  step(v, behind ? e + 1 : e, behind ? e : -1);
  v.focus = { e, lane: -1 };
  v.draw();
}

/** The cursor to a moment; `behind`: the event before it, at which the reader shall see it.
 * @param {any} v @param {number} c @param {number} [behind] */
export function step(v, c, behind = -1) {
  const to = clamp(c, 0, v.n), moved = to !== v.get("cursor");
  v.behind = behind;
  if (!moved) return;
  v.set({ cursor: to });
  keepCursor(v, 0);
  v.say(to < v.n ? `before ${v.tape.heading(to)}, ${v.n - to} of ${v.n} reversed` : "only the seed is there");
}

/** The event at which the cursor is seen: the one after the moment, or the one before it. @param {any} v */
export const seenAt = (v) => (v.behind >= 0 && v.get("cursor") === v.behind + 1 ? v.behind : v.get("cursor"));

/** Move the window if the cursor has left it by more than `far`. True if it did. @param {any} v @param {number} far */
export function keepCursor(v, far) {
  const at = middleOf(v.all, seenAt(v)), half = (v.u1 - v.u0) / 2, out = at < v.u0 - far || at > v.u1 + far;
  if (out) look(v, at - half, at + half);
  return out;
}

/** The columns of the window, each of `g` units. @param {any} v @param {number} g */
export function columnsOf(v, g) {
  v.cols = [];
  const { all } = v;
  const turn = (/** @type {number} */ k) => Number.isInteger(v.meta.folds[all.fold[k]]?.[6]);
  for (let a = Math.floor(unitAt(all, v.u0) / g) * g, b; a < all.count && all.at[a] < v.u1; a = b) {
    const end = Math.min((Math.floor(a / g) + 1) * g, all.count);
    for (b = a + 1; b < end && turn(b) === turn(a); ) b++; // turns of a loop are not put together with others
    const x0 = X(v, a), x1 = X(v, b);
    v.cols.push({ a: all.starts[a], b: all.starts[b], x: (x0 + x1) / 2, w: x1 - x0, fold: g === 1 ? all.fold[a] : -1, from: all.at[a], to: all.at[b], ...turnsIn(v, a, b) });
  }
}

/** What a column of units [a, b) has of the turns of a loop: where each begins, if there are enough of them, and what they
 * are called if it has nothing else. @param {any} v @param {number} a @param {number} b */
function turnsIn({ meta, all }, a, b) {
  const first = meta.folds[all.fold[a]], last = meta.folds[all.fold[b - 1]];
  if (!first || !last || (b - a > 1 && (first[5] !== last[5] || !Number.isInteger(first[6]) || !Number.isInteger(last[6])))) return {};
  const turns = b - a > 1 ? all.starts.subarray(a, b) : first[6], name = b - a > 1 ? `${first[0]}–${last[0].match(/\d*$/)[0]}` : undefined;
  return { name, turns: turns?.length >= (name ? 2 : meta.drawing.turns) ? turns : undefined };
}

/** The column that an event is in, -1 for none. @param {any} v @param {number} e */
export function colOf(v, e) {
  const inside = v.cols.length && e >= v.cols[0].a && e < v.cols.at(-1).b;
  return inside ? lower(0, v.cols.length, (k) => v.cols[k].b, e + 0.5) : -1;
}

/** Where an event is: its column, or beyond an edge. @param {any} v @param {number} e */
export function xOf(v, e) {
  if (e < 0) return Math.max(X(v, 0), v.left - 6);
  if (e >= v.n) return Math.min(X(v, v.all.count), v.wide - RIGHT + 8);
  if (!v.cols.length || e < v.cols[0].a) return v.left - 6;
  const c = colOf(v, e);
  return c < 0 ? v.wide - RIGHT + 8 : placeIn(v.cols[c], e + 0.5);
}

/** Is a stretch of events [e0, e1] out of the window, or inside one column. @param {any} v @param {number} e0 @param {number} e1 */
export function unseen(v, e0, e1) {
  const first = v.cols.length ? v.cols[0].a : 0, last = v.cols.length ? v.cols.at(-1).b : 0;
  if (e1 < first || e0 >= last) return true;
  const c = colOf(v, e0);
  return c >= 0 && e1 < v.n && c === colOf(v, e1);
}

/** The event, with its fraction, at a place on the axis. @param {any} v @param {number} u */
export function eventAt({ all }, u) {
  if (!all.count) return 0;
  const k = unitAt(all, u), a = all.starts[k], wide = all.at[k + 1] - all.at[k];
  return a + (all.starts[k + 1] - a) * clamp((u - all.at[k]) / wide, 0, 1);
}
