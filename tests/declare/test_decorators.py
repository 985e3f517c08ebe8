"""Decorator arguments -> Spec."""

# Type checkers refuse what is refused here.
# mypy: disable-error-code="arg-type, call-arg, list-item, dict-item"

from __future__ import annotations

import inspect
import json as stdlib_json
import re
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, IntEnum
from functools import partial
from typing import Any

import pytest
from example import Example, assert_collection_error

from pytest_ftgate import command, executor, ftgate, interpreters, processes, serial, tasks, threads
from pytest_ftgate.declare import tests
from pytest_ftgate.declare.arguments import DeclarationError
from pytest_ftgate.declare.tests import param_of, spec_of
from pytest_ftgate.kit.values import Metric, Threshold
from pytest_ftgate.model.spec import DeclaredContract, Executor, Source, Spec, Xfail
from pytest_ftgate.model.verdict import Decision
from pytest_ftgate.runner import loading
from pytest_ftgate.runner.api import Declaration
from pytest_ftgate.runner.tokens import MethodsToken

SOURCE = Source(path="/project/test_a.py", line=3, module="test_a", qualname="test_it")


def body(worker: Any) -> Any:
    return worker


async def coroutine(worker: Any) -> Any:
    return worker


def pooled(executor: Any) -> Any:
    return executor


def declared(*args: Any, function: Callable[..., Any] = body, **kwargs: Any) -> Declaration:
    methods = [MethodsToken(kwargs.pop("processes"))] if "processes" in kwargs else []
    return Declaration(function, (*args, *methods), kwargs)


def spec(*args: Any, function: Callable[..., Any] = body, **kwargs: Any) -> Spec:
    return spec_of(declared(*args, function=function, **kwargs), SOURCE, "test_a.py::test_it")


def test_defaults() -> None:
    assert spec(threads) == Spec(
        nodeid="test_a.py::test_it",
        source=SOURCE,
        body="worker",
        executors=(Executor(kind="threads"),),
        workers=(2,),
        reuse="pool",
    )
    assert spec(threads, reuse="fresh").reuse == "fresh"


def test_executors_keep_their_order_and_come_once() -> None:
    found = spec(tasks, threads, serial, threads, processes=["spawn", "fork"], function=coroutine).executors
    assert [executor.label for executor in found] == ["tasks", "threads", "serial", "spawn", "fork"]


def test_start_methods_are_one_or_a_list_alone_or_beside_others() -> None:
    fork = (Executor(kind="processes", method="fork"),)
    assert spec(processes="fork").executors == spec(processes=["fork"]).executors == fork
    assert spec(threads, processes=("fork",)).executors == (Executor(kind="threads"), *fork)
    # Plain `processes` is the target's default, whichever that is.
    assert [each.label for each in spec(processes).executors] == ["processes"]
    assert [each.method for each in spec(processes, processes=["fork"]).executors] == [None, "fork"]
    assert repr(MethodsToken(["fork", "spawn"])) == "processes=['fork', 'spawn']"


def test_values() -> None:
    found = spec(
        interpreters,
        function=pooled,
        workers=[1, 8, 1],
        reuse="pool",
        pythons=("3.14", "3.14t", "3.14"),
        iterations=20,
        warmup=0,
        timeout=1.5,
    )
    assert (found.body, found.workers, found.reuse, found.pythons) == ("executor", (1, 8), "pool", ("3.14", "3.14t"))
    assert (found.iterations, found.warmup, found.timeout_s, found.duration_s) == (20, 0, 1.5, None)


def test_a_duration_keeps_its_workers_and_warms_up_in_windows() -> None:
    found = spec(threads, duration=2, warmup=3)
    assert (found.duration_s, found.reuse, found.warmup) == (2.0, "pool", 3)
    with pytest.raises(DeclarationError, match="warmup= takes a whole number from 1"):
        spec(threads, duration=2, warmup=0)
    with pytest.raises(DeclarationError, match="warmup= takes a whole number from 0"):
        spec(threads, warmup=0.5)


