"""The kernels of Warp that a file of tests is about."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture(scope="module")
def k(request: pytest.FixtureRequest) -> Any:
    """The module beside this one that the file of tests names as KERNELS, else `watched`; Warp works on the CPU."""
    import warp

    warp.set_device("cpu")
    return importlib.import_module(getattr(request.module, "KERNELS", "watched"))


@pytest.fixture(scope="module")
def wp(k: Any) -> Any:
    return k.wp
