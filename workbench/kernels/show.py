"""IR as text, and program texts as a notebook shows them.

One idea: `_Printer.lines` is the only walk that prints; the whole text and the listing beside the user's source are
made from it. Names are the user's, made unique by numbering; constants without a name stand where they are used.
`Listing` is a plain string that prints itself, in a terminal as it is, in a notebook coloured. All HTML is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..errors import Where
from . import ir
from .ops import Row, control, memory, parts, scalar, vectors
from .ops.memory import ATOMICS
from .types import Composite, Scalar, bool_, float32, int32


class _ShownLine(NamedTuple):
    depth: int
    text: str
    stmt: ir.Stmt
    head: bool  # the statement itself, as against `else`, `yield` and the like


class _Printer:
    """Names for values, and the texts of statements."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.taken: set[str] = set()
        self.unnamed = 0
        self.read: set[ir.Value] | None = None  # what somebody reads; None: not known

    # --- names

    def name(self, value: ir.Value) -> str:
        if id(value) not in self.names:
            self.names[id(value)] = self._fresh(value)
        return self.names[id(value)]

    def _fresh(self, value: ir.Value) -> str:
        name, base, number = value.name, value.name or "v", 0
        while not name or name in self.taken:
            if value.name:
                number += 1
                name = f"{base}.{number}"
            else:
                name, self.unnamed = f"{base}{self.unnamed}", self.unnamed + 1
        self.taken.add(name)
        return name

    def use(self, value: ir.Value) -> str:
        if _is_inline(value.stmt):
            return _constant(value.stmt)  # type: ignore[arg-type]
        return self.name(value)

    def uses(self, values: Sequence[ir.Value]) -> str:
        return ", ".join(self.use(v) for v in values)

    def declare(self, values: Sequence[ir.Value]) -> str:
        return ", ".join(f"{self.name(v)}: {v.type}" for v in values)

    # --- statements

    def head(self, stmt: ir.Stmt) -> str:
        """The statement without its regions."""
        if stmt.row in ATOMICS and stmt.row.sign and not self.needs(stmt):
            return self.update(stmt)
        if stmt.regions:
            self.declare(stmt.outs)  # numbered before what is inside
        result = self.expression(stmt)
        return f"{self.declare(stmt.outs)} = {result}" if stmt.outs else result

    def needs(self, stmt: ir.Stmt) -> bool:
        return self.read is None or any(o in self.read for o in stmt.outs)

    def update(self, stmt: ir.Stmt) -> str:
        return f"{self.cell(stmt.args[:-1])} {stmt.row.sign} {self.use(stmt.args[-1])}"

    def cell(self, args: Sequence[ir.Value]) -> str:
        return f"{self.use(args[0])}[{self.uses(args[1:])}]"

    def expression(self, stmt: ir.Stmt) -> str:
        if stmt.regions:
            return self.control(stmt)
        written = _WRITTEN.get(stmt.row)
        if written is not None:
            return written(self, stmt)
        row, args = stmt.row.shown or stmt.row, stmt.args
        if row.sign and row not in ATOMICS:
            return row.sign + self.use(args[0]) if len(args) == 1 else f" {row.sign} ".join(map(self.use, args))
        shown = [] if stmt.attr is None or row is control.STACK else [str(stmt.attr)]
        return f"{row.name}({', '.join([*map(self.use, args), *shown])})"

    def axis(self, stmt: ir.Stmt) -> str:
        return f"{stmt.row.name}({getattr(stmt.attr, 'axis', stmt.attr)})"

    def made(self, stmt: ir.Stmt) -> str:
        return f"{stmt.outs[0].type}({self.uses(stmt.args)})"

    def insert_at(self, stmt: ir.Stmt) -> str:
        args = stmt.args
        return f"{self.use(args[0])} with [{self.uses(args[1:-1])}] = {self.use(args[-1])}"

    def claim(self, stmt: ir.Stmt) -> str:
        said = "note unless" if isinstance(stmt.attr, control.Convention) else "assert"
        return f"{said} {self.use(stmt.args[0])}, {stmt.attr.text!r}"

    def control(self, stmt: ir.Stmt) -> str:
        if stmt.row is control.IF:
            return f"if {self.uses(stmt.args)}:"
        if stmt.row is control.FOR:
            var, *carried = stmt.regions[0].params
            pairs = zip(carried, stmt.args[3:], strict=False)
            inits = ", ".join(f"{self.name(p)}={self.use(a)}" for p, a in pairs)
            tail = f" carrying ({inits})" if inits else ""
            return f"for {self.name(var)} in range({self.uses(stmt.args[:3])}){tail}:"
        if stmt.row is control.EACH:
            rank = len(stmt.attr.shape)
            axes, elements = stmt.regions[0].params[:rank], stmt.regions[0].params[rank:]
            pairs = [f"{self.name(p)} of {self.use(a)}" for p, a in zip(elements, stmt.args, strict=True)]
            parts = [f"({', '.join(map(self.name, axes))}) of {stmt.attr.shape}", *pairs]
            return f"for each {', '.join(parts)}:"
        if stmt.row is control.WHILE:
            return f"while carrying ({self.uses(stmt.args)}):" if stmt.args else "while:"
        return f"{stmt.row.name} {getattr(stmt.attr, 'name', '')}({self.uses(stmt.args)}):"

    # --- regions

    def lines(self, region: ir.Region, depth: int) -> Iterator[_ShownLine]:
        for stmt in region.body:
            if _is_inline(stmt):
                continue
            yield _ShownLine(depth, self.head(stmt), stmt, True)
            for label, inner in _labels(self, stmt):
                if label:
                    yield _ShownLine(depth + (stmt.row is control.WHILE), label, stmt, False)
                deeper = depth + 1 + (stmt.row is control.WHILE)
                body = list(self.lines(inner, deeper))
                yield from body
                end = self.end(stmt, inner)
                if end or not body:
                    yield _ShownLine(deeper, end or "pass", stmt, False)

    def end(self, stmt: ir.Stmt, region: ir.Region) -> str:
        results = list(region.results)
        stop = ""
        if getattr(stmt.attr, "breaks", False) and region is stmt.regions[-1] and results:
            stop = f"stop unless {self.use(results.pop(0))}"
        parts = [f"yield {self.uses(results)}" if results else "", stop]
        return "; ".join(filter(None, parts))


