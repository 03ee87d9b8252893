"""The printed IR is stable, readable and safe to put in a page."""

from __future__ import annotations

import html
import pickle
import re
from html.parser import HTMLParser

import pytest

import workbench as wb
from workbench.errors import Where
from workbench.kernels import ir, show
from workbench.kernels.ops import control, memory, scalar, vectors
from workbench.kernels.types import Array, Stack, bool_, float32, float64, int32, vector

X = Array(float32)
SOURCE = ["def square(x, y):\n", "    i = wb.tid()\n", "    y[i] = x[i]*x[i]\n"]


def new(name="k", **params):
    values = [ir.Value(t, n) for n, t in params.items()]
    f = ir.Function(name, ir.Region(values))
    return f, ir.Builder(f.body), values


def const(b, value, type=int32, name=""):
    return b.append(control.CONST, (), (type,), attr=value, name=name).outs[0]


def where(line, file="cell.py", caller=None):
    text = SOURCE[line - 11].rstrip("\n") if 11 <= line <= 13 else ""
    return Where(file, line, text=text, caller=caller)


def square():
    f, b, (x, y) = new("square", x=X, y=X)
    f.first_line, f.file = 11, "cell.py"
    b.where = where(12)
    i = b.emit(control.TID, attr=control.Tid(0), name="i")
    b.where = where(13)
    b.emit(memory.STORE, y, i, b.emit(scalar.MUL, b.emit(memory.LOAD, x, i), b.emit(memory.LOAD, x, i)))
    return f


def body(f):
    """The printed statements without the header and one level of indentation."""
    return [line[4:] for line in show.text(f).splitlines()[1:]]


def test_a_kernel_reads_as_its_source():
    expected = """\
kernel square(x: array(dtype=float32), y: array(dtype=float32)):
    # 12: i = wb.tid()
    i: int32 = tid(0)
    # 13: y[i] = x[i]*x[i]
    v0: float32 = x[i]
    v1: float32 = x[i]
    v2: float32 = v0 * v1
    y[i] = v2
"""
    assert show.text(square()) == expected


def test_printing_twice_gives_the_same_text():
    f = square()
    assert show.text(f) == show.text(f) == show.text(square())


def test_an_empty_kernel_passes():
    assert show.text(new()[0]) == "kernel k():\n    pass\n"


def test_a_users_name_that_repeats_is_numbered():
    f, b, (x,) = new(f=float32)
    for _ in range(2):
        x = b.emit(scalar.ADD, x, x, name="f")
    assert body(f) == ["f.1: float32 = f + f", "f.2: float32 = f.1 + f.1"]


def test_our_names_keep_off_the_users():
    f, b, (x,) = new(v0=float32)
    b.emit(scalar.ADD, x, x)
    assert body(f) == ["v1: float32 = v0 + v0"]


def test_constants_stand_where_they_are_used_unless_the_user_named_them():
    f, b, (x,) = new(x=float32)
    b.emit(scalar.MUL, x, const(b, 2, float32))
    b.emit(scalar.MUL, const(b, 0.1, float64), const(b, 1.5, float64, name="g"))
    const(b, (1, 2, 3), vector(3, float32), name="up")
    assert body(f) == [
        "v0: float32 = x * 2.0",
        "g: float64 = float64(1.5)",
        "v1: float64 = float64(0.1) * g",
        "up: vec3 = vec3(1.0, 2.0, 3.0)",
    ]


def test_every_kind_of_expression():
    f, b, (x, v, s, i, c) = new(x=X, v=vector(3, float32), s=float32, i=int32, c=bool_)
    b.emit(scalar.SIN, s)
    b.emit(scalar.NEG, s)
    b.emit(scalar.LOGICAL_NOT, c)
    b.emit(scalar.CAST, s, attr=float64)
    b.emit(vectors.CONSTRUCT, s, s, s, attr=v.type)
    b.emit(vectors.EXTRACT, v, attr=(0,))
    b.emit(vectors.EXTRACT, v, attr=2)
    b.emit(vectors.INSERT, v, s, attr=1)
    b.emit(vectors.EXTRACT_AT, v, i)
    b.emit(vectors.INSERT_AT, v, i, s)
    b.emit(memory.SHAPE, x, attr=0)
    b.emit(control.DIM, attr=control.Tid(1))
    b.emit(memory.ACCUMULATE, x, i, s)
    b.emit(memory.ATOMIC_ADD, x, i, s)
    b.emit(scalar.NEG, b.emit(memory.ATOMIC_ADD, x, i, s, name="old"))
    b.emit(memory.ATOMIC_MIN, x, i, s)
    stack = b.emit(control.STACK, attr=Stack(float32, 8), name="st")
    b.emit(control.PUSH, stack, s)
    b.emit(control.POP, stack)
    b.emit(control.PRINTF, s, attr=("%f\n", ("s",)))
    assert body(f) == [
        "v0: float32 = sin(s)",
        "v1: float32 = -s",
        "v2: bool = not c",
        "v3: float64 = float64(s)",
        "v4: vec3 = vec3(s, s, s)",
        "v5: float32 = v[0]",
        "v6: float32 = v[2]",
        "v7: vec3 = v with [1] = s",
        "v8: float32 = v[i]",
        "v9: vec3 = v with [i] = s",
        "v10: int32 = x.shape[0]",
        "v11: int32 = dim(1)",
        "x[i] += s",
        "x[i] += s",
        "old: float32 = atomic_add(x, i, s)",
        "v12: float32 = -old",
        "v13: float32 = atomic_min(x, i, s)",
        "st: stack(dtype=float32, capacity=8) = stack()",
        "push(st, s)",
        "v14: float32 = pop(st)",
        "printf('%f\\n', s)",
    ]


