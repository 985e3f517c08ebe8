"""What a run costs by its number of cells; the figures are those of the benchmark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCALE = Path(__file__).parents[2] / "benchmarks" / "scale" / "scale.py"


@pytest.mark.long
def test_the_time_of_a_run_grows_with_its_cells_and_no_faster() -> None:
    done = subprocess.run(
        [sys.executable, SCALE, "--cells", "200", "2000", "--launches", "12"],
        capture_output=True,
        text=True,
        check=True,
    )
    exponent = float(re.findall(r"exponent .* (\S+)$", done.stdout, flags=re.MULTILINE)[-1])
    assert 0.5 < exponent < 1.3, done.stdout  # 2 if each cell looks through all others
