// @ts-check
// A question with its answers. Until one is chosen, or the question is skipped, the cells below it are veiled: a class on
// its own cell says so, and a style sheet does the rest, for cells that come into the page later too. That sheet is the
// page's own, as marimo shows a widget in a shadow root, out of which no sheet of the widget reaches.
import { button, h } from "./elements.js";
import { widgetOf } from "./late_messages.js";

const VEILED = "wb-asks", SHEET = "wb-veil";
const CELL = '.jp-Cell, [data-testid="cell-column"] > *, .marimo-cell:not([data-testid="cell-column"] *)';
const BELOW = `.${VEILED} ~ :is(.jp-Cell, .marimo-cell, :has(.marimo-cell))`;
const VEIL = `${BELOW} { background: repeating-linear-gradient(135deg, transparent 0 8px, #88888822 8px 16px) !important; border-radius: 6px; }
${BELOW} > * { visibility: hidden !important; }
${BELOW} > * * { visibility: inherit !important; }
@media print { ${BELOW} > *, ${BELOW} > * * { visibility: visible !important; } }`;

/** The cell that an element is shown in, if the page has cells. @param {Element} el @returns {Element | null} */
function cellOf(el) {
  const root = el.getRootNode();
  return el.closest(CELL) ?? (root instanceof ShadowRoot ? cellOf(root.host) : null);
}

/** @param {Document} page */
function veilSheet(page) {
  if (!page.getElementById(SHEET)) page.head.append(h("style", { id: SHEET }, VEIL));
}

/** @param {any} model @param {HTMLElement} el @param {AbortSignal} signal */
function quiz(model, el, signal) {
  const said = h("p", { class: "wb-said", role: "status" }), note = h("p", "wb-faint");
  const answers = model.get("answers").map((/** @type {string} */ text) => button(text, text, () => send("chosen", text)));
  const skip = button("skip", "skip the question: tell the answer", () => send("skipped", true));
  const done = () => model.get("chosen") !== null || model.get("skipped");
  /** @type {Element | null} */ let cell = null;
  const veil = () => {
    cell = cellOf(el) ?? cell;
    cell?.classList.toggle(VEILED, !done());
    note.textContent = cell && !done() ? "The cells below are veiled until you answer or skip." : "";
  };
  const send = (/** @type {string} */ name, /** @type {any} */ value) => {
    model.set(name, value);
    model.save_changes();
    tell();
  };
  const tell = () => {
    const { right, because } = model.get("told"), chosen = model.get("chosen");
    veil();
    skip.hidden = done();
    if (right === undefined) return;
    for (const one of answers) {
      const text = one.textContent;
      one.className = text === right ? "right" : text === chosen ? "wrong" : "";
    }
    said.textContent = `${chosen === right ? "Right." : chosen === null ? `${right}.` : `No: ${right}.`} ${because}`.trim();
  };
  el.append(h("div", "wb-quiz", h("p", {}, h("b", {}, model.get("question"))),
    h("div", { class: "wb-answers", role: "group", "aria-label": "answers" }, ...answers, skip), note, said));
  const changes = ["change:told", "change:chosen", "change:skipped"];
  for (const name of changes) model.on(name, tell);
  veilSheet(el.ownerDocument);
  const placed = new ResizeObserver(veil); // the element comes into its cell after it is made
  placed.observe(el);
  tell();
  signal?.addEventListener("abort", () => {
    placed.disconnect();
    cell?.classList.remove(VEILED);
    for (const name of changes) model.off(name, tell);
  });
}

export default widgetOf("The question", quiz);
