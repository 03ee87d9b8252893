// @ts-check
// The window as a list of marks: lanes, versions, adjoints, accesses, arrows. Nothing is drawn here.
import { bytes, fit, put } from "./elements.js";
import { bracketRows, composeCells, composeHead } from "./heads.js";
import { bars, blocks, levelAt, lower, thickness } from "./lanes.js";
import { bunch, colOf, columnsOf, room, unseen, xOf } from "./window.js";
import { chipText } from "./words.js";

export const TALLEST = 440;
const BUDGET = 1900;
const WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/** The marks of the window: as few units to a column as the budget allows. @param {any} v */
export function composed(v) {
  v.grouped = bunch(v.u1 - v.u0, room(v));
  for (let tries = 0; tries < 24; tries++) {
    v.marks = [];
    columnsOf(v, v.grouped);
    compose(v);
    if (v.marks.length <= BUDGET) break;
    v.grouped *= 2;
  }
}

/** The lanes that are scrolled into sight. @param {any} v */
function shownLanes(v) {
  const top = v.plot.scrollTop, tall = v.plot.clientHeight || TALLEST;
  const first = lower(0, v.lanes.length, (k) => v.lanes[k].top + v.lanes[k].height, top + 0.5);
  const last = lower(0, v.lanes.length, (k) => v.lanes[k].top, top + tall - v.head);
  return v.lanes.slice(first, Math.max(last, first + 1));
}

/** @param {any} v */
export function compose(v) {
  const shown = shownLanes(v);
  for (const lane of shown) composeLane(v, lane);
  if (v.grouped === 1) for (const col of v.cols) if (col.b - col.a === 1) composeArrows(v, col, shown);
  for (const lane of shown) {
    composeTouches(v, lane);
    composeKept(v, lane);
  }
  composeHead(v);
  composeCells(v, shown);
}

/** @param {any} v @param {any} lane */
export function composeLane(v, lane) {
  const { k, track } = lane, y = lane.top;
  put(v, "path", "rule", { d: `M0 ${y}H${v.wide}` });
  composeNames(v, lane);
  put(v, "text", "faint", { x: v.left - 10, y: lane.value + lane.tall / 2 + 3.5, "text-anchor": "end", "font-size": 10 }, "value");
  put(v, "text", "hot", { x: v.left - 10, y: lane.adjoint + lane.tall / 2 + 3.5, "text-anchor": "end", "font-size": 10 }, "adjoint");
  if (!v.blocksOn.has(k)) v.blocksOn.set(k, blocks(v.tape, k));
  const many = v.tape.cuts(k).length > 2;
  for (const block of v.blocksOn.get(k)) composeBlock(v, lane, block, many);
  if (v.levels) composeBars(v, lane, v.levels, v.other ? -4 : 0, "");
  if (v.other) composeBars(v, lane, v.other, 4, " twin");
}

/** The names of a lane, and the note below them. @param {any} v @param {any} lane */
function composeNames(v, lane) {
  const { k, track } = lane;
  let x = 14, cy = lane.top + 12;
  const aliased = track.names.length > 1, edge = v.left - 52;
  const names = track.names.slice(0, 6).map((/** @type {any} */ one) => [chipText(track, one), one]);
  if (track.names.length > 6) names.push([`+${track.names.length - 6} names`, null]);
  names.forEach((/** @type {any[]} */ [text, one]) => {
    const shown = fit(text, edge - 32, 11.5), w = shown.length * 7.05 + 18;
    if (x > 14 && x + w > edge) { x = 14; cy += 24; }
    const hitName = v.query && one && one[0].toLowerCase().includes(v.query) ? " found" : "";
    put(v, "rect", `chip${aliased ? " shared" : ""}${hitName}`, { x, y: cy, width: w, height: 20, rx: 10, "data-lane": k, "data-name": one ? one[0] : "", ...(aliased ? { style: `fill:url(#${v.uid}-shared)` } : {}) });
    if (aliased) put(v, "rect", "chipground", { x: x + 3, y: cy + 3, width: w - 6, height: 14, rx: 7 });
    put(v, "text", "mono", { x: x + w / 2, y: cy + 14, "text-anchor": "middle", "font-size": 11.5 }, shown);
    x += w + 6;
  });
  const note = aliased ? `one memory, ${WORDS[track.names.length] ?? track.names.length} names` : [track.text, bytes(track.nbytes)].filter(Boolean).join(" · ");
  put(v, "text", aliased ? "note" : "faint", { x: 16, y: cy + 36, "font-size": aliased ? 11 : 10 }, fit(note, edge - 10, 9));
}

