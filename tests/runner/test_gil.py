"""Whether the GIL is on for good: it is for a moment while any thread loads an extension module."""

from __future__ import annotations

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
    assert watch.enabled() is enabled
    assert seen == []
