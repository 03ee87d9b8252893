"""CUDA texts on a processor: every thread of a block is a thread, and a C++ compiler takes the place of NVRTC.

The one idea: the emitted text is C++ once a header says what `threadIdx`, `__shfl_sync` and the rest are. Threads of a
warp are never together of themselves, so `__activemask` is the thread alone, or what the text has told `emu_together`.
Blocks follow one another. Slow, and for tests alone.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support import stand_in_gpu
from workbench.kernels.emit import cuda as emit_cuda
from workbench.kernels.emit.c_names import c_name
from workbench.kernels.emit.signature import MAX_RANK, Signature, Variant, divisors
from workbench.kernels.ir import Function, root, walk
from workbench.kernels.ops import memory as rows
from workbench.kernels.program import Program
from workbench.launches import executable as executables, thresholds

BLOCK, BLOCKS = 64, 2
SHARED = "alignas(16) static char"
SCRATCH = 32 << 20

RUNTIME = """
#include <pthread.h>
#include <stdint.h>
enum { N = BLOCK, W = 32 };
struct dim { unsigned x; };
struct meeting { int come; unsigned turn; };
typedef void (*entry)(const void *);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static __thread struct dim thread;
static __thread unsigned together;
static struct dim block, grid, size = {N};
static struct meeting start, done, all, some[N];
static uint64_t slot[N];
static entry job;
static const void *arguments;
static int ready;

static void meet(struct meeting *m, int count) {
    pthread_mutex_lock(&lock);
    unsigned turn = m->turn;
    if (++m->come == count) { m->come = 0; ++m->turn; pthread_cond_broadcast(&change); }
    while (m->turn == turn) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}
const struct dim *emu_thread(void) { return &thread; }
const struct dim *emu_block(void) { return &block; }
const struct dim *emu_grid(void) { return &grid; }
const struct dim *emu_size(void) { return &size; }
void emu_sync(void) { meet(&all, N); }
unsigned emu_active(void) { return together ? together : 1u << thread.x % W; }
void emu_together(unsigned mask) { together = mask; }
void emu_gather(unsigned mask, uint64_t mine, uint64_t *everybody) {
    struct meeting *m = &some[thread.x / W * W + __builtin_ctz(mask)];
    int count = __builtin_popcount(mask);
    slot[thread.x] = mine;
    meet(m, count);
    for (int k = 0; k < W; ++k) everybody[k] = slot[thread.x / W * W + k];
    meet(m, count);
}
static void *work(void *number) {
    for (thread.x = (unsigned)(uintptr_t)number;;) {
        meet(&start, N + 1);
        together = 0;
        job(arguments);
        meet(&done, N + 1);
    }
}
void emu_launch(entry kernel, const void *args, int first, int blocks) {
    pthread_t made;
    for (uintptr_t k = 0; !ready && k < N; ++k) pthread_create(&made, 0, work, (void *)k);
    ready = 1; job = kernel; arguments = args; grid.x = (unsigned)blocks;
    for (block.x = (unsigned)first; block.x < grid.x; ++block.x) { meet(&start, N + 1); meet(&done, N + 1); }
}
"""

ONE = """sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt cbrt
floor ceil round rint trunc fabs erf erfc tgamma lgamma nearbyint""".split()
TWO = "pow fmod atan2 hypot copysign fmin fmax remainder nextafter".split()
MATH = "".join(
    f"{T} {name}{f}({', '.join([T] * count)});\n"
    for names, count in ((ONE, 1), (TWO, 2), (["fma"], 3))
    for name in names
    for T, f in (("double", ""), ("float", "f"))
)

HEADER = (
    """
#define memcpy __builtin_memcpy
typedef unsigned long long wb_bits;
extern "C" {
struct dim { unsigned x; };
const dim *emu_thread(), *emu_block(), *emu_grid(), *emu_size();
void emu_sync(), emu_together(unsigned), emu_gather(unsigned, unsigned long, unsigned long *);
unsigned emu_active();
int printf(const char *, ...);
"""
    + MATH
    + """}
