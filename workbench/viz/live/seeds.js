// @ts-check
/* The picker of one element of an array, and the care for the keyboard of the panel around it.

The picture is one tab stop: arrows move, Home and End go to the ends. JupyterLab takes arrow keys away from whatever
has no `data-lm-suppress-shortcuts` itself, so every focusable element of the panel gets it, and a name to be read by. */

const NS = "http://www.w3.org/2000/svg";
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

/** @param {number} value @param {number} most */
function colour(value, most) {
  if (!Number.isFinite(value)) return "#000";
  const share = most > 0 ? Math.round(100 * Math.sqrt(Math.abs(value) / most)) : 0;
  return `color-mix(in srgb, var(--wb-${value > 0 ? "plus" : "minus"}) ${share}%, var(--wb-ground))`;
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

function render({ model, el, signal }) {
  el.classList.add("wb-pick");
  const label = document.createElement("div");
  label.className = "wb-pick-label";
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("role", "slider");
  svg.setAttribute("data-lm-suppress-shortcuts", "true");
  el.append(label, svg);

  const values = () => {
    const raw = model.get("values");
    const bytes = new Uint8Array(raw.buffer, raw.byteOffset, raw.byteLength).slice();
    return new Float32Array(bytes.buffer);
  };

  function draw() {
    const all = values(), columns = model.get("columns"), count = model.get("count"), at = model.get("picked");
    const start = windowStart(at, count), shown = Math.min(CELLS, count - start);
    const size = Math.max(9, Math.min(22, Math.floor(640 / Math.max(columns, 1))));
    let most = 0;
    for (const value of all) if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
    svg.replaceChildren();
    svg.setAttribute("width", String(columns * size + 4));
    svg.setAttribute("height", String(Math.ceil(shown / columns) * size + 4));
    let here = null;
    for (let n = 0; n < shown; n++) {
      const k = start + n, cell = document.createElementNS(NS, "rect");
      cell.setAttribute("x", String(2 + (n % columns) * size));
      cell.setAttribute("y", String(2 + Math.floor(n / columns) * size));
      cell.setAttribute("width", String(size));
      cell.setAttribute("height", String(size));
      cell.style.fill = colour(all[k], most);
      cell.dataset.k = String(k);
      if (k === at) { cell.classList.add("wb-here"); here = cell; }
      svg.append(cell);
    }
    if (here) svg.append(here);
    const text = `${model.get("names")[0]} number ${at} of ${count}: ${all[at]?.toPrecision(4)}`;
    svg.setAttribute("aria-label", `element of ${model.get("names")[0]}`);
    svg.setAttribute("aria-valuemin", "0");
    svg.setAttribute("aria-valuemax", String(count - 1));
    svg.setAttribute("aria-valuenow", String(at));
    svg.setAttribute("aria-valuetext", text);
    label.textContent = count > CELLS ? `${text} (numbers ${start} to ${start + shown - 1} are shown)` : text;
  }

  function pick(k) {
    model.set("picked", k);
    model.save_changes();
  }

  svg.addEventListener("keydown", (event) => {
    const to = moved(event.key, model.get("picked"), model.get("columns"), model.get("count"));
    if (to === null) return;
    event.preventDefault();
    pick(to);
  }, { signal });
  svg.addEventListener("click", (event) => {
    const cell = event.target instanceof Element ? event.target.closest("rect") : null;
    if (cell?.dataset.k) { pick(Number(cell.dataset.k)); svg.focus(); }
  }, { signal });
  model.on("change:picked change:values change:columns change:count change:names", draw);
  draw();

  let observer = null;
  const attach = () => {
    if (signal?.aborted) return;
    const root = el.closest(".wb-seeds");
    if (!root) { setTimeout(attach, 50); return; }
    care(root);
    observer = new MutationObserver(() => care(root));
    observer.observe(root, { childList: true, subtree: true });
    root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      const notebook = root.closest(".jp-Notebook");
      if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
      if (notebook instanceof HTMLElement) notebook.focus();
    }, { signal });
    model.set("ready", true);
    model.save_changes();
  };
  attach();
  return () => { observer?.disconnect(); model.off("change:picked change:values change:columns change:count change:names", draw); };
}

export default { render };
