"""A report written by hand from the model's types: every verdict, every kind of gap.

Its texts are what counts: its figures do not follow from each other, those of `small_report` do.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from pytest_ftgate.kit.values import Interval, Metric
from pytest_ftgate.model.report import (
    Cause,
    Conditions,
    Explanation,
    Figures,
    HolderFigures,
    LockLimit,
    Machine,
    Moved,
    MovedSite,
    Part,
    Report,
    RoleFigures,
    Row,
    Shard,
    SiteFigures,
    Table,
    WaitFigures,
)
from pytest_ftgate.model.sample import Function, Iteration, Launch, MemoryPoint, Sample, Timer, WaitsFor, WorkloadError
from pytest_ftgate.model.spec import Cell, Executor, Interpreter, Param, Target
from pytest_ftgate.model.verdict import Acceptance, Decision, MetricVerdict, Reason, Verdict, Why

KIB = 2.0**10
MIB = 2.0**20
TOKENISE = "tests/test_words.py::test_tokenise"
CACHE = "tests/test_cache.py::test_lookup"
SHARED_SET = "tests/test_shared.py::TestSet::test_insert"
BASELINE = "baselines/tests/test_words.py/test_tokenise.json"
COMMIT = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
MEANT = "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c"

GIL = Interpreter(
    executable="/opt/python/bin/python3.14",
    version="3.14.7",
    implementation="cpython",
    free_threaded=False,
    gil_enabled=True,
    jit_available=False,
    jit_enabled=False,
    pgo=False,
    lto=False,
    shared=True,
    debug=False,
    compiler="GCC 14.2.0",
    config_args="--enable-shared",
    found="PATH",
    build="gcc 14.2.0, no PGO, no LTO, built from source",
    start_methods=("fork", "forkserver", "spawn"),
)
FREE_THREADED = msgspec.structs.replace(
    GIL,
    executable="/opt/python/bin/python3.14t",
    free_threaded=True,
    gil_enabled=False,
    config_args="--disable-gil --enable-shared",
)

TOO_OLD = "sub-interpreters need Python 3.14 or newer: take 3.13 out of pythons, or this executor out of the test"
TOO_COSTLY = (
    "the lock probe made it 1.31x slower (limit 1.25x, ftgate_probe_cost): its waits cannot stand for the workload "
    "alone; do more between two acquisitions"
)
NO_CLASSIFIER = "its wait states cannot be distinguished: a lock (futex) was seen 60 times as asleep"
TRACEBACK = "\n".join(
    ["Traceback (most recent call last):"]
    + [f'  File "words.py", line {line}, in step_{line}\n    step_{line + 1}()' for line in range(1, 8)]
    + ["\x1b[31mValueError\x1b[0m: caf\u00e9 is not a word"]
)
SLOWER = Explanation(
    causes=(
        Cause(
            of="time",
            added=742_000.0,
            parts=(
                Part(file="json/encoder.py", line=204, name="iterencode", before=0.12, after=0.51, added=668_000.0),
                Part(file="src/words/split.py", line=31, name="Splitter.words", before=0.0, after=0.07, added=68_000.0),
            ),
        ),
    ),
    shares=(Moved(name="running", before=0.61, after=0.92), Moved(name="asleep", before=0.38, after=0.07)),
    cores=Moved(name="cores", before=1.21, after=1.93),
)
NOT_KNOWN = "the added memory is unexplained: no git here: its commit cannot be measured"
HEAVIER = Explanation(causes=(Cause(of="memory", unknown=NOT_KNOWN),))
WAITING = Explanation(
    sites=(
        MovedSite(name="src/words/cache.py:12 Lock", before=0.02, after=0.23, holder="src/words/cache.py:40 in refill"),
    ),
)


def executor(word: str) -> Executor:
    """An executor by its label."""
    return Executor(kind="processes", method=word) if word in ("fork", "forkserver", "spawn") else Executor(kind=word)  # type: ignore[arg-type]


def cell(nodeid: str, spec: str, word: str, workers: int, *params: tuple[str, str]) -> Cell:
    """A cell whose id is made as pytest shows it."""
    label = "-".join([spec, word, f"w{workers}", *(literal.strip("'") for _, literal in params)])
    return Cell(
        nodeid=f"{nodeid}[{label}]",
        target=Target(spec=spec, request=spec),
        executor=executor(word),
        workers=workers,
        params=tuple(Param(name=name, literal=literal) for name, literal in params),
    )


def figures(ms: float, ratio: float, uss_mib: float, pss_mib: float, cores: float = 1.93) -> Figures:
    """Figures of an iteration of so many milliseconds."""
    wall_ns = ms * 1e6
    return Figures(
        wall_ns=Interval(value=wall_ns, low=wall_ns * 0.984, high=wall_ns * 1.017, level=0.95),
        start_ns=wall_ns * 0.2,
        work_ns=wall_ns * 0.75,
        join_ns=wall_ns * 0.05,
        cold_ns=wall_ns * 1.6,
        ratio=ratio,
        control_ratio=ratio * 0.83,
        cores=cores,
        rss_bytes=uss_mib * MIB * 1.2,
        uss_bytes=uss_mib * MIB,
        uss_peak_bytes=uss_mib * MIB * 1.02,
        pss_bytes=pss_mib * MIB,
    )


def told(text: str) -> tuple[Reason, ...]:
    """A reason in these words."""
    return (Reason(code=Why.PROBE_FAILED, text=text),) if text else ()


def judged(
    metric: Metric, decision: Decision, ratio: float, spread: float, p: float, *reasons: Reason
) -> MetricVerdict:
    """One metric's verdict with an interval of +- spread, which rules out four times the spread."""
    interval = Interval(value=ratio, low=ratio - spread, high=ratio + spread, level=0.992)
    fail, settled = (p, 1.0) if decision is Decision.REGRESSED else (1 - p, p)
    return MetricVerdict(
        metric=metric,
        decision=decision,
        ratio=interval,
        p_fail=fail,
        p_pass=settled,
        reasons=reasons,
        ruled_out=math.ceil(400 * spread) / 100,
        effect=1.05 if decision is Decision.INCONCLUSIVE else None,
        more={Decision.INCONCLUSIVE: 14, Decision.SUSPECT: 4}.get(decision),
    )


