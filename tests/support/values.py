"""Launches and samples by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, get_args

import msgspec
from fake_launcher import GIL, MS, group_of, spec_of

from pytest_ftgate.judge.values import TestValues, Values, stored_values
from pytest_ftgate.model.sample import Iteration, Launch, LockSite, LockWaits, MemoryPoint, Role, Sample
from pytest_ftgate.model.spec import Cell, Interpreter, InterpreterBuild
from pytest_ftgate.store import recording as recording_module
from pytest_ftgate.store import schema

WINDOW_NS = 200_000_000
WORK_NS = 1_000_000
DAYS = tuple(f"2026-05-{day:02d}T03:04:05+00:00" for day in range(4, 8))
ROLES: tuple[Role, ...] = get_args(Role)
TWO, FOUR = (group_of(spec=spec_of("threads", workers=count)).cells[0] for count in (2, 4))


def iteration(
    wall_ms: float,
    *,
    start: float = 0.2,
    join: float = 0.05,
    ops: int = 8,
    rate: float = 0.0,
    cores: float = 2.0,
    **fields: Any,
) -> Iteration:
    """One with these parts of it as its start and its join; `fields` are Iteration's."""
    wall_ns = round(wall_ms * MS)
    start_ns, join_ns = round(wall_ns * start), round(wall_ns * join)
    return Iteration(
        start_ns=start_ns,
        work_ns=wall_ns - start_ns - join_ns,
        join_ns=join_ns,
        wall_ns=wall_ns,
        cpu_ns=round(wall_ns * cores),
        ops=ops,
        rate=rate,
        **fields,
    )


def launch(order: int, *walls_ms: float, rate: float = 0.0, **fields: Any) -> Launch:
    """A timing launch of such iterations; `fields` are Launch's."""
    return Launch(order=order, iterations=tuple(iteration(wall, rate=rate) for wall in walls_ms), **fields)


def timed(order: int, walls_ns: Iterable[int], loops: int = 1) -> Launch:
    """A timing launch of iterations that are work alone."""
    iterations = (iteration(wall / MS, start=0.0, join=0.0, ops=loops, rate=1e9 / wall, cores=1.0) for wall in walls_ns)
    return Launch(order=order, hash_seed=1, started_at="", loops=loops, iterations=tuple(iterations))


def windows(order: int, rates: Iterable[float]) -> Launch:
    """A timing launch of windows; in one at rate 0 no operation ended."""
    iterations = (iteration(WINDOW_NS / MS, start=0.0, join=0.0, ops=1, rate=rate, cores=1.0) for rate in rates)
    return Launch(order=order, hash_seed=1, started_at="", window_ns=WINDOW_NS, iterations=tuple(iterations))


def held(order: int, *uss_bytes: int | None, pss: float | None = 1.0, written_bytes: int | None = None) -> Launch:
    """A memory launch with these looks, their PSS so many times the USS."""
    points = (
        MemoryPoint(
            at_ns=number,
            rss_bytes=3 * (uss or 1),
            uss_bytes=uss,
            pss_bytes=None if pss is None or uss is None else round(pss * uss),
            processes=1,
            written_bytes=written_bytes,
        )
        for number, uss in enumerate(uss_bytes)
    )
    return Launch(order=order, hash_seed=1, started_at="", memory=tuple(points))


def forked(*unshared_mib: float | None, parents_mib: float = 10.0, uss_mib: int = 40) -> Sample:
    """A cell whose two forked workers have these copies of pages of their parent, in a launch each."""
    parents = held(0, round(parents_mib * (1 << 20))).memory[0]
    launches = []
    for order, unshared in enumerate(unshared_mib):
        (point,) = held(order, uss_mib << 20).memory
        copies = None if unshared is None else round(unshared * (1 << 20))
        point = msgspec.structs.replace(point, unshared_bytes=copies, roles={"main": parents, "workers": parents})
        launches.append(Launch(role="memory", order=order, memory=(point,)))
    return sample_of(memory=launches)


def probed(order: int, share: float, workers: int = 2) -> Launch:
    """A lock launch whose workers waited for that share of their work for a lock, and a tenth of it for an item."""
    waited = round(share * workers * WORK_NS)
    sites = tuple(
        LockSite(file="work.py", line=line, kind=kind, waits_for=what, contended=3, total_ns=ns, max_ns=ns)  # type: ignore[arg-type]
        for line, kind, what, ns in ((7, "Lock", "lock", waited), (9, "Queue", "queue", workers * WORK_NS // 10))
    )
    return Launch(order=order, hash_seed=1, started_at="", locks=LockWaits(work_ns=WORK_NS, ops=1, sites=sites))


def sample_of(
    launches: Iterable[Launch] = (), cell: Cell = TWO, *, interpreter: Interpreter = GIL, key: str = "k", **fields: Any
) -> Sample:
    """A cell's sample of these timing launches; `fields` are Sample's, and launches by their role."""
    by_role = {role: fields.pop(role) for role in ROLES if role in fields}
    sides: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    sample = Sample(cell=cell, interpreter=interpreter, key=key, all_launches=tuple(launches), **sides)
    for role, of_role in by_role.items():
        sample = sample.with_launches(role, of_role)
    return sample


def read(
    sample: Sample, *others: Sample, one_worker: Iterable[Launch] = (), before: Iterable[Launch] = (), **fields: Any
) -> Values:
    """The values of a cell among those of `others`.

    Its one-worker cell has the launches `one_worker` and `fields`, on the side of the reference those `before`.
    """
    one = msgspec.structs.replace(sample.cell, nodeid="one", workers=1)
    alone = sample_of(one_worker, one, reference=sample_of(before, one) if sample.reference else None, **fields)
    return TestValues([sample, *others, alone])[0]


def recording(of: Sample | Values, recorded_at: str = DAYS[0]) -> schema.Recording:
    values = of if isinstance(of, Values) else read(of)
    stored = stored_values(values)
    return recording_module.entry_of(values.sample, stored, recorded_at, "1eb3b87", 1).recordings[0]


def entry(*samples: Sample | Values, days: Sequence[str] = DAYS) -> schema.StoredCell:
    """What is stored of a cell: a recording a sample."""
    recordings = tuple(recording(sample, day) for sample, day in zip(samples, days, strict=False))
    return schema.StoredCell(
        interpreter=msgspec.convert(GIL, InterpreterBuild, from_attributes=True), recordings=recordings
    )
