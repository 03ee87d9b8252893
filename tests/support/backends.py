"""The backends that tests run on, as parameters: what a machine lacks is skipped.

With WORKBENCH_TEST_BACKEND=cuda every test that runs on all backends runs on a GPU instead.
"""

from __future__ import annotations

import os

import pytest

ON_GPU = pytest.param("cuda", marks=pytest.mark.needs_gpu)
if os.environ.get("WORKBENCH_TEST_BACKEND") == "cuda":
    WITH_GPU = BACKENDS = [ON_GPU]
else:
    BACKENDS = [pytest.param("numpy"), pytest.param("c", marks=pytest.mark.needs_cc)]
    WITH_GPU = [*BACKENDS, ON_GPU]
