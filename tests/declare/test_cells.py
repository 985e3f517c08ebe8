"""The environment of a cell: what a test may say of it, the cells that it makes, and their ids."""

from __future__ import annotations

from typing import Any

import pytest
from test_declarations import compared, labels, served, source_of, spec

from pytest_ftgate import command, threads
from pytest_ftgate.declare.declaration import check_arguments, check_placeholders
from pytest_ftgate.declare.reader import DeclarationError
from pytest_ftgate.measure.cell_run import measures
from pytest_ftgate.model import Cell, Environment, Spec
from pytest_ftgate.model.targets import parse_target

ONE, MANY = {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "{workers}"}


def variables(found: Spec) -> list[dict[str, str]]:
    return [dict(environment.variables) for environment in found.environments]


def words(*environments: dict[str, str]) -> list[str]:
    found = labels(compared(threads, environment=list(environments)), "3.14")
    return [label.removeprefix("3.14-threads-w2").removeprefix("-") for label in found]


# ---- environment=


def test_one_environment_leaves_the_ids_alone() -> None:
    test = compared(threads, environment=MANY, workers=[1, 8])
    assert variables(spec(test)) == [MANY]
    assert labels(test, "3.14") == ["3.14-threads-w1", "3.14-threads-w8"]
    assert variables(spec(compared(threads))) == variables(spec(compared(threads, environment=None))) == [{}]


def test_several_environments_multiply_the_cells_of_each_worker_count() -> None:
    test = compared(threads, environment=[ONE, MANY], workers=[1, 8])
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
    assert labels(compared(threads, native, environment=MANY, workers=[2, 8]), "3.14") == [
        "3.14-threads-w2",
        "c-w2",
        "3.14-threads-w8",
        "c-w8",
    ]
    assert labels(compared(native, environment=[ONE, {}]), "3.14") == ["c-OMP_NUM_THREADS:1", "c"]
    server = served(["x", "{port}"], environment=MANY, workers=[1, 2])
    assert labels(server, "3.14") == ["3.14-server-w1", "3.14-server-w2"]
    told = served(["x"], environment={"PORT": "{port}"})
    check_placeholders(told.__ftgate__, spec(told), [])


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ("OMP_NUM_THREADS=1", "environment= takes a dict of strings such as {'OMP_NUM_THREADS': '1'}, or a list"),
        ({"OMP_NUM_THREADS": 1}, "environment= takes a dict of strings"),
        ([ONE, "x"], "environment= takes a dict of strings"),
        ({"A=B": "1"}, "'A=B' and '1' are not a variable and its value"),
        ({"AB": "\0"}, "are not a variable and its value"),
        ({"PYTHON_GIL": "1"}, "PYTHON_GIL is a setting of the target, such as 3.14t[gil=on]"),
        ({"PYTHONPATH": "x"}, "PYTHONPATH belongs to the launch: use pytest's `pythonpath` ini"),
        ({"PYTHONHASHSEED": "0"}, "PYTHONHASHSEED differs in each launch"),
        ([{"A1": "a b"}, {"A1": "a_b"}], "two environments would be called 'A1:a_b'"),
    ],
)
def test_wrong_environments(environment: Any, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        spec(compared(threads, environment=environment))
    assert "test_a.py:" in str(caught.value)
    assert said in str(caught.value)


def test_a_server_may_have_a_path_of_its_own() -> None:
    assert variables(spec(served(["x", "{port}"], environment={"PYTHONPATH": "lib"}))) == [{"PYTHONPATH": "lib"}]


def test_placeholders_are_those_of_commands() -> None:
    for environment, said in (
        ({"AB": "{wrokers}"}, "nothing fills in {wrokers} (did you mean 'workers'?)"),
        ([{}, {"AB": "{port}"}], "nothing fills in {port}"),
        ({"AB": "{seconds}"}, "{seconds} is the length of an iteration of duration=, which is missing"),
    ):
        test = compared(threads, environment=environment)
        with pytest.raises(DeclarationError) as caught:
            check_placeholders(test.__ftgate__, spec(test), [])
        assert said in str(caught.value)
    test = compared(threads, environment={"AB": "{size}{seconds}{folder}{python}"}, duration=1)
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
    # As it was before tests had an environment: what is stored of programs and requirements stays valid.
    required = spec(compared(threads, requires=["flask"]))
    assert measures(cell_of(required), required) == "3306388ddefc4862"
    native = spec(compared(command("c", ["./c"])))
    assert measures(cell_of(native), native) == "63fd1e565a76d85e"
