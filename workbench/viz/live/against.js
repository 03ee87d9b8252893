// @ts-check
// Two passes in one picture: what is said of them, the other one in outline, and the tag where they first part.
import { button, h, put, s } from "./elements.js";
import { placeIn } from "./strips.js";
import { eachWithin } from "./lanes.js";
import { colOf, goTo, step, xOf } from "./window.js";

const LINE = 3, TAG = 14, OUTLINE = 3; // pixels

/** Who is who and where they part; nothing for one pass alone. @param {any} v */
export function againstOf(v) {
  const two = v.meta.against;
  if (!two) return "";
  const sample = (/** @type {string} */ cls, /** @type {string} */ text) => {
    const svg = s("svg", { width: 28, height: 12, "aria-hidden": "true" });
    svg.append(s("rect", { x: 1, y: 1, width: 26, height: 10, rx: 5, class: cls, ...stripes(v, cls) }));
    return h("span", {}, svg, ` ${text}`);
  };
  const go = two.first ? [button("show it", `go to where both part: ${two.first.title}`, () => showParting(v))] : [];
  return h("div", "wb-against", h("div", "wb-legend",
    sample(`bar parted${v.meta.wrong ? " wrong" : ""}`, `${two.here}, where it differs`), sample("outline", two.there)),
  ...two.said.map((/** @type {string} */ text, /** @type {number} */ k) => h("p", {}, text, " ", ...(k ? [] : go))));
}

/** What a finding says is said once. @param {any} v */
export function saidOnce(v) {
  const { first } = v.meta.against ?? {}, sentence = v.rootEl.querySelector(".wb-against p");
  if (first) sentence.hidden = v.findings.some((/** @type {any} */ f) => f.slug === "parted" && f.position === first.e);
}

/** Go to the first column at which both part, and look at the cell that does. @param {any} v */
export function showParting(v) {
  const { e, late, array, element } = v.meta.against.first;
  if (array >= 0) v.set({ array, element });
  if (e < v.n) goTo(v, e, late);
  else step(v, v.n);
}

/** What is wrong on purpose is striped. @param {any} v @param {string} cls */
export const stripes = (v, cls) => (cls.includes(" wrong") && !cls.includes("zero") ? { style: `fill:url(#${v.uid}-wrong)` } : {});

/** What follows the class of a bar where both passes differ. @param {any} v @param {number} parts */
export const oddOf = (v, parts) => (parts ? (v.meta.wrong ? " parted wrong" : " parted") : "");

/** The adjoint of the other pass around that of this one.
 * @param {any} v @param {any} lane @param {(v: any, e0: number, e1: number) => any} stretch */
export function composeOutlines(v, lane, stretch) {
  const { bars, barsOn } = v.other, { cols } = v;
  if (cols.length) eachWithin(barsOn, lane.k, cols[0].a, cols.at(-1).b, (bar) => {
    const e = bars.e1[bar], at = stretch(v, bars.e0[bar], e);
    if (!at) return;
    const thick = bars.thick[bar] + OUTLINE;
    put(v, "rect", `outline ${v.meta.states[bars.state[bar]]}`, { x: at.x, y: lane.top + bars.y[bar] - thick / 2, width: at.w, height: thick, rx: thick / 2 }).e = e;
  });
}

/** A line below what differs inside a column of many events, or of these lanes that are one row.
 * @param {any} v @param {any} row @param {number[]} [lanes] */
export function composeFolded(v, row, lanes) {
  const sides = [[v.levels.bars, v.levels.barsOn, "e1", row.adjoint], [v.tape.blocks, v.tape.blocksOn, "e0", row.value]];
  for (const [table, on, field, y] of sides) {
    const ends = new Map();
    const note = (/** @type {number} */ one) => {
      const e = table[field][one], c = table.parts[one] ? colOf(v, e) : -1;
      if (c < 0 || (!lanes && v.cols[c].b - v.cols[c].a < 2)) return;
      const [first, last] = ends.get(c) ?? [e, e];
      ends.set(c, [Math.min(first, e), Math.max(last, e)]);
    };
    if (v.cols.length) for (const lane of lanes ?? [row.k]) eachWithin(on, lane, v.cols[0].a, v.cols.at(-1).b, note);
    for (const [c, [first, last]] of ends) {
      const x = placeIn(v.cols[c], first);
      put(v, "rect", "partedline", { x, y: y + row.tall - 1, width: placeIn(v.cols[c], last + 1) - x, height: LINE });
    }
  }
}

/** The first numbers that differ, at the foot of their lane. @param {any} v @param {any[]} shown */
export function composeTag(v, shown) {
  const first = v.meta.against?.first, lane = first && shown.find((one) => one.k === first.lane || (!one.open && one.members?.includes(first.lane)));
  if (!lane || (first.e < v.n && colOf(v, first.e) < 0)) return;
  const x = xOf(v, first.e), w = first.text.length * 5.8 + 14, y = lane.top + lane.height - TAG;
  const left = Math.max(Math.min(x - w / 2, v.wide - w - 4), v.left), from = (first.kind === "value" ? lane.value : lane.adjoint) + lane.tall / 2;
  put(v, "path", "pointer", { d: `M${x} ${from}V${y}` });
  put(v, "rect", "tag", { x: left, y, width: w, height: TAG, rx: TAG / 2 });
  put(v, "text", "tagtext", { x: left + w / 2, y: y + TAG - 3.6, "font-size": 10 }, first.text);
}
