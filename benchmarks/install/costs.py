"""What an installed plugin costs on one Python: disk, and the CPU time of runs that do not use it. Takes 3 minutes.

It installs the tree and the newest of what it depends on into a new environment. `files` is what the wheels hold,
`bytecode` what pip adds to it: uv leaves that to the first import. `without` is the rest of the environment if this
distribution, and what nothing else needs, were not installed.

Then pytest collects and runs 200 tests that use no plugin, in environments with one plugin each and in one without, in
turn and in random order. Shown is the CPU time (user and system) of pytest, and how much more each plugin takes in the
same round: medians.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pytest_ftgate.targets.environments import run_uv

ROOT = Path(__file__).parents[2]
OURS = "pytest-ftgate"
BARE = "pytest"
PEERS = ("pytest-benchmark", "pytest-codspeed")
TESTS = 200
RUNS = {"collects": ("--collect-only",), "runs": ()}


class Installed(NamedTuple):
    """A distribution of an environment: bytes, and the names of what it needs there."""

    files: int
    bytecode: int
    needs: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.14", metavar="VERSION", help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="of runs (default: %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ftgate-costs-") as folder:
        pythons = {BARE: environment(Path(folder, BARE), args.python, BARE)}
        pythons[OURS] = environment(Path(folder, OURS), args.python, str(ROOT))
        pythons |= {name: environment(Path(folder, name), args.python, name) for name in PEERS}
        show_sizes(pythons[OURS])
        show_times(pythons, Path(folder), args.rounds)


def environment(folder: Path, version: str, requirement: str) -> Path:
    """The Python of a new environment with this requirement."""
    python = folder / "bin" / "python"
    for words in (
        ["venv", "--no-project", "--python", version, str(folder)],
        ["pip", "install", "--compile-bytecode", "--python", str(python), requirement],
    ):
        done = run_uv([*words, "--quiet"])
        if done.returncode:
            raise SystemExit(done.stderr)
    return python


def show_sizes(python: Path) -> None:
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    found = {canonicalize_name(each.name): installed(each) for each in metadata.distributions(path=[str(packages)])}
    whole = total(found, OURS)
    rows = [
        (name, each.files / 1e6, each.bytecode / 1e6, total(found, OURS, name) / 1e6) for name, each in found.items()
    ]
    print(f"{'MB':24} {'files':>7} {'bytecode':>9} {'without':>8}")
    for name, files, bytecode, without in sorted(rows, key=lambda row: -row[1]):
        print(f"{name:24} {files:7.1f} {bytecode:9.1f} {without if name != OURS else 0:8.1f}")
    bytecode = sum(each.bytecode for each in found.values())
    print(f"{'all of it':24} {(whole - bytecode) / 1e6:7.1f} {bytecode / 1e6:9.1f}\n")


def show_times(pythons: dict[str, Path], folder: Path, rounds: int) -> None:
    file = folder / "test_plain.py"
    file.write_text("".join(f"def test_{number}():\n    assert True\n" for number in range(TESTS)))
    took: dict[tuple[str, str], list[float]] = {(name, run): [] for name in pythons for run in RUNS}
    for number in range(rounds + 1):
        for name, run in random.sample(list(took), len(took)):
            spent_s = cpu_s([str(pythons[name]), "-m", "pytest", "-q", "-p", "no:cacheprovider", *RUNS[run], str(file)])
            if number:  # the first round writes bytecode
                took[name, run].append(spent_s)
    print(f"{f'ms of CPU, {TESTS} tests':24} {' '.join(f'{run:>9}' for run in RUNS)}")
    for name in pythons:
        texts = []
        for run in RUNS:
            more = [own - alone for own, alone in zip(took[name, run], took[BARE, run], strict=True)]
            median_ms = 1e3 * statistics.median(took[name, run] if name == BARE else more)
            texts.append(f"{median_ms:9.0f}" if name == BARE else f"{median_ms:+9.0f}")
        print(f"{name:24} {' '.join(texts)}")


def cpu_s(words: list[str]) -> float:
    """User and system seconds of a process."""
    # Without its bytecode, each run would compile the plugin anew.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=variables, cwd=Path(words[-1]).parent)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def installed(distribution: metadata.Distribution) -> Installed:
    """What a distribution has in its environment."""
    paths = [Path(str(distribution.locate_file(each))) for each in distribution.files or () if each.suffix != ".pyc"]
    files = [path for path in paths if path.is_file()]
    stems = {path.with_suffix("") for path in files if path.suffix == ".py"}
    folders = {stem.parent / "__pycache__" for stem in stems}
    cached = [each for folder in folders if folder.is_dir() for each in folder.iterdir()]
    compiled = [each for each in cached if each.parents[1] / each.name.partition(".")[0] in stems]
    requirements = map(Requirement, distribution.requires or ())
    needs = (canonicalize_name(each.name) for each in requirements if "extra" not in str(each.marker))
    return Installed(size(files), size(compiled), tuple(needs))


def size(files: list[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def total(found: dict[str, Installed], name: str, without: str = "") -> int:
    """Bytes of a distribution and of all that it needs, less one of them."""
    seen: set[str] = set()
    left = [name]
    while left:
        each = left.pop()
        if each in found and each not in seen and each != without:
            seen.add(each)
            left += found[each].needs
    return sum(found[each].files + found[each].bytecode for each in seen)


if __name__ == "__main__":
    main()
