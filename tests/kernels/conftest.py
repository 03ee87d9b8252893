"""What tests of several files here ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.kernels.compile import c_library


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of compiled kernels of this test's own."""
    path = tmp_path / "cache"
    monkeypatch.setenv("WORKBENCH_CACHE", str(path))
    monkeypatch.setattr(c_library, "_loaded", {})
    return path
