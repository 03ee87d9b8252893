// @ts-check
// Above the lanes: boxes of events and folds, brackets, badges, findings; and the cells that have the keyboard.
import { fit, fitMiddle, put } from "./elements.js";
import { unitOf } from "./lanes.js";
import { placeIn } from "./strips.js";
import { NARROW, RIGHT, xOf } from "./window.js";
import { describe, findingsIn, nameOf, tally } from "./words.js";

const TICK = 44, CELLS = 500, SIZE = 11.5, CUT = 80; // the width from which a column that an edge cuts has its name
const BOX = 26, LONG = 180, SHORT = 80; // heights of the boxes, with names along and at most with upright ones; in a low window
const WIDTH = 7.05, RIM = 14; // of a letter; of a box around its name

/** The name of a column as it is written in a width, and whether upright: never both upright and cut. Of a turn the number
 * alone, where there is no room for more. @param {any} v @param {any} col @param {number} wide @param {number} tall
 * @returns {[string, number]} the height of an upright name, else 0 */
function nameIn(v, col, wide, tall) {
  const name = nameOf(v, col), number = /^(?:step|turn) (\d\S*)$/.exec(name)?.[1], long = (/** @type {string} */ text) => text.length * WIDTH;
  if (long(name) + RIM + 6 <= wide) return [name, 0];
  if (number && long(number) + 4 <= wide) return [number, 0];
  const whole = [name, name.replace(/ #.*$/, ""), name.replace(/,? .*$/, " …")].find((text) => long(text) + RIM <= tall); // the kernel before the number
  if (whole && wide >= (number ? NARROW : 16)) return [whole, long(whole) + RIM];
  const apart = col.b - col.a > 1 ? undefined : v.meta.apart[v.tape.events.label[col.a]];
  return [number ? "" : (wide < 84 && !apart ? fit : fitMiddle)(name, wide - 20, SIZE, apart), 0];
}

/** How high the boxes of the columns are: names that have no room along stand upright. @param {any} v */
export function headHeight(v) {
  const most = v.low ? SHORT : LONG, needed = v.cols.map((/** @type {any} */ col) => (col.w < 84 ? nameIn(v, col, col.w, most)[1] : 0));
  v.box = Math.max(BOX, ...needed);
  v.head = 52 + v.box + 16 * bracketRows(v);
}

/** What of a column is in the plot: its middle and width. A head never stands over the names of the lanes.
 * @param {any} v @param {any} col */
function seen(v, col) {
  const x0 = Math.max(col.x - col.w / 2, v.left - 6), x1 = Math.min(col.x + col.w / 2, v.wide - 2);
  return { x: (x0 + x1) / 2, w: x1 - x0 };
}

/** Where the sign of a finding stands. @param {any} v @param {any} col */
export function signAt(v, col) {
  const { x, w } = seen(v, col);
  return x + Math.min(w / 2 - 6, 44);
}

/** @param {any} v */
export function composeHead(v) {
  const y = v.head - 22 - v.box, rows = bracketRows(v);
  put(v, "rect", "headground", { x: 0, y: 0, width: v.wide, height: v.head });
  if (rows) composeBrackets(v, rows);
  for (const col of v.cols) {
    const at = seen(v, col), one = col.b - col.a === 1, [name, turned] = nameIn(v, col, at.w, v.box);
    if (at.w < 4) continue;
    const text = !turned && at.w < Math.min(col.w - 1, CUT) ? "" : name;
    if (one) put(v, "path", "guide", { d: `M${col.x} ${y + v.box}V5000` });
    if (!text && at.w < col.w - 1) continue;
    const w = Math.max(turned ? Math.min(at.w - 4, 22) : Math.min(at.w - 6, Math.max(text.length * 7.1 + 14, 30)), 3);
    const kind = one ? v.tape.text(v.tape.events.kind[col.a]) : "";
    const isHit = v.query && v.hits.some((m) => m.e >= col.a && m.e < col.b) ? " found" : "";
    const lacking = one && v.tape.events.flags[col.a] & v.meta.flags.there ? " lacking" : "";
    const tall = turned || !text ? v.box : BOX, above = y + v.box - tall; // names along stand at the foot of upright ones
    put(v, "rect", `event${lacking}${one && kind !== "launch" ? " other" : ""}${col.fold >= 0 ? " fold" : ""}${!one && col.fold < 0 ? " group" : ""}${isHit}`,
      { x: at.x - w / 2, y: above, width: w, height: tall, rx: Math.min(6, w / 2), "data-a": col.a, "data-b": col.b });
    if (col.fold >= 0) put(v, "path", "foldedge", { d: `M${at.x - w / 2 + 5} ${y + v.box + 3}h${Math.max(w - 10, 1)}` });
    if (turned) put(v, "text", "mono", { transform: `translate(${at.x + 4} ${y + v.box - 7}) rotate(-90)`, "font-size": SIZE }, text);
    else if (text) put(v, "text", "mono", { x: at.x, y: above + BOX / 2 + 4, "text-anchor": "middle", "font-size": SIZE }, text);
    composeBadges(v, col, at, y + v.box + 6);
    if (col.turns) composeTicks(v, col, at);
  }
  if (!v.cols.length) put(v, "text", "faint", { x: v.left, y: y + 18, "font-size": 12 }, "no events recorded");
}

/** The numbers of turns, at round ones that have room beside the badges in the middle. @param {any} v @param {any} col @param {{x: number, w: number}} at */
function composeTicks(v, col, at) {
  const { turns } = col, first = v.meta.folds[v.all.fold[unitOf(v.all, col.a)]][6], from = Number.isInteger(first) ? first : 0, off = badged(v, col) ? 45 : -1;
  const least = (turns.length * TICK) / col.w, ten = 10 ** Math.floor(Math.log10(least)), by = Math.max([1, 2, 5, 10].find((k) => k * ten >= least) * ten, 1);
  for (let n = Math.ceil(from / by) * by; n < from + turns.length; n += by) {
    const x = placeIn(col, turns[n - from]), far = Math.abs(x - at.x);
    if (far > off && far < at.w / 2 - 4) put(v, "text", "faint tick", { x, y: v.head - 5, "font-size": 9 }, String(n));
  }
}

/** @param {any} v @param {any} col */
const badged = (v, col) => Object.keys(v.meta.badges).some((name) => tally(v, col)[name]);

/** @param {any} v @param {any} col @param {{x: number, w: number}} at @param {number} y */
function composeBadges(v, col, at, y) {
  const flags = tally(v, col), one = col.b - col.a === 1;
  const words = Object.entries(/** @type {Record<string, string>} */ (v.meta.badges)).filter(([name]) => flags[name]).map(([name, word]) => (one ? word : `${word} ×${flags[name]}`));
  const here = findingsIn(v, col).filter((f) => f.severity !== "info");
  if (words.length) {
    let text = words.join(" · ");
    if (text.length * 5.4 + 12 > at.w - 4) text = words.map((word) => word[0]).join("");
    const w = Math.min(text.length * 5.6 + 10, Math.max(at.w - 2, 4));
    const two = words.every((word) => /^(parts|only )/.test(word));
    put(v, "rect", two ? "badge odd" : "badge", { x: at.x - w / 2, y, width: w, height: 13, rx: 6 });
    if (at.w > 14) put(v, "text", "badgetext", { x: at.x, y: y + 9.8, "font-size": 9.5 }, text);
  }
  if (here.length) {
    const x = signAt(v, col), worst = here.some((f) => f.severity === "error") ? " error" : "";
    put(v, "path", `finding${worst}`, { d: `M${x} ${y - 18 - v.box}l6 10.5h-12z`, "data-finding": v.findings.indexOf(here[0]) });
    put(v, "text", `findingtext${worst}`, { x, y: y - 9 - v.box, "font-size": 8 }, "!");
  }
}

/** In how many folds a fold lies. @param {any} v @param {number} k @returns {number} */
const depthOf = (v, k) => (v.meta.folds[k][5] < 0 ? 0 : 1 + depthOf(v, v.meta.folds[k][5]));

/** @param {any} v @param {number} rows */
export function composeBrackets(v, rows) {
  let drawn = 0;
  for (const k of v.open) {
    const [name, first, last] = v.meta.folds[k];
    if (!v.cols.length || last <= v.cols[0].a || first >= v.cols.at(-1).b) continue;
    const a = xOf(v, first), b = xOf(v, last - 1), d = depthOf(v, k);
    if (d >= rows || b - a < 8 || drawn++ > 150) continue;
    const half = Math.min((v.cols[0].w || 20) * 0.42, 50), x0 = Math.max(a - half, v.left - 4), x1 = Math.min(b + half, v.wide - RIGHT + 4), y = 17 + 16 * d;
    put(v, "path", "scope", { d: `M${x0} ${y + 4}V${y}H${x1}V${y + 4}`, "data-fold": k });
    const text = fit(`− ${name}`, x1 - x0, 10);
    put(v, "text", "scopetext", { x: (x0 + x1) / 2, y: y - 4, "font-size": 10, "data-fold": k }, text);
  }
}

/** @param {any} v */
export function bracketRows(v) {
  if (v.counted === v.all) return v.rowsOfBrackets; // as long as nothing folds or unfolds
  v.counted = v.all;
  return (v.rowsOfBrackets = Math.min([...v.open].reduce((most, k) => Math.max(most, 1 + depthOf(v, k)), 0), 3));
}

/** What can be reached by keyboard: the head of each column, and each lane below it. @param {any} v @param {any[]} shown */
export function composeCells(v, shown) {
  const few = (shown.length + 1) * v.cols.length <= CELLS;
  for (const col of v.cols) {
    const here = v.focus.e >= col.a && v.focus.e < col.b;
    composeCell(v, col, null);
    if (few || here) for (const lane of shown) composeCell(v, col, lane);
  }
}

/** @param {any} v @param {any} col @param {any} lane */
export function composeCell(v, col, lane) {
  const k = lane ? lane.k : -1, at = seen(v, col), w = Math.max(at.w, 2);
  const one = put(v, "rect", "cell", { x: at.x - at.w / 2, width: w, y: lane ? lane.top + 4 : v.head - 24 - v.box, height: lane ? lane.height - 8 : v.box + 6, rx: 4, role: "button", tabindex: "-1", "data-key": `${col.a}:${k}` });
  one.label = describe(v, col, lane);
  one.col = col;
  one.lane = lane;
}