def test_an_error_names_its_place() -> None:
    line = body.__code__.co_firstlineno
    with pytest.raises(DeclarationError) as caught:
        spec(serial, wokers=2)
    assert str(caught.value).startswith(
        f"/project/test_a.py:{line}: @ftgate.compare of test_it: unknown argument 'wokers'"
    )
    assert "(did you mean 'workers'?)" in str(caught.value)


def test_the_fitting_variant_decides_on_a_cell_s_body() -> None:
    made = declared(threads, tasks, processes=["fork", "spawn"])
    made.add_variant(tasks)(coroutine)
    made.add_variant(processes=["spawn"])(pooled)
    found = spec_of(made, SOURCE, "n")
    kinds = {executor.label: tests.body_kind(made, executor) for executor in found.executors}
    assert kinds == {"threads": "worker", "fork": "worker", "spawn": "executor", "tasks": "worker"}
    assert made.body_for("tasks", None) is coroutine
    assert made.body_for("processes", "fork") is body


def test_the_decorator_gives_the_function_back() -> None:
    decorated = ftgate.compare(threads, workers=3)(body)
    try:
        assert decorated is body
        assert decorated(5) == 5
        found = tests.declaration_of(body)
        assert found is decorated.__ftgate__
        assert found.kwargs == {"workers": 3}
        assert tests.declaration_of(pooled) is None
    finally:
        for name in ("__ftgate__", "shared", "check", "variant"):
            delattr(body, name)


PLAIN: list[Any] = [
    0,
    -1.5,
    1e300,
    True,
    None,
    "it's",
    b"\x00",
    2j,
    (1,),
    [1, [2]],
    {"a": {1, 2}},
    "\ud800",
    -0.0,
    set(),
    10**400,
    10**5000,
    {-(10**5000): [(10**5000,), {10**5000}, "x"]},
]


@pytest.mark.parametrize("value", PLAIN, ids=[str(number) for number in range(len(PLAIN))])
def test_plain_parameters_are_sent_as_literals(value: Any) -> None:
    found = param_of(declared(threads, function=_with("n")), SOURCE, "n", value)
    namespace: dict[str, Any] = {}
    exec(f"back = {found.literal}", namespace)
    assert (type(namespace["back"]), namespace["back"]) == (type(value), value)


class Color(Enum):
    RED = 1


class Named:
    class Inner: ...

    @classmethod
    def make(cls) -> Named:
        return cls()

    def method(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (dict, "builtins:dict"),
        (len, "builtins:len"),
        (OrderedDict, "collections:OrderedDict"),
        (str.upper, "builtins:str.upper"),
        (dict.fromkeys, "builtins:dict.fromkeys"),
        (Named.Inner, f"{__name__}:Named.Inner"),
        (Named.make, f"{__name__}:Named.make"),
        (Named.method, f"{__name__}:Named.method"),
        (stdlib_json, "json:"),
    ],
)
def test_what_can_be_imported_is_sent_by_its_name(value: Any, name: str) -> None:
    found = param_of(declared(threads, function=_with("n")), SOURCE, "n", value)
    assert found.literal == name
    assert loading.literals({"n": found.literal}) == {"n": value}


def test_a_text_that_looks_like_a_name_stays_a_text() -> None:
    found = param_of(declared(threads, function=_with("n")), SOURCE, "n", "json:loads")
    assert loading.literals({"n": found.literal}) == {"n": "json:loads"}


def _local() -> Any:
    class Local: ...

    return Local


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (lambda: 1, "a lambda has no name: define a function in a module and pass that"),
        (_local(), "_local.<locals>.Local is local to a function: define it in a module"),
        (Named().method, "and make the object in the body"),
        (partial(len), "and make the object in the body"),
    ],
)
def test_what_cannot_be_imported_is_refused_with_a_fix(value: Any, fix: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(fix)) as refused:
        param_of(declared(threads, function=_with("n")), SOURCE, "n", value)
    assert str(refused.value).startswith(f"{SOURCE.path}:1: ")


class Huge(IntEnum):
    ONE = 10**5000


class Liar:
    def __repr__(self) -> str:
        return "1"


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), object(), [len], Liar(), {"x": float("nan")}, frozenset({1}), range(3), Color.RED],
)
def test_other_parameters_cannot_be_sent(value: Any) -> None:
    with pytest.raises(
        DeclarationError, match=r"parameter n=.* cannot be sent to another interpreter; parametrize with"
    ):
        param_of(declared(threads, function=_with("n")), SOURCE, "n", value)


