"""The structure of the package in figures: rooms, arrows, circles, names, types, docstrings, and common walks.

    python -m tests.structure            the table, in Markdown
    python -m tests.structure --walks    calls, functions, files and moves between files of five common walks

An arrow is an import of one module of the package by another, once for each pair, in functions too. A circle is a set
of modules of which each reaches every other. Both are counted for the imports that run, and with those under
`TYPE_CHECKING`.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import workbench as wb

PACKAGE = Path(wb.__file__).parent
CORE = ("kernels", "arrays", "launches", "tapes")
QUESTION = re.compile(
    r"(What|Which|Whom?|Whose|Where|When|Why|How|Whether|Is|Are|Was|Were|Does|Do|Did|Has|Have|Had|Can|Could|Should|May"
    r"|Must|Will|Would|If)\b"
)
COMMENT = re.compile(r"#\s*(type: ignore|pyright: ignore|fmt: (?:skip|off))")


@functools.cache
def modules() -> dict[str, ast.Module]:
    """By dotted name the parsed text of every module of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(("workbench", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


@functools.cache
def packages() -> set[str]:
    """The modules that are folders."""
    return {".".join(("workbench", *p.parent.relative_to(PACKAGE).parts)) for p in PACKAGE.rglob("__init__.py")}


def nodes(kind: Any) -> Iterator[tuple[str, Any]]:
    """(module, node) of every node of this kind in the package."""
    return ((name, node) for name, tree in modules().items() for node in ast.walk(tree) if isinstance(node, kind))


def _imports(tree: ast.AST, typing: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif typing or not (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")):
            yield from _imports(child, typing)


def _targets(module: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    parts = module.split(".")
    start = parts[: len(parts) - node.level + (module in packages())] if node.level else []
    base = ".".join([*start, *([node.module] if node.module else [])])
    for alias in node.names:
        whole = f"{base}.{alias.name}"
        yield whole if whole in modules() else base


def arrows(typing: bool) -> dict[str, set[str]]:
    """By module the others that it imports; `typing`: those under TYPE_CHECKING too."""
    return {
        module: {t for node in _imports(tree, typing) for t in _targets(module, node) if t in modules()} - {module}
        for module, tree in modules().items()
    }


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan 1972), the largest first."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == order[name]:
            part = stack[stack.index(name) :]
            del stack[-len(part) :]
            if len(part) > 1:
                found.append(sorted(part))

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return sorted(found, key=len, reverse=True)


def room(module: str) -> str:
    """The part of the package that lies at its root: a folder or a file."""
    return module.split(".")[1] if "." in module else ""


def repeated_class_names() -> dict[str, int]:
    """Names of classes that stand for several things, and how many."""
    return {name: n for name, n in Counter(node.name for _, node in nodes(ast.ClassDef)).items() if n > 1}


def questions() -> list[str]:
    """Docstrings that begin with a question word."""
    documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
    texts = ((module, node, ast.get_docstring(node) or "") for module, node in nodes(documented))
    return [f"{module}:{getattr(node, 'name', '')}" for module, node, text in texts if QUESTION.match(text)]


def parameters_of_any() -> int:
    """The number of parameters whose annotation is `Any` alone."""
    heads = (node.args for _, node in nodes(ast.FunctionDef | ast.AsyncFunctionDef))
    taken = (a for h in heads for a in [*h.posonlyargs, *h.args, *h.kwonlyargs, h.vararg, h.kwarg] if a is not None)
    return sum(isinstance(a.annotation, ast.Name) and a.annotation.id == "Any" for a in taken)


def comments() -> Counter[str]:
    """How often the checker and the formatter are told to look away."""
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        for what in COMMENT.findall(path.read_text("utf-8")):
            found["fmt" if what.startswith("fmt") else "type: ignore"] += 1
    return found


def asking_for_kinds() -> set[str]:
    """Modules that compare the kind of an event with a name, or by identity."""
    found = set()
    for module, node in nodes(ast.Compare):
        sides = [node.left, *node.comparators]
        if any(isinstance(s, ast.Attribute) and s.attr == "kind" and _is_event(s.value) for s in sides):
            found.add(module)
    return found - {"workbench.tapes.kinds"}


def _is_event(node: ast.AST) -> bool:
    return ast.unparse(node).split(".")[-1] in {"event", "e", "last", "before", "past", "later", "inner", "one"}


def changing_state() -> list[str]:
    """Names at the top of modules that change: `global` in a function, or an empty container that is filled later."""
    found = {f"{module}.{name}" for module, node in nodes(ast.Global) for name in node.names}
    for module, tree in modules().items():
        for node in tree.body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if value is not None and isinstance(target, ast.Name) and _is_empty(value):
                found.add(f"{module}.{target.id}")
    return sorted(found)


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.List | ast.Set | ast.Tuple):
        return not value.elts and not isinstance(value, ast.Tuple)
    if isinstance(value, ast.Dict):
        return not value.keys
    called = isinstance(value, ast.Call) and not value.args and ast.unparse(value.func).split(".")[-1].split("[")[0]
    return called in {"dict", "list", "set", "deque", "defaultdict", "WeakSet", "WeakValueDictionary", "Counter"}


def lines(*rooms: str, without: tuple[str, ...] = ()) -> int:
    """Lines of Python in these rooms; without rooms, in the package."""
    paths = (p for p in PACKAGE.rglob("*.py") if not rooms or p.relative_to(PACKAGE).parts[0] in rooms)
    return sum(p.read_text("utf-8").count("\n") for p in paths if not any(w in p.name for w in without))


def figures() -> dict[str, str]:
    """The rows of the table."""
    ran, all_of_them = arrows(typing=False), arrows(typing=True)
    between = {(room(a), room(b)) for a, others in ran.items() for b in others if room(a) != room(b)}
    told, graph = comments(), [circles(ran), circles(all_of_them)]
    readme = PACKAGE.parent / "README.md"
    return {
        "rooms at the root": str(len({room(m) for m in modules()} - {""})),
        "arrows between rooms": str(len(between)),
        "arrows a module": f"{sum(map(len, ran.values())) / len(ran):.1f}",
        "modules in circles, run / for the type checker": " / ".join(str(sum(map(len, c))) for c in graph),
        "class names that stand for several things": str(len(repeated_class_names())),
        "files that ask an event for its kind": str(len(asking_for_kinds())),
        "parameters typed `Any`": str(parameters_of_any()),
        "`type: ignore`": str(told["type: ignore"]),
        "`fmt: skip`": str(told["fmt"]),
        "docstrings that begin with a question word": str(len(questions())),
        "module-level state that changes": str(len(changing_state())),
        "lines of the package": str(lines()),
        "lines of the core (kernels without tiles, arrays, launches, tapes)": str(lines(*CORE, without=("tile",))),
        "words of README": str(len(readme.read_text("utf-8").split())) if readme.exists() else "-",
    }


# ---- walks


@wb.kernel
def _square(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]


def walked(act: Callable[[], Any]) -> tuple[int, int, int, int]:
    """(calls, functions, files, moves between files) of the package's own Python code while `act` runs."""
    calls, functions, files, moves, last = 0, set(), set(), 0, ""

    def note(frame: Any, what: str, _: Any) -> None:
        nonlocal calls, moves, last
        code = frame.f_code
        if what == "call" and code.co_filename.startswith(str(PACKAGE)):
            calls += 1
            functions.add(code)
            files.add(code.co_filename)
            moves += code.co_filename != last
            last = code.co_filename

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls, len(functions), len(files), moves


def walks() -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    """Five walks: a kernel to C, launches under a tape, a backward, a picture, and three reverse passes beside them."""

    def fresh() -> tuple[wb.array, wb.array]:
        return wb.array(np.arange(1, 4, dtype=np.float32), requires_grad=True), wb.zeros(3)

    yield "`@kernel` to C", walked(lambda: str(_square.c))
    wb.launch(_square, 3, [fresh()[0]], [fresh()[1]])  # compiled
    x, y = fresh()
    with wb.Tape() as tape:
        for what in ("first", "second", "later"):
            yield f"{what} launch under a tape", walked(lambda: wb.launch(_square, 3, [x], [y]))
    for what in ("first", "second", "later"):
        yield f"{what} backward", walked(lambda: tape.backward(grads={y: wb.ones(3)}))
    yield "`show()`", walked(lambda: tape.show()._repr_mimebundle_())


def main() -> None:
    """Print the table, or the walks."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--walks", action="store_true")
    if options.parse_args().walks:
        print("| walk | calls | functions | files | moves between files |\n|---|---|---|---|---|")
        for name, counts in walks():
            print(f"| {name} | {' | '.join(map(str, counts))} |")
        return
    print("| point | now |\n|---|---|")
    for name, value in figures().items():
        print(f"| {name} | {value} |")
    for part in circles(arrows(typing=True)):
        print(f"\n{len(part)} in a circle: {', '.join(m.removeprefix('workbench.') for m in part)}")


if __name__ == "__main__":
    main()
