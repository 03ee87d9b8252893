"""C text -> callable, by the machine's own compiler, a cache on disk and a pool of threads.

A cached file is named by the hash of everything it depends on and carries the hash of its own bytes at its end, so
that a file cut short by a crash is seen and built again. Files are written beside their place and moved into it: two
processes, or one killed in the middle, leave nothing broken. The directory is private, as what is in it gets executed.
The pool's threads look for work for some microseconds and then sleep on a condition: never do they spin on.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import platform
import re
import secrets
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ...config import config

log = logging.getLogger("workbench")

FLAGS = (
    "-O3 -march=native -fPIC -shared -fwrapv -ffp-contract=off -fno-math-errno -fno-trapping-math "
    "-fno-strict-aliasing -fopenmp-simd -w -pipe"
).split()  # fmt: skip
SEAL = b"workbench"
SEAL_SIZE = len(SEAL) + 32
STALE_S = 3600.0


class CompileError(RuntimeError):
    """The compiler refused text that we wrote: a fault of the workbench, never of the user's kernel."""


# ---- the compiler


@dataclass(frozen=True)
class Compiler:
    """A command that compiles C, what identifies it, and the flags it takes beyond `FLAGS`."""

    command: tuple[str, ...]
    identity: str
    flags: tuple[str, ...] = ()


@lru_cache(None)
def compiler() -> Compiler:
    """The C compiler in use: `CC`, else cc, gcc, clang, else the `ziglang` wheel. Raises CompileError without one."""
    wishes = [shlex.split(os.environ.get("CC", "")), ["cc"], ["gcc"], ["clang"]]
    for wish in wishes:
        found = shutil.which(wish[0]) if wish else None
        if found:
            return _native((found, *wish[1:]))
    if importlib.util.find_spec("ziglang") is not None:
        return _zig()
    raise CompileError(
        "no C compiler was found. Kernels run on the NumPy interpreter instead, slowly.\n"
        "Write instead:   pip install ziglang   (or install gcc or clang, or set CC)\n[no-compiler]"
    )


def available() -> bool:
    try:
        compiler()
    except CompileError:
        return False
    return True


def _native(command: tuple[str, ...]) -> Compiler:
    real = os.path.realpath(command[0])
    seen = os.stat(real)
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    return Compiler(command, f"{real} {seen.st_size} {seen.st_mtime_ns} {' '.join(command[1:])} {said}")


def _zig() -> Compiler:
    version = importlib.metadata.version("ziglang")
    log.info("compiling with ziglang %s: its very first kernel takes a few seconds", version)
    return Compiler((sys.executable, "-m", "ziglang", "cc"), f"ziglang {version}", ("-fno-sanitize=undefined",))


@lru_cache(None)
def processor() -> str:
    """What `-march=native` depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    found = re.search(r"^(flags|Features)\s*:.*$", text, re.MULTILINE)
    model = re.search(r"^model name\s*:.*$", text, re.MULTILINE)
    return " ".join(m.group(0) for m in (found, model) if m) or platform.machine()


# ---- the cache on disk


def cache_path() -> Path:
    """Where compiled kernels are kept: `config.cache_dir`, $WORKBENCH_CACHE, else a folder in the user's cache."""
    if config.cache_dir is not None:
        return config.cache_dir
    wish = os.environ.get("WORKBENCH_CACHE")
    if wish:
        return Path(wish)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "workbench"


def cache_directory() -> Path:
    """The cache directory, made if need be, private. Raises CompileError [cache-owner] if it is not ours."""
    path = _prepared(cache_path())
    if not path.is_dir():  # removed meanwhile
        _prepared.cache_clear()
        path = _prepared(cache_path())
    return path


