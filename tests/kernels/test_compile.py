"""Compilers, the cache on disk and the pool of threads: what is built once is found again, and nothing breaks it."""

import errno
import os
import shlex
import stat
import subprocess
import sys
import tempfile
import termios
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import CHOSEN
from workbench.arrays import capture_log
from workbench.kernels.compile import c_compiler, c_library, disk_cache, nvrtc, thread_pool
from workbench.kernels.compile.compile_error import CompileError

ROOT = Path(__file__).resolve().parents[2]

ADD = """
typedef __INT64_TYPE__ int64_t;
/* line 1 */
void add(const void *block, int64_t begin, int64_t end) {
    double *x = *(double *const *)block;
    for (int64_t i = begin; i < end; ++i) x[i] += i;
}
"""


def arguments(x):
    return np.array([x.ctypes.data], np.int64).tobytes()


def text(number):
    return ADD + f"int number(void) {{ return {number}; }}\n"


def in_process(code, cache, **more):
    """Start a Python process that builds in the same cache."""
    environment = {**os.environ, "WORKBENCH_CACHE": str(cache), "PYTHONPATH": str(ROOT), **more}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


BUILD = f"""
from workbench.kernels.compile import c_compiler, c_library
import numpy as np
text = {ADD!r}
path = c_compiler.build(text)
x = np.zeros(5)
c_library.load(text, "add")(np.array([x.ctypes.data], np.int64).tobytes(), 0, 5)
assert x.tolist() == [0, 1, 2, 3, 4], x
print(path.name)
"""


# ---- compiling and caching


@pytest.mark.needs_cc
def test_a_text_is_compiled_once_and_loaded_once(cache, monkeypatch):
    first = c_library.load(text(1), "add")
    assert c_library.load(text(1), "add") is first
    monkeypatch.setattr(c_compiler, "_compile", lambda *a: pytest.fail("compiled again"))
    monkeypatch.setattr(c_library, "_loaded", {})
    x = np.zeros(4)
    c_library.load(text(1), "add")(arguments(x), 1, 3)
    assert x.tolist() == [0, 1, 2, 0]


@pytest.mark.needs_cc
def test_a_warm_load_reads_one_file_and_starts_no_process(cache, monkeypatch):
    path, plain, read = c_compiler.build(text(2)), disk_cache.read_sealed, []
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("started a process"))
    monkeypatch.setattr(c_compiler, "read_sealed", lambda file: read.append(file) or plain(file))
    c_library.load(text(2), "add")
    c_library.load(text(2), "add")
    assert read == [path]


@pytest.mark.needs_cc
def test_comments_do_not_count_but_flags_and_text_do(cache):
    plain = c_compiler.key(ADD)
    assert c_compiler.key(ADD.replace("/* line 1 */", "/* line 9: x */")) == plain
    assert c_compiler.key(ADD, ("-g",)) != plain
    assert c_compiler.key(ADD.replace("+= i", "-= i")) != plain


@pytest.mark.needs_cc
def test_loops_over_tiles_are_not_written_out_by_gcc(cache):
    used = c_compiler.compiler()
    spare = c_compiler.SPARING if used.is_gcc else used.flags_for("")[-4:]
    assert used.flags_for("WB_TILE(k, 9) x[k] = 0;")[-4:] == spare
    assert "--param" not in used.flags_for("x[k] = 0;")


def test_the_key_depends_on_the_compiler_and_the_processor(cache, monkeypatch):
    plain = c_compiler.key(ADD)
    monkeypatch.setattr(c_compiler.platform, "processor", lambda: "another")
    other = c_compiler.key(ADD)
    monkeypatch.setattr(c_compiler, "compiler", lambda: c_compiler.Compiler(("cc",), "cc 99"))
    assert len({plain, other, c_compiler.key(ADD)}) == 3


