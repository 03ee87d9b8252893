// @ts-check
// The frame of the page around the picture: title, buttons, search, the strip of the whole tape, legend and status.
import { againstOf } from "./against.js";
import { button, h, s } from "./elements.js";
import { helpOf, hintOf } from "./help.js";
import { play } from "./play.js";
import { nextHit, search } from "./search.js";
import { foldAll, look, step, zoom } from "./window.js";

/** Everything that there is besides panels, findings and table. @param {any} v */
export function pageOf(v) {
  v.status = h("div", { class: "wb-status", role: "status", "aria-live": "polite" });
  v.seedText = h("span", "wb-seed");
  v.picture = s("svg", { class: "wb-lanes", role: "application", "aria-roledescription": "tape view" });
  v.picture.setAttribute("aria-label", `${v.meta.sentence} Left and right step the reverse pass, up and down go from lane to lane, Enter opens, question mark lists all keys.`);
  v.cursorLine = s("path", { class: "cursor" });
  v.cursorBox = s("rect", { class: "cursorbox", height: 14, rx: 7 });
  v.cursorText = s("text", { class: "cursortext", "font-size": 9.5 });
  v.spacer = h("div", "wb-spacer");
  v.plot = h("div", "wb-plot", v.picture, v.spacer);
  v.tip = h("div", { class: "wb-tip", "aria-hidden": "true" });
  v.map = h("canvas", { class: "wb-map", role: "img", "aria-label": `the whole tape: ${v.meta.summary}` });
  v.frame = h("div", { class: "wb-frame", "aria-hidden": "true" });
  v.overview = h("div", "wb-overview", v.map, v.frame);
  v.legend = h("div", "wb-legend");
  v.warning = h("p", "wb-warning");
  const bar = h("div", "wb-bar", h("strong", {}, v.meta.title), h("span", "wb-muted", v.meta.summary), v.seedText);
  v.main = h("div", "wb-main", v.plot, v.overview, v.status);
  v.stage = h("div", "wb-stage", v.main, helpOf(v));
  return h("div", { class: "wb-view", tabindex: "-1" }, bar, v.warning, againstOf(v), toolsOf(v), v.stage, v.legend, v.tip);
}

/** The line of buttons. @param {any} v */
function toolsOf(v) {
  v.playing = button("play", "play the reverse pass", () => play(v));
  v.moment = h("span", "wb-moment");
  v.searching = h("input", {
    type: "search", placeholder: "search names", "aria-label": "search launches, memory and scopes by name",
    oninput: () => search(v, v.searching.value), onkeydown: (/** @type {KeyboardEvent} */ ev) => {
      if (ev.key === "Enter") { nextHit(v, ev.shiftKey ? -1 : 1); ev.preventDefault(); }
    },
  });
  const folding = v.meta.folds.length ? [button("fold", "fold every scope and loop", () => foldAll(v, true)), button("unfold", "unfold the outermost folds", () => foldAll(v, false))] : [];
  return h("div", { class: "wb-tools", role: "group", "aria-label": "tape view" },
    h("span", "wb-steps",
      button("◀◀", "end of the reverse pass", () => step(v, 0)),
      button("◀ step", "one step of the reverse pass", () => step(v, v.get("cursor") - 1)), v.playing,
      button("undo ▶", "undo one step of the reverse pass", () => step(v, v.get("cursor") + 1)),
      button("▶▶", "start of the reverse pass: only the seed", () => step(v, v.n)), v.moment),
    h("span", "wb-zooms", button("−", "zoom out", () => zoom(v, 2)), button("+", "zoom in", () => zoom(v, 0.5)),
      button("fit", "show the whole tape", () => look(v, 0, v.all.size)), ...folding),
    v.searching, hintOf(v));
}
