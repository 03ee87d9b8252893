"""The backends that tests run on, as parameters: what a machine lacks is skipped.

With WORKBENCH_TEST_BACKEND=cuda the tests that run on all backends run on a GPU instead, with `stand-in` on what
`stand_in_gpu` puts in its place.
"""

from __future__ import annotations

import os

import pytest

CHOSEN = os.environ.get("WORKBENCH_TEST_BACKEND", "")
ON_GPU = pytest.param("cuda", marks=pytest.mark.needs_gpu)
BACKENDS = [ON_GPU] if CHOSEN else [pytest.param("numpy"), pytest.param("c", marks=pytest.mark.needs_cc)]
WITH_GPU = BACKENDS if CHOSEN else [*BACKENDS, ON_GPU]
