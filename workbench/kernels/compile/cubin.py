"""Resource usage per thread (registers, bytes of local memory), read from a kernel's machine code.

A cubin is an ELF file. Its section `.nv.info` is a list of entries (form, attribute, value); the three attributes read
here carry a symbol and a number. The whole stack of a kernel holds its dynamically indexed variables and whatever the
compiler could not keep in registers, so a kernel without a stack spills nothing. Needs neither GPU nor driver.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_REGISTERS, _STACK = 0x2F, 0x12  # EIATTR_REGCOUNT, EIATTR_MIN_STACK_SIZE
_SIZED = 4  # the form whose value is preceded by its length; every other one takes two bytes
_SYMBOLS = 2  # SHT_SYMTAB


class Resources(NamedTuple):
    """Resource usage of one thread: 32-bit registers, bytes of local memory (its stack and its callees')."""

    registers: int
    local: int


class _Section(NamedTuple):
    name: str
    kind: int
    link: int
    data: bytes


def resources(cubin: bytes) -> dict[str, Resources]:
    """The resources of each kernel by name, in the order of the file. Raises ValueError if it is not a cubin."""
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("this is not a cubin: it does not begin as a 64-bit ELF file does")
    sections = _sections(cubin)
    table = next(s for s in sections if s.kind == _SYMBOLS)
    names = [_string(sections[table.link].data, name) for name, *_ in struct.iter_unpack("<IIQQ", table.data)]
    found: dict[int, dict[int, int]] = {}
    for attribute, value in _entries(next(s.data for s in sections if s.name == ".nv.info")):
        if attribute in (_REGISTERS, _STACK):
            symbol, number = struct.unpack("<II", value)
            found.setdefault(symbol, {})[attribute] = number
    # functions that are called have a register count too, but only entries have the stack of all they call
    return {names[s]: Resources(f[_REGISTERS], f[_STACK]) for s, f in found.items() if _STACK in f}


def _sections(elf: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, of_names = struct.unpack_from("<HHH", elf, 0x3A)
    heads = [struct.unpack_from("<IIQQQQI", elf, table + k * size) for k in range(count)]
    names = heads[of_names][4]
    return [_Section(_string(elf, names + h[0]), h[1], h[6], elf[h[4] : h[4] + h[5]]) for h in heads]


def _string(data: bytes, at: int) -> str:
    return data[at : data.index(0, at)].decode()


def _entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        length = size if form == _SIZED else 0
        yield attribute, data[at + 4 : at + 4 + length]
        at += 4 + length