/** @param {any} v @param {any} lane @param {any} block @param {boolean} many */
export function composeBlock(v, lane, block, many) {
  if (unseen(v, block.e0, block.e1)) return;
  let [y, tall] = span(lane, lane.value, block.lo, block.hi);
  if (many) tall = Math.max(tall - 1, 1.5);
  const x = xOf(v, block.e0) + (block.e0 < 0 ? 0 : 3), end = xOf(v, block.e1) - (block.e1 < v.n ? 3 : 0), w = Math.max(end - x, 1);
  put(v, "rect", block.strided ? "block strided" : "block", { x, y, width: w, height: tall, rx: Math.min(4, tall / 3), ...(block.strided ? { style: `fill:url(#${v.uid}-strided)` } : {}) });
  put(v, "rect", "blockstart", { x, y, width: Math.min(4, w), height: tall, rx: 1 });
  const indent = block.e0 < 0 ? 9 : 21, text = `v${block.mixed ? "≤" : ""}${block.version}`;
  const limit = Math.min(end, v.grouped === 1 ? x + (v.cols[0]?.w ?? 0) - 26 : x);
  if (tall >= 11 && limit - x - indent >= text.length * 6.2) {
    put(v, "text", "mono", { x: x + indent, y: y + tall / 2 + 3.6, "font-size": 10 }, text);
  }
}

/** @param {any} v @param {any} lane @param {import("./lanes.js").Levels} side @param {number} shift @param {string} twin */
export function composeBars(v, lane, side, shift, twin) {
  const ill = new Set(), meets = [];
  for (const bar of bars(v.tape, side, lane.k).bars) {
    const state = bar.lv < 0 ? 0 : side.state[bar.lv];
    if (unseen(v, bar.e0, bar.e1)) {
      const c = state > 1 ? colOf(v, bar.e1) : -1;
      if (c >= 0 && !ill.has(c)) { // an ill number inside a fold is still seen
        ill.add(c);
        put(v, "rect", `bar ${state === 2 ? "nan" : "inf"}`, { x: v.cols[c].x - 3, y: lane.adjoint, width: 6, height: lane.tall, rx: 2 });
      }
      continue;
    }
    const x = xOf(v, bar.e0) + (bar.e0 < 0 ? 0 : 3), end = xOf(v, bar.e1) - (bar.e1 < v.n ? 3 : 0), w = Math.max(end - x, 1);
    const [y, tall] = span(lane, lane.adjoint, bar.lo, bar.hi), middle = y + tall / 2 + shift;
    if (bar.lv < 0) {
      if (!twin) composeAbsent(v, lane, bar, middle);
      continue;
    }
    let thick = Math.min(thickness(side, bar.lv), Math.max(tall - 2, 2));
    if (side !== v.levels || v.other) thick = Math.min(thick, 6);
    const name = ["value", "zero", "nan", "inf"][state];
    const faint = state ? 1 : Math.min(Math.max(0.5 + 0.045 * (thickness(side, bar.lv) - 4), 0.45), 0.95);
    put(v, "rect", `bar ${name}${twin}`, { x, y: middle - thick / 2, width: w, height: thick, rx: thick / 2, opacity: faint }).e = bar.e1;
    if (state > 1 && w > 14) {
      const r = Math.max(Math.min(4, thick / 2 - 1), 1.5), m = x + w / 2;
      const d = state === 2 ? `M${m - r} ${middle - r}l${2 * r} ${2 * r}m${-2 * r} 0l${2 * r} ${-2 * r}` : `M${m - 3} ${middle - r}h6m-3 0v${2 * r}m-3 0h6`;
      put(v, "path", `sign ${name}`, { d }).e = bar.e1;
    }
    const c = colOf(v, bar.e1);
    if (!twin && side.met[bar.lv] > 1 && c >= 0 && v.cols[c].b - v.cols[c].a === 1) meets.push([v.cols[c].x - 10, middle, side.met[bar.lv], bar.e1, tall]);
  }
  composeMeets(v, meets);
}