def verdict(decision: Decision, *metrics: MetricVerdict, reason: str = "", baseline: str = BASELINE) -> Verdict:
    """A verdict held against the baseline's commit."""
    commit = COMMIT if baseline else ""
    return Verdict(decision=decision, metrics=metrics, reason=reason, baseline=baseline, commit=commit)


def sample(of: Cell, interpreter: Interpreter) -> Sample:
    """Three short launches with raw values: fewer carry no interval."""
    iteration = Iteration(
        start_ns=300_000, work_ns=1_400_000, join_ns=130_000, wall_ns=1_830_000, cpu_ns=3_530_000, ops=8, rate=5714.25
    )
    point = MemoryPoint(at_ns=50_000_000, rss_bytes=29_000_000, uss_bytes=24_300_000, pss_bytes=None, processes=1)
    launches = tuple(
        Launch(
            order=order,
            hash_seed=4_000_000_000 + order,
            started_at="2026-01-02T03:04:05+00:00",
            cold=iteration,
            iterations=(iteration, iteration),
            counters={"words": 1024.0},
            timers={"lock": Timer(count=8, total_ns=42_000, max_ns=9_000)},
            memory=(point,),
            results=("'café'",),
        )
        for order in range(3)
    )
    made = Sample(cell=of, interpreter=interpreter, key="w8", all_launches=launches)
    return made.with_launches("control", launches).with_launches("memory", launches[:1])


