// @ts-check
// Columns that hold many events, as strips of thin columns: each of them as thick as what is in it, and black where a
// NaN or an infinity is. Neighbouring columns of this kind are one strip.
import { clamp, put } from "./elements.js";
import { adjointsOf, stretches, stripMarks, valueMarks, valuesOf } from "./envelope.js";

const THIN = 1.5, EDGE = 3; // pixels: of a thin column at least; left free beside a fold

/** Where events [col.a, col.b) of a column lie. @param {any} col */
const inside = (col) => {
  const pad = col.fold >= 0 ? Math.min(EDGE, col.w / 8) : 0;
  return [col.x - col.w / 2 + pad, col.w - 2 * pad];
};

/** The place of a moment (or with a half: of an event) in a column that holds it. @param {any} col @param {number} e */
export function placeIn(col, e) {
  const [x, w] = inside(col);
  return x + (w * (e - col.a)) / (col.b - col.a);
}

/** The event, with its fraction, at a place in such a column. @param {any} col @param {number} at */
export function eventIn(col, at) {
  const [x, w] = inside(col);
  return col.a + (clamp(at - x, 0, w) / w) * (col.b - col.a);
}

/** The edges of the thin columns of a column: of each turn of a loop one, or of as few turns as have room.
 * @param {any} col @returns {ArrayLike<number>} */
function partsIn(col) {
  const room = Math.max(Math.floor(inside(col)[1] / THIN), 1), { turns } = col;
  if (!turns) return stretches(col.a, col.b, room);
  return stretches(0, turns.length, room).map((k) => turns[k] ?? col.b);
}

/** The strips in sight: columns, edges of their stretches (`parts`: of each column), and where each stretch begins and ends.
 * @param {any} v */
export function stripsOf(v) {
  /** @type {any[]} */ const strips = [];
  let now = null;
  for (const col of v.cols) {
    if (col.b - col.a < 2) { now = null; continue; }
    const rise = col.turns && !v.other ? v.meta.drawing.curve : 0; // two passes are drawn one on the other
    if (now?.rise !== rise) strips.push((now = { a: col.a, b: col.b, rise, edges: [col.a], parts: [], from: [], to: [] }));
    const edges = partsIn(col);
    now.parts.push(edges);
    for (let k = 1; k < edges.length; k++) {
      now.from.push(placeIn(col, edges[k - 1]));
      now.to.push(placeIn(col, edges[k]));
      now.edges.push(edges[k]);
    }
    now.b = col.b;
  }
  for (const strip of strips) strip.edges = Int32Array.from(strip.edges);
  return strips;
}

/** The passes whose adjoints a lane shows as strips: with the way from its middle, the most thickness, and the look.
 * @param {any} v @param {number} tall @returns {[any, number, number, string][]} */
export function passesOf(v, tall) {
  const [here, there] = v.meta.drawing.passes;
  return !v.levels ? [] : v.other ? [[v.levels, ...here], [v.other, ...there]] : [[v.levels, 0, tall, ""]];
}

/** The strips of a lane, over whatever passes below them. @param {any} v @param {any} lane */
export function composeStrips(v, lane) {
  for (const strip of v.strips) {
    const x = strip.from[0], wide = strip.to.at(-1) - x;
    put(v, "rect", "stripground", { x, y: lane.value - 1, width: wide, height: lane.adjoint + lane.tall + 2 - lane.value });
    const values = valuesOf(v.tape, v.levels, [lane.k], strip.parts);
    drawn(v, strip, valueMarks(values, lane.tall, v.meta.drawing.thick[3]), lane.value + lane.tall / 2, lane.tall);
    if (!v.levels) continue;
    for (const [side, shift, cap, twin] of passesOf(v, lane.tall)) {
      const marks = stripMarks(adjointsOf(v.tape, side, [lane.k], strip.parts), side.scale, v.meta.drawing.thick);
      drawn(v, strip, marks, lane.adjoint + (strip.rise ? lane.tall : lane.tall / 2 + shift), cap * (strip.rise || 1), twin, strip.rise);
    }
    const high = (strip.rise || 1) * lane.tall;
    put(v, "rect", "veil", { x, y: lane.adjoint + lane.tall - high - 1, width: 0, height: high + 2 }).strip = strip;
  }
}

/** @param {number} x */
const tenth = (x) => Math.round(x * 10) / 10;

/** One path for all parts that look the same: around y, or as a curve that stands on y and is `rise` times as high.
 * @param {any} v @param {any} strip @param {any[][]} parts @param {number} y @param {number} cap @param {string} [twin] @param {number} [rise] */
function drawn(v, strip, parts, y, cap, twin = "", rise = 0) {
  /** @type {Record<string, string>} */ const paths = {};
  let crosses = "";
  for (const [look, first, last, thick] of parts) {
    const x = strip.from[first], w = Math.max(strip.to[last - 1] - x, 1) + (rise && 0.4), t = Math.min(thick * (rise || 1), cap);
    paths[look] = `${paths[look] ?? ""}M${tenth(x)} ${tenth(rise ? y : y - t / 2)}h${tenth(w)}v${tenth(rise ? -t : t)}H${tenth(x)}z`;
    const r = Math.min(t / 2 - 1.5, 4), middle = rise ? y - t / 2 : y;
    if (look.endsWith(" nan") && w > 9 && r > 1) crosses += `M${x + w / 2 - r} ${middle - r}l${2 * r} ${2 * r}m${-2 * r} 0l${2 * r} ${-2 * r}`;
  }
  for (const [look, d] of Object.entries(paths)) put(v, "path", `strip ${look}${twin}`, { d });
  if (crosses) put(v, "path", "strip sign nan", { d: crosses });
}

/** What of a strip the reverse pass has not reached at moment `c` is covered. @param {any} v @param {number} c */
export function veil(v, c) {
  for (const { node, strip } of v.veils) {
    const k = strip.edges.findIndex((/** @type {number} */ e) => e > c) - 1; // the stretch that holds the moment
    const part = k < 0 ? 0 : (c - strip.edges[k]) / (strip.edges[k + 1] - strip.edges[k]);
    const x = c <= strip.a ? strip.from[0] : k < 0 ? strip.to.at(-1) : strip.from[k] + part * (strip.to[k] - strip.from[k]);
    node.setAttribute("width", String(Math.max(x - strip.from[0], 0)));
  }
}
