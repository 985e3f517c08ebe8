"""What a body gives: to counters, timers and peaks, to @test.check, to the comparison of results, to an assert."""

from __future__ import annotations

import math
import re
import sys
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from bench import FORK, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench

from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.explain import DETAIL, REASON, detail, headline
from pytest_ftgate.runner.orders import Order
from pytest_ftgate.runner.protocol import CHECK, MEASURED, WARMUP, Failure, explain
from pytest_ftgate.runner.results import canonical, digest
from pytest_ftgate.runner.worker import Worker, close_report


class Level(IntEnum):
    HIGH = 3


class Name(StrEnum):
    OPS = "ops"


def reported(worker: Worker) -> dict[str, Any]:
    report: dict[str, Any] = {"error": None}
    return close_report(report, worker, Order(1), None, False)


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        (3, 3),
        (2.5, 2.5),
        (True, 1),
        (Level.HIGH, 3),
        (Decimal("1.5"), 1.5),
        (Fraction(1, 4), 0.25),
        (np.int8(100), 100),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.bool_(True), 1),
        (np.array(7), 7),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_whatever_has_a_finite_number_is_counted(given: Any, counted: float) -> None:
    worker = Worker(0, 1, None)
    for _ in range(3):
        worker.count("n", given)
        worker.timed("t").add(given)
        worker.peak("p", given)
    worker.count("n")
    report = reported(worker)
    assert report["error"] is None
    assert report["counters"] == {"n": 3 * counted + 1}
    assert type(report["counters"]["n"]) in (int, float)
    assert report["timers"] == {"t": (3, 3 * round(counted), round(counted))}
    assert {type(number) for number in report["timers"]["t"]} == {int}
    assert report["peaks"] == {"p": counted}
    assert type(report["peaks"]["p"]) is float


NAMELESS = (None, "3", b"3", [3], 1j, np.array([1, 2]), int, Decimal("sNaN"))


