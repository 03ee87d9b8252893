// @ts-check
// The drawn events as a table: for screen readers, tests and copying.
import { h } from "./elements.js";
import { levelOfRange } from "./lanes.js";
import { findingsIn, levelText, tally, touchText } from "./words.js";

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
  const top = h("tr", {}, ...["event", "line", "reads", "writes", "kept", "adjoint before", "flags"].map((t) => h("th", { scope: "col" }, t)));
  const rows = [], list = (/** @type {string[]} */ texts) => h("td", {}, ...texts.flatMap((t, k) => (k ? [h("br"), t] : [t])));
  for (const col of v.cols.slice(0, ROWS)) {
    const one = col.b - col.a === 1, name = one ? v.tape.heading(col.a) : col.fold >= 0 ? v.meta.folds[col.fold][0] : `#${col.a} to #${col.b - 1}`;
    const [reads, writes, kept, adjoint] = one ? cellsOf(v, col.a) : [[], [], [], []];
    const flags = Object.entries(tally(v, col)).map(([f, k]) => (one ? f : `${f} ×${k}`));
    rows.push(h("tr", {}, h("th", { scope: "row" }, name), list(one ? [v.tape.text(v.tape.events.where[col.a])] : []), list(reads), list(writes), list(kept), list(adjoint), list([...flags, ...findingsIn(v, col).map((f) => f.slug)])));
  }
  const caption = v.cols.length ? `Events #${v.cols[0].a} to #${v.cols[Math.min(v.cols.length, ROWS) - 1].b - 1}, as drawn` : "No events";
  v.tableHere.replaceChildren(h("table", {}, h("caption", {}, caption), h("thead", {}, top), h("tbody", {}, ...rows)));
}

/** Reads, writes, kept bytes and adjoints of one event as texts. @param {any} v @param {number} e */
function cellsOf(v, e) {
  /** @type {string[][]} */ const [reads, writes, kept, adjoint] = [[], [], [], []];
  const [from, to] = v.tape.touchesOf(e), [k0, k1] = v.tape.keptOf(e);
  for (let t = from; t < to; t++) (v.tape.touches.how[t] ? writes : reads).push(touchText(v, t).replace(/^(read|write) /, ""));
  for (let k = k0; k < k1; k++) kept.push(v.tape.text(v.tape.kept.text[k]));
  const seen = new Set();
  for (let t = from; t < to && v.levels; t++) {
    const range = v.tape.touches.range[t], [lane, lo, hi] = v.tape.ranges[range], key = `${lane}:${lo}:${hi}`;
    if (!seen.has(key)) adjoint.push(`${v.tape.text(v.tape.touches.name[t])} ${levelText(v.levels, levelOfRange(v.tape, v.levels, range, e))}`);
    seen.add(key);
  }
  return [reads, writes, kept, adjoint];
}
