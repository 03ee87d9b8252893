// @ts-check
// Rows: workbench/viz/data/rows.py decides names, heights and families; here they come one below the other. Shut, a family is
// one row with the envelope of its members, never one memory; open, its members follow it.
import { count, put } from "./elements.js";
import { adjointsOf, envelopeText, remembered, stretches, stripMarks, valueMarks, valuesOf, valueText } from "./envelope.js";
import { lower } from "./lanes.js";
import { passesOf } from "./strips.js";
import { RIGHT, xOf } from "./window.js";

/** The rows of the picture one below the other: all but the members of families that are shut. @param {any} v */
export function placeRows(v) {
  const { rows, lanes, drawing } = v.meta, size = drawing.names.indexOf(v.left);
  v.lanes = [];
  v.rowOf = new Int32Array(lanes.length);
  v.bottom = 0;
  const onTop = v.pinned.map((/** @type {number} */ k) => rows.find((/** @type {any} */ row) => row.k === k));
  const others = rows.filter((/** @type {any} */ row) => !v.pinned.includes(row.k) && (row.inside < 0 || v.spread.has(row.inside)));
  for (const row of [...onTop, ...others]) {
    const members = row.members.length ? row.members : null, family = row.k - lanes.length, open = v.spread.has(family);
    const [height, labels, note] = row.sizes.slice(0, size + 1).findLast(Boolean), track = members ? { pieces: 1 } : lanes[row.k], top = v.bottom;
    for (const k of members ?? [row.k]) if (!members || !v.pinned.includes(k)) v.rowOf[k] = v.lanes.length;
    v.bottom += open ? drawing.open : height;
    v.lanes.push({ ...track, ...row, track, members, family, open, top, height: v.bottom - top, value: top + row.value, adjoint: top + row.adjoint, labels, note });
  }
}

/** @param {any} v @param {number} f */
const familyRow = (v, f) => v.meta.rows.find((/** @type {any} */ row) => row.k === v.meta.lanes.length + f);

/** Open or shut a family. @param {any} v @param {number} f */
export function toggleFamily(v, f) {
  if (!v.spread.delete(f)) v.spread.add(f);
  placeRows(v);
  v.drawMap();
  v.draw();
  v.say(`${familyRow(v, f).names[0][0]} ${v.spread.has(f) ? "unfolded" : "folded"}`);
}

/** These lanes on top of all others, out of their families. @param {any} v @param {number[]} lanes */
export function pin(v, lanes) {
  v.pinned = lanes;
  v.aimed = true;
  placeRows(v);
  v.plot.scrollTop = 0;
}

/** Bring a lane into sight: out of its family, and scrolled to. @param {any} v @param {number} k */
export function showLane(v, k) {
  const f = v.meta.rows.find((/** @type {any} */ row) => row.k === k).inside;
  if (f >= 0 && !v.spread.has(f) && !v.pinned.includes(k)) toggleFamily(v, f);
  showRow(v, v.lanes[v.rowOf[k]]);
}

/** Scroll as little as shows a row. @param {any} v @param {any} row */
export function showRow(v, row) {
  const tall = v.plot.clientHeight - v.head;
  if (row && row.top < v.plot.scrollTop) v.plot.scrollTop = row.top;
  else if (row && row.top + row.height > v.plot.scrollTop + tall) v.plot.scrollTop = Math.min(row.top, row.top + row.height - tall);
}

/** At first the lane in which the gradient starts is in sight. @param {any} v */
export function showSeed(v) {
  if (v.aimed || !v.levels || !v.plot.clientHeight) return;
  v.aimed = true;
  const { e1, state, lane } = v.levels.bars, seeded = e1.findIndex((/** @type {number} */ e, /** @type {number} */ k) => e === v.n && state[k] !== 1);
  if (seeded >= 0) showRow(v, v.lanes[v.rowOf[lane[seeded]]]);
}

/** The name of a family: as on a stack of labels. @param {any} v @param {any} row */
export function composeFamilyName(v, row) {
  const y = row.top + (row.open ? 5 : 12), [text, x, , width] = row.labels[0], hit = hitOf(v, row.names[0][0]);
  for (const by of row.open ? [0] : [6, 3, 0]) put(v, "rect", `chip stack${hit}`, { x: x + by, y: y + by, width, height: 20, rx: 10, "data-family": row.family });
  put(v, "text", "mono", { x: x + width / 2, y: y + 14, "text-anchor": "middle", "font-size": 11.5 }, `${row.open ? "−" : "+"} ${text}`);
  if (!row.open) put(v, "text", "faint", { x: 16, y: y + 40, "font-size": row.note[2] }, row.note[1]);
}

/** What marks a name that the search has found. @param {any} v @param {string} name */
export const hitOf = (v, name) => (v.query && name.toLowerCase().includes(v.query) ? " found" : "");

/** How many reads, writes and accumulations there are from one row of `onLane` to another. @param {any} tape @param {number} from @param {number} to */
export function accessesOf({ onLane, touches }, from, to) {
  const seen = [0, 0, 0];
  for (let k = from; k < to; k++) seen[touches.how[onLane.rows[k]]]++;
  return seen;
}

