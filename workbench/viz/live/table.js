// @ts-check
// The drawn events as a table: for screen readers, tests and copying.
import { count, h } from "./elements.js";
import { levelOfRange } from "./lanes.js";
import { columnsIn } from "./range.js";
import { findingsIn, levelText, nameOf, stretchText, tally, touchText } from "./words.js";

const ROWS = 200;

/** The box of the table, filled when it is opened. @param {any} v */
export function tableOf(v) {
  v.tableBox = h("details", { class: "wb-table", ontoggle: () => { if (v.tableBox.hasAttribute("open")) fillTable(v); } });
  v.tableHere = h("div", { tabindex: "0", role: "region", "aria-label": "table of the events that are drawn" });
  v.tableBox.append(h("summary", {}, "The same as a table"), v.tableHere);
  return v.tableBox;
}

/** @param {any} v */
export function fillTable(v) {
  const top = h("tr", {}, ...["event", "line", "reads", "writes", "kept", "adjoint", ...(v.meta.against ? ["adjoint, other", "difference"] : []), "flags"].map((t) => h("th", { scope: "col" }, t)));
  const rows = [], list = (/** @type {string[]} */ texts) => h("td", {}, ...texts.flatMap((t, k) => (k ? [h("br"), t] : [t])));
  const cols = v.range ? columnsIn(v, ROWS) : v.cols.slice(0, ROWS);
  for (const col of cols) {
    const one = col.b - col.a === 1, name = one ? v.tape.heading(col.a) : nameOf(v, col);
    const [reads, writes, kept, adjoint, other] = one ? cellsOf(v, col.a) : cellsOfMany(v, col);
    const second = v.meta.against ? [list(other), list((one && v.meta.against.differences[col.a]) || [])] : [];
    const flags = Object.entries(tally(v, col)).map(([f, k]) => (one ? f : `${f} ×${k}`));
    rows.push(h("tr", {}, h("th", { scope: "row" }, name), list(one ? [v.tape.text(v.tape.events.where[col.a])] : []), list(reads), list(writes), list(kept), list(adjoint), ...second, list([...flags, ...findingsIn(v, col).map((f) => f.slug)])));
  }
  const caption = cols.length ? `Events #${cols[0].a} to #${cols.at(-1).b - 1}, as ${v.range ? "chosen" : "drawn"}` : "No events";
  v.tableHere.replaceChildren(h("table", {}, h("caption", {}, caption), h("thead", {}, top), h("tbody", {}, ...rows)));
}

/** The same of many events: how often, and the envelope of each adjoint, of a family as one. @param {any} v @param {any} col */
function cellsOfMany(v, col) {
  const { touches, touchesOf, keptOf, ranges } = v.tape, seen = [0, 0, 0], inside = new Set();
  const from = touchesOf(col.a)[0], to = touchesOf(col.b - 1)[1], kept = keptOf(col.b - 1)[1] - keptOf(col.a)[0];
  for (let t = from; t < to; t++) {
    seen[touches.how[t]]++;
    inside.add(v.lanes[v.rowOf[ranges[touches.range[t]][0]]]);
  }
  const some = (/** @type {number} */ k, /** @type {string} */ one) => (k ? [count(k, one)] : []);
  const nameOfRow = (/** @type {any} */ row) => (row.members ? `${row.names[0][0]} ×${row.members.length}` : row.names[0]?.[0] || row.id);
  const adjoints = (/** @type {any} */ side) => (side ? [...inside].map((row) => `${nameOfRow(row)} ${stretchText(v, side, row, col)}`) : []);
  return [some(seen[0], "read"), [...some(seen[1], "write"), ...some(seen[2], "accumulation")], some(kept, "range"), adjoints(v.levels), adjoints(v.other)];
}

/** Reads, writes, kept bytes, adjoints and those of the other pass of one event as texts. @param {any} v @param {number} e */
function cellsOf(v, e) {
  /** @type {string[][]} */ const [reads, writes, kept] = [[], [], []];
  const [from, to] = v.tape.touchesOf(e), [k0, k1] = v.tape.keptOf(e);
  for (let t = from; t < to; t++) (v.tape.touches.how[t] ? writes : reads).push(touchText(v, t).replace(/^(read|write) /, ""));
  for (let k = k0; k < k1; k++) kept.push(v.tape.text(v.tape.kept.text[k]));
  return [reads, writes, kept, rangesOf(v, v.levels, e), rangesOf(v, v.other, e)];
}

/** The adjoint of all that an event touched, each range once. @param {any} v @param {any} side @param {number} e */
function rangesOf(v, side, e) {
  const [from, to] = v.tape.touchesOf(e), found = new Map();
  for (let t = from; t < to && side; t++) {
    const range = v.tape.touches.range[t], [lane, lo, hi] = v.tape.ranges[range], key = `${lane}:${lo}:${hi}`;
    if (!found.has(key)) found.set(key, `${v.tape.text(v.tape.touches.name[t])} ${levelText(side, levelOfRange(v.tape, side, range, e))}`);
  }
  return [...found.values()];
}
