"""A small report: a cell that regressed, with its explanation, one that passed, and one that failed.

`tests/report/test_small_report.py` holds its figures together. The machine formats are rendered from it.
"""

from __future__ import annotations

import msgspec
import report_by_hand
from fake_launcher import MS
from report_by_hand import BASELINE, COMMIT, FREE_THREADED, MIB, TRACEBACK, cell, role
from values import iteration, sample_of

from pytest_ftgate.kit.values import Interval, Metric
from pytest_ftgate.model.report import (
    Cause,
    Conditions,
    Explanation,
    Figures,
    HolderFigures,
    Moved,
    Part,
    Report,
    Row,
    SiteFigures,
    Table,
    WaitFigures,
)
from pytest_ftgate.model.sample import Launch, Timer, WorkloadError
from pytest_ftgate.model.verdict import Basis, Decision, MetricVerdict, Reason, Verdict, Why

TEST = "tests/test_words.py::test_tokenise"
ALONE, EIGHT = (cell(TEST, "3.14t", "threads", workers) for workers in (1, 8))
FALLEN = cell(TEST, "3.14t", "fork", 8)
WAS_MS, NOW_MS = 2.5, (3.098, 3.1, 3.102)


def interval(value: float, low: float, high: float, level: float = 0.95) -> Interval:
    return Interval(value=value, low=low, high=high, level=level)


def launches(cores: float, *walls_ms: float) -> list[Launch]:
    """One of each wall time, in which eight workers tokenise 128 words each and keep so many cores busy."""
    put = Timer(count=8, total_ns=42_000, max_ns=9000)
    return [
        Launch(
            order=order,
            iterations=(iteration(wall, cores=cores),),
            counters={"words": 1024.0},
            timers={"put": put},
            results=("'café'",),
        )
        for order, wall in enumerate(walls_ms)
    ]


def passed() -> Row:
    """One worker, judged by stored launches; its own are left out of the report."""
    wall = MetricVerdict(
        metric=Metric.WALL,
        decision=Decision.PASSED,
        ratio=interval(0.62 / 0.61, 1.004, 1.029, 0.992),
        p_fail=0.9996,
        p_pass=0.0004,
        launches=14,
        ruled_out=0.05,
        allowed=1.02,
        effect=1.05,
        now=0.62 * MS,
        was=0.61 * MS,
    )
    figures = Figures(
        wall_ns=interval(0.62 * MS, 0.618 * MS, 0.622 * MS),
        start_ns=0.124 * MS,
        work_ns=0.465 * MS,
        join_ns=0.031 * MS,
        ratio=1.0,
        cores=0.98,
        rss_bytes=21 * MIB,
        uss_bytes=12 * MIB,
        pss_bytes=12.5 * MIB,
        lock_wait=0.0,
    )
    basis = Basis(basis="stored", why="--ftgate-against=stored", baseline=BASELINE, commit=COMMIT)
    return Row(cell=ALONE, verdict=basis.verdict(Decision.PASSED, "", [wall]), figures=figures, line=12)


