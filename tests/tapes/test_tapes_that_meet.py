"""Tapes that meet: inside one another, in other threads and tasks, closed in another order. Exact, or refused."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import ONE, F, X, cube, empty, leaf, seed, square, times
from workbench.errors import GradientError, LaunchError


@wb.kernel
def added(x: wb.array(dtype=F), loss: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i] * x[i])


def refused(tape: wb.Tape, y: wb.array, slug: str) -> GradientError:
    with pytest.raises(GradientError) as error:
        tape.backward(grads={y: seed(*np.ones(y.size))})
    assert error.value.slug == slug
    return error.value


# ---- inside one another


def stores(y, x):
    wb.launch(cube, 4, [x], [y])


def constants(y, x):
    wb.launch(square, 4, [wb.ones(4, dtype=F)], [y])


def copies(y, x):
    wb.copy(y, x)


def fills(y, x):
    y.fill_(2.0)


@pytest.mark.parametrize("write", [stores, constants, copies, fills])
@pytest.mark.parametrize("keep", ["needed", "all"])
def test_a_tape_inside_that_overwrites_a_result_is_refused_by_its_line(write, keep, backend):
    x, y = leaf(), empty()
    with wb.Tape(keep=keep) as tape:
        wb.launch(square, 4, [x], [y])
        with wb.Tape():
            write(y, x)
    error = refused(tape, y, "nested-tape")
    assert "y was written by a tape inside this one" in str(error) and error.where.file == __file__


def test_a_tape_inside_that_adds_to_a_loss_is_refused(backend):
    x, loss = leaf(), empty(1)
    with wb.Tape() as tape:
        wb.launch(added, 4, [x], [loss])
        with wb.Tape() as inner:
            wb.launch(added, 4, [x], [loss])
    refused(tape, loss, "nested-tape")
    refused(inner, loss, "nested-tape")


def test_a_tape_inside_that_writes_elsewhere_takes_nothing_away(backend):
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as tape:
        wb.launch(square, 4, [x], [y])
        with wb.Tape():
            wb.launch(cube, 4, [x], [z])
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 2 * X)


def test_a_leaf_that_a_tape_inside_overwrites_stays_a_leaf():
    x, y, z = leaf(), empty(), empty()
    with wb.Tape(keep="all") as tape:
        wb.launch(square, 4, [x], [y])
        with wb.Tape():
            wb.copy(x, z)
    for turn in (1, 2):  # leaves add up
        tape.backward(grads={y: seed(*ONE)})
        np.testing.assert_allclose(x.grad.numpy(), turn * 2 * X)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize(
    "walks, slopes",
    [
        ("11", [1, 2]),
        ("121", [1, 0, 1]),
        ("211", [0, 1, 2]),
        ("112", [1, 2, 0]),
        ("22", [0, 0]),
        ("2121", [0, 1, 0, 1]),
    ],
)
def test_each_tape_adds_to_its_leaves_and_replaces_what_it_wrote(nested, walks, slopes):
    """x is a leaf of the first tape, and what the second one wrote: there it is 0, as a copy forgets what was there."""
    x, z, y = leaf(), leaf(), empty()
    one, two = wb.Tape(keep="all"), wb.Tape()
    with one:
        wb.launch(square, 4, [x], [y])
        if nested:
            with two:
                wb.copy(x, z)
    if not nested:
        with two:
            wb.copy(x, z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, (walk, slope) in enumerate(zip(walks, slopes, strict=True)):
            (one if walk == "1" else two).backward(grads={y if walk == "1" else x: seed(*ONE)})
            np.testing.assert_allclose(x.grad.numpy(), slope * 2 * X)
            np.testing.assert_allclose(z.grad.numpy(), walks[: n + 1].count("2") * ONE)


# ---- threads and tasks


@pytest.mark.parametrize("what", ["launch", "copy", "adds"])
def test_what_other_threads_do_to_active_memory_is_refused_by_their_line(what, backend):
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as tape, ThreadPoolExecutor(1) as pool:
        wb.launch(square, 4, [x], [y])
        if what == "launch":
            pool.submit(lambda: wb.launch(square, 4, [y], [z])).result()
        elif what == "copy":
            pool.submit(lambda: wb.copy(z, y)).result()
        else:
            pool.submit(lambda: wb.launch(added, 4, [x], [y])).result()
            z = y
        if what != "adds":
            wb.launch(square, 4, [z], [y])
    error = refused(tape, y, "tape-thread")
    assert "pool.submit" in error.where.text and "with tape:" in str(error)


def test_a_write_of_the_host_before_it_hides_nothing_of_what_another_thread_does(backend):
    x, y, z, w = leaf(), empty(), empty(), empty()
    with wb.Tape() as tape, ThreadPoolExecutor(1) as pool:
        wb.launch(square, 4, [x], [y])
        w.assign(y.numpy() * 2.0)  # a constant, which nothing reads
        pool.submit(lambda: wb.launch(square, 4, [y], [z])).result()
        wb.launch(square, 4, [z], [y])
    assert "pool.submit" in refused(tape, y, "tape-thread").where.text


def test_other_threads_may_do_what_is_none_of_the_tapes_business(backend):
    x, y, a, b = leaf(), empty(), leaf(), empty()
    with wb.Tape() as tape, ThreadPoolExecutor(1) as pool:
        wb.launch(square, 4, [x], [y])
        pool.submit(lambda: wb.launch(square, 4, [a], [b])).result()
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 2 * X)
    assert not a.grad.numpy().any()


def test_a_thread_that_opens_the_tape_is_recorded(backend):
    xs, loss = [leaf(X + k) for k in range(3)], empty(1)

    def work(x):
        with tape:
            wb.launch(added, 4, [x], [loss])

    with wb.Tape() as tape, ThreadPoolExecutor(2) as pool:
        wb.launch(added, 4, [xs[0]], [loss])
        list(pool.map(work, xs[1:]))
    tape.backward(loss)
    for k, x in enumerate(xs):
        np.testing.assert_allclose(x.grad.numpy(), 2 * (X + k))


def test_a_thread_that_runs_in_the_context_of_the_tape_is_recorded(backend):
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(wb.launch, square, 4, [x], [y]))
        thread.start()
        thread.join()
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 2 * X)


def test_each_task_records_on_its_own_tape(backend):
    async def one(k):
        x, y, z = leaf(X + k), empty(), empty()
        with wb.Tape() as tape:
            wb.launch(square, 4, [x], [y])
            await asyncio.sleep(0.001 * (3 - k))
            wb.launch(times, 4, [x, y], [z])
            await asyncio.sleep(0)
        tape.backward(grads={z: seed(*ONE)})
        return len(tape), x.grad.numpy().copy()

    async def all_of_them():
        return await asyncio.gather(*map(one, range(4)))

    with ThreadPoolExecutor(1) as pool:  # this thread may have a loop of its own
        found = pool.submit(lambda: asyncio.run(all_of_them())).result()
    for k, (length, grad) in enumerate(found):
        assert length == 2
        np.testing.assert_allclose(grad, 3 * (X + k) ** 2)


def test_tapes_that_are_closed_in_another_order_are_refused():
    x, y, z = leaf(), empty(), empty()

    def program(y):
        with wb.Tape() as tape:
            yield tape
            wb.launch(square, 4, [x], [y])
            yield tape

    one, other = program(y), program(z)
    tapes = next(one), next(other)
    next(one), next(other)
    one.close(), other.close()
    for tape in tapes:
        if tape.events:
            refused(tape, z, "tapes-crossed")
    assert any(tape.events for tape in tapes)


def test_a_tape_is_closed_where_it_was_opened():
    tape = wb.Tape()
    tape.__enter__()
    with ThreadPoolExecutor(1) as pool, pytest.raises(LaunchError) as error:
        pool.submit(tape.__exit__, None, None, None).result()
    assert error.value.slug == "tape-closed"
    tape.__exit__(None, None, None)
    with pytest.raises(LaunchError):
        tape.__exit__(None, None, None)
