"""Runs a selection of tests again and again, and counts how often each one fails or is skipped.

    python benchmarks/suite/repeat.py [--runs 20] [--busy 1] [--out .ftgate/suite] -- tests -m physical

Whatever follows `--` is handed to pytest. `--busy` processes that do nothing but compute run meanwhile. Each run leaves
its JUnit file under `--out`, where the runs of earlier calls are counted too. For the suite and for each test that did
not always pass it prints how often that was, with the exact 95 % upper bound of the rate (Clopper and Pearson, 1934),
then the reasons. Interrupt it at any time: what ended counts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase
from scipy.stats import beta

BURN = "while True: sum(range(10000))"


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that keep a core busy each."""
    started = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def run(path: Path, selection: list[str]) -> None:
    """One run of pytest; it leaves its JUnit file at `path` once it has ended."""
    unfinished = path.with_suffix(".part")
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", f"--junitxml={unfinished}", *selection]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 1):
        sys.exit(f"pytest ended with code {done.returncode}")
    unfinished.replace(path)
    print(f"{path.name}: {'failed' if done.returncode else 'passed'} in {time.monotonic() - began:.0f} s", flush=True)


def at_most(failures: int, runs: int, level: float = 0.95) -> float:
    """The exact upper bound of a rate of which so many of so many were seen."""
    return 1.0 if failures == runs else float(beta.ppf(level, failures + 1, runs - failures))


def outcome(case: TestCase) -> tuple[str, str]:
    """`passed`, `failed` or `skipped`, and why."""
    for result in case.result:
        if isinstance(result, Failure | Error):
            return "failed", result.message or ""
        if isinstance(result, Skipped):
            return "skipped", result.message or ""
    return "passed", ""


def report(paths: list[Path]) -> None:
    """What these runs came to."""
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    reasons: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    red = 0
    for path in paths:
        failed = False
        for case in (case for suite in JUnitXml.fromfile(str(path)) for case in suite):
            what, why = outcome(case)
            test = f"{case.classname}::{case.name}"
            outcomes[test][what] += 1
            failed |= what == "failed"
            if why:
                reasons[test, what].append(why)
        red += failed
    print(f"\n{red} of {len(paths)} runs failed: at most {at_most(red, len(paths)):.1%} do (95 %)")
    cases = sum(counts.total() for counts in outcomes.values())
    lost = sum(counts["failed"] for counts in outcomes.values())
    skips = sum(counts["skipped"] for counts in outcomes.values())
    print(f"{len(outcomes)} tests, {cases} outcomes: {lost} failed, {skips} skipped")
    for (test, what), texts in sorted(reasons.items()):
        seen = outcomes[test].total()
        print(f"\n{test}: {what} in {len(texts)} of {seen} runs, at most {at_most(len(texts), seen):.1%} (95 %)")
        for text, count in Counter(texts).most_common(3):
            print(f"  {count}x {text[:400]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(".ftgate/suite"))
    parser.add_argument("selection", nargs="+")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with busy(options.busy), contextlib.suppress(KeyboardInterrupt):
        for number in range(options.runs):
            run(options.out / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{number}.xml", options.selection)
    report(sorted(options.out.glob("*.xml")))


if __name__ == "__main__":
    main()
