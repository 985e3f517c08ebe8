# /// script
# requires-python = ">=3.11"
# dependencies = ["pytest-ftgate", "pytest-benchmark>=5", "pyperf>=2.9", "asv[virtualenv]>=0.6", "scipy"]
# [tool.uv.sources]
# pytest-ftgate = { path = "../..", editable = true }
# ///
"""The same launches judged by other tools: false alarms, misses and measuring time.

    uv run benchmarks/verdicts/peers.py .ftgate/verdicts/wall.jsonl
    uv run benchmarks/verdicts/peers.py --project [--tests 50] [--only GLOB]

The other tools' own code decides: it is imported, not rewritten. Each gets as many launches per side as its defaults
start, once `apart` (the reference side of the first pairs of a burst, then the changed side of the pairs after them:
one run after the other, as in practice) and once `paired` (both sides of the same pairs, which none of these tools can
arrange). No launch is used twice for one rule and layout. Seconds are those that the launches took when they were
measured, half of a pair for one launch; a single launch takes longer, since two that start together share the cores.

With --project each tool runs by its own command, with its defaults, on two commits of a project of 50 tests, of which
one calls a function that has become 1.5x slower: seconds until the first line that says so, seconds in all, and that
line. Environments of the other tools are made first, which no second counts; ours makes its own in its first run.
pyperf takes half a minute a test, so 25 minutes, the others 4 in all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain, groupby
from pathlib import Path

import judged
import page
import pyperf  # type: ignore[import-not-found]
import rates
import series
from asv.commands.compare import _is_result_better  # type: ignore[import-not-found]
from asv_runner.statistics import compute_stats  # type: ignore[import-not-found]
from commits import BURN, GIT, ended, output, rounds_per_s
from launches import executable
from pyperf._compare import CompareData, CompareResult  # type: ignore[import-not-found]
from pytest_benchmark.stats import Stats  # type: ignore[import-not-found]
from pytest_benchmark.utils import parse_compare_fail  # type: ignore[import-not-found]
from series import Pair, Side

from pytest_ftgate.judge.judge import PAIRED_ROUNDS

NS = 1e9
PYPERF_PROCESSES, PYPERF_VALUES = 20, 3
ASV_PROCESSES, ASV_REPEAT, ASV_SAMPLE_S, ASV_FACTOR = 2, 5, 0.01, 1.1
BENCHMARK_S = 1.0
EFFECTS = (0.0, 0.05, 0.10, 0.25)
COLUMNS = ("cell", "rule", "layout", "false alarms", "misses +5 %", "misses +10 %", "misses +25 %", "a comparison")

Sides = Sequence[Side]
Rule = Callable[[Sides, Sides], bool]


@dataclass(frozen=True)
class Peer:
    """A rule and the number of launches per side that it needs."""

    name: str
    launches: int
    slower: Rule


# -- the peers' rules --------------------------------------------------------------------------------------------------


def compare_fail(text: str) -> Rule:
    """`pytest-benchmark --benchmark-compare-fail`: pytest_benchmark/session.py, prepare_benchmarks."""
    check = parse_compare_fail(text)

    def slower(reference: Sides, changed: Sides) -> bool:
        return bool(check.fails(_benchmark(changed).as_dict(), _benchmark(reference).as_dict()))

    return slower


def _benchmark(side: Sides) -> Stats:
    """Its statistics over all rounds; here of enough launches to fill its second; it runs them in one process."""
    stats = Stats()
    for launch in side:
        for wall_ns in launch.wall_ns:
            stats.update(wall_ns / NS)
    return stats


def compare_to(least: float | None) -> Rule:
    """`pyperf compare_to [--min-speed]`: significant (pyperf/_compare.py, CompareResult) and slower."""

    def slower(reference: Sides, changed: Sides) -> bool:
        sides = [CompareData(name, _perf(side)) for name, side in (("reference", reference), ("changed", changed))]
        result = CompareResult(*sides, min_speed=least)
        return bool(result.significant) and result.norm_mean > 1

    return slower


def _perf(side: Sides) -> pyperf.Benchmark:
    """Three values per process, each a mean over a third of the iterations; those of pyperf last 100 ms."""
    runs = [
        pyperf.Run(
            [statistics.fmean(part) / NS for part in _parts(launch.wall_ns)],
            collect_metadata=False,
            metadata={"name": "iteration"},
        )
        for launch in side
    ]
    return pyperf.Benchmark(runs)


def _parts(walls: Sequence[int]) -> Iterator[Sequence[int]]:
    size = len(walls) // PYPERF_VALUES
    return (walls[part * size : (part + 1) * size] for part in range(PYPERF_VALUES))


def continuous(reference: Sides, changed: Sides) -> bool:
    """`asv continuous`, factor 1.1: asv/commands/compare.py, _is_result_better, on asv_runner's statistics."""
    before, after = (_asv(side) for side in (reference, changed))
    return bool(_is_result_better(before[0], after[0], before[1], after[1], ASV_FACTOR))


