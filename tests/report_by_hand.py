"""A report written by hand from the model's types: every verdict, every kind of gap."""

from __future__ import annotations

import msgspec

from pytest_ftgate.model import (
    Cell,
    Decision,
    Executor,
    Figures,
    Interpreter,
    Interval,
    Launch,
    Machine,
    MemoryPoint,
    Metric,
    MetricVerdict,
    Param,
    Report,
    Row,
    Sample,
    Table,
    Target,
    Timer,
    Turn,
    Verdict,
    WorkloadError,
)

MIB = 2.0**20
TOKENISE = "tests/test_words.py::test_tokenise"
SHARED_SET = "tests/test_shared.py::TestSet::test_insert"
BASELINE = "baselines/tests/test_words.py/test_tokenise.json"
COMMIT = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"

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
TRACEBACK = "\n".join(
    ["Traceback (most recent call last):"]
    + [f'  File "words.py", line {line}, in step_{line}\n    step_{line + 1}()' for line in range(1, 8)]
    + ["\x1b[31mValueError\x1b[0m: caf\u00e9 is not a word"]
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
        candle_ratio=ratio * 0.83,
        cores=cores,
        rss_bytes=uss_mib * MIB * 1.2,
        uss_bytes=uss_mib * MIB,
        uss_peak_bytes=uss_mib * MIB * 1.02,
        pss_bytes=pss_mib * MIB,
    )


def judged(
    metric: Metric, decision: Decision, ratio: float, spread: float, p: float, reason: str = ""
) -> MetricVerdict:
    """One metric's verdict with an interval of +- spread."""
    interval = Interval(value=ratio, low=ratio - spread, high=ratio + spread, level=0.992)
    fail, settled = (p, 1.0) if decision is Decision.REGRESSED else (1 - p, p)
    return MetricVerdict(metric=metric, decision=decision, ratio=interval, p_fail=fail, p_pass=settled, reason=reason)


def verdict(decision: Decision, *metrics: MetricVerdict, reason: str = "", baseline: str = BASELINE) -> Verdict:
    """A verdict held against the baseline's commit."""
    commit = COMMIT if baseline else ""
    return Verdict(decision=decision, metrics=metrics, reason=reason, baseline=baseline, commit=commit)


def sample(of: Cell, interpreter: Interpreter) -> Sample:
    """Two short launches with raw values."""
    turn = Turn(
        start_ns=300_000, work_ns=1_400_000, join_ns=130_000, wall_ns=1_830_000, cpu_ns=3_530_000, ops=8, rate=5714.25
    )
    point = MemoryPoint(at_ns=50_000_000, rss_bytes=29_000_000, uss_bytes=24_300_000, pss_bytes=None, processes=1)
    launches = tuple(
        Launch(
            order=order,
            hash_seed=4_000_000_000 + order,
            started_at="2026-01-02T03:04:05+00:00",
            cold=turn,
            turns=(turn, turn),
            counters={"words": 1024.0},
            timers={"lock": Timer(count=8, total_ns=42_000, max_ns=9_000)},
            memory=(point,),
            results=("'café'",),
        )
        for order in range(2)
    )
    return Sample(cell=of, interpreter=interpreter, key="w8", launches=launches, candle=launches, memory=launches[:1])


def tokenise() -> Table:
    """Processes and threads over one body: the memory and time table."""
    passed = judged(Metric.WALL, Decision.PASSED, 1.004, 0.012, 0.0004)
    light = judged(Metric.USS, Decision.PASSED, 1.0, 0.002, 0.0001)
    slower = judged(Metric.WALL, Decision.REGRESSED, 1.312, 0.031, 0.00016)
    larger = judged(Metric.USS, Decision.REGRESSED, 1.348, 0.004, 0.00003)
    settle = "about 14 more launches would settle it"
    unsure = judged(Metric.WALL, Decision.INCONCLUSIVE, 1.031, 0.051, 0.2, settle)
    faster = judged(Metric.WALL, Decision.IMPROVED, 0.871, 0.02, 0.0002)
    threads = cell(TOKENISE, "3.14t", "threads", 8)
    fallen = WorkloadError(reason="the workload raised ValueError in worker 3", detail=TRACEBACK)
    too_old = verdict(Decision.UNSUPPORTED, reason=TOO_OLD, baseline="")
    rows = (
        Row(
            cell=threads,
            verdict=verdict(Decision.PASSED, passed, light),
            figures=figures(1.832, 1.0, 25.2, 25.2),
            sample=sample(threads, FREE_THREADED),
        ),
        Row(
            cell=cell(TOKENISE, "3.14", "fork", 8),
            verdict=verdict(Decision.REGRESSED, slower, light),
            figures=figures(3.121, 1.7, 15.5, 30.5),
        ),
        Row(
            cell=cell(TOKENISE, "3.14", "forkserver", 8),
            verdict=verdict(Decision.REGRESSED, passed, larger),
            figures=figures(4.474, 2.44, 33.6, 46.9),
        ),
        Row(
            cell=cell(TOKENISE, "3.14", "spawn", 8),
            verdict=verdict(Decision.INCONCLUSIVE, unsure, light),
            figures=figures(32.851, 17.93, 92.1, 99.0, 1.4),
        ),
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


def report() -> Report:
    """Both tables, with all that stands around them."""
    return Report(
        version="0.1.0",
        seed=20260102,
        started_at="2026-01-02T03:04:05+00:00",
        wall_s=125.2,
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
        tables=(tokenise(), shared_set()),
        unused_baselines=("baselines/tests/test_words.py/test_gone.json",),
        commit=COMMIT,
    )
