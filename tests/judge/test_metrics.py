"""The metric table: whatever has a row can gate, stand in a contract and be given thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_launcher import MIB, MS, group_of, spec_of
from stored_values import COMMIT, change_of
from values import held, iteration, read, sample_of, timed

from pytest_ftgate.declare.options import metric as metric_option
from pytest_ftgate.judge import comparisons, contract_grammar, contract_judge, contracts, metrics
from pytest_ftgate.judge import limits as thresholds
from pytest_ftgate.judge.figures import figures
from pytest_ftgate.judge.judge import ComparedWith, Judge, Policy
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.report import Figures
from pytest_ftgate.model.sample import (
    Barrier,
    Function,
    Iteration,
    Latency,
    Launch,
    LockHolder,
    LockSite,
    LockWaits,
    LongestHeld,
    Sample,
    Timer,
    Waits,
    WaitsFor,
)
from pytest_ftgate.model.spec import Cell, Executor, Program, Spec
from pytest_ftgate.model.verdict import BasisKind, Decision, MetricVerdict
from pytest_ftgate.report import reasons
from pytest_ftgate.runner.locks.sites import bucket_of
from pytest_ftgate.stats import alpha_spending
from pytest_ftgate.store.folder import Store

ROUNDS = 12
THREADS, SPAWN, FORK = group_of(spec=spec_of("threads", "spawn", "fork", workers=4)).cells
SERVER = msgspec.structs.replace(
    THREADS, executor=Executor(kind="server", program=Program(name="granian", argv=("granian",))), body="server"
)
TASKS = msgspec.structs.replace(THREADS, executor=Executor(kind="tasks"))
POOL = msgspec.structs.replace(SPAWN, body="executor")
OWN = ("timer.ack", "counter.inserts", "peak.depth")


def launch(order: int, cell: Cell, factor: float) -> Launch:
    """A timing launch whose every figure is `factor` times what it usually is; rounds differ a little."""
    wall = round(10 * MS * factor * (1 + order / 1000))
    latency = Latency(
        mean_ns=wall, p50_ns=wall, p95_ns=2 * wall, p99_ns=3 * wall, max_ns=4 * wall, errors=2 * round(factor)
    )
    each = iteration(
        3 * wall / MS,
        start=1 / 3,
        join=1 / 3,
        ops=100,
        rate=1e9 / wall,
        cores=factor,
        slowest=factor,
        latency=latency if cell.executor.kind == "server" else None,
    )
    return Launch(
        order=order,
        start_ns=10 * wall if cell is SPAWN else None,
        cold=each,
        iterations=(each,) * 12,
        counters={"inserts": 3600 / factor},
        timers={"ack": Timer(count=10, total_ns=10 * wall, max_ns=wall)},
        peaks={"depth": 26.0 * factor},
        peak_bytes=None if cell is SPAWN else round(30 * MIB * factor) + 4096 * order,
    )


def memory(order: int, factor: float) -> Launch:
    """A memory launch: samples, a wait for the GIL for a tenth of the time, and barriers between which it grows."""
    size = round(10 * MIB * factor) + 4096 * order
    written = (size + round(MIB * factor * at) for at in range(4))
    points = [held(order, size, pss=2.0, written_bytes=each).memory[0] for each in written]
    waits = Waits(
        span_s=10.0,
        gil_s=min(9.0, factor),
        running_s=1.0,
        samples=100,
        cores={"main": factor, "worker 0": factor / 2},
        gil_waits={bucket_of(round(5 * MS * factor)): 40.0},
    )
    barriers = tuple(Barrier(ops=1, point=point) for point in points)
    last = msgspec.structs.replace(points[0], unshared_bytes=round(6 * MIB * factor) + 4096 * order)
    return Launch(order=order, memory=(points[0], points[0], last), barriers=barriers, waits=waits)


def locks(order: int, factor: float, takers: int = 4) -> Launch:
    """A lock launch: a tenth of the time in a lock, and as much in a queue; a worker holds the lock for a tenth."""
    total = round(4e5 * factor)
    by = Function(file="work.py", line=8, name="work")
    longest = LongestHeld(held_ns=round(MS * factor), holds=10, by=by, takers=takers)

    def site(line: int, waits_for: WaitsFor) -> LockSite:
        waits: dict[str, Any] = {"contended": 3, "total_ns": total, "max_ns": total, "histogram": {9: 3}}
        waits |= {"holders": (holder,), "longest": longest if waits_for == "lock" else None}
        return LockSite(file="work.py", line=line, kind="Lock", waits_for=waits_for, **waits)

    place: dict[str, Any] = {"file": "work.py", "line": 8, "waiter_file": "work.py", "waiter_line": 8}
    holder = LockHolder(function="work", waited_ns=total, held={bucket_of(total): 3}, **place)
    sites = site(7, "lock"), site(9, "queue")
    waits = LockWaits(work_ns=1_000_000, ops=10, counted_ops=10, counted_ns=10 * MS, sites=sites)
    return Launch(role="locks", order=order, locks=waits)


def observed(order: int, factor: float) -> Launch:
    """A launch in which features saw a tenth of the time lost, a collection a call, and pauses of 5 ms."""
    pauses = dict.fromkeys(("gap", "lag", "gc pause"), 5.0 * MS * factor)
    shares = {"neighbour late": 0.1 * factor, "neighbour time": 1.0, "gc pauses": 0.1 * factor, "gc span": 1.0}
    numbers = {"gc collections": 1200 * factor, "gc objects": 12e6 * factor, "switches": 12e6 * factor}
    tasks = {"payload": 12e6 * factor, "payload tasks": 1200}
    tasks_ns = round(MS * factor)
    names = ("dispatch", "dispatch p95", "dispatch MiB", "task work", "task pace")
    timers = dict.fromkeys(names, Timer(count=1, total_ns=tasks_ns, max_ns=tasks_ns))
    of_time = launch(order, THREADS, 1.0)
    return msgspec.structs.replace(of_time, counters=shares | numbers | tasks, peaks=pauses, timers=timers)


def sample(cell: Cell = THREADS, factor: float = 1.0, **fields: Any) -> Sample:
    orders = range(ROUNDS)
    return sample_of(
        [launch(order, cell, factor) for order in orders],
        cell,
        control=[timed(order, [10 * MS] * 12) for order in orders],
        memory=[memory(order, factor) for order in orders],
        growth=[memory(order, factor) for order in orders],
        locks=[locks(order, factor) for order in orders],
        observed=[observed(order, factor) for order in orders],
        **fields,
    )


def values(of: Sample) -> Values:
    def one(of: Sample) -> list[Launch]:
        known = (launch.locks.sites[0].total_ns / 4e5 for launch in of.of("locks") if launch.locks)
        with_probe = [locks(order, factor, takers=1) for order, factor in enumerate(known)]
        return [*(timed(order, [10 * MS] * 12) for order in range(ROUNDS)), *with_probe]

    return read(of, one_worker=one(of), before=one(of.reference or of))


def judged(name: str, new: Sample, compared_with: ComparedWith, *others: str) -> list[MetricVerdict]:
    policy = Policy(metrics=(name, *others), cli=(), ini=(), alpha=0.01, beta=alpha_spending.BETA, probe_cost=0.25)
    spec: Spec = msgspec.structs.replace(spec_of("threads"), workers=(1, 4))
    judge = Judge(spec, policy, {new.cell.nodeid: compared_with}, ROUNDS)
    return list(judge.verdict(values(new)).metrics)


def cell_for(name: str) -> Cell:
    if name.startswith(("dispatch", "task_", "payload")):
        return POOL
    cells = {"start": SPAWN, "lag": TASKS, "unshared": FORK}
    return cells.get(name, SERVER if name.startswith(("latency", "errors")) else THREADS)


NAMES = (*metrics.TABLE, *OWN)


@pytest.mark.parametrize("name", NAMES)
def test_whatever_has_a_row_gates_against_a_reference(name: str) -> None:
    cell = cell_for(name)
    against = ComparedWith(basis="paired", baseline="main", commit=COMMIT)
    same = msgspec.structs.replace(sample(cell), reference=sample(cell))
    (held,) = judged(name, same, against)
    assert held.decision is Decision.PASSED, reasons.of_metric(held)
    slower = msgspec.structs.replace(sample(cell, 2.0), reference=sample(cell))
    (failed,) = judged(name, slower, against)
    explains = metrics.row(name).explains
    assert failed.decision is (Decision.INCONCLUSIVE if explains else Decision.REGRESSED), reasons.of_metric(failed)
    assert failed.metric == name
    if explains:  # what is derived from times fails with the time alone
        with_time, time = judged(name, slower, against, Metric.WALL)
        assert with_time.decision is time.decision is Decision.REGRESSED


def stored(tmp_path: Path, of: Sample) -> ComparedWith:
    """What is on the disk after this sample was recorded, as if on three days: one says little of what computes."""
    store = Store(tmp_path / "baselines")
    store.save("t.py::test_t", [msgspec.structs.replace(change_of(values(of)), label="x")])
    baseline = store.load("t.py::test_t")
    assert baseline is not None
    (entry,) = baseline.cells["x"].values()
    times = (f"2026-05-0{day}T03:04:05+00:00" for day in (1, 2, 3))
    days = tuple(msgspec.structs.replace(entry.recordings[0], recorded_at=time) for time in times)
    entry = msgspec.structs.replace(entry, recordings=days)
    return ComparedWith(basis="stored", entry=entry, baseline="x.json", commit=COMMIT)


@pytest.mark.parametrize("name", NAMES)
def test_whatever_has_a_row_gates_against_what_is_stored(tmp_path: Path, name: str) -> None:
    cell = cell_for(name)
    compared_with = stored(tmp_path, sample(cell))
    (held,) = judged(name, sample(cell), compared_with)
    assert held.decision is Decision.PASSED, reasons.of_metric(held)
    (failed,) = judged(name, sample(cell, 4.0), compared_with)
    explains = metrics.row(name).explains
    assert failed.decision is (Decision.INCONCLUSIVE if explains else Decision.REGRESSED), reasons.of_metric(failed)
    assert ("no time is known to be worse" in reasons.of_metric(failed)) is explains


@pytest.mark.parametrize("name", NAMES)
def test_whatever_has_a_row_is_an_option_and_has_thresholds(name: str) -> None:
    assert metric_option(f" {name} ") == name
    assert thresholds.threshold(name, {"margin": "3%", "effect": "9%"}).metric == name
    bases: Sequence[BasisKind] = ("paired", "stored")
    for basis in bases:
        limits = thresholds.effective(name, basis)
        assert 0 <= limits.margin < limits.effect


@pytest.mark.parametrize("name", NAMES)
def test_whatever_has_a_row_stands_in_a_contract(name: str) -> None:
    unit = {"time": " us", "size": " B", "share": "", "ratio": "", "number": ""}[metrics.row(name).unit]
    contract = contract_grammar.parse(f"{name} > 0.001{unit}")
    assert contracts.metrics_needed(contract) == metrics.row(name).needs
    found = contract_judge.values(contract, values(sample(cell_for(name))))
    assert len(found) == ROUNDS
    assert all(value < 0 for value in found)  # it holds in every round


def test_pss_is_one_row_and_one_reader() -> None:
    row = metrics.row("pss")
    assert (row.unit, row.need, row.gates) == ("size", "memory", False)
    assert values(sample()).of("pss")[0] == 20 * MIB
    assert figures(values(sample()), reference=None).pss_bytes == values(sample()).middle("pss")


def test_of_a_hold_one_sample_says_what_is_unshared_and_of_cells_those_that_may_fork() -> None:
    assert values(sample(FORK)).of("unshared")[0] == 6 * MIB
    assert figures(values(sample(FORK)), reference=None).unshared_bytes == values(sample(FORK)).middle("unshared")
    row = metrics.row("unshared")
    executor = FORK.executor
    forkserver, own = (
        msgspec.structs.replace(executor, **fields)
        for fields in ({"method": "forkserver"}, {"kind": "executor", "method": None, "in_processes": True})
    )
    threads = msgspec.structs.replace(own, in_processes=False)
    cells = [msgspec.structs.replace(FORK, executor=each) for each in (forkserver, own, threads)]
    assert [*map(row.applies, (FORK, SERVER, THREADS, SPAWN, *cells))] == [True, True, False, False, True, True, False]
    assert "forked" in row.why_none


def test_a_servers_p99_is_one_row_and_one_reader() -> None:
    row = metrics.row("latency_p99")
    assert (row.unit, row.need, row.gates) == ("time", "time", False)
    assert values(sample(SERVER)).of("latency_p99")[0] == 30 * MS
    assert not values(sample()).of("latency_p99")
    assert (row.applies(SERVER), row.applies(THREADS)) == (True, False)
    latency = figures(values(sample(SERVER)), reference=None).latency
    assert latency is not None
    assert latency.p99_ns == values(sample(SERVER)).middle("latency_p99")


def test_the_p99_of_a_pair_is_that_of_neighbouring_windows() -> None:
    def side(factor: float, machine: list[float]) -> list[Launch]:
        windows = (
            Latency(mean_ns=MS, p50_ns=MS, p95_ns=MS, p99_ns=round(factor * at * MS), max_ns=MS) for at in machine
        )
        iterations = tuple(Iteration(wall_ns=MS, work_ns=MS, ops=1, rate=1.0, latency=window) for window in windows)
        return [Launch(order=0, window_ns=MS, iterations=iterations)]

    drift = [10.0, 20.0, 40.0, 80.0, 30.0]  # the machine is slower in some windows than in others
    of = sample_of(side(1.3, drift), SERVER, reference=sample_of(side(1.0, drift), SERVER))
    found = comparisons.paired(read(of), ["latency_p99"])["latency_p99"]
    assert found.new[0] / found.reference[0] == pytest.approx(1.3, rel=0.01)
    assert found.errors[0] < 0.01
    scattered = sample_of(side(1.0, [20.0, 10.0, 80.0, 40.0, 30.0]), SERVER)
    of = msgspec.structs.replace(of, reference=scattered)
    assert comparisons.paired(read(of), ["latency_p99"])["latency_p99"].errors[0] > 0.1
    lone = sample_of(side(1.3, [20.0]), SERVER, reference=sample_of(side(1.0, [20.0]), SERVER))
    assert comparisons.paired(read(lone), ["latency_p99"])["latency_p99"].errors == (comparisons.LONE_WINDOW_ERROR,)


def test_what_features_observe_is_shown_and_no_figure_of_the_workloads_own() -> None:
    shown = figures(values(sample()), reference=None)
    assert shown.observed == {
        **dict.fromkeys(("gap", "lag", "gc_pause"), 5 * MS),
        **dict.fromkeys(("neighbour_wait", "gc_time"), 0.1),
        "collections": 1.0,
        **dict.fromkeys(("garbage", "switches"), 10_000.0),
        "imbalance": 1.0,
        **dict.fromkeys(("dispatch", "dispatch_p95", "task_work", "task_pace"), 1.0 * MS),
        "dispatch_kib": MS / 1024,
        "payload": 10_000.0,
    }
    assert [*shown.observed] == [*metrics.OF_FEATURES]
    assert (shown.of("gap"), shown.of("peak.gap"), [*shown.peaks]) == (5 * MS, None, ["depth"])


def test_every_figure_of_a_row_that_is_a_number_has_a_metric() -> None:
    """What is shown can gate: a field of Figures is called as its metric, with its unit."""
    # Derived from others, or probes of our own: the overhead of a probe, an empty workload's floor, peaks that are
    # lower bounds, and the fits of a scaling.
    explain = {
        "ratio",
        "control_ratio",
        "uss_peak",
        "floor_uss",
        "floor_pss",
        "serial_fraction",
        "lock_cost",
        "memory_cost",
    }
    inner = {
        "no_locks",
        "ratio_rounds",
        "memory_samples",
        "memory_dropped",
        "counters_per_s",
        "timers_mean",
        "peaks",
        "observed",
        "latency",
        "sites",
        "waits",
        "lock_limit",
        "memory",
        "gil_enabled",
    }
    fields = {name.removesuffix("_ns").removesuffix("_bytes") for name in Figures.__struct_fields__}
    assert fields - explain - inner <= set(metrics.TABLE)


def test_what_gates_by_default_is_measured_itself() -> None:
    assert metrics.GATING == ("wall", "tail", "start", "uss", "growth", "lock_wait", "payload")
    assert not any(metrics.row(name).explains for name in metrics.GATING)


@pytest.mark.parametrize("name", ["", "wal", "timer", "timer.", ".x", "contract", "ratio."])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    assert not metrics.known(name)
    with pytest.raises(ValueError, match="is not a metric that gates"):
        metric_option(name)


def test_a_value_of_none_of_the_launches_is_left_out() -> None:
    empty = sample_of([timed(0, [MS] * 3)], THREADS)
    assert [read(empty).of(name) for name in ("pss", "latency_p99", "timer.ack")] == [{}, {}, {}]
    found = judged("wall", msgspec.structs.replace(empty, reference=empty), ComparedWith())[0]
    assert found.decision is Decision.INCONCLUSIVE
