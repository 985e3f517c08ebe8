"""Jinja as the project under test: its own branch makes no page."""

from __future__ import annotations

import pytest
from example import Example

CELL = """
    @ftgate.compare(serial, workers=1)
    def test_it(worker):
        pass
"""
SETTINGS = """
    [pytest]
    pythonpath = src
    ftgate_install =
    ftgate_python = 3.14
    ftgate_launches = 1
    ftgate_iterations = 2
"""


def test_a_branch_under_test_makes_no_page(pytester: pytest.Pytester, interpreters_on_path: None) -> None:
    broken = "raise ImportError('a branch in the middle of its work')\n"
    example = Example(pytester, {"pytest.ini": SETTINGS, "src/jinja2/__init__.py": broken, "test_it.py": CELL})
    result = example.run_fresh("--ftgate", "--ftgate-report", "html:a.html", "--ftgate-report", "md:a.md")
    assert result.ret == pytest.ExitCode.OK
    told = [
        line for line in result.outlines if line.startswith("ftgate: html is not made: jinja2 here is this project's")
    ]
    assert len(told) == 2, "at the start and at the end"
    assert (pytester.path / "a.md").is_file()
    assert not (pytester.path / "a.html").exists()
