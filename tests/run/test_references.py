"""Names of source files as people know them."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from pytest_ftgate.run.sides.references import shown_path

ROOT = PurePosixPath("/opt/someone/project")


@pytest.mark.parametrize(
    ("file", "kept"),
    [
        ("/opt/someone/project/src/words.py", "src/words.py"),
        ("/opt/someone/project/.venv/lib/python3.14/site-packages/a/b.py", "lib/python3.14/site-packages/a/b.py"),
        ("/opt/someone/projects/words.py", "words.py"),
        ("/usr/lib/python3.14t/queue.py", "lib/python3.14t/queue.py"),
        ("/usr/lib64/python3.14/queue.py", "lib64/python3.14/queue.py"),
        ("/a/lib/python3.13/b/lib/python3.14/c.py", "lib/python3.14/c.py"),
        ("/a/mylib/python3.14/c.py", "c.py"),
        ("/usr/lib/python3/words.py", "words.py"),
        ("tests/words.py", "tests/words.py"),
        ("../elsewhere/words.py", "words.py"),
        ("<string>", "<string>"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("", ""),
    ],
)
def test_a_portable_name_is_told_from_the_project_or_the_installation(file: str, kept: str) -> None:
    assert shown_path(file, ROOT) == kept
    assert "someone" not in shown_path(file, None)


def test_a_project_inside_an_installation_is_still_the_project() -> None:
    root = PurePosixPath("/usr/lib/python3.14/site-packages/project")
    assert shown_path(f"{root}/words.py", root) == "words.py"
