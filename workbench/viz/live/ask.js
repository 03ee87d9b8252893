// @ts-check
// Questions to the kernel, or to the answers that a page without one has stored.

const LOST = 10_000; // milliseconds without a word after which a question that changes nothing is asked once more

/** Who asks: `ask(what, more)` is the answer; `keen` asks for what is wanted now. @param {any} model
 * @param {string} uid @param {(text: string) => void} say @param {number} [lost] 0 where questions take long, and must not be worked out twice */
export function asker(model, uid, say, lost = LOST) {
  let asked = 0;
  const waiting = new Map();
  const ask = (/** @type {string} */ what, /** @type {any} */ more = {}, /** @type {(busy: string) => void} */ wait = say, lost = 0) => new Promise((done, fail) => {
    const content = { id: `${uid}-${++asked}`, ask: what, ...more };
    waiting.set(content.id, { done, fail, wait, content, tries: 0 });
    model.send(content);
    if (lost) setTimeout(unheard, lost, content, lost);
  });
  // Messages can be lost with a connection: a panel must not wait for its answer for ever.
  const unheard = (/** @type {any} */ content, /** @type {number} */ after) => {
    if (!waiting.has(content.id)) return;
    model.send(content);
    setTimeout(unheard, 2 * after, content, 2 * after);
  };
  const heard = (/** @type {any} */ message, /** @type {DataView[]} */ buffers) => {
    const one = waiting.get(message?.id);
    if (!one) return;
    if (message.busy) {
      one.wait(`${message.busy} …`);
      setTimeout(() => waiting.has(message.id) && model.send(one.content), one.tries++ < 100 ? 400 : 2000);
      return;
    }
    waiting.delete(message.id);
    if (message.error !== undefined) one.fail(new Error(message.error));
    else one.done({ ...message.ok, buffers: buffers ?? [] });
  };
  model.on("msg:custom", heard);

  /** While one question is on its way, only the newest of the others waits.
   * @param {string} what @param {() => any} wanted @param {(answer: any, asked: any) => void} take @param {(error: string) => void} refuse
   * @param {(busy: string) => void} [wait] */
  function keen(what, wanted, take, refuse, wait = say) {
    let running = false, again;
    return async function go() {
      if (running) { again = true; return; }
      running = true;
      do {
        again = false;
        const more = wanted();
        if (!more) break;
        try {
          take(await ask(what, more, wait, lost), more);
          say("");
        } catch (error) {
          refuse(/** @type {Error} */ (error).message);
        }
      } while (again);
      running = false;
    };
  }

  const close = () => {
    model.off("msg:custom", heard);
    waiting.clear();
  };
  return { ask, keen, close };
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
