// @ts-check
// The film as a widget of its own, or a page: the stage, and nothing below it.
import { h } from "./elements.js";
import { stageOf } from "./film_stage.js";
import { widgetOf } from "./late_messages.js";

/** @param {any} model @param {HTMLElement} el @param {AbortSignal} signal */
export function film(model, el, signal) {
  const root = h("div", "wb-view wb-filmroot");
  el.append(root);
  const f = stageOf(model, signal, root, () => model.set("chosen", f.chosen));
  root.append(f.element);
  f.paint();
}

export default widgetOf("The film", film);
