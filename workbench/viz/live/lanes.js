// @ts-check
// A tape as the page holds it: columns of numbers, and per lane what lies on it. Pure: no document, no widget.
import { floats } from "./heat.js";

export const FLAG = { nan: 1, inf: 2, died: 4, kept: 8, aliased: 16 };
const CUTS = 64;

/** @typedef {{lo: number, hi: number, version: number, e0: number, e1: number, strided: boolean, mixed: boolean}} Block
 * @typedef {{lo: number, hi: number, lv: number, e0: number, e1: number}} Bar
 * A version of bytes [lo, hi) from after event e0 (-1: from the start) to event e1; a bar is the level `lv` (-1: none)
 * of the adjoint before event e1 and after event e0; n is the end of the tape. */

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

/** @param {any} meta @param {DataView} bytes */
export function decode(meta, bytes) {
  const data = floats(bytes), n = meta.count;
  /** @type {Record<string, Record<string, Float32Array>>} */ const tables = {};
  for (const [name, table] of Object.entries(/** @type {Record<string, any>} */ (meta.tables))) {
    tables[name] = {};
    table.fields.forEach((/** @type {string} */ field, /** @type {number} */ i) => {
      tables[name][field] = data.subarray(table.at + i * table.rows, table.at + (i + 1) * table.rows);
    });
  }
  const { events, touches, kept, arrows } = tables;
  const total = touches.range.length, lanes = meta.lanes.length;
  const touchEvent = new Int32Array(total), keptEvent = new Int32Array(kept.range.length);
  const upTo = (/** @type {Float32Array} */ starts, /** @type {number} */ e, /** @type {number} */ all) => (e + 1 < n ? starts[e + 1] : all);
  for (let e = 0; e < n; e++) {
    touchEvent.fill(e, events.touches[e], upTo(events.touches, e, total));
    keptEvent.fill(e, events.kept[e], upTo(events.kept, e, keptEvent.length));
  }
  const listed = new Map();
  for (let k = 0; k < arrows.event.length; k++) {
    const of = listed.get(arrows.event[k]) ?? [];
    if (arrows.from[k] >= 0) of.push([arrows.from[k], arrows.to[k]]);
    listed.set(arrows.event[k], of);
  }
  const cutsOf = new Map();
  const tape = {
    meta, n, events, touches, kept, touchEvent, keptEvent, listed, ranges: meta.ranges,
    onLane: byLane(lanes, Array.from(touches.range, (r) => meta.ranges[r][0])),
    keptOn: byLane(lanes, Array.from(kept.range, (r) => meta.ranges[r][0])),
    text: (/** @type {number} */ k) => meta.texts[k],
    /** @param {number} e */ touchesOf: (e) => [events.touches[e], upTo(events.touches, e, total)],
    /** @param {number} e */ keptOf: (e) => [events.kept[e], upTo(events.kept, e, keptEvent.length)],
    /** @param {number} e */ heading: (e) => `#${e} ${meta.texts[events.label[e]]}`,
    /** Byte ends of the pieces that ranges cut a lane into; a lane of very many pieces is cut evenly.
     * @param {number} lane @returns {number[]} */
    cuts(lane) {
      let found = cutsOf.get(lane);
      if (!found) {
        const size = Math.max(meta.lanes[lane].nbytes, 1), ends = new Set([0, size]);
        for (const [, lo, hi] of meta.lanes[lane].names) ends.add(lo).add(hi);
        for (const [at, lo, hi] of tape.ranges) if (at === lane) ends.add(lo).add(hi);
        if (ends.size > CUTS) {
          ends.clear();
          for (let k = 0; k <= CUTS / 2; k++) ends.add(Math.round((k * size) / (CUTS / 2)));
        }
        found = [...ends].filter((end) => end >= 0 && end <= size).sort((a, b) => a - b);
        cutsOf.set(lane, found);
      }
      return found;
    },
    /** Ranges that only levels have. @param {any[]} ranges */
    learn(ranges) {
      if (ranges.length > tape.ranges.length) {
        tape.ranges = ranges;
        cutsOf.clear();
      }
    },
  };
  return tape;
}

