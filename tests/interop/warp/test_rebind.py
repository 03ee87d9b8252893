"""Things of Warp as things of the workbench: what a class of a program holds is still there afterwards."""

from __future__ import annotations

import enum

import pytest

from workbench.kernels.reading.declare import Func

pytestmark = pytest.mark.needs_warp


def test_a_class_with_funcs_keeps_what_else_it_holds():
    import warp

    from workbench.interop.warp.rebind import Rebinder

    class Box:
        """A class with a func, as programs have them in place of a module."""

        limit = 3

        class Mode(enum.IntEnum):
            NEAR = 1

        @warp.func
        def twice(x: float):
            return 2.0 * x

    made = Rebinder((__name__,))(Box)
    assert made is not Box and isinstance(made.twice, Func)
    assert made.limit == 3 and made.Mode.NEAR == 1
