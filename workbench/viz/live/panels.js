// @ts-check
// The panels below the lanes: heat-maps of an array, the ledger of one gradient cell, the microscope of one thread.
import { h, short } from "./elements.js";
import { cellOf, floats, heatmap, raw } from "./heat.js";
import { goTo } from "./window.js";

const LISTED = 200;
let made = 0; // numbers for ids; it only ever grows

/** A number with its sign, or the word for what is none. @param {number | string} v */
const signed = (v) => (typeof v === "number" && v > 0 ? "+" : "") + short(v, 6);

/** @param {any} v @returns {string} */
export function plainValue(v, digits = 5) {
  if (Array.isArray(v)) return `(${v.map((one) => plainValue(one, 3)).join(", ")})`;
  return typeof v === "boolean" ? (v ? "True" : "False") : short(v, digits);
}

/** The place of a source line: `springs.py:14`. @param {any} where */
const placeOf = (where) => (where ? `${String(where.file).split("/").pop()}:${where.line}` : "");

/** Enter in a text box is its change, whatever the page around it does with the key. @param {any} event */
function entered(event) {
  if (event.key !== "Enter") return;
  event.preventDefault();
  event.target.dispatchEvent(new Event("change"));
}

/** @param {any} view what the panels use of the view */
export function panelsOf(view) {
  const { model, tape, meta, get, set, keen, n } = view, uid = `wbp${++made}`;
  const heat = heatPanel(), ledger = ledgerPanel(), scope = scopePanel();
  const element = h("div", { class: "wb-panels" }, heat.element, ledger.element, scope.element);

  /** A titled part of the page. @param {string} cls @param {string} title */
  function section(cls, title) {
    const id = `${uid}-${cls}`, head = h("div", { id, class: "wb-head" }, title);
    return { head, box: h("section", { class: `wb-panel ${cls}`, "aria-labelledby": id }, head) };
  }

  const nameOf = (/** @type {number} */ a, /** @type {number[]} */ index) => `${meta.arrays[a]?.[0] ?? "?"}[${index.join(", ")}]`;

  // ---- value and adjoint

  function heatPanel() {
    const { head, box } = section("wb-heats", "value and adjoint at the cursor");
    const choice = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "array", onchange: () => set({ array: Number(choice.value), element: [] }) },
      h("option", { value: "-1" }, "choose an array"),
      ...meta.arrays.slice(0, 2000).map((/** @type {any} */ a, /** @type {number} */ k) => h("option", { value: String(k) }, `${a[0]}  ${a[5]} (${a[4].join(", ")})`))));
    const index = /** @type {HTMLInputElement} */ (h("input", {
      type: "text", size: "8", placeholder: "index", "aria-label": "index of the element, such as 7 or 3, 1", onchange: () => typed(), onkeydown: entered,
    }));
    const whole = h("button", { type: "button", style: "display:none", onclick: () => { windowed = []; ask(); } }, "whole");
    const axes = h("span", { class: "wb-axes" });
    const note = h("p", { class: "wb-muted wb-note" });
    const left = h("figure", {}), right = h("figure", {});
    const leftSays = h("figcaption", {}), rightSays = h("figcaption", { class: "wb-hot" });
    const pair = h("div", { class: "wb-pair", style: "display:none" }, left, right);
    box.append(h("div", { class: "wb-choice" }, choice, index, whole, axes), note, pair);
    left.append(leftSays);
    right.append(rightSays);
    /** @type {number[]} */ let windowed = [];
    /** @type {number[]} */ let fixed = [];
    /** @type {any} */ let frame = null;
    let marked = "";
    const pick = (/** @type {number[]} */ at, /** @type {number[]} */ cell) => {
      const [br, bc] = frame.block;
      if (br * bc > 1) { // a block opens first
        const r = frame.window[0] + cell[0] * br, c = frame.window[1] + cell[1] * bc;
        windowed = [Math.max(r - 12 * br, 0), Math.max(c - 12 * bc, 0), 24 * br, 24 * bc];
        if (br > 4 || bc > 4) { ask(); return; }
        windowed = [r, c, 48, 48];
        ask();
      }
      set({ element: at });
    };
    const values = heatmap(left, { label: "value", pick, width: 300, height: 190 });
    const adjoints = heatmap(right, { label: "adjoint", palette: "adjoint", pick, width: 300, height: 190 });

    const ask = keen("heat", () => (get("array") < 0 ? null : { array: get("array"), cursor: get("cursor"), element: get("element"), fixed, window: windowed }),
      (/** @type {any} */ answer, /** @type {any} */ asked) => {
        frame = answer.frame;
        pair.style.display = "";
        const [shown, known, adjoint] = answer.buffers, name = meta.arrays[asked.array][0];
        const moment = asked.cursor >= n ? "at the end of the tape" : `before ${tape.heading(asked.cursor)}`;
        head.textContent = `${name} ${moment}`;
        values.draw({ ...answer.value, frame, cells: floats(shown), known: raw(known) }, `value of ${name}`);
        leftSays.textContent = ranged("value", answer.value);
        note.textContent = answer.value.state === "not kept" ? `The value of ${name} at this moment was overwritten later and not kept: the reverse pass does not need it.`
          : answer.value.state === "partly" ? "Hatched cells were overwritten later and not kept." : answer.value.note;
        note.style.display = note.textContent ? "" : "none";
        right.style.display = answer.adjoint ? "" : "none";
        if (answer.adjoint) {
          adjoints.draw({ ...answer.adjoint, frame, cells: floats(adjoint), known: null }, `adjoint of ${name}`);
          rightSays.textContent = ranged("adjoint", answer.adjoint);
        }
        whole.style.display = windowed.length ? "" : "none";
        mark();
        spin();
      }, (/** @type {string} */ error) => { note.textContent = error; note.style.display = ""; });

    /** @param {string} what @param {any} p */
    function ranged(what, p) {
      if (p.state === "not kept") return `${what}: not kept`;
      const ill = [p.nan ? `${p.nan} NaN` : "", p.inf ? `${p.inf} Inf` : "", p.zero ? `${p.zero} exactly 0` : ""].filter(Boolean);
      return `${what}: ${short(p.least)} … ${short(p.most)}${ill.length ? `, ${ill.join(", ")}` : ""}`;
    }

    function typed() {
      const shape = meta.arrays[get("array")]?.[4] ?? [], at = (index.value.match(/-?\d+/g) ?? []).map(Number);
      const right = at.length === shape.length && at.every((i, k) => i >= -shape[k] && i < shape[k]);
      index.setAttribute("aria-invalid", String(!right));
      if (right) set({ element: at.map((i, k) => (i < 0 ? i + shape[k] : i)) });
      else view.say(`an index of ${meta.arrays[get("array")]?.[0]} is ${shape.length} numbers below (${shape.join(", ")})`);
    }

    /** Number boxes for the axes that are held. */
    function spin() {
      const held = frame.full.map((/** @type {number} */ _, /** @type {number} */ k) => k).filter((/** @type {number} */ k) => !frame.axes.includes(k));
      if (axes.childElementCount === held.length) return;
      axes.replaceChildren(...held.map((/** @type {number} */ k) => h("label", {}, ` axis ${k} `, h("input", {
        type: "number", min: "0", max: String(frame.full[k] - 1), value: String(frame.fixed[k] ?? 0),
        onchange: (/** @type {any} */ ev) => { fixed = [...frame.fixed]; fixed[k] = Number(ev.target.value); ask(); },
      }))));
    }

    function mark() {
      const at = get("element");
      if (document.activeElement !== index || String(at) !== marked) index.value = at.join(", ");
      marked = String(at);
      if (frame && at.length === frame.full.length && !cellOf(frame, at)) {
        const moved = frame.full.some((/** @type {number} */ _, /** @type {number} */ k) => !frame.axes.includes(k) && frame.fixed[k] !== at[k]);
        if (moved) { fixed = [...at]; axes.replaceChildren(); ask(); return; }
      }
      values.select(at);
      adjoints.select(at);
    }

    return {
      element: box, ask, mark,
      repaint: () => { values.repaint(); adjoints.repaint(); },
      reset: () => { windowed = []; fixed = []; axes.replaceChildren(); choice.value = String(get("array")); if (get("array") < 0) { pair.style.display = "none"; head.textContent = "value and adjoint at the cursor"; } ask(); },
    };
  }

  // ---- where did it come from

  function ledgerPanel() {
    const { head, box } = section("wb-ledger", "where did an adjoint come from?");
    const body = h("div", {}, h("p", { class: "wb-muted" }, "Choose a cell of the heat-maps, or type an index, to see every contribution to its adjoint."));
    box.append(body);
    /** @type {any} */ let later = null;
    const ask = keen("ledger", () => (get("array") >= 0 && get("element").length ? { array: get("array"), element: get("element"), cursor: get("cursor") } : null),
      show, (/** @type {string} */ error) => body.replaceChildren(h("p", { class: "wb-error" }, error)));

    /** @param {any} found @param {any} asked */
    function show(found, asked) {
      const name = nameOf(asked.array, asked.element), rows = found.rows;
      head.textContent = `where did adjoint of ${name} come from?`;
      const list = h("ol", { class: "wb-rows" }), finite = rows.map((/** @type {any} */ r) => r.running).filter(Number.isFinite);
      const low = Math.min(0, ...finite), high = Math.max(0, ...finite), size = high - low || 1;
      const shown = rows.length > LISTED ? [...rows.slice(0, LISTED - 20), null, ...rows.slice(-20)] : rows;
      for (const row of shown) list.append(row ? line(row, low, size) : h("li", { class: "wb-muted" }, `… ${rows.length - LISTED} more rows`));
      const rounding = Number(found.rounding) !== 0 ? h("div", { class: "wb-row" }, h("span", { class: "wb-what" }, "rounding"), h("span", { class: "wb-number" }, signed(found.rounding))) : "";
      const label = asked.cursor === 0 ? `${name.replace("[", ".grad[")}` : `adjoint of ${name} ${asked.cursor >= n ? "at the end" : `before ${tape.heading(asked.cursor)}`}`;
      const sum = h("p", { class: "wb-sum" }, `sum = ${short(found.published ?? found.total, 6)} = ${label}`);
      body.replaceChildren(...(rows.length ? [list] : [h("p", { class: "wb-muted" }, "No contribution has arrived at this moment.")]), rounding, sum);
    }

    /** One signed bar, which starts where the one before it ended. @param {any} row @param {number} low @param {number} size */
    function line(row, low, size) {
      const value = Number(row.value), end = Number(row.running), start = end - value;
      const at = (/** @type {number} */ v) => `${(((v - low) / size) * 100).toFixed(2)}%`;
      const wide = Number.isFinite(value) ? `${Math.max((Math.abs(value) / size) * 100, 0.6).toFixed(2)}%` : "100%";
      const thread = row.thread ? ` thread ${row.thread.join(", ")}` : row.count > 1 ? ` ${row.count} contributions` : "";
      const text = row.where?.text?.trim() ?? "", place = row.where ? ` line ${row.where.line}` : "";
      const bar = h("span", { class: `wb-fill ${value < 0 ? "minus" : "plus"}`, style: `left:${Number.isFinite(value) ? at(Math.min(start, end)) : 0};width:${wide}` });
      const zero = h("span", { class: "wb-zero", style: `left:${at(0)}` });
      return h("li", {}, h("button", {
        type: "button", class: "wb-row", title: `${row.heading}${thread}${place}: ${text}\nthrough ${row.name}; go there`,
        onclick: () => {
          goTo(view, row.position);
          if (row.thread && row.position >= 0) set({ launch: row.position, thread: row.thread });
        },
      }, h("span", { class: "wb-what" }, h("b", {}, row.heading), thread, h("span", { class: "wb-muted" }, place), h("code", {}, text), row.name ? h("span", { class: "wb-through" }, `via ${row.name}`) : ""),
      h("span", { class: "wb-number" }, signed(row.value)), h("span", { class: "wb-track" }, zero, bar)));
    }

    return {
      element: box,
      ask: () => { clearTimeout(later); later = setTimeout(ask, 60); },
      clear: () => {
        head.textContent = "where did an adjoint come from?";
        body.replaceChildren(h("p", { class: "wb-muted" }, "Choose a cell of the heat-maps, or type an index, to see every contribution to its adjoint."));
      },
    };
  }

  // ---- inside one thread

  function scopePanel() {
    const { head, box } = section("wb-scope", "inside one thread");
    const thread = /** @type {HTMLInputElement} */ (h("input", { type: "text", size: "7", "aria-label": "thread, such as 7 or 3, 1", onchange: () => typed(), onkeydown: entered }));
    const slider = /** @type {HTMLInputElement} */ (h("input", { type: "range", min: "0", max: "0", value: "0", "aria-label": "step of the thread: down through its statements, then back up", oninput: () => show(Number(slider.value)) }));
    const back = h("button", { type: "button", "aria-label": "one step of the thread back", onclick: () => show(at - 1) }, "◀");
    const on = h("button", { type: "button", "aria-label": "one step of the thread on", onclick: () => show(at + 1) }, "▶");
    const turn = h("span", { class: "wb-turns" });
    const body = h("div", { class: "wb-lines", tabindex: "0", role: "region", "aria-label": "statements of the thread" }, h("p", { class: "wb-muted" }, "Choose a launch (its box above the lanes) to step through one of its threads."));
    const bar = h("div", { class: "wb-choice" }, h("label", {}, "thread ", thread), back, slider, on, turn);
    bar.style.display = "none";
    box.append(bar, body);
    /** @type {any} */ let found = null;
    let at = 0;
    const ask = keen("microscope", () => (get("launch") >= 0 && get("thread").length ? { launch: get("launch"), thread: get("thread") } : null),
      (/** @type {any} */ answer) => {
        found = answer;
        bar.style.display = "";
        slider.max = String(Math.max(found.steps.length - 1, 0));
        const last = found.steps.findIndex((/** @type {any} */ one) => one.phase === "reverse");
        show(last >= 0 ? found.steps.length - 1 : 0);
      }, (/** @type {string} */ error) => { bar.style.display = ""; head.textContent = "inside one thread"; body.replaceChildren(h("p", { class: "wb-error" }, error)); });

    function typed() {
      const grid = meta.grids[tape.events.grid[get("launch")]] ?? [], now = (thread.value.match(/\d+/g) ?? []).map(Number);
      const fits = now.length === grid.length && now.every((i, k) => i < grid[k]);
      thread.setAttribute("aria-invalid", String(!fits));
      if (fits) set({ thread: now });
      else view.say(`a thread of this launch is ${grid.length} numbers below (${grid.join(", ")})`);
    }

    /** @param {number} to */
    function show(to) {
      if (!found) return;
      const steps = found.steps, down = steps.filter((/** @type {any} */ one) => one.phase === "forward");
      at = Math.min(Math.max(to, 0), Math.max(steps.length - 1, 0));
      slider.value = String(at);
      const here = steps[at], reverse = here?.phase === "reverse";
      const of = reverse ? steps.length - down.length : down.length, number = reverse ? at - down.length + 1 : at + 1;
      const what = here ? `${here.phase} step ${number} of ${of}` : "no step";
      head.textContent = `inside ${found.heading}, thread ${found.thread.join(", ")} · ${what}`;
      slider.setAttribute("aria-valuetext", here ? `${what}, line ${here.where?.line ?? ""}: ${here.name} = ${plainValue(here.value)}${here.adjoint === null ? "" : `, adjoint ${plainValue(here.adjoint)}`}` : what);
      const current = reverse ? here.produced_by : at, turnNow = steps[current]?.iteration ?? here?.iteration ?? [];
      spinners(steps, turnNow);
      const rows = [];
      for (let k = 0; k < down.length; k++) {
        const one = steps[k];
        if (!one.iteration.every((/** @type {number} */ i, /** @type {number} */ d) => turnNow[d] === undefined || turnNow[d] === i)) continue;
        if (one.iteration.length > turnNow.length && one.iteration.slice(turnNow.length).some((/** @type {number} */ i) => i !== 0)) continue;
        rows.push(row(steps, down.length, k, k === current));
      }
      if (reverse && here.produced_by === null) rows.push(h("tr", { class: "now" }, h("td", {}, placeOf(here.where)), h("td", {}, here.name), h("td", {}, plainValue(here.value)), h("td", { class: "wb-hot" }, plainValue(here.adjoint)), h("td", {}, here.note)));
      const cells = ["line", "name", "value", "adjoint", "note"].map((text, k) => h("th", { scope: "col", class: k === 3 ? "wb-hot" : "" }, text));
      const says = found.note ? [h("p", { class: "wb-muted" }, found.note)] : [];
      body.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, ...cells)), h("tbody", {}, ...rows)), ...says);
      const now = /** @type {HTMLElement | null} */ (body.querySelector("tr.now"));
      if (now) body.scrollTop = Math.max(now.offsetTop - body.clientHeight / 2, 0);
    }

    /** One statement, with its value once it ran and its adjoint once it was reversed.
     * @param {any[]} steps @param {number} down @param {number} k @param {boolean} now */
    function row(steps, down, k, now) {
      const one = steps[k], came = k <= at;
      let adjoint = null, note = one.note;
      for (let r = down; r <= at; r++) {
        if (steps[r].produced_by === k) {
          adjoint = steps[r].adjoint;
          if (r === at || steps[r].note.startsWith("was ")) note = steps[r].note;
        }
      }
      const line = `${one.where?.line ?? ""} ${"  ".repeat(one.depth)}${one.where?.text?.trim() ?? ""}`;
      const jump = one.produced_by === null ? "" : h("button", { type: "button", title: "go to the step that made this value", "aria-label": `go to the step that made ${one.name}`, onclick: () => show(one.produced_by) }, "↰");
      const names = [one.name, ...one.aliases];
      return h("tr", { class: now ? "now" : came ? "" : "later", "aria-current": now ? "step" : false },
        h("td", {}, h("button", { type: "button", class: "wb-line", "aria-label": `step ${k + 1}: ${line}`, onclick: () => show(k) }, `${now ? "▸" : " "} ${line}`)),
        h("td", { class: one.aliases.length ? "wb-shared" : "" }, names.join(" = ")),
        h("td", { class: "wb-value" }, came ? plainValue(one.value) : "", jump),
        h("td", { class: "wb-hot" }, adjoint === null ? "" : plainValue(adjoint)), h("td", { class: "wb-muted" }, note));
    }

    /** A box for the turn of every loop around the step. @param {any[]} steps @param {number[]} now */
    function spinners(steps, now) {
      const deepest = Math.max(0, ...steps.map((one) => one.iteration.length));
      turn.replaceChildren();
      for (let d = 0; d < deepest; d++) {
        const inside = steps.filter((one) => one.iteration.length > d && one.iteration.slice(0, d).every((/** @type {number} */ i, /** @type {number} */ e) => i === (now[e] ?? 0)));
        const most = Math.max(0, ...inside.map((one) => one.iteration[d]));
        turn.append(h("label", {}, ` turn `, h("input", {
          type: "number", min: "0", max: String(most), value: String(now[d] ?? 0), "aria-label": `turn of loop ${d + 1}`,
          onchange: (/** @type {any} */ ev) => {
            const want = Number(ev.target.value), reverse = steps[at].phase === "reverse";
            const k = steps.findIndex((one) => one.phase === (reverse ? "reverse" : "forward") && one.iteration[d] === want &&
              one.iteration.slice(0, d).every((/** @type {number} */ i, /** @type {number} */ e) => i === (now[e] ?? 0)));
            if (k >= 0) show(k);
          },
        }), ` of ${most + 1}`));
      }
    }

    return {
      element: box,
      ask: () => { thread.value = get("thread").join(", "); ask(); },
    };
  }

  return {
    element,
    repaint: heat.repaint,
    cursorMoved: () => { heat.ask(); if (get("element").length) ledger.ask(); },
    arrayChanged: () => { heat.reset(); if (!get("element").length) ledger.clear(); else ledger.ask(); },
    elementChanged: () => { heat.mark(); if (get("element").length) ledger.ask(); else ledger.clear(); },
    threadChanged: () => scope.ask(),
    renew: () => { heat.ask(); if (get("element").length) ledger.ask(); if (get("launch") >= 0) scope.ask(); },
    model,
  };
}

