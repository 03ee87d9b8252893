"""Which element of an array a cell of a heat-map stands for: the functions of heat.js, run alone in a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import workbench as wb

pytestmark = pytest.mark.browser
SOURCE = Path(wb.__file__).parent / "viz" / "live" / "heat.js"


@pytest.fixture(scope="module")
def call(browser):
    text = SOURCE.read_text()
    found = [
        re.search(rf"export (function {name}\(.*?\n}}\n)", text, re.S).group(1) for name in ("elementOf", "cellOf")
    ]
    page = browser.new_page()
    yield lambda name, *given: page.evaluate(f"given => {{ {''.join(found)} return {name}(...given) }}", list(given))
    page.close()


def frame(full, axes, fixed=None, wrap=0, window=None, block=(1, 1)):
    window = window or [0, 0, 1 << 20, 1 << 20]
    return {
        "full": full,
        "axes": axes,
        "fixed": fixed or [0] * len(full),
        "wrap": wrap,
        "window": window,
        "block": list(block),
    }


def test_a_line_broken_into_rows_ends_where_the_array_does(call):
    line = frame([10], [0], wrap=4)
    cells = {(r, c): call("elementOf", line, r, c) for r in range(3) for c in range(4)}
    assert [cells[divmod(k, 4)] for k in range(12)] == [[k] for k in range(10)] + [None, None]
    assert all(call("cellOf", line, [k]) == list(divmod(k, 4)) for k in range(10))


def test_a_number_alone_has_one_cell(call):
    alone = frame([], [], wrap=1)
    assert call("elementOf", alone, 0, 0) == [] and call("elementOf", alone, 1, 0) is None


def test_two_axes_of_three_with_a_window_of_blocks(call):
    cut = frame([5, 6, 7], [0, 2], fixed=[0, 3, 0], window=[1, 2, 4, 4], block=(2, 2))
    assert call("elementOf", cut, 1, 1) == [3, 3, 4]
    assert call("cellOf", cut, [4, 3, 5]) == [1, 1] and call("cellOf", cut, [3, 3, 4]) == [1, 1]
    assert call("cellOf", cut, [3, 2, 4]) is None and call("cellOf", cut, [0, 3, 4]) is None
    assert call("cellOf", cut, [5, 3, 4]) is None and call("cellOf", cut, [3, 4]) is None