def regressed() -> Row:
    """Eight workers, paired with the commit of the baseline."""
    wall = MetricVerdict(
        metric=Metric.WALL,
        decision=Decision.REGRESSED,
        ratio=interval(1.24, 1.233, 1.247, 0.992),
        p_fail=0.00016,
        p_pass=1.0,
        reasons=(Reason(code=Why.BEYOND, level=0.0012),),
        launches=3,
        ruled_out=0.25,
        allowed=1.02,
        effect=1.05,
        now=3.1 * MS,
        was=WAS_MS * MS,
    )
    waiting = MetricVerdict(
        metric=Metric.LOCK_WAIT,
        decision=Decision.PASSED,
        points=interval(0.01, 0.004, 0.016, 0.992),
        p_fail=0.998,
        p_pass=0.0003,
        launches=3,
        ruled_out=0.02,
        allowed=0.02,
        effect=0.04,
        now=0.231,
        was=0.221,
    )
    scaling = MetricVerdict(
        metric=Metric.SCALING,
        decision=Decision.INCONCLUSIVE,
        ratio=interval(2.5 / 3.05, 0.6, 1.07, 0.992),
        p_fail=0.02,
        p_pass=0.5,
        reasons=(Reason(code=Why.RULES_OUT), Reason(code=Why.NEEDS_TO_PASS, seconds=9.0)),
        launches=3,
        more=4,
        ruled_out=0.67,
        allowed=0.98,
        effect=1 / 1.05,
        now=1.6,
        was=1.952,
    )
    holder = HolderFigures(
        file="src/words/cache.py",
        line=71,
        function="Cache.refill",
        share=0.93,
        p50_ns=12_000.0,
        p99_ns=30_000.0,
        waiter_file="src/words/cache.py",
        waiter_line=88,
    )
    lock = SiteFigures(
        file="src/words/cache.py",
        line=12,
        kind="Lock",
        waits_for="lock",
        name="cache",
        share=0.231,
        contended_per_s=127_448.0,
        contended_ratio=0.45,
        p50_ns=8900.0,
        p95_ns=59_000.0,
        p99_ns=155_000.0,
        max_ns=1_040_000.0,
        total_ns=924_000_000.0,
        contended=63_724,
        holders=(holder,),
    )
    figures = Figures(
        wall_ns=interval(3.1 * MS, 3.095 * MS, 3.105 * MS),
        start_ns=0.62 * MS,
        work_ns=2.325 * MS,
        join_ns=0.155 * MS,
        cpu_ns=3.1 * MS * 2 / 8,
        ratio=1.0,
        cores=2.0,
        rss_bytes=33 * MIB,
        uss_bytes=24 * MIB,
        uss_peak_bytes=24.72 * MIB,
        pss_bytes=24.5 * MIB,
        ops_per_s=8 / (3.1 * MS) * 1e9,
        counters_per_s={"words": 1024 / (2.325 * MS) * 1e9},
        timers_mean_ns={"put": 5250.0},
        gil_enabled=False,
        lock_wait=0.231,
        queue_wait=0.0,
        sites=(lock,),
        lock_cost=interval(1.03, 1.01, 1.05),
        memory_cost=interval(1.008, 1.004, 1.012),
        waits=WaitFigures(
            running=0.25,
            runnable=0.02,
            lock=0.231,
            unattributed=0.495,
            asleep=0.004,
            native={"critical section of PyDict_Copy (python3.14t)": 0.44},
            voluntary_per_s=1200.0,
            involuntary_per_s=300.0,
            cores={"main": 2.0},
        ),
        memory={name: role(1, 24, 24.5, 33) for name in ("tree", "main")},
        memory_samples=40,
        floor_uss_bytes=8 * MIB,
        floor_pss_bytes=8.5 * MIB,
        growth_bytes=interval(2048.0, 1900.0, 2200.0),
        scaling=interval(1.6, 1.59, 1.61),
        efficiency=0.2,
        serial_fraction=4 / 7,
    )
    iterencode = Part(file="json/encoder.py", line=204, name="iterencode", before=0.12, after=0.31, added=0.49575 * MS)
    explanation = Explanation(
        causes=(Cause(of="time", added=0.58 * MS, parts=(iterencode,)),),
        shares=(Moved(name="running", before=0.15, after=0.25),),
        cores=Moved(name="cores", before=1.2, after=2.0),
    )
    conditions = Conditions(
        span_s=61.0, cores=2, calibration_ns=(19_000_000,) * 3, steal=0.002, others=0.1, quota=0.0, throttles=0
    )
    reference = sample_of(launches(1.2, WAS_MS, WAS_MS, WAS_MS), EIGHT, interpreter=FREE_THREADED, begun=3)
    basis = Basis(basis="paired", baseline=f"the baseline's commit ({COMMIT[:10]})", commit=COMMIT)
    return Row(
        cell=EIGHT,
        verdict=basis.verdict(Decision.REGRESSED, "", [wall, waiting, scaling]),
        figures=figures,
        sample=sample_of(launches(2.0, *NOW_MS), EIGHT, interpreter=FREE_THREADED, begun=3, reference=reference),
        conditions=conditions,
        explanation=explanation,
        line=12,
    )


def failed() -> Row:
    """Processes, of which one raised."""
    error = WorkloadError(reason="the workload raised ValueError in worker 3", detail=TRACEBACK, launch=1)
    return Row(cell=FALLEN, verdict=Verdict(decision=Decision.ERROR, reason=error.reason), error=error, line=12)


def report() -> Report:
    """Of one test, measured on the machine of the large report."""
    table = Table(
        title=f"{TEST} (1 and 8 workers)",
        rows=(passed(), regressed(), failed()),
        reference="3.14t-threads",
    )
    return msgspec.structs.replace(
        report_by_hand.report(),
        interpreters=(FREE_THREADED,),
        tables=(table,),
        unused_baselines=("baselines/tests/test_words.py/test_gone.json",),
        failing=frozenset({EIGHT.nodeid, FALLEN.nodeid}),
    )
