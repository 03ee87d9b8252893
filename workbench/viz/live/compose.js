// @ts-check
// The window as a list of marks: lanes, versions, adjoints, accesses, arrows. Nothing is drawn here, and nothing decided
// about a mark but its x: rows, heights, classes, sizes and texts come from workbench/viz/data (rows.py, marks.py).
import { composeFolded, composeOutlines, composeTag, oddOf, stripes } from "./against.js";
import { put } from "./elements.js";
import { composeCells, composeHead, headHeight } from "./heads.js";
import { accessesOf, composeEnvelope, composeFamilyName, eachAccess, hitOf } from "./families.js";
import { illThick } from "./envelope.js";
import { eachWithin, lower } from "./lanes.js";
import { composeRange } from "./range.js";
import { composeStrips, stripsOf } from "./strips.js";
import { bunch, colOf, columnsOf, room, unseen, xOf } from "./window.js";

const BUDGET = 1900;
/** @type {Record<string, string>} */ const TIPS = { "arrow ill": "illtip", "arrow cut": "stop" };

/** The marks of the window: as few units to a column as the budget allows. @param {any} v */
export function composed(v) {
  v.grouped = bunch(v.u1 - v.u0, room(v));
  for (let tries = 0; tries < 24; tries++) {
    v.marks = [];
    columnsOf(v, v.grouped);
    v.strips = stripsOf(v);
    v.plain = v.cols.some((/** @type {any} */ col) => col.b - col.a === 1); // else strips hide whatever passes below
    headHeight(v);
    compose(v);
    if (v.marks.length <= BUDGET) break;
    v.grouped *= 2;
  }
}

/** The height of the picture: what the lanes need, as far as there is room. @param {any} v */
export const tallOf = (v) => Math.min(v.printing ? Infinity : Math.max(v.tallest, v.head + 70), (v.bottom || 20) + v.head + 12);

/** The lanes that are scrolled into sight. @param {any} v */
function shownLanes(v) {
  const top = v.plot.scrollTop, tall = tallOf(v);
  const first = lower(0, v.lanes.length, (k) => v.lanes[k].top + v.lanes[k].height, top + 0.5);
  const last = lower(0, v.lanes.length, (k) => v.lanes[k].top, top + tall - v.head);
  return v.lanes.slice(first, Math.max(last, first + 1));
}

/** @param {any} v */
function compose(v) {
  const shown = shownLanes(v);
  for (const lane of shown) (lane.members ? composeFamily : composeLane)(v, lane);
  if (v.grouped === 1 && v.levels) composeArrows(v, shown);
  for (const lane of shown) (lane.members ? composeAccesses : composeTouches)(v, lane);
  composeTag(v, shown);
  composeRange(v);
  composeHead(v);
  composeCells(v, shown);
}

/** @param {any} v @param {any} lane */
function composeLane(v, lane) {
  put(v, "path", "rule", { d: `M0 ${lane.top}H${v.wide}` });
  composeNames(v, lane);
  composeTracks(v, lane);
  if (v.plain) composeBlocks(v, lane);
  if (v.plain && v.levels) composeBars(v, lane, v.levels);
  if (v.plain && v.other) composeOutlines(v, lane, stretch);
  composeStrips(v, lane);
  if (v.other) composeFolded(v, lane);
  composeMarked(v, lane);
}

/** What the tracks of a lane are. @param {any} v @param {any} lane */
function composeTracks(v, lane) {
  put(v, "text", "faint", { x: v.left - 10, y: lane.value + lane.tall / 2 + 3.5, "text-anchor": "end", "font-size": 10 }, "value");
  put(v, "text", "hot", { x: v.left - 10, y: lane.adjoint + lane.tall / 2 + 3.5, "text-anchor": "end", "font-size": 10 }, "adjoint");
}

/** Lanes of one kind as one row: the envelope of all of them. @param {any} v @param {any} row */
function composeFamily(v, row) {
  put(v, "path", "rule", { d: `M0 ${row.top}H${v.wide}` });
  composeFamilyName(v, row);
  if (row.open) return;
  composeTracks(v, row);
  composeEnvelope(v, row);
  composeMarked(v, row);
  if (v.other) composeFolded(v, row, row.members);
}

/** @param {any} v @param {any} row */
function composeAccesses(v, row) {
  if (!row.open) eachAccess(v, row, (col, seen) => composeSigns(v, row, col, seen));
}