def tokenise() -> Table:
    """Processes and threads over one body: the memory and time table."""
    passed = judged(Metric.WALL, Decision.PASSED, 1.004, 0.012, 0.0004)
    light = judged(Metric.USS, Decision.PASSED, 1.0, 0.002, 0.0001)
    slower = judged(Metric.WALL, Decision.REGRESSED, 1.312, 0.031, 0.00016)
    larger = judged(Metric.USS, Decision.REGRESSED, 1.348, 0.004, 0.00003)
    settle = (Reason(code=Why.RULES_OUT), Reason(code=Why.NEEDS_TO_PASS, seconds=40.0))
    unsure = judged(Metric.WALL, Decision.INCONCLUSIVE, 1.031, 0.051, 0.2, *settle)
    faster = judged(Metric.WALL, Decision.IMPROVED, 0.871, 0.02, 0.0002)
    threads = cell(TOKENISE, "3.14t", "threads", 8)
    fallen = WorkloadError(reason="the workload raised ValueError in worker 3", detail=TRACEBACK)
    too_old = verdict(Decision.UNSUPPORTED, reason=TOO_OLD, baseline="")
    paired = msgspec.structs.replace(
        verdict(Decision.REGRESSED, slower, light, baseline=f"the baseline's commit ({COMMIT[:10]})"),
        basis="paired",
        why="encode() in src/words/split.py differs",
    )
    foretold = msgspec.structs.replace(verdict(Decision.REGRESSED, passed, larger), basis="stored", why="no git here")
    held = MetricVerdict(
        metric=Metric.CONTRACT,
        decision=Decision.BROKEN,
        contract="wall < 1.5 * threads.wall",
        reasons=(Reason(code=Why.NOT_HELD, counts=(16, 16), level=0.0012),),
        p_fail=1.5e-05,
        launches=16,
    )
    nothing = "nothing is stored for it; record it with --ftgate-update"
    broken = Verdict(decision=Decision.BROKEN, metrics=(held,), why=nothing)
    meant = Acceptance(
        cells=f"{TOKENISE}[3.14-threads-*]", metric="wall", reason="the index costs 8 %, see the design", commit=MEANT
    )
    known = Reason(code=Why.ACCEPTED, name=MEANT, text=meant.reason)
    costly = judged(Metric.WALL, Decision.ACCEPTED, 1.083, 0.011, 0.0003, known)
    accepted = msgspec.structs.replace(verdict(Decision.ACCEPTED, costly, light), basis="paired", accepted=(meant,))
    busy = Conditions(span_s=61.0, cores=2, calibration_ns=(19_000_000,) * 6, steal=0.002, others=0.9, quota=0.0)
    rows = (
        Row(
            cell=threads,
            verdict=verdict(Decision.PASSED, passed, light),
            figures=figures(1.832, 1.0, 25.2, 25.2),
            sample=sample(threads, FREE_THREADED),
            conditions=busy,
        ),
        Row(
            cell=cell(TOKENISE, "3.14", "fork", 8),
            verdict=paired,
            figures=figures(3.121, 1.7, 15.5, 30.5),
            explanation=SLOWER,
        ),
        Row(cell=cell(TOKENISE, "3.14t", "fork", 8), verdict=broken, figures=figures(3.42, 1.87, 12.1, 24.9)),
        Row(
            cell=cell(TOKENISE, "3.14", "forkserver", 8),
            verdict=foretold,
            figures=figures(4.474, 2.44, 33.6, 46.9),
            explanation=HEAVIER,
        ),
        Row(
            cell=cell(TOKENISE, "3.14", "spawn", 8),
            verdict=verdict(Decision.INCONCLUSIVE, unsure, light),
            figures=figures(32.851, 17.93, 92.1, 99.0, 1.4),
        ),
        Row(cell=cell(TOKENISE, "3.14", "threads", 8), verdict=accepted, figures=figures(9.16, 5.0, 15.2, 15.3, 1.01)),
        Row(
            cell=cell(TOKENISE, "3.14t", "interpreters", 8),
            verdict=verdict(Decision.IMPROVED, faster, light),
            figures=figures(7.2, 3.93, 61.0, 61.4, 1.88),
        ),
        Row(cell=cell(TOKENISE, "3.14", "tasks", 8), verdict=Verdict(decision=Decision.ERROR), error=fallen),
        Row(cell=cell(TOKENISE, "3.13", "interpreters", 8), verdict=too_old),
        Row(cell=cell(TOKENISE, "3.13t", "interpreters", 8), verdict=too_old),
    )
    return Table(title=f"{TOKENISE}, 8 workers", rows=rows, reference="3.14t-threads")


def shared_set() -> Table:
    """Bodies with a duration: operations, counters and timers, no memory, no baseline."""

    def row(spec: str, word: str, ns: float, ratio: float, wait_ns: float) -> Row:
        return Row(
            cell=cell(SHARED_SET, spec, word, 8, ("size", "10_000_000")),
            verdict=Verdict(decision=Decision.NO_BASELINE),
            figures=Figures(
                wall_ns=Interval(value=ns, low=ns * 0.95, high=ns * 1.05, level=0.95),
                ratio=ratio,
                cores=1.97,
                ops_per_s=1e9 / ns,
                counters_per_s={"inserts": 0.78e9 / ns},
                timers_mean_ns={"lock_wait": wait_ns},
            ),
        )

    rows = (
        row("3.14t", "threads", 910.7, 1.0, 5320),
        row("3.14", "threads", 1453, 1.6, 7100),
        row("3.14", "fork", 19_600, 21.5, 135_000),
    )
    note = "a duration of 5 s: the time is that of one operation over all workers"
    return Table(title=f"{SHARED_SET}, 8 workers, size=10_000_000", rows=rows, reference="3.14t-threads", note=note)


