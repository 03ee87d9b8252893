"""What the reader refuses: each snippet with the slug of its message and the place of the caret."""

from __future__ import annotations

import itertools
import linecache
import textwrap

import pytest

from workbench.errors import KernelError
from workbench.kernels import types as T
from workbench.kernels.ops import BUILTINS, STATEFUL, memory
from workbench.kernels.reading import declare, refused_syntax
from workbench.kernels.reading.reader import read


@declare.func
def again(a: float):
    return again(a - 1.0)


@declare.func
def half(a: float):
    return a * 0.5


def plain(a):
    return a


@declare.struct
class Ball:
    q: T.vector(3, float)
    m: float


SPACE = {
    "f32": T.Array(T.float32),
    "f32_2": T.Array(T.float32, 2),
    "vec3": T.vector(3, float),
    "Ball": Ball,
    "balls": T.Array(Ball),
    "tid": declare.tid,
    "func": declare.func,
    "again": again,
    "half": half,
    "plain": plain,
    "adjoint": declare.adjoint,
    "printf": declare.printf,
    "static": declare.static,
    "sin": BUILTINS["sin"],
    "rand_init": BUILTINS["rand_init"],
    "randf": STATEFUL["randf"],
    "atomic_add": memory.ATOMIC_ADD,
    "float64": T.float64,
    "SIZES": [1, 2],
    "SCALE": 2.0,
}
COUNT = itertools.count()
PARAMS = "x: f32, y: f32, z: f32_2, n: int, v: vec3"


def refused(body: str, params: str = PARAMS) -> KernelError:
    """The error for a kernel with this body; the body starts at line 2, column 4."""
    text = f"def k({params}):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n"
    name = f"<snippet {next(COUNT)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = dict(SPACE)
    exec(compile(text, name, "exec"), space)
    with pytest.raises(KernelError) as caught:
        read(space["k"])
    return caught.value


