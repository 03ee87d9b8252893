// @ts-check
// The live tape view: draws a window of the lanes, moves the cursor, asks for heat-maps, ledgers and microscopes.
// Names and source lines only ever become text. The page holds at most BUDGET marks at any zoom.
import { h, heatWidget, short } from "./heat.js";
import { bars, blocks, decode, decodeLevels, levelAt, lower, tallies, thickness, unitOf, units } from "./lanes.js";
import { drawLegend, panelsOf } from "./panels.js";

const BUDGET = 1900, CELLS = 500, NARROW = 38, RIGHT = 26, TALLEST = 440, ROWS = 200, OPEN = 60, FEW = 20;
const SVG = "http://www.w3.org/2000/svg";
const BADGES = { nan: "NaN", inf: "Inf", died: "died" };
const WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/** @param {string} tag @param {Record<string, any>} given @param {string} [text] */
function s(tag, given, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(given)) {
    node.setAttribute(key, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
  }
  if (text !== undefined) node.textContent = text;
  return node;
}

/** As much of a text as has room. @param {string} text @param {number} room @param {number} size */
export function fit(text, room, size) {
  const most = Math.floor(room / (size * 0.612));
  return text.length <= most ? text : most > 1 ? text.slice(0, most - 1) + "…" : "";
}

/** `3 reads`. @param {number} n @param {string} one @param {string} [many] */
const count = (n, one, many = one + "s") => `${n} ${n === 1 ? one : many}`;

/** @param {number} n */
const bytes = (n) => (n < 1000 ? `${n} B` : n < 1e6 ? `${short(n / 1e3, 3)} kB` : `${short(n / 1e6, 3)} MB`);

/** The fewest units per column so that columns are not too narrow. @param {number} shown @param {number} room */
export function bunch(shown, room) {
  let g = 1;
  while (shown / g > room / NARROW) g *= 2;
  return g;
}