HOLDERS = tuple(
    HolderFigures(
        file="src/words/cache.py",
        line=line,
        function=function,
        share=share,
        p50_ns=held_ns,
        p99_ns=2.5 * held_ns,
        waiter_file="src/words/cache.py",
        waiter_line=88,
    )
    for function, line, share, held_ns in (("Cache.refill", 71, 0.93, 1_200_000.0), ("Cache.get", 88, 0.07, 900.0))
)


def site(
    file: str,
    line: int,
    kind: str,
    share: float,
    waits_for: WaitsFor = "lock",
    name: str = "",
    ratio: float | None = 0.45,
    holders: tuple[HolderFigures, ...] = (),
) -> SiteFigures:
    """A site whose other figures follow from its share of 8 workers' time."""
    return SiteFigures(
        file=file,
        line=line,
        kind=kind,
        waits_for=waits_for,
        name=name,
        share=share,
        contended_per_s=share * 3846,
        contended_ratio=ratio,
        p50_ns=share * 38_500,
        p95_ns=share * 257_000,
        p99_ns=share * 673_000,
        holders=holders,
        max_ns=share * 4_490_000,
        total_ns=share * 8e9,
        contended=int(share * 3846),
    )


SITES = (
    site("src/words/cache.py", 12, "Lock", 0.231, name="cache"),
    site("src/words/storage/backends/segmented_log/compaction_of_segments.py", 1408, "RLock", 0.062, ratio=None),
    site("src/words/index.py", 77, "Condition", 0.0154),
    site("src/words/index.py", 31, "Lock", 0.0036),
    site("src/words/feed.py", 9, "Queue", 0.121, "queue", ratio=0.038),
)


def around(value: float, spread: float) -> Interval:
    """A 95 % interval of +- spread."""
    return Interval(value=value, low=value - spread, high=value + spread, level=0.95)


def role(processes: int, uss_mib: float, pss_mib: float | None = None, rss_mib: float | None = None) -> RoleFigures:
    """Steady figures with peaks a little above them."""
    steady = [None if mib is None else mib * MIB for mib in (uss_mib, pss_mib, rss_mib)]
    uss, pss, rss = steady
    uss_peak, pss_peak, rss_peak = (None if each is None else each * 1.03 for each in steady)
    return RoleFigures(
        processes=processes,
        steady_uss=uss,
        steady_pss=pss,
        steady_rss=rss,
        peak_uss=uss_peak,
        peak_pss=pss_peak,
        peak_rss=rss_peak,
    )


def probed(base: Figures, **fields: object) -> Figures:
    """The same figures with what the lock and memory launches gave."""
    cost = {"lock_cost": around(1.03, 0.02), "memory_cost": around(1.008, 0.004)}
    floors = {"floor_uss_bytes": 8.1 * MIB, "floor_pss_bytes": 8.4 * MIB}
    return msgspec.structs.replace(base, **{"gil_enabled": False, **cost, **floors, **fields})


def parted(metric: Metric, decision: Decision, points: float, spread: float, p: float) -> MetricVerdict:
    """The verdict on a share."""
    interval = Interval(value=points, low=points - spread, high=points + spread, level=0.992)
    return MetricVerdict(
        metric=metric, decision=decision, points=interval, p_fail=p, p_pass=1 - p, ruled_out=4 * spread
    )


