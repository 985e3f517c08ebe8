"""Names that are not ASCII, where Python takes the locale to be it, as under LC_ALL=C without its UTF-8 mode."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from example import Example

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there a locale has nothing to do with names")

SUM = """
    @ftgate.compare(threads, workers=[1])
    def test_sum(worker):
        return sum(range(2000))
"""
QUICK = ("-q", "--ftgate", "--ftgate-python=3.14", "-o", "ftgate_launches=2", "-o", "ftgate_iterations=2")


@pytest.fixture
def ascii_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")):
        monkeypatch.setenv(name, value)


@pytest.fixture
def folder(pytester: pytest.Pytester) -> Path:
    """Inside, as the plugin writes its own files below it, and tells other processes its name."""
    path = pytester.mkdir("é")
    (path / "pytest.ini").write_text("[pytest]\nftgate_install =\n", encoding="utf-8")
    return path


@pytest.mark.usefixtures("ascii_locale", "interpreters_on_path")
def test_a_project_lies_in_any_folder(pytester: pytest.Pytester, folder: Path) -> None:
    example = Example(pytester, {"é/test_sum.py": SUM})
    assert example.run_fresh(*QUICK, folder="é").ret == 0
    assert list(example.decisions("é/.ftgate/last-run.json")) == ["test_sum.py::test_sum[3.14-threads-w1]"]


@pytest.mark.usefixtures("ascii_locale")
def test_a_test_file_that_cannot_be_named_is_a_usage_error(pytester: pytest.Pytester, folder: Path) -> None:
    example = Example(pytester, {"é/test_ü.py": SUM})
    assert example.run_fresh("-q", folder="é").ret == 0
    result = example.run_fresh(*QUICK, folder="é")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = "the name of this file cannot be read as ascii: set PYTHONUTF8=1"
    result.stderr.fnmatch_lines([f"ERROR: test_*.py::test_sum[[]3.14-threads-w1[]]: {said}"])