/** The band that the shown finding is about: values from its launch on, or adjoints up to it; `all` of them where they grow. @param {any} v @param {any} lane */
function composeMarked(v, lane) {
  if (!(lane.members ?? [lane.k]).some((/** @type {number} */ k) => v.marked?.lanes.has(k) && (lane.k === k || !v.pinned.includes(k)))) return;
  const { from, reverse, all } = v.marked, x = xOf(v, reverse ? -1 : from), end = xOf(v, reverse && !all ? from : v.n), y = reverse ? lane.adjoint : lane.value;
  if (end > x) put(v, "rect", "marked", { x, y: y - 3, width: end - x, height: lane.tall + 6, rx: 4 });
}

/** The names of a lane, and the note below them. @param {any} v @param {any} lane */
function composeNames(v, lane) {
  const aliased = lane.track.names.length > 1, fill = aliased ? { style: `fill:url(#${v.uid}-shared)` } : {}, [look, note, size] = lane.note;
  let y = lane.top + 12;
  lane.labels.forEach(([/** @type {string} */ text, /** @type {number} */ x, /** @type {number} */ line, /** @type {number} */ width], /** @type {number} */ k) => {
    const name = lane.names[k][0];
    y = lane.top + 12 + v.meta.drawing.line * line;
    put(v, "rect", `chip${aliased ? " shared" : ""}${hitOf(v, name)}`, { x, y, width, height: 20, rx: 10, "data-lane": lane.k, "data-name": name, ...fill });
    if (aliased) put(v, "rect", "chipground", { x: x + 3, y: y + 3, width: width - 6, height: 14, rx: 7 });
    put(v, "text", "mono", { x: x + width / 2, y: y + 14, "text-anchor": "middle", "font-size": 11.5 }, text);
  });
  put(v, "text", look, { x: 16, y: y + 36, "font-size": size }, note);
}

/** Is a stretch of the tape out of sight, or inside one column: nothing is drawn of it. Else its ends.
 * @param {any} v @param {number} e0 @param {number} e1 */
function stretch(v, e0, e1) {
  if (unseen(v, e0, e1)) return null;
  const { moment } = v.meta.drawing;
  const x = xOf(v, e0) + (e0 < 0 ? 0 : moment), end = xOf(v, e1) - (e1 < v.n ? moment : 0);
  return { x, end, w: Math.max(end - x, 1) };
}

/** The rows of a lane that last into what is in sight. @param {any} v @param {import("./lanes.js").Spans} on @param {any} lane @param {(row: number) => void} take */
export function eachInSight(v, on, lane, take) {
  if (v.cols.length) eachWithin(on, lane.k, v.cols[0].a, v.cols.at(-1).b, take);
}

/** The versions of a lane. @param {any} v @param {any} lane */
const composeBlocks = (v, lane) => eachInSight(v, v.tape.blocksOn, lane, (b) => composeBlock(v, lane, v.tape.blocks, b));

/** @param {any} v @param {any} lane @param {any} blocks @param {number} b */
function composeBlock(v, lane, blocks, b) {
  const e0 = blocks.e0[b], at = stretch(v, e0, blocks.e1[b]);
  if (!at) return;
  const y = lane.top + blocks.y[b], tall = blocks.tall[b], hatched = blocks.strided[b] ? { style: `fill:url(#${v.uid}-strided)` } : {};
  const state = v.levels?.ill[b] ? v.meta.states[v.levels.ill[b]] : "";
  put(v, "rect", `block${blocks.strided[b] ? " strided" : ""}${blocks.parts[b] ? " parted" : ""}`, { x: at.x, y, width: at.w, height: tall, rx: blocks.radius[b], ...hatched });
  const share = state ? v.levels.share[b] : 0, black = illThick(share, tall, v.meta.drawing.thick[3]);
  if (state) put(v, "rect", `block ${state}`, { x: at.x, y: y + tall - black, width: at.w, height: black, rx: blocks.radius[b] });
  if (!v.cols[0].a || e0 >= v.cols[0].a) put(v, "rect", "blockstart", { x: at.x, y, width: Math.min(4, at.w), height: tall, rx: 1 });
  const [first, other, room] = v.meta.drawing.label, indent = e0 < v.cols[0].a ? first : other;
  const [dx, least] = v.meta.drawing.ill;
  if (state && at.w > least) put(v, "path", `sign ${state}`, { d: signPath(state, at.x + at.w - dx, y + tall / 2, Math.min(4, tall / 2 - 1)) });
  const text = `${v.meta.prefixes[blocks.mixed[b]]}${blocks.version[b]}`;
  const limit = Math.min(at.end, v.grouped === 1 ? (v.cols[colOf(v, e0) + 1]?.x ?? Infinity) - room : at.x);
  if (blocks.labelled[b] && limit - at.x - indent >= text.length * 6.2) {
    put(v, "text", share > 0.5 ? "mono illtext" : "mono", { x: at.x + indent, y: y + tall / 2 + 3.6, "font-size": 10 }, text);
  }
}

