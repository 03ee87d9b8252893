// @ts-check
// A tape as the page holds it: columns of numbers, and per lane the marks that lie on it. Pure: no document, no widget.
import { clamp } from "./elements.js";
import { floats } from "./heat.js";

/** Sorted rows of a table by lane: `start[lane] .. start[lane + 1]` in `rows`.
 * @param {number} lanes @param {ArrayLike<number>} laneOf */
function byLane(lanes, laneOf) {
  const start = new Int32Array(lanes + 1), rows = new Int32Array(laneOf.length);
  for (let k = 0; k < laneOf.length; k++) start[laneOf[k] + 1]++;
  for (let k = 0; k < lanes; k++) start[k + 1] += start[k];
  const next = start.slice();
  for (let k = 0; k < laneOf.length; k++) rows[next[laneOf[k]]++] = k;
  return { start, rows };
}

/** Rows that last from e0 to e1, by lane and sorted so that those in sight are found at once: from early to late by their
 * ends, or `late` ones first by their starts. `reach` of a row: how far those behind it, itself included, come back.
 * @param {number} lanes @param {ArrayLike<number>} laneOf @param {Float32Array} e0 @param {Float32Array} e1 @param {boolean} late */
export function spans(lanes, laneOf, e0, e1, late) {
  const { start, rows } = byLane(lanes, laneOf), reach = new Float64Array(rows.length);
  const key = (/** @type {number} */ r) => (late ? -e0[r] : e1[r]), far = (/** @type {number} */ r) => (late ? e1[r] : -e0[r]);
  for (let lane = 0; lane < lanes; lane++) {
    const some = rows.subarray(start[lane], start[lane + 1]); // most come in order
    if (!some.every((r, k) => k === 0 || key(some[k - 1]) <= key(r))) some.sort((p, q) => key(p) - key(q) || p - q);
    for (let k = start[lane + 1] - 1, most = -Infinity; k >= start[lane]; k--) reach[k] = most = Math.max(most, far(rows[k]));
  }
  return { start, rows, reach, key, far, late };
}

/** @typedef {ReturnType<typeof spans>} Spans */

/** The rows of a lane that last into events [a, b). @param {Spans} on @param {number} lane @param {number} a @param {number} b
 * @param {(row: number) => void} take */
export function eachWithin(on, lane, a, b, take) {
  const end = on.start[lane + 1], from = on.late ? 1 - b : a, least = on.late ? a : 1 - b;
  for (let k = lower(on.start[lane], end, (m) => on.key(on.rows[m]), from); k < end && on.reach[k] >= least; k++) {
    if (on.far(on.rows[k]) >= least) take(on.rows[k]);
  }
}

/** The first place in a sorted run whose key is not less than `wanted`.
 * @param {number} from @param {number} to @param {(k: number) => number} key @param {number} wanted */
export function lower(from, to, key, wanted) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (key(middle) < wanted) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** The tables of a run of bytes, by name and column. @param {any} places @param {DataView} bytes */
function tablesOf(places, bytes) {
  const data = floats(bytes);
  /** @type {Record<string, Record<string, Float32Array>>} */ const tables = {};
  for (const [name, table] of Object.entries(/** @type {Record<string, any>} */ (places))) {
    tables[name] = {};
    table.fields.forEach((/** @type {string} */ field, /** @type {number} */ i) => {
      tables[name][field] = data.subarray(table.at + i * table.rows, table.at + (i + 1) * table.rows);
    });
  }
  return tables;
}

/** The event of each row. @param {Float32Array} starts the first row of each event @param {number} total */
function eventOf(starts, total) {
  const found = new Int32Array(total);
  for (let e = 0; e < starts.length; e++) for (let k = starts[e], end = starts[e + 1] ?? total; k < end; k++) found[k] = e;
  return found;
}