def test_branches_loops_and_breaks():
    f, b, (x, n, s) = new(x=X, n=int32, s=float32)
    go = b.emit(scalar.LT, n, const(b, 3), name="go")
    then, other = ir.Region(), ir.Region()
    with b.inside(then):
        then.results = (b.emit(scalar.SIN, s),)
    other.results = (s,)
    (r,) = b.append(control.IF, (go,), (float32,), (then, other), name="r").outs
    turn = ir.Region([ir.Value(int32, "j"), ir.Value(float32, "r")])
    with b.inside(turn):
        turn.results = (go, b.emit(scalar.MUL, turn.params[1], r))
    bounds = [const(b, 0), n, const(b, 1)]
    b.append(control.FOR, [*bounds, r], (float32,), (turn,), control.Loop(breaks=True), name="r")
    b.append(control.IF, (go,), (), (ir.Region(), ir.Region()))
    assert body(f) == [
        "go: bool = n < 3",
        "r: float32 = if go:",
        "    v0: float32 = sin(s)",
        "    yield v0",
        "else:",
        "    yield s",
        "r.1: float32 = for j in range(0, n, 1) carrying (r.2=r):",
        "    v1: float32 = r.2 * r",
        "    yield v1; stop unless go",
        "if go:",
        "    pass",
    ]


def test_while_shows_its_test_and_its_body():
    f, b, (n,) = new(n=int32)
    test, turn = ir.Region([ir.Value(int32, "k")]), ir.Region([ir.Value(int32, "k")])
    with b.inside(test):
        test.results = (b.emit(scalar.LT, test.params[0], n),)
    with b.inside(turn):
        turn.results = (b.emit(scalar.ADD, turn.params[0], const(b, 1)),)
    b.append(control.WHILE, (const(b, 0),), (int32,), (test, turn), control.Loop(), name="k")
    assert body(f) == [
        "k: int32 = while carrying (0):",
        "    test (k.1):",
        "        v0: bool = k.1 < n",
        "        yield v0",
        "    body (k.2):",
        "        v1: int32 = k.2 + 1",
        "        yield v1",
    ]


def test_one_statement_prints_without_its_function():
    f = square()
    assert show.line(f.body.body[-2]) == "v2: float32 = v0 * v1"
    assert show.line(f.body.body[-1]) == "y[i] = v0"


# --- beside the source


def adjoint_of(primal):
    """As `adjoint` writes it: parameters again and shadows, replayed statements, then the reverse."""
    f, b, (x, y, dx, dy) = new("adj_square", x=X, y=X, d_x=X, d_y=X)
    tid, load, _, mul, store = primal.body.body
    b.role = "replay"
    with b.at(where(12), of=tid):
        i = b.emit(control.TID, attr=control.Tid(0), name="i")
    with b.at(where(13), of=load):
        v = b.emit(memory.LOAD, x, i)
    b.role = "adjoint"
    with b.at(None, of=store):
        g = b.emit(memory.LOAD, dy, i)
    with b.at(None, of=mul):
        b.emit(memory.ACCUMULATE, dx, i, b.emit(scalar.MUL, g, v))
    return f


def rows():
    primal = square()
    return show.beside(primal, adjoint_of(primal), SOURCE)


def test_statements_stand_beside_the_line_they_stem_from():
    first, second, third = rows()
    assert first == (11, "def square(x, y):", [], [], [])
    assert second == (12, "    i = wb.tid()", ["i: int32 = tid(0)"], [], ["i: int32 = tid(0)"])
    assert third.primal == ["v0: float32 = x[i]", "v1: float32 = x[i]", "v2: float32 = v0 * v1", "y[i] = v2"]
    assert third.adjoint == ["v1: float32 = d_y[i]", "v2: float32 = v1 * v0", "d_x[i] += v2"]
    assert third.replayed == ["v0: float32 = x[i]"]


def test_an_inlined_statement_belongs_to_the_line_that_calls():
    f, b, (s,) = new(s=float32)
    f.first_line, f.file = 11, "cell.py"
    b.where = where(11, file="other.py", caller=where(13))
    b.emit(scalar.SIN, s)
    assert [len(row.primal) for row in show.beside(f, None, SOURCE)] == [0, 0, 1]


