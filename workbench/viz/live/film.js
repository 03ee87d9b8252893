// @ts-check
// The film as a widget of its own, or a page: the stage, and nothing below it.
import { h } from "./elements.js";
import { stageOf } from "./film_stage.js";
import { hearLate } from "./late_messages.js";

/** @param {any} model @param {HTMLElement} el @param {AbortSignal} signal */
export function film(model, el, signal) {
  const root = h("div", { class: "wb-view wb-filmroot" });
  el.append(root);
  const f = stageOf(model, signal, root, () => model.set("chosen", f.chosen));
  root.append(f.element);
  f.paint();
}

export default {
  /** @param {{model: any, el: HTMLElement, signal: AbortSignal}} given */
  render({ model, el, signal }) {
    hearLate(model);
    try {
      film(model, el, signal);
    } catch (error) { // drawing must not take the cell down
      el.append(h("p", { class: "wb-view wb-error" }, `The film could not be drawn: ${error}. The tape and its gradients are not affected.`));
      throw error;
    }
  },
};