/** @param {any} meta @param {DataView} bytes */
export function decode(meta, bytes) {
  const { events, touches, kept, spots, blocks } = tablesOf(meta.tables, bytes), n = meta.count;
  const total = touches.range.length, lanes = meta.lanes.length;
  const touchEvent = eventOf(events.touches, total), keptEvent = eventOf(events.kept, kept.range.length);
  const upTo = (/** @type {Float32Array} */ starts, /** @type {number} */ e, /** @type {number} */ all) => (e + 1 < n ? starts[e + 1] : all);
  const laneOfRange = Int32Array.from(meta.ranges, (/** @type {number[]} */ range) => range[0]);
  const laneOf = (/** @type {Float32Array} */ ranges) => byLane(lanes, new Int32Array(ranges).map((r) => laneOfRange[r]));
  const number = (/** @type {number} */ e) => meta.against?.numbers?.[e] ?? e; // of a column on its own tape
  return {
    number, meta, n, events, touches, kept, spots, blocks, touchEvent, keptEvent, ranges: meta.ranges,
    onLane: laneOf(touches.range), keptOn: laneOf(kept.range), blocksOn: spans(lanes, blocks.lane, blocks.e0, blocks.e1, false), seen: new Map(),
    text: (/** @type {number} */ k) => meta.texts[k],
    /** @param {number} e */ touchesOf: (e) => [events.touches[e], upTo(events.touches, e, total)],
    /** @param {number} e */ keptOf: (e) => [events.kept[e], upTo(events.kept, e, keptEvent.length)],
    /** @param {number} e */ heading: (e) => `#${number(e)} ${meta.texts[events.label[e]]}`,
  };
}

/** @typedef {ReturnType<typeof decode>} Tape */

/** The adjoint of one walk. @param {any} meta @param {DataView} bytes @param {Tape} tape */
export function decodeLevels(meta, bytes, tape) {
  const { bars, absent, meets, arrows, flags, values } = tablesOf(meta.tables, bytes), lanes = tape.meta.lanes.length;
  const ill = new Uint8Array(tape.blocks.lane.length), share = new Float32Array(ill.length); // of versions, with the states of bars
  values.block.forEach((b, k) => { ill[b] = values.state[k]; share[b] = values.share[k]; });
  return {
    bars, absent, meets, arrows, flags, ill, share, scale: meta.scale, said: meta.said, histories: new Map(), seen: new Map(),
    barsOn: spans(lanes, bars.lane, bars.e0, bars.e1, true), absentOn: spans(lanes, absent.lane, absent.e0, absent.e1, true),
    meetsOn: spans(lanes, meets.lane, meets.event, meets.event, false),
  };
}

/** @typedef {ReturnType<typeof decodeLevels>} Levels */

/** Per piece of a lane the bars on it, from right to left. @param {Tape} tape @param {Levels} levels @param {number} lane */
function historyOf(tape, levels, lane) {
  let found = levels.histories.get(lane);
  if (!found) {
    const { bars, barsOn } = levels;
    found = Array.from({ length: tape.meta.lanes[lane].pieces }, () => /** @type {number[]} */ ([]));
    for (let k = barsOn.start[lane]; k < barsOn.start[lane + 1]; k++) {
      const bar = barsOn.rows[k];
      for (let p = bars.first[bar]; p < bars.last[bar]; p++) found[p].push(bar);
    }
    levels.histories.set(lane, found);
  }
  return found;
}

const RANK = [0, 0, 2, 1, 3]; // of the states of bars: value and zero (by size), NaN, Inf, both

/** The bar of pieces [first, last) at the moment before event `e` (n: the seed); -1 for none. The worst of several.
 * @param {Tape} tape @param {Levels} levels @param {number} lane @param {number} first @param {number} last @param {number} e */
export function levelAt(tape, levels, lane, first, last, e) {
  const history = historyOf(tape, levels, lane), { e1, state, max } = levels.bars;
  let worst = -1;
  for (let p = first; p < last; p++) {
    const k = lower(0, history[p].length, (m) => -e1[history[p][m]], -e + 0.5) - 1; // moments go down: the last one that is not less
    if (k < 0) continue;
    const found = history[p][k];
    if (worst < 0 || RANK[state[found]] > RANK[state[worst]] || (RANK[state[found]] === RANK[state[worst]] && max[found] > max[worst])) worst = found;
  }
  return worst;
}

/** The bar of one range. @param {Tape} tape @param {Levels} levels @param {number} range @param {number} e */
export const levelOfRange = (tape, levels, range, e) => levelAt(tape, levels, tape.ranges[range][0], tape.spots.first[range], tape.spots.last[range], e);

/** The bar of a whole lane. @param {Tape} tape @param {Levels} levels @param {number} lane @param {number} e */
export const levelOfLane = (tape, levels, lane, e) => levelAt(tape, levels, lane, 0, tape.meta.lanes[lane].pieces, e);

/** The folds, and the turns of each loop as folds in it: `[name, first, last, kind, count, parent, turns]`, of a turn its
 * number for the turns. A scope that is a whole turn is that turn. @param {any[]} folds */