/** Reads, writes and accumulations in words; nothing if there are none. @param {number[]} seen */
export const accessText = (seen) => ["read", "write", "accumulation"].flatMap((what, k) => (seen[k] ? [count(seen[k], what)] : [])).join(", ");

/** The name of a moment that the reverse pass came from. @param {any} v */
export const placeOf = (v) => (/** @type {number} */ m) => (m < v.n ? v.tape.heading(m) : "the seed");

/** How many reads, writes and accumulations all members have in a column. @param {any} v @param {any} row @param {any} col */
const accessesIn = (v, row, col) => remembered(v.tape.seen, "access", row.members, [col.a, col.b], () => {
  const { onLane, touchEvent } = v.tape, seen = [0, 0, 0];
  for (const m of row.members) {
    const [from, to] = [col.a, col.b].map((e) => lower(onLane.start[m], onLane.start[m + 1], (n) => touchEvent[onLane.rows[n]], e));
    accessesOf(v.tape, from, to).forEach((many, how) => { seen[how] += many; });
  }
  return seen;
});

/** The columns in which any member is accessed. @param {any} v @param {any} row @param {(col: any, seen: number[]) => void} take */
export function eachAccess(v, row, take) {
  for (const col of v.cols) {
    const seen = accessesIn(v, row, col);
    if (seen.some(Boolean)) take(col, seen);
  }
}

/** What is drawn of a family: between the columns the moments, inside a column of many events its stretches; as
 * the edges of stretches in each column (`parts`), and where each of them begins and ends. @param {any} v */
function stretchesInSight(v) {
  /** @type {{parts: number[][], from: number[], to: number[], at: number[]}} */ const out = { parts: [], from: [], to: [], at: [] };
  const add = (/** @type {number} */ e, /** @type {number} */ from, /** @type {number} */ to) => { out.at.push(e); out.from.push(from); out.to.push(to); };
  let x = xOf(v, v.cols[0].a - 1);
  for (const col of v.cols) {
    const many = col.b - col.a > 1, left = many ? col.x - col.w / 2 : col.x, right = many ? col.x + col.w / 2 : col.x;
    add(col.a, x, left);
    const inner = many ? stretches(col.a, col.b, col.w / 2) : [col.a, col.b], place = (/** @type {number} */ e) => left + ((right - left) * (e - col.a)) / (col.b - col.a);
    for (let k = 0; k + 1 < inner.length; k++) add(inner[k], place(inner[k]), place(inner[k + 1]));
    out.parts.push([col.a, ...inner]);
    x = right;
  }
  const last = v.cols.at(-1);
  add(last.b, x, last.b < v.n ? v.wide - RIGHT + 8 : xOf(v, v.n));
  out.parts.push([last.b, last.b]);
  return out;
}

/** The envelope of a family. @param {any} v @param {any} row */
export function composeEnvelope(v, row) {
  if (!v.cols.length) return;
  const { parts, from, to, at } = stretchesInSight(v), middle = row.adjoint + row.tall / 2;
  for (const [look, first, last, tall] of valueMarks(valuesOf(v.tape, v.levels, row.members, parts), row.tall, v.meta.drawing.thick[3])) {
    put(v, "rect", look, { x: from[first], y: row.value + (row.tall - tall) / 2, width: Math.max(to[last - 1] - from[first], 1), height: tall });
  }
  for (const [side, shift, cap, twin] of passesOf(v, row.tall)) {
    for (const [look, first, last, thick] of stripMarks(adjointsOf(v.tape, side, row.members, parts), side.scale, v.meta.drawing.thick)) {
      const t = Math.min(thick, cap), w = to[last - 1] - from[first];
      if (w > 0) put(v, "rect", `${look}${twin}`, { x: from[first], y: middle + shift - t / 2, width: w, height: t }).e = at[first];
    }
  }
}

/** A family in a column, in words. @param {any} v @param {any} col @param {any} row */
export function describeFamily(v, col, row) {
  const lines = [`${row.names[0][0]} ×${row.members.length}, ${col.b - col.a === 1 ? v.tape.heading(col.a) : `#${col.a} to #${col.b - 1}`}`];
  const place = placeOf(v), seen = accessText(accessesIn(v, row, col));
  if (seen) lines.push(seen);
  for (const [side, what] of v.levels ? [[v.levels, "adjoint"], ...(v.other ? [[v.other, "the other"]] : [])] : []) {
    const found = adjointsOf(v.tape, side, row.members, [[col.a, col.a, col.b, col.b]]), text = (/** @type {number} */ k) => envelopeText(found, k, place);
    lines.push(col.b - col.a === 1 ? `${what} before: ${text(0)}, after: ${text(2)}` : `${what}: ${text(1)}`);
  }
  const ill = valueText(valuesOf(v.tape, v.levels, row.members, [col.b - col.a === 1 ? [col.b, col.b] : [col.a, col.b]]), 0, place);
  return [...lines, ...(ill ? [ill] : [])].join("\n");
}
