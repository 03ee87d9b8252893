"""Machines that are not here: what is compiled for them, and a Python without what a browser's Python lacks."""

import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import cross
from workbench.kernels.compile import c_compiler, disk_cache, platform
from workbench.kernels.compile.compile_error import CompileError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sample() -> list[tuple[str, str]]:
    """Every 61st program of the corpus; `python -m tests.cross` takes all of them."""
    pytest.importorskip("ziglang", reason="the ziglang wheel is not installed")
    return list(cross.texts(61))


@pytest.mark.slow  # the first text for a machine waits until zig has made its C library: a minute for Windows
@pytest.mark.parametrize("machine", cross.MACHINES)
def test_the_c_of_kernels_adjoints_and_pool_becomes_a_library_there(machine: str, sample):
    assert {name for name, _ in sample} > {cross.POOL} and len(sample) > 9
    assert {name: said for name, text in sample if (said := cross.refusal(machine, text))} == {}


@pytest.mark.slow
def test_a_name_that_no_library_there_has_is_told(sample):
    """So the test above would see a call that only Linux knows, and a name as another system writes it."""
    unknown = 'double f(double) __asm__("pow");\ndouble g(double x) { return f(x); }\n'
    assert "pow" in cross.refusal("x86_64-macos", unknown)
    assert cross.refusal("aarch64-linux-gnu", unknown) == ""
    assert "gettid" in cross.refusal("x86_64-windows-gnu", "int gettid(void);\nint g(void) { return gettid(); }\n")


def test_flags_of_a_library():
    assert platform.shared("win32") == ["-shared", "-s"]
    assert platform.shared("linux", native=True) == ["-march=native", "-shared", "-fPIC"]
    assert set(c_compiler.FLAGS) == {*c_compiler.PORTABLE, *platform.shared(native=True)}


def test_apples_own_processors_take_no_native(monkeypatch):
    monkeypatch.setattr(platform.platform, "machine", lambda: "arm64")
    assert platform.shared("darwin", native=True) == ["-shared", "-fPIC"]
    monkeypatch.setattr(platform.platform, "machine", lambda: "x86_64")
    assert platform.shared("darwin", native=True) == ["-march=native", "-shared", "-fPIC"]


def test_macos_and_windows_take_the_wheel_before_a_cc_that_may_be_a_dialog(monkeypatch):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("the ziglang wheel is not installed")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(platform, "ZIG_FIRST", True)
    c_compiler.compiler.cache_clear()
    try:
        assert Path(c_compiler.compiler().command[0]).stem == "zig"
    finally:
        c_compiler.compiler.cache_clear()


def test_without_ctypes_there_is_no_compiler(monkeypatch):
    monkeypatch.setattr(platform, "ctypes", None)
    c_compiler.compiler.cache_clear()
    try:
        with pytest.raises(CompileError, match='backend = "numpy"'):
            c_compiler.compiler()
        assert not c_compiler.available()
    finally:
        c_compiler.compiler.cache_clear()


def test_where_files_have_no_owner_the_cache_is_kept(cache, monkeypatch):
    """On Windows the bits of every folder say that all may write to it: it is no reason to empty the cache."""
    monkeypatch.setattr(disk_cache, "OWNED", False)
    cache.mkdir()
    cache.chmod(0o777)
    kept = cache / "kept.dll"
    disk_cache.write_sealed(kept, b"machine code")
    assert disk_cache.cache_directory() == cache
    assert disk_cache.read_sealed(kept) == b"machine code"


def test_background_work_is_done_at_once_where_no_thread_can_be_started(monkeypatch):
    def refuse(self) -> None:
        raise RuntimeError("can't start new thread")

    done = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    made = platform.in_background(lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()] and not made.is_alive()


def test_kernels_tapes_and_pictures_without_threads_processes_ctypes_and_compiler(tmp_path):
    bare = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests" / "support" / "in_a_browser.py")]
    done = subprocess.run(command, cwd=tmp_path, env=bare, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