_WRITTEN: dict[Row, Callable[[_Printer, ir.Stmt], str]] = {
    control.CONST: lambda printer, stmt: _constant(stmt),
    control.TID: _Printer.axis,
    control.DIM: _Printer.axis,
    memory.LOAD: lambda printer, stmt: printer.cell(stmt.args),
    memory.SHAPE: lambda printer, stmt: f"{printer.use(stmt.args[0])}.shape[{stmt.attr}]",
    vectors.EXTRACT_AT: lambda printer, stmt: printer.cell(stmt.args),
    vectors.INSERT_AT: _Printer.insert_at,
    parts.PART: lambda printer, stmt: f"{printer.use(stmt.args[0])}[{_stretch(stmt.attr[0], stmt.outs[0])}]",
    parts.JOIN: _Printer.made,
    parts.PLACE: lambda printer, stmt: (
        f"{stmt.outs[0].type}() with [{_stretch(stmt.attr[0], stmt.args[0])}] = {printer.use(stmt.args[0])}"
    ),
    vectors.EXTRACT: lambda printer, stmt: f"{printer.use(stmt.args[0])}{_brackets(stmt.attr)}",
    vectors.INSERT: lambda printer, stmt: (
        f"{printer.use(stmt.args[0])} with {_brackets(stmt.attr)} = {printer.use(stmt.args[1])}"
    ),
    vectors.CONSTRUCT: _Printer.made,
    scalar.CAST: _Printer.made,
    memory.STORE: _Printer.update,
    memory.ACCUMULATE: _Printer.update,
    memory.LOG_STORE: _Printer.update,
    control.PRINTF: lambda printer, stmt: f"printf({', '.join([repr(stmt.attr[0]), *map(printer.use, stmt.args)])})",
    control.ASSERT: _Printer.claim,
}


