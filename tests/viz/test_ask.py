"""Questions of the page to the kernel, where messages are lost: run by Node with a clock of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from workbench.viz.live.view import module

LOST = """
import { asker } from "./module.mjs";
const clock = [];  // [when, act]: the page's timers, which nothing waits for
let now = 0;
globalThis.setTimeout = (act, wait = 0, ...given) => clock.push([now + wait, () => act(...given)]);
const pass = async (until) => {
  for (;;) {
    const due = clock.filter(([when]) => when <= until).sort((a, b) => a[0] - b[0])[0];
    if (!due) break;
    clock.splice(clock.indexOf(due), 1);
    now = due[0];
    due[1]();
    await null;
  }
  now = until;
};
const sent = [], said = [], taken = [];
let hear = null;
const model = { send: (content) => sent.push([now, content.id]), on: (_, act) => { hear = act; }, off: () => {} };
const { ask, keen, close } = asker(model, "page", (text) => said.push(text));
const take = (answer) => taken.push(answer.n), refuse = (error) => taken.push(error);
const go = keen("heat", () => ({ cursor: taken.length }), take, refuse);
const settle = () => new Promise((done) => setImmediate(done));
go();
await pass(75_000);
const asked = [...sent];
hear({ id: "page-1", ok: { n: 1 } }, []);
hear({ id: "page-1", ok: { n: 2 } }, []);  // the same answer a second time
await settle();
await pass(1_000_000);
const after = sent.length;
go();
await settle();
hear({ id: "page-2", busy: "busy: recording" });
hear({ id: "page-2", error: "no" });
await settle();
ask("again");
const before = sent.length;
await pass(2_000_000);
go();
const open = sent.length;
close();
await pass(9_000_000);
console.log(JSON.stringify({ asked, after, taken, said, before, open, last: sent.length }));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="the functions of the page are run by Node")
def test_a_question_without_a_word_is_asked_again_and_an_answer_counts_once(tmp_path: Path) -> None:
    (tmp_path / "module.mjs").write_text(module("ask.js"), "utf-8")
    (tmp_path / "run.mjs").write_text(LOST, "utf-8")
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["asked"] == [[0, "page-1"], [10_000, "page-1"], [30_000, "page-1"], [70_000, "page-1"]]
    assert found["after"] == 4, "answered: not asked any more"
    assert found["taken"] == [1, "no"]
    assert "busy: recording …" in found["said"]
    assert found["open"] == found["before"] + 1, "what changes something is asked once"
    assert found["last"] == found["open"], "a view that has closed asks nothing"
