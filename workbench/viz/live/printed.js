// @ts-check
// On paper everything lies open: the whole picture, every panel, findings and table; the tape as it was before it was
// opened at its first finding.
import { look, refold } from "./window.js";

/** @param {any} v */
export function listenToPrinter(v) {
  /** @type {Element[]} */ let opened = [];
  const print = (/** @type {boolean} */ now) => {
    if (now === v.printing) return;
    v.printing = now;
    if (now) opened = [...v.rootEl.querySelectorAll("details:not([open])")];
    for (const one of opened) one.toggleAttribute("open", now);
    if (v.whole) {
      const was = { open: v.open, u0: v.u0, u1: v.u1 };
      v.open = v.whole.open;
      refold(v);
      look(v, v.whole.u0, v.whole.u1);
      v.whole = was;
    }
    v.draw();
    v.panels.print();
  };
  const media = globalThis.matchMedia?.("print"), changed = () => print(media.matches);
  const before = () => print(true), after = () => print(false);
  window.addEventListener("beforeprint", before);
  window.addEventListener("afterprint", after);
  media?.addEventListener("change", changed);
  v.signal?.addEventListener("abort", () => {
    window.removeEventListener("beforeprint", before);
    window.removeEventListener("afterprint", after);
    media?.removeEventListener("change", changed);
  });
}
