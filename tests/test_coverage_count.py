"""The script that counts kernels of others: it binds, reads and compiles them, and says what stops the rest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]


def counted(*words: str) -> str:
    command = [sys.executable, "-m", "tests.coverage", "--packages", "warp", "--jobs", "1", *words]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernels_of_an_example_are_read_differentiated_and_compiled():
    kernels, *stages = map(
        int, re.findall(r"^\| warp \| (\d+) \| (\d+) \| (\d+) \| (\d+) ", counted("--only", "example_wave"), re.M)[0]
    )
    assert kernels >= 3 and stages == [kernels] * 3


def test_what_stops_a_kernel_is_said_with_its_line():
    said = counted("--only", "example_nvdb", "--list", "volume", "--reasons")
    assert re.search(r"\| [12] \| read \| refused-builtin: volume_\w+ \|", said)
    assert re.search(r"example_nvdb.*\.py:\d+: .*wp\.volume_", said)
