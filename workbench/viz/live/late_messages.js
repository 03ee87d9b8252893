// @ts-check
// The start of a widget. A page that was loaded late must not be deaf.
import { h } from "./elements.js";

/** Hear the kernel although the script was loaded late. anywidget 0.11 gives the script of a model two seconds, which a
 * busy machine can exceed; after them it passes on no message of the kernel to that model, for ever, and says so only in
 * the console. Then its class is left out: messages go to the one that it is made from, and the state is asked for anew.
 * Where there is no Jupyter, or no kernel, there is nothing to mend. @param {any} model */
async function hearLate(model) {
  const own = await Promise.resolve(model.widget_manager?.get_model?.(model.get("comm_id"))).catch(() => null);
  if (!own?.comm || !own._handle_comm_msg) return;
  try {
    await own._handle_comm_msg({ content: { data: { method: "none" } } }); // a message that asks for nothing
  } catch {
    const made_from = Object.getPrototypeOf(Object.getPrototypeOf(own));
    own.comm.on_msg(made_from._handle_comm_msg.bind(own));
    own.comm.send({ method: "request_state" }, {});
  }
}

/** The widget that `draw` makes. @param {string} what @param {(model: any, el: HTMLElement, signal: AbortSignal) => void} draw */
export const widgetOf = (what, draw) => ({
  /** @param {{model: any, el: HTMLElement, signal: AbortSignal}} given */
  render({ model, el, signal }) {
    hearLate(model);
    try {
      draw(model, el, signal);
    } catch (error) { // drawing must not take the cell down
      el.append(h("p", "wb-view wb-error", `${what} could not be drawn: ${error}. The tape and its gradients are not affected.`));
      throw error;
    }
  },
});
