// @ts-check
// The show: the reverse pass step by step, in a time that a reader waits for.
import { unitOf } from "./lanes.js";
import { step } from "./window.js";

const PACE = 650, SLOW = 1200, LONGEST = 19_000; // milliseconds: of a step, of one where motion is not wanted, of all

/** Start it, or stop it. Steps come at their pace; where they are too many for that, some are left out.
 * @param {any} v */
export function play(v) {
  const stop = () => {
    clearInterval(v.timer);
    v.timer = null;
    labelButton(v, "play");
  };
  if (v.timer) { stop(); return; }
  if (v.get("cursor") === 0) step(v, v.n);
  labelButton(v, "pause");
  const stops = stopsBefore(v, v.get("cursor")), pace = v.still ? SLOW : PACE, whole = Math.min(stops.length * pace, LONGEST), begun = performance.now();
  let last = v.get("cursor");
  v.timer = setInterval(() => {
    if (v.get("cursor") !== last || v.signal?.aborted) { stop(); return; } // the reader has taken over
    const done = Math.min(Math.ceil(((performance.now() - begun) / Math.max(whole, 1)) * stops.length), stops.length);
    if (done) step(v, last = stops[done - 1]);
    if (done >= stops.length) stop();
  }, Math.max(whole / Math.max(stops.length, 1), v.still ? 500 : 120));
}

/** Where the show stops on its way down from an event: at each turn of a loop that is shut. @param {any} v @param {number} cursor */
function stopsBefore(v, cursor) {
  const from = cursor < v.n ? unitOf(v.all, cursor) : v.all.count, stops = [];
  for (let k = from; k >= 0; k--) {
    const turns = v.meta.folds[v.all.fold[k]]?.[6];
    for (const e of turns?.length ? [...turns].reverse() : [v.all.starts[k]]) if (e < cursor) stops.push(e);
  }
  return stops;
}

/** @param {any} v @param {string} what */
function labelButton(v, what) {
  v.playing.textContent = what;
  v.playing.setAttribute("aria-label", `${what} the reverse pass`);
}