/** One line that names every sign. @param {HTMLElement} root @param {string} uid */
export function drawLegend(root, uid) {
  const signs = [
    ["read", "<circle>", { cx: 7, cy: 7, r: 4, class: "read" }], ["write", "<rect>", { x: 3, y: 3, width: 8, height: 8, class: "write" }],
    ["accumulate", "<path>", { d: "M7 2l5 5l-5 5l-5 -5z", class: "accumulate" }], ["kept", "<path>", { d: "M7 2V12M4 8.5L7 12L10 8.5", class: "kept" }],
    ["1e-6 … 1e3", "<path>", { d: "M1 6L27 1V13L1 8Z", class: "wedge" }, 28], ["exactly 0", "<rect>", { x: 1, y: 4.5, width: 26, height: 5, rx: 2.5, class: "bar zero" }, 28],
    ["NaN, Inf", "<rect>", { x: 1, y: 2, width: 26, height: 10, rx: 5, class: "bar nan" }, 28], ["no adjoint", "<rect>", { x: 1, y: 5.5, width: 26, height: 3, class: "absent", fill: `url(#${uid}-absent)` }, 28],
  ];
  for (const [text, tag, given, wide] of /** @type {any[]} */ (signs)) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), node = document.createElementNS("http://www.w3.org/2000/svg", tag.slice(1, -1));
    for (const [key, value] of Object.entries({ width: wide ?? 14, height: 14, "aria-hidden": "true" })) svg.setAttribute(key, String(value));
    for (const [key, value] of Object.entries(given)) node.setAttribute(key, String(value));
    svg.append(node);
    root.append(h("span", {}, svg, ` ${text}`));
  }
}