def cache_threads() -> tuple[Row, ...]:
    """Threads around one lock: it waits and grows without the GIL, and waits for the GIL with it."""
    waiting = parted(Metric.LOCK_WAIT, Decision.REGRESSED, 0.0412, 0.021, 0.00018)
    worse = judged(Metric.SCALING, Decision.REGRESSED, 0.877, 0.03, 0.0003)
    passed = judged(Metric.WALL, Decision.PASSED, 1.004, 0.012, 0.0004)
    refused = MetricVerdict(metric=Metric.LOCK_WAIT, decision=Decision.INCONCLUSIVE, reasons=told(TOO_COSTLY))
    alone = probed(
        figures(12.1, 1.0, 12.3, 12.6, 0.99),
        lock_wait=0.0,
        queue_wait=0.0,
        waits=WaitFigures(running=0.97, runnable=0.01, asleep=0.02, cores={"main": 0.98}, voluntary_per_s=12.0),
        memory={"tree": role(1, 12.3, 12.6, 21.0), "main": role(1, 12.3, 12.6, 21.0)},
    )
    busy = {"main": 0.02, **{f"worker {index}": 0.231 - index / 100 for index in range(8)}}
    eight = probed(
        figures(7.03, 1.0, 24.2, 24.5, 1.81),
        lock_wait=0.3120,
        queue_wait=0.121,
        sites=SITES,
        waits=WaitFigures(
            running=0.225,
            runnable=0.021,
            lock=0.31,
            queue=0.12,
            unattributed=0.32,
            native={"critical section of PyDict_Copy (python3.14t)": 0.24, "stop-the-world pause": 0.06},
            asleep=0.004,
            voluntary_per_s=1200.0,
            involuntary_per_s=300.0,
            cores=busy,
        ),
        memory={"tree": role(1, 24.2, 24.5, 33.0)},
        growth_bytes=around(102 * KIB, 2 * KIB),
        scaling=around(1.72, 0.06),
        lock_ceiling=1.92,
        lock_limit=LockLimit(
            by=Function(file="src/words/cache.py", line=31, name="Cache.refill"), share=0.52, hold_ns=1.2e6, longer=1.31
        ),
        efficiency=1.72 / 8,
        serial_fraction=0.52,
    )
    gil = probed(
        figures(14.8, 2.11, 15.5, 15.8, 0.99),
        gil_enabled=True,
        lock_wait=0.412,
        queue_wait=0.0,
        sites=(site("src/words/cache.py", 12, "Lock", 0.412, name="cache", holders=HOLDERS),),
        lock_cost=around(1.31, 0.06),
        waits=WaitFigures(running=0.125, runnable=0.004, gil=0.45, lock=0.41, unattributed=0.011, cores=busy),
        memory={"tree": role(1, 15.5, 15.8, 24.0), "main": role(1, 15.5, 15.8, 24.0)},
        growth_bytes=around(300.0, 420.0),
        scaling=around(0.86, 0.04),
        efficiency=0.86 / 8,
        serial_fraction=1.19,
    )
    return (
        Row(cell=cell(CACHE, "3.14t", "threads", 1), verdict=verdict(Decision.PASSED, passed), figures=alone),
        Row(
            cell=cell(CACHE, "3.14t", "threads", 8),
            verdict=verdict(Decision.REGRESSED, passed, waiting, worse),
            figures=eight,
            explanation=WAITING,
        ),
        Row(
            cell=cell(CACHE, "3.14", "threads", 8),
            verdict=verdict(Decision.INCONCLUSIVE, passed, refused),
            figures=gil,
        ),
    )


def cache_processes() -> tuple[Row, ...]:
    """Processes with a server, and an interpreter in which waits cannot be told."""
    steady = parted(Metric.LOCK_WAIT, Decision.PASSED, 0.0, 0.002, 0.9998)
    shared = probed(
        figures(29.4, 4.18, 93.6, 106.9, 1.7),
        lock_wait=0.0003,
        queue_wait=0.0,
        sites=(site("src/words/cache.py", 12, "multiprocessing.Lock", 0.0003, name="cache"),),
        waits=WaitFigures(
            running=0.18,
            process=0.79,
            runnable=0.03,
            cores={"main": 0.04, "worker 0": 0.41, "worker 1": 0.43, "forkserver": 0.0, "Manager": 0.82},
            voluntary_per_s=41_300.0,
            involuntary_per_s=2.5,
        ),
        memory={
            "main": role(1, 9.1, 10.3, 21.4),
            "workers": role(8, 67.2, 78.1, 164.0),
            "servers": role(2, 17.3, 18.5, 39.0),
            "tree": role(11, 93.6, 106.9, 224.4),
        },
        scaling=around(6.94, 0.11),
        efficiency=6.94 / 8,
        serial_fraction=0.0218,
    )
    unknown = probed(
        figures(7.9, 1.12, 61.0, 61.4, 1.9),
        lock_wait=0.0,
        memory={"tree": role(1, 61.0, 61.4, 73.2), "main": role(1, 61.0, 61.4, 73.2)},
        waits=WaitFigures(unavailable=NO_CLASSIFIER, cores={"main": 1.9}),
    )
    return (
        Row(
            cell=cell(CACHE, "3.14", "forkserver", 8),
            verdict=verdict(Decision.PASSED, steady),
            figures=shared,
        ),
        Row(
            cell=cell(CACHE, "3.15t", "interpreters", 8),
            verdict=Verdict(decision=Decision.NO_BASELINE),
            figures=unknown,
        ),
    )