@pytest.mark.needs_cc
@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "text"])
def test_a_damaged_file_is_built_again(cache, damage):
    path = c_compiler.build(text(3))
    good = path.read_bytes()
    path.write_bytes(
        {
            "truncated": good[: len(good) // 2],
            "empty": b"",
            "text": b"no library",
            "flipped": good[:1000] + bytes([good[1000] ^ 1]) + good[1001:],
        }[damage]
    )
    assert c_compiler.build(text(3)) == path
    assert disk_cache.read_sealed(path) is not None
    x = np.zeros(2)
    c_library.load(text(3), "add")(arguments(x), 0, 2)
    assert x.tolist() == [0, 1]


@pytest.mark.needs_cc
def test_a_refused_text_says_what_the_compiler_said(cache):
    with pytest.raises(CompileError, match=r"(?s)fault.* 2 int f\(void\).*undeclared.*\[compiler\]"):
        c_compiler.build("\nint f(void) { return nothing_of_that_name; }\n")
    assert not [file for file in cache.iterdir() if file.suffix != ".version"]


@pytest.mark.slow
@pytest.mark.needs_cc
def test_many_processes_may_compile_one_text_at_once(cache):
    started = [in_process(BUILD, cache) for _ in range(4)]
    names = set()
    for process in started:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        names.add(out.strip())
    assert len(names) == 1
    assert [p.name for p in cache.glob("*.so")] == list(names)
    assert {p.suffix for p in cache.iterdir()} <= {".so", ".version"}


# A child is killed at its first, second, third ... dealing with files and processes; then another one must manage.
KILLED = f"""
import os, signal, sys
from workbench.kernels.compile import c_compiler, c_library, disk_cache
text, root, seen = {ADD!r}, os.environ["WORKBENCH_CACHE"], 0
c_compiler.key(text)
WATCHED = ("open", "subprocess.Popen", "os.chmod", "os.rename", "os.remove", "os.mkdir", "os.listdir")
def watch(event, args):
    global seen
    if event in WATCHED:
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)
def ended(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]
def build():
    sys.addaudithook(watch)
    c_compiler.build(text)
def use():
    c_library.load(text, "add")
    left = [name for name in os.listdir(disk_cache.cache_directory()) if not name.endswith((".so", ".tmp", ".version"))]
    assert not left, left
for moment in range(1, 100):
    os.environ["WORKBENCH_CACHE"] = f"{{root}}/{{moment}}"
    how = ended(build)
    assert ended(use) == 0, moment
    if how == 0:
        break
    assert how == signal.SIGKILL, (moment, how)
print(moment)
"""


@pytest.mark.slow
@pytest.mark.needs_cc
def test_a_kill_at_any_moment_leaves_nothing_broken(cache):
    process = in_process(KILLED, cache)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert 5 < int(out) < 99


@pytest.mark.needs_cc
def test_what_a_kill_left_behind_is_removed_when_it_is_old(cache):
    c_compiler.build(text(5))
    old, new = cache / "old.tmp", cache / "new.tmp"
    for file in (old, new):
        file.write_text("half")
    os.utime(old, (0, 0))
    disk_cache._sweep.cache_clear()
    c_compiler.build(text(5))
    assert old.exists(), "a process that finds what it needs does not look through the cache"
    c_compiler.build(text(6))
    assert not old.exists() and new.exists()


# ---- the directory


@pytest.mark.needs_cc
def test_the_cache_is_private(cache):
    path = c_compiler.build(text(4))
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert not path.stat().st_mode & 0o077


@pytest.mark.needs_cc
def test_a_cache_that_others_could_write_is_emptied_and_closed(cache):
    cache.mkdir()
    cache.chmod(0o777)
    planted = cache / f"{c_compiler.key(text(5))}.so"
    planted.write_bytes(disk_cache.sealed(planted.name, b"planted"))
    planted.chmod(0o700)
    c_library.load(text(5), "add")
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert b"planted" not in planted.read_bytes()


def test_a_cache_of_another_user_is_refused(cache, monkeypatch):
    cache.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CompileError, match="cache-owner"):
        disk_cache.cache_directory()


