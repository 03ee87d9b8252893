"""One example program, run in a process of its own.

    python -m tests.coverage.program_run WHOSE PATH OUT SETTINGS ARGS...

WHOSE is `warp` (as it is) or `workbench`: then `import warp` and everything below it is the workbench. The text of the
program is read where it is installed, and nothing in it is changed but the sizes in SETTINGS (a JSON dict: the value of
assignments to these names). OUT gets how far it came, all arrays it ended with and the gradients of its first backward.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

MARK, SEEN = "__past_imports__", "__locals_of__"
DEPTH = 6


class Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`import warp.optim` gives `workbench.optim`: the very module, under both names."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] != "warp":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return types.ModuleType(spec.name)

    def exec_module(self, module: Any) -> None:
        ours = module.__name__.replace("warp", "workbench", 1)
        sys.modules[module.__name__] = importlib.import_module(ours)


def program(path: str, settings: dict[str, Any]) -> Any:
    """The code of a program: its settings changed, a mark behind its imports, the locals of its functions kept."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    tree = ast.parse(text, path)
    last = max((k for k, s in enumerate(tree.body) if isinstance(s, ast.Import | ast.ImportFrom)), default=0)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in settings:
            node.value = ast.copy_location(ast.parse(repr(settings[node.targets[0].id]), mode="eval").body, node.value)
        if isinstance(node, ast.Constant) and node.value in ("cuda", "cuda:0") and settings.get("cuda"):
            node.value = settings["cuda"]
    for part in tree.body:
        if isinstance(part, ast.FunctionDef) and not part.decorator_list and not part.name.startswith("_"):
            keep = ast.parse(f"{SEEN}({part.name!r}, locals())").body
            part.body = [ast.Try(part.body, [], [], keep)]
    tree.body.insert(last + 1, ast.parse(f"{MARK}()").body[0])
    return compile(ast.fix_missing_locations(tree), path, "exec")


def values_of(array: Any) -> Any:
    """What an array of Warp, of the workbench, of NumPy or of torch holds."""
    if type(array).__name__ == "Tensor":
        array = array.detach()
    return array if isinstance(array, np.ndarray) else array.numpy()


class Run:
    """A program under way: how far it came, and what can be compared afterwards."""

    def __init__(self, whose: str, path: str):
        self.whose, self.path, self.stage = whose, path, "starts"
        self.locals: dict[str, dict[str, Any]] = {}
        self.grads: dict[int, np.ndarray] = {}
        self.held: list[Any] = []
        self.main = types.ModuleType("__main__")
        self.array: type = type(None)

    def __call__(self, settings: dict[str, Any]) -> str:
        """Run it; what stopped it, "" if nothing did."""
        self.main.__file__ = self.path
        vars(self.main)[MARK] = lambda: setattr(self, "stage", "imports")
        vars(self.main)[SEEN] = lambda name, found: self.locals.update({name: found})
        sys.modules["__main__"] = self.main
        sys.path.insert(0, self.path.rpartition("/")[0])
        linecache.getlines(self.path)
        np.random.seed(0)
        try:
            self.library()
            exec(program(self.path, settings), vars(self.main))
        except SystemExit as end:
            if end.code not in (None, 0):
                return f"SystemExit: {end.code}"
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the reason
            traceback.print_exc()
            return f"{type(error).__name__}: {error}"
        self.stage = "runs"
        return ""

    def library(self) -> None:
        """The library under the name `warp`; its `backward` tells what gradients it left the first time."""
        if self.whose == "workbench":
            wb = importlib.import_module("workbench")
            sys.modules["warp"] = wb
            sys.meta_path.insert(0, Aliases())
        wp = importlib.import_module("warp")
        wp.config.quiet = True
        self.array, plain = wp.array, wp.Tape.backward
        wp.empty, wp.empty_like = wp.zeros, wp.zeros_like  # what nobody wrote is no result

        def backward(tape: Any, *given: Any, **named: Any) -> None:
            plain(tape, *given, **named)
            if not self.grads:
                for array, grad in list(tape.gradients.items()):
                    if isinstance(array, self.array) and grad is not None:
                        self.held.append(array)
                        self.grads[id(array)] = np.array(grad.numpy())

        wp.Tape.backward = backward

    def arrays(self) -> Iterator[tuple[str, Any]]:
        """Every array that the program still holds, by the path of names to it."""
        seen: set[int] = set()
        yield from self.within("", {n: v for n, v in vars(self.main).items() if not n.startswith("_")}, seen, 0)
        for name, found in self.locals.items():
            yield from self.within(name + "()", found, seen, 0)

    def within(self, path: str, thing: Any, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
        if id(thing) in seen or depth > DEPTH:
            return
        seen.add(id(thing))
        self.held.append(thing)
        if isinstance(thing, (self.array, np.ndarray)) or type(thing).__name__ == "Tensor":
            yield path, thing
        elif isinstance(thing, dict):
            for name, value in list(thing.items()):
                yield from self.within(f"{path}.{name}", value, seen, depth + 1)
        elif isinstance(thing, list | tuple):
            for k, value in enumerate(thing[:200]):
                yield from self.within(f"{path}[{k}]", value, seen, depth + 1)
        elif type(thing).__module__ == "__main__" and hasattr(thing, "__dict__"):
            yield from self.within(path, vars(thing), seen, depth)

    def results(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for path, array in self.arrays():
            try:
                found["value " + path] = np.array(values_of(array))
                if id(array) in self.grads:
                    found["grad " + path] = self.grads[id(array)]
            except Exception as error:  # noqa: BLE001  an array of no NumPy form is no result
                print(f"not kept: {path}: {error}", file=sys.stderr)
        return {name: value for name, value in found.items() if value.dtype.kind in "biuf" and value.ndim}


def main() -> None:
    whose, path, out, settings = sys.argv[1:5]
    sys.argv = [path, *sys.argv[5:]]
    run = Run(whose, path)
    stopped = run(json.loads(settings))
    arrays = run.results() if run.stage == "runs" else {}
    arrays["__story__"] = np.array(json.dumps([run.stage, stopped]))
    np.savez(out, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
