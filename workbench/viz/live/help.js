// @ts-check
// The keys: a list over the picture, and what it says of itself to those who do not know of it.
import { button, h, pageAround } from "./elements.js";

const KEYS = [
  ["← →", "step the reverse pass: on, and back"], ["[ ]", "the same, one launch at a time inside folds"], ["↑ ↓", "from lane to lane"],
  ["Enter", "open what is chosen: a launch in the microscope, a lane as values, a fold"], ["Home End", "end and start of the reverse pass"],
  ["p", "play, pause"], ["+ − f", "zoom in, out, whole tape"], ["w a s d", "zoom in, left, zoom out, right"],
  ["shift drag", "choose a range: its table; Esc ends it"], [". ,", "unfold, fold"], ["/", "search names"],
  ["← →", "on the statements of a thread: its steps"], ["?", "these keys"], ["Esc", "give the keyboard back to the notebook"],
];

/** The list, shut. @param {any} v */
export function helpOf(v) {
  v.help = h("div", { class: "wb-keys", role: "dialog", "aria-label": "keys", hidden: true },
    h("dl", {}, ...KEYS.flatMap(([key, what]) => [h("dt", {}, ...key.split(" ").flatMap((one, k) => (k ? [" ", h("kbd", {}, one)] : [h("kbd", {}, one)]))), h("dd", {}, what)])),
    button("close", "close the list of keys", () => showKeys(v, false)));
  return v.help;
}

/** The hint in the line of buttons. @param {any} v */
export const hintOf = (v) => h("span", "wb-hint", h("span", {}, h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " step"), button("? keys", "show the keys", () => showKeys(v, v.help.hidden)));

/** @param {any} v @param {boolean} open */
export function showKeys(v, open) {
  if (open === !v.help.hidden) return;
  if (open) v.beforeHelp = pageAround(v.rootEl).activeElement;
  v.help.hidden = !open;
  (open ? v.help.querySelector("button") : v.beforeHelp)?.focus?.();
}
