// @ts-check
// What stands below the picture: the panels, which ask the kernel. A new panel is a file like
// ledger_panel.js, a line here, a question in `View.answer`, and its answers in offline.py.
import { h } from "./elements.js";
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
