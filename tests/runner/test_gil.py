"""Whether the GIL is on for good: it is for a moment while any thread loads an extension module."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest

from pytest_ftgate.runner import gil


@pytest.mark.parametrize(
    ("seen", "was_off", "enabled"),
    [
        ([False], True, False),
        ([True, True, False], True, False),
        ([True] * (gil.LOOKS + 1), True, True),
        ([True], False, True),  # it was on from the beginning: nobody waits
    ],
)
def test_it_is_looked_at_again(monkeypatch: pytest.MonkeyPatch, seen: list[bool], was_off: bool, enabled: bool) -> None:
    monkeypatch.setattr(gil, "gil_enabled", lambda: seen.pop(0))
    monkeypatch.setattr(gil, "LOOK_S", 0)
    watch = gil.GilWatch()
    watch.was_off = was_off
    assert watch.stays_on() is enabled
    assert seen == []


class Warnings:
    """In place of the module: something else is done at the first look at what shows a warning."""

    def __init__(self, meanwhile: Any) -> None:
        self.shown = list[str]()
        self.shows: Any = lambda message, *_: self.shown.append(str(message))
        self.meanwhile = meanwhile

    @property
    def showwarning(self) -> Any:
        found, meanwhile, self.meanwhile = self.shows, self.meanwhile, lambda: None
        meanwhile()
        return found

    @showwarning.setter
    def showwarning(self, shows: Any) -> None:
        self.shows = shows


def wrap(module: Any) -> None:
    inner = module.showwarning

    def outer(*args: Any) -> None:
        inner(*args)

    module.showwarning = outer


@pytest.mark.parametrize("meanwhile", ["another thread installs it", "it is wrapped, and installed again", "nothing"])
def test_a_warning_is_shown_once_however_often_it_is_installed(monkeypatch: pytest.MonkeyPatch, meanwhile: str) -> None:
    watch = gil.GilWatch()
    module = Warnings(watch.install if "thread" in meanwhile else lambda: None)
    text = f"The {gil._BEFORE}_speedups', which has not declared that it can run safely without the GIL."
    with monkeypatch.context() as patched:
        patched.setattr(gil, "gil_enabled", lambda: False)
        patched.setitem(sys.modules, "warnings", module)
        watch.install()
        if "wrapped" in meanwhile:
            wrap(module)
        watch.install()
        module.showwarning(RuntimeWarning(text), RuntimeWarning, "a.py", 1)
    assert module.shown == [text]
    assert watch.module == "_speedups"


def test_what_shows_warnings_is_asked_once_by_a_watch_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gil, "gil_enabled", lambda: False)
    monkeypatch.setattr(warnings, "showwarning", lambda *_: None)
    watch = gil.GilWatch()
    watch.install()
    first = warnings.showwarning
    watch.install()
    assert warnings.showwarning is first
