"""Generators of random programs with their oracles: a handful runs as tests, thousands by hand with
`python -m tests.fuzz.NAME --programs N --seed S`, where NAME is the file."""

from __future__ import annotations

import argparse

import workbench as wb
from workbench.launches import thresholds

thresholds.HURRIED_BELOW = 0  # the code that long runs have


def asked_seeds(programs: int = 1000, backend: str | None = "c") -> range:
    """The seeds that the command line asks for, on the backend that it names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=programs)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default=backend)
    given = parser.parse_args()
    wb.config.backend = given.backend
    return range(given.seed, given.seed + given.programs)
