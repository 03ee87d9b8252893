"""Things of Warp as things of the workbench: what a class of a program holds is still there afterwards."""

from __future__ import annotations

import enum
import gc
import weakref

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


FACTOR = 2
FACTORS = [1, 2]
KEPT = None


def kernels():
    """Kernels of Warp that take a constant, a list's element, a cell and a func."""
    import warp

    cell = 3

    @warp.func
    def scaled(x: float):
        return float(cell) * x

    @warp.kernel(module="unique")
    def by_constant(x: warp.array(dtype=float)):
        x[0] = x[0] * float(FACTOR)

    @warp.kernel(module="unique")
    def by_element(x: warp.array(dtype=float)):
        x[0] = x[0] * float(warp.static(FACTORS[1]))

    @warp.kernel(module="unique")
    def by_func(x: warp.array(dtype=float)):
        x[0] = scaled(x[0])

    def set_cell(value):
        nonlocal cell
        cell = value

    return by_constant, by_element, by_func, set_cell


def results(programs, kernels):
    """What each kernel makes of 1, as one watch after another would see it."""
    import workbench as wb

    found = []
    programs.open()
    for kernel in kernels:
        x = wb.ones(1)
        wb.launch(programs.twin(kernel), 1, [x])
        found.append(float(x.numpy()[0]))
    programs.close()
    return found


def test_what_was_read_is_kept_until_it_changes(monkeypatch):
    from workbench.interop.warp.programs import Programs

    programs = Programs()
    *all, set_cell = kernels()
    assert results(programs, all) == [2, 2, 3]
    before = [programs.twins[id(k)][1].program() for k in all]
    assert results(programs, all) == [2, 2, 3]
    assert [programs.twins[id(k)][1].program() for k in all] == before  # nothing was read anew

    monkeypatch.setitem(globals(), "FACTOR", 5)
    set_cell(7)
    assert results(programs, all) == [5, 2, 7]
    FACTORS[1] = 11
    try:
        assert results(programs, all) == [5, 11, 7]
    finally:
        FACTORS[1] = 2
    assert programs.twins[id(all[1])][1].program() is not before[1]


def test_a_kernel_defined_anew_is_another(monkeypatch):
    from workbench.interop.warp.programs import Programs

    programs = Programs()
    first, second = kernels(), kernels()
    second[-1](8)
    assert results(programs, first[2:3] + second[2:3]) == [3, 8]


def test_memory_of_the_program_is_let_go(monkeypatch):
    import warp

    from workbench.interop.warp.programs import Programs

    programs = Programs()
    a = warp.zeros(4, dtype=float, device="cpu")
    monkeypatch.setitem(globals(), "KEPT", [a, {"again": a}])
    assert results(programs, kernels()[:1]) == [2]
    gone = weakref.ref(a)
    monkeypatch.setitem(globals(), "KEPT", None)
    del a
    gc.collect()
    assert gone() is None
