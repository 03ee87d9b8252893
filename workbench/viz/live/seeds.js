// @ts-check
/* The picker of one element of an array, and the care for the keyboard of the panel around it.

The picture is one tab stop: arrows move, Home and End go to the ends. JupyterLab takes arrow keys away from whatever
has no `data-lm-suppress-shortcuts` itself, so every focusable element of the panel gets it, and a name to be read by. */

import { h, s } from "./elements.js";
import { colourBar, floats, largest, shade } from "./heat.js";
import { hearLate } from "./late.js";

const FOCUSABLE = "input, button, select, textarea, summary, [tabindex]";
const CELLS = 1024;

/** The first cell of the window of cells that shows cell `at`. @param {number} at @param {number} count */
export function windowStart(at, count) {
  return count <= CELLS ? 0 : Math.floor(at / CELLS) * CELLS;
}

/** Where a key leads. @param {string} key @param {number} at @param {number} columns @param {number} count */
export function moved(key, at, columns, count) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -8 * columns, PageDown: 8 * columns };
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if (!(key in steps)) return null;
  const to = at + steps[key];
  return to < 0 || to >= count ? at : to;
}

/** As in the heat-maps. @param {number} value @param {number} most */
function colour(value, most) {
  if (!Number.isFinite(value)) return "var(--wb-ill)";
  return `color-mix(in srgb, var(--wb-${value > 0 ? "plus" : "minus"}) ${Math.round(100 * Math.abs(shade(value, most)))}%, var(--wb-blank))`;
}

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

/** Draw the window of cells that holds the chosen one, with what their colours mean.
 * @param {any} model @param {SVGElement} svg @param {HTMLElement} label @param {HTMLElement} scale */
function drawCells(model, svg, label, scale) {
  const all = floats(model.get("values")), columns = model.get("columns"), count = model.get("count"), at = model.get("picked");
  const start = windowStart(at, count), shown = Math.min(CELLS, count - start), most = largest(all), name = model.get("names")[0];
  const size = Math.max(9, Math.min(22, Math.floor(640 / Math.max(columns, 1))));
  const cells = Array.from({ length: shown }, (_, n) => {
    const k = start + n, cell = s("rect", { x: 2 + (n % columns) * size, y: 2 + Math.floor(n / columns) * size, width: size, height: size, "data-k": k });
    cell.style.fill = colour(all[k], most);
    if (k === at) cell.classList.add("wb-here");
    return cell;
  });
  svg.replaceChildren(...cells.filter((_, n) => start + n !== at), ...cells.filter((_, n) => start + n === at)); // the chosen one on top
  const text = `${name} number ${at} of ${count}: ${all[at]?.toPrecision(4)}`;
  const given = {
    width: columns * size + 4, height: Math.ceil(shown / columns) * size + 4, "aria-label": `element of ${name}`,
    "aria-valuemin": 0, "aria-valuemax": count - 1, "aria-valuenow": at, "aria-valuetext": text,
  };
  scale.replaceChildren(...(most ? [colourBar(all.some((v) => v < 0) ? -most : 0, all.some((v) => v > 0) ? most : 0)] : []));
  for (const [key, value] of Object.entries(given)) svg.setAttribute(key, String(value));
  label.textContent = count > CELLS ? `${text} (numbers ${start} to ${start + shown - 1} are shown)` : text;
}

/** Keys and names for the panel around the picker, from when it is on the page. @param {any} model @param {HTMLElement} el @param {AbortSignal} signal */
function attach(model, el, signal) {
  if (signal?.aborted) return;
  const root = el.closest(".wb-seeds");
  if (!root) { setTimeout(() => attach(model, el, signal), 50); return; }
  care(root);
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

/** @param {{model: any, el: HTMLElement, signal: AbortSignal}} given */
function render({ model, el, signal }) {
  el.classList.add("wb-pick");
  const label = h("div", { class: "wb-pick-label" });
  const svg = s("svg", { tabindex: "0", role: "slider", "data-lm-suppress-shortcuts": "true" });
  const scale = h("div", {});
  el.append(label, svg, scale);
  const draw = () => drawCells(model, svg, label, scale);
  const pick = (/** @type {number} */ k) => {
    model.set("picked", k);
    model.save_changes();
  };
  svg.addEventListener("keydown", (/** @type {any} */ event) => {
    const to = moved(event.key, model.get("picked"), model.get("columns"), model.get("count"));
    if (to === null) return;
    event.preventDefault();
    pick(to);
  }, { signal });
  svg.addEventListener("click", (/** @type {any} */ event) => {
    const cell = event.target instanceof Element ? /** @type {any} */ (event.target.closest("rect")) : null;
    if (cell?.dataset.k) { pick(Number(cell.dataset.k)); svg.focus(); }
  }, { signal });
  const traits = "change:picked change:values change:columns change:count change:names";
  model.on(traits, draw);
  signal?.addEventListener("abort", () => model.off(traits, draw));
  draw();
  hearLate(model);
  attach(model, el, signal);
}

export default { render };
