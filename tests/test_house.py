"""The rules of the house: imports point down, files stay small and nouns, nothing is printed, the wheel is whole."""

from __future__ import annotations

import ast
import fnmatch
import functools
import importlib
import inspect
import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "workbench"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in SOURCES}
PACKAGES = {".".join(p.parent.relative_to(ROOT).parts) for p in SOURCES}
NOTEBOOKS = sorted(p for p in (ROOT / "notebooks").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
has_init = pytest.mark.skipif("workbench" not in MODULES, reason="workbench/__init__.py is not written yet")

# Lowest first. A module imports from layers below; inside a layer anything goes that makes no cycle.
# The first pattern that fits counts, except that an exact name beats a pattern with a star.
LAYERS = (
    ("errors",),
    ("config",),
    ("display",),
    ("kernels.lru", "kernels.types", "kernels.recursion", "kernels.host_products", "kernels.type_queries"),
    ("kernels.parameter_types",),
    ("kernels.row",),
    ("kernels.ir",),
    ("kernels.ops.examples",),
    ("kernels.ops.row",),
    ("kernels.ops.*",),
    ("kernels.ops",),
    ("kernels.show",),
    ("kernels.reading", "kernels.reading.*"),
    ("kernels.interpreter", "kernels.interpreter.*"),
    ("kernels.analysis", "kernels.analysis.*"),
    ("kernels.passes", "kernels.passes.*"),
    ("kernels.emit", "kernels.emit.*"),
    ("kernels.compile", "kernels.compile.*"),
    ("kernels.modules",),
    ("kernels.program",),
    ("kernels",),
    ("device",),
    ("arrays", "arrays.*"),
    ("launches", "launches.*"),
    ("geometry", "geometry.*"),
    ("tapes", "tapes.*"),
    ("warp", "warp.names", "warp.names.*"),
    ("warp.fem", "sparse", "sparse.*"),
    ("optim", "optim.*"),
    ("rockets",),
    ("derivatives", "derivatives.*"),
    ("diagnose", "diagnose.*"),
    ("warp.watch", "warp.watch.*", "interop", "interop.*"),
    ("viz.data", "viz.data.*"),
    ("viz.picture", "viz.picture.*"),
    ("viz.inspect", "viz.inspect.*"),
    ("viz.live", "viz.live.*"),
    ("viz",),
    ("warp.autograd",),
    ("watch",),
    ("",),
)
EVERYWHERE = {"numpy"}
SHOWING = {"anywidget", "ipywidgets", "traitlets", "IPython", "matplotlib", "tqdm"}
ON_DEMAND = {
    "checkpoint_schedules",
    "cupy",
    "cupy_backends",
    "torch",
    "jax",
    "jaxlib",
    "pytest",
    "scipy",
    "warp",
    "ziglang",
}
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
# What is longer than 700 lines, and why it is one piece.
LONG_FILES = {
    "tests/kernels/test_ops.py": "every row of operations",
    "workbench/kernels/ops/scalar.py": "rows of numbers, whose derivatives name each other",
    "tests/fuzz/kernels.py": "one generator of random programs, with its oracle",
    "tests/kernels/test_emit_c.py": "every row of control and memory in C",
    "tests/kernels/test_func_grad.py": "every place where a call with an adjoint of its own may stand",
    "tests/kernels/test_reader.py": "every construct of the language",
    "workbench/kernels/types.py": "every type of the language, with its values on the host",
}
MACHINE_PATH = re.compile(r"(?<![A-Za-z0-9_.])/(?:work|tmp|root|farm|home/[a-z]+)/")
TEXT = {".py", ".js", ".css", ".md", ".toml", ".yaml", ".yml", ".ipynb", ".svg", ".txt", ".c", ".cu", ""}


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    in_function: bool


@functools.cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@functools.cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    """All nodes below it: asked for by a dozen tests of each module."""
    return list(ast.walk(tree))


def tree(path: Path) -> ast.Module:
    return parsed(path.read_text("utf-8"))


def layer(module: str) -> int:
    """Height of a module in the stack; raises LookupError for a module that nobody has placed."""
    name = module.removeprefix("workbench").removeprefix(".")
    exact = [i for i, names in enumerate(LAYERS) if name in names]
    fits = exact or [i for i, names in enumerate(LAYERS) if any(fnmatch.fnmatchcase(name, n) for n in names)]
    if not fits:
        raise LookupError(f"{module} has no layer: give it one in LAYERS of tests/test_house.py")
    return fits[0]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def import_nodes(node: ast.AST, in_function: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import that can run; those for the type checker never do."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, in_function
        elif is_type_checking(child):
            continue
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from import_nodes(child, in_function or inside)


def base_of(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The absolute name that `from ... import` starts from."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    kept = parts[: len(parts) - node.level + is_package]
    return ".".join(kept + ([node.module] if node.module else []))


def imports(module: str, text: str, is_package: bool, known: set[str]) -> list[Import]:
    found = []
    for node, inside in import_nodes(parsed(text)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            base = base_of(node, module, is_package)
            whole = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name if name in known else base for name in whole]
        found += [Import(target, node.lineno, inside) for target in dict.fromkeys(targets)]
    return found


@functools.cache
def imports_of(module: str) -> list[Import]:
    path = MODULES[module]
    return imports(module, path.read_text("utf-8"), path.name == "__init__.py", set(MODULES) | PACKAGES)


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """One cycle as a path, or nothing."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph.get(name, ())):
            if found := walk(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next(filter(None, (walk(name, []) for name in sorted(graph))), [])


def committed_files() -> list[Path]:
    """What belongs to the project: no caches, no environments, no build results."""
    kept_dots = {".ci", ".gitignore", ".pre-commit-config.yaml"}
    skipped = {"__pycache__", "build", "dist", "node_modules"}

    def belongs(path: Path) -> bool:
        parts = path.relative_to(ROOT).parts
        if any(part in skipped or part.endswith(".egg-info") for part in parts):
            return False
        # A virtual environment may have any name.
        return not any(part.startswith(".") and part not in kept_dots for part in parts)

    tops = [top for top in sorted(ROOT.iterdir()) if belongs(top) and not (top / "pyvenv.cfg").exists()]
    tops = [top for top in tops if top.name != "shared"]
    files = [path for top in tops for path in ([top] if top.is_file() else sorted(top.rglob("*"))) if path.is_file()]
    return [path for path in files if belongs(path)]


# --- imports


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_down(module: str) -> None:
    wrong = []
    for target in imports_of(module):
        inside = target.module == "workbench" or target.module.startswith("workbench.")
        if inside and target.module != module and layer(target.module) > layer(module):
            wrong.append(f"{MODULES[module].relative_to(ROOT)}:{target.line} imports {target.module}, which lies above")
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: {i.module for i in imports_of(module)} & (set(MODULES) - {module}) for module in MODULES}
    assert cycle_in(graph) == []


# Private names of other people that have no public form.
FOREIGN_DOORS = {
    "_getframe": "CPython's: the frame of the caller, for lines and names in messages",
    "_version": "torch's count of in-place changes of a tensor",
    "_C": "torch's engine, ...",
    "_cls": "Warp's struct, of one of its instances",
    "_ref": "Warp's array of which another is a view",
    "_wp_scalar_type_": "Warp's type of the components of a vector or matrix type, ...",
    "_shape_": "... and how many there are",
    "_backward_hooks": "torch's hooks of a tensor, None or a dict",
    "_current_graph_task_id": "... which says whose backward is running",
    "_are_functorch_transforms_active": "... whether a transform of torch.func is",
    "_current_level": "torch's level of forward mode, -1 outside of it",
    "_vmapmode_increment_nesting": "torch's older vmap, of batched gradients: the only way to know its level",
    "_vmapmode_decrement_nesting": "...",
    "_add_batch_dim": "... and to batch what was computed one by one",
    "_remove_batch_dim": "...",
}


def private_doors(text: str) -> list[tuple[int, str]]:
    """Line and name of what starts with an underscore and belongs to another file: attributes and imports.

    Own are the members of the classes in the file, and what a class has from a base (`self`, `cls`, `super()`).
    """
    tree = parsed(text)
    own: set[str] = set()
    for made in (n for n in nodes(tree) if isinstance(n, ast.ClassDef)):
        for part in ast.walk(made):
            match part:
                case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                    own.add(name)
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                    own.add(name)
                case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                    own.update(ast.literal_eval(value))
                case ast.Assign(targets=[ast.Name(id=name)]):
                    own.add(name)
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.Attribute) and node.attr not in own:
            if ast.unparse(node.value) not in ("self", "cls", "super()"):
                found.append((node.lineno, node.attr))
    return [(line, name) for line, name in found if name.startswith("_") and not name.startswith("__")]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_module_uses_private_names_of_another(module: str) -> None:
    doors = private_doors(MODULES[module].read_text("utf-8"))
    assert [door for door in doors if door[1] not in FOREIGN_DOORS] == []


def test_private_doors_are_found() -> None:
    text = (
        "from .jvp import _components, walk\nfrom . import run\nclass A(B):\n    __slots__ = ('_x',)\n"
        "    def f(self, other: A) -> int:\n        return self._y + other._x + run._STEPS + other._z\n"
    )
    assert private_doors(text) == [(1, "_components"), (6, "_z"), (6, "_STEPS")]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_only_declared_packages_are_imported(module: str) -> None:
    outside = ".interop" in module or ".warp.watch" in module
    showing = ".viz" in module or outside
    wrong = []
    for target in imports_of(module):
        top = target.module.split(".")[0]
        fine = top in sys.stdlib_module_names or top == "workbench" or top in EVERYWHERE or (showing and top in SHOWING)
        on_demand = (top in ON_DEMAND | SHOWING) and (target.in_function or outside)
        if not fine and not (on_demand and not (top in SHOWING and ".kernels" in module)):
            wrong.append(f"{MODULES[module].relative_to(ROOT)}:{target.line} imports {target.module}")
    assert not wrong, "\n".join(wrong)


def test_the_import_reader_sees_what_runs_and_only_that() -> None:
    text = (
        "from . import ir\nfrom .ops import row\nif TYPE_CHECKING:\n    from .. import tape\n"
        "def f():\n    import cupy\n    from ..errors import X\n"
    )
    known = {"workbench.kernels.ir", "workbench.kernels.ops", "workbench.errors", "workbench.tape"}
    assert imports("workbench.kernels.read", text, False, known) == [
        Import("workbench.kernels.ir", 1, False),
        Import("workbench.kernels.ops", 2, False),
        Import("cupy", 6, True),
        Import("workbench.errors", 7, True),
    ]


def test_the_layers_are_ordered_as_designed() -> None:
    order = ["errors", "kernels.types", "kernels.ir", "kernels.ops.row", "kernels.ops", "kernels.passes.adjoint"]
    order += ["kernels.program", "device", "arrays.array", "launches.launch", "tapes.tape", "derivatives.verify"]
    order += ["diagnose.finding", "interop.torch", "viz.data.trace", "viz.picture.svg", "viz.inspect.ledger"]
    order += ["viz.live.view", "viz"]
    heights = [layer(f"workbench.{name}") for name in order] + [layer("workbench")]
    assert heights == sorted(set(heights))
    with pytest.raises(LookupError, match="give it one"):
        layer("workbench.surprise")


def scripts() -> dict[str, str]:
    from workbench.viz.live.view import SCRIPTS

    return {name: (PACKAGE / "viz" / "live" / name).read_text("utf-8") for name in SCRIPTS}


def test_scripts_of_the_live_view_import_from_those_before_them() -> None:
    texts = scripts()
    wrong = []
    for n, (name, text) in enumerate(texts.items()):
        wanted = re.findall(r'^import .* from "\./([^"]*)";$', text, re.MULTILINE)
        wrong += [f"{name} imports {other}" for other in wanted if other not in list(texts)[:n]]
    assert wrong == []
    assert sum(text.count("\nimport ") for text in texts.values()) > 30


def test_scripts_share_one_scope_and_no_name() -> None:
    names: list[str] = []
    for text in scripts().values():
        names += re.findall(r"^(?:export )?(?:async )?function (\w+)", text, re.MULTILINE)
        for line in re.findall(r"^(?:export )?(?:const|let) (.*)$", text, re.MULTILINE):
            names += re.findall(r"(?:^|, )(\w+) = ", line.partition("=>")[0])
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert {"explorer", "HEATS", "signed"} <= set(names)


def test_a_circle_of_imports_is_found() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


# --- operations

# Files where several words that are also names of rows mean something else.
OTHER_WORDS = {
    "arrays/missing_methods.py",  # Python's operator methods, and what other libraries have
    "arrays/host_reads.py",  # the same, of numbers
    "launches/operators.py",  # the same
    "kernels/emit/c_names.py",  # what C has taken
    "kernels/reading/c_snippets.py",  # what C has
    "kernels/reading/c_vocabulary.py",  # the same
}
TESTS = {"startswith", "endswith", "removeprefix", "removesuffix", "split"}


def decisions_by_name(tree: ast.Module) -> list[int]:
    """Lines where something is decided or looked up by the `.name` of a row; printing it is fine."""
    above = {child: node for node in nodes(tree) for child in ast.iter_child_nodes(node)}

    def called(node: ast.AST) -> str:
        """What a node is an argument of."""
        parent = above[node]
        return ast.unparse(parent.func).rsplit(".", 1)[-1] if isinstance(parent, ast.Call) else ""

    def decides(node: ast.Attribute) -> bool:
        parent = above[node]
        if isinstance(parent, ast.FormattedValue):
            return called(above[parent]) == "getattr"
        if isinstance(parent, ast.Attribute):
            return parent.attr in TESTS
        if isinstance(parent, ast.Subscript):
            return parent.slice is node
        collected = ast.Set | ast.Dict | ast.SetComp | ast.ListComp | ast.DictComp | ast.GeneratorExp
        return isinstance(parent, ast.Compare | ast.Assign | ast.NamedExpr | collected) or called(node) in (
            "get",
            "pop",
            "getattr",
            "add",
        )

    names = (n for n in nodes(tree) if isinstance(n, ast.Attribute) and n.attr == "name")
    of_rows = (n for n in names if ast.unparse(n.value).split(".")[-1] == "row")
    return sorted(n.lineno for n in of_rows if decides(n))


def lists_of_rows(tree: ast.Module, rows: set[str]) -> list[int]:
    """Lines with three or more names of rows in one display, or in one string that is split."""
    found = []
    for node in nodes(tree):
        words: list[object] = []
        if isinstance(node, ast.Set | ast.List | ast.Tuple | ast.Dict):
            parts = node.keys if isinstance(node, ast.Dict) else node.elts
            words = [e.value for e in parts if isinstance(e, ast.Constant)]
        elif isinstance(node, ast.Attribute) and node.attr == "split" and isinstance(node.value, ast.Constant):
            words = str(node.value.value).split()
        if sum(w in rows for w in words if isinstance(w, str)) >= 3:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("module", [m for m in sorted(MODULES) if not m.startswith("workbench.kernels.ops")])
def test_facts_about_operations_lie_in_their_rows(module: str) -> None:
    rows = set(importlib.import_module("workbench.kernels.ops").ROWS)
    path = MODULES[module]
    tree = parsed(path.read_text("utf-8"))
    listed = [] if path.relative_to(PACKAGE).as_posix() in OTHER_WORDS else lists_of_rows(tree, rows)
    wrong = [f"{path.relative_to(ROOT)}:{n} asks for the name of a row" for n in decisions_by_name(tree)]
    wrong += [f"{path.relative_to(ROOT)}:{n} lists rows by name" for n in listed]
    assert not wrong, "\n".join([*wrong, "compare rows themselves, or give `Row` a field"])


def test_decisions_by_the_name_of_a_row_are_seen() -> None:
    for text in (
        "s.row.name == 'add'",
        "row.name in known",
        "known.get(s.row.name)",
        "known[row.name]",
        "{s.row.name for s in x}",
        "s.row.name.startswith('atomic_')",
        "getattr(self, f'row_{s.row.name}')",
        "name = s.row.name",
    ):
        assert decisions_by_name(parsed(text)) == [1], text
    assert decisions_by_name(parsed("f'{s.row.name}()'; note(s.row.name); s.row.names == 1; p.name == 'x'")) == []
    rows = {"add", "sub", "mul", "div"}
    for text in ("{'add', 'sub', 'mul'}", "{'add': 1, 'sub': 2, 'x': 3, 'div': 4}", "'add x sub div'.split()"):
        assert lists_of_rows(parsed(text), rows) == [1], text
    assert lists_of_rows(parsed("('add', 'sub'), 'add sub mul'"), rows) == []


# --- files


def test_no_file_is_called_utils() -> None:
    stems = {
        path: path.stem for path in [*SOURCES, *PACKAGE.rglob("*.js"), *(p for p in PACKAGE.rglob("*") if p.is_dir())]
    }
    assert [str(path) for path, stem in stems.items() if stem.strip("_") in BANNED_NAMES] == []


def test_no_file_is_longer_than_700_lines() -> None:
    sources = [p for p in committed_files() if p.suffix in (".py", ".js", ".css", ".c", ".cu")]
    long = {str(p.relative_to(ROOT)): count for p in sources if (count := p.read_text("utf-8").count("\n")) > 700}
    assert sorted(long) == sorted(LONG_FILES), "divide what is longer, or say in LONG_FILES why it is one piece"


def python_functions(path: Path) -> Iterator[tuple[str, int]]:
    """The functions of a file with their numbers of lines, decorators left out."""
    for node in nodes(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def script_functions(path: Path) -> Iterator[tuple[str, int]]:
    """The functions with a name of a script that is indented as usual: from the head to the brace below it."""
    lines = path.read_text("utf-8").splitlines()
    for start, line in enumerate(lines):
        found = re.match(
            r"(\s*)(?:export )?(?:default )?(?:async )?(?:function\*? (\w+)|const (\w+) = .*=> [({]$)", line
        )
        if found and not line.rstrip().endswith("}"):
            ends = (n for n in range(start, len(lines)) if re.match(found[1] + r"[})]", lines[n]))
            yield found[2] or found[3], next(ends) - start + 1


def test_no_function_of_the_package_is_longer_than_60_lines() -> None:
    found = [(p, name, size) for p in SOURCES for name, size in python_functions(p)]
    found += [(p, name, size) for p in sorted(PACKAGE.rglob("*.js")) for name, size in script_functions(p)]
    assert len(found) > 2000 and any(path.suffix == ".js" for path, _, _ in found)
    long = {f"{path.relative_to(ROOT)}: {name}": size for path, name, size in found if size > 60}
    assert long == {}


def test_the_lengths_of_functions_are_seen(tmp_path: Path) -> None:
    python, script = tmp_path / "a.py", tmp_path / "a.js"
    python.write_text("def f():\n    def g(x):\n        return x\n\n    return g\n")
    script.write_text("export function f(a) {\n  const g = (x) => {\n    return x;\n  };\n  return g;\n}\n")
    assert dict(python_functions(python)) == {"f": 5, "g": 2}
    assert dict(script_functions(script)) == {"f": 6, "g": 3}


def test_every_folder_of_the_package_is_a_package() -> None:
    folders = {p.parent for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert sorted(str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists()) == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_module_says_what_it_is_in_at_most_12_lines(module: str) -> None:
    said = ast.get_docstring(tree(MODULES[module]))
    assert said, "a module docstring says what the file is and its one idea"
    assert said.count("\n") < 12


@pytest.mark.parametrize("module", sorted(MODULES))
def test_nothing_is_printed_on_stdout(module: str) -> None:
    calls = [n for n in nodes(tree(MODULES[module])) if isinstance(n, ast.Call)]
    assert [n.lineno for n in calls if ast.unparse(n.func) == "print"] == []


def test_no_committed_text_names_a_path_of_somebody_s_machine() -> None:
    found = []
    for path in committed_files():
        if path.suffix not in TEXT or path.stat().st_size > 3_000_000:
            continue
        lines = path.read_text("utf-8", errors="replace").splitlines()
        found += [f"{path.relative_to(ROOT)}:{n}" for n, line in enumerate(lines, 1) if MACHINE_PATH.search(line)]
    assert found == []


def test_machine_paths_are_recognised() -> None:
    assert MACHINE_PATH.search('File "/' + 'root/x.py"')
    assert MACHINE_PATH.search("cd /" + "home/ada/project")
    assert not MACHINE_PATH.search("https://example.org/work/page and ./tmp/x and notebooks/work/")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_hold_no_errors_and_no_widget_state(path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # A cell tagged `raises-exception` shows an error on purpose: there the message is the lesson.
    plain = [cell for cell in cells if "raises-exception" not in cell["metadata"].get("tags", [])]
    errors = [out for cell in plain for out in cell["outputs"] if out["output_type"] == "error"]
    assert errors == []
    assert "widgets" not in notebook["metadata"], "saved widget state makes notebooks blank offline"


# --- the package


def public_names() -> dict[str, object]:
    """What `from workbench import *` gives, or would give if `__all__` is not written out."""
    package = importlib.import_module("workbench")
    everything = {n: v for n, v in vars(package).items() if not n.startswith("_") and not inspect.ismodule(v)}
    return {name: getattr(package, name) for name in getattr(package, "__all__", everything)}


@has_init
def test_every_public_name_has_a_docstring() -> None:
    constants = (bool, int, float, str, tuple, frozenset)
    values = {n: v for n, v in public_names().items() if not isinstance(v, constants)}
    assert len(values) > 20
    assert [name for name, value in values.items() if not (inspect.getdoc(value) or "").strip()] == []


@has_init
def test_importing_the_package_loads_no_optional_package_and_no_picture() -> None:
    text = "import sys, numpy; known = set(sys.modules); import workbench; print(*(set(sys.modules) - known))"
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.split())
    later = ON_DEMAND | SHOWING | {f"workbench.{room}" for room in ("viz", "derivatives", "diagnose")}
    later |= {"scipy", "asyncio", "email", "html", "pathlib", "subprocess", "tempfile"}  # dear, and not needed yet
    assert "workbench.tapes.tape" in loaded
    assert sorted(loaded & later) == []


def test_no_module_reaches_upwards_by_name() -> None:
    """A module named in a string is imported behind the back of the tests above."""
    doors = {
        "workbench": "its own public names, on first use",
        "workbench.interop": "its own three files, each of which needs another library",
        "workbench.tapes.late_imports": "the one way up: what a tape is asked and rooms above it answer",
    }
    others = {  # modules of other people
        "workbench.derivatives.serialize",
        "workbench.derivatives.sparsity",
        "workbench.device",
        "workbench.kernels.compile.c_compiler",
        "workbench.kernels.compile.disk_cache",
        "workbench.kernels.compile.nvrtc",
        "workbench.tapes.checkpoint",
    }
    found = {
        name for name, path in MODULES.items() if re.search(r"\b_?import_module\b|__import__", path.read_text("utf-8"))
    }
    assert found == doors.keys() | others
    ask = importlib.import_module("workbench.tapes.late_imports")
    assert all(
        callable(getattr(importlib.import_module(f"workbench.{m}"), f))
        for m, f in (where.rsplit(".", 1) for where in ask.ANSWERS.values())
    )


# Modules that fill the lists of `arrays.ports` when they are imported. Nothing else is filled from above: what comes in
# on first use is asked for by `tapes.late_imports`.
PORTS = {
    "workbench.arrays.creation": "`zeros` in a kernel is a local array, and arrays lie above the reader",
    "workbench.arrays.scalar": "a declared scalar stands for its memory",
    "workbench.interop": "recognises foreign arrays at a launch, without importing their libraries",
    "workbench.interop.tensors": "torch's gradients, version counters and streams: entered when torch is in use",
    "workbench.launches.operators": "arithmetic on arrays is a launch, and arrays lie below launches",
    "workbench.sparse.products": "`A @ B` is a function of matrices, and matrices lie below their functions",
}


def filled_from_outside(text: str) -> list[str]:
    """Names from other files of the package that the top level of a module adds to."""
    tree = parsed(text)
    froms = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.level]
    foreign = {alias.asname or alias.name for node in froms for alias in node.names}
    tops = [
        inner
        for n in tree.body
        if not isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)
        for inner in ast.walk(n)
    ]
    adding = {"append", "add", "update", "setdefault", "extend", "insert"}
    changed: list[ast.expr] = []
    for node in tops:
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            changed.append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in adding:
            changed.append(node.func.value)
    return [ast.unparse(n) for n in changed if ast.unparse(n).partition(".")[0] in foreign]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_registry_is_filled_from_above(module: str) -> None:
    filled = filled_from_outside(MODULES[module].read_text("utf-8"))
    assert bool(filled) == (module in PORTS), filled
    ports = vars(importlib.import_module("workbench.arrays.ports"))
    others = {"BsrMatrix", "declare.LOCAL_ZEROS"}
    assert [name for name in filled if name.split(".")[-1] not in ports and name not in others] == []


def test_registries_filled_from_outside_are_found() -> None:
    text = (
        "from .tape import pictures, Tape\nown = []\nown.append(1)\npictures['show'] = own\nTape.f = 1\n"
        "pictures.update()\n"
    )
    assert filled_from_outside(text) == ["pictures", "Tape", "pictures"]


@has_init
def test_dir_offers_the_public_names_and_no_internal_module() -> None:
    package = importlib.import_module("workbench")
    modules = {name for name in dir(package) if inspect.ismodule(getattr(package, name))}
    assert modules == set(
        "autograd diagnose examples fem interop numerics optim pitfalls sparse types verify viz".split()
    )
    assert not [name for name in dir(package) if name.startswith("_")]
    namespace: dict[str, object] = {}
    exec("from workbench import *", namespace)
    assert namespace.keys() - {"__builtins__"} == set(dir(package))


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    files = [p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert sorted({p.relative_to(ROOT).as_posix() for p in files} - inside) == []


def test_the_readme_s_test_command_is_the_one_that_is_run_by_ci() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (command,) = re.findall(r"^python3 .* && \.venv/bin/python -m pytest$", readme, re.MULTILINE)
    assert "pip install" in command


def test_no_two_parts_of_the_reader_define_the_same_method() -> None:
    """The parts of the reader are merged into one class: of two methods with one name only the first would be heard."""
    from workbench.kernels.reading.elementwise import _Mapper as ReaderOfMaps

    parts = ReaderOfMaps.__mro__[:-1]
    defined = Counter(name for part in parts for name in vars(part) if not name.startswith("__"))
    assert [name for name, count in defined.items() if count > 1] == []
