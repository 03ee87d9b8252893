// @ts-check
// What stands below the picture: the panels, which ask the kernel, and the legend. A new panel is a file like
// ledger_panel.js, a line here, a question in `View.answer`, and its answers in offline.py.
import { h, s } from "./elements.js";
import { heatPanel } from "./heat_panel.js";
import { ledgerPanel } from "./ledger_panel.js";
import { scopePanel } from "./scope_panel.js";

/** @param {any} v */
export function panelsOf(v) {
  const heat = heatPanel(v), ledger = ledgerPanel(v), scope = scopePanel(v);
  const chosen = () => (v.get("element").length ? ledger.ask() : ledger.clear());
  return {
    element: h("div", { class: "wb-panels" }, heat.element, ledger.element, scope.element),
    repaint: heat.repaint,
    cursorMoved: () => { heat.ask(); if (v.get("element").length) ledger.ask(); },
    arrayChanged: () => { heat.reset(); chosen(); },
    elementChanged: () => { heat.mark(); chosen(); },
    threadChanged: () => scope.ask(),
    renew: () => { heat.ask(); if (v.get("element").length) ledger.ask(); if (v.get("launch") >= 0) scope.ask(); },
  };
}

/** One line that names every sign. @param {any} v */
export function drawLegend(v) {
  const said = v.meta.legend, wide = 28;
  /** @type {[string, string, any, number?][]} */ const signs = [
    [said.read, "circle", { cx: 7, cy: 7, r: 4, class: "read" }], [said.write, "rect", { x: 3, y: 3, width: 8, height: 8, class: "write" }],
    [said.accumulate, "path", { d: "M7 2l5 5l-5 5l-5 -5z", class: "accumulate" }], [said.kept, "path", { d: "M7 2V12M4 8.5L7 12L10 8.5", class: "kept" }],
    [said.value, "path", { d: "M1 6L27 1V13L1 8Z", class: "wedge" }, wide], [said.zero, "rect", { x: 1, y: 4.5, width: 26, height: 5, rx: 2.5, class: "bar zero" }, wide],
    [`${said.nan}, ${said.inf}`, "rect", { x: 1, y: 2, width: 26, height: 10, rx: 5, class: "bar nan" }, wide],
    [said.cut, "path", { d: "M1 7H20M22 2V12M25 2V12", class: "cutsign" }, wide],
    [said.absent, "rect", { x: 1, y: 5.5, width: 26, height: 3, class: "absent", fill: `url(#${v.uid}-absent)` }, wide],
  ];
  for (const [text, tag, given, width = 14] of signs) {
    const svg = s("svg", { width, height: 14, "aria-hidden": "true" });
    svg.append(s(tag, given));
    v.legend.append(h("span", {}, svg, ` ${text}`));
  }
}
