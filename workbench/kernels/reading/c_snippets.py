"""C text of a `func_native` becomes the text of a func: a small part of C++, from the tree that tree-sitter makes.

Statements: declarations, assignments, `if`, `for`, `while`, `break`, `continue`, `return`. Expressions: numbers,
operators, casts, elements, components, C's functions of numbers and Warp's builtins, atomics, pointers to elements.
What is not among them is refused, so that nothing has another meaning than in C. Of `#if` the processor's side is read.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from ...errors import KernelError, Where
from .c_vocabulary import ADDRESSES, BARRIER, CONSTANTS, FIRST_BIT, FUNCTIONS, OPERATORS, SAME_BITS, TYPES, type_name

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_READ = frozenset(  # the kinds of nodes that have a method of their name
    "binary_expression break_statement call_expression cast_expression compound_statement conditional_expression "
    "continue_statement declaration expression_statement false field_expression for_statement identifier if_statement "
    "number_literal parenthesized_expression pointer_expression qualified_identifier "
    "return_statement subscript_expression true unary_expression while_statement".split()
)


@dataclass
class Snippet:
    """Reads one snippet. `adjoint`: names of parameters whose `adj_` names are gradients; `ret`: has it a result."""

    text: str
    where: Where
    params: tuple[str, ...]
    adjoint: bool = False
    types: dict[str, str] = field(default_factory=dict)  # of the variables that have a number's type
    shapes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of the parameters with several axes, as text
    converts: bool = False  # `return` converts to the declared type
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    names: dict[str, str] = field(default_factory=dict)  # in Python; of a pointer its element, behind a `*`
    taken: set[str] = field(default_factory=set)
    steps: list[list[str]] = field(default_factory=list)  # of the loops around: what `continue` does first

    def translated(self) -> tuple[list[str], bool]:
        """The lines of a func's body, True if it says something else for CUDA. Raises KernelError [native-snippet]."""
        self.names = {p: p for p in self.params}
        self.taken = {*self.params, "wp", "own"}
        self.read(self.tree(self.processor_side()))
        return self.lines or ["    pass"], re.search(r"^\s*#\s*if", self.text, re.MULTILINE) is not None

    def processor_side(self) -> str:
        """The text as a processor sees it, with empty lines for those of the preprocessor."""
        kept, states = [], []
        for k, line in enumerate(self.text.split("\n")):
            directive = re.match(r"\s*#\s*(\w+)(.*)", line)
            word, rest = directive.groups() if directive else ("", "")
            if word in ("if", "ifdef", "ifndef") and re.search("__CUDA_ARCH__|__CUDACC__", rest):
                states.append("!" in rest or word == "ifndef")
            elif word == "else" and states:
                states[-1] = not states[-1]
            elif word == "endif" and states:
                states.pop()
            elif word and word != "pragma":
                raise self.error(f"`{line.strip()}`", k + 1)
            kept.append("" if word or not all(states) else line)
        return "\n".join(kept)

    def tree(self, text: str) -> list[Node]:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: " " + "\n" * m[0].count("\n"), text, flags=re.DOTALL)
        text = re.sub(r"\b(static|reinterpret)_cast\s*<([^<>]*)>\s*\(", plain_cast, text)
        # The parser knows no names: `a < b, c > d` is a template to it, but not `a <= b, c > d`, so `<` goes as `<=`
        # and a comment; and `(a) - f(b)` is a cast, but not `((a)) - f(b)`.
        text = re.sub(r"(?<!<)<(?![<=])", "<=/**/", text)
        text = re.sub(r"\(\s*(\w+)\s*\)(?=\s*[-+*&])", lambda m: m[0] if type_name(m[1]) else f"({m[0]})", text)
        root = parser().parse(f"void f() {{\n{text}\n}}".encode()).root_node
        odd = next((n for n in below(root) if n.is_error or n.is_missing), None)
        if odd:
            raise self.error(f"what lacks `{odd.type}`", odd) if odd.is_missing else self.refused(odd)
        if len(parts(root)) != 1:
            raise self.refused(parts(root)[1])
        return parts(part(parts(root)[0], "body"))

    def error(self, what: str, at: Node | int) -> KernelError:
        rows = self.text.split("\n")
        line = at if isinstance(at, int) else at.start_point[0]  # the tree has one line before them
        shown = rows[line - 1].strip() if 0 < line <= len(rows) else ""
        text = f"{what} cannot be read in the snippet of `{self.where.function}`"
        why = f"Its line {line} is: {shown}. " * bool(shown) + "What is read of C is what one thread does."
        instead = "the same in Python, in a func"
        return KernelError(text, slug="native-snippet", where=self.where, why=why, instead=instead)

    def refused(self, node: Node) -> KernelError:
        return self.error(f"`{next(text_of(n) for n in below(node) if not n.child_count)}`", node)

    def write(self, line: str) -> None:
        self.lines.append("    " * (self.depth + 1) + line)

    # ---- statements

    def read(self, nodes: list[Node]) -> None:
        for node in nodes:
            if node.type.endswith(("statement", "declaration")):
                self.method(node)
            else:
                self.simple(node)

    def method(self, node: Node) -> str:
        if node.type not in _READ:
            raise self.refused(node)
        return getattr(self, node.type)(node)

    def block(self, node: Node) -> None:
        """A statement or several in braces, one level deeper; names declared there end there."""
        self.depth += 1
        known, count = dict(self.names), len(self.lines)
        self.read(parts(node) if node.type == "compound_statement" else [node])
        if len(self.lines) == count:
            self.write("pass")
        self.names = known
        self.depth -= 1

    def compound_statement(self, node: Node) -> None:
        self.write("if True:")
        self.block(node)

    def break_statement(self, node: Node) -> None:
        self.write("break")

    def continue_statement(self, node: Node) -> None:
        for step in self.steps[-1]:
            self.write(step)
        self.write("continue")

    def if_statement(self, node: Node) -> None:
        self.write(f"if {self.value(part(node, 'condition'), 'value')}:")
        self.block(part(node, "consequence"))
        if otherwise := node.child_by_field_name("alternative"):
            self.write("else:")
            self.block(parts(otherwise)[0])

    def while_statement(self, node: Node) -> None:
        self.write(f"while {self.value(part(node, 'condition'), 'value')}:")
        self.steps.append([])
        self.block(part(node, "body"))
        self.steps.pop()

    def return_statement(self, node: Node) -> None:
        value = self.listed(node)
        self.write(f"return own({value})" if self.converts and value else f"return {value}".rstrip())

    def for_statement(self, node: Node) -> None:
        """A loop over a range where it is one, which its bounds and its body show; else a `while`."""
        known, first = dict(self.names), len(self.lines)
        start, step, body = (node.child_by_field_name(f) for f in ("initializer", "update", "body"))
        self.read([start] if start else [])
        made = [line.strip() for line in self.lines[first:]]
        test = self.value(node, "condition") if node.child_by_field_name("condition") else "True"
        at = len(self.lines)
        self.read([step] if step else [])
        moves = [line.strip() for line in self.lines[at:]]
        del self.lines[at:]
        over = start and start.type == "declaration" and body and ranged(made, test, moves, self.changed(body))
        if over:
            del self.lines[first:]
        self.write(over or f"while {test}:")
        self.steps.append([] if over else moves)
        self.block(part(node, "body"))
        self.lines += ["    " * (self.depth + 2) + line for line in self.steps.pop()]
        self.names = known

    def changed(self, body: Node) -> set[str]:
        """The variables that a body assigns to, as they are named before it."""
        fields = {"assignment_expression": "left", "update_expression": "argument"}
        targets = [re.match(r"\w+", text_of(part(n, fields[n.type]))) for n in below(body) if n.type in fields]
        return {self.names.get(t[0], t[0]) for t in targets if t}

    def declaration(self, node: Node) -> None:
        type = type_name(text_of(part(node, "type")))
        if type is None or any(n.text in (b"static", b"extern") for n in node.children):
            raise self.refused(node)
        for declared in node.children_by_field_name("declarator"):
            if declared.type == "init_declarator":
                self.declared(type, part(declared, "declarator"), part(declared, "value"))
            else:
                self.declared(type, declared, None)

    def declared(self, type: str, node: Node, value: Node | None) -> None:
        if node.type in ("pointer_declarator", "reference_declarator") and value:
            return self.point(text_of(parts(node)[-1]), value, node.type == "pointer_declarator")
        if node.type == "array_declarator":
            return self.local_array(type, node, value)
        if node.type == "function_declarator":  # `vec3 v(x, y)`, which could declare a function
            value = part(parts(self.tree(f"return f{text_of(part(node, 'parameters'))};")[0])[0], "arguments")
            node = part(node, "declarator")
        if node.type != "identifier":
            raise self.refused(node)
        if value is None or value.type in ("argument_list", "initializer_list"):
            made = f"wp.{type}({self.listed(value) if value else ''})"
        else:
            made = self.expression(value)
            made = f"wp.{type}({made})" if type in TYPES.values() else made
        own = self.new(text_of(node))
        self.types[own] = type if type in TYPES.values() else "" if type else "auto"
        self.write(f"{own} = {made}")

    def local_array(self, type: str, node: Node, value: Node | None) -> None:
        name = part(node, "declarator")
        if name.type != "identifier" or node.child_by_field_name("size") is None:
            raise self.refused(node)
        size = self.value(node, "size")
        own = self.new(text_of(name))
        self.write(f"{own} = zeros(shape={size}, dtype=wp.{type})")
        for k, n in enumerate(parts(value) if value else ()):
            self.write(f"{own}[{k}] = wp.{type}({self.expression(n)})")

    def point(self, name: str, value: Node, is_pointer: bool) -> None:
        """A pointer or reference to an element: a name for it, at the index that was."""
        place = self.place(value) if is_pointer else self.expression(value)
        found = re.match(r"(\w+)\[(.*)\]$", place)
        if not found:
            raise self.error(f"the pointer `{name}`", value)
        kept = self.new(f"{name}_at")
        self.write(f"{kept} = {found[2]}")
        self.names[name] = f"{'*' * is_pointer}{found[1]}[{kept}]"

    def new(self, name: str) -> str:
        """The name in Python of a variable that is declared here."""
        own, k = name + "_" * (keyword.iskeyword(name) or name in ("wp", "own", "zeros")), 2
        while own in self.taken:
            own, k = f"{name}_{k}", k + 1
        self.taken.add(own)
        self.names[name] = own
        return own

    def expression_statement(self, node: Node) -> None:
        self.read(parts(node))

    def simple(self, node: Node) -> None:
        """An assignment or a call."""
        if node.type in ("assignment_expression", "update_expression"):
            target = self.value(node, "left" if node.type[0] == "a" else "argument")
            if target.startswith("wp.cast("):
                raise self.error("an assignment to the bits of another type", node)
            sign = sign_of(node)
            step = f"{target} {sign[0]}= 1" if sign in ("++", "--") else ""
            self.write(step or self.assigned(target, sign, self.value(node, "right")))
        elif text_of(node) != f"{BARRIER}()":  # nobody to wait for: a block is one thread of the program
            self.write(self.expression(node))

    def assigned(self, target: str, sign: str, value: str) -> str:
        """An assignment; a variable keeps the type that it was declared with."""
        type = self.types.get(target, "")
        if target.startswith("wp.adjoint[") and sign == "=":  # a gradient is added to: what was there is taken away
            kept = self.new("before")
            self.write(f"{kept} = {value}")
            self.write(f"{target} -= {target}")
            return f"{target} += {kept}"
        if sign == "%=":
            sign, value = "=", f"wp.mod({target}, {value})"
        elif type and sign != "=":
            sign, value = "=", f"({target} {sign[:-1]} {value})"
        if type and sign == "=":
            value = f"type({target})({value})" if type == "auto" else f"wp.{type}({value})"
        return f"{target} {sign} {value}"

    # ---- expressions

    def expression(self, node: Node) -> str:
        if node.type in ("assignment_expression", "update_expression"):
            raise self.error(f"`{sign_of(node)}` inside of an expression, `{text_of(node)}`,", node)
        return self.method(node)

    def value(self, node: Node, name: str) -> str:
        return self.expression(part(node, name))

    def listed(self, node: Node) -> str:
        return ", ".join(map(self.expression, parts(node)))

    def parenthesized_expression(self, node: Node) -> str:
        return f"({self.listed(node)})"

    def unary_expression(self, node: Node) -> str:
        return f"({sign_of(node).replace('!', 'not ')}{self.value(node, 'argument')})"

    def binary_expression(self, node: Node) -> str:
        left, sign, right = self.value(node, "left"), sign_of(node), self.value(node, "right")
        sign = "<" if any(n.type == "comment" for n in node.children) else sign
        if sign not in OPERATORS:
            raise self.error(f"`{sign}`", node)
        return f"wp.mod({left}, {right})" if sign == "%" else f"({left} {OPERATORS[sign]} {right})"

    def conditional_expression(self, node: Node) -> str:
        test, yes, no = (self.value(node, f) for f in ("condition", "consequence", "alternative"))
        return f"({yes} if {test} else {no})"

    def number_literal(self, node: Node) -> str:
        try:
            return number(text_of(node))
        except ValueError:
            raise self.refused(node) from None

    def identifier(self, node: Node) -> str:
        word = text_of(node)
        found = self.names.get(word) or CONSTANTS.get(word, "")
        if not found and self.adjoint and word.startswith("adj_") and word[4:] in self.params:
            return f"wp.adjoint[{word[4:]}]"
        if not found or found[0] == "*":
            raise self.error(f"the address `{word}`, not followed by `*`," if found else f"`{word}`", node)
        return found

    false = true = qualified_identifier = identifier

    def field_expression(self, node: Node) -> str:
        name = text_of(part(node, "field"))
        if name == "data":
            raise self.error(f"the address `{text_of(node)}`, not followed by `[`,", node)
        return self.value(node, "argument") + f".{name}" * (name != "c")

    def memory(self, node: Node) -> str:
        """The array or tile whose memory stands here: `a.data`, of a tile `t.data.ptr`; empty if none does."""
        name = text_of(part(node, "field")) if node.type == "field_expression" else ""
        if name == "ptr":
            return self.memory(part(node, "argument"))
        return self.value(node, "argument") if name == "data" else ""

    def subscript_expression(self, node: Node) -> str:
        owner, indices = part(node, "argument"), part(node, "indices")
        array = self.memory(owner)
        if array and len(parts(indices)) == 1:
            return self.flat(array, self.listed(indices))
        return f"{array or self.expression(owner)}[{self.listed(indices)}]"

    def flat(self, array: str, k: str) -> str:
        """The k-th element of an array or tile, counted row by row."""
        shape, indices = self.shapes.get(array, ()), []
        for axis, size in enumerate(shape):
            inner = " * ".join(shape[axis + 1 :])
            index = f"({k}) // type({k})({inner})" if inner else f"({k})"
            indices.append(f"{index} % type({k})({size})" if axis else index)
        return f"{array}[{', '.join(indices) or k}]"

    # ---- addresses and bits

    def place(self, node: Node) -> str:
        """The element whose address this is: `&a[i]`, `wp::address(a, i)`, a pointer; empty if it is no address."""
        node = bare(node)
        if node.type == "pointer_expression" and sign_of(node) == "&":
            return self.value(node, "argument")
        if node.type == "call_expression" and called(node) == "address":
            return self.indexed(node)
        found = self.names.get(text_of(node), "")
        return found[1:] if found[:1] == "*" else ""

    def indexed(self, node: Node) -> str:
        array, *index = map(self.expression, parts(part(node, "arguments")))
        return f"{array}[{', '.join(index)}]" if index else array

    def pointer_expression(self, node: Node) -> str:
        """`*` of an address; `&` stands only where an address is taken at once."""
        sign, inner = sign_of(node), bare(part(node, "argument"))
        if inner.type == "cast_expression" and sign == "*":
            type, value = text_of(part(inner, "type")).rstrip(), bare(part(inner, "value"))
            name = type_name(type[:-1])
            if name and type[-1] == "*" and text_of(value)[0] == "&":
                return self.as_bits(name, bare(part(value, "argument")))
        found = self.place(inner) if sign == "*" else ""
        if not found:
            raise self.error(f"the address `{text_of(node if sign == '&' else inner)}`", node)
        return found

    def as_bits(self, type: str, node: Node) -> str:
        """The bits of a number as another type; of elements that follow each other, as a vector, so many."""
        vector = re.match(r"vec([234])[id]?$", type)
        if not vector:
            return f"wp.cast({self.expression(node)}, wp.{type})"
        indices = parts(part(node, "indices")) if node.type == "subscript_expression" else []
        if len(indices) != 1:
            raise self.error(f"`{text_of(node)}` as {type}", node)
        owner, k = part(node, "argument"), self.expression(indices[0])
        array = self.memory(owner) or self.expression(owner)
        number = {"i": "int32", "d": "float64"}.get(type[4:], "float32")
        made = [f"wp.cast({self.flat(array, f'({k} + {j})')}, wp.{number})" for j in range(int(vector[1]))]
        return f"wp.{type}({', '.join(made)})"

    def cast_expression(self, node: Node) -> str:
        """`(type)` of what follows: an address as a number, else a value."""
        type = type_name(text_of(part(node, "type")))
        if not type:
            raise self.refused(node)
        address = self.address(bare(part(node, "value"))) if type in ADDRESSES else ""
        return f"wp.{type}({address or self.value(node, 'value')})"

    def address(self, node: Node) -> str:
        """`a.data` or `&a.data[i]` as the address that funcs know; empty if it is none."""
        if node.type != "pointer_expression" or sign_of(node) != "&":
            array = self.memory(node)
            return array and f"{array}.ptr"
        place = self.value(node, "argument")
        element = re.match(r"([A-Za-z_][\w.]*)\[([^,]*)\]$", place)
        if not element:
            raise self.error(f"the address of `{place}`", node)
        return f"{element[1]}[{element[2]}:].ptr"

    # ---- calls

    def call_expression(self, node: Node) -> str:
        function, given = part(node, "function"), parts(part(node, "arguments"))
        word, name = text_of(function), called(node)
        type = type_name(word) if name not in self.names else None
        if type:
            return f"wp.{type}({', '.join(map(self.expression, given))})"
        if function.type not in ("identifier", "qualified_identifier"):
            raise self.refused(node)
        if name == "address":
            raise self.error(f"the address `{word}`, not followed by `*`,", node)
        if name == "index":
            return self.indexed(node)
        name = FUNCTIONS.get(name, name)
        is_atomic = name.startswith("atomic_")
        args = [(is_atomic and not k and self.place(n)) or self.expression(n) for k, n in enumerate(given)]
        if name == "load":
            return args[0]
        if name in SAME_BITS:
            return f"wp.cast({', '.join(args)}, wp.{SAME_BITS[name]})"
        if name in FIRST_BIT:
            return FIRST_BIT[name].format(args[0], f"wp.bit_count({args[0]} ^ ({args[0]} - 1))")
        if name.startswith("__") or "::" in name:
            raise self.error(f"`{word}`, which speaks to other threads," if "sync" in word else f"`{word}`", node)
        if is_atomic and args:
            found = re.match(r"((?:wp\.adjoint\[)?\w+\]?)\[(.*)\]$", args[0])
            if found:
                args[:1] = [found[1], found[2]]
            if args[0].startswith("wp.adjoint["):
                if name not in ("atomic_add", "atomic_sub") or len(args) < 3:
                    raise self.error(f"`{word}` of a gradient", node)
                sign = "+" if name == "atomic_add" else "-"
                return f"{args[0]}[{', '.join(args[1:-1])}] {sign}= {args[-1]}"
        return f"wp.{name}({', '.join(args)})"