/** @param {any} model @param {HTMLElement} el @param {AbortSignal} signal */
export function explorer(model, el, signal) {
  const uid = `wb${Math.random().toString(36).slice(2, 9)}`;
  const still = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
  let tape = decode(model.get("meta"), model.get("columns"));
  /** @type {import("./lanes.js").Levels | null} */ let levels = null;
  /** @type {import("./lanes.js").Levels | null} */ let other = null;
  const meta = tape.meta, n = tape.n;
  const open = new Set(n > OPEN ? [] : meta.folds.keys());
  let all = units(meta.folds, n, open), sums = tallies(tape, null);
  let u0 = 0, u1 = 1, wide = 900, left = 264, head = 100;
  /** @type {any[]} */ let cols = [];
  /** @type {any[]} */ let lanes = [];
  /** @type {any[]} */ let findings = [];
  /** @type {any[]} */ let dated = [];
  let focus = { e: 0, lane: -1 }, grouped = 1, query = "", hits = /** @type {any[]} */ ([]), hit = -1;
  /** @type {any} */ let timer = null;
  const blocksOn = new Map();
  const get = (/** @type {string} */ name) => model.get(name);
  const set = (/** @type {Record<string, any>} */ values) => {
    for (const [name, value] of Object.entries(values)) model.set(name, value);
    model.save_changes();
  };

  // ---- questions to the kernel

  let asked = 0;
  const waiting = new Map();
  const ask = (/** @type {string} */ what, /** @type {any} */ more = {}) => new Promise((done, fail) => {
    const content = { id: `${uid}-${++asked}`, ask: what, ...more };
    waiting.set(content.id, { done, fail, content, tries: 0 });
    model.send(content);
  });
  const heard = (/** @type {any} */ message, /** @type {DataView[]} */ buffers) => {
    const one = waiting.get(message?.id);
    if (!one) return;
    if (message.busy) {
      say(`${message.busy} …`);
      if (one.tries++ < 600) setTimeout(() => model.send(one.content), 400);
      return;
    }
    waiting.delete(message.id);
    if (message.error !== undefined) one.fail(new Error(message.error));
    else one.done({ ...message.ok, buffers: buffers ?? [] });
  };
  model.on("msg:custom", heard);

  /** Ask for what is wanted now; while one question is on its way, only the newest of the others waits.
   * @param {string} what @param {() => any} wanted @param {(answer: any, asked: any) => void} take @param {(error: string) => void} refuse */
  function keen(what, wanted, take, refuse) {
    let running = false, again = false;
    return async function go() {
      if (running) { again = true; return; }
      running = true;
      do {
        again = false;
        const more = wanted();
        if (!more) break;
        try {
          take(await ask(what, more), more);
          say("");
        } catch (error) {
          refuse(/** @type {Error} */ (error).message);
        }
      } while (again);
      running = false;
    };
  }

  // ---- the frame of the page

  const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ act, more = {}) =>
    h("button", { type: "button", title: label, "aria-label": label, onclick: act, ...more }, text);
  const status = h("div", { class: "wb-status", role: "status", "aria-live": "polite" });
  const say = (/** @type {string} */ text) => { if (status.textContent !== text) status.textContent = text; };
  const seedText = h("span", { class: "wb-seed" });
  const playing = button("play", "play the reverse pass", () => play());
  const moment = h("span", { class: "wb-moment" });
  const searching = /** @type {HTMLInputElement} */ (h("input", {
    type: "search", placeholder: "search names", "aria-label": "search launches, memory and scopes by name",
    oninput: () => search(searching.value), onkeydown: (/** @type {KeyboardEvent} */ ev) => {
      if (ev.key === "Enter") { nextHit(ev.shiftKey ? -1 : 1); ev.preventDefault(); }
    },
  }));
  const tools = h("div", { class: "wb-tools", role: "group", "aria-label": "tape view" },
    h("span", { class: "wb-steps" },
      button("◀◀", "end of the reverse pass", () => step(0)),
      button("◀ step", "one step of the reverse pass", () => step(get("cursor") - 1)), playing,
      button("undo ▶", "undo one step of the reverse pass", () => step(get("cursor") + 1)),
      button("▶▶", "start of the reverse pass: only the seed", () => step(n)), moment),
    h("span", { class: "wb-zooms" }, button("−", "zoom out", () => zoom(2)), button("+", "zoom in", () => zoom(0.5)),
      button("fit", "show the whole tape", () => look(0, all.count)),
      ...(meta.folds.length ? [button("fold", "fold every scope and loop", () => foldAll(true)), button("unfold", "unfold the outermost folds", () => foldAll(false))] : [])),
    searching);
  const picture = /** @type {any} */ (s("svg", { class: "wb-lanes", role: "application", "aria-roledescription": "tape view" }));
  picture.setAttribute("aria-label", `${meta.sentence} Arrow keys move, Enter selects, brackets step the reverse pass, x unfolds, c folds, plus and minus zoom, slash searches.`);
  const spacer = h("div", { class: "wb-spacer" });
  const plot = h("div", { class: "wb-plot" }, picture, spacer);
  const tip = h("div", { class: "wb-tip", "aria-hidden": "true" });
  const map = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "wb-map", role: "img", "aria-label": `the whole tape: ${meta.summary}` }));
  const frame = h("div", { class: "wb-frame", "aria-hidden": "true" });
  const overview = h("div", { class: "wb-overview" }, map, frame);
  const legend = h("div", { class: "wb-legend" });
  const warning = h("p", { class: "wb-warning" });
  const rootEl = h("div", { class: "wb-view" },
    h("div", { class: "wb-bar" }, h("strong", {}, meta.title), h("span", { class: "wb-muted" }, meta.summary), seedText),
    warning, tools, plot, overview, legend, status, tip);
  el.append(rootEl);

  // ---- windows, folds, moments

  const room = () => Math.max(wide - left - RIGHT, 200);
  const pitch = () => room() / (u1 - u0);
  const X = (/** @type {number} */ unit) => left + (unit - u0) * pitch();

  /** @param {number} a @param {number} b */
  function look(a, b) {
    const most = Math.max(all.count, 1), size = Math.min(Math.max(b - a, Math.min(2, most)), most);
    const from = Math.min(Math.max(a + (b - a - size) / 2, 0), Math.max(most - size, 0));
    u0 = from;
    u1 = from + size;
    draw();
  }

  /** @param {number} factor @param {number} [at] */
  function zoom(factor, at = (u0 + u1) / 2) {
    look(at - (at - u0) * factor, at + (u1 - at) * factor);
  }

  function foldAll(/** @type {boolean} */ shut) {
    const before = [...open];
    open.clear();
    if (!shut) {
      before.forEach((k) => open.add(k));
      for (const k of all.fold.slice(0, all.count)) if (k >= 0) open.add(k);
    }
    refold();
  }

  /** @param {number} k */
  function toggle(k) {
    if (!open.delete(k)) open.add(k);
    refold(meta.folds[k][1], meta.folds[k][2]);
    say(`${meta.folds[k][0]} ${open.has(k) ? "unfolded" : "folded"}`);
  }

  /** Columns anew, with a look at events [first, last). @param {number} [first] @param {number} [last] */
  function refold(first = 0, last = n) {
    all = units(meta.folds, n, open);
    const a = unitOf(all, first), b = unitOf(all, Math.max(last - 1, first)) + 1;
    if (all.count <= FEW) look(0, all.count);
    else look(a - 1, last === n && first === 0 ? all.count : a + Math.min(b - a, FEW) + 1);
    paintMap();
  }

  /** Unfold whatever hides an event. @param {number} e */
  function reveal(e) {
    let changed = false;
    meta.folds.forEach((/** @type {any} */ fold, /** @type {number} */ k) => {
      if (fold[1] <= e && e < fold[2] && !open.has(k)) {
        open.add(k);
        changed = true;
      }
    });
    if (changed) all = units(meta.folds, n, open);
    const at = unitOf(all, e), size = Math.min(u1 - u0, room() / 100);
    if (changed || at < u0 || at + 1 > u1 || grouped > 1) look(at + 0.5 - size / 2, at + 0.5 + size / 2);
    if (changed) paintMap();
  }

  /** Go to an event: a finding, a row of a ledger, a step. @param {number} e */
  function goTo(e) {
    if (e < 0) { step(n); return; }
    reveal(e);
    step(e);
    focus = { e, lane: -1 };
    draw();
  }

  /** @param {number} c */
  function step(c) {
    const to = Math.min(Math.max(c, 0), n);
    if (to === get("cursor")) return;
    set({ cursor: to });
    const k = to < n ? unitOf(all, to) : all.count;
    if (k < u0 || k + 1 > u1 + 1) look(k - (u1 - u0) / 2, k + (u1 - u0) / 2);
    say(to < n ? `before ${tape.heading(to)}, ${n - to} of ${n} reversed` : "only the seed is there");
  }

  function play() {
    const stop = () => {
      clearInterval(timer);
      timer = null;
      playing.textContent = "play";
      playing.setAttribute("aria-label", "play the reverse pass");
    };
    if (timer) { stop(); return; }
    if (get("cursor") === 0) step(n);
    playing.textContent = "pause";
    playing.setAttribute("aria-label", "pause the reverse pass");
    timer = setInterval(() => {
      const c = get("cursor");
      if (c <= 0 || signal?.aborted) { stop(); return; }
      const col = cols.find((one) => one.a < c && c <= one.b); // a fold is one step of the show
      step(col && col.b - col.a > 1 ? col.a : c - 1);
    }, still ? 1200 : 650);
  }

  // ---- layout

  function arrange() {
    let top = 0;
    lanes = meta.lanes.map((/** @type {any} */ track, /** @type {number} */ k) => {
      const cuts = tape.cuts(k), tall = cuts.length === 2 ? 15 : Math.min(Math.max((cuts.length - 1) * 14, 30), 72);
      const chips = Math.min(track.names.length, 6) + (track.names.length > 6 ? 1 : 0);
      const height = Math.max(2 * tall + 32, 30 + 24 * rowsOfChips(track, chips));
      const lane = { k, track, top, height, value: top + 10, adjoint: top + 20 + tall, tall };
      top += height;
      return lane;
    });
    head = 78 + 16 * bracketRows();
    spacer.style.height = `${top + head + 14}px`;
  }

  /** @param {any} track @param {number} chips */
  function rowsOfChips(track, chips) {
    const long = track.names.slice(0, chips).filter((/** @type {any} */ x) => x[2] - x[1] < track.nbytes || x[0].length > 9).length;
    return long + Math.ceil((chips - long) / 2);
  }

  function bracketRows() {
    let most = 0;
    for (const k of open) {
      let deep = 1, up = meta.folds[k]?.[5] ?? -1;
      while (up >= 0) { deep++; up = meta.folds[up][5]; }
      most = Math.max(most, deep);
    }
    return Math.min(most, 3);
  }

  /** Top and height of bytes [lo, hi) on a track. @param {any} lane @param {number} top @param {number} lo @param {number} hi */
  function span(lane, top, lo, hi) {
    const size = Math.max(lane.track.nbytes, 1), tall = Math.max(((hi - lo) / size) * lane.tall, 2);
    return [Math.min(top + (lo / size) * lane.tall, top + lane.tall - tall), tall];
  }

  /** @param {number} g */
  function columnsOf(g) {
    cols = [];
    const from = Math.max(Math.floor(u0 / g), 0), to = Math.ceil(Math.min(u1, all.count) / g), p = pitch();
    for (let c = from; c < to; c++) {
      const a = c * g, b = Math.min(a + g, all.count);
      if (b <= a) break;
      cols.push({ a: all.starts[a], b: all.starts[b], x: X((a + b) / 2), w: (b - a) * p, fold: g === 1 ? all.fold[a] : -1, unit: a });
    }
  }

  const colOf = (/** @type {number} */ e) => (cols.length && e >= cols[0].a && e < cols[cols.length - 1].b
    ? lower(0, cols.length, (k) => cols[k].b, e + 0.5) : -1);

  /** Where an event is: its column, or beyond an edge. @param {number} e */
  function xOf(e) {
    if (e < 0) return Math.max(X(0), left - 6);
    if (e >= n) return Math.min(X(all.count), wide - RIGHT + 8);
    if (!cols.length || e < cols[0].a) return left - 6;
    const c = colOf(e);
    return c < 0 ? wide - RIGHT + 8 : cols[c].x;
  }

  // ---- drawing

  /** @type {any[]} */ let marks = [];
  const put = (/** @type {string} */ tag, /** @type {string} */ cls, /** @type {any} */ given, /** @type {string} */ text = "") => {
    const one = /** @type {any} */ ({ tag, cls, given, text });
    marks.push(one);
    return one;
  };

  function draw() {
    if (!lanes.length && meta.lanes.length) arrange();
    grouped = bunch(u1 - u0, room());
    for (let tries = 0; tries < 24; tries++) {
      marks = [];
      columnsOf(grouped);
      compose();
      if (marks.length <= BUDGET) break;
      grouped *= 2;
    }
    paint();
    moveCursor();
    paintFrame();
    if (tableBox.hasAttribute("open")) fillTable();
  }

  const shownLanes = () => {
    const top = plot.scrollTop, tall = plot.clientHeight || TALLEST;
    const first = lower(0, lanes.length, (k) => lanes[k].top + lanes[k].height, top + 0.5);
    const last = lower(0, lanes.length, (k) => lanes[k].top, top + tall - head);
    return lanes.slice(first, Math.max(last, first + 1));
  };

  function compose() {
    const shown = shownLanes();
    for (const lane of shown) composeLane(lane);
    if (grouped === 1) for (const col of cols) if (col.b - col.a === 1) composeArrows(col, shown);
    for (const lane of shown) composeTouches(lane);
    composeHead();
    composeCells(shown);
  }

  /** @param {any} lane */
  function composeLane(lane) {
    const { k, track } = lane, y = lane.top;
    put("path", "rule", { d: `M0 ${y}H${wide}` });
    let x = 14, cy = y + 12;
    const aliased = track.names.length > 1, edge = left - 52;
    const names = track.names.slice(0, 6).map((/** @type {any} */ one) => [chipText(track, one), one]);
    if (track.names.length > 6) names.push([`+${track.names.length - 6} names`, null]);
    names.forEach((/** @type {any[]} */ [text, one]) => {
      const shown = fit(text, edge - 32, 11.5), w = shown.length * 7.05 + 18;
      if (x > 14 && x + w > edge) { x = 14; cy += 24; }
      const hitName = query && one && one[0].toLowerCase().includes(query) ? " found" : "";
      put("rect", `chip${aliased ? " shared" : ""}${hitName}`, { x, y: cy, width: w, height: 20, rx: 10, "data-lane": k, "data-name": one ? one[0] : "", ...(aliased ? { style: `fill:url(#${uid}-shared)` } : {}) });
      if (aliased) put("rect", "chipground", { x: x + 3, y: cy + 3, width: w - 6, height: 14, rx: 7 });
      put("text", "mono", { x: x + w / 2, y: cy + 14, "text-anchor": "middle", "font-size": 11.5 }, shown);
      x += w + 6;
    });
    const note = aliased ? `one memory, ${WORDS[track.names.length] ?? track.names.length} names` : [track.text, bytes(track.nbytes)].filter(Boolean).join(" · ");
    put("text", aliased ? "note" : "faint", { x: 16, y: cy + 36, "font-size": aliased ? 11 : 10 }, fit(note, edge - 10, 9));
    put("text", "faint", { x: left - 10, y: lane.value + lane.tall / 2 + 3.5, "text-anchor": "end", "font-size": 10 }, "value");
    put("text", "hot", { x: left - 10, y: lane.adjoint + lane.tall / 2 + 3.5, "text-anchor": "end", "font-size": 10 }, "adjoint");
    if (!blocksOn.has(k)) blocksOn.set(k, blocks(tape, k));
    const many = tape.cuts(k).length > 2;
    for (const block of blocksOn.get(k)) composeBlock(lane, block, many);
    if (levels) composeBars(lane, levels, other ? -4 : 0, "");
    if (other) composeBars(lane, other, 4, " twin");
  }

  /** @param {any} track @param {any[]} name */
  function chipText(track, [name, lo, hi]) {
    return lo > 0 || hi < track.nbytes ? `${name} ${rangeText(track, lo, hi)}` : name;
  }

  /** @param {any} track @param {number} lo @param {number} hi */
  function rangeText(track, lo, hi) {
    const size = track.itemsize;
    return size && lo % size === 0 && hi % size === 0 ? `[${lo / size}:${hi / size})` : `[${lo}:${hi}) B`;
  }

  /** Is a stretch of events [e0, e1] out of the window, or inside one column. @param {number} e0 @param {number} e1 */
  function unseen(e0, e1) {
    const first = cols.length ? cols[0].a : 0, last = cols.length ? cols[cols.length - 1].b : 0;
    if (e1 < first || e0 >= last) return true;
    const c = colOf(e0);
    return c >= 0 && e1 < n && c === colOf(e1);
  }

  /** @param {any} lane @param {any} block @param {boolean} many */
  function composeBlock(lane, block, many) {
    if (unseen(block.e0, block.e1)) return;
    let [y, tall] = span(lane, lane.value, block.lo, block.hi);
    if (many) tall = Math.max(tall - 1, 1.5);
    const x = xOf(block.e0) + (block.e0 < 0 ? 0 : 3), end = xOf(block.e1) - (block.e1 < n ? 3 : 0), w = Math.max(end - x, 1);
    put("rect", block.strided ? "block strided" : "block", { x, y, width: w, height: tall, rx: Math.min(4, tall / 3), ...(block.strided ? { style: `fill:url(#${uid}-strided)` } : {}) });
    put("rect", "blockstart", { x, y, width: Math.min(4, w), height: tall, rx: 1 });
    const indent = block.e0 < 0 ? 9 : 21, text = `v${block.mixed ? "≤" : ""}${block.version}`;
    const limit = Math.min(end, grouped === 1 ? x + (cols[0]?.w ?? 0) - 26 : x);
    if (tall >= 11 && limit - x - indent >= text.length * 6.2) {
      put("text", "mono", { x: x + indent, y: y + tall / 2 + 3.6, "font-size": 10 }, text);
    }
  }

  /** @param {any} lane @param {import("./lanes.js").Levels} side @param {number} shift @param {string} twin */
  function composeBars(lane, side, shift, twin) {
    const ill = new Set(), meets = [];
    for (const bar of bars(tape, side, lane.k).bars) {
      const state = bar.lv < 0 ? 0 : side.state[bar.lv];
      if (unseen(bar.e0, bar.e1)) {
        const c = state > 1 ? colOf(bar.e1) : -1;
        if (c >= 0 && !ill.has(c)) { // an ill number inside a fold is still seen
          ill.add(c);
          put("rect", `bar ${state === 2 ? "nan" : "inf"}`, { x: cols[c].x - 3, y: lane.adjoint, width: 6, height: lane.tall, rx: 2 });
        }
        continue;
      }
      const x = xOf(bar.e0) + (bar.e0 < 0 ? 0 : 3), end = xOf(bar.e1) - (bar.e1 < n ? 3 : 0), w = Math.max(end - x, 1);
      const [y, tall] = span(lane, lane.adjoint, bar.lo, bar.hi), middle = y + tall / 2 + shift;
      if (bar.lv < 0) {
        if (!twin) composeAbsent(lane, bar, middle);
        continue;
      }
      let thick = Math.min(thickness(side, bar.lv), Math.max(tall - 2, 2));
      if (side !== levels || other) thick = Math.min(thick, 6);
      const name = ["value", "zero", "nan", "inf"][state];
      const faint = state ? 1 : Math.min(Math.max(0.5 + 0.045 * (thickness(side, bar.lv) - 4), 0.45), 0.95);
      put("rect", `bar ${name}${twin}`, { x, y: middle - thick / 2, width: w, height: thick, rx: thick / 2, opacity: faint }).e = bar.e1;
      if (state > 1 && w > 14) {
        const r = Math.max(Math.min(4, thick / 2 - 1), 1.5), m = x + w / 2;
        const d = state === 2 ? `M${m - r} ${middle - r}l${2 * r} ${2 * r}m${-2 * r} 0l${2 * r} ${-2 * r}` : `M${m - 3} ${middle - r}h6m-3 0v${2 * r}m-3 0h6`;
        put("path", `sign ${name}`, { d }).e = bar.e1;
      }
      const c = colOf(bar.e1);
      if (!twin && side.met[bar.lv] > 1 && c >= 0 && cols[c].b - cols[c].a === 1) meets.push([cols[c].x - 10, middle, side.met[bar.lv], bar.e1, tall]);
    }
    for (const [x, y, met, e, tall] of meets) {
      const r = tall >= 11.5 ? 8 : 3;
      put("circle", "meet", { cx: x, cy: y, r }).e = e;
      if (r > 3) put("text", "meettext", { x, y: y + 3.5, "font-size": met > 9 ? 7.5 : 10, "text-anchor": "middle" }, `+${met}`).e = e;
    }
  }

  /** No adjoint below a value that somebody used. @param {any} lane @param {any} bar @param {number} middle */
  function composeAbsent(lane, bar, middle) {
    for (const block of blocksOn.get(lane.k)) {
      const e0 = Math.max(block.e0, bar.e0), e1 = Math.min(block.e1, bar.e1);
      if (e0 >= e1 || block.lo >= bar.hi || block.hi <= bar.lo || unseen(e0, e1)) continue;
      const x = xOf(e0), end = xOf(e1);
      if (end > x) put("rect", "absent", { x, y: middle - 1.5, width: end - x, height: 3, fill: `url(#${uid}-absent)` });
      if (marks.length > BUDGET) return;
    }
  }

  /** @param {any} lane */
  function composeTouches(lane) {
    if (!cols.length) return;
    const { onLane, touches, touchEvent, ranges } = tape, end = onLane.start[lane.k + 1];
    let k = lower(onLane.start[lane.k], end, (m) => touchEvent[onLane.rows[m]], cols[0].a);
    for (const col of cols) {
      const from = k;
      while (k < end && touchEvent[onLane.rows[k]] < col.b) k++;
      if (from === k) continue;
      if (col.b - col.a > 1) composeMany(lane, col, from, k);
      else composeOne(lane, col, from, k);
    }
    const kept = tape.keptOn, last = kept.start[lane.k + 1];
    let m = lower(kept.start[lane.k], last, (i) => tape.keptEvent[kept.rows[i]], cols[0].a);
    for (const col of cols) {
      const from = m;
      while (m < last && tape.keptEvent[kept.rows[m]] < col.b) m++;
      if (from === m) continue;
      const [, lo, hi] = ranges[tape.kept.range[kept.rows[from]]];
      const [y, tall] = col.b - col.a > 1 ? [lane.value, lane.tall] : span(lane, lane.value, lo, hi);
      const r = Math.min(5, Math.max(tall / 2 - 1.5, 2.5)), c = y + tall / 2, x = col.x - (col.b - col.a > 1 ? 16 : 18);
      put("path", "kept", { d: `M${x} ${c - r}V${c + r}M${x - 3.2} ${c + r - 3.6}L${x} ${c + r}L${x + 3.2} ${c + r - 3.6}` });
    }
  }

  /** @param {any} lane @param {any} col @param {number} from @param {number} to */
  function composeOne(lane, col, from, to) {
    /** @type {number[][]} */ const taken = [];
    for (let k = from; k < to; k++) {
      const t = tape.onLane.rows[k], [, lo, hi] = tape.ranges[tape.touches.range[t]], how = tape.touches.how[t];
      const [y, tall] = span(lane, lane.value, lo, hi), r = Math.min(4, Math.max(tall / 2 - 1.5, 2)), c = y + tall / 2;
      if (how === 0) {
        let x = col.x - 7;
        while (taken.some(([tx, ty]) => Math.abs(tx - x) < 9 && Math.abs(ty - c) < 2 * r) && x > col.x - col.w / 2 + 12) x -= 9;
        taken.push([x, c]);
        put("circle", "read", { cx: x, cy: c, r });
      } else sign(how, col.x + 13, c, r);
    }
  }

  /** @param {number} how @param {number} x @param {number} y @param {number} r */
  function sign(how, x, y, r) {
    if (how === 1) put("rect", "write", { x: x - r, y: y - r, width: 2 * r, height: 2 * r });
    else put("path", "accumulate", { d: `M${x} ${y - r - 1}l${r + 1} ${r + 1}l${-r - 1} ${r + 1}l${-r - 1} ${-r - 1}z` });
  }

  /** One of each kind for all that a column holds. @param {any} lane @param {any} col @param {number} from @param {number} to */
  function composeMany(lane, col, from, to) {
    const seen = [0, 0, 0], y = lane.value + lane.tall / 2;
    for (let k = from; k < to; k++) seen[tape.touches.how[tape.onLane.rows[k]]]++;
    if (seen[0]) put("circle", "read", { cx: col.x - 7, cy: y, r: 3.5 });
    if (seen[1]) sign(1, col.x + 3, y, 3.5);
    if (seen[2]) sign(2, col.x + (seen[1] ? 12 : 3), y, 3.5);
  }

  /** @param {any} col @param {any[]} shown */
  function composeArrows(col, shown) {
    if (!levels) return;
    const e = col.a, [from, to] = tape.touchesOf(e);
    /** @type {number[]} */ const written = [];
    /** @type {number[]} */ const read = [];
    if (to - from > 40) return;
    for (let t = from; t < to; t++) (tape.touches.how[t] ? written : read).push(t - from);
    const pairs = tape.listed.get(e) ?? written.flatMap((w) => read.map((r) => [w, r]));
    for (const [w, r] of pairs) {
      const [lw, wlo, whi] = tape.ranges[tape.touches.range[from + w]], [lr, rlo, rhi] = tape.ranges[tape.touches.range[from + r]];
      const source = shown.find((one) => one.k === lw), target = shown.find((one) => one.k === lr);
      if (!source || !target || (lw === lr && wlo === rlo && whi === rhi)) continue;
      const after = levelAt(tape, levels, lw, wlo, whi, e + 1), before = levelAt(tape, levels, lr, rlo, rhi, e);
      if (after < 0 || before < 0 || levels.state[after] === 1) continue;
      const [wy, wt] = span(source, source.adjoint, wlo, whi), [ry, rt] = span(target, target.adjoint, rlo, rhi);
      const y0 = wy + wt / 2, y1 = ry + rt / 2, x0 = col.x + 6, x1 = col.x - 1, bend = Math.min(40, 0.31 * col.w);
      const state = levels.state[before], look = ["arrow", "arrow dead", "arrow ill", "arrow ill"][state];
      const size = (state ? 1.8 : 1.4 + 0.14 * thickness(levels, before)) * (pairs.length > 3 ? 0.65 : 1);
      put("path", look, { d: `M${x0} ${y0}C${x0 - bend} ${y0} ${x1 + 0.57 * bend} ${y1} ${x1} ${y1}`, "stroke-width": size, "marker-end": `url(#${uid}-${state > 1 ? "ill" : ""}tip)` }).e = e;
    }
  }

  /** @param {any} col */
  function tally(col) {
    /** @type {Record<string, number>} */ const out = {};
    for (const name of Object.keys(sums)) if (sums[name][col.b] > sums[name][col.a]) out[name] = sums[name][col.b] - sums[name][col.a];
    return out;
  }

  const found = (/** @type {any} */ col) => findings.filter((f) => f.position >= col.a && f.position < col.b);

  function composeHead() {
    const y = head - 48, rows = bracketRows();
    put("rect", "headground", { x: 0, y: 0, width: wide, height: head });
    if (rows) composeBrackets(rows);
    for (const col of cols) {
      const one = col.b - col.a === 1, name = one ? tape.heading(col.a) : col.fold >= 0 ? meta.folds[col.fold][0] : "";
      const box = col.w >= 30, small = name ? 11.5 : 9.5, text = box ? fit(name || `#${col.a}`, col.w - (name ? 20 : 6), small) : "";
      if (one) put("path", "guide", { d: `M${col.x} ${y + 26}V5000` });
      const w = Math.max(Math.min(col.w - 6, Math.max(text.length * 7.1 + 14, 30)), 3);
      const kind = one ? tape.text(tape.events.kind[col.a]) : "";
      const isHit = query && hits.some((m) => m.e >= col.a && m.e < col.b) ? " found" : "";
      put("rect", `event${one && kind !== "launch" ? " other" : ""}${col.fold >= 0 ? " fold" : ""}${!one && col.fold < 0 ? " group" : ""}${isHit}`,
        { x: col.x - w / 2, y, width: w, height: 26, rx: Math.min(6, w / 2), "data-a": col.a, "data-b": col.b });
      if (col.fold >= 0) put("path", "foldedge", { d: `M${col.x - w / 2 + 5} ${y + 29}h${w - 10}` });
      if (text) put("text", "mono", { x: col.x, y: y + 17, "text-anchor": "middle", "font-size": small }, text);
      composeBadges(col, y + 32);
    }
    if (!cols.length) put("text", "faint", { x: left, y: y + 18, "font-size": 12 }, "no events recorded");
  }

  /** @param {any} col @param {number} y */
  function composeBadges(col, y) {
    const flags = tally(col), one = col.b - col.a === 1;
    const words = Object.entries(BADGES).filter(([name]) => flags[name]).map(([name, word]) => (one ? word : `${word} ×${flags[name]}`));
    const here = found(col);
    if (words.length) {
      let text = words.join(" · ");
      if (text.length * 5.4 + 12 > col.w - 4) text = words.map((word) => word[0]).join("");
      const w = Math.min(text.length * 5.6 + 10, Math.max(col.w - 2, 4));
      put("rect", "badge", { x: col.x - w / 2, y, width: w, height: 13, rx: 6 });
      if (col.w > 14) put("text", "badgetext", { x: col.x, y: y + 9.8, "font-size": 9.5, "text-anchor": "middle" }, text);
    }
    if (here.length) {
      const x = col.x + Math.min(col.w / 2 - 6, 44), worst = here.some((f) => f.severity === "error") ? " error" : here.some((f) => f.severity === "warning") ? "" : " info";
      put("path", `finding${worst}`, { d: `M${x} ${y - 44}l6 10.5h-12z`, "data-finding": findings.indexOf(here[0]) });
      put("text", "findingtext", { x, y: y - 35, "font-size": 8, "text-anchor": "middle" }, "!");
    }
  }

  /** @param {number} rows */
  function composeBrackets(rows) {
    const depth = (/** @type {number} */ k) => { let d = 0, up = meta.folds[k][5]; while (up >= 0) { d++; up = meta.folds[up][5]; } return d; };
    let drawn = 0;
    for (const k of open) {
      const [name, first, last] = meta.folds[k], d = depth(k);
      const a = xOf(first), b = xOf(last - 1);
      if (!cols.length || last <= cols[0].a || first >= cols[cols.length - 1].b || d >= rows || b - a < 8 || drawn++ > 150) continue;
      const half = Math.min((cols[0].w || 20) * 0.42, 50), x0 = Math.max(a - half, left - 4), x1 = Math.min(b + half, wide - RIGHT + 4), y = 17 + 16 * d;
      put("path", "scope", { d: `M${x0} ${y + 4}V${y}H${x1}V${y + 4}`, "data-fold": k });
      const text = fit(`− ${name}`, x1 - x0, 10);
      put("text", "scopetext", { x: (x0 + x1) / 2, y: y - 4, "text-anchor": "middle", "font-size": 10, "data-fold": k }, text);
    }
  }

  /** What can be reached by keyboard: the head of each column, and each lane below it. @param {any[]} shown */
  function composeCells(shown) {
    const few = (shown.length + 1) * cols.length <= CELLS;
    for (const col of cols) {
      const here = focus.e >= col.a && focus.e < col.b;
      composeCell(col, null);
      if (few || here) for (const lane of shown) composeCell(col, lane);
    }
  }

  /** @param {any} col @param {any} lane */
  function composeCell(col, lane) {
    const k = lane ? lane.k : -1, x = Math.max(col.x - col.w / 2, left - 6), w = Math.max(Math.min(col.w, wide - x), 2);
    const one = put("rect", "cell", { x, width: w, y: lane ? lane.top + 4 : head - 50, height: lane ? lane.height - 8 : 32, rx: 4, role: "button", tabindex: "-1", "data-key": `${col.a}:${k}` });
    one.label = describe(col, lane);
    one.col = col;
    one.lane = lane;
  }

  /** A column, or a lane in it, in words. @param {any} col @param {any} lane */
  function describe(col, lane) {
    const one = col.b - col.a === 1, lines = [];
    if (!lane) {
      if (one) {
        const where = tape.text(tape.events.where[col.a]), [from, to] = tape.touchesOf(col.a);
        lines.push(`${tape.heading(col.a)} (${tape.text(tape.events.kind[col.a])})${where ? ` at ${where}` : ""}`);
        for (let t = from; t < Math.min(to, from + 12); t++) lines.push(touchText(t));
        const [k0, k1] = tape.keptOf(col.a);
        for (let k = k0; k < k1; k++) lines.push(`kept ${bytes(tape.kept.nbytes[k])}: ${tape.text(tape.kept.reason[k])}`);
      } else lines.push(`${col.fold >= 0 ? meta.folds[col.fold][0] : "events"}, #${col.a} to #${col.b - 1}`);
      const flags = Object.entries(tally(col)).map(([name, k]) => (one ? name : `${name} ×${k}`));
      if (flags.length) lines.push(flags.join(", "));
      for (const f of found(col).slice(0, 3)) lines.push(`${f.severity}: ${f.sentence}`);
      return lines.join("\n");
    }
    const { onLane, touchEvent } = tape, end = onLane.start[lane.k + 1];
    let k = lower(onLane.start[lane.k], end, (m) => touchEvent[onLane.rows[m]], col.a);
    const seen = [0, 0, 0];
    lines.push(`${lane.track.names.map((/** @type {any} */ x) => x[0]).slice(0, 3).join(", ") || lane.track.id}${one ? `, ${tape.heading(col.a)}` : `, #${col.a} to #${col.b - 1}`}`);
    for (; k < end && touchEvent[onLane.rows[k]] < col.b; k++) {
      if (one) lines.push(touchText(onLane.rows[k]));
      seen[tape.touches.how[onLane.rows[k]]]++;
    }
    if (!one) lines.push([count(seen[0], "read"), count(seen[1], "write"), count(seen[2], "accumulation")].filter((t) => !t.startsWith("0")).join(", ") || "not touched");
    if (levels) {
      lines.push(`adjoint before: ${levelText(levels, levelAt(tape, levels, lane.k, 0, lane.track.nbytes, col.a))}, after: ${levelText(levels, levelAt(tape, levels, lane.k, 0, lane.track.nbytes, col.b))}`);
      if (other) lines.push(`the other: ${levelText(other, levelAt(tape, other, lane.k, 0, lane.track.nbytes, col.a))}`);
    }
    return lines.join("\n");
  }

  /** @param {import("./lanes.js").Levels} side @param {number} lv */
  function levelText(side, lv) {
    if (lv < 0) return "none";
    if (side.state[lv]) return ["", "0 exactly", "NaN", "Inf"][side.state[lv]];
    const met = side.met[lv] > 1 ? `, ${side.met[lv]} contributions meet` : "";
    return `${short(side.max[lv], 3)} (max), ${short(side.l2[lv], 3)} (L2)${met}`;
  }

  /** @param {number} t */
  function touchText(t) {
    const { touches, ranges } = tape, [lane, lo, hi, strided] = ranges[touches.range[t]], track = meta.lanes[lane];
    const part = lo > 0 || hi < track.nbytes ? ` ${rangeText(track, lo, hi)}` : "";
    const versions = touches.how[t] ? `v${touches.before[t]}→v${touches.after[t]}` : `v${touches.before[t]}`;
    return `${meta.how[touches.how[t]]} ${tape.text(touches.name[t])}${part}${strided ? " strided" : ""} ${versions}`;
  }

  // ---- marks to elements

  const cursorLine = s("path", { class: "cursor" }), cursorBox = s("rect", { class: "cursorbox", height: 14, rx: 7 });
  const cursorText = s("text", { class: "cursortext", "font-size": 9.5, "text-anchor": "middle" });

  function paint() {
    const tall = Math.min(TALLEST, (lanes.length ? lanes[lanes.length - 1].top + lanes[lanes.length - 1].height : 20) + head + 12);
    plot.style.height = `${tall}px`;
    picture.setAttribute("width", String(wide));
    picture.setAttribute("height", String(tall));
    picture.setAttribute("viewBox", `0 0 ${wide} ${tall}`);
    const had = picture.contains(document.activeElement) ? document.activeElement?.getAttribute("data-key") : null;
    const body = s("g", { transform: `translate(0 ${head - plot.scrollTop})`, "clip-path": `url(#${uid}-body)` });
    const plotted = s("g", { "clip-path": `url(#${uid}-plot)` }), names = s("g", {}), top = s("g", {}), cells = s("g", {}), topCells = s("g", {});
    dated = [];
    let inHead = false, tab = null, near = null;
    for (const mark of marks) {
      if (mark.cls === "headground") inHead = true;
      const node = s(mark.tag, { class: mark.cls, ...mark.given }, mark.text || undefined);
      if (mark.cls === "cell") {
        node.setAttribute("aria-label", mark.label);
        node.setAttribute("data-lm-suppress-shortcuts", "true");
        /** @type {any} */ (node).mark = mark;
        (mark.lane ? cells : topCells).append(node);
        const here = focus.e >= mark.col.a && focus.e < mark.col.b;
        if (here && (mark.lane ? mark.lane.k : -1) === focus.lane) tab = node;
        else if (here && !mark.lane) near = node;
        continue;
      }
      if (mark.e !== undefined) dated.push({ node, e: mark.e });
      if (mark.cls.startsWith("guide")) plotted.prepend(node);
      else if (inHead) top.append(node);
      else if (/^(rule|chip|mono|note|faint|hot)/.test(mark.cls) && (Number(mark.given.x ?? 0) < left - 4)) names.append(node);
      else plotted.append(node);
    }
    (tab ?? near ?? topCells.firstElementChild)?.setAttribute("tabindex", "0");
    body.append(names, plotted, cells);
    picture.replaceChildren(definitions(tall), body, top, cursorLine, cursorBox, cursorText, topCells);
    if (had) (picture.querySelector(`[data-key="${CSS.escape(had)}"]`) ?? picture.querySelector("[tabindex='0']"))?.focus({ preventScroll: true });
    picture.dataset.marks = String(picture.querySelectorAll("*").length);
  }

  /** @param {number} tall */
  function definitions(tall) {
    const defs = s("defs", {});
    const pattern = (/** @type {string} */ name, /** @type {number} */ size, /** @type {any[]} */ parts, more = {}) => {
      const node = s("pattern", { id: `${uid}-${name}`, width: size, height: size, patternUnits: "userSpaceOnUse", ...more });
      node.append(...parts);
      defs.append(node);
    };
    pattern("shared", 7, [s("rect", { class: "sharedground", width: 7, height: 7 }), s("rect", { class: "sharedstripe", width: 2, height: 7 })], { patternTransform: "rotate(45)" });
    pattern("strided", 6, [s("rect", { class: "stridedground", width: 6, height: 6 }), s("path", { class: "stridedline", d: "M0 6L6 0" })]);
    pattern("absent", 6, [s("path", { class: "absentline", d: "M0 6L6 0" })]);
    for (const [name, cls] of [["tip", "tip"], ["illtip", "illtip"]]) {
      const node = s("marker", { id: `${uid}-${name}`, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" });
      node.append(s("path", { class: cls, d: "M0 0.5L8 4L0 7.5z" }));
      defs.append(node);
    }
    const clip = (/** @type {string} */ name, /** @type {any} */ box) => {
      const node = s("clipPath", { id: `${uid}-${name}` });
      node.append(s("rect", box));
      defs.append(node);
    };
    clip("plot", { x: left - 8, y: -10000, width: wide - left + 8, height: 1e6 });
    clip("body", { x: 0, y: plot.scrollTop, width: wide, height: tall - head });
    return defs;
  }

  function moveCursor() {
    const c = get("cursor"), x = c >= n ? Math.min(X(all.count) + 6, wide - 12) : xOf(c), text = `reverse ${n - c}/${n}`, w = text.length * 5.5 + 12;
    const inside = c >= n ? u1 >= all.count : cols.length && c >= cols[0].a && c < cols[cols.length - 1].b;
    for (const node of [cursorLine, cursorBox, cursorText]) node.setAttribute("visibility", inside ? "visible" : "hidden");
    cursorLine.setAttribute("d", `M${x} ${head - 22}V4000`);
    const at = Math.min(Math.max(x, left + w / 2), wide - w / 2 - 2);
    cursorBox.setAttribute("x", String(at - w / 2));
    cursorBox.setAttribute("y", String(head - 63));
    cursorBox.setAttribute("width", String(w));
    cursorText.setAttribute("x", String(at));
    cursorText.setAttribute("y", String(head - 52.6));
    cursorText.textContent = text;
    moment.textContent = c < n ? `${n - c} of ${n} reversed` : "only the seed";
    for (const { node, e } of dated) node.classList.toggle("later", e < c);
    for (const node of picture.querySelectorAll(".event")) node.classList.toggle("current", Number(node.dataset.a) <= c && c < Number(node.dataset.b));
    for (const node of picture.querySelectorAll(".cell")) {
      const { col, lane } = node.mark;
      const pressed = lane ? get("array") >= 0 && meta.arrays[get("array")][1] === lane.k && col.a <= c && c < col.b : col.a <= c && c < col.b;
      node.setAttribute("aria-pressed", String(pressed));
    }
  }

  // ---- minimap

  function paintMap() {
    const w = Math.max(Math.floor(wide - left - RIGHT), 50), tall = 34, pen = map.getContext("2d");
    map.width = w;
    map.height = tall;
    overview.style.marginLeft = `${left}px`;
    overview.style.width = `${w}px`;
    if (!pen) return;
    const style = getComputedStyle(rootEl), color = (/** @type {string} */ name) => style.getPropertyValue(`--wb-${name}`).trim() || "#888";
    const paints = [color("read"), color("write"), color("accumulate")], at = Float32Array.from({ length: n + 1 }, (_, e) => Math.floor(((e + 0.3) / Math.max(n, 1)) * w));
    const seen = new Set(), high = Math.max(tall / Math.max(lanes.length, 1), 1), dot = Math.max(w / Math.max(n, 1), 1);
    for (let t = 0; t < tape.touchEvent.length; t++) {
      const lane = tape.ranges[tape.touches.range[t]][0], x = at[tape.touchEvent[t]], y = Math.floor((lane / lanes.length) * tall), how = tape.touches.how[t];
      const key = (x * 64 + Math.min(y, 63)) * 3 + how;
      if (seen.has(key)) continue;
      seen.add(key);
      pen.fillStyle = paints[how];
      pen.globalAlpha = how ? 0.9 : 0.45;
      pen.fillRect(x, y, Math.min(dot, 3), Math.max(high - 1, 1));
    }
    pen.globalAlpha = 1;
    for (const name of ["nan", "inf", "died"]) {
      for (let e = 0; e < n; e++) {
        if (sums[name][e + 1] === sums[name][e]) continue;
        pen.fillStyle = name === "died" ? color("muted") : "#000";
        pen.fillRect(at[e], 0, 2, tall);
        pen.fillStyle = color("sign");
        if (name !== "died") pen.fillRect(at[e], 0, 2, 4);
      }
    }
    pen.fillStyle = color("cursor");
    for (const f of findings) if (f.position >= 0 && f.severity !== "info") pen.fillRect(at[f.position] - 1, tall - 5, 4, 5);
    paintFrame();
  }

  function paintFrame() {
    const w = Math.max(Math.floor(wide - left - RIGHT), 50), most = Math.max(n, 1), from = eventAt(u0), to = eventAt(u1);
    frame.style.left = `${((from / most) * w).toFixed(1)}px`;
    frame.style.width = `${Math.max(((to - from) / most) * w, 4).toFixed(1)}px`;
  }

  /** The event, with its fraction, at a place on the axis of units. @param {number} u */
  function eventAt(u) {
    const k = Math.min(Math.max(Math.floor(u), 0), all.count), a = all.starts[k], b = all.starts[Math.min(k + 1, all.count)];
    return a + (b - a) * Math.min(Math.max(u - k, 0), 1);
  }

  // ---- search

  /** @param {string} text */
  function search(text) {
    query = text.trim().toLowerCase();
    hits = [];
    hit = -1;
    if (query) {
      const match = meta.texts.map((/** @type {string} */ one) => one.toLowerCase().includes(query));
      meta.lanes.forEach((/** @type {any} */ track, /** @type {number} */ k) => {
        if (track.names.some((/** @type {any} */ x) => x[0].toLowerCase().includes(query))) hits.push({ lane: k, e: -1, text: `memory of ${track.names.map((/** @type {any} */ x) => x[0]).join(", ")}` });
      });
      for (let e = 0; e < n && hits.length < 5000; e++) {
        if (match[tape.events.label[e]] || (match[tape.events.scope[e]] && (e === 0 || tape.events.scope[e] !== tape.events.scope[e - 1]))) hits.push({ lane: -1, e, text: tape.heading(e) });
      }
      say(hits.length ? `${count(hits.length, "match", "matches")}: Enter goes to the next one` : `nothing is called ${text}`);
    } else say("");
    draw();
  }

  /** @param {number} by */
  function nextHit(by) {
    if (!hits.length) return;
    hit = (hit + by + hits.length) % hits.length;
    const one = hits[hit];
    if (one.lane >= 0) plot.scrollTop = Math.max(lanes[one.lane].top - 20, 0);
    else {
      reveal(one.e);
      focus = { e: one.e, lane: -1 };
    }
    draw();
    say(`${hit + 1} of ${hits.length}: ${one.text}`);
  }

  // ---- mouse and keys on the picture

  /** @param {any} event */
  function under(event) {
    const box = picture.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const c = cols.findIndex((col) => x >= col.x - col.w / 2 && x < col.x + col.w / 2);
    const inBody = y - head + plot.scrollTop, lane = y < head ? null : lanes.find((one) => inBody >= one.top && inBody < one.top + one.height) ?? null;
    return { x, y, col: x < left - 6 ? null : cols[c] ?? null, lane, head: y < head };
  }

  /** @type {any} */ let drag = null;
  picture.addEventListener("pointerdown", (/** @type {any} */ event) => {
    if (event.button === 0) drag = { x: event.clientX, u0, u1, moved: false };
  });
  picture.addEventListener("pointermove", (/** @type {any} */ event) => {
    if (drag && Math.abs(event.clientX - drag.x) > 4) {
      if (!drag.moved) picture.setPointerCapture?.(event.pointerId);
      drag.moved = true;
      const by = (drag.x - event.clientX) / pitch();
      look(drag.u0 + by, drag.u1 + by);
      return;
    }
    const at = under(event), text = at.col ? describe(at.col, at.lane) : at.lane ? laneText(at.lane) : "";
    tip.textContent = text;
    tip.style.display = text ? "block" : "none";
    const box = rootEl.getBoundingClientRect(), x = event.clientX - box.left + 14;
    tip.style.left = `${Math.max(Math.min(x, box.width - tip.offsetWidth - 8), 0)}px`;
    tip.style.top = `${event.clientY - box.top + 16}px`;
  });
  picture.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  picture.addEventListener("pointerup", (/** @type {any} */ event) => {
    const moved = drag?.moved;
    drag = null;
    if (moved || event.button) return;
    const target = event.target, fold = target.closest?.("[data-fold]"), mark = target.closest?.("[data-finding]"), at = under(event);
    const behind = document.elementsFromPoint(event.clientX, event.clientY).find((one) => /** @type {any} */ (one).dataset?.fold ?? /** @type {any} */ (one).dataset?.finding);
    const data = /** @type {any} */ (fold ?? mark ?? behind)?.dataset;
    if (data?.fold) toggle(Number(data.fold));
    else if (data?.finding) showFinding(Number(data.finding));
    else if (target.dataset?.lane) pickLane(Number(target.dataset.lane), target.dataset.name);
    else if (at.col) choose(at.col, at.lane);
    else if (at.lane) pickLane(at.lane.k, "");
  });
  picture.addEventListener("pointercancel", () => { drag = null; });

  /** @param {any} lane */
  function laneText(lane) {
    const parts = lane.track.names.map((/** @type {any} */ x) => `${x[0]}: bytes [${x[1]}:${x[2]}) of ${lane.track.nbytes}${x[3] ? ", strided" : ""}`);
    return [...parts.slice(0, 12), lane.track.text].filter(Boolean).join("\n");
  }

  /** @param {any} col @param {any} lane */
  function choose(col, lane) {
    focus = { e: col.a, lane: lane ? lane.k : -1 };
    if (lane) pickLane(lane.k, "");
    else if (col.fold >= 0) { toggle(col.fold); return; }
    else if (col.b - col.a > 1) { look(col.unit, col.unit + grouped); return; }
    else if (tape.events.grid[col.a] >= 0) set({ launch: col.a, thread: threadFor(col.a) });
    step(col.a);
    draw();
  }

  /** @param {number} e */
  function threadFor(e) {
    const grid = meta.grids[tape.events.grid[e]] ?? [], now = get("chosen")?.[e] ?? get("thread");
    return grid.map((/** @type {number} */ m, /** @type {number} */ k) => (now.length === grid.length ? Math.min(now[k], m - 1) : 0));
  }

  /** @param {number} lane @param {string} name */
  function pickLane(lane, name) {
    const on = meta.arrays.map((/** @type {any} */ a, /** @type {number} */ k) => [k, a]).filter((/** @type {any} */ pair) => pair[1][1] === lane);
    const named = on.find((/** @type {any} */ pair) => pair[1][0] === name) ?? on[0];
    if (named && named[0] !== get("array")) set({ array: named[0], element: [] });
  }

  picture.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const mark = /** @type {any} */ (event.target).mark;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key, c = mark ? cols.findIndex((one) => one.a === mark.col.a) : 0;
    if (key === "Escape") { /** @type {any} */ (event.target).blur(); return; }
    if (key === "ArrowLeft" || key === "ArrowRight") moveFocus(c + (key === "ArrowLeft" ? -1 : 1), focus.lane);
    else if (key === "ArrowUp" || key === "ArrowDown") moveFocus(c, Math.min(Math.max(focus.lane + (key === "ArrowUp" ? -1 : 1), -1), lanes.length - 1));
    else if (key === "Home") { look(0, u1 - u0); moveFocus(0, focus.lane); }
    else if (key === "End") { look(all.count - (u1 - u0), all.count); moveFocus(cols.length - 1, focus.lane); }
    else if (key === "Enter" || key === " ") { if (mark) choose(mark.col, mark.lane); }
    else if (key === "[") step(get("cursor") - 1);
    else if (key === "]") step(get("cursor") + 1);
    else if (key === "p") play();
    else if (key === "+" || key === "=") zoom(0.5, focusUnit());
    else if (key === "-") zoom(2, focusUnit());
    else if (key === "0") look(0, all.count);
    else if (key === "x" || key === "c") { const k = foldAt(focus.e, key === "c"); if (k >= 0) toggle(k); }
    else if (key === "/") searching.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  const focusUnit = () => unitOf(all, focus.e) + 0.5;

  /** The fold that hides an event; to close: the innermost one that it lies open in.
   * @param {number} e @param {boolean} close */
  function foldAt(e, close) {
    if (!close) return all.fold[unitOf(all, e)] ?? -1;
    let best = -1;
    meta.folds.forEach((/** @type {any} */ f, /** @type {number} */ k) => { if (f[1] <= e && e < f[2] && open.has(k)) best = k; });
    return best;
  }

  /** @param {number} c @param {number} lane */
  function moveFocus(c, lane) {
    const by = cols[0]?.w ? grouped : 1;
    if (c < 0) { look(u0 - by, u1 - by); c = 0; }
    if (c >= cols.length) { look(u0 + by, u1 + by); c = cols.length - 1; }
    if (!cols[c]) return;
    focus = { e: cols[c].a, lane };
    if (lane >= 0) {
      const one = lanes[lane], tall = plot.clientHeight - head;
      if (one.top < plot.scrollTop) plot.scrollTop = one.top;
      else if (one.top + one.height > plot.scrollTop + tall) plot.scrollTop = one.top + one.height - tall;
    }
    draw();
    const node = /** @type {any} */ (picture.querySelector("[tabindex='0']"));
    node?.focus({ preventScroll: true });
    if (node) say(node.getAttribute("aria-label") ?? "");
  }

  picture.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
    if (event.ctrlKey || event.metaKey) {
      const box = picture.getBoundingClientRect();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, u0 + (event.clientX - box.left - left) / pitch());
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (event.deltaX || event.deltaY) / pitch();
      look(u0 + by, u1 + by);
    } else return;
    event.preventDefault();
  }, { passive: false });
  plot.addEventListener("scroll", () => draw());
  const jump = (/** @type {PointerEvent} */ event) => {
    const box = map.getBoundingClientRect(), at = unitOf(all, Math.floor(((event.clientX - box.left) / box.width) * n)) + 0.5, half = (u1 - u0) / 2;
    look(at - half, at + half);
  };
  map.addEventListener("pointerdown", (event) => { jump(event); map.setPointerCapture(event.pointerId); });
  map.addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });

  // ---- panels

  const panels = panelsOf({ model, tape, meta, get, set, say, keen, goTo, threadFor, n });
  const findingsBox = h("details", { class: "wb-findings" }), findingsHead = h("summary", {}, "Findings"), findingsList = h("div", {});
  findingsBox.append(findingsHead, findingsList);
  const tableBox = h("details", { class: "wb-table", ontoggle: () => { if (tableBox.hasAttribute("open")) fillTable(); } });
  const tableHere = h("div", { tabindex: "0", role: "region", "aria-label": "table of the events that are drawn" });
  tableBox.append(h("summary", {}, "The same as a table"), tableHere);
  rootEl.append(panels.element, findingsBox, tableBox);
  drawLegend(legend, uid);

  const diagnose = keen("findings", () => ({}), (answer) => {
    findings = answer.rows;
    findingsHead.textContent = answer.title || `Findings: ${findings.length}`;
    findingsList.replaceChildren(...(answer.note ? [h("p", {}, answer.note)] : []), ...findings.map((f, k) =>
      h("div", { class: `wb-finding ${f.severity}`, id: `${uid}-finding-${k}` },
        h("strong", {}, `${f.severity} [${f.slug}] `),
        ...(f.position >= 0 ? [button(tape.heading(f.position), `go to ${tape.heading(f.position)}`, () => goTo(f.position)), " "] : []),
        h("span", {}, f.sentence), ...(f.line ? [h("code", {}, f.line)] : []), ...(f.fix ? [h("em", {}, ` Fix: ${f.fix}`)] : []))));
    paintMap();
    draw();
  }, (error) => { findingsHead.textContent = `Findings: ${error}`; });
  if (n > 300) {
    findingsHead.textContent = "Findings: not looked for yet";
    findingsList.append(button("diagnose", "look for findings: tape.diagnose()", () => { findingsHead.textContent = "Findings …"; diagnose(); }));
  }

  /** @param {number} k */
  function showFinding(k) {
    findingsBox.setAttribute("open", "");
    const node = document.getElementById(`${uid}-finding-${k}`);
    node?.querySelector("button")?.focus();
    node?.scrollIntoView({ block: "nearest", behavior: still ? "auto" : "smooth" });
    say(findings[k].sentence);
  }

  function fillTable() {
    const head = h("tr", {}, ...["event", "line", "reads", "writes", "kept", "adjoint before", "flags"].map((t) => h("th", { scope: "col" }, t)));
    const rows = [], list = (/** @type {string[]} */ texts) => h("td", {}, ...texts.flatMap((t, k) => (k ? [h("br"), t] : [t])));
    for (const col of cols.slice(0, ROWS)) {
      const one = col.b - col.a === 1, name = one ? tape.heading(col.a) : col.fold >= 0 ? meta.folds[col.fold][0] : `#${col.a} to #${col.b - 1}`;
      /** @type {string[][]} */ const [reads, writes, kept, adjoint] = [[], [], [], []];
      if (one) {
        const [from, to] = tape.touchesOf(col.a), [k0, k1] = tape.keptOf(col.a);
        for (let t = from; t < to; t++) (tape.touches.how[t] ? writes : reads).push(touchText(t).replace(/^(read|write) /, ""));
        for (let k = k0; k < k1; k++) kept.push(`${bytes(tape.kept.nbytes[k])}: ${tape.text(tape.kept.reason[k])}`);
        const seen = new Set();
        for (let t = from; t < to && levels; t++) {
          const [lane, lo, hi] = tape.ranges[tape.touches.range[t]], key = `${lane}:${lo}:${hi}`;
          if (!seen.has(key)) adjoint.push(`${tape.text(tape.touches.name[t])} ${levelText(levels, levelAt(tape, levels, lane, lo, hi, col.a))}`);
          seen.add(key);
        }
      }
      const flags = Object.entries(tally(col)).map(([f, k]) => (one ? f : `${f} ×${k}`));
      rows.push(h("tr", {}, h("th", { scope: "row" }, name), list(one ? [tape.text(tape.events.where[col.a])] : []), list(reads), list(writes), list(kept), list(adjoint), list([...flags, ...found(col).map((f) => f.slug)])));
    }
    const caption = cols.length ? `Events #${cols[0].a} to #${cols[Math.min(cols.length, ROWS) - 1].b - 1}, as drawn` : "No events";
    tableHere.replaceChildren(h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, ...rows)));
  }

  // ---- what changes

  function takeLevels() {
    const lm = get("levels_meta"), om = get("other_meta");
    levels = lm && lm.fields ? decodeLevels(lm, get("levels"), tape) : null;
    other = om && om.fields ? decodeLevels(om, get("other"), tape) : null;
    blocksOn.clear();
    sums = tallies(tape, levels);
    seedText.textContent = lm?.seed ? `seed  ${lm.seed}` : levels ? "" : "no adjoint yet";
    seedText.title = lm?.seed ?? "";
    arrange();
    paintMap();
    draw();
    panels.renew();
  }
  const warned = () => { warning.textContent = get("warning"); warning.style.display = get("warning") ? "" : "none"; };
  /** @type {Record<string, () => void>} */ const listeners = {
    "change:cursor": () => { const c = get("cursor"), k = c < n ? unitOf(all, c) : all.count; if (k < u0 - 1 || k > u1 + 1) look(k - (u1 - u0) / 2, k + (u1 - u0) / 2); else moveCursor(); panels.cursorMoved(); },
    "change:array": () => { panels.arrayChanged(); moveCursor(); },
    "change:element": () => panels.elementChanged(),
    "change:launch": () => panels.threadChanged(), "change:thread": () => panels.threadChanged(),
    "change:walks": takeLevels, "change:warning": warned, "change:status": () => say(get("status")),
  };
  for (const [name, act] of Object.entries(listeners)) model.on(name, act);
  const narrow = () => {
    left = wide < 640 ? 150 : 264;
    rootEl.classList.toggle("wb-narrow", wide < 760);
  };
  const measure = () => {
    const now = rootEl.clientWidth;
    if (!now || now === wide) return;
    wide = now;
    narrow();
    u1 = Math.max(u1, u0 + 1);
    arrange();
    paintMap();
    look(u0, u1);
  };
  const watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(measure);
  const themed = new MutationObserver(() => { paintMap(); panels.repaint(); });
  themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "class"] });
  signal?.addEventListener("abort", () => {
    watcher?.disconnect();
    themed.disconnect();
    clearInterval(timer);
    model.off("msg:custom", heard);
    for (const [name, act] of Object.entries(listeners)) model.off(name, act);
  });

  warned();
  wide = rootEl.clientWidth || 900;
  narrow();
  arrange();
  u1 = Math.max(all.count, 1);
  takeLevels();
  look(0, all.count);
  watcher?.observe(rootEl);
  panels.arrayChanged();
  panels.elementChanged();
  panels.threadChanged();
  set({ ready: true });
  if (!levels && n) ask("levels").catch((error) => say(error.message));
  if (n && n <= 300) diagnose();
  return { look, goTo, step, state: () => ({ u0, u1, grouped, cols, units: all.count }) };
}

