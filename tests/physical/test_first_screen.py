"""The README's first screen: in an empty folder its commands end in a red gate and a page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("interpreters_on_path")
def test_its_commands_end_in_a_red_gate(tmp_path: Path) -> None:
    block = re.search(r"```console\n\$ git clone [^\n]*\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert block is not None
    (tmp_path / "pytest-ftgate").symlink_to(ROOT)
    who = {f"GIT_{role}_{what}": "a@example.invalid" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["bash", "-c", "set -ex\n" + re.sub(r"^\$ ", "", block[1], flags=re.MULTILINE)],
        cwd=tmp_path,
        env={**os.environ, **who, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert "2 passed" in said
    assert done.returncode == 1, said
    assert re.search(r"^(REGRESSED|SUSPECT) test_words.py::test_words\[3.14t-threads-w2\]", said, re.MULTILINE), said
    assert "test_words" in (tmp_path / "words" / "ftgate.html").read_text("utf-8")