# body, slug, line, column (zero-based) of the caret
REFUSED = [
    ("f = lambda a: a", "lambda", 2, 8),
    ("l = [x[0], x[1]]", "list", 2, 8),
    ("l = [a for a in range(3)]", "list", 2, 8),
    ("d = {}", "dict", 2, 8),
    ("d = {a: a for a in range(3)}", "dict", 2, 8),
    ("d = {1, 2}", "set", 2, 8),
    ("d = {a for a in range(3)}", "set", 2, 8),
    ("s = sin(a for a in range(3))", "generator", 2, 11),
    ("for j in range(n):\n    pass\nelse:\n    y[0] = 1.0", "for-else", 5, 8),
    ("while n > 0:\n    n -= 1\nelse:\n    y[0] = 1.0", "while-else", 5, 8),
    ("try:\n    y[0] = 1.0\nexcept ValueError:\n    pass", "try", 2, 4),
    ("raise ValueError", "raise", 2, 4),
    ("assert n > 0, n", "assert", 2, 18),
    ("with x:\n    pass", "with", 2, 4),
    ("yield 1", "yield", 2, 4),
    ("yield from x", "yield", 2, 4),
    ("global SCALE", "global", 2, 4),
    ("del n", "del", 2, 4),
    ('s = f"{n}"', "f-string", 2, 8),
    ("y[0] = half(*n)", "star", 2, 16),
    ("y[0] = half(**v)", "star", 2, 18),
    ("class A:\n    pass", "nested-class", 2, 4),
    ("def g(a):\n    return a", "nested-def", 2, 4),
    ("import math", "import", 2, 4),
    ("from math import pi", "import", 2, 4),
    ("if (m := n) > 0:\n    y[0] = 1.0", "walrus", 2, 8),
    ("y[0] = x[0:9:0][0]", "slice", 2, 17),
    ("x[0:2] = 1.0", "rank", 2, 4),
    ("match n:\n    case 0:\n        pass", "match", 2, 4),
    ("if x is y:\n    pass", "is", 2, 7),
    ("if n in (1, 2):\n    pass", "in", 2, 7),
    ("s = 'text'", "string", 2, 8),
    ("s = None", "none", 2, 8),
    ("s = 1j", "complex", 2, 8),
    ("s = ...", "ellipsis", 2, 8),
    ("print(n, end=1)", "arguments", 2, 17),
    ("for a in x:\n    pass", "for-range", 2, 13),
    ("for a, b in range(n):\n    pass", "for-range", 2, 8),
    ("s = range(3)", "for-range", 2, 8),
    ("for a in range(1.0):\n    pass", "range-type", 2, 19),
    ("n + 1", "no-effect", 2, 4),
    ("a: float", "no-effect", 2, 4),
    ("return 1.0", "kernel-return", 2, 4),
    ("y[0] = sinn(1.0)", "unknown-name", 2, 11),
    ("y[0] = q", "unknown-name", 2, 11),
    ("SCALE += 1.0", "global", 2, 4),
    ("y[0] = SIZES", "constant", 2, 4),
    ("y[0] = plain(x[0])", "not-a-func", 2, 11),
    ("a = half(n)", "argument-type", 2, 8),
    ("a = half()", "arguments", 2, 8),
    ("a = half(b=1.0)", "arguments", 2, 8),
    ("if n > 0:\n    a = 1.0\ny[0] = a", "maybe-unbound", 4, 11),
    ("if n > 0:\n    a = 1.0\nelse:\n    a = 1\ny[0] = a", "branch-type", 6, 11),
    ("s = 1.0 if n > 0 else 1", "branch-type", 2, 8),
    ("for j in range(n):\n    if j > 1:\n        a = x[j]\ny[0] = a", "maybe-unbound", 5, 11),
    ("a = static(v)", "static", 2, 8),
    ("a = static(len(x))", "static", 2, 8),
    ("for j in range(3):\n    if n > j:\n        a = x[j]\ny[0] = a", "maybe-unbound", 5, 11),
    ("for j in range(n):\n    if j > 0:\n        y[0] = a\n    a = x[j]", "maybe-unbound", 4, 19),
    ("s = 0\nfor j in range(n):\n    s = s * 1.0", "mixed-types", 4, 12),
    ("s = 0.0\nfor j in range(n):\n    s = v * s", "loop-type", 3, 4),
    ("s = 0.0\nfor j in range(n):\n    s = v\ny[0] = s", "loop-type", 5, 11),
    ("a = x\nif n > 0:\n    a = z\ny[0] = a[0]", "branch-type", 5, 11),
    ("a = x\nif n > 0:\n    a = 1.0\ny[0] = a[0]", "branch-type", 5, 11),
    ("a = x\nfor j in range(n):\n    y[j] = a[j]\n    a = z", "array-choice", 3, 4),
    ("a = x\nfor j in range(n):\n    a = z\ny[0] = a[0]", "array-choice", 3, 4),
    ("for j in range(n):\n    a = x\n    if j > 0:\n        a = z\n    y[j] = a[j]", "branch-type", 6, 15),
    ("while True:\n    n += 1", "endless-loop", 2, 4),
    ("s = rand_init(1)\nwhile randf(s) < 0.5:\n    n += 1", "while-condition", 3, 10),
    ("y[0] = randf(1)", "rand-state", 2, 17),
    ("i = tid()\ni, j = tid()", "tid-rank", 3, 11),
    ("y[0] = 1.0 + n", "mixed-types", 2, 11),
    ("y[0] = float64(1.0)", "store-type", 2, 4),
    ("y[0] = n / 2", "store-type", 2, 4),
    ("y[0] = v[0] * 16777217", "mixed-types", 2, 11),
    ("y[0] = float(float64(n) * 9007199254740993)", "literal-range", 2, 17),
    ("if n > 0:\n    s = v[0]\nn = n - 1\nif n > 0:\n    y[0] = s", "maybe-unbound", 6, 15),
    ("if n > 0:\n    s = v[0]\nif n > 1:\n    y[0] = s", "maybe-unbound", 5, 15),
    ("if n > 0:\n    s = v[0]\nelse:\n    y[0] = s", "maybe-unbound", 5, 15),
    ("if x[0] > 0.0:\n    s = v[0]\nx[0] = 2.0\nif x[0] > 0.0:\n    y[0] = s", "maybe-unbound", 6, 15),
    ("for j in range(3):\n    if n > 0:\n        s = v[0]\nif n > 0:\n    y[0] = s", "maybe-unbound", 6, 15),
    ("c = n > 0\nwhile n < 9:\n    n += 1\n    if c:\n        s = v[0]\nif c:\n    y[0] = s", "maybe-unbound", 8, 15),
    ("if n > 0:\n    s = v\nfor j in range(n):\n    if n > 0:\n        s[0] = 1.0", "maybe-unbound", 6, 12),
    ("n = n * 0.5", "mixed-types", 2, 8),
    ("y[0] = v.q", "component", 2, 11),
    ("y[0] = v[3]", "component-range", 2, 13),
    ("v[n > 0] = 1.0", "index-type", 2, 6),
    ("y[0] = x[1.0]", "index-type", 2, 13),
    ("y[0] = x[0, 1]", "rank", 2, 16),
    ("z[0] = 1.0", "rank", 2, 4),
    ("y[0] = n[0]", "not-indexable", 2, 11),
    ("a, b = v", "unpack", 2, 4),
    ("a, b = n", "unpack", 2, 4),
    ("y[0] = v.dot(v)", "component", 2, 11),
    ("b = Ball()\ny[0] = b.mass", "field", 3, 11),
    ("b = Ball()\nb.mass = 1.0", "field", 3, 4),
    ("b = Ball(mass=1.0)", "arguments", 2, 8),
    ("atomic_add(y, 1.0)", "rank", 2, 4),
    ("atomic_add(n, 0, 1)", "not-an-array", 2, 15),
    ("adjoint[n] += 1.0", "adjoint-outside", 2, 4),
    ("a = static(n)", "static", 2, 8),
    ("a = 3000000000", "literal-range", 2, 4),
    ("if v:\n    pass", "condition", 2, 7),
    ("y[0] = float(v)", "cast", 2, 11),
]