/** How many contributions meet in a bar. @param {any} v @param {any[]} meets */
function composeMeets(v, meets) {
  for (const [x, y, met, e, tall] of meets) {
    const r = tall >= 11.5 ? 8 : 3;
    put(v, "circle", "meet", { cx: x, cy: y, r }).e = e;
    if (r > 3) put(v, "text", "meettext", { x, y: y + 3.5, "font-size": met > 9 ? 7.5 : 10, "text-anchor": "middle" }, `+${met}`).e = e;
  }
}

/** No adjoint below a value that somebody used. @param {any} v @param {any} lane @param {any} bar @param {number} middle */
export function composeAbsent(v, lane, bar, middle) {
  for (const block of v.blocksOn.get(lane.k)) {
    const e0 = Math.max(block.e0, bar.e0), e1 = Math.min(block.e1, bar.e1);
    if (e0 >= e1 || block.lo >= bar.hi || block.hi <= bar.lo || unseen(v, e0, e1)) continue;
    const x = xOf(v, e0), end = xOf(v, e1);
    if (end > x) put(v, "rect", "absent", { x, y: middle - 1.5, width: end - x, height: 3, fill: `url(#${v.uid}-absent)` });
    if (v.marks.length > BUDGET) return;
  }
}

/** @param {any} v @param {any} lane */
export function composeTouches(v, lane) {
  if (!v.cols.length) return;
  const { onLane, touchEvent } = v.tape, end = onLane.start[lane.k + 1];
  let k = lower(onLane.start[lane.k], end, (m) => touchEvent[onLane.rows[m]], v.cols[0].a);
  for (const col of v.cols) {
    const from = k;
    while (k < end && touchEvent[onLane.rows[k]] < col.b) k++;
    if (from === k) continue;
    if (col.b - col.a > 1) composeMany(v, lane, col, from, k);
    else composeOne(v, lane, col, from, k);
  }
}

/** Arrows down for what the tape kept. @param {any} v @param {any} lane */
function composeKept(v, lane) {
  if (!v.cols.length) return;
  const kept = v.tape.keptOn, last = kept.start[lane.k + 1];
  let m = lower(kept.start[lane.k], last, (i) => v.tape.keptEvent[kept.rows[i]], v.cols[0].a);
  for (const col of v.cols) {
    const from = m;
    while (m < last && v.tape.keptEvent[kept.rows[m]] < col.b) m++;
    if (from === m) continue;
    const [, lo, hi] = v.tape.ranges[v.tape.kept.range[kept.rows[from]]];
    const [y, tall] = col.b - col.a > 1 ? [lane.value, lane.tall] : span(lane, lane.value, lo, hi);
    const r = Math.min(5, Math.max(tall / 2 - 1.5, 2.5)), c = y + tall / 2, x = col.x - (col.b - col.a > 1 ? 16 : 18);
    put(v, "path", "kept", { d: `M${x} ${c - r}V${c + r}M${x - 3.2} ${c + r - 3.6}L${x} ${c + r}L${x + 3.2} ${c + r - 3.6}` });
  }
}

/** @param {any} v @param {any} lane @param {any} col @param {number} from @param {number} to */
export function composeOne(v, lane, col, from, to) {
  /** @type {number[][]} */ const taken = [];
  for (let k = from; k < to; k++) {
    const t = v.tape.onLane.rows[k], [, lo, hi] = v.tape.ranges[v.tape.touches.range[t]], how = v.tape.touches.how[t];
    const [y, tall] = span(lane, lane.value, lo, hi), r = Math.min(4, Math.max(tall / 2 - 1.5, 2)), c = y + tall / 2;
    if (how === 0) {
      let x = col.x - 7;
      while (taken.some(([tx, ty]) => Math.abs(tx - x) < 9 && Math.abs(ty - c) < 2 * r) && x > col.x - col.w / 2 + 12) x -= 9;
      taken.push([x, c]);
      put(v, "circle", "read", { cx: x, cy: c, r });
    } else sign(v, how, col.x + 13, c, r);
  }
}

/** @param {any} v @param {number} how @param {number} x @param {number} y @param {number} r */
export function sign(v, how, x, y, r) {
  if (how === 1) put(v, "rect", "write", { x: x - r, y: y - r, width: 2 * r, height: 2 * r });
  else put(v, "path", "accumulate", { d: `M${x} ${y - r - 1}l${r + 1} ${r + 1}l${-r - 1} ${r + 1}l${-r - 1} ${-r - 1}z` });
}

