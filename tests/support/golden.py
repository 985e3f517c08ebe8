"""Golden files: expected texts that are compared as a whole.

`WRITE_GOLDEN=1 python -m pytest tests/report tests/store tests/commands` writes them again; read their diff before you
commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"


def check_golden(name: str, text: str) -> None:
    """Assert that `text` is the content of the golden file, or write it with WRITE_GOLDEN in the environment."""
    path = FOLDER / name
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