def test_a_cache_that_cannot_be_made_gives_way_to_a_temporary_one(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file" / "cache"))
    directory = disk_cache.cache_directory()
    assert directory.is_dir() and stat.S_IMODE(directory.stat().st_mode) == 0o700
    directory.rmdir()


def test_the_cache_lies_where_the_user_says(monkeypatch):
    monkeypatch.delenv("WORKBENCH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert disk_cache.cache_path() == Path("/somewhere/workbench")
    monkeypatch.setenv("WORKBENCH_CACHE", "/elsewhere")
    assert disk_cache.cache_path() == Path("/elsewhere")


# ---- the pool


@pytest.mark.needs_cc
@pytest.mark.parametrize("cells", [0, 1, 2, 3, 7, 1000])
def test_the_pool_runs_every_cell_once(cells):
    compiled = c_library.load(ADD, "add")
    x = np.zeros(cells + 1)
    for threads in (1, 2, 3, 8):
        x[:] = 0
        for _ in range(50):
            compiled(arguments(x), 0, cells, threads)
        np.testing.assert_array_equal(x, [*(50.0 * np.arange(cells)), 0])


@pytest.mark.slow
@pytest.mark.needs_cc
def test_the_pool_sleeps_when_there_is_no_work(cache):
    """Seen by the scheduler: the states of all threads of a process that has just used the pool."""
    process = in_process(
        BUILD
        + """
import time
from pathlib import Path
x = np.zeros(100)
c_library.load(text, "add")(np.array([x.ctypes.data], np.int64).tobytes(), 0, 100, 4)
def asleep():
    states = [file.read_text().rpartition(")")[2].split()[0] for file in Path("/proc/self/task").glob("*/stat")]
    return len(states) >= 4 and states.count("R") == 1  # this one
until = time.monotonic() + 60
while not asleep():
    assert time.monotonic() < until, "a thread of the pool never sleeps"
    time.sleep(0.01)
""",
        cache,
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


@pytest.mark.needs_cc
def test_two_python_threads_may_use_the_pool_at_once():
    from concurrent.futures import ThreadPoolExecutor

    compiled = c_library.load(ADD, "add")
    arrays = [np.zeros(1000) for _ in range(4)]

    def work(x):
        for _ in range(200):
            compiled(arguments(x), 0, 1000, 3)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, arrays))
    for x in arrays:
        np.testing.assert_array_equal(x, 200.0 * np.arange(1000))


@pytest.mark.slow
@pytest.mark.needs_cc
def test_a_forked_child_makes_a_pool_of_its_own(cache):
    process = in_process(
        BUILD
        + """
import ctypes
import errno
import os
import re
compiled = c_library.load(text, "add")
def run():
    x = np.zeros(1000)
    compiled(np.array([x.ctypes.data], np.int64).tobytes(), 0, 1000, 4)
    return x.tolist() == list(range(1000))
assert run()
child = os.fork()
if child == 0:
    os._exit(0 if run() else 1)
assert os.waitpid(child, 0)[1] == 0
assert run()
""",
        cache,
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


@pytest.mark.slow
@pytest.mark.needs_cc
def test_a_forked_child_does_not_wait_for_what_its_parent_compiles(cache):
    process = in_process(
        """
import os, signal
from concurrent.futures import Future
from workbench.kernels.compile import c_library
whole, pending = Future(), Future()
whole.set_result(1)
c_library._coming.append(pending)
assert not c_library.lost(pending) and not c_library.lost(whole)
child = os.fork()
if child == 0:
    os._exit(0 if c_library.lost(pending) and not c_library.lost(whole) else 1)
assert os.waitpid(child, 0)[1] == 0
assert not c_library.lost(pending)
""",
        cache,
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(cache):
    process = in_process(
        """
import os, threading
from workbench.arrays import allocation
held, forked = threading.Event(), threading.Event()
def launch():
    with allocation.LOCK:
        held.set()
        forked.wait(0.3)  # a fork that waits for the lock comes after this
threading.Thread(target=launch).start()
held.wait()
child = os.fork()
if child == 0:
    found = []
    def look():
        found.append(allocation.LOCK.acquire(timeout=30))
        allocation.LOCK.release()
    other = threading.Thread(target=look)
    other.start()
    other.join()
    os._exit(0 if allocation.LOCK.acquire(timeout=30) and found == [True] else 1)
forked.set()
assert os.waitpid(child, 0)[1] == 0
assert allocation.LOCK.acquire(timeout=30)
""",
        cache,
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


# ---- CUDA, as far as it goes without a GPU

CUDA = 'extern "C" __global__ void add(double *x) { x[threadIdx.x] += 1.0; }\n'


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nvrtc_makes_a_cubin_without_a_gpu(cache, arch):
    code = nvrtc.to_cubin(CUDA, arch)
    assert code[:4] == b"\x7fELF" and b"add" in code


@pytest.mark.needs_nvrtc
def test_a_cubin_is_kept_on_disk(cache, monkeypatch):
    code = nvrtc.to_cubin(CUDA, "sm_80")
    monkeypatch.setattr(nvrtc, "_compile", lambda *a: pytest.fail("compiled again"))
    assert nvrtc.to_cubin("/* moved */\n" + CUDA, "sm_80") == code


@pytest.mark.needs_nvrtc
def test_what_nvrtc_refuses_is_told_with_its_log(cache):
    with pytest.raises(CompileError, match=r"(?s)   1 broken.*\[compiler\]"):
        nvrtc.to_cubin("broken\n", "sm_80")


@pytest.mark.slow
def test_the_compilers_import_without_cupy(cache):
    process = in_process(
        """
        import sys
        sys.modules["cupy"] = sys.modules["cupy_backends"] = None
        from workbench.kernels.compile import c_compiler, nvrtc
        from workbench.kernels.emit import cuda
        nvrtc.available()
        """,
        cache,
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


@pytest.mark.needs_gpu
@pytest.mark.skipif(CHOSEN == "stand-in", reason="machine code of a GPU")
def test_a_kernel_runs_on_a_gpu():
    import cupy

    x = cupy.zeros(1000)
    code = """
    struct block { double *x; long long n; };
    extern "C" __global__ void add(const block args) {
        long long step = gridDim.x * blockDim.x;
        for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < args.n; i += step) args.x[i] += i;
    }
    """
    loaded = nvrtc.load(code, "add")
    packed = np.array([x.data.ptr, 1000], np.int64).tobytes()
    loaded.launch(packed, 1000)
    loaded.launch(packed, 1000, most_threads=256)
    np.testing.assert_array_equal(x.get(), 2.0 * np.arange(1000))


# --- several at once


SLOW = """
import numpy as np
import workbench as wb

@wb.kernel
def cube(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i] * x[i]

x, y = wb.array(np.array([1.0, 2.0], np.float32), requires_grad=True), wb.zeros(2, requires_grad=True)
with wb.Tape() as tape:
    wb.launch(cube, 2, inputs=[x, y])
tape.backward(grads={y: wb.ones(2)})
print(x.grad.numpy().tolist())
"""


@pytest.mark.slow
def test_a_kernel_and_its_adjoint_compile_side_by_side_and_long_waits_show_a_bar(tmp_path):
    """The compiler here goes on when a second one has begun, and then takes long."""
    slow, begun = tmp_path / "slow-cc", tmp_path / "begun"
    begun.mkdir()
    wait = f"touch {begun}/$$; n=0; until [ $(ls {begun} | wc -l) -ge 2 ]; do n=$((n+1)); [ $n -lt 1200 ] || exit 9; "
    wait += "sleep 0.1; done; sleep 2"
    real = shlex.join(c_compiler.compiler().command)
    slow.write_text(f'#!/bin/sh\ncase "$*" in *-###*) ;; *) {wait};; esac\nexec {real} "$@"\n')
    slow.chmod(0o755)
    file = tmp_path / "cube.py"
    file.write_text(SLOW)
    environment = {**os.environ, "CC": str(slow), "WORKBENCH_CACHE": str(tmp_path / "cache")}
    screen, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    done = subprocess.run(
        [sys.executable, file], env=environment, stdout=subprocess.PIPE, stderr=terminal, text=True, check=True
    )
    os.close(terminal)
    assert done.stdout == "[3.0, 12.0]\n"
    assert len(list(begun.iterdir())) == 2 and b"compiling kernels" in os.read(screen, 1 << 16)
    os.close(screen)


def test_every_piece_of_a_job_is_done_once_whatever_the_team(monkeypatch):
    monkeypatch.setattr(thread_pool.loss(), "value", 0)
    random = np.random.default_rng(1)
    to, ones = np.zeros(997, np.float32), np.ones(997, np.float32)
    args = np.array([to.ctypes.data, ones.ctypes.data], np.uint64)
    kernel = thread_pool.kernel_address("wb_add32")
    jobs = np.zeros((20_000, 5), np.int64)
    expected = np.zeros_like(to)
    for k in range(len(jobs)):
        begin, end = sorted(random.integers(0, 998, 2))
        team = thread_pool.team(int(random.integers(1, 8)), int(random.integers(1, 5)))
        jobs[k] = capture_log.NativeCall(kernel, args.ctypes.data, begin, end, team)
        expected[begin:end] += 1

    beside = np.zeros_like(to)
    others = np.array([beside.ctypes.data, ones.ctypes.data], np.uint64)

    def again() -> None:  # a second caller, while the pool is taken or not
        for _ in range(2000):
            thread_pool.parallel()(kernel, others.tobytes(), 0, 997, thread_pool.team(3))

    second = threading.Thread(target=again)
    second.start()
    thread_pool.replay()(jobs.ctypes.data, len(jobs))
    second.join()
    assert np.array_equal(to, expected)
    assert (beside == 2000).all()


# ---- a cache that cannot be written to

FULL = """#!/bin/sh
case "$*" in *CACHE*) echo "ld: final link failed: No space left on device" >&2; exit 1;; esac
exec cc "$@"
"""


@pytest.fixture
def fresh(monkeypatch):
    """Nothing is known yet of any cache."""
    monkeypatch.setattr(disk_cache, "_instead", {})
    monkeypatch.setattr(wb.config, "backend", "c")
    c_compiler.compiler.cache_clear()
    yield
    c_compiler.compiler.cache_clear()


def squares(number: float):
    @wb.kernel
    def k(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = x[i] * x[i] * number

    x, y = wb.array([2.0], requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(k, dim=1, inputs=[x, y])
    tape.backward(grads={y: wb.ones(1)})
    return float(y.numpy()[0]), float(x.grad.numpy()[0])


def said(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if "kernels are kept for this process only" in r.getMessage()]


def test_a_compiler_that_finds_the_disk_full_writes_to_memory(fresh, monkeypatch, tmp_path, caplog):
    cache, compiler = tmp_path / "CACHE", tmp_path / "compiler"
    compiler.write_text(FULL)
    compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    wb.config.cache_dir = cache
    assert squares(3.25) == (13.0, 13.0)
    assert squares(5.25) == (21.0, 21.0)
    assert len(said(caplog)) == 1
    assert "No space left" in said(caplog)[0]
    assert not list(cache.glob("*.so"))


def test_a_disk_that_is_full_when_the_kernel_is_kept(fresh, monkeypatch, tmp_path, caplog):
    wb.config.cache_dir = tmp_path
    write = Path.write_bytes

    def full(path, data):
        if tmp_path in path.parents:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    assert squares(7.25) == (29.0, 29.0)
    assert squares(9.25) == (37.0, 37.0)
    assert len(said(caplog)) == 1
    assert not list(tmp_path.iterdir())


def test_a_cache_below_a_file_cannot_be_made(fresh, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    wb.config.cache_dir = tmp_path / "file" / "cache"
    assert squares(11.25) == (45.0, 45.0)
    assert len(said(caplog)) == 1


def test_nowhere_to_write_is_said(fresh, monkeypatch, tmp_path):
    def nothing(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", nothing)
    with pytest.raises(OSError, match="No space left"):
        disk_cache.give_up(tmp_path, OSError(errno.ENOSPC, "No space left on device"))


@pytest.mark.needs_cc
def test_a_library_under_the_name_of_another_one_is_built_anew(cache):
    one, other = c_compiler.build(text(6)), c_compiler.build(text(7))
    right = other.read_bytes()
    other.write_bytes(one.read_bytes())
    assert c_compiler.build(text(7)) == other and other.read_bytes()[:64] == right[:64]
    assert disk_cache.read_sealed(other) is not None


@pytest.mark.needs_cc
def test_a_compiler_that_writes_nothing_is_said_to(cache, monkeypatch):
    monkeypatch.setattr(c_compiler, "_run", lambda *_: (0, ""))
    with pytest.raises(CompileError, match="wrote nothing"):
        c_compiler.build(text(8))


def test_a_cache_may_be_a_link_and_no_file(tmp_path, monkeypatch, caplog):
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "link"))
    assert os.path.samefile(disk_cache.cache_directory(), tmp_path / "there")
    assert not caplog.records
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file"))
    directory = disk_cache.cache_directory()
    assert directory.is_dir()
    assert (tmp_path / "file").stat().st_mode & 0o077  # untouched
    directory.rmdir()
