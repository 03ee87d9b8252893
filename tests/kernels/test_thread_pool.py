"""Two threads are never slower than one for long: who is kept waiting runs alone for a while. Counted, not timed."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from workbench.kernels.compile import c_compiler, thread_pool

pytestmark = pytest.mark.needs_cc

# args: the caller's thread; whether its share waits for a worker; microseconds of a caller's and of a worker's share;
# then counted: calls, cells, shares of workers, those before this launch.
TEXT = """
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
void counted(const void *args, int64_t begin, int64_t end) {
    int64_t *a = (int64_t *)args;
    __atomic_fetch_add(&a[4], 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&a[5], end - begin, __ATOMIC_SEQ_CST);
    if (syscall(SYS_gettid) != a[0]) {
        __atomic_fetch_add(&a[6], 1, __ATOMIC_SEQ_CST);
        if (a[3]) usleep(a[3]);
        return;
    }
    if (a[1] && end - begin < 100)
        for (int k = 0; k < 20000 && __atomic_load_n(&a[6], __ATOMIC_SEQ_CST) == a[7]; ++k) sched_yield();
    if (a[2]) usleep(a[2]);
}
"""
CELLS = 100


@pytest.fixture(scope="module")
def counted() -> int:
    library = ctypes.CDLL(str(c_compiler.build(TEXT, ())))
    return ctypes.cast(library.counted, ctypes.c_void_p).value or 0


def shared(counted: int, launches: int, pieces: int, waits: bool, own_us: int, worker_us: int) -> tuple[int, int]:
    """(calls, shares of workers) in so many launches for two threads."""
    args = np.array([threading.get_native_id(), waits, own_us, worker_us, 0, 0, 0, 0], np.int64)
    for _ in range(launches):
        args[7] = args[6]
        thread_pool.parallel()(counted, ctypes.c_char_p(args.ctypes.data), 0, CELLS, thread_pool.team(2, pieces))
    assert args[5] == launches * CELLS, "each cell once"
    return int(args[4]), int(args[6])


@pytest.mark.parametrize("pieces", [1, 4])
def test_launches_whose_workers_do_not_come_back_run_alone(counted, pieces):
    launches = 60
    calls, late = shared(counted, launches, pieces, True, 0, 50_000)
    assert late <= 6
    assert calls <= launches + 10 * pieces


def test_launches_that_gain_are_shared_again_in_the_end(counted, monkeypatch):
    monkeypatch.setattr(thread_pool.loss(), "value", 1)
    shared(counted, 2, 1, True, 0, 5_000)
    launches = 0
    while shared(counted, 1, 1, False, 20, 0)[0] == 1:
        launches += 1
        assert launches < 65536
    calls, _ = shared(counted, 50, 1, False, 1000, 0)
    assert calls == 100


def test_where_losses_do_not_count_all_launches_are_shared(counted, monkeypatch):
    shared(counted, 2, 1, True, 0, 20_000)
    monkeypatch.setattr(thread_pool.loss(), "value", 0)
    calls, _ = shared(counted, 20, 1, True, 0, 2000)
    assert calls == 40
