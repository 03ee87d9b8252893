"""A progress bar for reading kernels: the first watch of an engine reads some hundred of them, which takes a minute."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 2.0  # of reading, until the bar comes


class Progress:
    """Counts the kernels that a watch reads; shows a bar once PATIENCE_S seconds were spent."""

    def __init__(self) -> None:
        self.seconds, self.count = 0.0, 0
        self.bar: Any = None

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Context for the reading of one kernel."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began
            self.count += 1
            if self.bar is not None:
                self.bar.set_postfix_str(name, refresh=False)
                self.bar.update()
            elif self.seconds > PATIENCE_S:
                from tqdm.auto import tqdm

                self.bar = tqdm(desc="reading kernels", unit=" kernels", initial=self.count, leave=False)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