export function withTurns(folds) {
  const all = folds.map((fold) => [...fold]);
  /** @type {Map<number, number[]>} */ const kids = new Map();
  folds.forEach((fold, k) => (kids.get(fold[5]) ?? kids.set(fold[5], []).get(fold[5]))?.push(k));
  folds.forEach(([, , last, , , parent, turns], k) => {
    const mine = kids.get(k) ?? [];
    let at = 0;
    (turns ?? []).forEach((/** @type {number} */ a, /** @type {number} */ j) => {
      const b = turns[j + 1] ?? last, from = at;
      while (at < mine.length && folds[mine[at]][1] < b) at++;
      const only = folds[mine[from]];
      if (at === from + 1 && only[1] === a && only[2] === b && only[3] === "scope") {
        all[mine[from]][6] = j;
        if (!/\d$/.test(only[0])) all[mine[from]][0] = `${only[0]} ${j}`;
      } else if (b - a > 1) {
        for (const one of mine.slice(from, at)) all[one][5] = all.length;
        all.push([`${parent < 0 ? "step" : "turn"} ${j}`, a, b, "turn", 1, k, j]);
      }
    });
  });
  return all;
}

const ROOMY = 0.015, MOST = 3; // of a fold's width, in widths of a launch: per turn, or two launches; at most

/** What is a column when these folds are open: the first event of each, its fold (-1: it is one event), and where it
 * begins on the axis, on which an event is 1 wide and a fold as wide as its strip needs; `size` is all of it.
 * @param {any[]} folds @param {number} n @param {Set<number>} open */
export function units(folds, n, open) {
  const inside = new Map();
  folds.forEach((fold, k) => {
    if (!inside.has(fold[5])) inside.set(fold[5], []);
    inside.get(fold[5]).push(k);
  });
  const starts = new Int32Array(n + 1), fold = new Int32Array(n).fill(-1);
  let count = 0;
  const walk = (/** @type {number} */ parent, /** @type {number} */ a, /** @type {number} */ b) => {
    for (const k of inside.get(parent) ?? []) {
      const [, first, last] = folds[k];
      while (a < first) starts[count++] = a++;
      if (open.has(k)) walk(k, first, last);
      else {
        fold[count] = k;
        starts[count++] = first;
      }
      a = last;
    }
    while (a < b) starts[count++] = a++;
  };
  walk(-1, 0, n);
  starts[count] = n;
  const at = new Float64Array(count + 1);
  for (let k = 0; k < count; k++) at[k + 1] = at[k] + (fold[k] < 0 ? 1 : clamp(ROOMY * Math.max(folds[fold[k]][4], (starts[k + 1] - starts[k]) / 2), 1, MOST));
  return { count, starts: starts.slice(0, count + 1), fold, at, size: at[count] };
}

/** The unit that an event is in. @param {{count: number, starts: Int32Array}} all @param {number} e */
export function unitOf(all, e) {
  return Math.max(lower(0, all.count, (k) => all.starts[k], e + 0.5) - 1, 0);
}

/** The middle, on the axis, of the unit that an event is in; for the moment after the last one the end.
 * @param {ReturnType<typeof units>} all @param {number} e */
export function middleOf(all, e) {
  const k = unitOf(all, e);
  return e < all.starts[all.count] ? (all.at[k] + all.at[k + 1]) / 2 : all.size;
}

/** The unit at a place on the axis. @param {ReturnType<typeof units>} all @param {number} u */
export const unitAt = (all, u) => Math.max(lower(0, all.count, (k) => (all.at[k] > u ? 1 : 0), 1) - 1, 0);

/** Per flag how many of the first k events have it: differences count any stretch.
 * @param {Tape} tape @param {Levels | null} levels */
export function tallies(tape, levels) {
  const bits = new Uint16Array(tape.n);
  for (let e = 0; e < tape.n; e++) bits[e] = tape.events.flags[e];
  if (levels) levels.flags.event.forEach((e, k) => { bits[e] |= levels.flags.bits[k]; });
  /** @type {Record<string, Int32Array>} */ const sums = {};
  const seen = bits.reduce((all, some) => all | some, 0), none = new Int32Array(tape.n + 1);
  for (const [name, bit] of Object.entries(/** @type {Record<string, number>} */ (tape.meta.flags))) {
    const sum = (sums[name] = seen & bit ? new Int32Array(tape.n + 1) : none);
    if (sum !== none) for (let e = 0; e < tape.n; e++) sum[e + 1] = sum[e] + ((bits[e] & bit) !== 0 ? 1 : 0);
  }
  return sums;
}
