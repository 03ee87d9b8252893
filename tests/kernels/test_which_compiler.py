"""Which C compiler is taken, what is asked of it, and the flags that it gets for this processor."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from workbench.kernels.compile import c_compiler, c_library
from workbench.kernels.compile.compile_error import CompileError

COUNT = """
void count(const void *block, long begin, long end) {
    double *x = *(double *const *)block;
    for (long i = begin; i < end; ++i) x[i] += i;
}
"""


def _fresh(monkeypatch, **environment):
    c_compiler.compiler.cache_clear()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def fresh_compiler(monkeypatch):
    yield lambda **environment: _fresh(monkeypatch, **environment)
    c_compiler.compiler.cache_clear()


@pytest.mark.needs_cc
def test_cc_names_the_compiler_and_its_flags(fresh_compiler):
    fresh_compiler(CC="gcc -g0")
    used = c_compiler.compiler()
    assert Path(used.command[0]).name == "gcc" and used.command[1:] == ("-g0",)


@pytest.mark.needs_cc
def test_a_compiler_is_asked_for_its_version_once(cache, fresh_compiler, monkeypatch, tmp_path):
    """By a file of the cache, if it is a binary that is known to be the compiler itself."""
    fresh_compiler()
    used, asked = c_compiler.compiler(), []
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: asked.append(args[0]) or start(*args, **options))
    fresh_compiler()
    assert c_compiler.compiler() == used
    known = re.search("gcc|clang", Path(used.identity.split()[0]).name) is not None
    assert len(asked) == (0 if known else 1)
    script = tmp_path / "gcc"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(used.command)} "$@"\n')
    script.chmod(0o700)
    for _ in range(2):
        fresh_compiler(CC=str(script))
        assert c_compiler.compiler().identity.endswith(used.identity.split(" ", 3)[3].lstrip())
    assert len(asked) == (2 if known else 3)


GCC = """gcc version 12.2.0 (Debian 12.2.0-14)
 /usr/lib/cc1 -E -quiet - "-march=icelake-client" -mavx2 {} -mno-avx512fp16 "-mtune={}" -dumpbase -
"""


@pytest.mark.parametrize(
    "said, tuned",
    [
        (GCC.format("-mavx512f", "generic"), True),  # of a processor that this gcc does not know
        (GCC.format("-mavx512f", "icelake-server"), False),
        (GCC.format("-mno-avx512f", "generic"), False),
        (GCC.format("-mavx512f", "generic").replace("gcc version", "clang version"), False),
        (GCC.format("-mavx512f", "generic").replace("12.2.0", "7.5.0"), False),  # which does not know the flags
        ("cc: unknown option", False),
    ],
)
def test_gcc_is_told_what_to_tune_for_where_it_knows_only_the_instructions(said, tuned, cache, monkeypatch, tmp_path):
    script = tmp_path / "gcc"
    script.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\n")
    script.chmod(0o700)
    used = c_compiler._native((str(script),))
    assert used.flags == (tuple(c_compiler.OLDER) if tuned else ())
    assert all(flag in used.flags_for("") for flag in used.flags)
    assert "cc1" not in used.identity and used.is_gcc == ("gcc version" in said)


@pytest.mark.needs_cc
def test_the_mathematical_library_is_linked_where_it_is_called(cache):
    used = c_compiler.compiler()
    declared = "double sin(double), pow(double, double);\nfloat expf(float);\ndouble wb_pow(double, double);\n"
    linked = [used.libraries(declared + body, ()) for body in ("x = sqrtf(fabs(y));", "x = expf(y);", "wb_pow(x, 2.0)")]
    assert ["-lm" in libraries for libraries in linked[1:]] == [True, True]
    assert ("-lm" in linked[0]) == (not used.is_gcc or sys.platform != "linux")
    assert "-lm" in used.libraries(declared, ("-pthread",))


def test_without_any_compiler_the_error_says_what_to_install(fresh_compiler, tmp_path, monkeypatch):
    fresh_compiler(CC="", PATH=str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match="pip install ziglang"):
        c_compiler.compiler()
    assert not c_compiler.available()


def test_without_any_compiler_the_ziglang_wheel_is_taken(fresh_compiler, tmp_path):
    pytest.importorskip("ziglang", reason="the ziglang wheel is not installed")
    fresh_compiler(CC="", PATH=str(tmp_path))
    command = c_compiler.compiler().command
    assert Path(command[0]).stem == "zig" and command[1:] == ("cc",)


@pytest.mark.slow
def test_ziglang_compiles_kernels(cache, fresh_compiler, tmp_path):
    pytest.importorskip("ziglang", reason="the ziglang wheel is not installed")
    fresh_compiler(CC="", PATH=str(tmp_path))
    x = np.zeros(3)
    c_library.load(COUNT, "count")(np.array([x.ctypes.data], np.int64).tobytes(), 0, 3)
    assert x.tolist() == [0, 1, 2]
