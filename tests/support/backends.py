"""The backends that tests run on, as parameters: what a machine lacks is skipped."""

from __future__ import annotations

import pytest

BACKENDS = [pytest.param("numpy"), pytest.param("c", marks=pytest.mark.needs_cc)]
WITH_GPU = [*BACKENDS, pytest.param("cuda", marks=pytest.mark.needs_gpu)]
