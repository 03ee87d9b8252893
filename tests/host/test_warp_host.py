"""Programs written for Warp call these on the host: each does what the program needs to compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workbench as wb


@wb.kernel
def step(x: wb.array[float], left: wb.array[int]):
    x[0] = 0.5 * x[0] * x[0]
    left[0] = left[0] - 1


def test_claims_hold_or_raise_on_the_host():
    wb.expect_eq(wb.vec2(1.0, 2.0), wb.vec2(1.0, 2.0))
    wb.expect_near(1.0, 1.0 + 1e-8)
    wb.expect_near(np.zeros(3), np.full(3, 0.1), 0.2)
    for wrong in (lambda: wb.expect_eq(1, 2), lambda: wb.expect_neq(3, 3), lambda: wb.expect_near(0.0, float("nan"))):
        with pytest.raises(AssertionError, match="expect_"):
            wrong()


def test_a_loop_that_memory_decides_is_recorded_turn_by_turn():
    x, left = wb.array([3.0], requires_grad=True), wb.array([2])
    with wb.Tape() as tape:
        y = wb.clone(x)
        wb.capture_while(left, while_body=lambda a: wb.launch(step, 1, [a, left]), a=y)
    tape.backward(grads={y: wb.ones(1)})
    assert y.item() == 0.5 * 4.5**2
    assert x.grad.item() == 4.5 * 3.0


def test_a_condition_takes_one_branch():
    x = wb.zeros(1)
    wb.capture_if(wb.array([0]), on_true=lambda: x.fill_(1.0), on_false=lambda v: x.fill_(v), v=2.0)
    assert x.item() == 2.0
    wb.capture_if(wb.array([0]), on_true=lambda: x.fill_(7.0))
    assert x.item() == 2.0


def test_what_memory_decides_is_refused_under_a_tape_in_a_capture():
    left = wb.array([2])
    with pytest.raises(wb.LaunchError, match=r"capture_while(.|\n)*\[capture\]"), wb.capture(), wb.Tape():
        wb.capture_while(left, lambda: None)


def test_begin_and_end_make_the_graph_of_what_ran_between():
    x, left = wb.array([2.0]), wb.array([9])
    wb.launch(step, 1, [x, left])
    wb.capture_begin(device="cpu", force_module_load=False)
    wb.launch(step, 1, [x, left])
    graph = wb.capture_end()
    wb.capture_launch(graph)
    assert isinstance(graph, wb.Graph) and left.item() == 7
    with pytest.raises(wb.LaunchError, match=r"capture_begin(.|\n)*\[capture\]"):
        wb.capture_end()


def test_streams_and_events_keep_the_order():
    stream, x = wb.Stream(), wb.zeros(1)
    start, end = wb.Event(enable_timing=True), wb.Event(enable_timing=True)
    with wb.ScopedStream(stream):
        assert wb.get_stream() is stream
        wb.record_event(start)
        x.fill_(1.0)
        stream.record_event(end)
    assert wb.get_stream() is not stream
    wb.wait_event(end)
    wb.synchronize_event(end)
    assert x.item() == 1.0 and wb.get_event_elapsed_time(start, end) >= 0.0


def test_a_timer_says_its_time_on_the_log_only(caplog, capsys):
    times: dict = {}
    with caplog.at_level("INFO", "workbench"), wb.ScopedTimer("a step", dict=times, synchronize=True) as timer:
        pass
    assert times["a step"] == [timer.elapsed] and "a step took" in caplog.text
    with wb.ScopedTimer("off", active=False) as off:
        pass
    assert off.elapsed == 0.0 and capsys.readouterr() == ("", "")


def test_module_options_are_noted_and_unknown_ones_refused():
    wb.set_module_options({"enable_backward": False, "fast_math": True})
    assert wb.get_module_options()["fast_math"] is True and wb.get_module(__name__).options["enable_backward"] is False
    with pytest.raises(wb.LaunchError, match=r"enable_backwards(.|\n)*module-option"):
        wb.set_module_options({"enable_backwards": False})
    x = wb.array([3.0], requires_grad=True)
    with wb.Tape() as tape:
        y = wb.clone(x)
        wb.launch(step, 1, [y, wb.array([1])])
    tape.backward(grads={y: wb.ones(1)})
    assert x.grad.item() == 3.0  # there is always an adjoint
    assert wb.load_module(__name__).load("cpu") is wb.get_module(__name__)


def test_switches_of_warp_are_kept_and_those_with_a_meaning_have_it():
    wb.config.quiet = True
    wb.config.max_unroll = 4
    assert wb.config.quiet is True and wb.config.max_unroll == 4 and wb.config.version.startswith("1.")
    wb.config.mode = "release"
    assert wb.config.check_bounds is False and wb.config.mode == "release"
    wb.config.mode = "debug"
    assert wb.config.check_bounds is True and wb.config.mode == "debug"
    wb.config.kernel_cache_dir = None
    with pytest.raises(wb.LaunchError, match="diagnose"):
        wb.config.verify_fp = True
    with pytest.raises(wb.LaunchError, match="no switch"):
        wb.config.quite = True
    wb.config.reset()
    assert wb.config.quiet is False and wb.config.check_bounds is True


@pytest.mark.needs_warp
def test_every_switch_of_warp_is_known():
    import types

    import warp

    names = [n for n in vars(warp.config) if not n.startswith("_") and n[0].islower()]
    missing = [
        n for n in names if not isinstance(getattr(warp.config, n), types.ModuleType) and not hasattr(wb.config, n)
    ]
    assert [n for n in missing if n not in ("annotations",)] == []


def test_old_spellings_of_new_arrays():
    assert wb.zeros(n=3).shape == (3,) and wb.empty(n=2, pinned=True).shape == (2,)
    assert wb.ones(n=2).list() == [1, 1] and wb.full(n=2, value=7).list() == [7, 7]
    with pytest.raises(wb.LaunchError, match="takes a shape"):
        wb.zeros(dtype=float)


def test_devices_by_warp_s_names():
    assert wb.is_cpu_available() and wb.is_device_available("cpu") and not wb.is_device_available("cuda:99")
    assert len(wb.get_cuda_devices()) == wb.get_cuda_device_count()
    assert isinstance(wb.get_device(), wb.Device)
    with pytest.raises(wb.LaunchError, match="device"):
        wb.get_cuda_device(99)


def test_modules_of_warp_are_imported_under_their_names():
    import workbench.autograd
    import workbench.optim.linear
    import workbench.render
    import workbench.sim.model
    import workbench.types
    from workbench.fem import Grid2D  # type: ignore[import-not-found]
    from workbench.geometry import IsoSurfaceMarchingCubes  # type: ignore[attr-defined]
    from workbench.utils import array_scan  # type: ignore[import-not-found]

    assert array_scan is wb.utils.array_scan and workbench.types.vector is wb.types.vector
    assert workbench.autograd is wb.autograd and workbench.optim.linear.cg is wb.optim.linear.cg
    for made in (workbench.render.UsdRenderer, workbench.sim.model.Model, Grid2D, IsoSurfaceMarchingCubes):
        with pytest.raises(wb.LaunchError, match=r"(render|sim.model|fem|geometry)\.(.|\n)*\[not-here\]"):
            made("stage.usd")


def test_a_module_that_nobody_has_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        __import__("workbench.rendering")


def test_files_of_the_examples_are_those_of_the_wheel(monkeypatch):
    pytest.importorskip("warp")
    assert (Path(wb.examples.get_asset_directory()) / "bunny.usd").exists()
    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda name: None)
    with pytest.raises(wb.LaunchError, match=r"warp-lang(.|\n)*\[not-here\]"):
        wb.examples.get_source_directory()
