"""Where the seconds of a run go: its iterations, what is held for memory, and the start and end of its launches.

    python benchmarks/verdicts/steps.py [--only GLOB ...] [--repeat 3]

The workloads are those of time_to_verdict.py, compared with the commit before, and one is recorded, too. `start, end`
are what it costs to start a launch and to let it end, by what the launch is for: so much at most would be saved if
memory or lock waits were read from the launches that are timed, or if a launch began while another one ends. Each is
the median share of the wall time, over the runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import page
import pytest
from time_to_verdict import UNCHANGED, by_name, committed, ended

from pytest_ftgate.measure import group
from pytest_ftgate.measure.launchers.workload import WorkloadHandle

FOUR = "four unchanged cells"
RECORDED = f"{FOUR}: recorded"
CASES = (RECORDED, FOUR, "new lock", "20 ms threads +25 %", "20 ms fork +25 %")
STEPS = {"iteration": "iterations", "measure_held": "held", "barrier": "held"}
PARTS = ("iterations", "held", "start, end: time", "start, end: memory", "start, end: locks", "start, end: others")
COLUMNS = ("workload", "seconds", *PARTS, "all else")
OF_ROLE = {"own": "time", "control": "time", "locks": "locks"}


def timed(path: Path, words: Sequence[str]) -> int:
    """Run pytest here, and write the seconds of each part to a file."""
    spent: defaultdict[str, float] = defaultdict(float)
    nested: list[float] = []
    in_memory: list[bool] = []  # while memory launches run, whatever their role

    def watch(owner: type, name: str, part: Callable[..., str]) -> None:
        act = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            began = time.monotonic()
            nested.append(0.0)
            try:
                return act(*args, **options)
            finally:
                took, inner = time.monotonic() - began, nested.pop()
                spent[part(*args)] += took - inner  # a step may take another one: `finish` closes
                if nested:
                    nested[-1] += took

        setattr(owner, name, watched)

    def of_launch(role: str) -> str:
        return f"start, end: {'memory' if in_memory else OF_ROLE.get(role, 'others')}"

    measure_memory = group.measure_memory

    def of_memory(measurement: group.Measurement) -> None:
        in_memory.append(True)
        try:
            measure_memory(measurement)
        finally:
            in_memory.clear()

    group.measure_memory = of_memory
    for name in ("ready", "close", "finish", "kill", *STEPS):
        watch(WorkloadHandle, name, lambda handle, *_, name=name: STEPS.get(name) or of_launch(handle.request.role))
    watch(group.Measurement, "start", lambda measurement, cell_run, role: of_launch(role))
    code = pytest.main([*words])
    path.write_text(json.dumps(spent), encoding="utf-8")
    return code


def rows(names: Sequence[str], repeat: int) -> Iterator[list[str]]:
    """Each workload's row, as soon as all of its runs have ended."""
    for name in names:
        found: list[dict[str, float]] = []
        with tempfile.TemporaryDirectory(prefix="ftgate-verdicts-") as place:
            root = committed(Path(place), by_name()[name.partition(":")[0]]())
            path = Path(place) / "spent.json"
            how = ["--ftgate-update=all"] if name == RECORDED else ["--ftgate-against=HEAD~1", UNCHANGED]
            for _ in range(repeat):
                began = time.monotonic()
                ended([sys.executable, __file__, "--timed", path, "-q", "--ftgate", *how, "test_work.py"], root)
                seconds = time.monotonic() - began
                spent = json.loads(path.read_text(encoding="utf-8"))
                shares = {part: spent.get(part, 0.0) / seconds for part in PARTS}
                found.append(shares | {"seconds": seconds, "all else": 1 - sum(shares.values())})
        median = {key: statistics.median(each[key] for each in found) for key in found[0]}
        yield [name, f"{median['seconds']:.0f}", *(f"{median[part]:.1%}" for part in (*PARTS, "all else"))]


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--timed"]:
        sys.exit(timed(Path(sys.argv[2]), sys.argv[3:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="extend", nargs="+", default=[], metavar="GLOB", help="names of workloads")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each workload (default: 3)")
    options = parser.parse_args()
    names = [name for name in CASES if any(fnmatchcase(name, pattern) for pattern in options.only or ["*"])]
    page.show(__file__, COLUMNS, rows(names, options.repeat))


if __name__ == "__main__":
    main()