# ---- nodes of the tree


@cache
def parser() -> Parser:
    import tree_sitter_cpp
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_cpp.language()))


def part(node: Node, name: str) -> Node:
    found = node.child_by_field_name(name)
    assert found is not None, f"{node.type} has no {name}"
    return found


def parts(node: Node) -> list[Node]:
    return [n for n in node.named_children if n.type != "comment"]


def below(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from below(child)


def text_of(node: Node) -> str:
    return (node.text or b"").decode()


def sign_of(node: Node) -> str:
    return text_of(part(node, "operator"))


def bare(node: Node) -> Node:
    """Returns the expression inside parentheses."""
    while node.type == "parenthesized_expression" and len(parts(node)) == 1:
        node = parts(node)[0]
    return node


def called(node: Node) -> str:
    return text_of(part(node, "function")).removeprefix("wp::").removeprefix("std::")


# ---- text


def plain_cast(m: re.Match[str]) -> str:
    """The start of a cast of C++ in the form that C has for it."""
    type = m[2].strip()
    name = type_name(type)
    if m[1] == "static" and name:
        return f"{name}("
    if type.endswith("&"):
        return f"*({type[:-1]}*)&("
    return f"({type})(" if type.endswith("*") or name in ADDRESSES else m[0]


def number(word: str) -> str:
    """A number of C in Python. Raises ValueError."""
    if word[0] in "+-":
        return f"({word[0]}{number(word[1:])})"
    is_hex = word[:2] in ("0x", "0X")
    if not is_hex and re.search(r"[.eE]|[fF]$", word):
        float(word := word.rstrip("fFlL"))
        return word
    bare = word.rstrip("uUlL")
    suffix = word[len(bare) :].lower()
    if len(bare) > 1 and bare.isdigit() and bare[0] == "0":
        bare = f"0o{bare[1:]}"
    wide = "u" in suffix, "l" in suffix
    type = {(True, True): "uint64", (True, False): "uint32", (False, True): "int64"}.get(wide)
    size = int(bare, 0)
    if type is None and size >= 1 << 31:
        type = "uint32" if size < 1 << 32 and is_hex else "int64" if size < 1 << 63 else "uint64"
    return f"wp.{type}({bare})" if type else bare


def ranged(made: list[str], test: str, moves: list[str], changed: set[str]) -> str | None:
    """`for i in range(...):` for a loop that counts by a constant to a bound that its body does not change."""
    start = re.match(r"(\w+) = wp\.int32\((.*)\)$", made[0]) if len(made) == len(moves) == 1 else None
    bound = re.match(r"\((\w+) (<|<=|>|>=) (.*)\)$", test)
    by = re.match(r"(\w+) ([+-])= (\d+)$", moves[0]) if start else None
    if not (start and bound and by and start[1] == bound[1] == by[1]) or (by[2] == "+") != (bound[2][0] == "<"):
        return None
    if changed & {start[1], *re.findall(r"[A-Za-z_]\w*", bound[3])} or re.search(r"\[|atomic|rand", bound[3]):
        return None
    end = bound[3] + {"<=": " + 1", ">=": " - 1"}.get(bound[2], "")
    first = start[2] if start[2].isdigit() else f"wp.int32({start[2]})"
    return f"for {start[1]} in range({first}, {end}, {by[2].strip('+')}{by[3]}):"


def assigned(line: str) -> Iterator[str]:
    found = re.match(r"\s*(\w+)[\w.\[\], ]* (?:[-+*/%&|^]|<<|>>)?= ", line)
    if found:
        yield found[1]
