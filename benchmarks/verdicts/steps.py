"""Where the wall clock of a run goes, step by step.

    python benchmarks/verdicts/steps.py [--only GLOB ...] [--source CHECKOUT] [--bars]
    python benchmarks/verdicts/steps.py --seconds [--only GLOB ...]

Each case is a run of the product on a fresh project whose body computes for some ms: so many cells, recorded, compared
with the commit before, or measured for `ftgate decide`, which compares nothing. A thread looks at the stack of the
controller every 4 ms. A look counts for the innermost function that belongs to a step, with all the time since the look
before it. The table shows seconds. Below it are the gaps: the spans of 20 ms and more that belong to no step, by their
function. With `--bars` each case has a line on which a letter is half a second.

With `--seconds` nobody looks, and the table has a row for each case: what it is, and how long its command takes. All
cases take 10 minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain, groupby
from pathlib import Path
from types import FrameType

LOOK_S = 0.004
GAP_S = 0.02
LETTER_S = 0.5
PACKAGE = "/pytest_ftgate/"
GATE, MEASURED = "--ftgate-against=HEAD~1", "-oftgate_unchanged=measure"
CASES = {
    "docs 4": ("a branch that changes no code, 4 cells", "", (GATE,)),
    "comment 4": ("the same function calls as before: not measured, 4 cells", "comment", (GATE,)),
    "slower 2": ("10x slower, 2 cells", "x 10", (GATE,)),
    "slower 1": ("+10 %, 1 cell", "x 1.1", (GATE,)),
    "pairs 4": ("unchanged but measured, 4 cells", "comment", (GATE, MEASURED)),
    "pairs 16": ("the same, 16 cells", "comment", (GATE, MEASURED)),
    "record 4": ("recorded, 4 cells", "comment", ("--ftgate-update=new",)),
    "record 16": ("the same, 16 cells", "comment", ("--ftgate-update=new",)),
    "decide 16": ("measured for `ftgate decide`, 16 cells", "comment", ()),
}
"""By name and number of cells: what it is, what the second commit changes, and options."""
CELLS = {
    1: ("threads", [2], ["3.14t"]),
    2: ('threads, processes=["fork"]', [2], ["3.14"]),
    4: ('threads, processes=["fork"]', [2], ["3.14", "3.14t"]),
    16: ('threads, interpreters, processes=["fork", "spawn"]', [1, 2], ["3.14", "3.14t"]),
}
ROUNDS = 60_000
LAUNCHERS = "measure/launchers/"
KINDS = {"cold": "warm-up", "checked cold": "warm-up", "warmup": "warm-up", "check": "comparing results"}
CALLS = {"start": "starting", "ready": "importing", "close": "ending", "finish": "ending", "kill": "ending"}
"""Steps by the methods of what starts launches and tells them what to do."""
FOLDERS = {
    "targets/environments": "installing",
    "run/sides/": "checking out",
    "kit/git": "checking out",
    "targets/": "checking",
    "run/libraries": "checking",
    "features/unchanged/": "checking",
    "measure/conditions": "the machine's speed",
    "kit/waiting": "waiting",
    "judge/": "judging",
    "stats/": "judging",
    "run/folder": "storing",
    "run/stored": "storing",
    "store/": "storing",
    "report/": "reporting",
    "run/rows": "reporting",
    "features/": "reporting",
}
"""Steps by the place of a file in the package: the first that fits."""
GROUPS = {"_growth_launch": "growth", "_shared": "empty workload", "measure_memory": "memory"}
"""Functions of the memory round by the launches that they are for: the innermost counts."""


def step_of(frame: FrameType | None) -> str:
    """The step that a stack belongs to; where it belongs to none, `in` the innermost function of the package."""
    step = innermost = group = ""
    while frame is not None:
        _, _, file = frame.f_code.co_filename.rpartition(PACKAGE)
        name, values = frame.f_code.co_name, frame.f_locals
        if PACKAGE in frame.f_code.co_filename and not file.startswith("plugin/"):
            innermost = innermost or f"in {name}, {file}"
            if not step and file.startswith(LAUNCHERS):
                step = CALLS.get(name, "")
                if name == "iteration":
                    step = KINDS.get(values["kind"], "iterations")
                elif name == "measure_held":
                    step = "held" if values["sampled"] else "held unsampled"
                elif name == "barrier":
                    step = "barriers of growth" if values["collects"] else "barriers"
                request = values.get("request") or getattr(values.get("self"), "request", None)
                role = getattr(request, "role", "own")
                group = group or {"own": "", "empty": ""}.get(role, role)
            group = group or (GROUPS.get(name, "") if file == "measure/memory_round.py" else "")
            step = step or next((step for folder, step in FOLDERS.items() if file.startswith(folder)), "")
        frame = frame.f_back
    if step in (*CALLS.values(), *KINDS.values(), "iterations") or group:
        step = f"{group or 'timing'}: {step or innermost}"
    return step or innermost or "pytest"


def watch(out: str, arguments: Sequence[str]) -> int:
    """Run pytest in this process, and write its looks: the step of each, and the seconds since the beginning."""
    import pytest

    main, over, began_s = threading.main_thread().ident or 0, threading.Event(), time.monotonic()
    looks: list[tuple[str, float]] = []

    def look() -> None:
        while not over.wait(LOOK_S):
            looks.append((step_of(sys._current_frames()[main]), time.monotonic() - began_s))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    code = int(pytest.main([*arguments]))
    over.set()
    watcher.join()
    Path(out).write_text(json.dumps(looks), encoding="utf-8")
    return code


def spans(looks: Sequence[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Each step with its seconds, in their order."""
    ended_s = 0.0
    for name, group in groupby(looks, lambda look: look[0]):
        last_s = [at_s for _, at_s in group][-1]
        yield name, last_s - ended_s
        ended_s = last_s