/** One of each kind for all that a column holds. @param {any} v @param {any} lane @param {any} col @param {number} from @param {number} to */
export function composeMany(v, lane, col, from, to) {
  const seen = [0, 0, 0], y = lane.value + lane.tall / 2;
  for (let k = from; k < to; k++) seen[v.tape.touches.how[v.tape.onLane.rows[k]]]++;
  if (seen[0]) put(v, "circle", "read", { cx: col.x - 7, cy: y, r: 3.5 });
  if (seen[1]) sign(v, 1, col.x + 3, y, 3.5);
  if (seen[2]) sign(v, 2, col.x + (seen[1] ? 12 : 3), y, 3.5);
}

/** @param {any} v @param {any} col @param {any[]} shown */
export function composeArrows(v, col, shown) {
  if (!v.levels) return;
  const e = col.a, [from, to] = v.tape.touchesOf(e);
  /** @type {number[]} */ const written = [];
  /** @type {number[]} */ const read = [];
  if (to - from > 40) return;
  for (let t = from; t < to; t++) (v.tape.touches.how[t] ? written : read).push(t - from);
  const pairs = v.tape.listed.get(e) ?? written.flatMap((w) => read.map((r) => [w, r]));
  for (const [w, r] of pairs) {
    const [lw, wlo, whi] = v.tape.ranges[v.tape.touches.range[from + w]], [lr, rlo, rhi] = v.tape.ranges[v.tape.touches.range[from + r]];
    const source = shown.find((one) => one.k === lw), target = shown.find((one) => one.k === lr);
    if (!source || !target || (lw === lr && wlo === rlo && whi === rhi)) continue;
    const after = levelAt(v.tape, v.levels, lw, wlo, whi, e + 1), before = levelAt(v.tape, v.levels, lr, rlo, rhi, e);
    if (after < 0 || before < 0 || v.levels.state[after] === 1) continue;
    const [wy, wt] = span(source, source.adjoint, wlo, whi), [ry, rt] = span(target, target.adjoint, rlo, rhi);
    const y0 = wy + wt / 2, y1 = ry + rt / 2, x0 = col.x + 6, x1 = col.x - 1, bend = Math.min(40, 0.31 * col.w);
    const state = v.levels.state[before], look = ["arrow", "arrow dead", "arrow ill", "arrow ill"][state];
    const size = (state ? 1.8 : 1.4 + 0.14 * thickness(v.levels, before)) * (pairs.length > 3 ? 0.65 : 1);
    put(v, "path", look, { d: `M${x0} ${y0}C${x0 - bend} ${y0} ${x1 + 0.57 * bend} ${y1} ${x1} ${y1}`, "stroke-width": size, "marker-end": `url(#${v.uid}-${state > 1 ? "ill" : ""}tip)` }).e = e;
  }
}

/** @param {any} v */
export function arrange(v) {
  let top = 0;
  v.lanes = v.meta.lanes.map((/** @type {any} */ track, /** @type {number} */ k) => {
    const cuts = v.tape.cuts(k), tall = cuts.length === 2 ? 15 : Math.min(Math.max((cuts.length - 1) * 14, 30), 72);
    const chips = Math.min(track.names.length, 6) + (track.names.length > 6 ? 1 : 0);
    const height = Math.max(2 * tall + 32, 30 + 24 * rowsOfChips(track, chips));
    const lane = { k, track, top, height, value: top + 10, adjoint: top + 20 + tall, tall };
    top += height;
    return lane;
  });
  v.head = 78 + 16 * bracketRows(v);
  v.spacer.style.height = `${top + v.head + 14}px`;
}

/** @param {any} track @param {number} chips */
export function rowsOfChips(track, chips) {
  const long = track.names.slice(0, chips).filter((/** @type {any} */ x) => x[2] - x[1] < track.nbytes || x[0].length > 9).length;
  return long + Math.ceil((chips - long) / 2);
}

/** Top and height of bytes [lo, hi) on a track. @param {any} lane @param {number} top @param {number} lo @param {number} hi */
export function span(lane, top, lo, hi) {
  const size = Math.max(lane.track.nbytes, 1), tall = Math.max(((hi - lo) / size) * lane.tall, 2);
  return [Math.min(top + (lo / size) * lane.tall, top + lane.tall - tall), tall];
}
