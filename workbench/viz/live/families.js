// @ts-check
// Lanes of one list or one kind under one name: workbench/viz/data/families.py. Shut, a family is one row with the
// envelope of its members, never one memory; open, its members follow it. Moves what the columns place on the lanes.
import { count, fit, put } from "./elements.js";
import { adjointsOf, envelopeText, remembered, stretches, stripMarks, valueMarks, valuesOf, valueText } from "./envelope.js";
import { lower } from "./lanes.js";
import { passesOf } from "./strips.js";
import { RIGHT, xOf } from "./window.js";

const TRACK = 15, SHUT_ROW = 62, OPEN_ROW = 30;

/** The rows of the picture: lanes and families, from top to bottom. @param {any} v */
export function placeRows(v) {
  const { lanes, families } = v.meta, of = new Map();
  families.forEach((/** @type {any} */ family, /** @type {number} */ f) => family[2].forEach((/** @type {number} */ k) => of.set(k, f)));
  v.lanes = [];
  v.shift ??= new Float64Array(lanes.length); // how far each lane lies below where its columns say
  v.rowOf = new Int32Array(lanes.length);
  let top = 0;
  const add = (/** @type {number} */ k) => {
    const track = lanes[k], height = Math.max(track.height, namesHeight(v, track)), by = (v.shift[k] = top - track.top);
    v.rowOf[k] = v.lanes.length;
    v.lanes.push({ ...track, k, track, top, height, value: track.value + by, adjoint: track.adjoint + by });
    top += height;
  };
  const seen = new Set();
  lanes.forEach((/** @type {any} */ _, /** @type {number} */ k) => {
    const f = of.get(k);
    if (f === undefined) { add(k); return; }
    if (seen.has(f)) return;
    seen.add(f);
    const [name, note, members] = families[f], open = v.spread.has(f), height = open ? OPEN_ROW : SHUT_ROW;
    const row = { k: lanes.length + f, family: f, members, open, name, note, top, height, value: top + 10, adjoint: top + 35, tall: TRACK, pieces: 1 };
    for (const m of members) {
      v.rowOf[m] = v.lanes.length;
      v.shift[m] = row.adjoint + (TRACK - lanes[m].tall) / 2 - lanes[m].adjoint; // where arrows go
    }
    v.lanes.push(row);
    top += height;
    if (open) members.forEach(add);
  });
  v.bottom = top;
  move(v, v.tape, [[v.tape.blocks.y, v.tape.blocks.lane], [v.tape.spots.y, v.meta.ranges.map((/** @type {any} */ r) => r[0])]]);
  for (const side of [v.levels, v.other]) if (side) {
    const { bars, absent, meets, arrows } = side;
    move(v, side, [[bars.y, bars.lane], [absent.y, absent.lane], [meets.y, meets.lane], [arrows.y0, arrows.from], [arrows.y1, arrows.to]]);
  }
}

/** The width of a label. @param {string} text */
const chipWide = (text) => text.length * 7.05 + 18;

/** The names of a lane as labels, `[text, title, name, x, row, width]`, in as many rows as they need.
 * @param {any} v @param {any} lane @returns {[string, string, string, number, number, number][]} */
export function placedChips(v, lane) {
  const edge = v.left - 52;
  let x = 14, row = 0;
  return lane.chips.map(([/** @type {string} */ text, /** @type {string} */ title, /** @type {string} */ name]) => {
    const shown = fit(text, edge - 32, 11.5), w = chipWide(shown);
    if (x > 14 && x + w > edge) { x = 14; row++; }
    x += w + 6;
    return [shown, title, name, x - w - 6, row, w];
  });
}

/** The height that a lane needs for its names and the note below them. @param {any} v @param {any} lane */
function namesHeight(v, lane) {
  const rows = (placedChips(v, lane).at(-1)?.[4] ?? 0) + 1;
  return rows > 1 ? 30 + 24 * rows : 0;
}

/** Move what lies on the lanes to where they are now. @param {any} v @param {any} held @param {[Float32Array, ArrayLike<number>][]} tables */
function move(v, held, tables) {
  const was = held.shift ?? new Float64Array(v.shift.length), by = v.shift.map((/** @type {number} */ to, /** @type {number} */ k) => to - was[k]);
  held.shift = v.shift.slice();
  if (by.some((/** @type {number} */ d) => d)) for (const [y, lane] of tables) for (let k = 0; k < y.length; k++) y[k] += by[lane[k]];
}

