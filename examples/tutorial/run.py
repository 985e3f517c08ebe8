"""Runs the commands of docs/tutorial.md, and compares what they print with what the page shows.

    python examples/tutorial/run.py [--write] [FOLDER]

The folder gets what the reader has: a repository of cachelib 0.13.0, as its source distribution is, and this checkout
beside it. A group of lines that the page shows must stand in the output, line by line; figures may differ. A command
that measures may have measured too little on a busy machine, so it has three tries. With --write the page takes the
figures of this run. Exits with 1 if a command printed something else.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
SHA256 = "209d8996e3c57595bee274ff97116d1d73c4980b2fd9a34c7846cd07fd2e1a48"  # of cachelib-0.13.0.tar.gz
TRIES = 3
VARIES = (
    (r"±[\d.]+ %", ""),  # an interval needs three launches
    (r" \([-+±<\d.%]+\)", ""),  # a difference is shown where it changed
    (r"[<+-]?\b\d[\d.]*(?![\w.]*-)", "#"),  # but not the version in a cell's name
    (r"# /s  ", ""),  # a column that is shown where it changed
    (r"# (ns|µs|ms|s)\b", "# TIME"),
    (r"# %", "#"),
    (r"\b(passed|improved|inconclusive)$", "GREEN"),
    (r"dictionary (keys changed|changed size)", "dictionary changed"),
    (r"^advice .*", "advice"),  # depends on the cores that were free
    (r"^why ", ""),  # before the first line of several
    (r"(.)\1{3,}", r"\1"),
    (r"\s+", " "),
)


def shape(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, by in VARIES:
        line = re.sub(pattern, by, line.strip())
    return line


def found(shown: list[str], printed: list[str]) -> list[str] | None:
    """The printed lines in place of those shown; None if a group of lines between `...` is not there."""
    taken: list[str] = []
    at = 0
    for group in re.split(r"^\.\.\.$\n?", "\n".join(shown), flags=re.MULTILINE):
        lines = group.splitlines()
        wanted = [shape(line) for line in lines]
        places = (k for k in range(at, len(printed) - len(lines) + 1) if _stands(wanted, printed[k:]))
        if (at := next(places, -1)) < 0:
            return None
        taken += ["...", *printed[at : at + len(lines)]]
        at += len(lines)
    return taken[1:]


def _stands(wanted: list[str], printed: list[str]) -> bool:
    return wanted == [shape(line) for line in printed[: len(wanted)]]


def reader(folder: Path) -> Path:
    """What the reader has: a clone of cachelib with an active environment, and one of this plugin."""
    words = ["pip", "compile", "--quiet", "--no-deps", "--format", "pylock.toml", "--python-version", "3.14", "-"]
    uv = str(Path(sys.executable).with_name("uv"))
    locked = subprocess.run([uv, *words], input="cachelib==0.13.0", capture_output=True, text=True, check=True).stdout
    archive = folder / "cachelib.tar.gz"
    archive.write_bytes(urllib.request.urlopen(tomllib.loads(locked)["packages"][0]["sdist"]["url"]).read())
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise SystemExit("the source distribution of cachelib 0.13.0 is another")
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        packed.extractall(folder)
    (folder / "pytest-ftgate").symlink_to(ROOT)
    clone = (folder / "cachelib-0.13.0").rename(folder / "cachelib")
    for command in ("git init --quiet --initial-branch=main", "git add .", "git commit --quiet -m 'cachelib 0.13.0'"):
        subprocess.run(command, shell=True, cwd=clone, env=environment(clone), check=True)
    subprocess.run([uv, "venv", "--quiet", "--python", "3.14", ".venv"], cwd=clone, check=True)
    return clone


def environment(clone: Path) -> dict[str, str]:
    """The reader's: no settings of ours, an author for the commits, lines as wide as the page."""
    ours = ("FTGATE_", "PYTEST_", "PYTHON", "GIT_", "UV_PYTHON", "GITHUB_", "CI")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    who = {f"GIT_{role}_{what}": "me@example.invalid" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = f"{clone / '.venv/bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**kept, **who, "PATH": path, "VIRTUAL_ENV": str(clone / ".venv"), "COLUMNS": "100"}


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Each command of the page's console blocks, with the lines shown below it."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(lines[0], lines[1:]) for lines in map(str.splitlines, parts)]


def main() -> int:
    """Every command, in order; the first that prints something else ends the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--write", action="store_true", help="write the figures of this run into the page")
    options = parser.parse_args()
    page = PAGE.read_text("utf-8")
    with tempfile.TemporaryDirectory(prefix="ftgate-tutorial-") as scratch:
        clone = reader(options.folder or Path(scratch))
        todo = steps(page)
        at, measured, left = 0, 0, TRIES
        while at < len(todo):
            command, shown = todo[at]
            if command.startswith("pytest") and at != measured:
                measured, left = at, TRIES
            print(f"$ {command}", flush=True)
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=clone,
                env=environment(clone),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            print(done.stdout, flush=True)
            taken = found(shown, done.stdout.replace(str(clone), "cachelib").splitlines())
            if taken is not None:
                if options.write:
                    page = page.replace("\n".join([f"$ {command}", *shown]), "\n".join([f"$ {command}", *taken]))
                at += 1
                continue
            # What was measured last was too little to show it: measure again, and go on from there.
            print("It does not print what the page shows:", *shown, sep="\n", flush=True)
            left -= 1
            if not left or not measured:
                return 1
            at = measured
    if options.write:
        PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