/** The adjoint of a lane. @param {any} v @param {any} lane @param {import("./lanes.js").Levels} side */
function composeBars(v, lane, side) {
  const { bars, barsOn } = side;
  composeAbsent(v, lane, side);
  eachInSight(v, barsOn, lane, (bar) => {
    const e = bars.e1[bar], at = stretch(v, bars.e0[bar], e), state = v.meta.states[bars.state[bar]];
    if (!at) return;
    const y = lane.top + bars.y[bar], thick = bars.thick[bar], cls = `bar ${state}${oddOf(v, bars.parts[bar])}`;
    put(v, "rect", cls, { x: at.x, y: y - thick / 2, width: at.w, height: thick, rx: thick / 2, opacity: bars.opacity[bar], ...stripes(v, cls) }).e = e;
    if (bars.sign[bar] && at.w > 14) put(v, "path", `sign ${state}`, { d: signPath(state, at.x + at.w / 2, y, Math.max(Math.min(bars.sign[bar], v.other ? thick / 2 - 1 : Infinity), 1.5)) }).e = e;
  });
  composeMeets(v, lane, side);
}

/** The cross of NaN, the I of Inf. @param {string} state @param {number} x @param {number} y @param {number} r */
const signPath = (state, x, y, r) => (state === "nan" ? `M${x - r} ${y - r}l${2 * r} ${2 * r}m${-2 * r} 0l${2 * r} ${-2 * r}` : `M${x - 3} ${y - r}h6m-3 0v${2 * r}m-3 0h6`);

/** How many contributions meet in a bar. @param {any} v @param {any} lane @param {import("./lanes.js").Levels} side */
function composeMeets(v, lane, { meets, meetsOn }) {
  eachInSight(v, meetsOn, lane, (one) => {
    const e = meets.event[one], c = colOf(v, e);
    if (c < 0 || v.cols[c].b - v.cols[c].a > 1) return;
    const x = v.cols[c].x + v.meta.drawing.meet, y = lane.top + meets.y[one];
    put(v, "circle", "meet", { cx: x, cy: y, r: meets.radius[one] }).e = e;
    if (meets.met[one]) put(v, "text", "meettext", { x, y: y + 3.5, "font-size": meets.size[one] }, `+${meets.met[one]}`).e = e;
  });
}

/** No adjoint below a value that somebody used. @param {any} v @param {any} lane @param {import("./lanes.js").Levels} side */
function composeAbsent(v, lane, { absent, absentOn }) {
  eachInSight(v, absentOn, lane, (one) => {
    const e0 = absent.e0[one], e1 = absent.e1[one], thick = absent.thick[one];
    if (v.marks.length > BUDGET || unseen(v, e0, e1)) return;
    const x = xOf(v, e0), end = xOf(v, e1);
    if (end > x) put(v, "rect", "absent", { x, y: lane.top + absent.y[one] - thick / 2, width: end - x, height: thick, fill: `url(#${v.uid}-absent)` });
  });
}

/** Per column what of a sorted table is in it. @param {any} v @param {{start: Int32Array, rows: Int32Array}} on
 * @param {any} lane @param {Int32Array} eventOf @param {(col: any, from: number, to: number) => void} take */
function eachColumn(v, on, lane, eventOf, take) {
  if (!v.cols.length) return;
  const end = on.start[lane.k + 1];
  let k = lower(on.start[lane.k], end, (m) => eventOf[on.rows[m]], v.cols[0].a);
  for (const col of v.cols) {
    const from = k;
    while (k < end && eventOf[on.rows[k]] < col.b) k++;
    if (from < k) take(col, from, k);
  }
}

/** Reads, writes and kept bytes. @param {any} v @param {any} lane */
function composeTouches(v, lane) {
  const { onLane, keptOn, touchEvent, keptEvent } = v.tape;
  eachColumn(v, onLane, lane, touchEvent, (col, from, to) => {
    if (col.b - col.a > 1) composeSigns(v, lane, col, accessesOf(v.tape, from, to));
    else composeOne(v, lane, col, from, to);
  });
  eachColumn(v, keptOn, lane, keptEvent, (col, from, to) => composeKept(v, lane, col, from, to));
}

