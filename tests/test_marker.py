"""Decorator arguments -> Spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_ftgate import ftgate, interpreters, marker, processes, serial, tasks, threads
from pytest_ftgate.marker import DeclarationError, default_method, param_of, spec_of
from pytest_ftgate.model import Executor, Source, Spec
from pytest_ftgate.runner.api import Declaration

SOURCE = Source(path="/project/test_a.py", line=3, module="test_a", qualname="test_it")


def body(worker: Any) -> Any:
    return worker


async def coroutine(worker: Any) -> Any:
    return worker


def pooled(executor: Any) -> Any:
    return executor


def declared(*args: Any, function: Callable[..., Any] = body, **kwargs: Any) -> Declaration:
    return Declaration(function, args, kwargs)


def spec(*args: Any, function: Callable[..., Any] = body, **kwargs: Any) -> Spec:
    return spec_of(declared(*args, function=function, **kwargs), SOURCE, "test_a.py::test_it")


def test_defaults() -> None:
    assert spec(threads) == Spec(
        nodeid="test_a.py::test_it",
        source=SOURCE,
        body="worker",
        executors=(Executor(kind="threads"),),
        workers=(2,),
        reuse="fresh",
    )


def test_positional_and_keyword_executors_keep_their_order_and_come_once() -> None:
    found = spec(
        tasks, processes("spawn", "fork"), threads, function=coroutine, processes=["fork"], serial=True
    ).executors
    assert [executor.label for executor in found] == ["tasks", "spawn", "fork", "threads", "serial"]
    assert spec(processes=True).executors == spec(processes).executors == spec(processes=default_method()).executors
    assert spec(threads, serial=False, interpreters=None).executors == (Executor(kind="threads"),)
    assert repr(processes("fork", "spawn")) == "processes('fork', 'spawn')"


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


def test_a_duration_keeps_its_workers_and_counts_warmup_in_seconds() -> None:
    found = spec(threads, duration=2, warmup=0.5)
    assert (found.duration_s, found.reuse, found.warmup) == (2.0, "pool", 0.5)
    with pytest.raises(DeclarationError, match="warmup= takes a number of seconds from 0"):
        spec(threads, duration=2, warmup=-0.5)
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
    made = declared(threads, processes("fork", "spawn"), tasks)
    made.add_variant(tasks)(coroutine)
    made.add_variant(processes("spawn"))(pooled)
    found = spec_of(made, SOURCE, "n")
    kinds = {executor.label: marker.body_kind(made, executor) for executor in found.executors}
    assert kinds == {"threads": "worker", "fork": "worker", "spawn": "executor", "tasks": "worker"}
    assert made.body_for("tasks", None) is coroutine
    assert made.body_for("processes", "fork") is body


def test_the_decorator_gives_the_function_back() -> None:
    decorated = ftgate.compare(threads, workers=3)(body)
    try:
        assert decorated is body
        assert decorated(5) == 5
        found = marker.declaration_of(body)
        assert found is decorated.__ftgate__
        assert found.kwargs == {"workers": 3}
        assert marker.declaration_of(pooled) is None
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
]


@pytest.mark.parametrize("value", PLAIN, ids=[str(number) for number in range(len(PLAIN))])
def test_plain_parameters_are_sent_as_literals(value: Any) -> None:
    found = param_of(declared(threads, function=_with("n")), SOURCE, "n", value)
    namespace: dict[str, Any] = {}
    exec(f"back = {found.literal}", namespace)
    assert (type(namespace["back"]), namespace["back"]) == (type(value), value)


class Liar:
    def __repr__(self) -> str:
        return "1"


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), object(), len, int, [object()], Liar(), {"x": float("nan")}, frozenset({1}), range(3)],
)
def test_other_parameters_cannot_be_sent(value: Any) -> None:
    with pytest.raises(
        DeclarationError, match=r"parameter n=.* cannot be sent to another interpreter; parametrize with"
    ):
        param_of(declared(threads, function=_with("n")), SOURCE, "n", value)


def _with(name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(f"def test_it(worker, {name}): ...", namespace)
    return namespace["test_it"]  # type: ignore[no-any-return]


def test_arguments_of_bodies() -> None:
    def method(self: Any, worker: Any, n: int, left: int = 3, *rest: Any, **more: Any) -> None: ...

    marker.check_arguments(Declaration(method, (), {}), _method_source(), {"n": False})
    with pytest.raises(DeclarationError, match="fixture 'n' cannot travel"):
        marker.check_arguments(Declaration(method, (), {}), _method_source(), {})
    with pytest.raises(DeclarationError, match="the indirect parameter 'n' cannot travel"):
        marker.check_arguments(Declaration(method, (), {}), _method_source(), {"n": True})


def _method_source() -> Source:
    return Source(path="test_a.py", line=3, module="test_a", qualname="TestIt.test_it")
