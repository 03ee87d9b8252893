"""C text of a `func_native` becomes the text of a func, token by token: what C says in the same form as Python is read.

Statements: declarations of one variable, assignments, `if`, `for` over a range, `while`, `break`, `continue`, `return`.
Expressions: numbers, operators, `? :`, casts, elements, components, C's functions of numbers, Warp's builtins, atomics.
What is not among them is refused, so that nothing has another meaning than in C. Of `#if` the processor's side is read.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from keyword import iskeyword

from ...errors import KernelError, Where
from .c_vocabulary import BARRIER, CONSTANTS, FIRST_BIT, FUNCTIONS, OPERATORS, PREFIXES, TYPES, type_name

_TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*[\s\S]*?\*/)"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[uUlLfF]*)"
    r"|(?P<name>(?:\w+::)*[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|\+\+|--|&&|\|\||<<|>>|[-+*/%&|^=!<>]=|[\s\S])"
)
_FORMS = (  # casts of C++ as calls of what they do: to a type, to the bits of a number, of an array to its address
    (re.compile(r"\bstatic_cast\s*<([^<>&*]*)>\s*\("), r"(\1)("),
    (re.compile(r"\breinterpret_cast\s*<([^<>&*]*)&\s*>\s*\("), r"as_bits(\1, "),
    (re.compile(r"\(\s*(u?int64(?:_t)?)\s*\)\s*(\w+)\.data\b(?!\s*\[)"), r"address_of(\1, \2)"),
)
_STATEMENTS = ("break", "continue", "for", "if", "return", "while")
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--")
_OURS = ("wp", "own", "kept_gradient")  # names of the func that a snippet becomes
_WAY_OUT = "the same in Python: a @wb.func, with a @wb.func_grad for its adjoint, a @wb.func_replay for its replay"


@dataclass
class Snippet:
    """Reads one snippet.

    `words`: the functions that there are; `several`: the parameters with several axes, which no one index counts;
    `adjoint`: names of parameters whose `adj_` names are gradients; `converts`: `return` converts to the declared type.
    """

    text: str
    where: Where
    params: tuple[str, ...]
    words: frozenset[str]
    several: frozenset[str] = frozenset()
    adjoint: bool = False
    converts: bool = False
    types: dict[str, str] = field(default_factory=dict)  # of the variables that have a number's type
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    tokens: list[tuple[str, int]] = field(default_factory=list)  # each with the number of its line
    at: int = 0
    updates: dict[str, str] = field(default_factory=dict)  # atomics of gradients, as statements

    def translated(self) -> tuple[list[str], bool]:
        """Returns a func's body, and True if CUDA's side differs. Raises KernelError [native-snippet]."""
        self.names = set(self.params)
        text = self.processor_side()
        for form, plain in _FORMS:
            text = form.sub(plain, text)
        for found in _TOKEN.finditer(text):
            if found.lastgroup != "space":
                self.tokens.append((found[0], text.count("\n", 0, found.start()) + 1))
        self.tokens.append(("", text.count("\n") + 1))
        while self.token:
            self.statement()
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

    def error(self, what: str, line: int = 0) -> KernelError:
        line = line or self.tokens[self.at][1]
        text = f"{what} cannot be read in the snippet of `{self.where.function}`"
        shown = f"Its line {line} is: {self.text.split(chr(10))[line - 1].strip()}. "
        why = shown + "What is read of C is what one thread does, in the form that Python has too."
        return KernelError(text, slug="native-snippet", where=self.where, why=why, instead=_WAY_OUT)

    # ---- tokens

    @property
    def token(self) -> str:
        return self.tokens[self.at][0]

    def next(self) -> str:
        self.at += bool(self.token)
        return self.tokens[self.at - 1][0]

    def accept(self, *signs: str) -> str:
        return self.next() if self.token in signs else ""

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            raise self.error(f"`{self.token}`, where `{sign}` should be," if self.token else f"what lacks `{sign}`")

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    # ---- statements

    def statement(self) -> None:
        if self.token in _STATEMENTS:
            getattr(self, f"{self.token}_statement")(self.next())
        elif self.token == "{":
            self.write("if True:")
            self.block()
        elif not self.accept(";"):
            type = self.type_here()
            if type is None:
                self.simple()
            else:
                self.declaration(type)
            self.expect(";")

    def block(self) -> None:
        """A statement or several in braces, one level deeper; names declared there end there."""
        self.depth += 1
        known, count = set(self.names), len(self.lines)
        if self.accept("{"):
            while self.token and self.token != "}":
                self.statement()
            self.expect("}")
        else:
            self.statement()
        if len(self.lines) == count:
            self.write("pass")
        self.names = known
        self.depth -= 1

    def break_statement(self, word: str) -> None:
        self.write(word)
        self.expect(";")

    continue_statement = break_statement

    def while_statement(self, word: str) -> None:
        self.expect("(")
        self.write(f"{word} {self.until(')')}:")
        self.block()

    def if_statement(self, word: str) -> None:
        self.while_statement(word)
        if self.accept("else"):
            self.write("else:")
            self.block()

    def return_statement(self, word: str) -> None:
        value = "" if self.accept(";") else self.until(";")
        self.write(f"return own({value})" if self.converts and value else f"{word} {value}".rstrip())

    def for_statement(self, word: str) -> None:
        """`for (int i = a; i < b; i += 2)`, whose body changes neither `i` nor `b`."""
        known, line = set(self.names), self.tokens[self.at][1]
        self.expect("(")
        type, name = self.type_here(), self.new()
        self.expect("=")
        start, tested, sign, end, first = self.until(";"), self.next(), self.next(), self.until(";"), len(self.lines)
        self.simple()
        step = re.match(rf"\s*{name} ([-+])= ([1-9]\d*)$", self.lines.pop())
        self.expect(")")
        if (type, tested) != ("int32", name) or not step or sign not in {"+": ("<", "<="), "-": (">", ">=")}[step[1]]:
            raise self.error("this `for`", line)
        end += {"<=": " + 1", ">=": " - 1"}.get(sign, "")
        start = start if start.isdigit() else f"wp.int32({start})"
        self.write(f"for {name} in range({start}, {end}, {step[1].strip('+')}{step[2]}):")
        self.block()
        changed = {assigned(made) for made in self.lines[first + 1 :]}
        fixed = re.sub(r"\.shape\[\d+\]", "", end)
        if changed & {name, *re.findall(r"[A-Za-z_]\w*", fixed)} or re.search(r"\[|atomic|rand", fixed):
            raise self.error("this `for`, whose bound may change,", line)
        self.names = known

    def declaration(self, type: str) -> None:
        name = self.new()
        made = f"wp.{type}()" if self.token == ";" else ""
        if not made:
            self.expect("=")
            made = self.expression()
            made = f"wp.{type}({made})" if type in TYPES.values() else made
        self.types[name] = type if type in TYPES.values() else "" if type else "auto"
        self.write(f"{name} = {made}")

    def new(self) -> str:
        """The name of a variable that is declared here."""
        name = self.next()
        if not name.isidentifier():
            raise self.error(f"`{name}`")
        if iskeyword(name) or name in {*self.names, *_OURS}:
            raise self.error(f"another variable `{name}`")
        self.names.add(name)
        self.types.pop(name, None)
        return name

    def simple(self) -> None:
        """An assignment or a call."""
        if self.accept(BARRIER):  # nobody to wait for: a block is one thread of the program
            self.expect("(")
            return self.expect(")")
        before = self.accept("++", "--")
        target = self.unary()
        sign = before or self.accept(*_ASSIGNMENTS)
        if not sign and target.endswith(")"):
            return self.write(self.updates.get(target, target))
        if not sign or target.endswith(")"):
            raise self.error(f"`{self.token or target}`")
        value = "1" if sign in ("++", "--") else self.expression()
        self.assign(target, sign.replace("++", "+=").replace("--", "-="), value)

    def assign(self, target: str, sign: str, value: str) -> None:
        """An assignment; a variable keeps the type that it was declared with."""
        type = self.types.get(target, "")
        if target.startswith("wp.adjoint[") and sign == "=":  # a gradient is added to: what was there is taken away
            self.write(f"kept_gradient = {value}")
            self.write(f"{target} -= {target}")
            sign, value = "+=", "kept_gradient"
        if sign == "%=":
            sign, value = "=", f"wp.mod({target}, {value})"
        elif type and sign != "=":
            sign, value = "=", f"({target} {sign[:-1]} {value})"
        if type and sign == "=":
            value = f"type({target})({value})" if type == "auto" else f"wp.{type}({value})"
        self.write(f"{target} {sign} {value}")

    # ---- expressions

    def type_here(self) -> str | None:
        """The name here of the type of C that begins at this token; empty for `auto`; None if none does."""
        words: list[str] = []
        while True:
            if self.token in self.names or type_name([*words, self.token]) is None:
                return type_name(words)
            words.append(self.next())

    def until(self, end: str) -> str:
        """An expression, and this sign behind it."""
        found = self.expression()
        self.expect(end)
        return found

    def listed(self, end: str) -> list[str]:
        """Expressions with commas between them, up to this sign."""
        found: list[str] = []
        while not self.accept(end):
            found.append(self.expression())
            if self.token != end:
                self.expect(",")
        return found

    def expression(self, level: int = 0) -> str:
        """An expression of operators that bind at least as strongly as those of this level."""
        if level == len(OPERATORS):
            return self.unary()
        left = self.expression(level + 1)
        while sign := self.accept(*OPERATORS[level]):
            right, word = self.expression(level + 1), OPERATORS[level][sign]
            left = f"wp.mod({left}, {right})" if sign == "%" else f"({left} {word} {right})"
        if level == 0 and self.accept("?"):
            yes = self.expression()
            self.expect(":")
            left = f"({yes} if {left} else {self.expression()})"
        return left

    def unary(self) -> str:
        if sign := self.accept(*PREFIXES):
            return f"({PREFIXES[sign]}{self.unary()})"
        start = self.at
        if self.accept("(") and (type := self.type_here()) and self.accept(")"):
            return f"wp.{type}({self.unary()})"
        self.at = start
        found = self.operand()
        while sign := self.accept("[", "."):
            if sign == "[":
                found = f"{found}[{', '.join(self.listed(']'))}]"
            elif (name := self.next()) == "data":  # `a.data[i]` is `a[i]`
                if self.token != "[" or found in self.several:
                    raise self.error(f"the address `{found}.data`")
            elif name != "c":  # `v.c[0]` is `v[0]`
                found = f"{found}.{name}"
        return found

    def operand(self) -> str:
        word = self.next()
        if word == "(":
            return f"({self.until(')')})"
        if word[:1].isdigit() or (word[:1] == "." and word[1:]):
            with suppress(ValueError):
                return number(word)
        if (self.token == "(" and word.isidentifier()) or word.startswith(("wp::", "std::")):
            return self.call(word)
        if self.adjoint and word.startswith("adj_") and word[4:] in self.params:
            return f"wp.adjoint[{word[4:]}]"
        found = word if word in self.names else CONSTANTS.get(word)
        if not found:
            self.at -= bool(word)
            raise self.error(f"`{word}`" if word else "what ends here")
        return found

    def call(self, word: str) -> str:
        self.expect("(")
        bare = word.removeprefix("wp::").removeprefix("std::")
        if bare in ("as_bits", "address_of"):
            type = self.type_here()
            self.expect(",")
            value = self.until(")")
            return f"wp.cast({value}, wp.{type})" if bare == "as_bits" else f"wp.{type}({value}.ptr)"
        if bare in FIRST_BIT:
            x = self.until(")")
            return FIRST_BIT[bare].format(x, f"wp.bit_count({x} ^ ({x} - 1))")
        name = type_name([bare]) or FUNCTIONS.get(bare, bare)
        if name not in self.words:
            raise self.error(f"`{word}`, which speaks to other threads," if "sync" in word else f"`{word}`")
        args: list[str] = []
        if name.startswith("atomic_") and self.accept("&"):
            element = self.unary()
            found = re.match(r"((?:wp\.adjoint\[)?\w+\]?)\[(.*)\]$", element)
            if not found or "][" in found[2]:
                raise self.error(f"the address of `{element}`")
            args += found.groups()
            self.expect(",")
        args += self.listed(")")
        made = f"wp.{name}({', '.join(args)})"
        if name in ("atomic_add", "atomic_sub") and args and args[0].startswith("wp.adjoint["):
            self.updates[made] = f"{args[0]}[{', '.join(args[1:-1])}] {'-+'[name == 'atomic_add']}= {args[-1]}"
        return made


def number(word: str) -> str:
    """A number of C in Python. Raises ValueError."""
    is_hex = word[:2] in ("0x", "0X")
    if not is_hex and re.search(r"[.eE]|[fF]$", word):
        return word.rstrip("fFlL")
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


def assigned(line: str) -> str:
    """The name that a line assigns to, or to a part of which; empty if it does not."""
    found = re.match(r"\s*(\w+)[\w.\[\], ]* (?:[-+*/%&|^]|<<|>>)?= ", line)
    return found[1] if found else ""