def _labels(printer: _Printer, stmt: ir.Stmt) -> Iterator[tuple[str, ir.Region]]:
    """Each region of a statement with the line above it; an empty else is left out."""
    for k, region in enumerate(stmt.regions):
        label = ""
        if stmt.row is control.IF and k == 1:
            if not region.body and not region.results:
                continue
            label = "else:"
        if stmt.row is control.WHILE:
            params = ", ".join(map(printer.name, region.params))
            label = f"{('test', 'body')[k]} ({params}):"
        yield label, region


def _is_inline(stmt: ir.Stmt | None) -> bool:
    return stmt is not None and stmt.row is control.CONST and not any(o.name for o in stmt.outs)


def _constant(stmt: ir.Stmt) -> str:
    type = stmt.outs[0].type
    parts = stmt.attr if isinstance(stmt.attr, tuple) else (stmt.attr,)
    scalar = type.scalar if isinstance(type, (Scalar, Composite)) else None
    number = {"f": float, "b": bool}.get(scalar.kind if scalar else "", int)
    try:
        text = ", ".join(repr(number(p)) for p in parts)
    except (TypeError, ValueError):
        text = repr(stmt.attr)
    return text if type in (float32, int32, bool_) else f"{type}({text})"


def _stretch(start: int, value: ir.Value) -> str:
    return f"{start}:{start + ir.numeric(value).size}"


def _brackets(attr: object) -> str:
    return f"[{', '.join(map(str, attr))}]" if isinstance(attr, tuple) else f"[{attr}]"


def line(stmt: ir.Stmt) -> str:
    """One statement by itself, without its regions."""
    return _Printer().head(stmt)


def _printer(function: ir.Function) -> _Printer:
    printer = _Printer()
    printer.read = ir.used(function.body)
    return printer


def _origin(stmt: ir.Stmt) -> Where | None:
    return stmt.of.where if stmt.of is not None and stmt.of.where is not None else stmt.where


def text(function: ir.Function) -> str:
    """The whole kernel; above the statements of each user line that line as a comment."""
    printer = _printer(function)
    out = [f"kernel {function.name}({printer.declare(function.params)}):"]
    last: Where | None = None
    for item in printer.lines(function.body, 1):
        where, indent = _origin(item.stmt), "    " * item.depth
        if item.head and where is not None and (last is None or (where.file, where.line) != (last.file, last.line)):
            out.append(f"{indent}# {where.line}: {where.text.strip()}".rstrip())
            last = where
        out.append(indent + item.text)
    return "\n".join(out if len(out) > 1 else [*out, "    pass"]) + "\n"


# --- beside the user's source


class SourceLine(NamedTuple):
    """One user line and the statements that stem from it."""

    number: int
    source: str
    primal: list[str]
    adjoint: list[str]
    replayed: list[str]


class SideBySide(list[SourceLine]):
    """The rows of `beside`; prints itself as columns, in a notebook as a table. `notes` are sentences below it."""

    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return text_beside(self) + "".join(f"{note}\n" for note in self.notes)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        import html

        style = f"margin:6px 12px;padding-left:1em;{_FONT}"
        items = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return html_beside(self) + (f'<ul style="{style}">{items}</ul>' if items else "")


