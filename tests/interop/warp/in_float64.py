"""A file of Warp programs as the same file in float64, so that their forward passes can be differenced."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

SHARED = "tests.interop.warp.shared"
TYPES = {
    "vec2": "vec2d",
    "vec3": "vec3d",
    "vec4": "vec4d",
    "mat22": "mat22d",
    "mat33": "mat33d",
    "quat": "quatd",
    "transform": "transformd",
    "spatial_vector": "spatial_vectord",
    "float32": "float64",
}


class _Widen(ast.NodeTransformer):
    """Types of 32 bits become those of 64; literals of kernels too, for Warp lets no float64 meet a bare literal."""

    in_kernel = False

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.AST]:
        """What a file takes from `shared` is written out in its place, in float64 as well."""
        if node.module != SHARED:
            return node
        names = {alias.name for alias in node.names}
        made = ast.parse(Path(__file__).with_name("shared.py").read_text("utf-8")).body
        return [self.visit(d) for d in made if isinstance(d, ast.FunctionDef) and d.name in names]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        marks = {ast.unparse(d).partition("(")[0] for d in node.decorator_list}
        was, self.in_kernel = (
            self.in_kernel,
            self.in_kernel or any(m.startswith(("wp.kernel", "wp.func")) for m in marks),
        )
        body = node.body[bool(ast.get_docstring(node)) :] or [ast.Pass()]
        node.body = [self.visit(s) for s in body]
        node.args = self.visit(node.args)
        self.in_kernel = was
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = TYPES.get(node.attr, node.attr)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse("wp.float64", mode="eval").body if node.id == "float" else node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if self.in_kernel and isinstance(node.value, float):
            return ast.parse(f"wp.float64({node.value!r})", mode="eval").body
        return node


def widened(module: ModuleType, folder: Path) -> ModuleType:
    """The module in float64. Its text is written into `folder`: Warp reads kernels from files."""
    assert module.__file__ is not None
    tree = ast.fix_missing_locations(_Widen().visit(ast.parse(Path(module.__file__).read_text("utf-8"))))
    path = folder / f"{module.__name__.rpartition('.')[2]}_in_float64.py"
    path.write_text(ast.unparse(tree), "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