def test_a_parameter_whose_repr_has_too_many_digits_cannot_be_sent() -> None:
    with pytest.raises(DeclarationError, match=r"parameter n=<.*Huge object.* cannot be sent to another interpreter"):
        param_of(declared(threads, function=_with("n")), SOURCE, "n", Huge.ONE)


def _with(name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(f"def test_it(worker, {name}): ...", namespace)
    return namespace["test_it"]  # type: ignore[no-any-return]


def test_arguments_of_bodies() -> None:
    def method(self: Any, worker: Any, n: int, left: int = 3, *rest: Any, **more: Any) -> None: ...

    tests.check_arguments(Declaration(method, (), {}), _method_source(), {"n": False})
    with pytest.raises(DeclarationError, match="fixture 'n' cannot be used"):
        tests.check_arguments(Declaration(method, (), {}), _method_source(), {})
    with pytest.raises(DeclarationError, match="the indirect parameter 'n' cannot be used"):
        tests.check_arguments(Declaration(method, (), {}), _method_source(), {"n": True})


def _method_source() -> Source:
    return Source(path="test_a.py", line=3, module="test_a", qualname="TestIt.test_it")


# -- contracts and thresholds --------------------------------------------------------------------------------------


def line_of(function: Callable[..., Any], text: str) -> int:
    """The line of this file in which `text` stands within a function's source."""
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def spec_with_notes(function: Any) -> Spec:
    found = tests.declaration_of(function)
    assert found is not None
    return spec_of(found, SOURCE, "test_a.py::test_it")


@ftgate.contract("threads.wall < 0.8 * processes[spawn].wall", scaling=">= 1.6")
@ftgate.limit("wall", margin="3%", effect=0.08)
@ftgate.compare(threads, processes=["spawn"], workers=[1, 8])
@ftgate.limit("uss", floor="1MiB")
@ftgate.contract(gil="off")
@ftgate.contract(
    "wall < 20 ms",
    "threads.wall < 0.8 * processes[spawn].wall",
)
def noted(worker: Any) -> Any:
    return worker


def test_contracts_and_thresholds_above_and_below_compare() -> None:
    first = line_of(noted, '@ftgate.contract("threads.wall')
    found = spec_with_notes(noted)
    assert found.contracts == (
        DeclaredContract(text="threads.wall < 0.8 * processes[spawn].wall", line=first),
        DeclaredContract(text="scaling >= 1.6", line=first),
        DeclaredContract(text="gil == off", line=first + 4),
        DeclaredContract(text="wall < 20 ms", line=first + 5),
    )
    assert found.thresholds == (
        Threshold(metric=Metric.WALL, margin=0.03, effect=0.08),
        Threshold(metric=Metric.USS, floor=2.0**20),
    )


def test_the_notes_leave_the_function_as_it_is() -> None:
    def plain(worker: Any) -> Any:
        return worker

    assert ftgate.contract("wall < 1 s")(plain) is plain
    assert ftgate.limit("wall", margin=0.1)(plain) is plain
    assert ftgate.compare(threads)(plain) is plain
    assert ftgate.contract("wall < 2 s")(plain) is plain
    found = tests.declaration_of(plain)
    assert found is not None
    assert found.body is plain
    assert [note.decorator for note in tests.notes_of(plain)] == ["contract", "limit", "contract"]
    assert plain(5) == 5
    assert tests.notes_of(body) == tests.notes_of(3) == ()


def refused(function: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        spec_with_notes(function)
    return str(caught.value)


def test_known_failures() -> None:
    native = command("native", ["./native"])

    @ftgate.xfail("broken", native, processes=["fork"], reason=" one lock\n for all ", workers=[1, 8])
    @ftgate.xfail("regressed", processes, reason="issue 7", strict=False, pythons="3.14t", cells="*-w8")
    @ftgate.contract("wall < 1 s")
    @ftgate.compare(threads, native, processes=["fork", "spawn"], workers=[1, 8])
    def known(worker: Any) -> None: ...

    line = line_of(known, '@ftgate.xfail("broken"')
    found = spec_with_notes(known)
    labels = {executor.label: executor for executor in found.executors}
    assert found.xfails == (
        Xfail(
            decision=Decision.BROKEN,
            reason="one lock for all",
            executors=(labels["native"], labels["fork"]),
            workers=(1, 8),
            line=line,
        ),
        Xfail(
            decision=Decision.REGRESSED,
            reason="issue 7",
            strict=False,
            executors=(labels["fork"], labels["spawn"]),
            pythons=("3.14t",),
            cells=("*-w8",),
            line=line + 1,
        ),
    )


def test_a_known_failure_of_an_executor_of_the_users_own() -> None:
    def marked(token: Any) -> Any:
        def pool(executor: Any) -> None: ...

        compared = ftgate.compare(executor("loky", list), executor("dask", list))(pool)
        return ftgate.xfail("regressed", token, reason="issue 7")(compared)

    (known,) = spec_with_notes(marked(executor("loky", list))).xfails
    assert [each.label for each in known.executors] == ["loky"]
    assert "tasks is not among the executors of the test" in refused(marked(tasks))


def test_a_bad_expression_points_at_its_column() -> None:
    @ftgate.contract("wall < 1 s")
    @ftgate.contract("wall < 1 s", " threads.wal\n  < 2 s")
    @ftgate.compare(threads)
    def wrong(worker: Any) -> None: ...

    said = refused(wrong).split("\n")
    line = line_of(wrong, "threads.wal")
    assert said[0].startswith(
        f"/project/test_a.py:{line}: @ftgate.contract of test_it: 'wal' is not a metric (did you mean 'wall'?)"
    )
    assert said[1:] == ["  threads.wal < 2 s", "          ^"]


def test_a_contract_about_a_cell_that_is_not_there() -> None:
    @ftgate.compare(threads)
    @ftgate.contract(wall="< serial.wall")
    def wrong(worker: Any) -> None: ...

    said = refused(wrong).split("\n")
    assert said[0].endswith("the test does not run under serial: it has threads")
    assert said[1:] == ["  wall < serial.wall", "         ^"]


def decorated(decorator: Any) -> Any:
    def function(worker: Any) -> None: ...

    return ftgate.compare(threads)(decorator(function))


@pytest.mark.parametrize(
    ("decorator", "problem"),
    [
        (ftgate.contract(scaling=1.6), "it takes texts such as 'threads.wall < 20 ms' or scaling='>= 1.6', not 1.6"),
        (ftgate.contract(" "), "it takes texts such as"),
        (ftgate.contract(None), "it takes texts such as"),
        (ftgate.contract(), "it requires nothing; for example @ftgate.contract(scaling='>= 1.6')"),
        (ftgate.contract, "it needs parentheses and arguments: @ftgate.contract(scaling='>= 1.6')"),
        (ftgate.contract(scalng=">= 1.6"), "'scalng' is not a metric (did you mean 'scaling'?)"),
        (ftgate.contract(scaling=">= 1.6"), "scaling compares with the same cell with one worker"),
        (ftgate.limit, "it needs parentheses and arguments: @ftgate.limit('wall', margin='3%')"),
        (
            ftgate.limit("wal", margin=0.1),
            "'wal' is not a metric that gates (did you mean 'wall'?); wall, tail, start, uss, growth, lock_wait and",
        ),
        (ftgate.limit(["wall"], margin=0.1), "['wall'] is not a metric that gates"),
        (ftgate.limit("latency_p99"), "the cells of this test have no latency_p99: it is of the answers of a server"),
        (ftgate.limit("wall", margin="much"), "margin of wall takes a share such as 5% or 0.05, not 'much'"),
        (ftgate.limit("wall", margin=3), "margin of wall takes a share such as 3% or 0.03, not 3, which is 300 %"),
        (ftgate.limit("wall", margin=True), "margin of wall takes a share such as 5% or 0.05, not True"),
        (ftgate.limit("wall", floor="3"), "floor of wall takes a time with its unit such as 1ms"),
        (ftgate.limit("uss", margin=0.2, effect=0.1), "effect 10 % is not above margin 20 %"),
        (ftgate.xfail, "it needs parentheses and arguments: @ftgate.xfail('broken', threads, reason="),
        (ftgate.xfail("slow", reason="x"), "it takes regressed or broken, not 'slow'"),
        (ftgate.xfail("regressed"), "it needs a reason, such as an issue"),
        (ftgate.xfail("regressed", reason=" "), "it needs a reason, such as an issue"),
        (ftgate.xfail("broken", reason="x"), "the test has no contract that could be broken: add @ftgate.contract("),
        (ftgate.xfail("regressed", reason="x", strict="no"), "strict= takes True or False, not 'no'"),
        (ftgate.xfail("regressed", "threads", reason="x"), "'threads' is not an executor"),
        (ftgate.xfail("regressed", processes, reason="x"), "processes is not among the executors of the test"),
        (ftgate.xfail("regressed", reason="x", workers=8), "workers=8 is no number of workers of the test: it has 2"),
        (
            ftgate.xfail("regressed", reason="x", workers="2"),
            "workers= takes whole numbers or 'cores', one or a list of them",
        ),
        (ftgate.xfail("regressed", reason="x", pythons=[3.14]), "pythons= takes texts such as '3.14t', one or a list"),
        (ftgate.xfail("regressed", reason="x", cells=[]), "cells= takes texts such as '3.14t', one or a list"),
    ],
)
def test_notes_that_say_nothing_of_use(decorator: Any, problem: str) -> None:
    said = refused(decorated(decorator))
    assert problem in said
    name = getattr(decorator, "decorator", None) or decorator.__name__
    assert f": @ftgate.{name} of test_it: " in said


def test_two_gates_of_one_metric() -> None:
    @ftgate.limit("tail", margin=0.1)
    @ftgate.compare(threads)
    @ftgate.limit("tail", effect=0.9)
    def twice(worker: Any) -> None: ...

    first = line_of(twice, "margin=0.1")
    assert refused(twice) == (
        f"/project/test_a.py:{first + 2}: @ftgate.limit of test_it: tail has a limit in line {first} already; "
        "merge the two"
    )


def test_notes_on_a_variant() -> None:
    @ftgate.compare(threads, serial)
    def test_it(worker: Any) -> None: ...

    @test_it.variant(serial)
    @ftgate.contract("wall < 1 s")
    def alone(worker: Any) -> None: ...

    assert "@ftgate.contract of test_it: it is on the variant alone; put it on the test itself" in refused(test_it)


def test_notes_without_a_comparison() -> None:
    @ftgate.contract("wall < 1 s")
    def lost(worker: Any) -> None: ...

    line = line_of(lost, "@ftgate.contract")
    with pytest.raises(DeclarationError) as caught:
        tests.check_notes(lost, "test_a.py")
    assert str(caught.value).startswith(f"test_a.py:{line}: @ftgate.contract of test_notes_without_a_comparison.")
    assert "it has no cells; add @ftgate.compare(" in str(caught.value)
    tests.check_notes(noted, "test_a.py")
    tests.check_notes(body, "test_a.py")


def test_notes_on_a_class() -> None:
    @ftgate.contract("wall < 1 s")
    class TestIt: ...

    with pytest.raises(
        DeclarationError, match=r"@ftgate.contract of .*TestIt: it is a class; decorate its test methods"
    ):
        tests.check_class(TestIt)


def test_a_bad_contract_is_a_collection_error(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.compare(threads, workers=2)
        @ftgate.contract("threads.wall < 64 MiB")
        def test_it(worker): ...
    """
    result = Example(pytester, {"test_a.py": source}).run_pytest()
    assert_collection_error(
        result,
        "test_a.py:3: @ftgate.contract of test_it: expected a time; this is a size",
        "  threads.wall < 64 MiB",
        "                 ^",
    )


def test_contracts_let_a_test_run_here(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.contract("threads.wall < 1 ms", gil="off")
        @ftgate.compare(threads, workers=2)
        @ftgate.limit("wall", margin="3%")
        def test_it(worker):
            assert test_it.__ftgate_notes__
    """
    Example(pytester, {"test_a.py": source}).run_pytest("--ftgate-python=3.14").assert_outcomes(passed=1)