def project(case: str, folder: Path) -> Path:
    """The project of a case with its two commits, which differ as it says."""
    import commits

    _, edit, _ = CASES[case]
    executors, workers, pythons = CELLS[int(case.split()[1])]
    rounds = round(ROUNDS * float(edit[2:])) if edit.startswith("x") else ROUNDS
    before = commits.CPU.format(rounds=ROUNDS, comment="")
    after = commits.CPU.format(rounds=rounds, comment=commits.COMMENT if edit == "comment" else "")
    test = commits.TEST.format(executors=executors, workers=workers, pythons=pythons)
    test = test.replace("import ftgate,", "import ftgate, interpreters,")
    workload = commits.Workload(name=case, change=0.0, test=test, before=before, after=after)
    return commits.committed(folder, workload)


def measured(case: str, source: Path) -> list[tuple[str, float]]:
    """The spans of one run."""
    import commits

    with tempfile.TemporaryDirectory(prefix="ftgate-steps-") as name:
        root, looks = project(case, Path(name)), Path(name) / "looks.json"
        words = [
            "env",
            f"PYTHONPATH={source / 'src'}",
            sys.executable,
            __file__,
            "--watch",
            looks,
            *commits.OPTIONS[:4],
        ]
        commits.ended([*words, *CASES[case][2], "test_work.py"], root)
        return [*spans(json.loads(looks.read_text(encoding="utf-8")))]


def timed(cases: Sequence[str]) -> Iterator[list[str]]:
    """A row for each case, without looks: what it is, and the seconds of its command."""
    import commits

    for case in cases:
        with tempfile.TemporaryDirectory(prefix="ftgate-steps-") as name:
            root, (what, _, options) = project(case, Path(name)), CASES[case]
            began = time.monotonic()
            commits.ended([sys.executable, "-m", "pytest", *commits.OPTIONS[:4], *options, "test_work.py"], root)
            yield [what, f"{time.monotonic() - began:.0f}"]


def first() -> Iterator[list[str]]:
    """The row of a new project: from `ftgate init` by its next steps to the verdict on the change that they propose."""
    import commits

    with tempfile.TemporaryDirectory(prefix="ftgate-steps-") as name:
        root = Path(name)
        commits.output([*commits.GIT, "init", "--quiet", root])
        began = time.monotonic()
        commits.output([Path(sys.executable).with_name("ftgate"), "init"], root)
        for words in (["add", "."], ["commit", "--quiet", "-m", "first"]):
            commits.output([*commits.GIT, *words], root)
        test = root / "tests" / "test_concurrency.py"
        test.write_text(test.read_text(encoding="utf-8").replace("20_000", "40_000"), encoding="utf-8")
        commits.ended([sys.executable, "-m", "pytest", "-q", "--ftgate-against=HEAD", test], root)
        yield ["`ftgate init`, a commit, a change and its verdict", f"{time.monotonic() - began:.0f}"]


def main() -> None:
    """Print the table, the gaps and the bars."""
    if sys.argv[1:2] == ["--watch"]:
        sys.exit(watch(sys.argv[2], sys.argv[3:]))
    import page

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        action="extend",
        nargs="+",
        default=[],
        metavar="GLOB",
        help="such as 'record 4'; 'init' has seconds only",
    )
    parser.add_argument("--source", type=Path, default=page.ROOT, metavar="CHECKOUT")
    parser.add_argument("--bars", action="store_true")
    parser.add_argument("--seconds", action="store_true", help="only how long each case takes")
    options = parser.parse_args()
    names = [name for name in ("init", *CASES) if any(fnmatchcase(name, each) for each in options.only or ["*"])]
    cases = [name for name in names if name in CASES]
    if options.seconds:
        rows = chain(first() if "init" in names else [], timed(cases))
        page.show(__file__, ("what", "seconds"), rows)
        return
    found = {case: measured(case, options.source) for case in cases}
    totals = {case: Counter[str]() for case in cases}
    gaps = Counter[tuple[str, str]]()
    for case, parts in found.items():
        for step, seconds in parts:
            gap = step.startswith("in ") or ": in " in step or step == "pytest"
            totals[case]["no step" if gap else step] += seconds
            gaps[step, case] += seconds if gap and seconds >= GAP_S else 0.0
    steps = sorted(
        {step for each in totals.values() for step in each},
        key=lambda step: -max(each[step] for each in totals.values()),
    )
    rows = [[step, *(f"{totals[case][step]:.2f}" for case in cases)] for step in steps]
    page.show(__file__, ("step", *cases), [*rows, ["all", *(f"{each.total():.1f}" for each in totals.values())]])
    print("\ngaps of 20 ms and more, seconds in all:")
    for (step, case), seconds in gaps.most_common():
        print(f"{seconds:8.2f} {case:10} {step}" if seconds else "", end="\n" if seconds else "")
    for case in cases if options.bars else ():
        print(f"\n{case}: each letter begins a step and is {LETTER_S} s, '.' goes on")
        at_s, drawn = 0.0, ""
        for step, seconds in found[case]:
            at_s += seconds
            drawn += (step.rpartition(": ")[2][0] + "." * 10000)[: max(0, round(at_s / LETTER_S) - len(drawn))]
        print(drawn)


if __name__ == "__main__":
    main()
