"""Spec x executors x targets -> Plan."""

from __future__ import annotations

import msgspec
import pytest

from pytest_ftgate.declare.plan import choices, group_key, plan_of
from pytest_ftgate.model.spec import Cell, Executor, Param, Source, Spec, Target, parse_target

THREADS = Executor(kind="threads")
SPAWN = Executor(kind="processes", method="spawn")
INTERPRETERS = Executor(kind="interpreters")


def spec(*executors: Executor, workers: tuple[int, ...] = (2,), nodeid: str = "test_a.py::test_it") -> Spec:
    source = Source(path="test_a.py", line=3, module="test_a", qualname="test_it")
    return Spec(nodeid=nodeid, source=source, body="worker", executors=executors, workers=workers, reuse="fresh")


def cell(nodeid: str, executor: Executor = THREADS, workers: int = 2, params: tuple[Param, ...] = ()) -> Cell:
    target = Target(spec="3.14", request="3.14")
    return Cell(nodeid=nodeid, target=target, executor=executor, workers=workers, params=params)


def test_cells_stand_tandem_by_tandem() -> None:
    found = choices(spec(THREADS, SPAWN, workers=(8, 1)), [parse_target("3.14"), parse_target("3.14t[gil=on]")])
    assert [choice.label for choice in found] == [
        f"{target}-{executor}-w{workers}"
        for workers in (8, 1)
        for target in ("3.14", "3.14t[gil=on]")
        for executor in ("threads", "spawn")
    ]


@pytest.mark.parametrize("target", ["3.13", "3.14.2t", "3.15", "/usr/bin/python3.13"])
def test_sub_interpreters_are_planned_on_every_target_as_its_version_is_known_once_it_runs(target: str) -> None:
    assert [choice.target.spec for choice in choices(spec(INTERPRETERS), [parse_target(target)])] == [target]


def test_a_tandem_is_a_test_with_its_parameters_at_all_worker_counts() -> None:
    four = (Param(name="n", literal="4"), Param(name="text", literal="'a]b['"))
    cells = [
        cell("t.py::test_it[3.14-threads-w2-four]", params=four),
        cell("t.py::test_it[3.14-threads-w2-five]", params=(Param(name="n", literal="5"),)),
        cell("t.py::test_it[3.14-spawn-w2-four]", SPAWN, params=four),
        cell("t.py::test_it[3.14-spawn-w1-four]", SPAWN, workers=1, params=four),
        cell("t.py::test_other[3.14-threads-w1]", workers=1),
    ]
    own = spec(THREADS, SPAWN)
    plan = plan_of((own, cell) for cell in cells)
    assert [group.cells for group in plan] == [(cells[0], cells[2], cells[3]), (cells[1],), (cells[4],)]
    assert [group.key for group in plan] == [
        "t.py::test_it (1 and 2 workers, n=4, text='a]b[')",
        "t.py::test_it (2 workers, n=5)",
        "t.py::test_other (1 worker)",
    ]
    assert all(group.spec is own for group in plan)
    assert group_key(plan[0].cells) == plan[0].key


def test_a_title_names_roles_with_their_numbers() -> None:
    counts = ((("producer", 8), ("writer", 1)), (("producer", 8), ("writer", 2)), (("producer", 8), ("writer", 4)))
    cells = [cell(f"t[{n}]", workers=9 + n) for n in range(3)]
    cells = [msgspec.structs.replace(one, roles=roles) for one, roles in zip(cells, counts, strict=True)]
    assert group_key(cells) == "t (8 producers, 1, 2 and 4 writers)"
    assert group_key(cells[:1]) == "t (8 producers, 1 writer)"


def test_nothing_selected() -> None:
    assert plan_of([]) == ()
