"""A gate that fails by memory, end to end on a real interpreter: the line is named, and no function."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from example import Example
from project import NOBODY, commit

BODY = """
BALLAST = b""
HELD = []


@ftgate.compare(threads, workers=1, pythons=["3.14"])
def test_loop(worker):
    x = 0
    for k in range(2_000):
        x += k
    return x
"""
QUICK = ("--ftgate-against=HEAD", "--ftgate-test-time=30s")


@pytest.fixture
def example(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, interpreters_on_path: None) -> Example:
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    ini = "[pytest]\nftgate_install =\n"
    made = Example(pytester, {"pytest.ini": ini, ".gitignore": ".ftgate/\n__pycache__/\n", "test_a.py": BODY})
    commit(made.folder, "first")
    return made


@pytest.mark.parametrize(
    ("old", "new", "metric", "of", "added"),
    [
        ('BALLAST = b""', 'BALLAST = b"x" * (8 << 20)', "uss", "memory", 8 << 20),
        ("    x = 0", '    HELD.append(b"x" * (64 << 10))\n    x = 0', "growth", "growth", 64 << 10),
    ],
    ids=["ballast", "leak"],
)
def test_memory_is_explained_by_the_line_that_holds_it(
    example: Example, old: str, new: str, metric: str, of: str, added: int
) -> None:
    path = example.folder / "test_a.py"
    path.write_text(path.read_text().replace(old, new))
    result = example.run_fresh(*QUICK, f"--ftgate-metrics={metric}")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (row,) = example.rows()
    causes: list[dict[str, Any]] = row["explanation"]["causes"]
    assert [each["of"] for each in causes] == [of]
    (part,) = causes[0]["parts"]
    place = path.read_text().splitlines().index(new.splitlines()[0]) + 1
    assert (part["file"], part["line"], part["name"]) == ("test_a.py", place, new.splitlines()[0].strip())
    assert part["added"] == pytest.approx(added, rel=0.1)
    text = result.stdout.str()
    assert f"at test_a.py:{place}" in text
    assert "spent in" not in text


FORKED = """
DATA = bytearray(16 << 20)


@ftgate.compare(processes=["fork"], workers=2, pythons=["3.14"])
def test_loop(worker):
    pass


@test_loop.shared
def filled(context):
    DATA[::4096] = b"x" * 4096
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the source is Linux's smaps")
def test_memory_that_workers_have_unshared_is_explained_by_that_and_no_line_is_looked_for(example: Example) -> None:
    path = example.folder / "test_a.py"
    head = path.read_text().removesuffix(BODY)
    path.write_text(head + FORKED)
    commit(example.folder, "forked")
    path.write_text(head + FORKED.replace("    pass", '    DATA[::4096] = b"y" * 4096'))
    result = example.run_fresh(*QUICK, "--ftgate-metrics=uss,unshared")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (row,) = example.rows()
    decided = {each["metric"]: each["decision"] for each in row["verdict"]["metrics"]}
    assert decided == {"uss": "regressed", "unshared": "regressed"}
    ((cause,), size) = row["explanation"]["causes"], 16 << 20
    (part,) = cause["parts"]
    assert (cause["of"], cause["unknown"], part["name"], part["file"]) == ("memory", "", "unshared", "")
    # Both workers have a copy of their own, and the parent is left with its pages.
    assert part["after"] - part["before"] == pytest.approx(2 * size, rel=0.1)
    assert part["added"] == pytest.approx(3 * size, rel=0.1)
    assert cause["added"] == pytest.approx(3 * size, rel=0.1)
    text = " ".join(result.stdout.str().split())
    # All of it or a tenth of a MiB less, by how the sample of each launch falls.
    share = r"(all 4[78]\.\d MiB that were|4[78]\.\d MiB of the 4[78]\.\d MiB) added are held in pages"
    assert re.search(f"{share} that workers no longer share with their parent", text)
    assert "gc.freeze() before the fork" in text