def beside(
    primal: ir.Function, adjoint: ir.Function | None = None, source_lines: Sequence[str] | None = None
) -> SideBySide:
    """For every line of the user's source its statements in the kernel and in its adjoint, in program order.

    `source_lines` begin at `primal.first_line`; without them the function's own source is taken.
    A statement of an inlined function belongs to the line that calls it.
    Statements that stem from no line (none are expected) are on no row.
    """
    first = primal.first_line
    lines = primal.source.splitlines() if source_lines is None else source_lines
    rows = SideBySide(SourceLine(first + k, s.rstrip("\n"), [], [], []) for k, s in enumerate(lines))
    items = [(item, True) for item in _heads(primal)]
    items += [(item, False) for item in (_heads(adjoint) if adjoint is not None else ())]
    for item, is_primal in items:
        number = _own_line(_origin(item.stmt), primal, first, len(rows))
        if number is not None:
            row = rows[number - first]
            column = row.primal if is_primal else row.adjoint if item.stmt.role == "adjoint" else row.replayed
            column.append(item.text)
    return rows


def _heads(function: ir.Function) -> list[_ShownLine]:
    printer = _printer(function)
    printer.declare(function.params)
    return [item for item in printer.lines(function.body, 0) if item.head]


def _own_line(where: Where | None, function: ir.Function, first: int, count: int) -> int | None:
    while where is not None:
        if (not function.file or where.file == function.file) and first <= where.line < first + count:
            return where.line
        where = where.caller
    return None


_TITLES = ("line", "source", "primal", "adjoint (~ replayed)")


def text_beside(rows: Sequence[SourceLine]) -> str:
    """Columns for a terminal: line and source, primal, adjoint with what it replays first (marked `~`)."""
    table = [("source", "primal", "adjoint (~ replayed)")]
    for row in rows:
        right = [f"~ {t}" for t in row.replayed] + row.adjoint
        for k in range(max(1, len(row.primal), len(right))):
            left = f"{row.number:4d}  {row.source}" if k == 0 else ""
            table.append((left, "".join(row.primal[k : k + 1]), "".join(right[k : k + 1])))
    widths = [max(len(cells[k]) for cells in table) for k in range(2)]
    table.insert(1, ("-" * widths[0], "-" * widths[1], "-" * len(table[0][2])))
    return "\n".join(" | ".join([c[0].ljust(widths[0]), c[1].ljust(widths[1]), c[2]]).rstrip() for c in table) + "\n"


