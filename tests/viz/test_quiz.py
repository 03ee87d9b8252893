"""`predict`: the answer is told when it is asked for, and by nobody before; the cells below wait for it."""

from __future__ import annotations

import ast
import base64
import json
import re
from pathlib import Path

import nbformat
import pytest

from workbench.viz import predict, seal

ROOT = Path(__file__).resolve().parents[2]
BECAUSE = "Everything that is stored in y went through b."
ASKED = ("what is dy/dx?", ["3, 1", "3, 0", "0, 0"])


def test_a_sealed_answer_is_not_readable_and_is_told_once_there_is_an_answer() -> None:
    sealed = seal("0, 0", BECAUSE)
    assert "0, 0" not in sealed and "stored" not in sealed and sealed.isascii()
    asked = predict(*ASKED, sealed)
    assert asked.chosen is None and asked.told == {}
    state = json.dumps({k: v for k, v in asked.get_state().items() if not k.startswith("_")})
    assert "stored" not in state, "the page does not know it either"
    asked.choose("3, 1")
    assert asked.told == {"right": "0, 0", "because": BECAUSE} and asked.chosen == "3, 1"
    plain = predict(*ASKED, "0, 0", BECAUSE)
    plain.skip()
    assert plain.told == asked.told and plain.chosen is None


def test_without_a_kernel_the_question_stands_alone_with_its_answer_folded() -> None:
    asked = predict(*ASKED, seal("0, 0", BECAUSE))
    data = asked._repr_mimebundle_()[0]
    assert "stored" not in data["text/html"] + data["text/plain"]
    assert all(answer in data["text/html"] and answer in data["text/plain"] for answer in ASKED[1])
    (folded,) = re.findall(r"<details>.*?</details>", data["text/html"])
    (picture,) = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", folded)
    assert BECAUSE in base64.b64decode(picture).decode()
    assert "<script>" not in predict("<script>", ["<b>", "x"], "x").still()[1]


def test_an_answer_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="seal"):
        predict(*ASKED, "4, 4")
    with pytest.raises(ValueError, match="not among"):
        predict(*ASKED, seal("4, 4"))
    with pytest.raises(ValueError, match="none of"):
        predict(*ASKED, seal("0, 0")).choose("4, 4")


def test_no_notebook_gives_an_answer_away() -> None:
    seen = 0
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type != "code" or "predict(" not in cell.source:
                continue
            calls = [n for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Call)]
            for call in (c for c in calls if getattr(c.func, "id", "") == "predict"):
                _, answers, given = map(ast.literal_eval, call.args)
                right = predict("?", answers, given)
                right.skip()
                assert given not in answers, path.name
                reason = right.told["because"]
                assert reason not in json.dumps([cell.source, cell.outputs], ensure_ascii=False), path.name
                seen += 1
    assert seen >= 8