@lru_cache(None)
def _prepared(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_private(path)
    except OSError as e:
        log.warning("the cache %s cannot be used (%s): kernels are kept for this process only", path, e)
        return Path(tempfile.mkdtemp(prefix="workbench-"))
    _sweep(path)
    return path


def _make_private(path: Path) -> None:
    seen = os.lstat(path)
    if not stat.S_ISDIR(seen.st_mode) and not stat.S_ISLNK(seen.st_mode):
        raise OSError(f"{path} is not a directory")
    seen = os.stat(path)
    if hasattr(os, "geteuid") and seen.st_uid != os.geteuid():
        raise CompileError(
            f"the cache directory {path} belongs to another user, who could put code into it.\n"
            f"Write instead:   WORKBENCH_CACHE=/a/directory/of/yours\n[cache-owner]"
        )
    if seen.st_mode & 0o077:
        if seen.st_mode & 0o022:  # others could have planted files: their seals prove nothing
            for file in path.glob("*.*"):
                file.unlink(missing_ok=True)
        os.chmod(path, 0o700)


def _sweep(path: Path) -> None:
    """Remove what killed compilations left behind."""
    for name in os.listdir(path):
        try:
            if name.endswith(".tmp") and time.time() - os.stat(path / name).st_mtime > STALE_S:
                os.unlink(path / name)
        except OSError:
            continue


def sealed(data: bytes) -> bytes:
    return data + SEAL + hashlib.sha256(data).digest()


def read_sealed(path: Path) -> bytes | None:
    """What was written to `path`, if it is all there and was written by us."""
    try:
        with open(path, "rb") as file:
            seen = os.fstat(file.fileno())
            data = file.read()
    except OSError:
        return None
    ours = not hasattr(os, "geteuid") or (seen.st_uid == os.geteuid() and not seen.st_mode & 0o022)
    whole = ours and len(data) > SEAL_SIZE and sealed(data[:-SEAL_SIZE]) == data
    return data[:-SEAL_SIZE] if whole else None


def write_sealed(made: Path, path: Path, data: bytes) -> None:
    """Put `data` at `path` in one step, by way of the file `made` beside it."""
    made.write_bytes(sealed(data))
    made.chmod(0o700)
    os.replace(made, path)


def without_comments(text: str) -> str:
    """What counts of a text: a kernel that moved in its file stays compiled."""
    kept, done = [], 0
    while (start := text.find("/*", done)) >= 0 and (end := text.find("*/", start + 2)) >= 0:
        kept.append(text[done:start].rstrip(" \t"))
        done = end + 2 + text.startswith("\n", end + 2)
    return "".join([*kept, text[done:]])


def key(text: str, flags: tuple[str, ...] = ()) -> str:
    """The name of what `text` compiles to, here."""
    used = compiler()
    parts = [without_comments(text), used.identity, " ".join([*FLAGS, *used.flags, *flags]), processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def build(text: str, flags: tuple[str, ...] = ()) -> Path:
    """The shared library of `text`: from the cache, else compiled into it. Raises CompileError."""
    path = cache_directory() / f"{key(text, flags)}.so"
    if read_sealed(path) is None:
        _compile(text, path, flags)
    return path


def _compile(text: str, path: Path, flags: tuple[str, ...]) -> None:
    made = path.with_name(f"{path.stem}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    used = compiler()
    command = [*used.command, *FLAGS, *used.flags, *flags, "-x", "c", "-", "-o", str(made), "-lm"]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
        if done.returncode != 0:
            raise refused(text, shlex.join(command), done.stderr.decode(errors="replace"))
        write_sealed(made, path, made.read_bytes())
    finally:
        made.unlink(missing_ok=True)


def refused(text: str, command: str, said: str) -> CompileError:
    """The error for text that a compiler did not take: the text with line numbers, and what was said of it."""
    numbered = "\n".join(f"{i:4d} {line}" for i, line in enumerate(text.splitlines(), 1))
    tail = "\n".join(said.splitlines()[-30:])
    return CompileError(
        f"the compiler refused generated code: a fault of workbench, please report it.\n"
        f"{numbered}\n\n{command}\n{tail}\n[compiler]"
    )


# ---- callables


class Compiled:
    """A kernel in machine code. `call(packed, begin, end)` runs on the calling thread, without Python's lock."""

    def __init__(self, path: Path, name: str):
        self.path, self.name = path, name
        self.library = ctypes.CDLL(str(path))
        self.call = getattr(self.library, name)
        self.call.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]
        self.call.restype = None
        self.address = ctypes.cast(self.call, ctypes.c_void_p).value

    def __call__(self, packed: bytes, begin: int, end: int, team: int = 1) -> None:
        """Run the cells [begin, end) of the outermost launch dimension."""
        if team == 1 or end - begin <= 1:
            self.call(packed, begin, end)
        else:
            pool()(self.address, packed, begin, end, team)


_loaded: dict[tuple[str, str, tuple[str, ...]], Compiled] = {}
_lock = threading.Lock()


def load(text: str, name: str, flags: tuple[str, ...] = ()) -> Compiled:
    """The function `name` of `text`, compiled at most once per machine and loaded at most once per process."""
    found = _loaded.get((text, name, flags))
    if found is None:
        found = _kept(Compiled(build(text, flags), name), text, flags)
    return found


def _kept(made: Compiled, text: str, flags: tuple[str, ...]) -> Compiled:
    """The first that was made of `text`."""
    with _lock:
        return _loaded.setdefault((text, made.name, flags), made)


# ---- several at once


_builders: ThreadPoolExecutor | None = None
_coming: list[Future] = []  # that nobody has seen complete


def begin(text: str, name: str) -> Future:
    """`load` in another thread: a compiler is a process of its own, so several run side by side."""
    global _builders
    found = _loaded.get((text, name, ()))
    if found is None:
        path = cache_directory() / f"{key(text)}.so"
        if read_sealed(path) is not None:
            found = _kept(Compiled(path, name), text, ())
    if found is not None:
        done: Future = Future()
        done.set_result(found)
        return done
    if _builders is None:
        _builders = ThreadPoolExecutor(os.cpu_count() or 1, "workbench-compile")
    made = _builders.submit(load, text, name)
    _coming[:] = [f for f in _coming if not f.done()] + [made]
    return made


def coming() -> list[Future]:
    """What is being compiled now."""
    return [f for f in _coming if not f.done()]


def lost(future: Future) -> bool:
    """Will nobody complete it: it was begun by the parent of this forked process."""
    return future not in _coming and not future.done()


def _forked() -> None:
    """The threads of the parent do not exist in a forked child."""
    global _builders, _lock
    _builders, _lock = None, threading.Lock()
    _coming.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


# ---- the pool of threads

POOL = """\
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif
enum { SLOTS = 256, LONG = 20000, SHORT = 200, PATIENCE = 32, LIGHT = 8 };
typedef void (*wb_kernel)(const void *, int64_t, int64_t);
static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static int workers, prepared, spins = LONG; /* about a millisecond: most launches are over before a sleeper wakes */
static uint64_t number, light;
/* `word`: the number of the job << 16 | the pieces of a share << 8 | threads. What stands beside it is read only by
   those who have claimed a piece: it lasts until all pieces are done. */
static struct { uint64_t word; wb_kernel kernel; const void *args; int64_t begin, end, pad[3]; } job
    __attribute__((aligned(64)));
static struct { int sleeping, waiting, pad[14]; } who __attribute__((aligned(64)));
/* Of each thread: how many pieces of its share are claimed, and how many pieces it has done; number << 16 | count. They
   lie apart, since the caller looks at the second all the time. */
static struct { uint64_t claimed, pad[7], did, pad2[7]; } slot[SLOTS] __attribute__((aligned(64)));

static int threads_of(uint64_t word) { return (int)(word & 255); }
static int pieces_of(uint64_t word) { return (int)(word >> 8 & 255); }
static int count_of(uint64_t seen, uint64_t word) { return seen >> 16 == word >> 16 ? (int)(seen & 0xffff) : 0; }

/* The next piece of a share; -1 if none is left, or if the job is over. */
static int claim(int s, uint64_t word) {
    uint64_t seen = __atomic_load_n(&slot[s].claimed, __ATOMIC_ACQUIRE);
    for (;;) {
        int taken = count_of(seen, word);
        if (taken == pieces_of(word) || seen >> 16 > word >> 16) return -1;
        if (__atomic_compare_exchange_n(&slot[s].claimed, &seen, (word >> 16 << 16) + taken + 1, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return taken;
    }
}

static void run(int s, int piece, uint64_t word) {
    int threads = threads_of(word), pieces = pieces_of(word);
    int64_t n = job.end - job.begin;
    int64_t low = job.begin + n * s / threads, size = job.begin + n * (s + 1) / threads - low;
    int64_t begin = low + size * piece / pieces, end = low + size * (piece + 1) / pieces;
    if (begin < end) job.kernel(job.args, begin, end);
}

/* Do what is left of a share: so many pieces. */
static int take(int s, uint64_t word) {
    int count = 0;
    for (int piece; (piece = claim(s, word)) >= 0; ++count) run(s, piece, word);
    return count;
}

/* Each thread has its share, the same in every launch of one form. Where shares have several pieces, who is through
   helps the others; a share of one piece is for its worker, or for the caller when that has waited for a while. */
static void *worker(void *seat) {
    int me = (int)(intptr_t)seat;
    uint64_t seen = 0;
    for (int idle = 0;;) {
        uint64_t word = __atomic_load_n(&job.word, __ATOMIC_ACQUIRE);
        int threads = threads_of(word);
        if (word != seen && me < threads) {
            uint64_t did = word >> 16 << 16;
            for (int k = 0; k < (pieces_of(word) == 1 ? 1 : threads); ++k) {
                did += take(me + k < threads ? me + k : me + k - threads, word);
                __atomic_store_n(&slot[me].did, did, __ATOMIC_SEQ_CST);
            }
            idle = 0;
            if (__atomic_load_n(&who.waiting, __ATOMIC_SEQ_CST)) {
                pthread_mutex_lock(&lock);
                pthread_cond_signal(&done);
                pthread_mutex_unlock(&lock);
            }
        }
        seen = word;
        if (++idle < __atomic_load_n(&spins, __ATOMIC_RELAXED)) { PAUSE(); continue; }
        pthread_mutex_lock(&lock);
        __atomic_fetch_add(&who.sleeping, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&job.word, __ATOMIC_SEQ_CST) == seen) pthread_cond_wait(&wake, &lock);
        __atomic_fetch_sub(&who.sleeping, 1, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

/* The threads of the parent do not exist in a forked child. */
static void forked(void) {
    pthread_mutex_init(&owner, 0); pthread_mutex_init(&lock, 0);
    pthread_cond_init(&wake, 0); pthread_cond_init(&done, 0);
    workers = who.sleeping = who.waiting = 0;
    job.word = 0;
}

static void grow(int wanted) {
    pthread_attr_t attributes;
    pthread_t made;
    if (!prepared) { prepared = 1; pthread_atfork(0, 0, forked); }
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (intptr_t seat; workers < wanted; ++workers) {
        seat = workers + 1;
        if (pthread_create(&made, &attributes, worker, (void *)seat)) break;
    }
    pthread_attr_destroy(&attributes);
    if (workers >= sysconf(_SC_NPROCESSORS_ONLN)) __atomic_store_n(&spins, SHORT, __ATOMIC_RELAXED); /* they would spin
        while others have work */
}

static int over(uint64_t word, int mine) {
    int left = threads_of(word) * pieces_of(word) - mine;
    for (int s = 1; s < threads_of(word); ++s) left -= count_of(__atomic_load_n(&slot[s].did, __ATOMIC_SEQ_CST), word);
    return left == 0;
}

/* The caller's part, and its wait for the others. No line of memory that a worker will write is looked at before. */
static void work(uint64_t word) {
    int alone = pieces_of(word) == 1, mine = alone;
    if (alone) run(0, 0, word);
    for (int k = 0; k < spins; ++k) {
        if (k == (alone ? PATIENCE : 0))
            for (int s = alone; s < threads_of(word); ++s) mine += take(s, word);
        if (over(word, mine)) return;
        PAUSE();
    }
    pthread_mutex_lock(&lock);
    __atomic_store_n(&who.waiting, 1, __ATOMIC_SEQ_CST);
    while (!over(word, mine)) pthread_cond_wait(&done, &lock);
    __atomic_store_n(&who.waiting, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&lock);
}

/* `team`: threads, and << 32 the pieces of a share: several, if the launch takes long enough for others to help; 0, if
   it is over before a sleeper wakes: then sleepers are woken for one in so many only. For the owner of the pool. */
static void launch(wb_kernel kernel, const void *args, int64_t begin, int64_t end, int64_t team) {
    int64_t threads = team & 0xffffffff, pieces = team >> 32;
    int asleep = __atomic_load_n(&who.sleeping, __ATOMIC_RELAXED); /* who falls asleep now: the caller does its share */
    if (threads > end - begin) threads = end - begin;
    if (threads >= SLOTS) threads = SLOTS - 1;
    if (threads > 1 && workers < threads - 1) grow((int)threads - 1);
    if (threads > workers + 1) threads = workers + 1;
    if (threads <= 1 || (!pieces && asleep && ++light % LIGHT)) { kernel(args, begin, end); return; }
    job.kernel = kernel; job.args = args; job.begin = begin; job.end = end;
    uint64_t word = ++number << 16 | (uint64_t)(pieces ? pieces : 1) << 8 | (uint64_t)threads;
    __atomic_store_n(&job.word, word, __ATOMIC_RELEASE);
    if (asleep) {
        pthread_mutex_lock(&lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&lock);
    }
    work(word);
}

/* The caller works too; a second caller at the same time does its own work alone. */
void wb_parallel(wb_kernel kernel, const void *args, int64_t begin, int64_t end, int64_t team) {
    if (pthread_mutex_trylock(&owner)) { kernel(args, begin, end); return; }
    launch(kernel, args, begin, end, team);
    pthread_mutex_unlock(&owner);
}

typedef struct { char *to; const char *from; } wb_bytes;

/* Bytes copied, or cleared where `from` is null. */
void wb_move(const void *args, int64_t begin, int64_t end) {
    const wb_bytes *b = args;
    if (b->from) __builtin_memcpy(b->to + begin, b->from + begin, end - begin);
    else __builtin_memset(b->to + begin, 0, end - begin);
}

#define ADD(NAME, T) void NAME(const void *args, int64_t begin, int64_t end) { \\
    const wb_bytes *b = args; \\
    T *to = (T *)b->to; \\
    const T *from = (const T *)b->from; \\
    for (int64_t k = begin; k < end; ++k) to[k] += from[k]; \\
}
ADD(wb_add32, float)
ADD(wb_add64, double)

/* One slice per worker, each with arguments of its own. */
typedef struct { wb_kernel kernel; const void *args; int64_t begin, end; } wb_slice;
void wb_slices(const void *args, int64_t begin, int64_t end) {
    const wb_slice *slices = args;
    for (const wb_slice *s = slices + begin; s < slices + end; ++s) s->kernel(s->args, s->begin, s->end);
}

/* to += from; from = 0, block by block: those that hold nothing are only read. */
#define MERGE(NAME, T, U) void NAME(const void *args, int64_t begin, int64_t end) { \\
    const wb_bytes *b = args; \\
    T *to = (T *)b->to, *from = (T *)b->from; \\
    for (int64_t k = begin; k < end; k += 16) { \\
        int64_t n = end - k < 16 ? end - k : 16; \\
        U any = 0; \\
        for (int64_t j = 0; j < n; ++j) any |= ((const U *)from)[k + j]; \\
        if (any) for (int64_t j = 0; j < n; ++j) { to[k + j] += from[k + j]; from[k + j] = 0; } \\
    } \\
}
MERGE(wb_merge32, float, uint32_t)
MERGE(wb_merge64, double, uint64_t)

typedef struct { wb_kernel kernel; const void *args; int64_t begin, end, team; } wb_call;
void wb_replay(const wb_call *calls, int64_t n) {
    int taken = pthread_mutex_trylock(&owner);
    for (const wb_call *c = calls; c < calls + n; ++c)
        if (taken || c->team <= 1) c->kernel(c->args, c->begin, c->end);
        else launch(c->kernel, c->args, c->begin, c->end, c->team);
    if (!taken) pthread_mutex_unlock(&owner);
}
"""


@lru_cache(None)
def _pool_library() -> ctypes.CDLL:
    return ctypes.CDLL(str(build(POOL, ("-pthread",))))


@lru_cache(None)
def pool():
    """wb_parallel(kernel address, packed, begin, end, team)."""
    run = _pool_library().wb_parallel
    run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64]
    run.restype = None
    return run


PIECES = 4  # of a share, where others may help


def team(threads: int, pieces: int = 1) -> int:
    """The last argument of `pool()`: so many threads, with shares of so many pieces; 0: of one that is done at once."""
    return threads | pieces << 32 if threads > 1 else 1


@lru_cache(None)
def pool_kernel(name: str) -> int:
    """The address of a function of the pool's text, to be run by the pool."""
    return ctypes.cast(getattr(_pool_library(), name), ctypes.c_void_p).value or 0


@lru_cache(None)
def replay():
    """wb_replay(calls, their number): a list of native calls, one after the other."""
    run = _pool_library().wb_replay
    run.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    run.restype = None
    return run
