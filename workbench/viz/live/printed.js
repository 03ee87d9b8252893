// @ts-check
// On paper everything lies open: the whole picture, every panel, findings and table.

/** @param {any} v */
export function listenToPrinter(v) {
  /** @type {Element[]} */ let opened = [];
  const print = (/** @type {boolean} */ now) => {
    if (now === v.printing) return;
    v.printing = now;
    if (now) opened = [...v.rootEl.querySelectorAll("details:not([open])")];
    for (const one of opened) one.toggleAttribute("open", now);
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
