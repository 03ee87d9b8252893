// @ts-check
// What a stretch of the tape holds on a lane: workbench/viz/data/envelope.py and the strips of marks.py, in the page,
// where stretches change with the zoom. Pure: no document, no widget.
import { clamp, short } from "./elements.js";
import { eachWithin, lower } from "./lanes.js";

const REMEMBERED = 6000; // parts of the tape that are remembered
export const [VALUE, ZERO, NAN, INF, ABSENT, BOUND] = [1, 2, 4, 8, 16, 32];
const OF_STATE = [VALUE, ZERO, NAN, INF, NAN | INF];

/** The edges of at most `most` stretches of equal length that events [a, b) are cut into.
 * @param {number} a @param {number} b @param {number} most */
export function stretches(a, b, most) {
  const count = Math.max(Math.min(b - a, Math.floor(most)), 1);
  return Array.from({ length: count + 1 }, (_, k) => a + Math.floor((k * (b - a)) / count));
}

/** The first stretch that ends at a moment or later. @param {ArrayLike<number>} edges @param {number} n @param {number} moment */
const stretchOf = (edges, n, moment) => lower(0, n, (k) => edges[k + 1], moment);

/** Per stretch [edges[k], edges[k + 1]] the largest and the smallest adjoint of lanes together, what there is (bits), and
 * the moment at which the reverse pass first had what is ill.
 * @param {import("./lanes.js").Tape} tape @param {import("./lanes.js").Levels} side @param {number[]} lanes
 * @param {ArrayLike<number>} edges */
function envelopes({ meta }, { bars, barsOn }, lanes, edges) {
  const n = edges.length - 1, most = new Float64Array(n), least = new Float64Array(n).fill(Infinity), has = new Uint8Array(n);
  const illAt = new Int32Array(n).fill(-1), share = new Float64Array(n), cover = new Float64Array(n);
  const take = (/** @type {number} */ bar) => {
    const e0 = bars.e0[bar] + 1, e1 = bars.e1[bar], size = bars.max[bar], bits = OF_STATE[bars.state[bar]] | (bars.l2[bar] < 0 ? BOUND : 0);
    for (let j = stretchOf(edges, n, e0); j < n && edges[j] <= e1; j++) {
      has[j] |= bits;
      cover[j] += (bars.last[bar] - bars.first[bar]) * (Math.min(e1, edges[j + 1]) - Math.max(e0, edges[j]) + 1);
      if (size > 0 && Number.isFinite(size)) {
        most[j] = Math.max(most[j], size);
        if (bits & VALUE) least[j] = Math.min(least[j], size);
      }
      if (bits & (NAN | INF)) { illAt[j] = Math.max(illAt[j], e1); share[j] = Math.max(share[j], bars.share[bar]); }
    }
  };
  for (const lane of lanes) {
    cover.fill(0);
    eachWithin(barsOn, lane, edges[0], edges[n], take);
    for (let j = 0; j < n; j++) if (cover[j] < meta.lanes[lane].pieces * (edges[j + 1] - edges[j] + 1)) has[j] |= ABSENT;
  }
  for (let j = 0; j < n; j++) if (least[j] === Infinity) least[j] = 0;
  return { most, least, has, illAt, share };
}

/** @typedef {ReturnType<typeof envelopes>} Envelope */

/** What was made for some lanes and a part of the tape, or is made now: a reader who pans sees the same columns again.
 * @template T @param {Map<string, any>} seen @param {string} what @param {number[]} lanes @param {ArrayLike<number>} edges
 * @param {() => T} make @returns {T} */
export function remembered(seen, what, lanes, edges, make) {
  const key = [what, lanes[0], lanes.length, edges.length, edges[0], edges[2], edges[edges.length - 1]].join(" ");
  let found = seen.get(key);
  if (!found) {
    if (seen.size >= REMEMBERED) seen.clear();
    seen.set(key, (found = make()));
  }
  return found;
}

/** What follows one after the other, as one. @param {any[]} found @returns {any} */
function chained(found) {
  if (found.length === 1) return found[0];
  return Object.fromEntries(Object.keys(found[0]).map((name) => {
    const all = new found[0][name].constructor(found.reduce((sum, one) => sum + one[name].length, 0));
    let at = 0;
    for (const one of found) { all.set(one[name], at); at += one[name].length; }
    return [name, all];
  }));
}

/** The adjoints of lanes together in parts of the tape one after the other, each the edges of its stretches.
 * @param {import("./lanes.js").Tape} tape @param {import("./lanes.js").Levels} side @param {number[]} lanes
 * @param {ArrayLike<number>[]} parts @returns {Envelope} */
export const adjointsOf = (tape, side, lanes, parts) => chained(parts.map((edges) => remembered(side.seen, "adjoint", lanes, edges,
  () => envelopes(tape, side, lanes, edges))));

/** The same of values. @param {import("./lanes.js").Tape} tape @param {import("./lanes.js").Levels | null} side @param {number[]} lanes
 * @param {ArrayLike<number>[]} parts @returns {ReturnType<typeof valuesIn>} */
export const valuesOf = (tape, side, lanes, parts) => chained(parts.map((edges) => remembered((side ?? tape).seen, "value", lanes, edges,
  () => valuesIn(tape, side, lanes, edges))));

