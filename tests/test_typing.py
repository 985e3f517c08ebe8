"""What users write has types: the file that type checkers read is one that runs, and its names are in every target."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import typed_workloads

import pytest_ftgate
from pytest_ftgate.measure.launchers.workload import install_runner


def test_every_form_of_the_decorators_runs_as_it_is_typed(pytester: pytest.Pytester) -> None:
    shutil.copy(typed_workloads.__file__, pytester.path / "test_typed.py")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-q", "-rs", "--ftgate-python=3.14")
    counted = result.parseoutcomes()
    assert counted.keys() <= {"passed", "skipped"}, result.stdout.str()
    assert counted["passed"] > 20


def test_every_name_is_there_in_the_measured_interpreter(tmp_path: Path, executables: dict[str, str]) -> None:
    names = sorted(pytest_ftgate.__all__)
    assert all(hasattr(pytest_ftgate, name) for name in names)
    code = f"import pytest_ftgate; from pytest_ftgate import {', '.join(names)}; print(*sorted(pytest_ftgate.__all__))"
    for executable in executables.values():
        run = [executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(install_runner(tmp_path))!r}); {code}"]
        assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.split() == names
