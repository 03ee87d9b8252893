"""Bounds of `range` and conditions of `while`, one arm each: integers of one type, and nothing that changes a name."""

from __future__ import annotations

import linecache

import pytest

import workbench as wb


def made(body: str) -> wb.Kernel:
    """A kernel over two floats, an int32, an int64 and a float."""
    head = (
        "import workbench as wb\n@wb.func\ndef advance(s: wb.array(dtype=float), n: int):\n    s[0] = s[0] + 1.0\n"
        "    return s[0] < float(n)\n"
        "def k(y: wb.array(dtype=float), n: int, m: wb.int64, f: float):\n"
    )
    text = head + "".join(f"    {line}\n" for line in body.splitlines())
    file = f"<range {hash(body)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), scope := {})
    return wb.Kernel(func=scope["k"])


def refused(body: str) -> tuple[str, int]:
    """Slug and line of the refusal, which comes before anything runs."""
    with pytest.raises(wb.KernelError) as found:
        made(body).program()
    return found.value.slug, found.value.where.line


def launched(body: str) -> list[float]:
    """What one thread leaves in y, for n = 3 and m = 2."""
    wb.config.backend = "numpy"
    y = wb.zeros(2)
    wb.launch(made(body), 1, [y, 3, 2, 1.0])
    return y.list()


@pytest.mark.parametrize("bounds", ["n, m", "m, n", "n, n, m", "0, n, m", "f", "0, f", "n, n, f", "m, 2, n"])
def test_bounds_of_two_types_are_refused(bounds):
    assert refused(f"for j in range({bounds}):\n    y[0] = 1.0") == ("range-type", 7)


@pytest.mark.parametrize("bounds", ["", "1, 2, 3, 4", "stop=3", "0, stop=3"])
def test_range_takes_one_to_three_numbers(bounds):
    assert refused(f"for j in range({bounds}):\n    y[0] = 1.0") == ("for-range", 7)


@pytest.mark.parametrize(
    ("bounds", "turns"), [("m", 2), ("0, m", 2), ("m, 5", 3), ("1, n", 2), ("int(m), n", 1), ("5, m, -1", 3)]
)
def test_bounds_of_one_type_run(bounds, turns):
    assert launched(f"for j in range({bounds}):\n    y[0] += 1.0") == [turns, 0]


@pytest.mark.parametrize(
    "condition", ["advance(s, n)", "n > 0 and advance(s, n)", "wb.randf(r) < 0.5", "not advance(s, 3)"]
)
def test_a_condition_that_changes_a_name_or_a_local_array_is_refused(condition):
    body = f"s = wb.zeros(2, dtype=float)\nr = wb.rand_init(1)\nwhile {condition}:\n    y[0] += 1.0"
    assert refused(body) == ("while-condition", 9)


def test_a_condition_that_reads_a_local_array_runs():
    body = "s = wb.zeros(2, dtype=float)\nwhile s[0] < float(n):\n    s[0] = s[0] + 1.0\n    y[0] += 2.0"
    assert launched(body) == [6.0, 0.0]


@pytest.mark.parametrize("what", ["y", "y.shape[0]", "n + 1", "n", "wb.vec3(f, f, f)", "y[0]", "advance(y, n)"])
def test_what_cannot_be_counted_is_refused(what):
    assert refused(f"for j in {what}:\n    y[0] = 1.0") == ("for-range", 7)


@pytest.mark.parametrize(
    ("target", "items", "want"),
    [
        ("y[1]", "(1.0, 2.0)", [3.0, 2.0]),
        ("(a, y[1])", "((1.0, 2.0), (3.0, 4.0))", [6.0, 4.0]),
        ("(y[1], a)", "((1.0, 2.0), (3.0, 4.0))", [4.0, 3.0]),
        ("a", "(1.0, 2.0)", [0.0, 0.0]),
    ],
)
def test_items_go_where_the_target_says(target, items, want):
    assert launched(f"a = 0.0\nfor {target} in {items}:\n    y[0] = y[0] + y[1]") == want


@pytest.mark.parametrize("over", ["abs(3)", "int(3)", "wb.min(3, 5)", "range(3, step=2)", "range(0, 3, step=2)"])
def test_only_a_range_counts_the_items_of_a_tuple(over):
    assert refused(f"for k in {over}:\n    y[0] += (2.0, 3.0, 5.0)[k]") == ("for-range", 7)
    assert refused(f"t = (2.0, 3.0, 5.0)\nfor k in {over}:\n    y[0] += t[k]") == ("for-range", 8)


@pytest.mark.parametrize(
    ("over", "want"), [("3", 10), ("1, 3", 8), ("0, 3, 2", 7), ("2, -1, -2", 7), ("2, 2", 0), ("len(t) - 1", 5)]
)
def test_a_range_counts_the_items_of_a_tuple(over, want):
    body = f"t = (2.0, 3.0, 5.0)\nfor k in range({over}):\n    y[0] += t[k]\n    y[1] = float(k)"
    turns = eval(f"range({over})", {"t": (2.0, 3.0, 5.0)})
    assert launched(body) == [want, turns[-1] if turns else 0]


def test_a_range_of_which_nothing_need_be_known_may_be_long():
    assert launched("for j in range(5000):\n    y[0] += 1.0") == [5000, 0]
    assert launched("for j in range(5000):\n    y[int(j / 4999)] += 1.0") == [4999, 1]
