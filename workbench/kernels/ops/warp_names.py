"""Names of NVIDIA Warp that are not in the language, each with the reason and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .examples import paragraphs
from .functions import BUILTINS
from .samples import STATEFUL

# reason -> names of Warp; what to write -> the names that other libraries have for it
_REASONS, _ELSEWHERE = paragraphs("warp_refused.txt"), paragraphs("other_names.txt")
REFUSED: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def why_refused(name: str) -> str | None:
    """The reason why a name of Warp is not in the language; None for names that are, or that Warp lacks."""
    if name in BUILTINS or name in STATEFUL:
        return None
    families = (reason for known, reason in REFUSED.items() if known.endswith("_") and name.startswith(known))
    return REFUSED.get(name) or next(families, None)


def instead_of(name: str, known: Iterable[str], module: str = "wb") -> str:
    """The replacement for an unknown `wb.` name: its counterpart, else the closest spelling, else ""."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(name.lower(), known, n=1)
    if size := re.fullmatch(r"vec(\d+)([fdhi]?)", name):
        return f"wb.types.vector({size[1]}, {_SCALARS[size[2]]})"
    if size := re.fullmatch(r"mat(\d)(\d)([fdh]?)", name):
        return f"wb.types.matrix(({size[1]}, {size[2]}), {_SCALARS[size[3]]})"
    meant = next((line for line, names in _ELSEWHERE.items() if name in names.split()), None)
    return meant or (f"{module}.{close[0]}" if close else "")


_SCALARS = {"": "float", "f": "float", "d": "wb.float64", "h": "wb.float16", "i": "int"}