/** @typedef {ReturnType<typeof decode>} Tape */

/** The half-open run of pieces that bytes [lo, hi) meet. @param {number[]} cuts @param {number} lo @param {number} hi */
export function pieces(cuts, lo, hi) {
  const most = cuts.length - 1;
  const first = Math.min(Math.max(lower(0, cuts.length, (k) => cuts[k], lo + 0.5) - 1, 0), most - 1);
  return [first, Math.max(Math.min(lower(0, cuts.length, (k) => cuts[k], hi), most), first + 1)];
}

/** Neighbours that are the very same thing, as calls (from, to, thing).
 * @param {any[]} held @param {number} i @param {number} j @param {(a: number, b: number, thing: any) => void} take */
function runs(held, i, j, take) {
  for (let from = i, k = i + 1; k <= j; k++) {
    if (k === j || held[k] !== held[from]) {
      take(from, k, held[from]);
      from = k;
    }
  }
}

/** The versions on a lane. What nobody read before it was overwritten is no block. @param {Tape} tape @param {number} lane */
export function blocks(tape, lane) {
  const { touches, onLane, touchEvent, ranges } = tape, cuts = tape.cuts(lane), count = cuts.length - 1;
  /** @type {Block[]} */ const out = [];
  const first = onLane.start[lane], last = onLane.start[lane + 1];
  const start = { version: first < last ? touches.before[onLane.rows[first]] : 0, e0: -1, strided: false, mixed: false };
  const held = new Array(count).fill(start), used = new Array(count).fill(false);
  const close = (/** @type {number} */ i, /** @type {number} */ j, /** @type {number} */ e1) => {
    const shown = held.map((cell, k) => (used[k] || cell.e0 >= 0 ? cell : null));
    runs(shown, i, j, (a, b, cell) => {
      if (cell && cell.e0 < e1) out.push({ ...cell, lo: cuts[a], hi: cuts[b], e1 });
    });
  };
  for (let k = first; k < last; k++) {
    const t = onLane.rows[k], [, lo, hi, strided] = ranges[touches.range[t]], [i, j] = pieces(cuts, lo, hi);
    if (touches.how[t] !== 1) used.fill(true, i, j);
    if (touches.how[t] === 0) continue;
    close(i, j, touchEvent[t]);
    held.fill({ version: touches.after[t], e0: touchEvent[t], strided, mixed: lo > cuts[i] || hi < cuts[j] }, i, j);
  }
  close(0, count, tape.n);
  return out;
}

/** @param {any} meta @param {DataView} bytes @param {Tape} tape */
export function decodeLevels(meta, bytes, tape) {
  const data = floats(bytes), rows = meta.rows ?? 0;
  /** @type {Record<string, Float32Array>} */ const at = {};
  (meta.fields ?? ["event", "range", "max", "l2", "state", "met"]).forEach((/** @type {string} */ f, /** @type {number} */ i) => {
    at[f] = data.subarray(i * rows, (i + 1) * rows);
  });
  tape.learn(meta.ranges ?? []);
  const onLane = byLane(tape.meta.lanes.length, Array.from(at.range, (r) => tape.ranges[r][0]));
  return { ...at, event: at.event, max: at.max, l2: at.l2, state: at.state, met: at.met, range: at.range, onLane, died: meta.died ?? [], cache: new Map() };
}

/** @typedef {ReturnType<typeof decodeLevels>} Levels */

/** The adjoint on a lane, from right to left: its bars, and per piece what it was after which event's reverse step.
 * @param {Tape} tape @param {Levels} levels @param {number} lane */
