# /// script
# requires-python = ">=3.11"
# dependencies = ["pytest-ftgate", "pytest-benchmark>=5", "pyperf>=2.9", "asv>=0.6", "scipy"]
# [tool.uv.sources]
# pytest-ftgate = { path = "../..", editable = true }
# ///
"""The same launches judged by other tools: false alarms, misses and measuring time.

    uv run benchmarks/verdicts/peers.py .ftgate/verdicts/wall.jsonl

The other tools' own code decides: it is imported, not rewritten. Each gets as many launches per side as its defaults
start, once `apart` (the reference side of the first pairs of a burst, then the changed side of the pairs after them:
one run after the other, as in practice) and once `paired` (both sides of the same pairs, which none of these tools can
arrange). No launch is used twice for one rule and layout. Seconds are those that the launches took when they were
measured, half of a pair for one launch; a single launch takes longer, since two that start together share the cores.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

import judged
import page
import pyperf  # type: ignore[import-not-found]
import rates
import series
from asv.commands.compare import _is_result_better  # type: ignore[import-not-found]
from asv_runner.statistics import compute_stats  # type: ignore[import-not-found]
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path)
    parser.add_argument("--at-most", type=int, default=PAIRED_ROUNDS, help="pairs per cell for the product")
    options = parser.parse_args()
    found = series.pairs(options.series)
    cells = sorted({pair.cell for pair in found})
    hypotheses = len(cells) * len(judged.METRICS)
    each = (rows(cell, [pair for pair in found if pair.cell == cell], hypotheses, options.at_most) for cell in cells)
    page.show(__file__, COLUMNS, chain.from_iterable(each))


if __name__ == "__main__":
    main()
