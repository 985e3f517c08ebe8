"""The README's first screen: in an empty folder its commands end in a red gate and a page, of which it has a picture.

    WRITE_GOLDEN=1 .venv/bin/python -m pytest -s tests/physical/test_first_screen.py

takes the picture again and prints what the README quotes; it needs Chromium.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "page.png"
SIZE = "1200,530"
HEADER_BYTES = 33
"""A PNG's signature and first chunk: a text chunk may follow."""


@pytest.mark.usefixtures("interpreters_on_path")
def test_its_commands_end_in_a_red_gate(tmp_path: Path) -> None:
    block = re.search(r"```console\n(\$ git init .*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert block is not None
    (tmp_path / "pytest-ftgate").symlink_to(ROOT)
    quick = {} if os.environ.get("WRITE_GOLDEN") else {"PYTEST_ADDOPTS": "--ftgate-metrics=wall -oftgate_explain=no"}
    who = {f"GIT_{role}_{what}": "a@example.invalid" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["bash", "-c", "set -ex\n" + re.sub(r"^\$ ", "", block[1], flags=re.MULTILINE)],
        cwd=tmp_path,
        env={**os.environ, **quick, **who, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert "6 passed" in said
    assert done.returncode == 1, said
    assert re.search(r"^(REGRESSED|SUSPECT) test_words.py::test_words\[3.14t-threads-w2\]", said, re.MULTILINE), said
    page = tmp_path / "words" / "ftgate.html"
    if os.environ.get("WRITE_GOLDEN"):
        print(said)
        PICTURE.write_bytes(with_note(picture_of(page), columns(page)))


def columns(page: Path) -> bytes:
    """The heads of the page's first table."""
    table = page.read_text("utf-8").partition("<table")[2].partition("</thead>")[0]
    heads = re.findall(r'<button type="button">([^<]*)<', table)
    assert "wall" in heads
    return ", ".join(heads).encode()


def picture_of(page: Path) -> bytes:
    """A PNG of the page's upper part."""
    shot = page.with_suffix(".png")
    words = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=10000")
    command = ["chromium", *words, f"--window-size={SIZE}", f"--screenshot={shot}", page.as_uri()]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    return shot.read_bytes()


def with_note(png: bytes, note: bytes) -> bytes:
    """The picture with a text chunk, which says what columns it shows: test_docs.py compares them."""
    chunk = b"tEXtcolumns\0" + note
    text = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return png[:HEADER_BYTES] + text + png[HEADER_BYTES:]
