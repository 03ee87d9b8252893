// @ts-check
// A range of the tape that the reader has chosen with the pointer: whole turns and units, as a table.
import { put } from "./elements.js";
import { lower, unitAt } from "./lanes.js";
import { RIGHT, X, eventAt, xOf } from "./window.js";

/** Where the parts of a unit begin: of a loop that is shut its turns. @param {any} v @param {number} k */
const partsOf = ({ meta, all }, k) => (meta.folds[all.fold[k]]?.[6]?.length ? meta.folds[all.fold[k]][6] : [all.starts[k]]);

/** The events [a, b) of all parts between two places on the axis. @param {any} v @param {number} from @param {number} to */
export function rangeOf(v, from, to) {
  const u = Math.min(from, to), w = Math.max(from, to), first = partsOf(v, unitAt(v.all, u)), k = unitAt(v.all, w), last = partsOf(v, k);
  const a = first[Math.max(lower(0, first.length, (m) => first[m], eventAt(v, u) + 1e-6) - 1, 0)];
  return { a, b: last[lower(0, last.length, (m) => last[m], eventAt(v, w) + 1e-6)] ?? v.all.starts[k + 1] };
}

/** The first parts of the range, at most `most`: as columns of a table. @param {any} v @param {number} most */
export function columnsIn(v, most) {
  /** @type {any[]} */ const all = [];
  for (let k = 0; k < v.all.count; k++) {
    const parts = partsOf(v, k), many = parts.length > 1;
    parts.forEach((/** @type {number} */ a, /** @type {number} */ j) => {
      const b = parts[j + 1] ?? v.all.starts[k + 1];
      if (v.range.a <= a && b <= v.range.b) all.push({ a, b, fold: many ? -1 : v.all.fold[k], name: many ? `step ${j}` : undefined });
    });
  }
  return all.slice(0, most);
}

/** @param {any} v */
export function composeRange(v) {
  if (!v.range) return;
  const x = v.range.a ? xOf(v, v.range.a - 0.5) : X(v, 0), end = v.range.b < v.n ? xOf(v, v.range.b - 0.5) : v.wide - RIGHT;
  put(v, "rect", "range", { x, y: -20, width: Math.max(end - x, 2), height: 5000 });
}

/** @param {any} v */
export function showRange(v) {
  v.tableBox.open = true;
  v.draw();
  v.tableHere.scrollIntoView?.({ block: "nearest" });
}

/** No range any more. True if there was one. @param {any} v */
export function endRange(v) {
  if (!v.range) return false;
  v.range = null;
  v.draw();
  return true;
}