/** Open or shut a family. @param {any} v @param {number} f */
export function toggleFamily(v, f) {
  if (!v.spread.delete(f)) v.spread.add(f);
  placeRows(v);
  v.drawMap();
  v.draw();
  v.say(`${v.meta.families[f][0]} ${v.spread.has(f) ? "unfolded" : "folded"}`);
}

/** Bring a lane into sight: out of its family, and scrolled to. @param {any} v @param {number} k */
export function showLane(v, k) {
  const f = v.meta.families.findIndex((/** @type {any} */ family) => family[2].includes(k));
  if (f >= 0 && !v.spread.has(f)) toggleFamily(v, f);
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
  const count = ` ×${row.members.length}`, edge = v.left - 52, y = row.top + (row.open ? 5 : 12);
  const text = `${row.open ? "−" : "+"} ${fit(row.name, edge - 46 - 7.1 * count.length, 11.5)}${count}`, w = text.length * 7.05 + 18;
  const hit = v.query && row.name.toLowerCase().includes(v.query) ? " found" : "";
  for (const by of row.open ? [0] : [6, 3, 0]) put(v, "rect", `chip stack${hit}`, { x: 14 + by, y: y + by, width: w, height: 20, rx: 10, "data-family": row.family });
  put(v, "text", "mono", { x: 14 + w / 2, y: y + 14, "text-anchor": "middle", "font-size": 11.5 }, text);
  if (!row.open) put(v, "text", "faint", { x: 16, y: y + 40, "font-size": 10 }, fit(row.note, edge - 10, 9));
}

/** How many reads, writes and accumulations all members have in a column. @param {any} v @param {any} row @param {any} col */
const accessesIn = (v, row, col) => remembered(v.tape.seen, "access", row.members, [col.a, col.b], () => {
  const { onLane, touchEvent, touches } = v.tape, seen = [0, 0, 0];
  for (const m of row.members) {
    const end = onLane.start[m + 1];
    let k = lower(onLane.start[m], end, (n) => touchEvent[onLane.rows[n]], col.a);
    for (; k < end && touchEvent[onLane.rows[k]] < col.b; k++) seen[touches.how[onLane.rows[k]]]++;
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
  const last = v.cols[v.cols.length - 1];
  add(last.b, x, last.b < v.n ? v.wide - RIGHT + 8 : xOf(v, v.n));
  out.parts.push([last.b, last.b]);
  return out;
}

/** The envelope of a family. @param {any} v @param {any} row */
export function composeEnvelope(v, row) {
  if (!v.cols.length) return;
  const { parts, from, to, at } = stretchesInSight(v), middle = row.adjoint + TRACK / 2;
  for (const [look, first, last, tall] of valueMarks(valuesOf(v.tape, v.levels, row.members, parts), TRACK)) {
    put(v, "rect", look, { x: from[first], y: row.value, width: Math.max(to[last - 1] - from[first], 1), height: tall });
  }
  for (const [side, shift, cap, twin] of passesOf(v, TRACK)) {
    for (const [look, first, last, thick] of stripMarks(adjointsOf(v.tape, side, row.members, parts), side.scale, v.meta.drawing.thick)) {
      const t = Math.min(thick, cap), w = to[last - 1] - from[first];
      if (w > 0) put(v, "rect", `${look}${twin}`, { x: from[first], y: middle + shift - t / 2, width: w, height: t }).e = at[first];
    }
  }
}

/** A family in a column, in words. @param {any} v @param {any} col @param {any} row */
export function describeFamily(v, col, row) {
  const lines = [`${row.name} ×${row.members.length}, ${col.b - col.a === 1 ? v.tape.heading(col.a) : `#${col.a} to #${col.b - 1}`}`];
  const place = (/** @type {number} */ m) => (m < v.n ? v.tape.heading(m) : "the seed");
  const seen = accessesIn(v, row, col);
  if (seen.some(Boolean)) lines.push([count(seen[0], "read"), count(seen[1], "write"), count(seen[2], "accumulation")].filter((t) => !t.startsWith("0")).join(", "));
  for (const [side, what] of v.levels ? [[v.levels, "adjoint"], ...(v.other ? [[v.other, "the other"]] : [])] : []) {
    const found = adjointsOf(v.tape, side, row.members, [[col.a, col.a, col.b, col.b]]), text = (/** @type {number} */ k) => envelopeText(found, k, place);
    lines.push(col.b - col.a === 1 ? `${what} before: ${text(0)}, after: ${text(2)}` : `${what}: ${text(1)}`);
  }
  const ill = valueText(valuesOf(v.tape, v.levels, row.members, [col.b - col.a === 1 ? [col.b, col.b] : [col.a, col.b]]), 0, place);
  return [...lines, ...(ill ? [ill] : [])].join("\n");
}
