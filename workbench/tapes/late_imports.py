"""Late imports: methods of a tape that modules above it implement (pictures, ledgers, findings, replays, ...).

Imports point down, so the tape cannot import these modules. It names them here, and they are imported on the first
call: recording and walking load none of them. No other module reaches upwards by name (`tests/test_house.py`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

ANSWERS = {
    "show": "viz.show",
    "explore": "viz.explore",
    "film": "viz.film",
    "to_html": "viz.to_html",
    "seeds": "viz.seeds",
    "ledger": "viz.inspect.ledger.ledger",
    "microscope": "viz.inspect.microscope.microscope",
    "diagnose": "diagnose.diagnose",
    "against": "diagnose.against.against",
    "trust": "diagnose.trust.trust",
    "memory": "diagnose.memory_held.holdings",
    "replay": "tapes.replay.replay",
    "pitfall": "derivatives.pitfalls.backward",
    "inner_backward": "tapes.inner_backward.record",
    "duplicate": "derivatives.serialize.duplicate",
}


def ask(question: str, *args: object, **choices: object) -> Any:
    """Call the function that answers this question; its module is imported the first time."""
    module, _, name = ANSWERS[question].rpartition(".")
    return getattr(import_module(f"workbench.{module}"), name)(*args, **choices)