def cache() -> Table:
    """Two worker counts in one table, with everything that the lock and memory launches give."""
    rows = (*cache_threads(), *cache_processes())
    return Table(title=f"{CACHE} (1 and 8 workers)", rows=rows, reference="3.14t-threads")


def measured_twice(row: Row) -> Row:
    """The row, in whose verdicts each side has its figure: that of the reference is made for the change."""

    def sides(of: MetricVerdict) -> MetricVerdict:
        now = None if of.contract else row.figures.of(of.metric)
        now = now.value if isinstance(now, Interval) else now
        if now is None:
            return of
        was = now - of.points.value if of.points else now / of.ratio.value if of.ratio else None
        return msgspec.structs.replace(of, now=now, was=was)

    verdict = msgspec.structs.replace(row.verdict, metrics=tuple(map(sides, row.verdict.metrics)))
    return msgspec.structs.replace(row, verdict=verdict)


def report() -> Report:
    """All tables, with all that stands around them."""
    tables = tuple(
        msgspec.structs.replace(table, rows=tuple(map(measured_twice, table.rows)))
        for table in (tokenise(), cache(), shared_set())
    )
    bad = (Decision.REGRESSED, Decision.BROKEN, Decision.ERROR)
    return Report(
        version="0.1.0",
        seed=20260102,
        started_at="2026-01-02T03:04:05+00:00",
        wall_s=125.2,
        seconds={"environments": 3.1, "time": 88.0, "memory": 21.04, "locks": 9.0, "own code": 4.06},
        machine=Machine(
            fingerprint="x86_64-epyc7763-2-9f3c",
            system="Linux",
            arch="x86_64",
            cpu="AMD EPYC 7763 64-Core Processor",
            cores=2,
            kernel="6.18.0",
            governor="performance",
            cpu_quota=2.0,
            memory_limit_bytes=8 * 2**30,
        ),
        interpreters=(GIL, FREE_THREADED),
        tables=tables,
        unused_baselines=("baselines/tests/test_words.py/test_gone.json",),
        commit=COMMIT,
        command="pytest --ftgate --ftgate-seed 20260102",
        project="words",
        branch="faster-split",
        failing=frozenset(row.cell.nodeid for table in tables for row in table.rows if row.verdict.decision in bad),
    )


def part_of(number: int, **changed: Any) -> Report:
    """A third of the report: a table each; `changed` fields are the report's or its shard's."""
    whole = report()
    planned = tuple(row.cell.nodeid for row in whole.rows)
    table = whole.tables[number - 1]
    own = {row.cell.nodeid for row in table.rows}
    shard = Shard(
        part=number,
        parts=3,
        planned=planned,
        places=tuple(place for place, nodeid in enumerate(planned) if nodeid in own),
        alpha=0.01,
        hypotheses=12,
        own=4,
        options={"ftgate_alpha": "0.01"},
    )
    of_shard = {name: value for name, value in changed.items() if name in Shard.__struct_fields__}
    rest = {name: value for name, value in changed.items() if name not in of_shard}
    shard = msgspec.structs.replace(shard, **of_shard)
    return msgspec.structs.replace(whole, **{"tables": (table,), "partial": "", "shard": shard, **rest})


def of_rows(*rows: Row, title: str = "t.py::test", note: str = "", **fields: Any) -> Report:
    """A report of one test with these rows, of which those fail that do by default."""
    table = Table(title=title, rows=rows, reference="3.14t-threads", note=note)
    changed = {"tables": (table,), "unused_baselines": (), "failing": None, **fields}
    return msgspec.structs.replace(report(), **changed)
