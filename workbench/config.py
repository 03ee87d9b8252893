"""Switches of the whole program, as plain attributes: `wb.config.check_bounds = True`.

Every switch is validated when set; an unknown name is an error, so that a typo never goes unnoticed.
`python -c "import workbench as wb; help(wb.config)"` prints the table below.
"""

from __future__ import annotations

import enum
import itertools
import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from .errors import LaunchError

if TYPE_CHECKING:
    from pathlib import Path


def _flag(value: object) -> bool:
    if value not in (True, False):
        raise ValueError("takes True or False")
    return bool(value)


class DeterministicMode(enum.Enum):
    """Warp's words for `config.deterministic`: all but the first mean True."""

    NOT_GUARANTEED = 0
    RUN_TO_RUN = 1
    GPU_TO_GPU = 2


def _backend(value: object) -> str | None:
    if value not in (None, "c", "cuda", "numpy"):
        raise ValueError('takes "c", "cuda", "numpy", or None for the fastest that works')
    return value


def _bounds(value: object) -> bool | str:
    if value not in (True, False, "affine"):
        raise ValueError('takes True, False or "affine"')
    return "affine" if value == "affine" else bool(value)


def _threads(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("takes a whole number of at least 1")
    return value


def _folder(value: Any) -> Path | None:
    if value is None:
        return None
    from pathlib import Path

    return Path(value).expanduser()


def _set_to(value: object, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "backend": _backend,
    "threads": _threads,
    "cache_dir": _folder,
    "deterministic": lambda v: (
        v is not DeterministicMode.NOT_GUARANTEED if isinstance(v, DeterministicMode) else _flag(v)
    ),
    "check_bounds": _bounds,
    **_set_to(_flag, "check_races race_guard all_adjoints remember_launches jit verbose"),
    "full_traceback": _flag,
    "check_passes": lambda value: value,
}


# Names of Warp that change no result here, with their defaults there: what is assigned is kept and does nothing.
# There is always an adjoint, no fast arithmetic, and loops are never unrolled for their derivative's sake.
_OF_BOTH: dict[str, Any] = {
    "max_unroll": 16,
    **_set_to(True, "enable_backward line_directives use_precompiled_headers"),
    **_set_to(True, "enable_mathdx_gemm enable_mathdx_fft enable_mathdx_solver"),
    **_set_to(False, "fast_math lineinfo llvm_cuda compile_time_trace legacy_scalar_return_types"),
    **_set_to(None, "optimization_level cpu_compiler_flags cuda_output ptx_target_arch cuda_arch_suffix"),
    **_set_to(None, "default_grid_stride deterministic_max_records"),
}
HARMLESS: dict[str, Any] = {  # switches of the whole program
    **_OF_BOTH,
    "log_level": 20,
    **_set_to(True, "cache_kernels enable_graph_capture_module_load_by_default enable_mempools_at_init"),
    **_set_to(True, "enable_tiles_in_stack_memory"),
    **_set_to(False, "quiet verbose_warnings print_launches verify_cuda verify_autograd_array_access track_memory"),
    **_set_to(False, "enable_vector_component_overwrites enable_cpu_blocks legacy_cpu_linker deterministic_debug"),
    **_set_to(None, "load_module_max_workers launch_array_access_mode"),
}
MODULE_OPTIONS: dict[str, Any] = {
    **_OF_BOTH,
    "block_dim": 256,
    "extra_preamble": "",
    "fuse_fp": True,
    **_set_to(False, "strip_hash verify_fp generate_fast_code"),
    **_set_to(None, "mode deterministic grid_stride cuda_max_registers enable_cuda_smem_spilling cluster_dim"),
    **_set_to(None, "enable_tiles_in_stack_memory enable_vector_component_overwrites launch_bounds"),
}


@cache
def _number_of(settings: tuple[object, ...]) -> int:
    return next(_numbers)


_numbers = itertools.count()
_ALIASES = {"kernel_cache_dir": "cache_dir"}


class Config:
    """The switches.

    backend       None | "c" | "cuda" | "numpy": how kernels run; None takes the fastest that works. "cuda" also makes
                  the first GPU the default device of new arrays.
    threads       worker threads of the "c" backend.
    cache_dir     folder of compiled kernels; None is a private folder in the user's cache directory.
    deterministic one order for threads that add to the same cell, whatever `threads` is ("c": one worker there).
                  Also takes Warp's `wb.DeterministicMode`.
    check_bounds  True: every index is checked, and every `assert`. Indices known before a launch are checked then, at
                  no cost; those that depend on data when it runs. False: the latter in launches on a tape alone, whose
                  gradients are promised to be exact. "affine": never; then an index may write into other memory.
    check_races   look for two threads storing to one element at every launch.
    race_guard    under a tape, check stores that are not proven apart before the first backward.
                  Off: the promise of exact gradients then excludes programs with races.
    all_adjoints  differentiate kernels with enable_backward=False like all others: for packages that switch adjoints
                  off to save the time of compiling them.
    check_passes  None, or a function that is given the program that each pass of the compiler made, and its name: for
                  those who write passes.
    remember_launches
                  look up what follows from the arguments of a launch that was made before, and run a reverse pass
                  over the same launches as one list of calls. It changes no result and no error; off, all is looked
                  at anew.
    jit           replay functions under `@wb.jit`. Off: they run as they stand.
    verbose       log every new plan of a launch on the logger "workbench" (level INFO).
    full_traceback
                  show the frames of the workbench in tracebacks of errors that it raises on purpose, which end at your
                  line else. On from the start where the environment has WORKBENCH_FULL_TRACEBACK=1.

    Under Warp's names: `kernel_cache_dir` is `cache_dir`, `mode` "debug" and "release" are `check_bounds` True and
    False, `version` is the Warp that was followed. `verify_fp` is refused: `tape.diagnose()` finds the first NaN. Its
    other switches change no result here: they keep what is assigned, and nothing else happens
    (`workbench.config.HARMLESS` lists them).

    One thread is better for grids so small that waking another takes longer than the work (the workbench sees to this
    by itself), and where the last bit of sums by atomics must not depend on the machine: `threads = 1`, or
    `deterministic`.

    >>> wb.config.check_bounds = False
    >>> wb.config.reset()
    >>> wb.config.check_bounds
    True
    """

    switches: int  # stands for those that a plan depends on: equal settings, equal number
    backend: str | None
    threads: int
    cache_dir: Path | None
    deterministic: bool
    check_bounds: bool | str
    check_races: bool
    race_guard: bool
    all_adjoints: bool
    check_passes: Callable[[Any, str], None] | None
    remember_launches: bool
    jit: bool
    verbose: bool
    full_traceback: bool

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set all switches to their defaults."""
        self.backend = self.cache_dir = self.check_passes = None
        self.threads = os.cpu_count() or 1
        self.check_bounds = self.race_guard = self.remember_launches = self.jit = True
        self.deterministic = self.check_races = self.all_adjoints = self.verbose = False
        self.full_traceback = os.environ.get("WORKBENCH_FULL_TRACEBACK") == "1"
        vars(self).update(HARMLESS)

    @property
    def version(self) -> str:
        """The version of Warp whose names are here."""
        return "1.19.0"

    @property
    def mode(self) -> str:
        """ "debug" where indices that depend on data are checked in every launch, else "release"."""
        return "debug" if self.check_bounds is True else "release"

    def __getattr__(self, name: str) -> Any:
        if name in _ALIASES:
            return getattr(self, _ALIASES[name])
        if name == "verify_fp":
            return False
        raise AttributeError(f"there is no switch config.{name}")

    def __setattr__(self, name: str, value: object) -> None:
        if name in HARMLESS:
            vars(self)[name] = value
            return
        if name == "mode":
            if value not in ("debug", "release"):
                raise LaunchError(f'config.mode = {value!r}: takes "debug" or "release"', slug="config")
            name, value = "check_bounds", value == "debug"
        if name == "verify_fp":
            if value:
                raise LaunchError(
                    "config.verify_fp is not here.", slug="config", instead="tape.diagnose(), which finds the first NaN"
                )
            return
        name = _ALIASES.get(name, name)
        check = _CHECKS.get(name)
        if check is None:
            raise LaunchError(f"there is no switch config.{name}", slug="config", why=f"Known: {', '.join(_CHECKS)}.")
        try:
            value = check(value)
        except (TypeError, ValueError) as error:
            raise LaunchError(f"config.{name} = {value!r}: {error}", slug="config") from None
        super().__setattr__(name, value)
        kept = tuple(getattr(self, n, None) for n in ("backend", "race_guard", "threads", "deterministic"))
        super().__setattr__("switches", _number_of(kept))

    def bounds(self, value: object) -> bool | str:
        """A launch's own `check_bounds`; the switch where it is None. Raises LaunchError [config]."""
        try:
            return self.check_bounds if value is None else _bounds(value)
        except ValueError as error:
            raise LaunchError(f"launch(..., check_bounds={value!r}): {error}", slug="config") from None

    def __repr__(self) -> str:
        return "\n".join(f"config.{name} = {getattr(self, name)!r}" for name in _CHECKS)


config = Config()
