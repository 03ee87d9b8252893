"""The text that is read is the text that runs."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import textwrap
from pathlib import Path

import pytest

import workbench as wb
from workbench.errors import KernelError
from workbench.kernels.reading.source import _block, source

OLD = "SCALE = 2.0\n\ndef step(x, n):\n    for k in range(n):\n        x = x * SCALE + 1.0\n    return x\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "edited_module.py"
    path.write_text(OLD)
    spec = importlib.util.spec_from_file_location("edited_module", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "edited_module", made)
    spec.loader.exec_module(made)
    return made


def test_the_text_of_an_unchanged_file_is_taken(module):
    assert source(module.step).tree.name == "step"


@pytest.mark.parametrize("old, new", [("+ 1.0", "+ 2.0"), ("x * SCALE", "x / SCALE"), ("return x", "return n")])
def test_a_file_edited_after_its_import_is_refused(module, old, new):
    path = Path(module.__file__)
    path.write_text(OLD.replace(old, new) + "# longer\n")
    with pytest.raises(KernelError) as error:
        source(module.step)
    assert error.value.slug == "stale-source"


def test_a_comment_that_was_edited_does_no_harm(module):
    path = Path(module.__file__)
    path.write_text(OLD.replace("+ 1.0", "+ 1.0  # a word"))
    assert source(module.step).tree.name == "step"


def test_a_closure_that_calls_itself_is_read():
    factor = 3.0

    def nested(x):
        return nested(x) if x > factor else factor

    assert source(nested).tree.name == "nested"


def test_a_text_once_found_to_be_that_of_a_function_outlives_its_file(module):
    first = source(module.step)
    Path(module.__file__).write_text(OLD.replace("+ 1.0", "+ 2.0"))
    again = source(module.step)
    assert again.text == first.text and again.first == first.first


def test_code_put_into_a_function_is_not_that_of_its_text(module):
    source(module.step)
    module.step.__code__ = (lambda x, n: x).__code__
    with pytest.raises(KernelError):
        source(module.step)


# fmt: off
def plain(x):
    y = x

    return y
    # a last word

# of the next one


def left(x):
    """Words
at the left margin."""
# and a comment there
    return x


def long(
    x,
):
    return (
x
    )


def short(x): return x


@inspect.unwrap
def decorated(x):
    if x:
        return x
        # of the branch
    # of the function
# fmt: on


@pytest.mark.parametrize("f", [plain, left, long, short, decorated])
def test_a_function_is_read_from_its_first_line_to_its_last(f):
    assert "\n".join(source(f).lines) == inspect.getsource(f).rstrip("\n")


@pytest.mark.parametrize("kind", ["\t", "    "])
def test_indentation_of_any_kind_is_read(tmp_path: Path, kind: str):
    path = tmp_path / "indented.py"
    path.write_text(f"def f(x):\n{kind}if x:\n{kind}{kind}return x\n{kind}return 2\n\n\nafter = 1\n")
    spec = importlib.util.spec_from_file_location("indented", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert source(made.f).lines[-1] == f"{kind}return 2"


def test_columns_count_signs_where_a_line_has_others_than_ascii():
    def named(x):
        return x + ("ä" == "ä") + x

    text = source(named)
    (line,) = text.tree.body
    assert isinstance(line, ast.Return) and isinstance(line.value, ast.BinOp)
    where = text.where(line.value.right)
    assert where.text[where.col : where.end_col] == "x"


def test_an_error_in_a_lambda_names_its_line():
    x = wb.zeros(3)
    wrong = lambda a: a + wb.vec3(1.0, 2.0, 3.0)  # noqa: E731
    with pytest.raises(KernelError) as caught:
        wb.map(wrong, x)
    assert caught.value.lineno == wrong.__code__.co_firstlineno
    assert "wrong = lambda" in str(caught.value.text)
    assert caught.value.filename == __file__


ODD = {
    "nested": "    @a\n    def f(\n        x,\n    ):\n        # 1\n\n        x = 1\n        # 2\n    # 3\n    g = 2\n",
    "a string at the margin": 'def f():\n    """\nfrom here\n    """\n    x = 1\n\n\ndef g():\n    pass\n',
    "brackets at the margin": "@made(\n1,\n)\ndef f(a=(\n1),\n):\n    return (\na\n)\n\nx = 1\n",
    "a line that goes on": "def f():\n    x = 1 + \\\n2\n    return x\nx = 1\n",
    "one line": "def f(x): return x\nx = 1\n",
    "comments at the margin": "def f():\n    x = 1\n# within\n    return x\n# behind\n\n# more\nx = 1\n",
    "the last": "def f():\n    x = 1\n    # end\n\n",
    "inner": "def f():\n    def g():\n        pass\n    return g\nclass A:\n    pass\n",
}


@pytest.mark.parametrize("name", ODD)
def test_a_definition_ends_where_python_says(name):
    """As far as it is found by indentation alone; what is then no Python is looked for by Python's tokens."""
    lines = ODD[name].splitlines(keepends=True)
    found = _block(lines)
    try:
        ast.parse(textwrap.dedent("".join(found)))
    except SyntaxError:
        assert "margin" in name or "goes on" in name
    else:
        assert found == inspect.getblock(lines)


@pytest.mark.parametrize("name, statements", [("a string at the margin", 2), ("a line that goes on", 2)])
def test_a_definition_with_lines_at_the_margin_is_read_whole(name, statements, tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(ODD[name])
    made: dict = {}
    exec(compile(ODD[name], str(path), "exec"), made)
    assert len(source(made["f"]).tree.body) == statements
