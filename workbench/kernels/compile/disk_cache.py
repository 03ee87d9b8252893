"""Content-addressed cache of compiled kernels on disk: a key is the hash of all that the result depends on.

A cached file carries the hash of its own bytes at its end, so that a file cut short by a crash is seen and built
again. Files are written beside their place and moved into it: two processes, or one killed in the middle, leave
nothing broken. The directory is private, as what is in it gets executed.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...config import config
from .compile_error import CompileError
from .platform import OWNED

if TYPE_CHECKING:
    from pathlib import Path

SEAL = b"workbench"
SEAL_SIZE = len(SEAL) + 32
STALE_S = 3600.0
MEMORY = "/dev/shm"
_changing = threading.Lock()


def cache_path() -> Path:
    """The folder of compiled kernels: `config.cache_dir`, $WORKBENCH_CACHE, else one in the user's cache."""
    from pathlib import Path

    if config.cache_dir is not None:
        return config.cache_dir
    wish = os.environ.get("WORKBENCH_CACHE")
    if wish:
        return Path(wish)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "workbench"


_instead: dict[Path, Path] = {}  # a directory that cannot be written to -> the one for this process


def cache_directory() -> Path:
    """The cache directory, made if need be, private. Raises CompileError [cache-owner] if it is not ours."""
    path = cache_path()
    path = _instead.get(path) or _prepared(path)
    if not path.is_dir():  # removed meanwhile
        _prepared.cache_clear()
        path = _prepared(cache_path())
    return path


@lru_cache(None)
def _prepared(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if OWNED:
            _make_private(path)
    except OSError as e:
        return give_up(path, e)
    return path


def give_up(path: Path, error: OSError) -> Path:
    """A directory for this process in place of a cache that cannot be written to: in memory, where there is such a one.

    Says so in the log. Raises the error if there is no other directory either.
    """
    import atexit
    import logging
    import shutil
    import tempfile
    from pathlib import Path

    with _changing:
        if path in _instead:
            return _instead[path]
        for place in (MEMORY, None):
            try:
                made = Path(tempfile.mkdtemp(prefix="workbench-", dir=place))
                (made / "probe.tmp").write_bytes(bytes(1 << 20))
                (made / "probe.tmp").unlink()
            except OSError:
                continue
            break
        else:
            raise error
        log = logging.getLogger("workbench")
        log.warning("the cache %s cannot be used (%s): kernels are kept for this process only", path, error)
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        _instead[path] = made
        return made


def _make_private(path: Path) -> None:
    seen = os.lstat(path)
    if not stat.S_ISDIR(seen.st_mode) and not stat.S_ISLNK(seen.st_mode):
        raise OSError(f"{path} is not a directory")
    seen = os.stat(path)
    if seen.st_uid != os.geteuid():
        raise CompileError(
            f"the cache directory {path} belongs to another user, who could put code into it.\n"
            f"Write instead:   WORKBENCH_CACHE=/a/directory/of/yours\n[cache-owner]"
        )
    if seen.st_mode & 0o077:
        if seen.st_mode & 0o022:  # others could have planted files: their seals prove nothing
            for file in path.glob("*.*"):
                file.unlink(missing_ok=True)
        os.chmod(path, 0o700)


@lru_cache(None)
def _sweep(path: Path) -> None:
    """Remove what killed compilations left behind, once per process: a cache may hold ten thousands of files."""
    for name in os.listdir(path):
        try:
            if name.endswith(".tmp") and time.time() - os.stat(path / name).st_mtime > STALE_S:
                os.unlink(path / name)
        except OSError:
            continue


@lru_cache(None)
def _sha256() -> Any:
    """The interpreter's own SHA-256: `hashlib` loads OpenSSL first, which takes longer than a kernel is read."""
    for name in ("_sha2" if sys.version_info >= (3, 12) else "_sha256", "hashlib"):
        with suppress(ImportError):
            return import_module(name).sha256
    raise ImportError("this Python has no hashlib")


def sealed(name: str, data: bytes) -> bytes:
    """The bytes of the file of this name: a file under another one's name, as a botched copy leaves it, is none."""
    return data + SEAL + _sha256()(name.encode() + b"\0" + data).digest()


def read_sealed(path: Path) -> bytes | None:
    """The contents written to `path`; None if missing, truncated, of another key, or possibly of another user."""
    try:
        with open(path, "rb") as file:
            seen = os.fstat(file.fileno())
            data = file.read()
    except OSError:
        return None
    ours = not OWNED or (seen.st_uid == os.geteuid() and not seen.st_mode & 0o022)
    whole = ours and len(data) > SEAL_SIZE and sealed(path.name, data[:-SEAL_SIZE]) == data
    return data[:-SEAL_SIZE] if whole else None


@contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """The name of a new file beside `path`, removed again if nobody moves it away."""
    made = path.with_name(f"{path.stem}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        yield made
    finally:
        made.unlink(missing_ok=True)


def write_sealed(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one step. A process that writes also clears up, one that finds all it needs does not."""
    with temporary(path) as made:
        made.write_bytes(sealed(path.name, data))
        made.chmod(0o700)
        os.replace(made, path)
    _sweep(path.parent)


def digest(*parts: str) -> str:
    """The cache key of these texts: their hash."""
    return _sha256()("\0".join(parts).encode()).hexdigest()[:40]


def without_comments(text: str) -> str:
    """The text without /* */ comments, which hold source lines: a kernel that moved in its file keeps its key."""
    kept, done = [], 0
    while (start := text.find("/*", done)) >= 0 and (end := text.find("*/", start + 2)) >= 0:
        kept.append(text[done:start].rstrip(" \t"))
        done = end + 2 + text.startswith("\n", end + 2)
    return "".join([*kept, text[done:]])