@pytest.mark.parametrize(("body", "slug", "line", "column"), REFUSED, ids=lambda v: str(v)[:28])
def test_what_is_refused_names_its_slug_and_place(body, slug, line, column):
    error = refused(body)
    assert f"[{slug}]" in error.msg
    assert error.slug == slug
    assert (error.lineno, error.offset - 1) == (line, column), str(error)
    assert error.where.text.strip()


@pytest.mark.parametrize(
    ("params", "slug"), [("x", "annotation"), ("x: list", "annotation"), ("*x: float", "star"), ("**x: float", "star")]
)
def test_parameters_that_have_no_type_are_refused(params, slug):
    assert refused("pass", params).slug == slug


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ("list", "list is not a type of the kernel language."),
        ("3", "3 is not a type of the kernel language"),
        ("'nothing'", "name 'nothing' is not defined"),
        ("'1 / 0'", "division by zero"),
    ],
)
def test_an_annotation_that_is_no_type_says_why(annotation, why):
    error = refused("pass", f"x: {annotation}")
    assert error.slug == "annotation" and f"\n{why}\n" in f"{error}" and "x: array(dtype=float)" in f"{error}"


def test_every_row_of_the_table_says_why_and_what_to_write():
    for name, row in refused_syntax.FENCES.items():
        assert row["what"] and row["instead"] and row["slug"] == row["slug"].lower(), name


def test_syntax_is_refused_when_the_function_is_decorated():
    with pytest.raises(KernelError, match="a lambda cannot be used"):

        @declare.func
        def f(a: float):
            g = lambda b: b  # noqa: E731
            return g(a)


def test_python_inside_static_is_not_the_kernels():
    @declare.func
    def f(a: float):
        return a * declare.static(sum([k for k in range(3)]) * 1.0)

    refused_syntax.check(f.fn)


def test_recursion_is_refused_where_the_func_calls_itself():
    error = refused("y[0] = again(x[0])")
    assert error.slug == "recursion"
    assert error.where.text.strip() == "return again(a - 1.0)"
    assert error.where.caller.text.strip() == "y[0] = again(x[0])"


def test_a_misspelt_name_gets_the_closest_one():
    assert refused("speed = 1.0\ny[0] = sped").instead.startswith("`speed`")


def test_both_places_of_a_missing_value_are_named():
    error = refused("if n > 0:\n    a = 1.0\ny[0] = a")
    assert "line 2" in error.why and error.lineno == 4


def test_an_unread_clash_is_no_error():
    text = "def k(y: f32, n: int, v: vec3):\n    if n > 0:\n        a = 1.0\n    else:\n        a = v\n    y[0] = 1.0\n"
    linecache.cache["<fine>"] = (len(text), None, text.splitlines(True), "<fine>")
    space = dict(SPACE)
    exec(compile(text, "<fine>", "exec"), space)
    read(space["k"])
