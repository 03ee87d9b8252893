"""What a test may need (a compiler, a GPU, a browser), found once, and a loud word where it is missing.

A marker `needs_x` skips a test where x is missing, unless WORKBENCH_REQUIRE_X=1 turns the absence into a failure:
continuous integration sets these variables, so that nothing goes untested there without being seen.
"""

from __future__ import annotations

import collections
import functools
import gc
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import workbench as wb
from tests.support.backends import BACKENDS, CHOSEN
from tests.support.ir_check import check
from tests.support.stand_in_gpu import install
from workbench import device
from workbench.launches import thresholds

os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
thresholds.HURRIED_BELOW = 0  # tests run the code that long runs have, all but those of `launches/test_hurried.py`

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
# The binaries themselves come first: Debian's wrapper scripts add flags and complain on stderr.
BROWSER_FILES = ("/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/chromium")


def find_browser() -> str | None:
    """The Chromium to drive: WORKBENCH_CHROMIUM, else Debian's binary, else what is on the PATH."""
    named = os.environ.get("WORKBENCH_CHROMIUM")
    files = [named] if named else [file for file in BROWSER_FILES if Path(file).exists()]
    return next(iter(files), None) or next(filter(None, map(shutil.which, BROWSERS)), None)


def has_compiler() -> bool:
    return any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def has_cpp_compiler() -> bool:
    return any(shutil.which(name) for name in ("g++", "clang++"))


def has_browser() -> bool:
    return importlib.util.find_spec("playwright") is not None and find_browser() is not None


def has_torch() -> bool:
    return CHOSEN != "stand-in" and importlib.util.find_spec("torch") is not None  # its tensors are on no stand-in


def has_jax() -> bool:
    return importlib.util.find_spec("jax") is not None


def has_warp() -> bool:
    found = importlib.util.find_spec("warp")
    return found is not None and found.origin is not None  # a folder of this name is no package


def has_engines() -> bool:
    return has_warp() and all(importlib.util.find_spec(name) is not None for name in ("mujoco_warp", "newton"))


def has_nvrtc() -> bool:
    try:
        from cupy_backends.cuda.libs import nvrtc

        return nvrtc.getVersion() is not None
    except (ImportError, OSError, RuntimeError):
        return False


def has_gpu() -> bool:
    if CHOSEN == "stand-in":
        return True
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0
    except (ImportError, OSError, RuntimeError):
        return False


NEEDS: dict[str, tuple[Callable[[], bool], str, str]] = {
    "needs_cc": (has_compiler, "WORKBENCH_REQUIRE_CC", "no C compiler (cc, gcc, clang) on the PATH"),
    "needs_cxx": (has_cpp_compiler, "WORKBENCH_REQUIRE_CXX", "no C++ compiler (g++, clang++) on the PATH"),
    "needs_nvrtc": (has_nvrtc, "WORKBENCH_REQUIRE_NVRTC", "NVRTC cannot be loaded (pip install '.[cuda12]')"),
    "needs_torch": (has_torch, "WORKBENCH_REQUIRE_TORCH", "PyTorch is not installed"),
    "needs_jax": (has_jax, "WORKBENCH_REQUIRE_JAX", "JAX is not installed"),
    "needs_warp": (has_warp, "WORKBENCH_REQUIRE_WARP", "NVIDIA Warp is not installed (pip install warp-lang==1.19.0)"),
    "needs_engines": (has_engines, "WORKBENCH_REQUIRE_ENGINES", "the engines are not here (pip install '.[engines]')"),
    "needs_gpu": (has_gpu, "WORKBENCH_REQUIRE_GPU", "no CUDA device"),
    "browser": (has_browser, "WORKBENCH_REQUIRE_BROWSER", "NO BROWSER TEST RAN: playwright or Chromium is missing"),
}


@functools.cache
def available(marker: str) -> bool:
    return NEEDS[marker][0]()


SAMPLE = 61  # no multiple of the number of backends or types: in the quick run each of them gets its share


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `slow` what drives a browser, and most parameters of a test that is `sampled`."""
    seen: collections.Counter[str] = collections.Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        left_out = item.get_closest_marker("sampled") is not None and seen[name] % SAMPLE != 0
        seen[name] += 1
        if left_out or item.get_closest_marker("browser") is not None:
            item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, (_, variable, reason) in NEEDS.items():
        if item.get_closest_marker(marker) is None or available(marker):
            continue
        if os.environ.get(variable) == "1":
            pytest.fail(f"{reason}, and {variable}=1 demands it", pytrace=False)
        pytest.skip(reason)
    marker = item.get_closest_marker("host_memory")
    if CHOSEN and marker is not None and any(part in item.name for part in marker.args or ("",)):
        pytest.skip("writes to host memory through .numpy(), or is of the CPU alone")


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    """After every test the switches stand at their defaults again; in it the programs of all passes are verified."""
    wb.config.check_passes = check
    yield
    device.reports.clear()  # of launches on a GPU that nobody has waited for
    wb.config.reset()


@pytest.fixture(scope="session", autouse=True)
def stand_in() -> Iterator[None]:
    """What takes the place of a GPU, where that is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        if CHOSEN == "stand-in":
            install(patch)
        elif CHOSEN and has_torch():
            importlib.import_module("torch").set_default_device(CHOSEN)
        yield


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The test runs on each backend that needs no GPU, or on those it names: `parametrize(..., indirect=True)`."""
    wb.config.backend = request.param
    return request.param


@pytest.fixture(scope="module", autouse=True)
def _left_alone() -> Iterator[None]:
    """What a file leaves behind lives on: later collections of garbage, of which tests ask for many, pass it by."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser binary; only for tests marked `browser`."""
    found = find_browser()
    assert found is not None, "mark the test with pytest.mark.browser"
    return found