/** How thick a size is drawn. @param {number} size @param {{low: number, high: number}} scale @param {number[]} thick */
export function thickOf(size, scale, [thin, full]) {
  const part = size > 0 ? clamp((Math.log10(size) - scale.low) / (scale.high - scale.low), 0, 1) : 0;
  return thin + (full - thin) * part;
}

/** How thick the black is where a share of the numbers is NaN or infinite. @param {number} share @param {number} tall @param {number} least */
export const illThick = (share, tall, least) => Math.max(share * tall, Math.min(least, tall));

/** What is drawn of many events, as `strip_marks` of marks.py. @param {Envelope} found @param {any} scale @param {number[]} thick */
export function stripMarks(found, scale, thick) {
  /** @type {any[][]} */ const bands = [], cores = [], size = (/** @type {number} */ s) => Math.round(thickOf(s, scale, thick) * 100) / 100;
  for (let k = 0; k < found.has.length; k++) {
    const has = found.has[k], ill = has & NAN ? "bar nan" : has & INF ? "bar inf" : "";
    bands.push(has & VALUE ? ["band", size(found.most[k])] : ["", 0]);
    cores.push(ill ? [ill, Math.round(illThick(found.share[k], thick[1], thick[3]) * 100) / 100] : has & ZERO ? ["bar zero", thick[2]] : has & VALUE ? ["bar value", size(found.least[k])] : ["", 0]);
  }
  return [...runsOf(bands), ...runsOf(cores)];
}

/** Neighbours that look the same as [look, first, last, thick]. @param {any[][]} parts */
function runsOf(parts) {
  const out = [];
  for (let k = 0, start = 0; k < parts.length; k++) {
    if (k + 1 < parts.length && parts[k + 1][0] === parts[start][0] && parts[k + 1][1] === parts[start][1]) continue;
    if (parts[start][0]) out.push([parts[start][0], start, k + 1, parts[start][1]]);
    start = k + 1;
  }
  return out;
}

/** What is ill, in words. @param {number} has */
const illNames = (has) => [has & NAN ? "NaN" : "", has & INF ? "Inf" : ""].filter(Boolean).join(" and ");

/** One stretch in words, as `envelope_text` of envelope.py. @param {Envelope} found @param {number} k
 * @param {(moment: number) => string} place @param {string} [within] */
export function envelopeText(found, k, place, within = "") {
  const has = found.has[k], most = short(found.most[k], 3), said = within && ` in ${within}`, bound = has & BOUND ? "≤ " : "";
  if (has & (NAN | INF)) {
    return `${illNames(has)} first in ${place(found.illAt[k])}${found.most[k] > 0 ? `, finite ones ${bound}${most}` : ""}${said}`;
  }
  if (has & VALUE) {
    const least = has & (ZERO | BOUND) ? "0" : short(found.least[k], 3);
    return least === most ? most + said : `${least} to ${bound}${most}${said}`;
  }
  return has & ZERO ? (has & ABSENT ? `0 or none${said}` : "0 exactly") : "none";
}

/** Per stretch what is known of the values of lanes together: is there a version, NaN, Inf; and the event that first wrote
 * what is ill. @param {import("./lanes.js").Tape} tape @param {import("./lanes.js").Levels | null} side
 * @param {number[]} lanes @param {ArrayLike<number>} edges */
function valuesIn({ blocks, blocksOn }, side, lanes, edges) {
  const n = edges.length - 1, has = new Uint8Array(n), since = new Int32Array(n).fill(-2), share = new Float64Array(n);
  const take = (/** @type {number} */ b) => {
    const e0 = blocks.e0[b] + 1, e1 = blocks.e1[b], bits = side?.ill[b] ? OF_STATE[side.ill[b]] : VALUE;
    for (let j = stretchOf(edges, n, e0); j < n && edges[j] <= e1; j++) {
      has[j] |= bits;
      if (bits & (NAN | INF)) {
        since[j] = since[j] < -1 ? e0 - 1 : Math.min(since[j], e0 - 1);
        share[j] = Math.max(share[j], side?.share[b] ?? 0);
      }
    }
  };
  for (const lane of lanes) eachWithin(blocksOn, lane, edges[0], edges[n], take);
  return { has, since, share };
}

/** What is drawn of the values in many events, as `value_marks` of marks.py. @param {{has: Uint8Array, share: Float64Array}} found
 * @param {number} tall @param {number} least */
export function valueMarks({ has, share }, tall, least) {
  const plain = Array.from(has, (bits) => [bits ? "block" : "", tall]);
  const ill = Array.from(has, (bits, k) => [bits & NAN ? "block nan" : bits & INF ? "block inf" : "", illThick(share[k], tall, least)]);
  return [...runsOf(plain), ...runsOf(ill)];
}

/** What is ill of the values of one stretch, in words; nothing if nothing is known to be. @param {{has: Uint8Array, since: Int32Array}} found
 * @param {number} k @param {(moment: number) => string} place */
export function valueText({ has, since }, k, place) {
  if (!(has[k] & (NAN | INF))) return "";
  return `values: ${illNames(has[k])} ${since[k] < 0 ? "from before the tape" : `written by ${place(since[k])}`}`;
}