def _asv(side: Sides) -> tuple[float, tuple[dict[str, float], list[float]]]:
    """Five samples per process of at least 10 ms each: asv_runner/benchmarks/time.py, benchmark_timing."""
    samples: list[float] = []
    for launch in side:
        number = _number([wall_ns / NS for wall_ns in launch.wall_ns])
        taken = [launch.wall_ns[at : at + number] for at in range(0, ASV_REPEAT * number, number)]
        samples += [statistics.fmean(sample) / NS for sample in taken if len(sample) == number]
    result, stats = compute_stats(samples, 1)
    return result, (stats, samples)


def _number(walls_s: Sequence[float]) -> int:
    """The iterations of one sample, found as asv_runner finds them."""
    number = 1
    while sum(walls_s[:number]) < ASV_SAMPLE_S and number * ASV_REPEAT < len(walls_s):
        number = max(number + 1, int(min(10.0, max(1.1, ASV_SAMPLE_S / sum(walls_s[:number]))) * number))
    return max(1, min(number, len(walls_s) // ASV_REPEAT))


def peers(filling: int) -> list[Peer]:
    """All rules; `filling` launches have as many rounds as pytest-benchmark runs in its second."""
    return [
        Peer("pytest-benchmark mean:10%, 1 launch", 1, compare_fail("mean:10%")),
        Peer("pytest-benchmark min:10%, 1 launch", 1, compare_fail("min:10%")),
        Peer("pytest-benchmark mean:10%, 1 s", filling, compare_fail("mean:10%")),
        Peer("pytest-benchmark min:10%, 1 s", filling, compare_fail("min:10%")),
        Peer("pyperf compare_to", PYPERF_PROCESSES, compare_to(None)),
        Peer("pyperf compare_to --min-speed 5", PYPERF_PROCESSES, compare_to(5)),
        Peer("asv continuous, factor 1.1", ASV_PROCESSES, continuous),
    ]


# -- layouts -----------------------------------------------------------------------------------------------------------


def windows(found: Sequence[Pair], size: int) -> Iterator[Sequence[Pair]]:
    """Neighbouring pairs of one effect, `size` at a time, none twice."""
    for _, burst in groupby(found, key=lambda pair: pair.effect):
        pairs = list(burst)
        yield from (pairs[at : at + size] for at in range(0, len(pairs) - size + 1, size))


@dataclass
class Tally:
    """How often a rule decided slower, and the seconds of its launches."""

    slower: int = 0
    trials: int = 0
    seconds: float = 0.0


def apart(peer: Peer, found: Sequence[Pair]) -> Iterator[tuple[Pair, bool, float]]:
    """The reference's launches, then the changed side's: (a pair, whether the rule decided slower, seconds)."""
    for window in windows(found, 2 * peer.launches):
        first, second = window[: peer.launches], window[peer.launches :]
        slower = peer.slower([pair.reference for pair in first], [pair.changed for pair in second])
        yield window[0], slower, sum(pair.seconds for pair in window) / 2


def paired(peer: Peer, found: Sequence[Pair]) -> Iterator[tuple[Pair, bool, float]]:
    """Both sides of the same pairs."""
    for window in windows(found, peer.launches):
        slower = peer.slower([pair.reference for pair in window], [pair.changed for pair in window])
        yield window[0], slower, sum(pair.seconds for pair in window)


def ours(found: Sequence[Pair], judge: judged.PairJudge) -> dict[float, Tally]:
    """The product's own verdicts on the same pairs, by effect."""
    tallies: dict[float, Tally] = {}
    for effect in {pair.effect for pair in found}:
        tally = tallies[effect] = Tally()
        for result in judged.results(judge, [pair for pair in found if pair.effect == effect]):
            tally.slower += result.regressed
            tally.trials += 1
            tally.seconds += result.seconds
    return tallies


def tallied(decided: Iterator[tuple[Pair, bool, float]]) -> dict[float, Tally]:
    """Counts by effect."""
    tallies: dict[float, Tally] = {}
    for pair, slower, seconds in decided:
        tally = tallies.setdefault(pair.effect, Tally())
        tally.slower += slower
        tally.trials += 1
        tally.seconds += seconds
    return tallies


def row(cell: str, name: str, layout: str, tallies: dict[float, Tally], effects: Sequence[float]) -> list[str]:
    """False alarms without an effect, misses with one, and seconds per comparison without an effect."""
    figures = []
    for effect in effects:
        tally = tallies.get(effect, Tally())
        figures.append(rates.shown(tally.trials - tally.slower if effect else tally.slower, tally.trials).strip())
    same = tallies.get(0.0, Tally())
    return [cell, name, layout, *figures, f"{same.seconds / same.trials:.1f} s" if same.trials else ""]


def rows(cell: str, found: Sequence[Pair], hypotheses: int, at_most: int) -> Iterator[list[str]]:
    """A row for each rule and layout that the pairs of a cell suffice for."""
    launch_s = statistics.fmean(sum(pair.reference.wall_ns) for pair in found) / NS
    for peer in peers(round(max(1.0, BENCHMARK_S / launch_s))):
        for layout, judge in (("apart", apart), ("paired", paired)):
            if tallies := tallied(judge(peer, found)):
                yield row(cell, peer.name, layout, tallies, EFFECTS)
    own = judged.PairJudge(hypotheses, at_most)
    yield row(cell, f"pytest-ftgate, {hypotheses} hypotheses", "paired", ours(found, own), EFFECTS)


# -- a project with one regression, each tool by its own command -----------------------------------------------------

TESTS = 50
RED = re.compile(r"regressed|slower|DECREASED", re.IGNORECASE)


def files(tests: int, rounds: int, slower: str) -> dict[str, str]:
    """Those of one commit: each test calls a function of its own for so many rounds, of which one may be slower."""
    numbers = range(tests)
    return {
        ".gitignore": ".ftgate/\n.asv/\n.benchmarks/\n__pycache__/\n",
        "pytest.ini": "[pytest]\nftgate_install =\n",
        "work.py": BURN.lstrip()
        + "".join(
            f"\n\ndef step_{at}():\n    burn({rounds}{slower if at == tests * 3 // 4 else ''})\n\n\n"
            f"def call_{at}():\n    step_{at}()\n"
            for at in numbers
        ),
        "test_gate.py": "import work\nfrom pytest_ftgate import ftgate, threads\n"
        + "".join(
            f'\n\n@ftgate.compare(threads, workers=1, pythons=["3.14"])\ndef test_{at}(worker):\n    work.call_{at}()\n'
            for at in numbers
        ),
        "test_bench.py": f"import pytest\nimport work\n\n\n@pytest.mark.parametrize('at', range({tests}))\n"
        "def test_call(benchmark, at):\n    benchmark(getattr(work, f'call_{at}'))\n",
        "perf.py": f"import pyperf\nimport work\n\nrunner = pyperf.Runner()\nfor at in range({tests}):\n"
        "    runner.bench_func(f'call_{at}', getattr(work, f'call_{at}'))\n",
        "benchmarks/__init__.py": "",
        "benchmarks/timed.py": "import os\nimport sys\n\nsys.path.insert(0, os.environ['ASV_BUILD_DIR'])\nimport work\n"
        + "".join(f"\n\ndef time_{at}():\n    work.call_{at}()\n" for at in numbers),
    }


def made(folder: Path, tests: int) -> Path:
    """The project with its two commits, whose calls take 5 ms, and a worktree of the first."""
    root = folder / "project"
    config = {
        "version": 1,
        "project": "work",
        "repo": str(root),
        "branches": ["HEAD"],
        "environment_type": "virtualenv",
    }
    config |= {"pythons": ["3.14"], "build_command": [], "install_command": ["python -c pass"], "uninstall_command": []}
    rounds = round(0.005 * rounds_per_s("3.14"))
    (root / "benchmarks").mkdir(parents=True)
    output([*GIT, "init", "--quiet", root])
    for slower in ("", " * 3 // 2"):
        for name, text in (files(tests, rounds, slower) | {"asv.conf.json": json.dumps(config)}).items():
            (root / name).write_text(text, encoding="utf-8")
        output([*GIT, "add", "."], root)
        output([*GIT, "commit", "--quiet", "-m", "work"], root)
    output([*GIT, "worktree", "add", "--quiet", folder / "before", "HEAD~1"], root)
    return root


def of_project(root: Path, only: str) -> Iterator[list[str]]:
    """A row for each tool."""
    before, python = root.parent / "before", root.parent / "venv" / "bin" / "python"
    output(["uv", "venv", "--quiet", "--python", executable("3.14"), root.parent / "venv"])
    output(["uv", "pip", "install", "--quiet", "--python", python, "pyperf>=2.9", "pytest-benchmark>=5"])
    gate: Words = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--ftgate", "--ftgate-against=HEAD~1")
    bench: Words = (python, "-m", "pytest", "-q", f"--benchmark-storage={root.parent / 'saved'}", "test_bench.py")
    asv: Words = (sys.executable, "-m", "asv")
    if fnmatchcase("asv", only):
        ended([*asv, "setup"], root)  # it exits with 1, and prints what it has made
        output([*asv, "machine", "--yes"], root)
    compared = ("--benchmark-compare", "--benchmark-compare-fail=mean:5%")
    files = [root.parent / f"{side}.json" for side in ("before", "after")]
    tools: dict[str, list[tuple[Path, Words]]] = {
        "pytest-ftgate, first run": [(root, (*gate, "test_gate.py"))],
        "pytest-ftgate, next run": [(root, (*gate, "test_gate.py"))],
        "pytest-benchmark": [(before, (*bench, "--benchmark-save=before")), (root, (*bench, *compared))],
        "asv continuous": [(root, (*asv, "continuous", "HEAD~1", "HEAD"))],
        "pyperf compare_to": [
            *(
                (side, (python, "perf.py", "--quiet", "-o", file))
                for side, file in zip((before, root), files, strict=True)
            ),
            (root, (python, "-m", "pyperf", "compare_to", "--min-speed=5", *files)),
        ],
    }
    for name, commands in tools.items():
        if fnmatchcase(re.split("[ ,]", name.removeprefix("pytest-"))[0], only):
            yield [name, *timed(commands)]


Words = tuple[str | Path, ...]


def timed(commands: Sequence[tuple[Path, Words]]) -> list[str]:
    """Seconds to the first line that says that something is slower, seconds of all commands, and that line."""
    began, red, line = time.monotonic(), "", "nothing"
    for folder, words in commands:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
        with subprocess.Popen(words, cwd=folder, env=environment, stdout=-1, stderr=-2, text=True) as process:
            for said in process.stdout or ():
                if not red and RED.search(said):
                    red, line = f"{time.monotonic() - began:.0f} s", said.strip()
    return [red, f"{time.monotonic() - began:.0f} s", line.replace("|", "/")]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path, nargs="?")
    parser.add_argument("--at-most", type=int, default=PAIRED_ROUNDS, help="pairs per cell for the product")
    parser.add_argument("--project", action="store_true", help="a project of tests, one of which regresses")
    parser.add_argument("--tests", type=int, default=TESTS, help="how many that project has")
    parser.add_argument("--only", default="*", help="these tools of --project: ftgate, benchmark, asv, pyperf")
    options = parser.parse_args()
    if options.project or options.series is None:
        with tempfile.TemporaryDirectory(prefix="ftgate-peers-") as folder:
            columns = ("tool", "to the first red", "in all", "what it said")
            page.show(__file__, columns, of_project(made(Path(folder), options.tests), options.only))
        return
    found = series.pairs(options.series)
    cells = sorted({pair.cell for pair in found})
    hypotheses = len(cells) * len(judged.METRICS)
    each = (rows(cell, [pair for pair in found if pair.cell == cell], hypotheses, options.at_most) for cell in cells)
    page.show(__file__, COLUMNS, chain.from_iterable(each))


if __name__ == "__main__":
    main()
