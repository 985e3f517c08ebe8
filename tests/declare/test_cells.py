"""The environment and the cores of a cell: what a test may say of them, the cells that it makes, and their ids."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from test_declarations import awaited, compared, labels, served, source_of, spec

from pytest_ftgate import command, ftgate, interpreters, serial, tasks, threads
from pytest_ftgate.declare.arguments import DeclarationError
from pytest_ftgate.declare.plan import choices
from pytest_ftgate.declare.tests import check_arguments, check_placeholders
from pytest_ftgate.measure import machine
from pytest_ftgate.measure.cell_run import measures
from pytest_ftgate.model.spec import Cell, Environment, Spec, parse_target

ONE, MANY = {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "{workers}"}


def variables(found: Spec) -> list[dict[str, str]]:
    return [dict(environment.variables) for environment in found.environments]


def words(*environments: dict[str, str]) -> list[str]:
    found = labels(compared(threads, env=list(environments)), "3.14")
    return [label.removeprefix("3.14-threads-w2").removeprefix("-") for label in found]


# ---- environment=


def test_one_environment_leaves_the_ids_alone() -> None:
    test = compared(threads, env=MANY, workers=[1, 8])
    assert variables(spec(test)) == [MANY]
    assert labels(test, "3.14") == ["3.14-threads-w1", "3.14-threads-w8"]
    assert variables(spec(compared(threads))) == variables(spec(compared(threads, env=None))) == [{}]


def test_several_environments_multiply_the_cells_of_each_worker_count() -> None:
    test = compared(threads, env=[ONE, MANY], workers=[1, 8])
    assert labels(test, "3.14", "3.14t") == [
        f"{target}-threads-w{workers}-OMP_NUM_THREADS:{threads_of}"
        for workers in (1, 8)
        for threads_of in (1, "workers")
        for target in ("3.14", "3.14t")
    ]


def test_ids_have_the_variables_that_differ_and_characters_that_k_takes() -> None:
    assert words({"A1": "1", "B1": "x"}, {"A1": "1", "B1": "y"}) == ["B1:x", "B1:y"]
    assert words({}, ONE) == ["", "OMP_NUM_THREADS:1"]
    assert words({"A1": "1"}, {"B1": "2"}, {"A1": "1"}) == ["A1:1", "B1:2"]
    assert words({"LD_PRELOAD": "/lib/a b[c]{folder}.so"}, {}) == ["LD_PRELOAD:/lib/a_b_c_folder.so", ""]


def test_programs_get_it_too() -> None:
    native = command("c", ["./c"])
    assert labels(compared(threads, native, env=MANY, workers=[2, 8]), "3.14") == [
        "3.14-threads-w2",
        "c-w2",
        "3.14-threads-w8",
        "c-w8",
    ]
    assert labels(compared(native, env=[ONE, {}]), "3.14") == ["c-OMP_NUM_THREADS:1", "c"]
    server = served(["x", "{port}"], env=MANY, workers=[1, 2])
    assert labels(server, "3.14") == ["3.14-server-w1", "3.14-server-w2"]
    told = served(["x"], env={"PORT": "{port}"})
    check_placeholders(told.__ftgate__, spec(told), [])


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ("OMP_NUM_THREADS=1", "env= takes a dict of strings such as {'OMP_NUM_THREADS': '1'}, or a list"),
        ({"OMP_NUM_THREADS": 1}, "env= takes a dict of strings"),
        ([ONE, "x"], "env= takes a dict of strings"),
        ({"A=B": "1"}, "'A=B' is no variable (letters, digits and _)"),
        ({"A": "\0"}, "or its value has a zero byte"),
        ({"PYTHON_GIL": "1"}, "PYTHON_GIL is a setting of the target, such as 3.14t[gil=on]"),
        ({"PYTHONPATH": "x"}, "PYTHONPATH belongs to the launch: use pytest's `pythonpath` ini"),
        ({"PYTHONHASHSEED": "0"}, "PYTHONHASHSEED differs in each launch"),
        ([{"A1": "a b"}, {"A1": "a_b"}], "two environments would be called 'A1:a_b'"),
    ],
)
def test_wrong_environments(environment: Any, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        spec(compared(threads, env=environment))
    assert "test_a.py:" in str(caught.value)
    assert said in str(caught.value)


def test_a_server_may_have_a_path_of_its_own() -> None:
    assert variables(spec(served(["x", "{port}"], env={"PYTHONPATH": "lib"}))) == [{"PYTHONPATH": "lib"}]


def test_placeholders_are_those_of_commands() -> None:
    for environment, said in (
        ({"A": "{wrokers}"}, "nothing fills in {wrokers} (did you mean 'workers'?)"),
        ([{}, {"A": "{port}"}], "nothing fills in {port}"),
        ({"A": "{seconds}"}, "{seconds} is the length of an iteration of duration=, which is missing"),
    ):
        test = compared(threads, env=environment)
        with pytest.raises(DeclarationError) as caught:
            check_placeholders(test.__ftgate__, spec(test), [])
        assert said in str(caught.value)
    test = compared(threads, env={"A": "{size}{seconds}{folder}{python}"}, duration=1)
    check_placeholders(test.__ftgate__, spec(test), ["size"])
    with pytest.raises(DeclarationError, match="'workers' is an argument of the cell itself"):
        check_arguments(test.__ftgate__, source_of(test), {"workers": False})


# ---- what was measured


def cell_of(found: Spec, **fields: Any) -> Cell:
    executor = found.executors[0]
    return Cell(nodeid="t[x]", target=parse_target("3.14"), executor=executor, workers=2, **fields)


def test_another_environment_is_another_measurement_and_none_orphans_nothing() -> None:
    plain = spec(compared(threads))
    assert measures(cell_of(plain), plain) == ""
    digests = {
        measures(cell_of(plain, environment=Environment(variables=own)), plain)
        for own in ((("A", "1"),), (("A", "2"),))
    }
    assert len(digests) == 2
    assert "" not in digests
    named = Environment(variables=(("A", "1"),), words=("A:1",))  # the id says it, the digest does not
    assert measures(cell_of(plain, environment=named), plain) in digests
    # It is salted: who tried out the secrets of one test has learned nothing of another's.
    other = msgspec.structs.replace(plain, nodeid="b.py::test_other")
    own = Environment(variables=(("A", "1"),))
    assert measures(cell_of(plain, environment=own), plain) != measures(cell_of(other, environment=own), other)
    # Credentials are no part of it: those of CI are others in each job.
    first, second = (spec(compared(threads, packages=[f"own @ https://u:{each}@h/own.whl"])) for each in ("a", "b"))
    assert measures(cell_of(first), first) == measures(cell_of(second), second)
    # What is stored stays valid.
    required = spec(compared(threads, packages=["flask"]))
    assert measures(cell_of(required), required) == "7ee5b89855fc36b2"
    native = spec(compared(command("c", ["./c"])))
    assert measures(cell_of(native), native) == "39ac88a3af3b3c48"


# ---- cores


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: 4)
    monkeypatch.setattr(machine, "worker_cpus", lambda: [0, 2])


@pytest.mark.usefixtures("four_cores")
def test_as_many_workers_as_cores_have_one_id_on_every_machine() -> None:
    assert labels(compared(threads, workers="cores"), "3.14") == ["3.14-threads-wcores"]
    test = compared(threads, workers=[1, "cores"])
    assert labels(test, "3.14") == ["3.14-threads-w1", "3.14-threads-wcores"]
    assert spec(test).workers == (1, 4)
    assert [choice.cores for choice in choices(spec(test), [parse_target("3.14")])] == [False, True]
    server = served(["x", "{port}", "{workers}"], workers="cores")
    assert labels(server, "3.14") == ["3.14-server-wcores"]


@pytest.mark.usefixtures("four_cores")
def test_a_number_that_is_that_of_the_cores_stands_for_it() -> None:
    for workers in ([1, 4, "cores"], ["cores", 1, 4]):
        test = compared(threads, workers=workers)
        assert sorted(labels(test, "3.14")) == ["3.14-threads-w1", "3.14-threads-w4"]
        found = {choice.label: choice.cores for choice in choices(spec(test), [parse_target("3.14")])}
        assert found == {"3.14-threads-w1": False, "3.14-threads-w4": True}


@pytest.mark.usefixtures("four_cores")
def test_cores_that_can_be_pinned_to_count_where_workers_are_pinned() -> None:
    assert spec(compared(threads, workers="cores", pin=True)).workers == (2,)


def test_contracts_are_right_or_wrong_whatever_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (1, 2, 8):
        monkeypatch.setattr(machine, "available_cores", lambda there=there: there)
        test = compared(threads, workers=[1, 2, "cores"])
        for right in ("scaling >= 1.5", "threads[wcores].wall < 3 * threads[w2].wall", "threads[wcores].scaling > 1"):
            assert spec(ftgate.contract(right)(test)).contracts
        only = compared(threads, workers=[1, "cores"])
        assert spec(ftgate.contract("scaling >= 1.5")(only)).contracts
        for wrong, said in (
            ("threads[w8].wall < 1 s", "no cell has 8 workers: there are 1 and cores"),
            ("threads[w2].wall < 1 s", "no cell has 2 workers: there are 1 and cores"),
        ):
            with pytest.raises(DeclarationError, match=said):
                spec(ftgate.contract(wrong)(compared(threads, workers=[1, "cores"])))
    with pytest.raises(DeclarationError, match="no cell has wcores: give the test workers="):
        spec(ftgate.contract("threads[wcores].wall < 1 s")(compared(threads, workers=[1, 2])))


def test_known_failures_name_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (1, 2, 8):
        monkeypatch.setattr(machine, "available_cores", lambda there=there: there)

        def known(workers: Any, counts: Any) -> tuple[int, ...]:
            marked = ftgate.xfail("regressed", reason="x", workers=workers)(compared(threads, workers=counts))
            return spec(marked).xfails[0].workers

        assert known("cores", [1, "cores"]) == (there,)
        assert known([2, "cores"], [1, 2, "cores"]) == (2, there)
        with pytest.raises(DeclarationError, match="workers=8 is no number of workers of the test: it has 1 or cores"):
            known(8, [1, "cores"])


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"workers": "core"}, "workers= takes a whole number from 1, 'cores', or a list of them, not 'core'"),
        ({"workers": {"a": "cores", "b": 1}}, "workers= takes a whole number from 1 for each role"),
        ({"duration": math.inf}, "duration= takes a number of seconds above 0, not inf"),
        ({"iterations": True}, "iterations= takes a whole number from 1, not True"),
        (
            {"packages": {"flask": ""}},
            "packages= takes a list of requirements such as ['flask>=3'], not {'flask': str}",
        ),
        ({"min_cores": 0}, "min_cores= takes a whole number from 1, not 0"),
        ({"pin": "all"}, "pin= takes True or False, not 'all'"),
    ],
)
def test_wrong_cores(declared: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        spec(compared(threads, **declared))
    assert said in str(caught.value)


def test_only_workers_of_ours_are_pinned() -> None:
    kept = compared(serial, threads, interpreters, processes=["fork", "forkserver", "spawn"], pin=True)
    assert spec(kept).pin
    with pytest.raises(DeclarationError, match="c is a program, which starts its workers itself; remove it"):
        spec(compared(threads, command("c", ["./c"]), pin=True))
    of_tasks = compared(threads, tasks, pin=True)
    of_tasks.variant(tasks)(awaited)
    with pytest.raises(DeclarationError, match="tasks share one thread, so none can have a core of its own"):
        spec(of_tasks)

    @ftgate.compare(threads, pin=True)
    def test_pool(executor: Any) -> None: ...

    with pytest.raises(DeclarationError, match="a body that takes `executor` has no workers that wait to be pinned"):
        spec(test_pool)
    with pytest.raises(DeclarationError, match="unknown argument 'pin'"):
        spec(served(["x", "{port}"], pin=True))
    assert spec(served(["x", "{port}"], min_cores=4)).min_cores == 4