#define int64_t wb_int64
#define uint64_t wb_uint64
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) alignas(n)
#define __CUDA_ARCH__ 900
#define threadIdx (*emu_thread())
#define blockIdx (*emu_block())
#define gridDim (*emu_grid())
#define blockDim (*emu_size())
#define __syncthreads emu_sync
#define __activemask emu_active
#define __popc __builtin_popcount
#define __ffs __builtin_ffs
#define __umulhi(a, b) (unsigned)((unsigned long)(a) * (b) >> 32)
template <class T, class U> T emu_as(U u) {
    T t = T();
    memcpy(&t, &u, sizeof(T) < sizeof(U) ? sizeof(T) : sizeof(U));
    return t;
}
#define __longlong_as_double(b) emu_as<double>((long long)(b))
#define __double_as_longlong(d) emu_as<long long>((double)(d))
#define __int_as_float(b) emu_as<float>((int)(b))
#define __float_as_int(f) emu_as<int>((float)(f))
template <class T> T __shfl_sync(unsigned mask, T v, int from) {
    unsigned long all[32];
    emu_gather(mask, emu_as<unsigned long>(v), all);
    if (!(mask >> from & 1)) __builtin_trap();
    return emu_as<T>(all[from]);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int step) {
    return __shfl_sync(mask, v, (threadIdx.x & 31) ^ step);
}
inline unsigned __ballot_sync(unsigned mask, int p) {
    unsigned long all[32];
    unsigned out = 0;
    emu_gather(mask, p != 0, all);
    for (int k = 0; k < 32; ++k) out |= (mask >> k & 1 && all[k]) ? 1u << k : 0;
    return out;
}
inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
inline unsigned __match_all_sync(unsigned mask, wb_bits v, int *same) {
    unsigned long all[32];
    emu_gather(mask, v, all);
    *same = 1;
    for (int k = 0; k < 32; ++k) *same &= !(mask >> k & 1) || all[k] == v;
    return *same ? mask : 0;
}
template <class T, class U> T emu_add(T *p, T v) {
    U seen, next;
    __atomic_load((U *)p, &seen, __ATOMIC_SEQ_CST);
    do next = emu_as<U>(emu_as<T>(seen) + v);
    while (!__atomic_compare_exchange((U *)p, &seen, &next, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return emu_as<T>(seen);
}
inline float atomicAdd(float *p, float v) { return emu_add<float, unsigned>(p, v); }
inline double atomicAdd(double *p, double v) { return emu_add<double, wb_bits>(p, v); }
inline int atomicAdd(int *p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
inline unsigned atomicAdd(unsigned *p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
inline wb_bits atomicAdd(wb_bits *p, wb_bits v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
inline unsigned atomicOr(unsigned *p, unsigned v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
template <class T> T atomicCAS(T *p, T expected, T v) {
    __atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
"""
)
FLAGS = "-O1 -w -fpermissive -ffp-contract=off -fno-math-errno -shared -fPIC -pthread -Wl,-Bsymbolic".split()


def compiler() -> str | None:
    return next(filter(None, map(shutil.which, ("g++", "clang++"))), None)


class Machine:
    """Compiles CUDA texts into `folder` and runs them."""

    def __init__(self, folder: Path, block: int = BLOCK):
        self.folder, self.made = folder, 0
        self.scratch = ctypes.create_string_buffer(SCRATCH)
        (folder / "runtime.c").write_text(RUNTIME.replace("BLOCK", str(block)))
        self.runtime = folder / "libemulated.so"
        self._run("-x", "c", folder / "runtime.c", "-o", self.runtime)
        self.library = ctypes.CDLL(str(self.runtime))  # of its own: machines differ in threads

    def _run(self, *args: Any) -> None:
        done = subprocess.run([compiler(), *FLAGS, *map(str, args)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:2000]

    def entry(self, text: str, name: str) -> Any:
        """The kernel `name`, which takes the struct `NAME_args`."""
        self.made += 1
        source = self.folder / f"{name}_{self.made}.cpp"
        call = f'extern "C" void emu_entry(const void *p) {{ {name}(*(const {name}_args *)p); }}'
        text = text.replace(emit_cuda.HALF, "").replace("extern __shared__ __align__(16) char", SHARED)
        source.write_text("\n".join([HEADER, text.replace("wb_shared[]", f"wb_shared[{1 << 20}]"), call, ""]))
        made = source.with_suffix(".so")
        self._run(source, self.runtime, "-o", made)
        return ctypes.CDLL(str(made)).emu_entry

    def launch(self, entry: Any, packed: bytes, blocks: int = BLOCKS, first: int = 0) -> None:
        """Run a grid of so many blocks, or those from `first` on alone."""
        self.library.emu_launch(entry, packed, first, blocks)


class Emulated:
    """One function as CUDA text; called as the C backend calls its own code."""

    address = 0

    def __init__(self, machine: Machine, function: Function, variant: Variant):
        self.machine, self.function, self.variant = machine, function, variant
        self.wide = emit_cuda.wide_pointers(function, variant)
        self.size = Signature(function).size
        self.entries: dict[bool, Any] = {}
        self.texts: list[str] = []

    def __call__(self, packed: bytes, begin: int, end: int, threads: int = 1) -> None:
        """Run the whole grid; scratch memory is put into the block of arguments, and a box left out of it."""
        room = struct.pack("Qq", ctypes.addressof(self.machine.scratch), SCRATCH)
        dims = struct.unpack_from(f"{MAX_RANK}q", packed)
        self.run(packed[: self.size - 24] + packed[-24:-16] + room + divisors(dims))

    def run(self, packed: bytes) -> None:
        """Run the whole grid on what a GPU would get."""
        aligned = all(int.from_bytes(packed[at : at + 8], "little") % n == 0 for at, n in self.wide)
        if aligned not in self.entries:
            self.texts.append(emit_cuda.text(self.function, replace(self.variant, aligned=aligned)))
            self.entries[aligned] = self.machine.entry(self.texts[-1], c_name(self.function.name))
        self.machine.launch(self.entries[aligned], packed)


def run_cuda_texts(machine: Machine, monkeypatch: Any) -> list[str]:
    """From here on the C backend runs CUDA texts; the list of what it has run."""
    made: dict = {}
    found: list[str] = []

    def executable(program: Any, function: Function, backend: str, variant: Variant, *_: Any) -> Emulated:
        if (function, variant) not in made:
            sums = {
                root(s.args[0]).name for s in walk(function.body) if s.row is rows.ACCUMULATE or s.row in rows.ATOMICS
            }
            form = replace(variant, atomic=frozenset(sums), index32=True, inner=None)
            made[function, variant] = Emulated(machine, function, form)
            made[function, variant].texts = found
        return made[function, variant]

    monkeypatch.setattr(Program, "executable", executable)
    monkeypatch.setattr(Program, "prepare", lambda *_: None)
    monkeypatch.setattr(thresholds, "PARALLEL_FROM", 1 << 60)
    monkeypatch.setattr(thresholds, "PULL_FROM", 1 << 60)
    return found


class Queued(Emulated):
    """The same as the stand-in for a GPU launches it. Plans keep it for all tests."""

    def launch(self, packed: bytes, cells: int, stream: int, most_threads: int = 2**31) -> None:
        """Queue the whole grid. A launch whose threads run in order is beyond the emulation."""
        gpu: Any = sys.modules["cupy"]
        gpu.queue(lambda: self.run(packed), f"launch on {stream}")


def install_gpu(machine: Machine, monkeypatch: Any) -> list[str]:
    """From here on there is a GPU whose launches are planned as on any other; the list of the CUDA texts it has run."""
    texts: list[str] = []

    def kernel(program: Program, function: Function, variant: Variant, *_: Any) -> Queued:
        made = Queued(machine, function, variant)
        made.texts = texts
        return made

    monkeypatch.setattr(executables, "SCRATCH_BYTES", SCRATCH)
    stand_in_gpu.install(monkeypatch, kernel)
    return texts
