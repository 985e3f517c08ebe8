"""What each plugin adds to the start of every pytest run: pytest-ftgate and three others, in one run, interleaved.

    python benchmarks/cost/startup.py [--python python3.14] [--rounds 12]

Makes a temporary environment with all four plugins. For each of them, a fresh process imports pytest and then the
plugin's modules ("import"), and another one runs pytest on an empty folder with that plugin alone ("empty run", over
the same run without a plugin). Prints CPU time, the number of modules, and resident memory
(RSS). Each figure is the lowest of the rounds. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from pytest_ftgate.targets.environments import find_uv

ROOT = Path(__file__).parents[2]
PEERS = ("pytest-benchmark", "pytest-codspeed", "pytest-xdist")
PLUGINS = ("pytest-ftgate", *PEERS)

ENTRY_POINTS = """
import json, sys
from importlib.metadata import distribution
print(json.dumps([[p.name, p.module] for p in distribution(sys.argv[1]).entry_points if p.group == "pytest11"]))
"""

# RSS, not USS: which pages of a shared library count as private depends on what else runs at that moment.
CHILD = """
import contextlib, gc, importlib, io, json, sys, time
import pytest

def state():
    gc.collect()
    with open("/proc/self/smaps_rollup") as rollup:
        rss = next(int(line.split()[1]) for line in rollup if line.startswith("Rss:"))
    return len(sys.modules), rss / 1024

what, names, folder = json.loads(sys.argv[1])
modules, rss = state()
began = time.process_time()
if what == "import":
    for name in names:
        importlib.import_module(name)
else:
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*(word for name in names for word in ("-p", name)), "-p", "no:cacheprovider", folder])
cpu = time.process_time() - began
loaded, grown = state()
print(json.dumps([cpu * 1e3, loaded - modules, grown - rss]))
"""


class Added(NamedTuple):
    """What a process has after `import pytest` beyond what it had then."""

    cpu_ms: float
    modules: float
    rss_mib: float


def made_environment(folder: Path, interpreter: str) -> str:
    """The Python of a new environment in `folder` that has pytest and every plugin."""
    uv, python = find_uv(), str(folder / "bin" / "python")
    subprocess.run([uv, "venv", "--quiet", "--python", interpreter, str(folder)], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, str(ROOT), *PEERS], check=True)
    return python


def entry_points(python: str, plugin: str) -> list[tuple[str, str]]:
    """The names and the modules under which pytest loads a plugin."""
    done = subprocess.run([python, "-c", ENTRY_POINTS, plugin], check=True, capture_output=True, text=True)
    return [(name, module) for name, module in json.loads(done.stdout)]


def added(python: str, what: str, names: list[str], folder: str) -> Added:
    """One fresh process, which imports or runs."""
    done = subprocess.run(
        [python, "-c", CHILD, json.dumps([what, names, folder])],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return Added(*json.loads(done.stdout))


def lowest(seen: list[Added]) -> Added:
    """Each figure's lowest."""
    return Added(*map(min, zip(*seen, strict=True)))


def measured(python: str, rounds: int, empty: str) -> dict[tuple[str, str], Added]:
    """(plugin, "import" or "empty run") -> what it adds."""
    points = {plugin: entry_points(python, plugin) for plugin in PLUGINS}
    jobs: dict[tuple[str, str], list[str]] = {("", "empty run"): []}
    for plugin, pairs in points.items():
        jobs[plugin, "import"] = [module for _, module in pairs]
        jobs[plugin, "empty run"] = [name for name, _ in pairs]
    seen: dict[tuple[str, str], list[Added]] = {job: [] for job in jobs}
    for job, names in jobs.items():
        added(python, job[1], names, empty)  # writes the bytecode
    for number in range(rounds):
        print(f"round {number + 1}/{rounds}", end="\r", file=sys.stderr, flush=True)
        for job, names in jobs.items():
            seen[job].append(added(python, job[1], names, empty))
    bare = lowest(seen.pop(("", "empty run")))
    found = {job: lowest(each) for job, each in seen.items()}
    return {
        job: each if job[1] == "import" else Added(*(a - b for a, b in zip(each, bare, strict=True)))
        for job, each in found.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment")
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ftgate-startup-") as folder:
        empty = Path(folder, "empty")
        empty.mkdir()
        python = made_environment(Path(folder, "env"), args.python)
        found = measured(python, args.rounds, str(empty))
        version = subprocess.run([python, "-VV"], check=True, capture_output=True, text=True).stdout.strip()
    print(f"{version}; lowest of {args.rounds}, interleaved")
    print(f"{'adds to':<18} {'import pytest':>32}   {'an empty pytest run':>32}")
    print(f"{'':<18} {'CPU':>10} {'modules':>9} {'RSS':>11}   {'CPU':>10} {'modules':>9} {'RSS':>11}")
    for plugin in PLUGINS:
        halves = [
            f"{each.cpu_ms:>7.1f} ms {each.modules:>9.0f} {each.rss_mib:>7.2f} MiB"
            for each in (found[plugin, "import"], found[plugin, "empty run"])
        ]
        print(f"{plugin:<18} {halves[0]}   {halves[1]}")


if __name__ == "__main__":
    main()
