"""Replays commits of three projects through the gate: what is measured of them, what that costs, and what it misses.

    python benchmarks/changes/histories.py [--commits 50] [--from NAME=REPOSITORY ...]

Each of the newest commits of a project's main branch is compared with the one before, with a test of the project's own
code added to both: once as a pull request is, and once with `--ftgate-unchanged=measure`. A cell that the first run
found unchanged and the second one found regressed would have been missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CELLS = ("project", "commits", "cells", "measured", "seconds", "seconds, all measured", "unchanged but slower")
REASONS = ("project", "commit", "test", "verdict", "what the check found")
FAILS = ("regressed", "suspect")
HEAD = """\
from pytest_ftgate import ftgate, threads
"""


class Project(NamedTuple):
    """A project: where its history is, the folder that is imported, and a test of two or three of its functions."""

    repository: str
    source: str
    test: str


PROJECTS = {
    "tomli": Project(
        "https://github.com/hukkin/tomli",
        "src",
        """
import tomli

TABLE = "[table.n{}]\\nname = 'a value'\\nlist = [1, 2.5, true, 2024-01-01T00:00:00Z]\\n"
TEXT = "".join(map(TABLE.format, range(150)))


@ftgate.compare(threads, workers=1)
def test_loads(worker):
    return len(tomli.loads(TEXT)["table"])
""",
    ),
    "cachetools": Project(
        "https://github.com/tkem/cachetools",
        "src",
        """
import cachetools


@ftgate.compare(threads, workers=1)
def test_lru(worker):
    cache = cachetools.LRUCache(256)
    for number in range(20_000):
        cache[number % 300] = number
    return len(cache)


@ftgate.compare(threads, workers=1)
def test_cached(worker):
    function = cachetools.cached(cachetools.LFUCache(64))(str)
    return sum(len(function(number % 50)) for number in range(20_000))
""",
    ),
    "more-itertools": Project(
        "https://github.com/more-itertools/more-itertools",
        ".",
        """
import more_itertools


@ftgate.compare(threads, workers=1)
def test_windowed(worker):
    return sum(1 for _ in more_itertools.windowed(range(50_000), 5))


@ftgate.compare(threads, workers=1)
def test_partitions(worker):
    return sum(1 for _ in more_itertools.set_partitions("abcdefgh", 3))
""",
    ),
}


def git(folder: Path, *arguments: str, **more: str) -> str:
    """What a git command prints; `more` is added to its environment."""
    command = ["git", "-c", "user.name=ftgate", "-c", "user.email=ftgate@example.org", *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ | more, check=True, capture_output=True, text=True
    ).stdout.strip()


def with_test(folder: Path, project: Project, commits: int) -> list[tuple[str, str]]:
    """A branch of the newest commits with the test in each of them: pairs of a commit and its own one there."""
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {project.source}\nftgate_install =\n")
    (folder / "test_histories.py").write_text(HEAD + project.test)
    history = git(folder, "rev-list", "--first-parent", f"--max-count={commits + 1}", "HEAD").split()
    made, parent = [], list[str]()
    index = str(folder / ".git" / "index-of-histories")
    for commit in reversed(history):
        git(folder, "read-tree", commit, GIT_INDEX_FILE=index)
        git(folder, "add", "--force", "pytest.ini", "test_histories.py", GIT_INDEX_FILE=index)
        tree = git(folder, "write-tree", GIT_INDEX_FILE=index)
        own = git(folder, "commit-tree", tree, "-m", commit, *parent)
        made.append((commit, own))
        parent = ["-p", own]
    for name in ("pytest.ini", "test_histories.py"):
        (folder / name).unlink()
    return made[1:]


def gate(folder: Path, *options: str) -> tuple[dict[str, dict[str, str]], float]:
    """The verdicts of a commit against the one before, by node id, and the seconds that the run took."""
    report = folder / ".ftgate" / "histories.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "test_histories.py", "--ftgate", "--ftgate-against=HEAD~1"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, f"--ftgate-report=json:{report}", *options], cwd=folder, check=False, capture_output=True, text=True
    )
    seconds = time.monotonic() - began
    if not report.exists():
        raise SystemExit(done.stdout + done.stderr)
    tables = json.loads(report.read_text("utf-8"))["tables"]
    return {row["cell"]["nodeid"]: row["verdict"] for table in tables for row in table["rows"]}, seconds


def replay(name: str, repository: str, commits: int, options: Sequence[str], folder: Path) -> Iterator[list[str]]:
    """The row of each cell that was measured or would have been missed; the last row is of the whole project."""
    git(folder.parent, "clone", "--quiet", repository, str(folder))
    measured, cells, spent, spent_all, missed = 0, 0, 0.0, 0.0, 0
    history = with_test(folder, PROJECTS[name], commits)
    for commit, own in history:
        git(folder, "checkout", "--quiet", "--force", own)
        found, seconds = gate(folder, *options)
        every, seconds_all = gate(folder, "--ftgate-unchanged=measure", *options)
        cells, spent, spent_all = cells + len(found), spent + seconds, spent_all + seconds_all
        for nodeid, verdict in found.items():
            unchanged = verdict["decision"] == "unchanged"
            slower = unchanged and every[nodeid]["decision"] in FAILS
            measured, missed = measured + (not unchanged), missed + slower
            why = verdict.get("reason" if unchanged else "why", "").partition("; ")[2] or verdict.get("reason", "")
            if slower or not unchanged:
                shown = f"unchanged, measured: {every[nodeid]['decision']}" if slower else verdict["decision"]
                yield [name, commit[:10], nodeid.partition("::")[2], shown, why]
    share = f"{measured / max(1, cells):.0%}"
    yield [name, str(len(history)), str(cells), share, f"{spent:.0f}", f"{spent_all:.0f}", str(missed)]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown, with what made it."""
    lines = [columns, ["---"] * len(columns), *rows]
    made_by = "<!-- made by benchmarks/changes/histories.py -->\n\n"
    return made_by + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Replay, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--from", dest="repositories", action="append", default=[], metavar="NAME=REPOSITORY")
    parser.add_argument(
        "--option", action="append", default=[], help="of both runs, such as --option=--ftgate-time=60s"
    )
    parser.add_argument("projects", nargs="*", metavar="PROJECT", help=f"of {', '.join(PROJECTS)}; by default all")
    arguments = parser.parse_args()
    repositories = {name: project.repository for name, project in PROJECTS.items()}
    repositories |= dict(each.split("=", 1) for each in arguments.repositories)
    sums, reasons = list[list[str]](), list[list[str]]()
    for name in arguments.projects or PROJECTS:
        with tempfile.TemporaryDirectory() as folder:
            rows = replay(name, repositories[name], arguments.commits, arguments.option, Path(folder, name))
            for row in rows:
                print(*row, sep=" | ", flush=True)
                (reasons if len(row) == len(REASONS) else sums).append(row)
    print(table(CELLS, sums), table(REASONS, reasons), sep="\n\n")


if __name__ == "__main__":
    main()
