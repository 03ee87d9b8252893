// @ts-check
// The inspector: one place beside the picture, or below it on a narrow page, that holds one panel at a time and is
// never out of sight while the picture is.
import { clamp, h } from "./elements.js";

const BESIDE = 940, LEAST = 150, SHARE = 0.45, LOW = 560, LOW_SHARE = 0.62, TALL = 620, GAP = 10, WIDE = [400, 620];

/** `pages` are `[name, panel]`: a panel is asked to fill itself when it is shown, and only then.
 * @param {any} v @param {[string, any][]} pages @param {HTMLElement[]} more what stands beside the tabs */
export function dockOf(v, pages, ...more) {
  const panels = new Map(pages), stale = new Set();
  /** @type {Map<string, HTMLElement>} */ const tabs = new Map();
  let shown = "";
  const show = (/** @type {string} */ name) => {
    shown = name;
    for (const [other, tab] of tabs) {
      tab.setAttribute("aria-selected", String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
      panels.get(other).element.hidden = other !== name;
    }
    if (stale.delete(name)) panels.get(name).ask();
  };
  for (const [name, { element }] of panels) {
    const id = `${v.uid}-${name}`, tab = h("button", { role: "tab", id: `${id}-tab`, "aria-controls": id, onclick: () => show(name), onkeydown: (/** @type {any} */ event) => tabKey(event, [...tabs.values()]) }, name);
    Object.assign(element, { id, role: "tabpanel" });
    element.setAttribute("role", "tabpanel");
    tabs.set(name, tab);
  }
  v.dock = h("section", { class: "wb-dock", "aria-label": "inspector" },
    h("div", "wb-docktop", h("div", { class: "wb-tabs", role: "tablist", "aria-label": "inspector" }, ...tabs.values()), ...more),
    ...pages.map(([, panel]) => panel.element));
  show(pages[0][0]);
  return {
    element: v.dock, show,
    /** Fill a panel: now if it is in sight, else when it comes. @param {string} name */
    ask: (name) => { if (name === shown) panels.get(name).ask(); else stale.add(name); },
  };
}

/** Arrows go from tab to tab. @param {KeyboardEvent} event @param {HTMLElement[]} tabs */
function tabKey(event, tabs) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by) return;
  const next = tabs[(tabs.indexOf(/** @type {any} */ (event.target)) + by + tabs.length) % tabs.length];
  next.focus();
  next.click();
  event.preventDefault();
  event.stopPropagation();
}

/** What the view is scrolled in: the nearest part of the page with a height of its own, null for the window. @param {HTMLElement} root */
function portOf(root) {
  const was = root.style.display;
  root.style.display = "none";
  /** @type {any} */ let at = root.parentNode, found = null;
  for (; at && !found; at = at.parentNode ?? at.host) {
    if (!(at instanceof HTMLElement) || at === document.body || at === document.documentElement) continue;
    const { overflowY, maxHeight } = getComputedStyle(at);
    if (/auto|scroll/.test(overflowY) && (maxHeight.endsWith("px") || at.clientHeight > 200)) found = at;
  }
  root.style.display = was;
  return found;
}

/** The height that a reader sees at once. @param {any} v */
function heightInSight(v) {
  if (v.port === undefined && v.rootEl.isConnected) v.port = portOf(v.rootEl);
  if (!v.port) return window.innerHeight - 16;
  const most = parseFloat(getComputedStyle(v.port).maxHeight);
  return Math.min(Number.isNaN(most) ? v.port.clientHeight : most, window.innerHeight);
}

/** @param {any} v */
const scrolledIn = (v) => v.stage.scrollIntoView({ block: "nearest", inline: "nearest" });

/** What comes late must not push out of sight what the reader has clicked just now. @param {any} v */
export function holdInSight(v) {
  if (performance.now() - v.acted < 10000) scrolledIn(v);
}

/** Sizes of picture and inspector so that both are in sight together. True if they changed. @param {any} v */
export function measured(v) {
  const whole = v.rootEl.clientWidth;
  if (!whole) return false;
  const beside = whole >= BESIDE, most = Math.round(heightInSight(v)), dock = Math.round(clamp(whole * 0.4, WIDE[0], WIDE[1]));
  v.rootEl.classList.toggle("wb-beside", beside);
  v.low = !beside && most < LOW;
  v.rootEl.classList.toggle("wb-low", v.low);
  v.stage.style.gridTemplateColumns = beside ? `minmax(0, 1fr) ${dock}px` : "minmax(0, 1fr)";
  v.rootEl.classList.toggle("wb-narrow", whole < 760);
  const room = Math.max(most - v.stage.offsetTop - GAP, Math.min(most - GAP, beside ? 400 : 440)), more = v.main.offsetHeight - v.plot.offsetHeight;
  const least = beside ? 0 : Math.max(Math.round(room * (v.low ? LOW_SHARE : SHARE)), LEAST), tallest = Math.max(room - more - (beside ? 0 : least + GAP), 110);
  const now = [beside, whole, most, room, more].join();
  if (now === v.measures) return false;
  Object.assign(v, { measures: now, tallest, room, more, beside, least, most });
  widen(v, v.main.clientWidth || 900);
  return true;
}

/** A picture so wide, and in it the names as wide as they may be. @param {any} v @param {number} wide */
export function widen(v, wide) {
  const { names } = v.meta.drawing;
  v.wide = wide;
  v.left = names.find((/** @type {number} */ left) => left <= wide * 0.34) ?? names.at(-1);
}

/** After a click or a key: all that it may have changed is in sight. @param {any} v */
export function keepInSight(v) {
  v.inSight = () => {
    v.acted = performance.now();
    requestAnimationFrame(() => scrolledIn(v));
  };
  v.rootEl.addEventListener("wheel", () => { v.acted = -Infinity; }, { passive: true });
  v.rootEl.addEventListener("click", (/** @type {any} */ event) => { if (!event.target.closest("summary, .wb-table, .wb-legend")) v.inSight(); });
}

/** The inspector beside a picture is as high as it, or high enough; below it gets what the picture leaves. @param {any} v @param {number} tall of the plot */
export function stretchDock(v, tall) {
  if (!v.room) return;
  if (v.printing) { v.dock.style.height = ""; return; }
  const picture = tall + v.more;
  v.dock.style.height = `${v.beside ? Math.max(picture, Math.min(v.room, TALL)) : Math.min(Math.max(v.room - picture - GAP, v.least), Math.max(v.most - picture - GAP, LEAST), TALL)}px`;
}
