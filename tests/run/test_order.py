"""Which functions seem to lead to what a commit did not have: by the text of the sources, in a real repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import commit

from pytest_ftgate.features.unchanged import order
from pytest_ftgate.features.unchanged.order import distances

LIBRARY = """
RATE = 1

class Pump:
    def __init__(self):
        self.rate = RATE

    def flow(self):
        return self.rate * factor()

def factor():
    return 2

def alone():
    return 3
"""
USER = """
from library import Pump, alone
from library import factor as renamed

def pumped():
    return Pump().flow()

def test_flow(worker):
    pumped()

def test_alone(worker):
    alone()

def test_renamed(worker):
    renamed()
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "library.py").write_text(LIBRARY, encoding="utf-8")
    (tmp_path / "test_user.py").write_text(USER, encoding="utf-8")
    (tmp_path / "broken.py").write_text("def factor(:\n", encoding="utf-8")
    commit(tmp_path)
    return tmp_path


def reaching(repo: Path, old: str, new: str, file: str = "library.py") -> list[str]:
    """The tests that lead to a change of a file, the nearest first."""
    text = (repo / file).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (repo / file).write_text(text.replace(old, new), encoding="utf-8")
    found = distances(repo, "HEAD")
    tests = [place for place in found if place[1].startswith("test_")]
    return [name for _, name in sorted(tests, key=lambda each: found[each])]


@pytest.mark.parametrize(
    ("old", "new", "tests"),
    [
        ("return 2", "return 4", ["test_renamed", "test_flow"]),
        ("RATE = 1", "RATE = 2", ["test_flow"]),
        ("self.rate = RATE", "self.rate = -RATE", ["test_flow"]),
        ("return 3", "return 4", ["test_alone"]),
        ("def alone", "# a comment\ndef alone", []),
        ("def alone", "def unused(): ...\n\ndef alone", []),
    ],
)
def test_what_mentions_a_changed_name_comes_first(repo: Path, old: str, new: str, tests: list[str]) -> None:
    assert reaching(repo, old, new) == tests


def test_a_changed_test_is_the_nearest(repo: Path) -> None:
    assert reaching(repo, "    alone()", "    alone() + 1", "test_user.py") == ["test_alone"]
    assert distances(repo, "HEAD")["test_user.py", "test_alone"] == 0


def test_where_too_much_has_changed_no_order_is_known(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / "library.py").write_text(LIBRARY.replace("return", "yield"), encoding="utf-8")
    assert distances(repo, "HEAD")
    monkeypatch.setattr(order, "MOST_FILES", 0)
    assert distances(repo, "HEAD") == {}