def test_the_terminal_listing():
    expected = """\
source                     | primal                | adjoint (~ replayed)
-------------------------- | --------------------- | --------------------
  11  def square(x, y):    |                       |
  12      i = wb.tid()     | i: int32 = tid(0)     | ~ i: int32 = tid(0)
  13      y[i] = x[i]*x[i] | v0: float32 = x[i]    | ~ v0: float32 = x[i]
                           | v1: float32 = x[i]    | v1: float32 = d_y[i]
                           | v2: float32 = v0 * v1 | v2: float32 = v1 * v0
                           | y[i] = v2             | d_x[i] += v2
"""
    assert show.text_beside(rows()) == expected


def test_the_listing_prints_itself_and_finds_the_source_by_itself():
    primal = square()
    primal.source = "".join(SOURCE)
    listing = show.beside(primal, adjoint_of(primal))
    assert listing == rows()
    assert repr(listing) == str(listing) == show.text_beside(rows())
    assert listing._repr_html_() == show.html_beside(rows())


class Reader(HTMLParser):
    def __init__(self, markup):
        super().__init__()
        self.tags: list[str] = []
        self.depth = 0
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.depth += 1
        assert all(name in ("style", "scope", "tabindex") for name, _ in attrs)

    def handle_endtag(self, tag):
        self.depth -= 1

    def handle_data(self, data):
        self.text += data


EVIL = """x = '<script>alert("1")</script>' & "<img src=x onerror=y>" # </pre><b> 'a"""


def test_the_html_table_has_a_row_per_line_and_closes_its_tags():
    read = Reader(show.html_beside(rows()))
    assert read.depth == 0
    assert read.tags.count("tr") == 4 and read.tags.count("td") == 9
    assert "d_x[i] += v2" in read.text and "def square(x, y):" in read.text


def test_html_runs_nothing_of_what_it_shows():
    evil = show.SourceLine(1, EVIL, [EVIL], [EVIL], [EVIL])
    read = Reader(show.html_beside([evil]))
    assert set(read.tags) <= {"div", "table", "thead", "tbody", "tr", "th", "td", "span"}
    assert read.text.count(EVIL) == 4


# --- listings


@pytest.mark.parametrize("language", ["python", "ir", "c"])
def test_a_listing_is_its_text_and_safe_html(language):
    listing = show.Listing(EVIL, language)
    read = Reader(listing._repr_html_())
    assert listing == EVIL and repr(listing) == EVIL
    assert set(read.tags) <= {"pre", "span"} and read.text == EVIL and read.depth == 0


@pytest.mark.parametrize(
    ("code", "language", "kinds"),
    [
        ("return x[i]*2.5e-3 # half", "python", ["keyword", "number", "comment"]),
        ("for j in range(0, n, 1) carrying (s=s0):", "ir", ["keyword"] * 3 + ["number"] * 2 + ["keyword"]),
        ("v2: float32 = v1 * 2.0", "ir", ["type", "number"]),
        (
            "#define N 3\nconst int32_t k = 0x1Fu; /* a\nb */ double d; // end",
            "c",
            ["comment", "keyword", "type", "number", "comment", "type", "comment"],
        ),
        ('printf("%d // no comment\\n", 1);', "c", ["string", "number"]),
    ],
)
def test_tokens_are_coloured(code, language, kinds):
    kind_of = {value: kind for kind, value in show._COLOURS.items()}
    found = re.findall(r'<span style="color:(.*?)">', show.colour(code, language))
    assert [kind_of[html.unescape(style)] for style in found] == kinds


@pytest.mark.parametrize(
    ("text", "language"),
    [("kernel k():\n", "ir"), ("@wb.kernel\ndef k():", "python"), ("  def k():", "python"), ("#include <math.h>", "c")],
)
def test_the_language_is_seen_from_the_first_word(text, language):
    assert show.Listing(text).language == language


def test_what_every_c_text_begins_with_is_folded_away_and_nothing_is_lost():
    arguments = "typedef struct {\n    int64_t dim[4];\n} k_args;\nvoid k(void);\n"
    shared = "typedef int int32_t;\n#define N 1\ntypedef struct { float c[2]; } wb_vec2f;\n"
    listing = show.Listing(shared + arguments + "\n" + shared + arguments, "c")
    markup = listing._repr_html_()
    read = Reader(re.sub("<summary.*?</summary>", "", markup))
    assert read.text == listing and read.depth == 0
    assert read.tags.count("details") == 2 and "3 lines that every kernel shares" in markup
    shown = Reader(re.sub("<details>.*?</details>", "", markup, flags=re.DOTALL)).text
    assert shown.count("k_args") == 2 and "wb_vec2f" not in shown


def test_a_listing_survives_pickling():
    listing = pickle.loads(pickle.dumps(show.Listing("a = 1", "python")))
    assert (listing, listing.language) == ("a = 1", "python")


@wb.kernel
def grows(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.exp(x[i])


def test_a_product_that_passes_zero_as_zero_is_printed_as_a_product_and_the_docstring_says_so():
    text = str(grows.adjoint)
    assert " * " in text and "times" not in text and "== 0 ? 0" in str(grows.c)
    assert "adjoint of exactly 0 as 0" in type(grows).adjoint.__doc__
