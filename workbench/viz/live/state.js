// @ts-check
// The state of one view: everything that its parts read and change, in one object with one name.
import { asker } from "./ask.js";
import { decode, tallies, units, withTurns } from "./lanes.js";

/** What further files of a page add to a view. @type {((v: any) => void)[]} */ export const added = [];
const OPEN = 60; // events up to which every fold is open at first

/** tape, levels, other  the columns, and the adjoint of one walk and of a second one to compare (lanes.js)
 * open, all             folds that lie open; the units that they leave
 * u0, u1                the window on the axis of `units`; grouped: units to a column; cols: the columns
 * wide, left, head      sizes of the picture: its width, where the tracks begin, the height above the lanes
 * low                   is the window low, so that whatever can be is small
 * tallest, printing     the height that the picture may have; is the page being printed, all of it
 * lanes, marks, dated   rows of the picture; what is drawn; elements that an event of the reverse pass makes
 * spread, pinned        families of lanes that lie open; lanes that stand on top
 * rowOf, bottom         the row of each lane; where the rows end
 * whole                 what was in the window before a finding was shown
 * aimed                 has the lane of the seed been brought into sight
 * behind                the event behind which the cursor is to be seen, -1: before that of its moment
 * focus                 event and lane (-1: its head) that the keyboard is at
 * findings, marked      what was found; of the finding that is shown: `{lanes, from, reverse, all}`
 * range                 events [a, b) that the reader has chosen, for the table
 * draw, drawMap, say    draw the window or the strip anew; tell the reader
 * @param {any} model @param {AbortSignal} signal
 */
export function stateOf(model, signal) {
  const given = model.get("meta"), many = given.count > OPEN, meta = many ? { ...given, folds: withTurns(given.folds) } : given;
  const tape = decode(meta, model.get("columns")), { n } = tape;
  const open = new Set(many ? [] : meta.folds.keys());
  /** @type {any} */ const v = {
    model, signal, tape, meta, n, open, uid: `wb${Math.random().toString(36).slice(2, 9)}`,
    still: globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false,
    levels: null, other: null, all: units(meta.folds, n, open), sums: tallies(tape, null),
    u0: 0, u1: 1, grouped: 1, wide: 900, left: 264, head: 100, box: 26, tallest: 440, low: false, printing: false, cols: [], lanes: [], marks: [], dated: [], strips: [], veils: [],
    spread: new Set(), pinned: [], bottom: 0, aimed: false, whole: null, findings: [], marked: null, range: null, behind: -1, focus: { e: 0, lane: -1 }, query: "", hits: [], hit: -1, timer: null, drag: null,
    get: (/** @type {string} */ name) => model.get(name),
    set(/** @type {Record<string, any>} */ values) {
      for (const [name, value] of Object.entries(values)) model.set(name, value);
      model.save_changes();
    },
    say(/** @type {string} */ text) { if (v.status.textContent !== text) v.status.textContent = text; },
  };
  return Object.assign(v, asker(model, v.uid, v.say));
}
