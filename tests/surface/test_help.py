"""`help(wb)`: the names of a first session come first, with an example that runs."""

from __future__ import annotations

import pydoc
import re

import workbench as wb
from tests.test_reference import check

FIRST = "kernel launch array zeros Tape tape.backward x.grad tape.show tape.explore tape.diagnose gradcheck".split()


def test_help_begins_with_the_names_of_a_first_session() -> None:
    text = pydoc.plain(pydoc.render_doc(wb))
    start = text[: text.index("PACKAGE CONTENTS")]
    assert len(start.splitlines()) < 24
    words = re.findall(r"[\w.]+", start)
    assert [name for name in FIRST if name not in words] == []
    assert all(hasattr(wb, name) for name in FIRST if "." not in name)
    assert all(name.removeprefix("tape.") in dir(wb.Tape()) for name in FIRST if name.startswith("tape."))


def test_its_example_runs() -> None:
    assert check(wb.__doc__ or "", "workbench") > 0
