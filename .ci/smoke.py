"""Uses the wheel as a user would, alone in a clean environment of each Python that the classifiers name: `make smoke`.

Each environment has the wheel and the newest dependencies. It runs a gated test as a plain test, records its baseline,
and gates it against that. Arguments such as 3.12 select some of the Pythons. Exits with 1 if a step failed, or if a
Python is not here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_ftgate.targets.environments import run_uv

ROOT = Path(__file__).parents[1]
CONTROLLERS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
SHORT = ("-oftgate_launches=2", "-oftgate_iterations=3", "--ftgate-test-time", "20s")
TEST = """
from pytest_ftgate import Worker, ftgate, threads

@ftgate.compare(threads)
def test_sum(worker: Worker) -> int:
    return sum(range(20_000))
"""
STEPS = (
    ("plain", ("pytest", "-q"), "2 passed", (0,)),
    ("record", ("pytest", "--ftgate-update=new", *SHORT), "2 cells in .*: 2 recorded", (0,)),
    ("gate", ("pytest", "--ftgate", *SHORT), "2 cells in .*: (?!.*no baseline)", (0, 1, 5)),
)
"""Name, words, what must be said, and exit codes; what a busy machine decides of the same code is no matter here."""


class Step(NamedTuple):
    """What one command did: `error` has its output if it failed."""

    name: str
    seconds: float
    error: str = ""


def controller(name: str) -> str | None:
    """A Python of this version and build; None where there is none."""
    ours = sorted(Path.home().glob(f".pyenv/versions/{name}.*/bin/python"))
    if ours:
        return str(ours[-1])
    found = run_uv(["python", "find", "--no-project", "--system", "--no-python-downloads", f"cpython-{name}"])
    return found.stdout.strip() or None if found.returncode == 0 else None


def build(source: Path, into: Path, **variables: str) -> list[Path]:
    """The source distribution and the wheel of a tree, in this order; their files have the time of its last commit."""
    if (source / ".git").exists():
        last = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=source, check=True, capture_output=True, text=True
        )
        variables["SOURCE_DATE_EPOCH"] = last.stdout.strip()
    words = [sys.executable, "-m", "hatchling", "build", "--directory", str(into)]
    subprocess.run(words, cwd=source, env={**os.environ, **variables}, check=True, capture_output=True)
    return [*into.glob("*.tar.gz"), *into.glob("*.whl")]


def install(python: str, wheel: Path, folder: Path, *options: str) -> Path:
    """A new environment with the wheel and what it depends on; its folder of programs."""
    for words in (
        ["venv", "--quiet", "--no-project", "--python", python, str(folder)],
        ["pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), *options, str(wheel)],
    ):
        done = run_uv(words)
        if done.returncode:
            raise RuntimeError(f"uv {' '.join(words)}:\n{done.stderr}")
    return folder / "bin"


def project(folder: Path) -> Path:
    """A repository with one gated test that needs nothing but the standard library."""
    folder.mkdir()
    (folder / "test_sum.py").write_text(TEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nftgate_install =\n", encoding="utf-8")
    git = ["git", "-C", str(folder), "-c", "user.name=smoke", "-c", "user.email=smoke@example.invalid"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "What is measured"]):
        subprocess.run([*git, *words], check=True)
    return folder


def steps(programs: Path, folder: Path) -> Iterator[Step]:
    """The gated test as a plain test, recorded, and gated; it ends with the first step that fails."""
    for name, words, said, codes in STEPS:
        step = run(name, programs, words, folder, said, codes)
        yield step
        if step.error:
            return


def run(name: str, programs: Path, words: Sequence[str], cwd: Path, said: str, codes: Sequence[int]) -> Step:
    """Run a program of an environment, outside of ours."""
    ignored = ("FTGATE", "PYTEST", "PYTHON", "VIRTUAL_ENV", "UV_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ignored)}
    began = time.monotonic()
    command = [str(programs / words[0]), *words[1:]]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    fits = done.returncode in codes and re.search(said, done.stdout)
    error = "" if fits else f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return Step(name, time.monotonic() - began, error)


class Smoked(NamedTuple):
    """How the wheel does on one Python: a line about it, and what failed."""

    said: str
    errors: list[str]


def smoked(name: str, wheel: Path) -> Smoked:
    """Every step in a new environment. A Python that is not here is an error."""
    python = controller(name)
    if python is None:
        return Smoked(f"{name:6} is not here", [f"there is no Python {name} here: uv python install {name}"])
    with tempfile.TemporaryDirectory(prefix="ftgate-smoke-") as folder:
        programs = install(python, wheel, Path(folder) / "env")
        done = list(steps(programs, project(Path(folder) / "project")))
    times = ", ".join(f"{step.name} {'FAILED' if step.error else f'{step.seconds:.0f} s'}" for step in done)
    return Smoked(f"{name:6} {times}", [f"{name}: {step.error}" for step in done if step.error])


def main() -> int:
    """Every Python that was asked for, else each of the classifiers; a line for each."""
    failed = False
    with tempfile.TemporaryDirectory(prefix="ftgate-smoke-") as folder:
        _, wheel = build(ROOT, Path(folder))
        for name in sys.argv[1:] or CONTROLLERS:
            found = smoked(name, wheel)
            print(found.said, *found.errors, sep="\n", flush=True)
            failed |= bool(found.errors)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
