// @ts-check
// The live tape view: draws a window of the lanes, moves the cursor, asks for heat-maps, ledgers and microscopes.
// Names and source lines only ever become text. The page holds at most as many marks as compose.js allows, at any zoom.
import { composed } from "./compose.js";
import { holdInSight, keepInSight, measured } from "./panel_height.js";
import { placeRows, showSeed } from "./families.js";
import { listenToPicture } from "./keys.js";
import { decodeLevels, tallies } from "./lanes.js";
import { widgetOf } from "./late_messages.js";
import { listenToMap, paintFrame, paintMap } from "./overview.js";
import { pageOf } from "./page.js";
import { drawLegend, drawScale } from "./legend.js";
import { moveCursor, paint } from "./paint.js";
import { panelsOf } from "./panels.js";
import { added, stateOf } from "./state.js";
import { listenToPrinter } from "./printed.js";
import { fillTable, tableOf } from "./table.js";
import { fillVerdict, lookForFindings, verdictOf } from "./verdict.js";
import { keepCursor, look } from "./window.js";

/** @param {any} model @param {HTMLElement} el @param {AbortSignal} signal */
export function explorer(model, el, signal) {
  const v = stateOf(model, signal);
  v.draw = () => draw(v);
  v.drawMap = () => paintMap(v);
  v.rootEl = pageOf(v);
  el.append(v.rootEl);
  v.rootEl.prepend(verdictOf(v));
  v.panels = panelsOf(v);
  v.stage.append(v.panels.element);
  v.rootEl.append(tableOf(v));
  drawLegend(v);
  keepInSight(v);
  listenToPicture(v);
  listenToMap(v);
  listenToModel(v);
  warn(v);
  measured(v);
  placeRows(v);
  v.u1 = Math.max(v.all.size, 1);
  takeLevels(v);
  look(v, 0, v.all.size);
  watch(v);
  listenToPrinter(v);
  v.panels.arrayChanged();
  v.panels.elementChanged();
  v.panels.threadChanged();
  for (const add of added) add(v);
  v.set({ ready: true });
  lookForFindings(v); // answered first: levels take long
  if (!v.levels && v.n) v.ask("levels").catch((/** @type {Error} */ error) => v.say(error.message));
}

/** @param {any} v */
function draw(v) {
  if (!v.lanes.length && v.meta.lanes.length) placeRows(v);
  composed(v);
  paint(v);
  moveCursor(v);
  paintFrame(v);
  showSeed(v);
  if (v.tableBox.hasAttribute("open")) fillTable(v);
}

/** The adjoint side, when it comes or changes. @param {any} v */
function takeLevels(v) {
  const lm = v.get("levels_meta"), om = v.get("other_meta");
  v.levels = lm?.tables ? decodeLevels(lm, v.get("levels"), v.tape) : null;
  v.other = om?.tables ? decodeLevels(om, v.get("other"), v.tape) : null;
  v.sums = tallies(v.tape, v.levels);
  v.seedText.textContent = lm?.seed ? `seed  ${lm.seed}` : v.levels ? "" : "no adjoint yet";
  v.seedText.title = lm?.seed ?? "";
  drawScale(v);
  placeRows(v);
  paintMap(v);
  v.draw();
  fillVerdict(v);
  v.panels.renew();
}

/** @param {any} v */
function warn(v) {
  v.warning.textContent = v.get("warning");
  v.warning.style.display = v.get("warning") ? "" : "none";
}

/** What to do when the kernel, or another part of the page, changes a trait. @param {any} v */
function listenToModel(v) {
  const { panels } = v;
  /** @type {Record<string, () => void>} */ const listeners = {
    "change:cursor": () => cursorMoved(v), "change:array": () => { panels.arrayChanged(); moveCursor(v); },
    "change:element": () => panels.elementChanged(),
    "change:launch": () => panels.threadChanged(), "change:thread": () => panels.threadChanged(),
    "change:walks": () => takeLevels(v), "change:warning": () => warn(v), "change:status": () => v.say(v.get("status")),
  };
  for (const [name, act] of Object.entries(listeners)) v.model.on(name, act);
  v.signal?.addEventListener("abort", () => {
    clearInterval(v.timer);
    v.close();
    for (const [name, act] of Object.entries(listeners)) v.model.off(name, act);
  });
}

/** @param {any} v */
function cursorMoved(v) {
  if (!keepCursor(v, 1)) moveCursor(v);
  v.panels.cursorMoved();
}

/** The size of the page and its theme. @param {any} v */
function watch(v) {
  const measure = () => {
    holdInSight(v);
    if (v.printing || !measured(v)) return;
    v.u1 = Math.max(v.u1, v.u0 + 1);
    placeRows(v);
    paintMap(v);
    look(v, v.u0, v.u1);
    v.panels.repaint();
    holdInSight(v);
  };
  const watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(measure);
  const themed = new MutationObserver(() => { paintMap(v); v.panels.repaint(); });
  themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "class"] });
  watcher?.observe(v.rootEl);
  window.addEventListener("resize", measure, { signal: v.signal ?? undefined });
  v.signal?.addEventListener("abort", () => {
    watcher?.disconnect();
    themed.disconnect();
  });
}

export default widgetOf("The tape view", explorer);
