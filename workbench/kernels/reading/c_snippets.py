"""C text of a `func_native` becomes the text of a func: a small part of C++, by recursive descent.

Statements: declarations, assignments, `if`, `for`, `while`, `break`, `continue`, `return`. Expressions: numbers,
operators, casts, elements, components, C's functions of numbers and Warp's builtins, atomics, pointers to elements.
What is not among them is refused, so that nothing has another meaning than in C. Of `#if` the processor's side is read.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import field

from ...errors import KernelError, Where
from ...records import record
from .c_tokens import (
    ADDRESSES,
    BARRIER,
    BINARY,
    COMPOSITE,
    CONSTANTS,
    FIRST_BIT,
    FUNCTIONS,
    SAME_BITS,
    TYPES,
    VECTORS,
    Token,
    one_side,
    tokens,
)


@record
class Translated:
    """The lines of a func's body, and whether the snippet says something else for CUDA."""

    lines: list[str]
    differs: bool


@record
class Snippet:
    """Reads one snippet. `adjoint`: names of parameters whose `adj_` names are gradients; `ret`: has it a result."""

    text: str
    where: Where
    params: tuple[str, ...]
    arrays: tuple[str, ...] = ()
    adjoint: bool = False
    types: dict[str, str] = field(default_factory=dict)  # of the variables that have a number's type
    shapes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of the parameters with several axes, as text
    converts: bool = False  # `return` converts to the declared type
    at: int = 0
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    names: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    pointers: dict[str, tuple[str, bool]] = field(default_factory=dict)  # the element, and is it one with a `*`
    element: tuple[str, str] | None = None  # the array and index of what was read last, where it has one index
    steps: list[list[str]] = field(default_factory=list)  # of the loops around: what `continue` does first

    def translated(self) -> Translated:
        """Raises KernelError [native-snippet]."""
        try:
            plain, differs = one_side(self.text)
            self.tokens = [*tokens(plain), Token("", 0)]
            self.names = {p: p for p in self.params}
            self.taken = {*self.params, "wp", "own"}
            while self.peek():
                self.statement()
        except ValueError as odd:
            raise self.error(str(odd)) from None
        return Translated(self.lines, differs)

    def error(self, what: str) -> KernelError:
        line = self.tokens[min(self.at, len(self.tokens) - 1)].line if hasattr(self, "tokens") else 0
        rows = self.text.split("\n")
        shown = rows[line - 1].strip() if 0 < line <= len(rows) else ""
        return KernelError(
            f"{what} cannot be read in the snippet of `{self.where.function}`",
            slug="native-snippet",
            where=self.where,
            why=f"Its line {line} is: {shown}. " * bool(shown) + "What is read of C is what one thread does.",
            instead="the same in Python, in a func",
        )

    # ---- tokens

    def peek(self, k: int = 0) -> str:
        return self.tokens[min(self.at + k, len(self.tokens) - 1)].text

    def next(self) -> str:
        found = self.peek()
        if not found:
            raise ValueError("its end")
        self.at += 1
        return found

    def take(self, text: str) -> bool:
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            raise ValueError(f"`{self.peek()}` (where `{text}` should be)" if self.peek() else "its end")

    def write(self, line: str) -> None:
        self.lines.append("    " * (self.depth + 1) + line)

    # ---- statements

    def block(self) -> None:
        """A statement or several in braces, one level deeper; names declared there end there."""
        self.depth += 1
        known, pointers, count = dict(self.names), dict(self.pointers), len(self.lines)
        if self.take("{"):
            while not self.take("}"):
                self.statement()
        else:
            self.statement()
        if len(self.lines) == count:
            self.write("pass")
        self.names, self.pointers = known, pointers
        self.depth -= 1

    def statement(self) -> None:
        if self.take(";"):
            return
        if self.peek() == "{":
            self.write("if True:")
            return self.block()
        word = self.peek()
        simple = {"if": self.if_, "for": self.for_, "while": self.while_, "return": self.return_}
        if word in simple:
            self.next()
            return simple[word]()
        if word in ("break", "continue"):
            self.next()
            self.need(";")
            for step in self.steps[-1] if word == "continue" and self.steps else ():
                self.write(step)
            return self.write(word)
        if word in ("do", "switch", "goto", "asm", "struct", "typedef", "template", "extern", "__shared__", "static"):
            raise ValueError(f"`{word}`")
        if word == BARRIER:  # nobody to wait for: a block is one thread of the program
            self.next()
            self.need("(")
            self.need(")")
        elif not self.declaration():
            self.assignment()
        self.need(";")

    def if_(self) -> None:
        self.need("(")
        condition = self.expression()
        self.need(")")
        self.write(f"if {condition}:")
        self.block()
        if self.take("else"):
            self.write("else:")
            self.block()

    def while_(self) -> None:
        self.need("(")
        condition = self.expression()
        self.need(")")
        self.write(f"while {condition}:")
        self.steps.append([])
        self.block()
        self.steps.pop()

    def return_(self) -> None:
        if self.take(";"):
            return self.write("return")
        value = self.expression()
        self.need(";")
        self.write(f"return own({value})" if self.converts else f"return {value}")

    def for_(self) -> None:
        """A loop over a range where it is one, which its bounds and its body show; else a `while`."""
        self.need("(")
        known = dict(self.names)
        first = len(self.lines)
        if self.peek() != ";" and not self.declaration():
            self.assignment()
        self.need(";")
        made = self.lines[first:]
        condition = "True" if self.peek() == ";" else self.expression()
        self.need(";")
        start = len(self.lines)
        if self.peek() != ")":
            self.assignment()
        self.need(")")
        step = [line.strip() for line in self.lines[start:]]
        del self.lines[start:]
        head = len(self.lines)
        self.write(f"while {condition}:")
        self.steps.append(step)
        self.block()
        self.steps.pop()
        body = self.lines[head + 1 :]
        over = ranged(made, condition, step, body)
        if over is not None:
            del self.lines[first:]
            self.lines += [made[0][: len(made[0]) - len(made[0].lstrip())] + over, *without_steps(body, step)]
        else:
            self.lines += ["    " * (self.depth + 2) + s for s in step]
        self.names = known

    def type_name(self) -> str | None:
        """The type that stands here, taken; None if none does."""
        at = self.at
        while self.peek() in ("const", "volatile", "constexpr", "register", "inline"):
            self.next()
        if self.take("auto"):
            return ""
        words = []
        while self.peek() in ("unsigned", "long", "int", "char", "short", "signed"):
            words.append(self.next())
        text = " ".join(w for w in words if w != "signed") or ("int" if words else self.peek().removeprefix("wp::"))
        text = VECTORS.get(text, text)
        if not words:
            if text not in TYPES and not COMPOSITE.match(text):
                self.at = at
                return None
            self.next()
        while self.take("const"):
            pass
        if text not in TYPES and not COMPOSITE.match(text):
            raise ValueError(f"the type `{text}`")
        return TYPES.get(text, text)

    def declaration(self) -> bool:
        at = self.at
        type = self.type_name()
        if type is None or not (re.match(r"[A-Za-z_]\w*$", self.peek()) or self.peek() in "*&"):
            self.at = at
            return False
        self.declared(type)
        while self.take(","):
            self.declared(type)
        return True

    def declared(self, type: str) -> None:
        sign = self.peek()
        if sign in ("*", "&"):
            self.next()
            name = self.next()
            self.need("=")
            self.take("&")
            return self.point(name, self.expression(), sign == "*")
        name = self.next()
        if self.take("["):
            return self.local_array(type, name)
        if self.take("("):
            value = f"wp.{type}({', '.join(self.listed(')'))})"
        elif self.take("{"):
            value = f"wp.{type}({', '.join(self.listed('}'))})"
        elif self.take("="):
            value = self.expression()
            value = f"wp.{type}({value})" if type in TYPES.values() else value
        else:
            value = f"wp.{type}()"
        own = self.new(name)
        self.types[own] = type if type in TYPES.values() else "" if type else "auto"
        self.write(f"{own} = {value}")

    def local_array(self, type: str, name: str) -> None:
        size = self.expression()
        self.need("]")
        own = self.new(name)
        self.write(f"{own} = zeros(shape={size}, dtype=wp.{type})")
        if self.take("="):
            self.need("{")
            for k, value in enumerate(self.listed("}")):
                self.write(f"{own}[{k}] = wp.{type}({value})")

    def point(self, name: str, place: str, is_pointer: bool) -> None:
        """A pointer or reference to an element: a name for it, at the index that was."""
        found = re.match(r"(\w+)\[(.*)\]$", place)
        if not found:
            raise ValueError(f"the pointer `{name}`")
        kept = self.new(f"{name}_at")
        self.write(f"{kept} = {found[2]}")
        self.names.pop(name, None)
        self.pointers[name] = f"{found[1]}[{kept}]", is_pointer

    def new(self, name: str) -> str:
        """The name in Python of a variable that is declared here."""
        own, k = name + "_" * (keyword.iskeyword(name) or name in ("wp", "own", "zeros")), 2
        while own in self.taken:
            own, k = f"{name}_{k}", k + 1
        self.taken.add(own)
        self.names[name] = own
        self.pointers.pop(name, None)
        return own

    def assignment(self) -> None:
        if self.peek() in ("++", "--"):
            sign = self.next()
            return self.write(f"{self.unary()} {sign[0]}= 1")
        target = self.unary()
        sign = self.peek()
        if target.startswith("wp.cast(") and sign != ";":
            raise ValueError("an assignment to the bits of another type")
        if sign in ("++", "--"):
            self.next()
            return self.write(f"{target} {sign[0]}= 1")
        if sign == "=" or (len(sign) > 1 and sign[-1] == "=" and sign[0] in "+-*/%&|^<>" and sign[:-1] not in "<>"):
            self.next()
            return self.write(self.assigned(target, sign, self.expression()))
        if sign not in (";", ")", ","):
            raise ValueError(f"`{sign}`")
        self.write(target)

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

    def expression(self) -> str:
        condition = self.binary(0)
        if self.take("?"):
            yes = self.expression()
            self.need(":")
            return f"({yes} if {condition} else {self.expression()})"
        if self.peek() == "=":
            raise ValueError("`=` inside of an expression")
        return condition

    def binary(self, level: int) -> str:
        if level == len(BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in BINARY[level]:
            sign = self.next()
            right = self.binary(level + 1)
            if sign == "%":
                left = f"wp.mod({left}, {right})"
            else:
                left = f"({left} {({'&&': 'and', '||': 'or'}).get(sign, sign)} {right})"
        return left

    def unary(self) -> str:
        sign = self.peek()
        if sign in ("-", "+", "~"):
            self.next()
            return f"({sign}{self.unary()})"
        if sign == "!":
            self.next()
            return f"(not {self.unary()})"
        if sign == "&":
            if not self.taken_by_atomic(self.at):
                raise ValueError("an address here")
            self.next()
            return self.unary()
        if sign == "*":
            self.next()
            return self.other_bits() or self.unary()
        if sign == "(":
            at = self.at
            self.next()
            type = self.type_name()
            if type and self.take(")"):
                return self.converted(type)
            self.at = at
        return self.postfix()

    # ---- addresses and bits

    def converted(self, type: str) -> str:
        """`(type)` of what follows: an address as a number, else a value."""
        address = self.address() if type in ADDRESSES else ""
        return f"wp.{type}({address or self.unary()})"

    def address(self) -> str:
        """`a.data` or `&a.data[i]`, taken, as the address that funcs know; empty if it is none."""
        at = self.at
        if self.take("("):
            found = self.address()
            if found and self.take(")"):
                return found
        elif self.take("&"):
            place = self.postfix()
            element = re.match(r"([A-Za-z_][\w.]*)\[([^,]*)\]$", place)
            if not element:
                raise ValueError(f"the address of `{place}`")
            return f"{element[1]}[{element[2]}:].ptr"
        elif re.match(r"[A-Za-z_]\w*$", self.peek()) and self.peek(1) in (".", "->"):
            found = self.postfix()
            if [t.text for t in self.tokens[self.at - 1 : self.at + 1]] in (["data", ")"], ["data", ";"]):
                return f"{found}.ptr"
            if self.tokens[self.at - 1].text == "data" and self.peek() in BINARY[-2] and self.cast_before(at):
                return f"{found}.ptr"
        self.at = at
        return ""

    def cast_before(self, at: int) -> bool:
        """True if a cast stands directly before the token: additions to the address then count bytes."""
        return self.tokens[at - 1].text == ")"

    def other_bits(self) -> str:
        """The rest of `*(int*)&x` and `*reinterpret_cast<int*>(&x)`: the bits of a number; empty if it is neither."""
        at, type = self.at, None
        if self.take("("):
            type = self.type_name()
            closed = type and self.take("*") and self.take(")")
            if type and closed and self.take("&"):
                return self.as_bits(type)
        elif self.take("reinterpret_cast"):
            self.need("<")
            type = self.type_name()
            if type and self.take("*") and self.take(">") and self.take("(") and self.take("&"):
                found = self.as_bits(type)
                self.need(")")
                return found
        self.at = at
        return ""

    def as_bits(self, type: str) -> str:
        """The bits of a number as another type; of elements that follow each other, as a vector, so many."""
        self.element = None
        found = self.postfix()
        vector = re.match(r"vec([234])[id]?$", type)
        if not vector:
            return f"wp.cast({found}, wp.{type})"
        if self.element is None or not found.endswith("]"):
            raise ValueError(f"`{found}` as {type}")
        array, k = self.element  # pyright: ignore[reportGeneralTypeIssues]  # `postfix` has set it
        number = {"i": "int32", "d": "float64"}.get(type[4:], "float32")
        parts = [f"wp.cast({self.flat(array, f'({k} + {j})')}, wp.{number})" for j in range(int(vector[1]))]
        return f"wp.{type}({', '.join(parts)})"

    def reinterpreted(self) -> str:
        """`reinterpret_cast<...>(...)`: an address as a number, or the bits of a number as another type."""
        self.need("<")
        type = self.type_name()
        bits = type is not None and self.take("&")
        self.need(">")
        self.need("(")
        found = f"wp.cast({self.postfix()}, wp.{type})" if bits else type in ADDRESSES and self.address()
        if not found:
            raise ValueError("`reinterpret_cast`")
        self.need(")")
        return found

    def taken_by_atomic(self, at: int) -> bool:
        """True if the address at this token is the first argument of an atomic."""
        before = [t.text for t in self.tokens[max(at - 2, 0) : at]]
        return before[-1:] == ["("] and before[:-1] != [] and "tomic" in before[0]

    def postfix(self) -> str:
        found, memory = self.primary(), ""  # the array whose memory stands here: `a.data`, of a tile `t.data.ptr`
        while True:
            if self.take("["):
                parts = self.listed("]")
                is_memory = memory == found and len(parts) == 1
                self.element = (found, parts[0]) if len(parts) == 1 else None
                found = self.flat(found, parts[0]) if is_memory else f"{found}[{', '.join(parts)}]"
            elif self.peek() in (".", "->"):
                self.next()
                name = self.next()
                if name not in ("data", "c") and not (name == "ptr" and memory == found):
                    found += f".{name}"
                elif name == "data":
                    memory = found
            else:
                return found

    def flat(self, array: str, k: str) -> str:
        """The k-th element of an array or tile, counted row by row."""
        shape, indices = self.shapes.get(array, ()), []
        for axis, size in enumerate(shape):
            inner = " * ".join(shape[axis + 1 :])
            index = f"({k}) // type({k})({inner})" if inner else f"({k})"
            indices.append(f"{index} % type({k})({size})" if axis else index)
        return f"{array}[{', '.join(indices) or k}]"

    def listed(self, end: str) -> list[str]:
        parts = []
        while not self.take(end):
            parts.append(self.expression())
            if self.peek() != end:
                self.need(",")
        return parts

    def primary(self) -> str:
        word = self.next()
        if word == "(":
            inner = self.expression()
            self.need(")")
            return f"({inner})"
        if re.match(r"[\d.]", word):
            return number(word)
        if not re.match(r"[A-Za-z_]", word):
            raise ValueError(f"`{word}`")
        if word == "static_cast":
            self.need("<")
            type = self.type_name()
            self.need(">")
            self.need("(")
            return f"wp.{type}({', '.join(self.listed(')'))})"
        if word == "reinterpret_cast":
            return self.reinterpreted()
        self.at -= 1
        type = self.type_name() if word.removeprefix("wp::") not in self.names else None
        if type:
            self.need("(")
            return f"wp.{type}({', '.join(self.listed(')'))})"
        self.next()
        if self.take("("):
            return self.call(word)
        return self.name(word)

    def dereferenced(self, word: str, start: int = -1) -> None:
        """Refuse an address that is not followed at once: nothing is computed with addresses."""
        start = self.at - 1 if start < 0 else start
        before = [t.text for t in self.tokens[max(start - 3, 0) : start]]
        atomic = self.taken_by_atomic(start)
        declared = before[-1:] == ["="] and before[-3:-2] == ["*"]
        if not (atomic or declared or (before[-1:] == ["*"] and self.peek() not in ("[", "++", "--"))):
            raise ValueError(f"the address `{word}`, not followed by `*`,")

    def name(self, word: str) -> str:
        if word in self.pointers:
            place, is_pointer = self.pointers[word]
            if is_pointer:
                self.dereferenced(word)
            return place
        if word in self.names:
            return self.names[word]
        if self.adjoint and word.startswith("adj_") and word[4:] in self.params:
            return f"wp.adjoint[{word[4:]}]"
        if word in CONSTANTS:
            return CONSTANTS[word]
        raise ValueError(f"`{word}`")

    def call(self, word: str) -> str:
        name, start = word.removeprefix("wp::").removeprefix("std::"), self.at - 2
        args = self.listed(")")
        if name == "address":
            self.dereferenced(word, start)
        if name in ("address", "index"):
            return f"{args[0]}[{', '.join(args[1:])}]" if len(args) > 1 else args[0]
        if name == "load":
            return args[0]
        name = FUNCTIONS.get(name, name)
        if name in SAME_BITS:
            return f"wp.cast({', '.join(args)}, wp.{SAME_BITS[name]})"
        if name in FIRST_BIT:
            return FIRST_BIT[name].format(args[0], f"wp.bit_count({args[0]} ^ ({args[0]} - 1))")
        if name.startswith("__") or "::" in name:
            raise ValueError(f"`{word}`, which speaks to other threads," if "sync" in word else f"`{word}`")
        if name.startswith("atomic_") and args:
            found = re.match(r"((?:wp\.adjoint\[)?\w+\]?)\[(.*)\]$", args[0])
            if found:
                args[:1] = [found[1], found[2]]
            if args[0].startswith("wp.adjoint["):
                if name not in ("atomic_add", "atomic_sub") or len(args) < 3:
                    raise ValueError(f"`{word}` of a gradient")
                sign = "+" if name == "atomic_add" else "-"
                return f"{args[0]}[{', '.join(args[1:-1])}] {sign}= {args[-1]}"
        return f"wp.{name}({', '.join(args)})"


def number(word: str) -> str:
    if word[:2] in ("0x", "0X"):
        bare = word.rstrip("uUlL")
    elif re.search(r"[.eE]|[fF]$", word):
        return word.rstrip("fFlL")
    else:
        bare = word.rstrip("uUlL")
    suffix = word[len(bare) :].lower()
    if len(bare) > 1 and bare.isdigit() and bare[0] == "0":
        bare = f"0o{bare[1:]}"
    wide = "u" in suffix, "l" in suffix
    type = {(True, True): "uint64", (True, False): "uint32", (False, True): "int64"}.get(wide)
    size = int(bare, 0)
    if type is None and size >= 1 << 31:
        type = "uint32" if size < 1 << 32 and bare[:2] in ("0x", "0X") else "int64" if size < 1 << 63 else "uint64"
    return f"wp.{type}({bare})" if type else bare


_START = re.compile(r"\s*(\w+) = wp\.int32\((.*)\)$")


def ranged(made: list[str], condition: str, step: list[str], body: list[str]) -> str | None:
    """`for i in range(...):` for a loop that counts by a constant to a bound that its body does not change."""
    start = _START.match(made[0]) if len(made) == 1 and len(step) == 1 else None
    bound = re.match(r"\((\w+) (<|<=|>|>=) (.*)\)$", condition)
    by = re.match(r"(\w+) ([+-])= (\d+)$", step[0]) if start else None
    if not (start and bound and by and start[1] == bound[1] == by[1]) or (by[2] == "+") != (bound[2][0] == "<"):
        return None
    changed = {n for line in without_steps(body, step) for n in assigned(line)}
    if (
        start[1] in changed
        or changed & set(re.findall(r"[A-Za-z_]\w*", bound[3]))
        or re.search(r"\[|atomic|rand", bound[3])
    ):
        return None
    end = bound[3] + {"<=": " + 1", ">=": " - 1"}.get(bound[2], "")
    sign = "" if by[2] == "+" else "-"
    first = start[2] if start[2].isdigit() else f"wp.int32({start[2]})"
    return f"for {start[1]} in range({first}, {end}, {sign}{by[3]}):"


def without_steps(body: list[str], step: list[str]) -> list[str]:
    """The body of a loop over a range: `continue` takes no step of its own there."""

    def before_continue(k: int) -> bool:
        return body[k].strip() in step and body[k + 1 : k + 2] != [] and body[k + 1].strip() == "continue"

    return [line for k, line in enumerate(body) if not before_continue(k)]


def assigned(line: str) -> Iterator[str]:
    found = re.match(r"\s*(\w+)[\w.\[\], ]* (?:[-+*/%&|^]|<<|>>)?= ", line)
    if found:
        yield found[1]