/** A model for a page without a kernel: traits in memory, questions answered from what was worked out before.
 * @param {any} state @param {(content: any) => Promise<{ok?: any, error?: string, buffers?: any[]}>} answer */
export function offlineModel(state, answer) {
  /** @type {Record<string, Set<Function>>} */ const listeners = {};
  /** @type {Set<string>} */ const changed = new Set();
  const call = (/** @type {string} */ name, /** @type {any[]} */ ...given) => [...(listeners[name] ?? [])].forEach((act) => act(...given));
  return {
    get: (/** @type {string} */ name) => state[name],
    set(/** @type {string} */ name, /** @type {any} */ value) {
      if (JSON.stringify(state[name]) !== JSON.stringify(value)) changed.add(name);
      state[name] = value;
    },
    save_changes() {
      const names = [...changed];
      changed.clear();
      for (const name of names) call(`change:${name}`);
    },
    on: (/** @type {string} */ name, /** @type {Function} */ act) => (listeners[name] ??= new Set()).add(act),
    off: (/** @type {string} */ name, /** @type {Function} */ act) => listeners[name]?.delete(act),
    send: (/** @type {any} */ content) => answer(content).then(({ buffers, ...rest }) => call("msg:custom", { id: content.id, ...rest }, buffers ?? [])),
  };
}

export default {
  /** @param {{model: any, el: HTMLElement, signal: AbortSignal}} given */
  render({ model, el, signal }) {
    try {
      if (model.get("kind") === "heat") heatWidget(model, el, signal);
      else explorer(model, el, signal);
    } catch (error) { // drawing must not take the cell down
      el.append(h("p", { class: "wb-view wb-error" }, `The tape view could not be drawn: ${error}. The tape and its gradients are not affected.`));
      throw error;
    }
  },
};