/** How far a sign may go to the left. @param {number} slot @param {any} v @param {any} col @param {number} room */
const slotOf = (slot, v, col, room) => Math.min(slot, Math.max(Math.floor((col.w / 2 - room) / v.meta.drawing.slot), 0)) * v.meta.drawing.slot;

/** @param {any} v @param {any} lane @param {any} col @param {number} from @param {number} to */
function composeKept(v, lane, col, from, to) {
  const { kept, keptOn, spots } = v.tape, many = col.b - col.a > 1;
  for (let k = from; k < (many ? from + 1 : to); k++) {
    const row = keptOn.rows[k], range = kept.range[row];
    const r = many ? 5 : spots.half[range], y = many ? lane.value + lane.tall / 2 : lane.top + spots.y[range];
    const x = col.x + (many ? -16 : v.meta.drawing.kept - slotOf(kept.slot[row], v, col, 8));
    put(v, "path", "kept", { d: `M${x} ${y - r}V${y + r}M${x - 3.2} ${y + r - 3.6}L${x} ${y + r}L${x + 3.2} ${y + r - 3.6}` });
  }
}

/** @param {any} v @param {any} lane @param {any} col @param {number} from @param {number} to */
function composeOne(v, lane, col, from, to) {
  const { touches, onLane, spots } = v.tape;
  for (let k = from; k < to; k++) {
    const t = onLane.rows[k], range = touches.range[t], [, , dx] = v.meta.drawing.signs[touches.how[t]];
    sign(v, touches.how[t], col.x + dx - slotOf(touches.slot[t], v, col, 12), lane.top + spots.y[range], spots.radius[range]);
  }
}

/** The sign of one way to access memory. @param {any} v @param {number} how @param {number} x @param {number} y @param {number} radius */
function sign(v, how, x, y, radius) {
  const [cls, shape, , more] = v.meta.drawing.signs[how], r = radius + more;
  if (shape === "circle") put(v, "circle", cls, { cx: x, cy: y, r });
  else if (shape === "square") put(v, "rect", cls, { x: x - r, y: y - r, width: 2 * r, height: 2 * r });
  else put(v, "path", cls, { d: `M${x} ${y - r}l${r} ${r}l${-r} ${r}l${-r} ${-r}z` });
}

/** One sign of each kind that there is. @param {any} v @param {any} lane @param {any} col @param {number[]} seen */
function composeSigns(v, lane, col, seen) {
  const y = lane.value + lane.tall / 2;
  if (seen[0]) sign(v, 0, col.x - 7, y, 3.5);
  if (seen[1]) sign(v, 1, col.x + 3, y, 3.5);
  if (seen[2]) sign(v, 2, col.x + (seen[1] ? 12 : 3), y, 3.5);
}

/** The height of an arrow's end on a lane; the middle of a family that is shut. @param {any} v @param {number} lane @param {number} y */
function adjointAt(v, lane, y) {
  const row = v.lanes[v.rowOf[lane]];
  return row.members ? row.adjoint + row.tall / 2 : row.top + y;
}

/** Where the adjoint goes at each event in sight. @param {any} v @param {any[]} shown */
function composeArrows(v, shown) {
  const { arrows } = v.levels, lanes = new Set(shown.flatMap((lane) => lane.members ?? lane.k)), { cut } = v.meta.drawing, [from, to] = v.meta.drawing.arrow, [most, part, far] = v.meta.drawing.bend;
  let k = v.cols.length ? lower(0, arrows.event.length, (m) => arrows.event[m], v.cols[0].a) : arrows.event.length;
  for (const col of v.cols) {
    for (; k < arrows.event.length && arrows.event[k] < col.b; k++) {
      const source = arrows.source[k], target = arrows.target[k], look = v.meta.looks[arrows.look[k]];
      if (col.b - col.a > 1 || !lanes.has(source) || !lanes.has(target)) continue;
      if (v.rowOf[source] === v.rowOf[target] && source !== target) continue; // inside a family
      const y0 = adjointAt(v, source, arrows.y0[k]), end = adjointAt(v, target, arrows.y1[k]), y1 = look === "arrow cut" ? y0 + cut * (end - y0) : end;
      const x0 = col.x + from, x1 = col.x + to, bend = Math.min(most, part * col.w), tip = TIPS[look] ?? "tip";
      put(v, "path", look, { d: `M${x0} ${y0}C${x0 - bend} ${y0} ${x1 + far * bend} ${y1} ${x1} ${y1}`, "stroke-width": arrows.size[k], "marker-end": `url(#${v.uid}-${tip})` }).e = col.a;
    }
  }
}
