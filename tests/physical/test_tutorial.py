"""The tutorial: its commands print the lines that it shows, all but their figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from physical import cores_now

ROOT = Path(__file__).parents[2]
CORES = 1.5
"""On fewer the threads do not run at once: they neither race nor wait as the page says."""


@pytest.mark.long
@pytest.mark.usefixtures("interpreters_on_path")
def test_its_commands_print_what_it_shows(tmp_path: Path) -> None:
    before = cores_now()
    done = subprocess.run(
        [sys.executable, "examples/tutorial/run.py", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode and (cores := min(before, cores_now())) < CORES:
        pytest.skip(f"there were {cores:.2f} cores for it")
    assert done.returncode == 0, done.stdout
