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

    from workbench.warp.watch.rebind import Rebinder

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
    import changing

    from workbench.warp.watch.rebind import Programs

    programs = Programs()
    *all, set_cell = changing.kernels()
    assert results(programs, all) == [2, 2, 3]
    before = [programs.twins[id(k)][1].program() for k in all]
    assert results(programs, all) == [2, 2, 3]
    assert [programs.twins[id(k)][1].program() for k in all] == before  # nothing was read anew

    monkeypatch.setattr(changing, "FACTOR", 5)
    set_cell(7)
    assert results(programs, all) == [5, 2, 7]
    changing.FACTORS[1] = 11
    assert results(programs, all) == [5, 11, 7]
    assert programs.twins[id(all[1])][1].program() is not before[1]


def test_memory_of_the_program_is_let_go(monkeypatch):
    import changing
    import warp

    from workbench.warp.watch.rebind import Programs

    programs = Programs()
    a = warp.zeros(4, dtype=float, device="cpu")
    monkeypatch.setattr(changing, "KEPT", [a, {"again": a}])
    assert results(programs, changing.kernels()[:1]) == [2]
    gone = weakref.ref(a)
    changing.KEPT = None
    del a
    gc.collect()
    assert gone() is None


def test_a_function_that_keeps_the_funcs_it_made_is_followed():
    import changing

    from workbench.warp.watch.rebind import Programs

    programs = Programs()
    assert results(programs, [changing.by_factory]) == [4]
    before = programs.twins[id(changing.by_factory)][1].program()
    assert results(programs, [changing.by_factory]) == [4]
    assert programs.twins[id(changing.by_factory)][1].program() is before  # nothing was read anew
