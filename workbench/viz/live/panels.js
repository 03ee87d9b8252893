// @ts-check
// The panels of the inspector, which ask the kernel. A new panel is a file like ledger_panel.js, a line here, a question
// in `View.answer`, and its answers in offline.py.
import { dockOf } from "./panel_height.js";
import { heatPanel } from "./heat_panel.js";
import { threadFor } from "./keys.js";
import { ledgerPanel } from "./ledger_panel.js";
import { scopePanel, threadKey } from "./scope_panel.js";

/** @param {any} v */
export function panelsOf(v) {
  const heat = heatPanel(v), ledger = ledgerPanel(v), scope = scopePanel(v);
  const dock = dockOf(v, [["values", heat], ["ledger", ledger], ["microscope", scope]], heat.choice);
  const all = () => ["values", "ledger", "microscope"].forEach(dock.ask);
  /** Open a thread of a launch in the microscope (null: the one looked at last), at a line if one is given:
   * `where` is `{line, file, col}`, all but the line may be missing; `phase` "forward" or "reverse"; `adjoint` tells
   * turns of a loop apart; `from` is `{name, return}`, the way back.
   * @param {number} launch @param {number[] | null} thread @param {any} [where] @param {any} [more] */
  v.openThread = (launch, thread, where = null, { phase = "forward", adjoint = undefined, from = null } = {}) => {
    const at = thread ?? threadFor(v, launch);
    scope.aim(threadKey(launch, at), where && { where, phase, adjoint }, from);
    dock.show("microscope");
    v.set({ launch, thread: at });
    dock.ask("microscope");
  };
  v.showPanel = dock.show;
  return {
    element: dock.element,
    repaint: () => { heat.repaint(); scope.again(); },
    cursorMoved: () => { dock.ask("values"); dock.ask("ledger"); },
    arrayChanged: () => { heat.reset(); dock.show(v.get("element").length ? "ledger" : "values"); dock.ask("values"); dock.ask("ledger"); },
    elementChanged: () => { heat.mark(); if (v.get("element").length) dock.show("ledger"); dock.ask("ledger"); },
    threadChanged: () => { if (v.get("launch") >= 0 && v.get("thread").length) dock.show("microscope"); dock.ask("microscope"); },
    renew: all,
    print: () => { all(); scope.again(); },
  };
}
