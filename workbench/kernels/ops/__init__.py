"""The operations of the kernel language: one row each, in the file of its kind, and what users call and write.

To add an operation: one `row(...)` in `scalar`, `vectors`, `matrices`, `quaternions`, `random`, `memory` or `control`
with its type rule, its meaning and C text (or `expand`), its adjoint, and the facts that `Row` lists. Users get it by
its name in `functions`, with a line in `examples`; a `case(...)` in tests/kernels/test_ops.py compares its meaning, C
and derivatives.
Nothing outside this folder lists operations by name or asks for the name of a row but to print it.
"""

from ..row import NO_GRADIENT, Effect, Row, refuse
from . import control, matrices, memory, parts, quaternions, random, scalar, tile_algebra, tiles, vectors
from .c_text import PRELUDES, prelude
from .conversions import construct, convert
from .functions import BUILTINS, PYTHON, REFUSED, STORING, binary, compare, instead_of, unary, why_refused
from .row import ROWS, row
from .samples import STATEFUL
from .signatures import TILES

PRELUDE = "".join(PRELUDES.values())