@pytest.mark.parametrize("given", NAMELESS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("method", ["count", "add", "peak"])
def test_what_is_no_number_is_refused_at_the_call(method: str, given: Any) -> None:
    worker = Worker(0, 1, None)
    worker.count("depth", 1)
    worker.peak("depth", 1)
    calls: dict[str, Any] = {"count": worker.count, "peak": worker.peak, "add": worker.timed("depth").add}
    with pytest.raises(TypeError) as refused:
        calls[method](*(("depth",) if method != "add" else ()), given)
    said = str(refused.value)
    assert re.match(r"test_given_values\.py:\d+: worker\.", said)
    assert "'depth'" in said
    assert f"a number, not a {type(given).__name__}" in said.replace("numpy.", "").replace("decimal.", "")
    assert reported(worker)["counters"] == {"depth": 1}


@pytest.mark.parametrize("given", [math.nan, math.inf, np.float64("-inf"), Decimal("inf")])
def test_what_is_not_finite_is_refused(given: Any) -> None:
    worker = Worker(0, 1, None)
    for call in (worker.count, worker.peak, lambda name, value: worker.timed(name).add(value)):
        with pytest.raises(ValueError, match=r"test_given_values\.py:\d+: worker\..*'x'.*takes finite numbers, not"):
            cast(Any, call)("x", given)
    assert reported(worker) == {**reported(worker), "error": None, "counters": {}, "timers": {}, "peaks": {}}


def test_a_number_that_is_not_finite_after_others_is_found_when_the_iteration_ends() -> None:
    worker = Worker(0, 1, None)
    worker.count("x", 1.0)
    worker.count("x", math.nan)
    assert reported(worker)["error"] == ("the counter 'x' is nan", "worker.count takes finite numbers.")
    with pytest.raises(ValueError, match="takes finite numbers"):
        worker.count("y", 10**400)
    worker = Worker(0, 1, None)
    worker.count("x", 1)
    worker.count("x", 10**5000)
    assert reported(worker)["error"] == ("the counter 'x' is beyond 1e308", "worker.count takes finite numbers.")


@pytest.mark.parametrize("name", [3, None, ("a", 1), b"x"])
def test_a_name_is_text(name: Any) -> None:
    worker = Worker(0, 1, None)
    for call in (worker.count, worker.timed, lambda each: worker.peak(each, 1)):
        with pytest.raises(TypeError, match=r"test_given_values\.py:\d+: worker\..*takes a name first, not a "):
            cast(Any, call)(name)
    worker.count(Name.OPS)
    assert [type(name) for name in reported(worker)["counters"]] == [str]


def test_a_name_has_an_end() -> None:
    """One of 5 MB was 45 MB of a report."""
    worker = Worker(0, 1, None)
    for call in (worker.count, worker.timed, lambda each: worker.peak(each, 1)):
        with pytest.raises(ValueError, match=r"\('x{20}\.\.\.'\) takes names of up to 200 characters$"):
            cast(Any, call)("x" * 201)
    worker.count("x" * 200)


def test_a_counter_of_an_earlier_iteration_starts_at_zero() -> None:
    worker = Worker(0, 1, None)
    worker.count("x", 5)
    worker.forget()
    assert reported(worker)["counters"] == {"x": 0}
    worker.count("x", 1.5)
    worker.count("x", 2)
    assert reported(worker)["counters"] == {"x": 3.5}


# -- on real interpreters ------------------------------------------------------------------------------------------

ALL = (SERIAL, THREADS, FORK, SPAWN, INTERPRETERS, TASKS)


@pytest.mark.parametrize("executor", [THREADS, FORK, INTERPRETERS], ids=lambda executor: executor.label)
def test_a_launch_counts_whatever_is_a_number_and_names_the_line_of_what_is_not(
    bench: Bench, executor: Executor
) -> None:
    path = bench.write("""
        from decimal import Decimal

        @ftgate.compare(threads)
        def test_it(worker):
            worker.count("n", Decimal("1.5"))
            worker.timed("t").add(1.5)

        @ftgate.compare(threads)
        def test_bad(worker):
            worker.count("n", "three")
    """)
    handle = bench.ready(executor)
    handle.iteration(MEASURED)
    done = handle.finish()
    assert done.counters == {"n": 3.0}
    assert (done.timers["t"].count, done.timers["t"].total_ns) == (2, 4)
    handle = bench.ready(executor, test="test_bad")
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(WARMUP)
    line = path.read_text().splitlines().index('    worker.count("n", "three")') + 1
    assert f"test_workload.py:{line}: worker.count('n') takes a number, not a str" in failed.value.error.reason
    assert 'worker.count("n", "three")' in failed.value.error.detail.splitlines()[-3]
    assert "runner" not in failed.value.error.detail


@pytest.mark.parametrize("executor", ALL, ids=lambda executor: executor.label)
def test_check_gets_what_the_body_returned(bench: Bench, executor: Executor) -> None:
    bench.write("""
        from array import array
        from decimal import Decimal

        class Own:
            made = []
            def __init__(self):
                self.made.append(self)

        @ftgate.compare(threads)
        def test_it(worker):
            return array("d", [1.5, 2]), Decimal("0.1"), bytearray(b"x"), Own()

        @test_it.variant(tasks)
        async def as_task(worker):
            return array("d", [1.5, 2]), Decimal("0.1"), bytearray(b"x"), Own()

        @test_it.check
        def check(results):
            for numbers, decimal, text, own in results:
                assert isinstance(numbers, array) and numbers == array("d", [1.5, 2])
                assert decimal == Decimal("0.1") and type(text) is bytearray
                assert not Own.made or any(own is each for each in Own.made)
            if Own.made:
                assert len(Own.made) == 2
    """)
    handle = bench.ready(executor)
    handle.iteration(CHECK)
    handle.iteration(MEASURED)
    handle.finish()


LOCKED = """
    import threading

    @ftgate.compare(threads)
    def test_it(worker):
        return threading.Lock()

    @test_it.check
    def check(results):
        assert len(results) == 2 and not results[0].locked()
"""


@pytest.mark.parametrize("executor", [FORK, SPAWN, INTERPRETERS], ids=lambda executor: executor.label)
def test_a_result_that_cannot_travel_names_its_type_and_a_way_out(bench: Bench, executor: Executor) -> None:
    bench.write(LOCKED)
    handle = bench.ready(executor)
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(CHECK)
    assert "@test.check cannot get the result, a _thread.lock: TypeError: " in failed.value.error.reason
    assert "or assert in the body itself" in failed.value.error.detail


def test_a_result_of_threads_need_not_travel(bench: Bench) -> None:
    bench.write(LOCKED)
    handle = bench.ready(THREADS)
    handle.iteration(CHECK)
    handle.finish()


def test_a_failed_assert_shows_its_values(bench: Bench) -> None:
    bench.write("""
        EXPECTED = {"a": 1}

        @ftgate.compare(threads)
        def test_it(worker):
            total, words = 3, ["x"] * 50
            assert (total == len(words)
                    or words == EXPECTED), "never"
    """)
    handle = bench.ready(SPAWN, workers=1)
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(CHECK)
    assert failed.value.error.reason == "raised AssertionError: never"
    values = failed.value.error.detail.partition("where\n")[2].splitlines()
    assert values[0] == "  total = 3"
    assert values[1].startswith("  words = ['x', 'x', ")
    assert len(values[1]) < 100
    assert values[2:] == ["  EXPECTED = {'a': 1}"]


# -- words of an error ---------------------------------------------------------------------------------------------


class Account:
    __slots__ = ("asked", "balance")

    def __init__(self) -> None:
        self.balance = 5
        self.asked = 0

    @property
    def limit(self) -> int:
        self.asked += 1
        return 0


class Grumpy:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def _error_of(source: str, tmp_path: Any, **given: Any) -> AssertionError:
    """The error of a function of this source, in a module that pytest has not rewritten."""
    file = tmp_path / "plain.py"
    file.write_text(source)
    module: dict[str, Any] = dict(given)
    exec(compile(source, str(file), "exec"), module)
    with pytest.raises(AssertionError) as failed:
        module["f"]()
    return failed.value


def test_an_assert_without_a_text_is_its_own_reason(tmp_path: Any) -> None:
    error = _error_of("def f():\n    n = 3\n    assert (n\n        == 4)\n", tmp_path)
    assert headline(error) == "raised AssertionError: assert (n == 4) (n = 3)"
    assert detail(error).endswith("where\n  n = 3\n")


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        ("'a' * 300 + 'Y' + 'z' * 9", f"{'a' * 20 + 'x' + 'z' * 9!r} and {'a' * 20 + 'Y' + 'z' * 9!r}"),
        ("'a' * 300", f"{'a' * 20 + 'x' + 'z' * 9!r} and {'a' * 20!r}"),
    ],
)
def test_of_two_long_texts_the_first_difference_is_shown(tmp_path: Any, other: str, shown: str) -> None:
    source = f"def f():\n    one = 'a' * 300 + 'x' + 'z' * 9\n    other = {other}\n    assert one == other\n"
    assert detail(_error_of(source, tmp_path)).endswith(f"\n  from index 300 = {shown}\n")


