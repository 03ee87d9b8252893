// @ts-check
// Search by name: launches, scopes and memory.
import { count } from "./elements.js";
import { showLane } from "./families.js";
import { reveal } from "./window.js";

/** @param {any} v @param {string} text */
export function search(v, text) {
  v.query = text.trim().toLowerCase();
  v.hits = [];
  v.hit = -1;
  if (v.query) {
    const match = v.meta.texts.map((/** @type {string} */ one) => one.toLowerCase().includes(v.query));
    v.meta.lanes.forEach((/** @type {any} */ track, /** @type {number} */ k) => {
      if (track.names.some((/** @type {any} */ x) => x[0].toLowerCase().includes(v.query))) v.hits.push({ lane: k, e: -1, text: `memory of ${track.names.map((/** @type {any} */ x) => x[0]).join(", ")}` });
    });
    for (let e = 0; e < v.n && v.hits.length < 5000; e++) {
      if (match[v.tape.events.label[e]] || (match[v.tape.events.scope[e]] && (e === 0 || v.tape.events.scope[e] !== v.tape.events.scope[e - 1]))) v.hits.push({ lane: -1, e, text: v.tape.heading(e) });
    }
    v.say(v.hits.length ? `${count(v.hits.length, "match", "matches")}: Enter goes to the next one` : `nothing is called ${text}`);
  } else v.say("");
  v.draw();
}

/** @param {any} v @param {number} by */
export function nextHit(v, by) {
  if (!v.hits.length) return;
  v.hit = (v.hit + by + v.hits.length) % v.hits.length;
  const one = v.hits[v.hit];
  if (one.lane >= 0) showLane(v, one.lane);
  else {
    reveal(v, one.e);
    v.focus = { e: one.e, lane: -1 };
  }
  v.draw();
  v.say(`${v.hit + 1} of ${v.hits.length}: ${one.text}`);
}
