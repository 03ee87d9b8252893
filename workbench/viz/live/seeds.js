// @ts-check
/* The heat-map in which one element of an array is picked, and the care for the keyboard of the panel around it.

JupyterLab takes arrow keys away from whatever has no `data-lm-suppress-shortcuts` itself, so every focusable element of
the panel gets it, and a name to be read by. */

import { floats, heatmap } from "./heat.js";
import { widgetOf } from "./late_messages.js";

const FOCUSABLE = "input, button, select, textarea, summary, [tabindex]";
const WIDE = 640, TALL = 220, CELL = 5; // pixels: a cell that the mouse can hit

/** Names and keys for everything in the panel that can have the focus. @param {Element} root */
function care(root) {
  for (const found of root.querySelectorAll(FOCUSABLE)) {
    if (!found.hasAttribute("data-lm-suppress-shortcuts")) found.setAttribute("data-lm-suppress-shortcuts", "true");
    const row = found.closest(".jupyter-widgets");
    const names = row ? Array.from(row.querySelectorAll(".widget-label, label")).map((each) => each.textContent?.replace(/\u200b/g, "").trim()) : [];
    const text = names.find(Boolean);
    if (text && !found.getAttribute("aria-label") && !found.textContent?.trim()) found.setAttribute("aria-label", text);
  }
  for (const bar of root.querySelectorAll(".widget-hprogress .progress, .widget-progress .progress")) {
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", "progress");
  }
}

/** Keys and names for the panel around the picker, from when it is on the page. @param {any} model
 * @param {HTMLElement} el @param {() => void} repaint in the colours of the page @param {AbortSignal} signal */
function attach(model, el, repaint, signal) {
  if (signal?.aborted) return;
  const root = el.closest(".wb-seeds");
  if (!root) { setTimeout(() => attach(model, el, repaint, signal), 50); return; }
  care(root);
  repaint();
  const observer = new MutationObserver(() => care(root));
  observer.observe(root, { childList: true, subtree: true });
  signal?.addEventListener("abort", () => observer.disconnect());
  root.addEventListener("keydown", (/** @type {any} */ event) => {
    if (event.key !== "Escape") return;
    const notebook = root.closest(".jp-Notebook");
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    if (notebook instanceof HTMLElement) notebook.focus();
  }, { signal });
  model.set("ready", true);
  model.save_changes();
}

/** @param {any} model @param {HTMLElement} el @param {AbortSignal} signal */
function picker(model, el, signal) {
  el.classList.add("wb-pick");
  const map = heatmap(el, {
    label: "", follow: true,
    room: () => Math.min(el.clientWidth || WIDE, WIDE),
    tall: () => Math.max(TALL, CELL * (model.get("info").rows ?? 0)),
    pick(element) {
      model.set("picked", element);
      model.save_changes();
    },
  });
  const draw = () => {
    const info = model.get("info");
    if (!info.frame) return;
    map.draw({ ...info, cells: floats(model.get("cells")), known: null }, model.get("label"));
    map.select(model.get("picked"));
  };
  const traits = "change:picked change:info change:cells change:label";
  model.on(traits, draw);
  const themed = new MutationObserver(map.repaint);
  themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "class"] });
  signal?.addEventListener("abort", () => { model.off(traits, draw); themed.disconnect(); });
  draw();
  attach(model, el, map.repaint, signal);
}

export default widgetOf("The picker", picker);
