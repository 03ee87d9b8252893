"""Bars of progress: in a notebook and on a terminal, nowhere else, and nothing is left of them."""

from __future__ import annotations

import io

import pytest

from workbench import display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def worked(count: int = 3) -> None:
    with display.ProgressBar(count, "steps") as bar:
        for _ in range(count):
            bar.update()
        bar.say("behind it")


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(display, "BAR_AFTER_S", 0.0)


def test_a_terminal_sees_it(at_once, monkeypatch):
    seen = Terminal()
    monkeypatch.setattr("sys.stderr", seen)
    worked()
    assert "steps" in seen.getvalue() and "1/3" in seen.getvalue()


def test_what_is_over_soon_shows_nothing(monkeypatch):
    monkeypatch.setattr(display, "BAR_AFTER_S", 1e9)
    monkeypatch.setattr("sys.stderr", seen := Terminal())
    worked()
    assert not seen.getvalue()


def test_nothing_is_written_without_a_terminal(at_once, capsys):
    worked()
    assert capsys.readouterr() == ("", "")


def test_no_widget_is_left(at_once, monkeypatch):
    widgets = pytest.importorskip("ipywidgets.widgets.widget")
    from tqdm.notebook import tqdm

    monkeypatch.setattr(display, "_bar_here", lambda: tqdm)
    worked()  # tqdm and ipywidgets make some things once
    before, made = dict(widgets._instances), []
    monkeypatch.setattr(display, "_bar_here", lambda: lambda **given: made.append(tqdm(**given)) or made[-1])
    worked()
    assert len(made) == 1 and made[0].container is not None
    assert widgets._instances == before
