"""Contracts: the grammar and its errors, the cells they are about, and the numbers they come to."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from report_by_hand import FREE_THREADED, cell, executor
from values import held, iteration, launch, read, sample_of

from pytest_ftgate.judge import contract_grammar, readers
from pytest_ftgate.judge.contract_grammar import ContractError, Where, parse
from pytest_ftgate.judge.contract_judge import gil_verdict, judged, least_rounds, sides, unreported, values
from pytest_ftgate.judge.contracts import absolute, check, concerns, involved, lacking, metrics_needed
from pytest_ftgate.judge.limits import SIZES_BYTES
from pytest_ftgate.judge.values import Values, figure_of
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.sample import (
    Latency,
    Launch,
    LockSite,
    LockWaits,
    Sample,
    Timer,
    Waits,
)
from pytest_ftgate.model.spec import Cell, Environment, Executor, Program, RoleCounts, Source, Spec, Target
from pytest_ftgate.model.verdict import Decision
from pytest_ftgate.report import reasons
from pytest_ftgate.report.reasons import value_text
from pytest_ftgate.runner.locks.sites import bucket_of
from pytest_ftgate.stats import estimators

MS = 1_000_000
MIB = 2**20

# -- the grammar ---------------------------------------------------------------------------------------------------

GOOD = [
    "wall < 20 ms",
    "wall<20ms",
    " tail  <= 1.5e-2 s ",
    "scaling >= 1.6",
    "lock_wait < 20 %",
    "queue_wait < 0.2",
    "uss < 64 MiB",
    "64 MiB > uss",
    "pss + 1 KB < rss",
    "threads.wall < 0.8 * processes[spawn].wall",
    "threads.wall / processes[spawn].wall < 80 %",
    "threads[w8].wall < serial[w1].wall",
    "processes[spawn, w8, 3.14t].wall < processes[3.14t,spawn ,w8].cold",
    "threads[3.14t[gil=on, jit=off]].wall <= threads[/opt/python/bin/python3].wall",
    "(wall - start) * 2 < (3 * (work + join)) + 1 us",
    "start / wall < 0.1",
    "efficiency > .5",
    "ops_per_s > 1_000_000",
    "cores >= 1.8",
    "wall * cores < 2 * threads.wall * threads.cores",
    "wall * wall < 2 s * cold",
    "command[rust].ops_per_s > 1.2 * threads[3.14t].ops_per_s",
    "server[2x5, 3.14].cores < 1.2",
    "server[w2].latency_p95 <= 2 * latency_mean + latency_p50 - latency_p99",
    "threads[writer4].ops_per_s > threads[ writer2 ,producer8].ops_per_s",
    "timer.ack_wait < 8 us",
    "processes[spawn].timer.wall / timer . timer < 3",
    "counter.inserts > 0.5 * threads.ops_per_s",
    "peak.depth < threads.peak.depth + 1",
    "peak < 1.5 * threads.peak + 64 MiB",
    "gil_wait_p95 < 1 ms",
    "gil == off",
    "threads[3.14t].gil == on",
    "wall < 20 µs",
]


@pytest.mark.parametrize("text", GOOD)
def test_good_contracts(text: str) -> None:
    contract = parse(text)
    assert contract.text == text.strip()
    assert contract.operator in contract_grammar.COMPARISONS
    assert contract.is_gil is ("gil ==" in text)


def test_a_cell_is_named_in_any_order() -> None:
    whole = Where(kind="processes", method="spawn", workers=8, target="3.14t[gil=on,jit=off]")
    for inner in ("spawn, w8, 3.14t[gil=on, jit=off]", "3.14t[gil=on,jit=off],w8,spawn"):
        left = parse(f"processes[{inner}].wall < 1 s").left
        assert isinstance(left, contract_grammar.Name)
        assert (left.metric, left.where) == ("wall", whole)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cores < 1 + 2 * 3", 7.0),
        ("cores < (1 + 2) * 3", 9.0),
        ("cores < 8 / 4 / 2", 1.0),
        ("cores < 8 - 4 - 2", 2.0),
        ("cores < 1 - (2 - 3)", 2.0),
        ("cores < 50 %", 0.5),
        ("cores < 1.5e1", 15.0),
        ("wall < 1 ns", 1e-9),
        ("wall < 1us", 1e-6),
        ("wall < 1 μs", 1e-6),
        ("wall < 1 ms", 1e-3),
        ("wall < 1 s", 1.0),
        *(
            (f"uss < 3 {unit}", size)
            for unit, size in zip(SIZES_BYTES, [3, 3e3, 3e6, 3e9, 3 * 2**10, 3 * 2**20, 3 * 2**30], strict=True)
        ),
    ],
)
def test_arithmetic_and_units(text: str, value: float) -> None:
    assert contract_grammar._constant(parse(text).right) == value


BAD = [
    # The caret stands under the place; then what the complaint says.
    ("", "^", "expected a metric, a number or a parenthesis"),
    ("wall", "    ^", "expected <, <=, >, >= or =="),
    ("wall <", "      ^", "expected a metric, a number or a parenthesis"),
    ("< 3 s", "^", "expected a metric, a number or a parenthesis"),
    (
        "wal < 3 s",
        "^",
        "'wal' is not a metric (did you mean 'wall'?); wall, tail, start, uss, growth, lock_wait and payload",
    ),
    ("time < 3 s", "^", "'time' is not a metric"),
    ("threads.wal < 3 s", "        ^", "'wal' is not a metric (did you mean 'wall'?)"),
    ("treads.wall < 3 s", "^", "'treads' is not an executor (did you mean 'threads'?); there are serial, threads"),
    ("threads < 3 s", "^", "threads is an executor: say which of its figures, as in threads.wall"),
    ("spawn.wall < 3 s", "^", "spawn is a start method: write processes[spawn].wall"),
    ("spawn < 3 s", "^", "spawn is a start method: write processes[spawn].wall"),
    (
        "threads. < 3 s",
        "         ^",
        "expected a metric: wall, tail, start, uss, growth, lock_wait and payload gate by default",
    ),
    ("threads[w8] < 3 s", "            ^", "expected . and a metric, as in threads.wall"),
    ("threads[w8.wall < 3 s", "       ^", "this bracket is never closed"),
    ("threads[].wall < 3 s", "        ^", "expected a worker count such as w8, or a target such as 3.14t"),
    ("threads[w8,].wall < 3 s", "           ^", "expected a worker count such as w8"),
    ("threads[w8, w2].wall < 3 s", "            ^", "w2 is a second worker count; one is enough"),
    ("threads[w0].wall < 3 s", "        ^", "a cell has one worker at least"),
    ("threads[spawn].wall < 3 s", "        ^", "spawn is a start method, which threads have not"),
    ("processes[w8, spwan].wall < 3 s", "              ^", "expected a start method, a worker count such as w8"),
    ("processes[spwan].wall < 3 s", "          ^", "(did you mean 'spawn'?)"),
    ("wall[w8] < 3 s", "^", "'wall' is not an executor"),
    ("wall < 3", "       ^", "expected a time with its unit: ns, us, ms or s"),
    ("3 > wall", "^", "expected a time with its unit: ns, us, ms or s"),
    ("0.8 * 2 < uss", "^", "expected a size with its unit: B, KB, KiB, MB, MiB, GB or GiB"),
    ("wall < 64 MiB", "       ^", "expected a time; this is a size"),
    ("scaling >= 10 ms", "           ^", "expected a plain number; this is a time"),
    ("wall < uss", "       ^", "a size cannot be compared with a time"),
    ("wall * wall < wall", "              ^", "a time cannot be compared with a figure in s^2"),
    ("wall * wall < 1 s", "              ^", "expected a figure in s^2; this is a time"),
    ("wall / uss < 2", "             ^", "expected a figure in s^1 byte^-1; this is a plain number"),
    ("wall + uss < 2 s", "     ^", "a time and a size have no sum or difference"),
    ("wall + 2 < 2 s", "       ^", "expected a time with its unit: ns, us, ms or s"),
    ("2 - wall < 2 s", "^", "expected a time with its unit: ns, us, ms or s"),
    ("scaling + 2 ms < 2", "          ^", "expected a plain number; this is a time"),
    ("wall < 3 mS s", "         ^", "'mS' is not a unit (did you mean 'ms'?); use ns, us"),
    ("uss < 3 mib", "        ^", "'mib' is not a unit (did you mean 'MiB'?)"),
    ("wall < 0.8 processes[spawn].wall", "           ^", "expected an operator such as * before processes"),
    ("wall < 0.8 cold", "           ^", "expected an operator such as * before cold"),
    ("wall < 1 s < 2 s", "           ^", "a contract has one comparison"),
    ("wall < 1 s)", "          ^", "expected an operator or the end"),
    ("(wall < 1 s", "^", "this parenthesis is never closed"),
    ("(wall < 1 s)", "      ^", "expected )"),
    ("wall < 1 s wall", "           ^", "expected an operator such as * before wall"),
    ("2 (wall) < 1 s", "  ^", "expected an operator such as * before ("),
    ("threads.wall.cold < 1 s", "             ^", "expected an operator or the end"),
    ("wall = 1 s", "     ^", "a comparison is <, <=, >, >= or =="),
    ("wall != 1 s", "     ^", "a comparison is <, <=, >, >= or =="),
    ("wall ≤ 1 s", "     ^", "a comparison is <, <=, >, >= or =="),
    ("wall == 1 s", "     ^", "== is for the GIL alone"),
    ("scaling == 1", "        ^", "== is for the GIL alone"),
    ("off == gil", "^", "'off' is not a metric"),
    ("gil < 1", "^", "the GIL is compared alone: gil == off"),
    ("wall < 2 * gil", "           ^", "the GIL is compared alone: gil == off"),
    ("gil == 1", "       ^", "the GIL is on or off"),
    ("timer < 3 s", "^", "say which timer: timer.NAME, as the workload calls it"),
    ("threads.counter < 3", "        ^", "say which counter: counter.NAME"),
    ("threads.peak < 3", "               ^", "expected a size with its unit: B, KB, KiB, MB, MiB, GB or GiB"),
    ("counter. < 3", "         ^", "expected the name of a counter"),
    ("timer.wait < 3", "             ^", "expected a time with its unit: ns, us, ms or s"),
    ("counter.n < 3 s", "            ^", "expected a plain number; this is a time"),
    ("wall < 3 timer.x", "         ^", "expected an operator such as * before timer"),
    ("timr.x < 3", "^", "'timr' is not an executor"),
    ("latency < 3 s", "^", "'latency' is not a metric (did you mean 'latency_p"),
    ("rust.wall < 3 s", "^", "(a program's name stands in brackets: command[rust].wall)"),
    ("command[].wall < 3 s", "        ^", "expected a worker count such as w8"),
    ("command[a, a].wall < 3 s", "           ^", "a stands there twice; one is enough"),
    ("threads[a4, a4].wall < 3 s", "            ^", "a4 stands there twice; one is enough"),
    ("gil == of", "       ^", "the GIL is on or off"),
    ("gil == off + 1", "           ^", "expected an operator or the end"),
    ("1 < 2", "^", "it names no metric"),
    ("1 < 2 s", "^", "it names no metric"),
    ("wall < 2 * wall", "       ^", "it compares a figure with itself"),
    ("0 * wall < cold", "           ^", "its factors come to nothing that can be measured"),
    ("1e300 * wall * 1e300 < cold", "                       ^", "its factors come to nothing that can be measured"),
    ("cores < 1 / (2 - 2)", "             ^", "this divides by zero"),
    ("cores < 1e999", "        ^", "1e999 is not a finite number"),
    ("cores < 1e300 * 1e300", "        ^", "this is not a finite number"),
    ("cores < 1__0", "        ^", "1__0 is not a finite number"),
    ("cores < -1", "        ^", "expected a metric, a number or a parenthesis"),
    ("cores < 1;", "         ^", "';' has no meaning here"),
    ("cores < _x", "        ^", "'_x' is not a metric"),
    ("cores < x('os')", "          ^", '"\'" has no meaning here'),
    ("cores < ٣", "        ^", "'٣' has no meaning here"),
    ("cores < " + "(" * 60, " " * 68 + "^", "expected a metric, a number or a parenthesis"),
    ("cores < " + "(" * 250 + "1", " " * 208 + "^", "this parenthesis is never closed"),
    ("cores < " + "1 +" * 200, " " * 40 + "^", "a contract has at most 400 characters, this one 608"),
]


@pytest.mark.parametrize(("text", "caret", "problem"), BAD, ids=[text[:40] or "empty" for text, _, _ in BAD])
def test_bad_contracts_point_at_the_column(text: str, caret: str, problem: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse(text)
    said, expression, below = str(caught.value).split("\n")
    assert problem in said
    assert below == "  " + caret
    assert caught.value.column == len(caret) - 1
    if len(text) <= contract_grammar.LONGEST:
        assert expression == "  " + text


def test_what_cannot_be_shown_does_not_move_the_caret() -> None:
    with pytest.raises(ContractError) as caught:
        parse("wall\n<\t\x1b[31m")
    assert str(caught.value).split("\n")[1:] == ["  wall <  [31m", "         ^"]


def test_keywords_are_expressions() -> None:
    said = {"scaling": ">= 1.6", "gil": "off", "uss": " < 64 MiB ", "wall": "1 s", "cores": "!= 2"}
    texts = [contract_grammar.keyword_text(metric, text) for metric, text in said.items()]
    assert texts == ["scaling >= 1.6", "gil == off", "uss < 64 MiB", "wall == 1 s", "cores != 2"]


WORDS = [
    *contract_grammar.METRICS,
    *contract_grammar.KINDS,
    *contract_grammar.METHODS,
    *contract_grammar.UNITS,
    *contract_grammar.COMPARISONS,
    *"+-*/().[],%=!7",
    *("w8", "w0", "3.14t", "on", "off", "0.5", "1e9", "1e400", " ", " ", "\n", "\x00", "µ", "\ud800", "٣", "²", "__"),
]


def test_whatever_the_text_is_it_is_parsed_or_refused() -> None:
    rng = random.Random(7)
    parsed: list[contract_grammar.Contract] = []
    columns: list[tuple[int, int]] = []
    for number in range(12_000):
        if number % 2:
            text = "".join(rng.choices(WORDS, k=rng.randrange(30)))
        else:
            pieces = list(rng.choice(GOOD))
            for _ in range(rng.randrange(1, 3)):
                pieces[rng.randrange(len(pieces))] = rng.choice([*WORDS, ""])
            text = "".join(pieces)
        try:
            contract = parse(text)
        except ContractError as error:
            columns.append((error.column, len(error.expression)))
        else:
            parsed.append(contract)
    assert all(0 <= column <= length for column, length in columns)
    assert all(map(contract_grammar.all_names, parsed))
    assert len(parsed) > 150


def test_any_characters_are_refused_alike() -> None:
    rng = random.Random(8)
    for _ in range(5_000):
        text = "".join(chr(rng.choice((rng.randrange(128), rng.randrange(0x11000)))) for _ in range(rng.randrange(12)))
        with pytest.raises(ContractError):
            parse(text)


@pytest.mark.parametrize("text", ["wall" + " + wall" * 55 + " < 1 s", "cores < " + "(" * 190 + "1" + ")" * 190])
def test_the_longest_and_the_deepest(text: str) -> None:
    assert len(text) > 80
    assert contract_grammar.all_names(parse(text))


# -- the test that declares it ---------------------------------------------------------------------------------------

THREADS, SERIAL, SPAWN, FORK = (executor(word) for word in ("threads", "serial", "spawn", "fork"))


def spec(
    *executors: Executor, workers: Sequence[int] = (1, 8), pythons: tuple[str, ...] | None = ("3.14", "3.14t")
) -> Spec:
    return Spec(
        nodeid="t.py::test",
        source=Source(path="t.py", line=3, module="t", qualname="test"),
        body="worker",
        executors=executors or (THREADS, SPAWN, FORK),
        workers=tuple(workers),
        reuse="fresh",
        pythons=pythons,
    )


def program(kind: Any, name: str, *, counted: bool = False, pythons: tuple[str, ...] | None = None) -> Executor:
    argv = (name, "{workers}") if counted else (name,)
    return Executor(kind=kind, program=Program(name=name, argv=argv, pythons=pythons))


RUST, GEN = program("command", "rust", counted=True), program("command", "gen")
ASGI = program("server", "asgi", counted=True)
TWO_FIVE, FREE = program("server", "2x5"), program("server", "ft-1x10", pythons=("3.14t",))
LOKY = Executor(kind="executor", name="loky", in_processes=True)
UVLOOP = Executor(kind="tasks", name="uvloop")


FITS: list[tuple[Spec, list[str]]] = [
    (
        spec(),
        [
            "wall < 1 s",
            "threads.wall < processes[spawn].wall",
            "threads[w8].wall < threads[w1].wall",
            "threads.wall < threads[w8].wall",
            "threads[3.14t].wall < threads[3.14].wall",
            "wall < 2 * processes[fork, w1, 3.14].wall",
            "processes[fork].scaling > 1.5",
            "efficiency > 0.5",
            "threads[3.14t, w8].gil == off",
        ],
    ),
    (spec(THREADS, SPAWN), ["threads.wall < processes.wall"]),
    (
        spec(THREADS, RUST),
        [
            "command[rust].ops_per_s > threads[3.14t].ops_per_s",
            "threads.ops_per_s < command.ops_per_s",
            "command.scaling > 1.5",
            "command.timer.lock_wait < threads.timer.lock_wait",
            "lock_wait < 20 %",
            "gil == off",
        ],
    ),
    (spec(THREADS, RUST, GEN), ["command[rust, w8].wall < 2 * command[gen].wall"]),
    (spec(ASGI), ["server.latency_p99 < 20 ms"]),
    (spec(ASGI, TWO_FIVE), ["server[asgi, w8, 3.14t].cores > server[3.14, asgi, w8].cores"]),
    (
        spec(TWO_FIVE, FREE),
        ["server[2x5].gil_wait_p95 > server[ft-1x10].gil_wait_p95", "server[ft-1x10].cores < 2"],
    ),
    (
        spec(THREADS, LOKY, UVLOOP),
        ["executor[loky].wall < threads.wall", "tasks[uvloop, w8].wall < executor.wall"],
    ),
    (spec(pythons=None), ["threads[3.15].wall < threads[/opt/python].wall"]),
]


@pytest.mark.parametrize(
    ("declared", "text"), [pytest.param(declared, text, id=text) for declared, texts in FITS for text in texts]
)
def test_contracts_of_a_test(declared: Spec, text: str) -> None:
    """Targets that the options choose are not checked."""
    check(parse(text), declared)
    check(parse(text), msgspec.structs.replace(declared, pythons=None))


LACKS: list[tuple[Spec, list[tuple[str, int, str]]]] = [
    (
        spec(),
        [
            (
                "wall < serial.wall",
                7,
                "the test does not run under serial: it has threads, processes[spawn] and processes",
            ),
            (
                "threads.wall < processes.wall",
                15,
                "which processes? it has threads, processes[spawn] and processes[fork]",
            ),
            ("wall < processes[w8, forkserver].wall", 21, "the test has no processes[forkserver]: it has threads,"),
            ("wall < threads[w2].wall", 15, "no cell has 2 workers: there are 1 and 8"),
            ("wall < threads[3.13].wall", 15, "the test is not measured on 3.13: it is on 3.14 and 3.14t"),
            ("threads[w1].scaling > 1", 8, "scaling is of cells with more than one worker"),
            (
                "threads.wall < processes[spawn, w1].efficiency * 1 s",
                32,
                "efficiency is of cells with more than one worker",
            ),
            ("lag < 1 ms", 0, "the cells of this test have no lag: only tasks have an event loop of ours"),
            ("threads[wcores].wall < 1 s", 8, "no cell has wcores: give the test workers=[1, 'cores']"),
        ],
    ),
    (
        spec(THREADS, RUST, GEN, TWO_FIVE, FREE),
        [
            (
                "command[rsut].wall < 1 s",
                8,
                "the test has no command 'rsut' (did you mean 'rust'?): it has threads, co",
            ),
            ("command.wall < 1 s", 0, "which command? it has threads, command[rust], command[gen], server[2x5] and"),
            ("command[2x5].wall < 1 s", 8, "the test has no command '2x5': it has threads"),
            ("command[gen, rust].wall < 1 s", 13, "rust is a second program; one is enough"),
            ("server[2x5, 3.14, 3.14t].wall < 1 s", 18, "3.14t is a second target; one is enough"),
            ("server[2x6].wall < 1 s", 7, "the test has no server '2x6' (did you mean '2x5'?)"),
            ("command[rust, 3.14].wall < 1 s", 14, "a command has no target: it runs once for all targets"),
            ("command[gen, w8].wall < 1 s", 13, "gen does not take a number of workers"),
            ("command[rust, w3].wall < 1 s", 14, "no cell has 3 workers: there are 1 and 8"),
            ("server[ft-1x10, 3.14].wall < 1 s", 16, "ft-1x10 is not measured on 3.14: it is on 3.14t"),
            ("server[2x5, 3.13].wall < 1 s", 12, "2x5 is not measured on 3.13: it is on 3.14 and 3.14t"),
            ("server[2x5].scaling > 1", 0, "server[2x5] has no scaling: it does not take a number of workers"),
            ("command[rust].lock_wait < 1 %", 0, "command[rust] has no lock_wait: a program cannot be"),
            ("command[rust].gil == off", 0, "command[rust] has no gil: a program cannot be inspected for it"),
            ("server[2x5].gil == off", 0, "server[2x5] has no gil: a program cannot be inspected for it"),
            ("server[2x5].timer.wait < 1 s", 0, "server[2x5] has no timer.wait: a server has no names of its own"),
            ("threads.latency_p95 < 1 s", 0, "threads has no latency_p95: it is of the answers of a server"),
            ("threads[writer4].wall < 1 s", 8, "no cell has writer4: its workers have no roles; a worker count is w8"),
        ],
    ),
    (
        spec(THREADS, LOKY, UVLOOP, Executor(kind="tasks")),
        [
            ("executor[dask].wall < 1 s", 9, "the test has no executor[dask]: it has threads, executor[loky], tasks"),
            ("tasks.wall < 1 s", 0, "which tasks? it has threads, executor[loky], tasks[uvloop] and tasks"),
        ],
    ),
    (
        spec(THREADS, RUST),
        [("latency_p50 < 1 ms", 0, "the cells of this test have no latency_p50: it is of the answers")],
    ),
    (spec(RUST, TWO_FIVE), [("queue_wait < 1 %", 0, "the cells of this test have no queue_wait: a program cannot")]),
    (spec(workers=(8,)), [("threads.wall < threads[w8].wall", 0, "it is about no cell of this test")]),
]


@pytest.mark.parametrize(
    ("declared", "text", "caret", "problem"),
    [pytest.param(declared, *row, id=row[0]) for declared, rows in LACKS for row in rows],
)
def test_what_the_test_has_not(declared: Spec, text: str, caret: int, problem: str) -> None:
    with pytest.raises(ContractError) as caught:
        check(parse(text), declared)
    assert (caught.value.column, problem in caught.value.problem) == (caret, True), caught.value.problem


@pytest.mark.parametrize("workers", [(1,), (8,), (2, 8)])
@pytest.mark.parametrize("metric", contract_grammar.SCALINGS)
def test_a_scaling_needs_a_cell_with_one_worker(workers: tuple[int, ...], metric: str) -> None:
    with pytest.raises(
        ContractError, match=rf"{metric} compares with the same cell with one worker: .* workers=\[1, 8"
    ) as caught:
        check(parse(f"1.6 <= {metric}"), spec(workers=workers))
    assert caught.value.column == 7


# -- programs and roles --------------------------------------------------------------------------------------------


ROLE_COUNTS = ((("producer", 8), ("writer", 1)), (("producer", 8), ("writer", 4)))


def spec_with_roles() -> Spec:
    return msgspec.structs.replace(spec(THREADS, FORK, workers=(9, 12)), role_counts=ROLE_COUNTS)


def test_contracts_of_roles() -> None:
    for text in (
        "threads[writer4].ops_per_s > threads[writer1].ops_per_s",
        "threads[writer4, producer8].ops_per_s > processes[writer1].ops_per_s",
        "wall < processes[w9].wall * 2",
    ):
        check(parse(text), spec_with_roles())
    with pytest.raises(ContractError, match=r"no cell has writer3 .*: there are producer8, writer1 and writer4"):
        check(parse("threads[writer3].wall < 1 s"), spec_with_roles())
    role_counts = ((("a", 1), ("b", 2)), (("a", 2), ("b", 1)))
    same = msgspec.structs.replace(spec_with_roles(), workers=(3, 3), role_counts=role_counts)
    with pytest.raises(ContractError, match="several cells have 3 workers: name a role with its number"):
        check(parse("threads[w3].wall < 1 s"), same)
    check(parse("threads[a1].wall < 1 s"), same)


def test_contracts_of_as_many_workers_as_there_are_cores() -> None:
    for numbers, text in (((1, 2), "threads[w2].wall < threads[wcores].wall"), ((1,), "threads.scaling > 1.5")):
        declared = msgspec.structs.replace(spec(THREADS, workers=(*numbers, 4)), cores=4, cores_named=True)
        check(parse(text), declared)


def test_a_program_may_take_the_number_of_workers_in_one_environment_alone() -> None:
    environments = (Environment(), Environment(variables=(("N", "{workers}"),), words=("N:{workers}",)))
    check(parse("command[gen, w8].wall < 1 s"), msgspec.structs.replace(spec(GEN), environments=environments))


def test_what_no_cell_of_a_test_can_have() -> None:
    assert lacking("lag", spec(THREADS, Executor(kind="tasks"))) == ""
    assert lacking("lag", spec(THREADS, SPAWN)).startswith("only tasks have an event loop")


def cells_with(
    *executors: Executor, workers: Sequence[int] = (1, 8), role_counts: Sequence[RoleCounts] = ()
) -> list[Cell]:
    """Cells as they are planned: a command with the first target, a server on its own."""
    found = {}
    for count, role_count in zip(workers, role_counts or [()] * len(workers), strict=True):
        for target in ("3.14", "3.14t"):
            for one in executors:
                of = one.program
                here = target == "3.14" if one.kind == "command" else of is None or target in (of.pythons or (target,))
                told = [f"{role}{n}" for role, n in role_count] or ([f"w{count}"] if one.counted(Environment()) else [])
                label = "-".join([*([] if one.kind == "command" else [target]), one.label, *told])
                if here:
                    found[label] = Cell(
                        nodeid=f"t.py::test[{label}]",
                        target=Target(spec=target, request=target),
                        executor=one,
                        workers=count,
                        roles=role_count,
                    )
    return list(found.values())


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("command[rust].ops_per_s > threads[3.14t].ops_per_s", ["rust-w1", "rust-w8"]),
        ("threads.wall > command[rust].wall", [f"{t}-threads-w{n}" for n in (1, 8) for t in ("3.14", "3.14t")]),
        ("threads[w8].wall > command[gen].wall", ["3.14-threads-w8", "3.14t-threads-w8"]),
        ("command[gen].wall < 1 s", ["gen"]),
        ("command[rust].scaling > 1", ["rust-w8"]),
        ("server[2x5].cores < 1.2", ["3.14-2x5", "3.14t-2x5"]),
        ("server[2x5, 3.14].cores < 1.2", ["3.14-2x5"]),
        ("server[2x5].cores < server[ft-1x10].cores", ["3.14-2x5", "3.14t-2x5"]),
        ("server[ft-1x10].ops_per_s > server[2x5, 3.14].ops_per_s", ["3.14t-ft-1x10"]),
        ("latency_p95 < 1 ms", ["3.14-2x5", "3.14t-2x5", "3.14t-ft-1x10"]),
    ],
)
def test_the_programs_that_are_concerned(text: str, labels: list[str]) -> None:
    cells = cells_with(THREADS, RUST, GEN, TWO_FIVE, FREE)
    assert concerned(text, cells) == labels


def test_what_a_program_has_not_is_not_asked_of_it() -> None:
    cells = cells_with(THREADS, RUST, TWO_FIVE, workers=(8,))
    assert concerned("lock_wait < 20 %", cells) == ["3.14-threads-w8", "3.14t-threads-w8"]
    assert concerned("gil == off", cells) == ["3.14-threads-w8", "3.14t-threads-w8"]
    assert concerned("timer.x < 1 s", cells) == ["3.14-threads-w8", "rust-w8", "3.14t-threads-w8"]


def test_the_roles_that_are_concerned() -> None:
    role_counts = [(("producer", p), ("writer", w)) for p, w in ((8, 1), (8, 4), (4, 1), (4, 4), (4, 8))]
    cells = cells_with(THREADS, workers=[9, 12, 5, 8, 12], role_counts=role_counts)
    cells = [cell for cell in cells if cell.target.spec == "3.14"]
    four, one = "3.14-threads-producer{}-writer4", "3.14-threads-producer{}-writer1"
    text = "threads[writer4].wall < threads[writer1].wall"
    assert concerned(text, cells) == [four.format(8), four.format(4)]
    hand = cells[1]
    assert [cell.label for cell in involved(parse(text), hand, cells)] == [one.format(8), four.format(8)]
    assert concerned("threads[writer4, producer4].wall < 1 s", cells) == [four.format(4)]
    assert concerned("threads[w12].wall < 1 s", cells) == [four.format(8), "3.14-threads-producer4-writer8"]


# -- which cells ---------------------------------------------------------------------------------------------------


def cell_of(label: str, *params: tuple[str, str]) -> Cell:
    """A cell by its label: `3.14t-threads-w8`."""
    target, word, workers = label.rsplit("-", 2)
    return cell("t.py::test", target, word, int(workers[1:]), *params)


CELLS = [
    cell_of(f"{target}-{word}-w{workers}")
    for workers in (1, 8)
    for target in ("3.14", "3.14t")
    for word in ("serial", "threads", "spawn")
]


def concerned(text: str, cells: Iterable[Cell] = CELLS) -> list[str]:
    there = list(cells)
    return [cell.label for cell in there if concerns(parse(text), cell, there)]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("wall < 1 s", [cell.label for cell in CELLS]),
        ("gil == off", [cell.label for cell in CELLS]),
        ("scaling > 1.5", [cell.label for cell in CELLS if cell.workers == 8]),
        ("threads.scaling > 1.5", ["3.14-threads-w8", "3.14t-threads-w8"]),
        (
            "threads.wall < 0.8 * processes[spawn].wall",
            ["3.14-threads-w1", "3.14t-threads-w1", "3.14-threads-w8", "3.14t-threads-w8"],
        ),
        ("0.8 * processes[w8].wall > threads[3.14t].wall", ["3.14-spawn-w8", "3.14t-spawn-w8"]),
        ("threads[w8].wall < processes[spawn].wall", ["3.14-threads-w8", "3.14t-threads-w8"]),
        ("threads.wall < serial[w1].wall", [f"{t}-threads-w{n}" for n in (1, 8) for t in ("3.14", "3.14t")]),
        ("threads[3.14t].wall < threads[3.14].wall", ["3.14t-threads-w1", "3.14t-threads-w8"]),
        ("threads.wall < threads[3.14].wall", ["3.14t-threads-w1", "3.14t-threads-w8"]),
        ("wall < 2 * serial.wall", [cell.label for cell in CELLS if cell.executor.kind != "serial"]),
        ("wall < 2 * serial[w1, 3.14].wall", [cell.label for cell in CELLS if cell.label != "3.14-serial-w1"]),
        ("threads.wall < threads[w8].wall + serial.wall", ["3.14-threads-w1", "3.14t-threads-w1"]),
        ("threads[3.15].wall < 1 s", []),
        ("wall < interpreters.wall", []),
    ],
)
def test_the_cells_that_are_concerned(text: str, labels: list[str]) -> None:
    assert concerned(text) == labels


def test_the_cells_that_are_involved() -> None:
    hand = next(cell for cell in CELLS if cell.label == "3.14t-threads-w8")

    def labels(text: str) -> list[str]:
        return [cell.label for cell in involved(parse(text), hand, CELLS)]

    assert labels("wall < 1 s") == ["3.14t-threads-w8"]
    assert labels("wall < serial[w1].wall") == ["3.14t-serial-w1", "3.14t-threads-w8"]
    assert labels("scaling > 1") == ["3.14t-threads-w1", "3.14t-threads-w8"]
    both = {"3.14t-threads-w1", "3.14-spawn-w1", "3.14t-threads-w8", "3.14-spawn-w8"}
    assert set(labels("scaling > processes[3.14].scaling")) == both
    assert labels("serial.wall < wall") == ["3.14t-serial-w8", "3.14t-threads-w8"]
    assert labels("serial.wall < threads.wall") == []


def test_cells_that_were_not_selected_are_not_compared_with() -> None:
    few = [cell for cell in CELLS if cell.label != "3.14-spawn-w8"]
    assert concerned("threads.wall < processes.wall", few) == [
        "3.14-threads-w1",
        "3.14t-threads-w1",
        "3.14t-threads-w8",
    ]
    eight = [cell for cell in CELLS if cell.workers == 8]
    assert concerned("scaling > 1", eight) == []


def test_parameters_stay_apart() -> None:
    cells = [cell_of(f"3.14-{word}-w2", ("n", n)) for word, n in (("threads", "1"), ("serial", "1"), ("threads", "2"))]
    assert concerned("threads.wall < serial.wall", cells) == ["3.14-threads-w2-1"]


# -- values --------------------------------------------------------------------------------------------------------


def locked(order: int, lock_ms: float, queue_ms: float = 0.0, work_ms: float = 10.0) -> Launch:
    site = LockSite(file="a.py", line=3, kind="Lock", waits_for="lock", total_ns=round(lock_ms * MS))
    queue = msgspec.structs.replace(site, waits_for="queue", total_ns=round(queue_ms * MS))
    seen = LockWaits(work_ns=round(work_ms * MS), ops=1, sites=(site, queue))
    return Launch(order=order, hash_seed=0, started_at="", locks=seen)


def sample(label: str, *launches: Launch, **fields: Any) -> Sample:
    return sample_of(launches, cell_of(label), interpreter=FREE_THREADED, **fields)


def numbers(text: str, of: Sample | Values, *others: Sample) -> tuple[float, ...]:
    """The values at the first of the cells."""
    return values(parse(text), of if isinstance(of, Values) else read(of, *others))


def test_a_value_is_positive_where_the_contract_is_broken() -> None:
    of = sample("3.14-threads-w2", launch(0, 5, 5), launch(1, 20, 20), launch(2, 10, 10))
    below = pytest.approx([math.log(0.5), math.log(2), 0.0], abs=1e-12)
    assert numbers("wall < 10 ms", of) == numbers("wall <= 10 ms", of) == below
    assert numbers("10 ms > wall", of) == below
    above = tuple(-value for value in numbers("wall < 10 ms", of))
    assert numbers("wall > 10 ms", of) == numbers("wall >= 10 ms", of) == numbers("10 ms < wall", of) == above


def test_starts_of_workers_that_are_kept_are_compared_launch_by_launch() -> None:
    starts = {"threads": (1, 2, 4), "fork": (10, 10, 10)}
    threads, fork = (
        sample(f"3.14-{name}-w2", *(launch(order, 5, start_ns=start * MS) for order, start in enumerate(each)))
        for name, each in starts.items()
    )
    found = numbers("threads.start < 0.2 * processes[fork].start", threads, fork)
    assert found == pytest.approx([math.log(0.5), 0.0, math.log(2)], abs=1e-12)


def test_floors_of_launches_are_compared_and_never_pooled() -> None:
    walls = ((9.0, 5, 7, 6, 20), (4.0, 30, 8, 8, 8))
    of = sample("3.14-threads-w2", *(launch(order, *each) for order, each in enumerate(walls)))
    assert numbers("wall < 1 ms", of) == pytest.approx([math.log(estimators.quantile(each, 0.25)) for each in walls])
    assert numbers("tail < 1 ms", of) == pytest.approx([math.log(estimators.quantile(each, 0.9)) for each in walls])
    assert numbers("tail < 1 ms", of)[0] > numbers("wall < 1 ms", of)[0]


def test_rounds_come_in_their_order_and_need_every_part() -> None:
    own = sample("3.14-threads-w2", launch(3, 8), launch(1, 2), launch(2, 4), launch(5))
    other = sample("3.14-spawn-w2", launch(2, 1), launch(3, 1), launch(4, 1), launch(5, 1))
    assert numbers("tail < processes.tail", own, other) == pytest.approx([math.log(4), math.log(8)])
    assert numbers("wall < processes.wall", own, other) == pytest.approx([math.log(4), math.log(8)])
    assert numbers("wall < processes.wall", own) == ()
    assert numbers("tail < processes.tail", own) == ()


DRIFT = (1.0, 3.0, 2.0, 9.0, 1.5)


@pytest.mark.parametrize(
    "text",
    [
        "threads.wall < 0.8 * processes[spawn].wall",
        "wall < 0.8 * processes.wall",
        "wall * 10 < processes[spawn].wall * (2 + 6)",
        "wall / processes.wall < 80 %",
        "1.25 < processes.wall / wall",
    ],
)
def test_times_of_two_cells_are_compared_turn_by_turn(text: str) -> None:
    """Both slow down in the same iterations: this cancels in ratios, but not in floors."""
    own = sample("3.14-threads-w2", launch(0, *DRIFT), launch(1, *DRIFT, 99))
    other = sample(
        "3.14-spawn-w2", launch(0, *(2 * wall for wall in DRIFT)), launch(1, *(4 * wall for wall in DRIFT[:3]))
    )
    wanted = [math.log(0.5 / 0.8), math.log(0.25 / 0.8)]
    if text.startswith("1.25"):
        assert numbers(text, own, other) == pytest.approx([-math.log(2 / 1.25), -math.log(4 / 1.25)])
        return
    assert numbers(text, own, other) == pytest.approx(wanted)
    floors = Values(own).by_order("wall"), Values(other).by_order("wall")
    assert math.log(floors[0][1] / floors[1][1] / 0.8) != pytest.approx(wanted[1], abs=0.01)


def test_a_sum_of_cells_compares_floors() -> None:
    own = sample("3.14-threads-w2", launch(0, 6, 6))
    one, two = sample("3.14-serial-w2", launch(0, 2, 2)), sample("3.14-spawn-w2", launch(0, 1, 1))
    assert numbers("wall < serial.wall + processes.wall", own, one, two) == pytest.approx([math.log(2)])
    assert numbers("wall < serial.wall + 1 ms", own, one) == pytest.approx([math.log(2)])


def test_what_is_said_of_a_contract_are_the_figures_of_the_table() -> None:
    of = sample("3.14-threads-w2", launch(0, 4, 4), launch(1, 5, 5), launch(2, 40, 40))
    wall = figure_of(Metric.WALL, [read(of)])
    assert wall is not None
    assert sides(parse("2 * wall < 1 s"), read(of)) == pytest.approx((2 * wall / 1e9, 1.0))


def test_phases_cold_and_loops() -> None:
    cold = iteration(50)
    of = sample("3.14-threads-w2", launch(0, 20, 20, 60, loops=2, cold=cold), launch(1, 20, loops=2))
    assert sides(parse("start < 1 s"), read(of))[0] == pytest.approx(0.002)
    assert sides(parse("join < 1 s"), read(of))[0] == pytest.approx(0.0005)
    assert sides(parse("work < 1 s"), read(of))[0] == pytest.approx(0.0075)
    assert sides(parse("wall < 1 s"), read(of))[0] == pytest.approx(0.01)
    assert numbers("cold < 50 ms", of) == pytest.approx([0.0])
    assert sides(parse("cores < 3"), read(of)) == pytest.approx((2.0, 3.0))


def test_a_window_has_the_time_of_an_operation_and_a_rate() -> None:
    of = sample(
        "3.14-threads-w2",
        launch(0, 500, 500, rate=2000, window_ns=500 * MS),
        launch(1, 500, rate=1000, window_ns=500 * MS),
    )
    assert numbers("ops_per_s >= 1000", of) == pytest.approx([-math.log(2), 0.0])
    assert sides(parse("wall < 1 ms"), read(of.with_launches("time", of.launches[:1])))[0] is not None
    assert numbers("wall < 0.5 ms", of)[0] == pytest.approx(0.0)


def test_memory_is_the_median_of_the_looks_of_a_launch() -> None:
    of = sample(
        "3.14-threads-w2",
        memory=[
            held(0, 9 * MIB, 1 * MIB, 2 * MIB, pss=2.0),
            held(1, 8 * MIB, pss=2.0),
            held(2, None),
            held(3, 8 * MIB, pss=2.0, written_bytes=4 * MIB),
        ],
    )
    assert numbers("uss < 4 MiB", of) == pytest.approx([math.log(0.5), math.log(2), math.log(2)])
    assert numbers("pss < 4 MiB", of) == pytest.approx([0.0, math.log(4), math.log(4)])
    assert numbers("rss > 6 MiB", of) == pytest.approx([0.0, -math.log(4), math.log(2 * MIB), -math.log(4)])


def apart(left: float, right: float) -> float:
    """The difference over the mean."""
    return (left - right) / ((left + right) / 2)


def test_shares_that_are_zero_are_compared_by_their_difference() -> None:
    busy = (locked(0, 4), locked(1, 8, 2), locked(2, 1, work_ms=0))
    of = sample("3.14-threads-w2", locks=busy)
    assert numbers("lock_wait < 20 %", of) == pytest.approx([0.0, apart(0.4, 0.2)])
    assert numbers("queue_wait < 0.2", of) == pytest.approx([-2, apart(0.1, 0.2)])
    assert numbers("queue_wait > 0.2", of) == pytest.approx([2, -apart(0.1, 0.2)])
    idle = sample("3.14-threads-w2", locks=(locked(0, 4), locked(1, 0)))
    assert numbers("lock_wait < 20 %", idle) == pytest.approx([0.0, -2])
    assert numbers("lock_wait <= 0", idle) == pytest.approx([2, 0.0])
    assert numbers("lock_wait < 21 %", sample("3.14-threads-w2", locks=busy[:1])) == pytest.approx(
        [math.log(0.2 / 0.21)], rel=1e-3
    )
    assert tuple(readers.shares_by_order(of, "lock").values()) == pytest.approx((0.2, 0.4))
    both = sample("3.14-threads-w2", launch(1, 5), locks=(locked(1, 0),))
    assert numbers("lock_wait * wall < 1 ms", both) == (-2,)


@pytest.mark.parametrize("text", ["wall - 6 ms < 1 ms", "2 * (wall - 6 ms) < 2 ms", "1 ms > wall - 6 ms"])
def test_differences_that_are_negative_are_compared_by_their_difference(text: str) -> None:
    assert numbers(text, sample("3.14-threads-w2", launch(0, 5))) == pytest.approx([-2])


@pytest.mark.parametrize("text", ["wall < 0 s", "0 * wall < wall + start", "threads.wall < 0 * processes[spawn].wall"])
def test_nothing_has_no_logarithm(text: str) -> None:
    assert numbers(text, sample("3.14-threads-w2", launch(0, 5)), sample("3.14-spawn-w2", launch(0, 5))) == ()


def test_scaling_is_that_of_the_figures_by_order() -> None:
    single = tuple(launch(order, *(8 * wall for wall in DRIFT)) for order in (0, 2, 3))
    own = tuple(launch(order, *((order + 1) * wall for wall in DRIFT)) for order in (3, 1, 2))
    other = sample("3.14-serial-w4", launch(2, 1), launch(3, 1))
    alone = sample("3.14-threads-w4", *own)
    assert Values(alone).by_order("scaling") == {}
    of = read(alone, other, one_worker=single)
    assert of.by_order("scaling") == pytest.approx({2: 4 * 8 / 3, 3: 4 * 8 / 4})
    assert numbers("scaling < 1", of) == pytest.approx([math.log(4 * 8 / 3), math.log(4 * 8 / 4)])
    assert numbers("efficiency >= 1", of) == pytest.approx([-math.log(8 / 3), -math.log(2)])
    assert len(numbers("scaling * serial.wall < 1 s", of)) == 2


def test_the_ceiling_is_the_scaling_of_the_control_workload_by_order() -> None:
    single = tuple(launch(order, *(5 * wall for wall in DRIFT)) for order in (0, 2, 3))
    control = tuple(launch(order, *((order + 5) * wall for wall in DRIFT)) for order in (3, 1, 2))
    own = tuple(launch(order, 10.0, 10.0, 10.0) for order in (1, 2, 3))
    alone = (launch(2, 5.0), launch(3, 5.0))
    of = read(sample("3.14-threads-w4", *own, control=control), one_worker=alone, control=single)
    assert of.by_order("ceiling") == pytest.approx({2: 4 * 5 / 7, 3: 4 * 5 / 8})
    assert numbers("ceiling > 1", of) == pytest.approx([-math.log(4 * 5 / 7), -math.log(4 * 5 / 8)])
    # By pairs: in each round, how far its scaling of 2 is below what the machine gave in that round.
    expected = [-math.log(2 / (0.8 * ceiling)) for ceiling in (4 * 5 / 7, 4 * 5 / 8)]
    assert numbers("scaling >= 0.8 * ceiling", of) == pytest.approx(expected)
    assert numbers(contract_grammar.keyword_text("scaling", ">= 0.8 * ceiling"), of) == pytest.approx(expected)


def test_the_ceiling_of_windows_counts_operations_and_a_pool_has_a_task_for_each_worker() -> None:
    four, alone = (launch(0, 5.0, 5.0, rate=rate, window_ns=1) for rate in (3000.0, 1000.0))
    windowed = sample("3.14-threads-w4", launch(0, 5.0, window_ns=1), control=(four,))
    assert read(windowed, control=(alone,)).by_order("ceiling") == pytest.approx({0: 3.0})
    pooled = msgspec.structs.replace(windowed, cell=msgspec.structs.replace(windowed.cell, body="executor"))
    assert read(pooled, control=(alone,)).by_order("ceiling") == pytest.approx({0: 12.0})
    assert read(sample("3.14-threads-w1", control=(four,))).by_order("ceiling") == {}


def test_a_contract_on_the_ceiling_needs_one_worker_and_a_workload_in_python() -> None:
    check(parse("scaling >= 0.8 * ceiling"), spec())
    with pytest.raises(ContractError, match="ceiling compares with the same cell with one worker"):
        check(parse("ceiling > 2"), spec(workers=(2,)))
    with pytest.raises(ContractError, match=r"command.* has no ceiling: it is that of a workload in Python"):
        check(parse("command[rust].ceiling > 2"), spec(THREADS, program("command", "rust", counted=True)))
    assert concerned("scaling >= 0.8 * ceiling", cells_with(THREADS)) == ["3.14-threads-w8", "3.14t-threads-w8"]
    assert not absolute(parse("scaling >= 0.8 * ceiling"))


def test_a_division_by_nothing_leaves_the_round_out() -> None:
    of = sample("3.14-threads-w2", locks=(locked(0, 4, 2), locked(1, 4)))
    assert numbers("lock_wait / queue_wait < 1", of) == pytest.approx([apart(2, 1)])
    never = read(sample("3.14-threads-w2", locks=(locked(1, 4),)))
    assert sides(parse("lock_wait / queue_wait < 1"), never) == (None, None)


def test_a_later_round_never_changes_what_was_looked_at() -> None:
    early = sample("3.14-threads-w2", locks=(locked(0, 4), locked(1, 8)))
    later = sample("3.14-threads-w2", locks=(locked(0, 4), locked(1, 8), locked(2, 0)))
    for text in ("lock_wait < 20 %", "lock_wait < 2 * queue_wait + 10 %"):
        assert numbers(text, later)[:2] == numbers(text, early)


def latency(p95_ms: float) -> Latency:
    return Latency(mean_ns=2 * MS, p50_ns=MS, p95_ns=p95_ms * MS, p99_ns=9 * MS, max_ns=10 * MS)


def test_the_latency_of_a_launch_is_that_of_its_median_window() -> None:
    iterations = tuple(msgspec.structs.replace(iteration(5), latency=latency(p95)) for p95 in (4, 8, 5))
    of = sample("3.14-threads-w2", msgspec.structs.replace(launch(0), iterations=iterations), launch(1, 5))
    assert sides(parse("latency_p95 < 10 ms"), read(of)) == pytest.approx((0.005, 0.01))
    assert sides(parse("latency_mean + latency_p50 < latency_p99"), read(of)) == pytest.approx((0.003, 0.009))
    assert numbers("latency_p95 < 10 ms", of) == pytest.approx([math.log(0.5)])


def test_metrics_of_the_workloads_own() -> None:
    timer = Timer(count=4, total_ns=8_000, max_ns=5_000)
    busy = launch(0, 10, 10, rate=800, counters={"inserts": 12.0}, timers={"ack": timer}, peaks={"depth": 3.0})
    idle = launch(1, 10, 10, rate=800, timers={"ack": Timer(count=0, total_ns=0, max_ns=0)}, peaks={"depth": 0.0})
    of = sample("3.14-threads-w2", busy, idle)
    assert numbers("timer.ack < 4 us", of) == pytest.approx([math.log(0.5)])
    assert numbers("counter.inserts < 500", of) == pytest.approx([apart(600, 500), -2])  # 12 in two windows of 10 ms
    assert numbers("peak.depth < 2", of) == pytest.approx([apart(3, 2), -2])
    parsed = [parse(f"{kind}.other < 1{unit}") for kind, unit in (("timer", " s"), ("counter", ""), ("peak", ""))]
    assert [values(each, read(of)) for each in parsed] == [(), (), ()]
    said = [unreported(each, read(of)) for each in [*parsed, parse("peak.depth < 1")]]
    assert said == ["timer other", "counter other", "peak other", ""]


def test_waits_for_the_gil_by_launch_and_none_at_all() -> None:
    seen = Waits(samples=100, gil_s=0.1, gil_waits={bucket_of(5 * MS): 40.0}, gil_sampling_ns=MS, gil_max_ns=20 * MS)
    few = msgspec.structs.replace(seen, gil_waits={bucket_of(5 * MS): 2.0})
    blind = Waits(samples=0, unavailable="forbidden")
    found = [launch(order, waits=each) for order, each in enumerate((seen, Waits(samples=100), few, blind))]
    of = sample("3.14-threads-w2", memory=tuple(found))
    read = readers.gil_wait_values(of)
    assert read == {0: pytest.approx(5 * MS, rel=0.1), 1: 0.0}
    assert numbers("gil_wait_p95 < 1 ms", of) == pytest.approx([apart(read[0] / 1e9, 0.001), -2])


def test_nothing_measured_has_no_values() -> None:
    of = sample("3.14-threads-w2")
    for text in ("wall < 1 s", "uss < 1 B", "lock_wait < 1", "scaling > 1", "gil == off", "cold < 1 s"):
        assert numbers(text, of) == ()
        assert sides(parse(text), read(of)) == (None, None)


def test_the_launches_that_are_needed() -> None:
    assert metrics_needed(parse("wall < 1 s")) == {"time"}
    assert metrics_needed(parse("gil == off")) == {"time"}
    assert (
        metrics_needed(parse("scaling >= 0.8 * ceiling")) == {"time", "control"} == metrics_needed(parse("ceiling > 2"))
    )
    assert metrics_needed(parse("uss + pss < rss")) == {"memory"}
    assert metrics_needed(parse("lock_wait * wall < 1 ms")) == {"time", "locks"}
    assert metrics_needed(parse("latency_p95 + timer.x < 1 ms")) == {"time"}
    assert metrics_needed(parse("gil_wait_p95 < 1 ms")) == {"memory"}


def test_what_the_machine_may_move() -> None:
    for text in (
        *("gil_wait_p95 < 1 ms", "latency_p95 < 1 ms", "peak.depth < 1", "timer.x < 1 s"),
        "scaling * serial.wall < 1 s",
    ):
        assert absolute(parse(text))
    for text in ("uss < 1 MiB", "command[rust].ops_per_s > 1.2 * threads.ops_per_s", "timer.x < threads.timer.x"):
        assert not absolute(parse(text))


# -- the GIL, and words --------------------------------------------------------------------------------------------


def test_the_gil_is_told_of_every_launch() -> None:
    on, off = launch(0, 1, gil_enabled=True), launch(1, 1)
    quiet, mixed = sample("3.14t-threads-w2", off, off), sample("3.14t-spawn-w2", off, on, off)
    for text, decision in (("gil == off", Decision.PASSED), ("gil == on", Decision.BROKEN)):
        verdict = gil_verdict(parse(text), read(quiet, mixed))
        assert (verdict.metric, verdict.decision, verdict.contract, verdict.launches) == (
            Metric.CONTRACT,
            decision,
            text,
            2,
        )
    verdict = gil_verdict(parse("processes.gil == off"), read(mixed, quiet))
    assert (verdict.decision, reasons.of_metric(verdict)) == (Decision.BROKEN, "the GIL was on in 1 of 3 launches")
    never = gil_verdict(parse("gil == off"), read(sample("3.14-threads-w2")))
    assert never.decision is Decision.INCONCLUSIVE


@pytest.mark.parametrize(
    ("contract", "value", "text"),
    [
        ("wall < 1 s", 0.00183, "1.83 ms"),
        ("wall < 1 s", 12.0, "12 s"),
        ("wall < 1 s", 0.9996, "1 s"),
        ("wall < 1 s", 2e-10, "0.2 ns"),
        ("uss < 1 MiB", 64 * MIB, "64 MiB"),
        ("uss < 1 MiB", 1000 * MIB, "1,000 MiB"),
        ("uss - rss < 1 MiB", -3.0 * 2**10, "-3 KiB"),
        ("lock_wait < 0.2", 0.1249, "12.5 %"),
        ("lock_wait < 0.2 * threads.queue_wait", 0.0, "0 %"),
        ("lock_wait / threads.lock_wait < 2", 1.25, "1.25"),
        ("scaling >= 1.6", 1.2149, "1.21"),
        ("ops_per_s > 5", 1234567.0, "1,234,567"),
        ("ops_per_s > 5", 999.5, "1,000"),
        ("wall / threads.wall < 1.2", 1.05, "1.05"),
    ],
)
def test_values_in_words(contract: str, value: float, text: str) -> None:
    assert value_text(parse(contract), value) == text


@pytest.mark.parametrize("final", [False, True])
def test_the_figures_of_both_sides_are_said_in_the_end_if_there_are_any(final: bool) -> None:
    for of, shown in ((sample("3.14-threads-w2", launch(0, 5)), final), (sample("3.14-threads-w2"), False)):
        verdict = judged(parse("wall < 10 ms"), read(of), 0.01, 0.05, 80, final=final)
        assert ("5 ms against 10 ms" in reasons.of_metric(verdict)) is shown


def test_the_fewest_rounds_are_those_of_the_contract_that_takes_most() -> None:
    def least(*texts: str) -> int:
        return least_rounds([parse(text) for text in texts], 0.01, 0.05, 80)

    between, alone = "threads.wall < processes[spawn].wall", "wall < 1 s"
    assert least(between) < least(alone) == least(between, alone, "gil == off")
    assert (least(), least("gil == off")) == (0, 1)


# ---- environments


def in_environments(workers: Sequence[int] = (1, 8)) -> list[Cell]:
    """Threads and spawn in two environments that differ in two variables."""
    environments = [
        Environment(variables=(("A1", value), ("B1", value)), words=(f"A1:{value}", f"B1:{value}")) for value in "xy"
    ]
    return [
        msgspec.structs.replace(
            cell,
            nodeid=f"{cell.nodeid.removesuffix(']')}-{'-'.join(environment.words)}]",
            environment=environment,
        )
        for environment in environments
        for cell in cells_with(executor("threads"), executor("spawn"), workers=workers)
        if cell.target.spec == "3.14"
    ]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("threads[A1=x, B1=x, w8].wall < 2 * threads[A1:y, B1=y, w8].wall", ["3.14-threads-w8-A1:x-B1:x"]),
        ("threads[A1=x, B1=x].wall < 2 * threads[A1=y, B1=y].wall", [f"3.14-threads-w{n}-A1:x-B1:x" for n in (1, 8)]),
        ("threads[A1=x, w8].wall < 1 s", ["3.14-threads-w8-A1:x-B1:x"]),
        ("threads[w8].wall < processes[w8].wall", [f"3.14-threads-w8-A1:{v}-B1:{v}" for v in "xy"]),
        ("threads[w8].scaling > 2", [f"3.14-threads-w8-A1:{v}-B1:{v}" for v in "xy"]),
    ],
)
def test_the_environments_that_are_concerned(text: str, labels: list[str]) -> None:
    assert concerned(text, in_environments()) == labels


def test_a_scaling_refers_to_one_worker_in_the_same_environment() -> None:
    cells = in_environments()
    eight = next(cell for cell in cells if cell.label == "3.14-threads-w8-A1:y-B1:y")
    found = involved(parse("scaling > 2"), eight, cells)
    assert sorted(cell.label for cell in found) == ["3.14-threads-w1-A1:y-B1:y", "3.14-threads-w8-A1:y-B1:y"]


def test_environments_that_the_test_has_not() -> None:
    environments = tuple(Environment(variables=(("A1", v),), words=(f"A1:{v}",)) for v in ("1", "2"))
    several = msgspec.structs.replace(spec(), environments=environments)
    check(parse("threads[A1=1].wall < threads[A1=2].wall"), several)
    with pytest.raises(ContractError, match=r"no cell has A1:3.*: there are A1:1 and A1:2") as caught:
        check(parse("threads[A1=3].wall < 1 s"), several)
    assert caught.value.column == 8
    uneven = [("A:x",), ("A:y", "B:1"), ("A:z", "B:1"), ("A:z", "B:2")]
    several = msgspec.structs.replace(spec(), environments=tuple(Environment(words=words) for words in uneven))
    check(parse("threads[A=x].wall < threads[A=y].wall"), several)
    check(parse("threads[A=x].wall < threads[A=z, B=2].wall"), several)
    with pytest.raises(ContractError, match="several environments have these variables: name another one"):
        check(parse("threads[A=x].wall < threads[A=z].wall"), several)
    with pytest.raises(ContractError, match="no cell has A1:1: env= is no list of several"):
        check(parse("threads[A1=1].wall < 1 s"), spec())


def test_only_the_body_that_drives_a_pool_has_what_a_pool_costs_a_task() -> None:
    of = spec(THREADS, SPAWN)
    assert lacking("payload", of).startswith("it is of the tasks of a pool")
    assert lacking("payload", of, lambda executor: "executor" if executor is SPAWN else "worker") == ""
    check(parse("dispatch < 200 us"), of, lambda _: "executor")
    with pytest.raises(ContractError, match="no dispatch: it is of the tasks of a pool"):
        check(parse("dispatch < 200 us"), of)
