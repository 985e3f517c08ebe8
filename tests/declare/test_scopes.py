"""What setups and teardowns may take, and around which bodies."""

# Type checkers refuse what is refused here.
# mypy: disable-error-code="arg-type, call-arg, list-item, dict-item"

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_ftgate import ftgate, tasks, threads
from pytest_ftgate.declare import tests
from pytest_ftgate.declare.arguments import DeclarationError
from pytest_ftgate.model.spec import Source, Spec

SOURCE = Source(path="/project/test_a.py", line=3, module="test_a", qualname="test_it")


def compared(*executors: Any, **options: Any) -> Any:
    """A test whose body takes `worker`."""

    @ftgate.compare(*executors, **options)
    def test_it(worker: Any, n: int = 0) -> None: ...

    return test_it


def checked(test: Any, *parametrized: str) -> Spec:
    """As collection checks it."""
    spec = tests.spec_of(test.__ftgate__, SOURCE, "test_a.py::test_it")
    tests.check_arguments(test.__ftgate__, SOURCE, dict.fromkeys(parametrized, False))
    return spec


def of_worker(worker: Any) -> None: ...


def of_executor(executor: Any) -> None: ...


def of_launch(state: Any) -> None: ...


async def waits(worker: Any) -> None: ...


def with_n(worker: Any, n: int) -> None: ...


def yields(worker: Any) -> Iterator[None]:
    yield


async def yields_too(worker: Any) -> Any:
    yield


def test_each_is_kept_with_its_scope() -> None:
    test = compared(threads)
    assert test.setup(of_worker) is of_worker
    assert test.setup("worker")(of_worker) is of_worker
    test.teardown("launch")(of_launch)
    test.teardown("iteration")(with_n)
    kept = [("setup", "iteration", of_worker), ("setup", "worker", of_worker)]
    assert test.__ftgate__.setups == [*kept, ("teardown", "launch", of_launch), ("teardown", "iteration", with_n)]
    assert checked(test, "n").one_call


def test_only_a_scope_of_one_iteration_makes_it_one_call() -> None:
    test = compared(threads)
    test.setup("worker")(of_worker)
    test.setup("launch")(of_launch)
    assert not checked(test).one_call
    test.teardown(of_worker)
    assert checked(test).one_call
    windows = compared(threads, duration=1)
    windows.setup(of_worker)
    assert not checked(windows).one_call


def test_a_body_and_its_variant_may_need_two() -> None:
    test = compared(threads, processes=["fork"])
    test.variant(processes=["fork"])(of_executor)
    test.setup(of_worker)
    with pytest.raises(DeclarationError, match=r"of_executor takes `executor`: it needs a @test_it.setup of its own"):
        checked(test)
    test.setup(of_executor)
    checked(test)


def test_async_ones_are_for_async_bodies() -> None:
    test = compared(tasks)
    test.variant(tasks)(waits)
    test.setup(waits)
    checked(test)
    mixed = compared(threads, tasks)
    mixed.variant(tasks)(waits)
    mixed.setup(of_worker)
    checked(mixed)
    mixed.teardown(waits)
    with pytest.raises(DeclarationError, match="waits is a coroutine, but test_it is not and has no event loop"):
        checked(mixed)


@pytest.mark.parametrize(
    ("scope", "function", "message"),
    [
        ("cell", of_worker, r"@test_it\.setup\('cell'\): no such scope; use 'iteration', 'worker' or 'launch'"),
        (None, of_worker, "no such scope"),
        ("iteration", print, r"@test_it\.setup: print is no function"),
        ("iteration", yields, r"yields is @test_it\.setup and has a yield: make what comes after it a teardown"),
        ("iteration", yields_too, "has a yield"),
        ("iteration", of_executor, r"of_executor is @test_it\.setup and takes what the body does: `worker`"),
        ("iteration", of_launch, "takes what the body does: `worker`"),
        ("iteration", lambda n, worker: None, "its first parameter is `worker`"),
        ("iteration", with_n, "fixture 'n' cannot be used"),
        ("worker", of_executor, r"is for bodies that take `worker`: a pool starts its workers by itself"),
        ("launch", of_worker, r"of_worker is @test_it\.setup\('launch'\), where there is no worker"),
        ("launch", lambda: None, "its first parameter is the shared state"),
    ],
)
def test_what_is_refused(scope: Any, function: Callable[..., Any], message: str) -> None:
    test = compared(threads)
    if function is print:
        test.__ftgate__.setups.append(("setup", scope, print))
    else:
        test.setup(scope)(function)
    with pytest.raises(DeclarationError, match=message):
        checked(test)


def test_the_first_parameter_is_none_of_the_tests() -> None:
    test = compared(threads)
    test.setup("launch")(lambda n: None)
    with pytest.raises(DeclarationError, match="its first parameter is the shared state"):
        checked(test, "n")


def test_a_pool_has_no_setup_of_its_workers() -> None:
    @ftgate.compare(threads)
    def test_it(executor: Any) -> None: ...

    test_it.setup("worker")(of_worker)
    with pytest.raises(DeclarationError, match="a pool starts its workers by itself; give it an initializer"):
        checked(test_it)


def test_a_server_has_none() -> None:
    words = ["server", "{port}"]

    @ftgate.serve(words, ready="http://127.0.0.1:{port}/", load=None)
    def test_it(server: Any) -> None: ...

    test_it.setup(of_worker)  # type: ignore[attr-defined]
    with pytest.raises(DeclarationError, match=r"@test_it\.setup is for @ftgate\.compare; a server is a program"):
        checked(test_it)
