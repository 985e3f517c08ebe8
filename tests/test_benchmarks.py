"""The scripts of `benchmarks/` start: nobody else runs them between two releases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(
    path.relative_to(BENCHMARKS).as_posix()
    for path in BENCHMARKS.rglob("*.py")
    # One that names dependencies of its own is run by uv, the others with what the project has.
    if "argparse" in (text := path.read_text(encoding="utf-8")) and "# /// script" not in text
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_starts(script: str) -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / script, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
