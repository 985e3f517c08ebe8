"""Where a measurement can be asked for."""

from __future__ import annotations

import pytest

from pytest_ftgate.plugin.options import measures


@pytest.mark.parametrize("line", ["ftgate = true", "ftgate_against = main", "ftgate_update = new"])
def test_the_ini_asks_for_one(line: str, pytester: pytest.Pytester) -> None:
    assert not measures(pytester.parseconfig())
    pytester.makeini(f"[pytest]\n{line}\n")
    assert measures(pytester.parseconfig())


@pytest.mark.parametrize("word", ["--ftgate", "--ftgate-against", "--ftgate-update"])
def test_so_does_the_command_line(word: str, pytester: pytest.Pytester) -> None:
    assert measures(pytester.parseconfig(word))


def test_weights_ask_for_nothing(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nftgate_weights = memory=2\n")
    assert not measures(pytester.parseconfig())
