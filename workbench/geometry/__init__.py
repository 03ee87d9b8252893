"""Hash grids, trees of boxes and triangle meshes: a library in the kernel language, over arrays like any user's.

The one idea: what a search finds is a decision, an index without derivative. So searches read everything through
`detach`, no adjoint enters them, and positions, distances and normals are computed from what was found by ordinary
differentiable statements. Building makes new arrays and never writes into old ones: a launch that a tape recorded keeps
those it ran on. Imports launches and arrays; knows no tape. To add a query: a `@library` func beside its kind, its name
in `names`, and a test against brute force in tests/geometry.
"""

from ..kernels.ops.examples import paragraphs as _paragraphs
from ..kernels.reading.declare import Refused as _Refused

_REASONS = _paragraphs("refused.txt", __file__)
_REFUSED = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Names of Warp's module of the same name: refused where they are used."""
    if name in _REFUSED:
        return _Refused(f"geometry.{name}", _REFUSED[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
