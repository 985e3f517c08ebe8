"""Samples by hand, with what is stored of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import report_by_hand
from fake_launcher import MS
from values import held, iteration

from pytest_ftgate.judge.values import WALL_OF_CONTROL, Values, stored_values
from pytest_ftgate.kit.text import split_nodeid
from pytest_ftgate.model.report import Machine, Row
from pytest_ftgate.model.sample import Launch, Sample, WorkloadError
from pytest_ftgate.model.spec import Cell, Executor, Reuse, Target
from pytest_ftgate.model.verdict import Decision, Verdict
from pytest_ftgate.store import recording
from pytest_ftgate.store.names import entry_key
from pytest_ftgate.store.recording import Edit
from pytest_ftgate.store.schema import StoredCell
from pytest_ftgate.targets.describe import build_key

TEST = "tests/test_words.py::TestA::test_count"


RECORDED = "2026-01-02T03:04:05+00:00"


COMMIT = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"


PYTHON = msgspec.structs.replace(
    report_by_hand.FREE_THREADED,
    executable="/opt/python/bin/python3.14t",
    config_args="'--disable-gil' '--enable-shared'",
    build="source package 3.14.7-1",
    start_methods=(),
)


MACHINE = Machine(
    fingerprint="linux-x86_64-2c-1a2b3c4d",
    system="Linux",
    arch="x86_64",
    cpu="AMD EPYC 7763",
    cores=2,
    kernel="6.18.0",
    governor=None,
    cpu_quota=None,
    memory_limit_bytes=None,
)


OTHER_MACHINE = msgspec.structs.replace(MACHINE, fingerprint="linux-x86_64-64c-99999999", cores=64)


def launch(order: int, *walls_ns: int, loops: int = 1) -> Launch:
    cold, *iterations = (iteration(wall / MS, ops=2, rate=1000.0, cores=0.5) for wall in (9000, *walls_ns))
    return Launch(
        order=order,
        hash_seed=order + 7,
        started_at=RECORDED,
        loops=loops,
        cold=cold,
        iterations=tuple(iterations),
    )


def make_sample(
    label: str = "3.14t-threads-w2",
    *,
    test: str = TEST,
    scale: int = 1,
    uss: int = 4_000_000,
    reuse: Reuse = "fresh",
    error: WorkloadError | None = None,
) -> Sample:
    cell = Cell(
        nodeid=f"{test}[{label}]",
        target=Target(spec="3.14t", request="3.14t"),
        executor=Executor(kind="threads"),
        workers=2,
    )
    sample = Sample(
        cell=cell,
        interpreter=PYTHON,
        key=build_key(PYTHON),
        all_launches=tuple(launch(order, 4000 * scale, 4400 * scale, 4200 * scale, loops=2) for order in (0, 2)),
        reuse=reuse,
        error=error,
    )
    sample = sample.with_launches("control", (launch(order, 1000, 1100, 1050) for order in (0, 2)))
    memory = (held(4, uss, uss + 4096, None, pss=None), held(5, uss, pss=None))
    return sample.with_launches("memory", (msgspec.structs.replace(each, started_at=RECORDED) for each in memory))


def change(
    label: str = "3.14t-threads-w2",
    *,
    machine: Machine = MACHINE,
    scale: int = 1,
    uss: int = 4_000_000,
    recorded_at: str = RECORDED,
    append: bool = False,
) -> Edit:
    sample = make_sample(label, scale=scale, uss=uss)
    return change_of(sample, machine=machine, recorded_at=recorded_at, append=append)


def change_of(
    of: Sample | Values, *, machine: Machine = MACHINE, recorded_at: str = RECORDED, append: bool = False
) -> Edit:
    """The change that records a sample as a run at that time does."""
    values = of if isinstance(of, Values) else Values(of)
    entry = recording.entry_of(values.sample, stored_values(values), recorded_at, COMMIT, 11)
    label = split_nodeid(values.cell.nodeid)[1]
    key = entry_key(machine.fingerprint, build_key(values.sample.interpreter))
    return Edit(label=label, key=key, entry=entry, machine=machine, append=append)


def entries_of(rows: Iterable[Row]) -> dict[str, StoredCell]:
    """What recordings of these rows would hold, by node id."""
    found = {}
    for row in rows:
        if row.sample is not None and row.sample.launches:
            entry = change_of(row.sample).entry
            assert entry is not None
            found[row.cell.nodeid] = entry
    return found


def make_row(sample: Sample, decision: Decision = Decision.PASSED) -> Row:
    return Row(cell=sample.cell, verdict=Verdict(decision=decision), sample=sample)


def values_of(stored: StoredCell, metric: str) -> tuple[float, ...]:
    """What is stored under a name in all recordings."""
    return tuple(value for each in stored.recordings for value in each.by_order(metric).values())


def ratios_of(stored: StoredCell) -> tuple[float, ...]:
    """The ratios to the control workload of all recordings."""
    return values_of(stored, WALL_OF_CONTROL)