export function bars(tape, levels, lane) {
  const known = levels.cache.get(lane);
  if (known) return known;
  const cuts = tape.cuts(lane), count = cuts.length - 1, { onLane } = levels;
  /** @type {Bar[]} */ const out = [];
  const held = new Array(count).fill({ lv: -1, e1: tape.n });
  const history = Array.from({ length: count }, () => ({ event: /** @type {number[]} */ ([]), lv: /** @type {number[]} */ ([]) }));
  const close = (/** @type {number} */ i, /** @type {number} */ j, /** @type {number} */ e0) =>
    runs(held, i, j, (a, b, cell) => {
      if (e0 < cell.e1) out.push({ lo: cuts[a], hi: cuts[b], lv: cell.lv, e0, e1: cell.e1 });
    });
  for (let k = onLane.start[lane + 1] - 1; k >= onLane.start[lane]; k--) {
    let lv = onLane.rows[k];
    const e = levels.event[lv], [, lo, hi] = tape.ranges[levels.range[lv]], [i, j] = pieces(cuts, lo, hi);
    if (lo > cuts[i] || hi < cuts[j]) { // only a part of a piece: it shows the worst of what its parts hold
      for (let p = i; p < j; p++) {
        const old = held[p].lv;
        if (old >= 0 && (levels.state[old] > 1 || (levels.state[lv] < 2 && levels.max[old] > levels.max[lv]))) lv = old;
      }
    }
    close(i, j, e);
    held.fill({ lv, e1: e }, i, j);
    for (let p = i; p < j; p++) {
      history[p].event.push(e);
      history[p].lv.push(lv);
    }
  }
  close(0, count, -1);
  const found = { bars: out, history, cuts };
  levels.cache.set(lane, found);
  return found;
}

/** The level of bytes [lo, hi) at the moment before event `e` (n: the seed); -1 for none. The worst of several.
 * @param {Tape} tape @param {Levels} levels @param {number} lane @param {number} lo @param {number} hi @param {number} e */
export function levelAt(tape, levels, lane, lo, hi, e) {
  const { history, cuts } = bars(tape, levels, lane), [i, j] = pieces(cuts, lo, hi);
  let worst = -1;
  for (let p = i; p < j; p++) {
    const { event, lv } = history[p];
    const k = lower(0, event.length, (m) => -event[m], -e + 0.5) - 1; // events go down: the last one that is not less
    if (k < 0) continue;
    const found = lv[k];
    if (worst < 0 || levels.state[found] > Math.max(levels.state[worst], 1) ||
        (levels.state[worst] < 2 && levels.max[found] > levels.max[worst])) worst = found;
  }
  return worst;
}

/** What is a column when these folds are open: the first event of each, and its fold (-1: it is one event).
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
  return { count, starts: starts.slice(0, count + 1), fold };
}

/** The unit that an event is in. @param {{count: number, starts: Int32Array}} all @param {number} e */
export function unitOf(all, e) {
  return Math.max(lower(0, all.count, (k) => all.starts[k], e + 0.5) - 1, 0);
}

/** Per flag how many of the first k events have it: differences count any stretch.
 * @param {Tape} tape @param {Levels | null} levels */
export function tallies(tape, levels) {
  const bits = new Uint8Array(tape.n);
  for (let e = 0; e < tape.n; e++) bits[e] = tape.events.flags[e];
  if (levels) {
    levels.died.forEach((/** @type {number} */ e) => { bits[e] |= FLAG.died; });
    for (let k = 0; k < levels.event.length; k++) {
      if (levels.state[k] > 1 && levels.event[k] < tape.n) bits[levels.event[k]] |= levels.state[k] === 2 ? FLAG.nan : FLAG.inf;
    }
  }
  /** @type {Record<string, Int32Array>} */ const sums = {};
  for (const [name, bit] of Object.entries(FLAG)) {
    const sum = (sums[name] = new Int32Array(tape.n + 1));
    for (let e = 0; e < tape.n; e++) sum[e + 1] = sum[e] + ((bits[e] & bit) !== 0 ? 1 : 0);
  }
  return sums;
}

/** 2.5 to 14: log10 of the largest adjoint between 1e-6 and 1e3. @param {Levels} levels @param {number} lv */
export function thickness(levels, lv) {
  if (levels.state[lv] > 1) return 14;
  if (levels.state[lv] === 1) return 5;
  const size = levels.max[lv] > 0 ? Math.log10(levels.max[lv]) : -6;
  return 2.5 + (11.5 * (Math.min(Math.max(size, -6), 3) + 6)) / 9;
}
