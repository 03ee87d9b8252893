"""`pytest --workbench-watch`: a test that walks back a Warp tape fails where a gradient that it gets is not exact.

The report of the failure is the table of `interop.warp.watch`. Without the option nothing is watched.
In every report the tracebacks of refusals end at the user's line.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from .tracebacks import shorten


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("workbench").addoption(
        "--workbench-watch", action="store_true", help="fail tests whose Warp tapes give gradients that are not exact"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run the test itself under a watch; a failure of its own goes first."""
    if not item.config.getoption("--workbench-watch"):
        return (yield)
    from ..warp.watch import watch

    with watch() as seen:
        result = yield
    if (found := seen.compare()).wrong:
        pytest.fail(f"a gradient of Warp's is not exact:\n{found!r}", pytrace=False)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.excinfo is not None:
        shorten(call.excinfo.value)
