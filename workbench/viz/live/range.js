// @ts-check
// A range of the tape that the reader has chosen with the pointer: whole turns and units, as a table.
import { put } from "./elements.js";
import { lower, unitAt } from "./lanes.js";
import { RIGHT, X, eventAt, xOf } from "./window.js";

/** Where the parts of a unit begin: of a loop that is shut its turns. @param {any} v @param {number} k */
const partsOf = ({ meta, all }, k) => (meta.folds[all.fold[k]]?.[6]?.length ? meta.folds[all.fold[k]][6] : [all.starts[k]]);

/** The events [a, b) of all parts between two places on the axis. @param {any} v @param {number} from @param {number} to */
export function rangeOf(v, from, to) {
  const [u, w] = [Math.min(from, to), Math.max(from, to)], first = partsOf(v, unitAt(v.all, u)), k = unitAt(v.all, w), last = partsOf(v, k);
  const a = first[Math.max(lower(0, first.length, (m) => first[m], eventAt(v, u) + 1e-6) - 1, 0)];
  return { a, b: last[lower(0, last.length, (m) => last[m], eventAt(v, w) + 1e-6)] ?? v.all.starts[k + 1] };
}

/** The parts of the range, at most `most`: as columns of a table. @param {any} v @param {number} most */
export function columnsIn(v, most) {
  const { a, b } = v.range, all = [];
  for (let k = 0; k < v.all.count; k++) {
    if (v.all.starts[k + 1] <= a || v.all.starts[k] >= b) continue;
    const fold = v.meta.folds[v.all.fold[k]], parts = partsOf(v, k);
    parts.forEach((/** @type {number} */ start, /** @type {number} */ j) => {
      const end = parts[j + 1] ?? v.all.starts[k + 1];
      if (a <= start && end <= b) all.push({ a: start, b: end, fold: parts.length > 1 ? -1 : v.all.fold[k], name: parts.length > 1 ? `step ${j}` : fold?.[0] });
    });
  }
  const by = Math.ceil(all.length / most), joined = (/** @type {any} */ one, /** @type {any} */ end) => (one === end ? one : { a: one.a, b: end.b, fold: -1, name: one.name && end.name && `${one.name} to ${end.name}` });
  return all.flatMap((one, k) => (k % by ? [] : [joined(one, all[Math.min(k + by, all.length) - 1])]));
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
  v.say(`table of #${v.range.a} to #${v.range.b - 1}`);
}

/** No range any more. True if there was one. @param {any} v */
export function endRange(v) {
  if (!v.range) return false;
  v.range = null;
  v.draw();
  return true;
}
