// @ts-check
// What the page says: a column, a lane, an access, an adjoint in words.
import { short } from "./elements.js";
import { adjointsOf, envelopeText, valuesOf, valueText } from "./envelope.js";
import { accessesOf, accessText, describeFamily, placeOf } from "./families.js";
import { levelOfLane, lower } from "./lanes.js";

/** A column, or a lane in it, in words. @param {any} v @param {any} col @param {any} lane */
export const describe = (v, col, lane) => (lane?.members ? describeFamily(v, col, lane) : lane ? describeLane(v, col, lane) : describeColumn(v, col));

/** @param {any} v @param {any} col */
function describeColumn(v, col) {
  const one = col.b - col.a === 1, lines = [];
  if (one) {
    const where = v.tape.text(v.tape.events.where[col.a]), [from, to] = v.tape.touchesOf(col.a);
    lines.push(`${v.tape.heading(col.a)} (${v.tape.text(v.tape.events.kind[col.a])})${where ? ` at ${where}` : ""}`);
    for (let t = from; t < Math.min(to, from + 12); t++) lines.push(touchText(v, t));
    const [k0, k1] = v.tape.keptOf(col.a);
    for (let k = k0; k < k1; k++) lines.push(`kept ${v.tape.text(v.tape.kept.text[k])}`);
  } else lines.push(`${nameOf(v, col)}, #${col.a} to #${col.b - 1}`);
  const flags = Object.entries(tally(v, col)).map(([name, k]) => (one ? name : `${name} ×${k}`));
  if (flags.length) lines.push(flags.join(", "));
  for (const f of findingsIn(v, col).slice(0, 3)) lines.push(`${f.severity}: ${f.sentence}`);
  return lines.join("\n");
}

/** @param {any} v @param {any} col @param {any} lane */
function describeLane(v, col, lane) {
  const one = col.b - col.a === 1, lines = [];
  const { onLane, touchEvent } = v.tape;
  const [from, to] = [col.a, col.b].map((e) => lower(onLane.start[lane.k], onLane.start[lane.k + 1], (m) => touchEvent[onLane.rows[m]], e));
  lines.push(`${lane.track.names.map((/** @type {any} */ x) => x[0]).slice(0, 3).join(", ") || lane.track.id}${one ? `, ${v.tape.heading(col.a)}` : `${col.turn ? `, ${col.name}` : ""}, #${col.a} to #${col.b - 1}`}`);
  for (let k = from; one && k < to; k++) lines.push(touchText(v, onLane.rows[k]));
  if (!one) lines.push(accessText(accessesOf(v.tape, from, to)) || "not touched");
  if (v.levels) {
    lines.push(one ? `adjoint before: ${momentText(v, v.levels, lane, col.a)}, after: ${momentText(v, v.levels, lane, col.b)}` : `adjoint: ${stretchText(v, v.levels, lane, col)}`);
    if (v.other) lines.push(`the other: ${one ? momentText(v, v.other, lane, col.a) : stretchText(v, v.other, lane, col)}`);
  }
  const edges = one ? [col.b, col.b] : [col.a, col.b];
  const ill = valueText(valuesOf(v.tape, v.levels, [lane.k], [edges]), 0, placeOf(v));
  if (ill) lines.push(ill);
  return lines.join("\n");
}

/** The adjoint of a lane at one moment in words. @param {any} v @param {import("./lanes.js").Levels} side @param {any} lane @param {number} e */
function momentText(v, side, lane, e) {
  if (lane.pieces === 1) return levelText(side, levelOfLane(v.tape, side, lane.k, e));
  return envelopeText(adjointsOf(v.tape, side, [lane.k], [[e, e]]), 0, placeOf(v));
}

/** The adjoint of a lane, or of a family, in all events of a column. @param {any} v @param {import("./lanes.js").Levels} side @param {any} lane @param {any} col */
export function stretchText(v, side, lane, col) {
  return envelopeText(adjointsOf(v.tape, side, lane.members ?? [lane.k], [[col.a, col.b]]), 0, placeOf(v), `#${col.a}..#${col.b - 1}`);
}

/** What a column is called: kernel before number, a fold by its name, many events by what they run and where they are.
 * @param {any} v @param {any} col */
export function nameOf(v, col) {
  if (col.name) return col.name;
  if (col.b - col.a === 1) col.name = `${v.tape.text(v.tape.events.label[col.a])} #${v.tape.number(col.a)}`;
  else if (col.fold >= 0) col.name = v.meta.folds[col.fold][0];
  else {
    const labels = new Set();
    for (let e = col.a; e < col.b && labels.size < 4; e++) labels.add(v.tape.events.label[e]);
    col.name = `${[...labels].slice(0, 3).map(v.tape.text).join(", ")}${labels.size > 3 ? " …" : ""} #${col.a}-#${col.b - 1}`;
  }
  return col.name;
}

/** An adjoint in words. @param {import("./lanes.js").Levels} side @param {number} bar */
export function levelText(side, bar) {
  if (bar < 0) return "none";
  const { state, max, l2, met } = side.bars;
  if (state[bar]) return side.said[state[bar]];
  if (l2[bar] < 0) return `≤ ${short(max[bar], 3)}`; // a bound
  return `${short(max[bar], 3)} (max), ${short(l2[bar], 3)} (L2)${met[bar] > 1 ? `, ${met[bar]} contributions meet` : ""}`;
}

/** @param {any} v @param {number} t */
export function touchText(v, t) {
  const { touches, ranges } = v.tape, [lane, lo, hi, strided] = ranges[touches.range[t]], track = v.meta.lanes[lane];
  const part = lo > 0 || hi < track.nbytes ? ` ${rangeText(track, lo, hi)}` : "";
  const versions = touches.how[t] ? `v${touches.before[t]}→v${touches.after[t]}` : `v${touches.before[t]}`;
  return `${v.meta.how[touches.how[t]]} ${v.tape.text(touches.name[t])}${part}${strided ? " strided" : ""} ${versions}`;
}

/** @param {any} lane */
export function laneText(lane) {
  if (lane.members) return lane.names[0].join("\n");
  const parts = lane.track.names.map((/** @type {any} */ x) => `${x[0]}: bytes [${x[1]}:${x[2]}) of ${lane.track.nbytes}${x[3] ? ", strided" : ""}`);
  return [...parts.slice(0, 12), lane.track.text].filter(Boolean).join("\n");
}

/** @param {any} track @param {number} lo @param {number} hi */
export function rangeText(track, lo, hi) {
  const size = track.itemsize;
  return size && lo % size === 0 && hi % size === 0 ? `[${lo / size}:${hi / size})` : `[${lo}:${hi}) B`;
}

/** Per flag how many events of a column have it. @param {any} v @param {any} col */
export function tally(v, col) {
  /** @type {Record<string, number>} */ const out = {};
  for (const name of Object.keys(v.sums)) if (v.sums[name][col.b] > v.sums[name][col.a]) out[name] = v.sums[name][col.b] - v.sums[name][col.a];
  return out;
}

/** The findings of a column. @param {any} v @param {any} col */
export const findingsIn = (v, col) => v.findings.filter((f) => f.position >= col.a && f.position < col.b);