def test_values_are_read_without_running_the_workload_s_code(tmp_path: Any) -> None:
    account = Account()
    source = "def f():\n    x = account\n    assert x.balance < x.limit and bad, len([y for y in (1,)])\n"
    error = _error_of(source, tmp_path, account=account, bad=Grumpy())
    assert account.asked == 1
    assert detail(error).partition("where\n")[2].splitlines() == [
        "  x.balance = 5",
        "  bad = <Grumpy instance at 0x",
    ] or "  x.balance = 5\n" in detail(error)
    assert account.asked == 1


def test_an_assert_whose_source_is_unknown_and_one_that_pytest_rewrote() -> None:
    module: dict[str, Any] = {}
    exec("def f():\n    n = 3\n    assert n == 4\n", module)
    with pytest.raises(AssertionError) as failed:
        module["f"]()
    assert headline(failed.value) == "raised AssertionError"
    n = 3
    with pytest.raises(AssertionError) as failed:
        assert n == 4
    assert "where\n  n" not in detail(failed.value)


# -- results that are compared between cells -----------------------------------------------------------------------


def test_integers_of_any_length_are_compared() -> None:
    """The interpreter refuses to convert more than 4300 digits, or fewer where it is told to."""
    large = 10**5000
    for value in (large, -large, [large], {large: (large,)}, {large}, np.array([large], dtype=object)):
        assert canonical(value) == canonical(value)
        assert hex(large) in canonical(value)
    assert digest(large) == digest(10**5000) != digest(large + 1) != digest(-large)
    assert canonical(cast(Any, type("Large", (int,), {}))(large)) == f"Large:{hex(large)}"
    before = sys.get_int_max_str_digits()
    written = canonical([10**n for n in range(5000)])
    try:
        sys.set_int_max_str_digits(640)
        assert canonical([10**n for n in range(5000)]) == written
    finally:
        sys.set_int_max_str_digits(before)


def test_arrays_and_scalars_of_numpy_have_a_canonical_text() -> None:
    numbers = np.arange(6, dtype="<i4").reshape(2, 3)
    assert canonical(numbers) == "array(<i4, [[0, 1, 2], [3, 4, 5]])"
    assert canonical(numbers[:, ::2]) == canonical(numbers[:, ::2].copy())
    assert canonical(numbers) != canonical(numbers.astype("<i8")) != canonical(numbers.astype("<f8"))
    assert canonical(numbers) != canonical(numbers.reshape(3, 2))
    assert canonical([(), (1,), (1, 2)]) == "[(), (1,), (1, 2)]"
    assert canonical(np.float64(0.1)) == canonical(np.array(0.1)[()]) == "<f8:0.1"
    assert canonical(np.int64(3)) == "<i8:3"
    assert canonical(np.datetime64(5, "s")) == "<M8[s]:5"
    assert canonical(np.array([1.5], dtype="g")).startswith("array(<f16, [<f16:")
    assert canonical({"a": np.bool_(True)}) == "{'a': |b1:True}"
    assert canonical(np.array(["a", None], dtype=object)) == "array(|O, ['a', None])"
    assert canonical(np.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", "<f8")])) == (
        "array([('a', '<i4'), ('b', '<f8')], [(1, 2.5)])"
    )


def test_large_arrays_are_compared_by_their_content() -> None:
    numbers = np.arange(100_000.0)
    assert digest(numbers) == digest(numbers.copy())
    assert len(digest(numbers)) < 300
    other = numbers.copy()
    other[-1] += 1
    assert digest(numbers) != digest(other) != digest(other.reshape(100, 1000))


@pytest.mark.parametrize("kind", [ValueError, pytest.skip.Exception])
def test_a_long_text_of_an_error_is_capped_with_its_length(kind: type[BaseException]) -> None:
    """5 MB of it were 25 MB of a report. What carries it on from a worker does not cap it again."""
    reason, text = explain(kind("x" * 5_000_000))
    again = explain(Failure(f"worker 0: {reason}", f"in worker 0\n{text}"))
    assert [len(each) < most for each, most in zip(again, (REASON, DETAIL), strict=True)] == [True, True]
    assert re.search(r"x \.\.\. \(5,000,0\d\d characters\) \.\.\. x", again[1])