def html_beside(rows: Sequence[SourceLine]) -> str:
    """The same as an HTML table that follows the notebook's theme; what is replayed stands back."""
    cell = "padding:3px 12px;text-align:left;vertical-align:top;white-space:pre;border-top:1px solid " + _BORDER
    head = "".join(f'<th scope="col" style="{cell};border-top:none">{title}</th>' for title in _TITLES)
    body = []
    for row in rows:
        numbered = f'<th scope="row" style="{cell};font-weight:normal;opacity:.6">{row.number}</th>'
        replayed = "".join(f'<span style="opacity:.8">~ {colour(text, "ir")}</span>\n' for text in row.replayed)
        texts = [colour(row.source, "python"), colour("\n".join(row.primal), "ir")]
        texts.append((replayed + colour("\n".join(row.adjoint), "ir")).removesuffix("\n"))
        # Source lines wrap, else one long `def` pushes the rest out of sight.
        wrap = ";white-space:pre-wrap;min-width:24em;padding-left:60px;text-indent:-48px"
        cells = "".join(f'<td style="{cell}{"" if k else wrap}">{text}</td>' for k, text in enumerate(texts))
        body.append(f'<tr style="background:none">{numbered}{cells}</tr>')
    return (
        f'<div style="overflow-x:auto" tabindex="0"><table style="border-collapse:collapse;margin:0;{_FONT}">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


# --- listings

_BORDER = "var(--jp-border-color2, #8886)"
# A notebook that is not trusted loses every declaration with a variable in it: a plain one stands before each.
_FONT = (
    "font-family:monospace;font-family:var(--jp-code-font-family, ui-monospace, monospace);"
    "font-size:var(--jp-code-font-size, 13px);line-height:1.4;color:var(--jp-content-font-color1, inherit)"
)
# The plain colours are readable on white and on black.
_COLOURS = {
    kind: f"{plain};color:var(--jp-mirror-editor-{name}-color, {plain})"
    for kind, name, plain in (
        ("comment", "comment", "#6f8f8f"),
        ("string", "string", "#c05050"),
        ("number", "number", "#3f9f5f"),
        ("keyword", "keyword", "#2f9e44"),
        ("type", "variable-2", "#3f7fdf"),
    )
}
_KEYWORDS = {
    "python": "and as assert break class continue def elif else False for from if import in is lambda None not or pass "
    "return True while with yield",
    "ir": "and body carrying else False for if in kernel not or pass range stop test True unless while with yield",
    "c": "auto break case const continue default do else enum extern for goto if inline restrict return sizeof static "
    "struct switch typedef union volatile while __device__ __global__ __restrict__ __shared__",
}
_COMMENTS = {"python": r"#[^\n]*", "ir": r"(?<!\S)#[^\n]*", "c": r"//[^\n]*|/\*[\s\S]*?\*/|^[ \t]*#[^\n]*"}
_TYPES = (
    r"\b(?:u?int(?:8|16|32|64)?(?:_t)?|float(?:16|32|64)?|double|_Float16|bool|void|char|size_t|array\dd|array"
    r"|(?:vec[234]|mat(?:22|33|44)|quat|transform|spatial_(?:vector|matrix))(?:ui|ul|us|ub|[fdhilsb])?|vector|matrix)\b"
)


def _tokens(language: str) -> re.Pattern[str]:
    words = "|".join(_KEYWORDS[language].split())
    return re.compile(
        rf"(?P<comment>{_COMMENTS[language]})"
        r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
        rf"|(?P<keyword>\b(?:{words})\b)|(?P<type>{_TYPES})"
        r"|(?P<number>(?<![\w.])(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[uUlLfF]*)",
        re.MULTILINE,
    )


def colour(code: str, language: str) -> str:
    """Program text as HTML: every character escaped, tokens in spans. Languages: python, ir, c."""
    import html

    parts, last = [], 0
    for match in _tokens(language).finditer(code):
        parts.append(html.escape(code[last : match.start()]))
        parts.append(f'<span style="color:{_COLOURS[match.lastgroup or ""]}">{html.escape(match.group())}</span>')
        last = match.end()
    return "".join(parts) + html.escape(code[last:])


class Listing(str):
    """A program text: a string whose repr is itself, coloured in a notebook.

    `language` is python, ir or c; where it is not given the first word tells.
    """

    language: str

    def __new__(cls, text: str, language: str = "") -> Listing:
        made = super().__new__(cls, text)
        first = re.match(r"\s*(kernel\b|def\b|@)", text)
        made.language = language or ("c" if first is None else "ir" if first.group(1) == "kernel" else "python")
        return made

    def __repr__(self) -> str:
        return str(self)

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.language

    def _repr_html_(self) -> str:
        parts, last = [], 0
        for match in re.finditer(_PREAMBLE, self) if self.language == "c" else ():
            parts += [_block(self[last : match.start()], "c"), _folded(match.group())]
            last = match.end()
        return "".join([*parts, _block(self[last:], self.language)])


# The same types and small functions stand above every C text, down to the struct of the kernel's own arguments.
_ARGUMENTS = r"struct \{\n    int64_t dim\["
_PREAMBLE = rf"(?m)\n*^typedef (?!{_ARGUMENTS})[\s\S]*?(?=^typedef {_ARGUMENTS})"


def _block(text: str, language: str) -> str:
    if not text.strip():
        return ""
    style = f"{_FONT};margin:0;padding:6px 10px;overflow-x:auto;white-space:pre;border-left:3px solid {_BORDER}"
    return f'<pre style="{style}">{colour(text, language)}</pre>'


def _folded(text: str) -> str:
    title = f"{text.strip().count(chr(10)) + 1} lines that every kernel shares: types, constants, small functions"
    summary = f'<summary style="{_FONT};padding:2px 10px;opacity:.7;cursor:pointer">{title}</summary>'
    return f"<details>{summary}{_block(text, 'c')}</details>"
