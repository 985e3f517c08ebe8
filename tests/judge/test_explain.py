"""What changed beneath a regression: movements beyond the noise, and the functions that take the added time."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from report_by_hand import FREE_THREADED, cell
from values import entry, forked, iteration, probed, sample_of

from pytest_ftgate.judge import explain, metrics
from pytest_ftgate.judge.explain import AddedTime
from pytest_ftgate.model.report import Cause, Explanation, Part
from pytest_ftgate.model.sample import (
    Function,
    Held,
    Import,
    Launch,
    Loads,
    Profile,
    Sample,
    StackSamples,
    Timer,
    Waits,
)
from pytest_ftgate.model.verdict import Decision, MetricVerdict, Verdict

SLOWER = AddedTime(before_ns=40e6, after_ns=80e6, error=0.01)


def profile(*stacks: tuple[float, str], blocks: int = 20, samples: int = 100, seed: int = 0) -> Profile:
    """Samples with these stacks, of names with spaces between, each with its weight; blocks vary as counts do."""
    names = sorted({name for _, stack in stacks for name in stack.split()})
    functions = tuple(Function(file="work.py", line=10 * number, name=name) for number, name in enumerate(names))
    drawn = random.Random(seed)
    found: list[StackSamples] = []
    for block in range(blocks):
        picked = drawn.choices(stacks, weights=[weight for weight, _ in stacks], k=samples)
        for stack in dict.fromkeys(picked):
            indices = tuple(names.index(name) for name in stack[1].split())
            found.append(StackSamples(block=block, functions=indices, count=picked.count(stack)))
    return Profile(functions=functions, samples=tuple(found))


def named(found: Cause) -> list[str]:
    assert found.parts, found
    return [each.name for each in found.parts]


class TestFunctions:
    def test_the_deepest_function_is_named_with_its_shares_and_its_part(self) -> None:
        before = profile((0.1, "body parse scan"), (0.9, "body write"))
        after = profile((0.55, "body parse scan"), (0.45, "body write"), seed=1)
        found = explain.slower_functions(before, after, SLOWER)
        assert named(found) == ["scan"]
        assert found.added == 40e6
        assert found.parts[0].before == pytest.approx(0.1, abs=0.03)
        assert found.parts[0].after == pytest.approx(0.55, abs=0.04)
        assert found.parts[0].added == pytest.approx(40e6, rel=0.1)

    @pytest.mark.parametrize(
        ("changed", "expected"),
        [
            ({("src/work.py", "parse"), ("other.py", "scan"), ("work.py", "write")}, ["parse"]),
            ({("work.py", "scan")}, ["scan"]),
            ({("work.py", "scan"), ("work.py", "parse")}, ["scan"]),
            ({("work.py", "write")}, ["scan"]),
        ],
    )
    def test_time_is_said_once_for_the_changed_function_that_takes_it_else_for_the_innermost(
        self, changed: set[tuple[str, str]], expected: list[str]
    ) -> None:
        before = profile((0.1, "body parse scan"), (0.9, "body write"))
        after = profile((0.55, "body parse scan"), (0.45, "body write"), seed=1)
        found = explain.slower_functions(before, after, SLOWER, changed)
        assert named(found) == expected
        assert found.parts[0].changed is (changed != {("work.py", "write")})

    def test_a_changed_function_is_first_where_another_takes_more(self) -> None:
        before = profile((0.1, "body parse"), (0.9, "body write"))
        after = profile((0.3, "body parse"), (0.7, "body write"), seed=1)
        found = explain.slower_functions(before, after, SLOWER, {("work.py", "parse")})
        assert named(found) == ["parse", "write"] or named(found) == ["parse"]
        assert found.parts[0].changed

    def test_a_changed_function_of_one_worker_is_first_where_the_others_wait_for_it(self) -> None:
        """The stage of a pipeline that became slow is one of nine workers, and so a ninth of all their time."""
        before = profile((1, "write get recv"), (8, "produce put"))
        after = profile((1, "write"), (8, "produce get recv"), seed=1)
        (first, second) = explain.slower_functions(before, after, SLOWER, {("work.py", "write")}).parts
        assert (first.name, first.changed) == ("write", True)
        assert (second.name, second.changed) == ("recv", False)
        assert named(explain.slower_functions(before, after, SLOWER)) == ["recv"]
        # Nor is one that changed named where it waits as before, as everything takes twice the time.
        alike = profile((1, "write get recv"), (8, "produce put"), seed=1)
        assert named(explain.slower_functions(before, alike, SLOWER, {("work.py", "write")})) == ["put"]
        busy = profile((1, "write"), (8, "produce put"))
        assert named(explain.slower_functions(busy, busy, SLOWER, {("work.py", "write")})) == ["put"]

    def test_a_caller_that_adds_much_of_its_own_is_named_too(self) -> None:
        before = profile((1.0, "body"))
        after = profile((0.7, "body"), (0.3, "body scan"), seed=1)
        assert named(explain.slower_functions(before, after, SLOWER)) == ["body", "scan"]

    def test_all_grown_in_proportion_is_the_one_that_runs_them(self) -> None:
        both = profile((0.5, "body a"), (0.5, "body b"))
        assert sorted(named(explain.slower_functions(both, both, SLOWER))) == ["a", "b"]

    def test_a_helper_that_others_call_too_does_not_hide_the_call_that_is_new(self) -> None:
        before = profile((0.5, "body fast helper"), (0.5, "body write helper"))
        after = profile((0.25, "body fast helper"), (0.25, "body write helper"), (0.5, "body slow helper"), seed=1)
        assert sorted(named(explain.slower_functions(before, after, SLOWER))) == ["helper", "slow"]

    def test_a_function_whose_lines_moved_is_the_same(self) -> None:
        before = profile((0.5, "body scan"), (0.5, "body"))
        lower = tuple(msgspec.structs.replace(each, line=each.line + 7) for each in before.functions)
        found = explain.slower_functions(before, msgspec.structs.replace(before, functions=lower), SLOWER).parts
        assert {each.name: (each.before, each.line) for each in found}["scan"] == (found[-1].after, 17)

    def test_few_samples_are_refused(self) -> None:
        few = profile((1.0, "body"), samples=2)
        assert explain.slower_functions(few, few, SLOWER).unknown.startswith("only 40 samples")

    def test_what_lies_within_the_noise_is_refused(self) -> None:
        before = profile(*((1.0, f"body f{number}") for number in range(9)))
        noisy = AddedTime(before_ns=40e6, after_ns=42e6, error=0.03)
        found = explain.slower_functions(before, before, noisy)
        assert (found.parts, found.unknown) == ((), "no function grew beyond the noise of 4000 samples")

    def test_samples_of_one_block_count_as_what_they_are(self) -> None:
        """A function that fills some blocks wholly may have done so by chance."""
        stacks = ((1.0, "body lucky"),), ((1.0, "body"),)
        blocks = [profile(*stack, blocks=1).samples[0].count for stack in stacks]
        functions = (Function(file="w.py", line=1, name="body"), Function(file="w.py", line=2, name="lucky"))

        def side(lucky: int) -> Profile:
            samples = tuple(
                StackSamples(block=block, functions=(0, 1) if block < lucky else (0,), count=blocks[0])
                for block in range(10)
            )
            return Profile(functions=functions, samples=samples)

        slower = AddedTime(before_ns=40e6, after_ns=48e6, error=0.001)
        assert "lucky" not in named(explain.slower_functions(side(2), side(3), slower))

    def test_false_names_are_rare(self) -> None:
        """Two samplings of the same program, whose time did not grow in any function of it but `body`'s own."""
        wrong = 0
        for seed in range(60):
            stacks = [(0.4, "body"), *((0.1, f"body f{number}") for number in range(6))]
            grown = [(0.4 + 0.2, "body"), *stacks[1:]]
            time = AddedTime(before_ns=40e6, after_ns=48e6, error=0.0)
            found = explain.slower_functions(profile(*stacks, seed=seed), profile(*grown, seed=seed + 999), time)
            wrong += bool(found.parts) and set(named(found)) != {"body"}
        assert wrong <= 3


def launched(
    order: int,
    *,
    work_ms: float,
    start_ms: float = 1.0,
    gil: float = 0.0,
    waited: float = 0.0,
    native: float = 0.0,
    samples: int = 100,
) -> Launch:
    """A launch that was timed, probed and sampled all at once."""
    one = iteration(start_ms + work_ms, start=start_ms / (start_ms + work_ms), join=0.0)
    locks = probed(order, waited, workers=8).locks
    assert locks is not None
    return Launch(
        order=order,
        iterations=(one,) * 4,
        waits=Waits(
            span_s=1.0,
            running_s=1 - gil - native,
            gil_s=gil,
            futex_s=native,
            native={"push (fast.so)": 1.0},
            samples=samples,
            watched_s=1.0,
        ),
        locks=msgspec.structs.replace(locks, sites=locks.sites[:1]),
    )


def sample(reference: Sample | None = None, *, work_ms: float, deviation: float = 0.005, **of: Any) -> Sample:
    drawn = random.Random(work_ms)
    works_ms = [work_ms * drawn.lognormvariate(0, deviation) for _ in range(5)]
    launches = tuple(launched(order, work_ms=one_ms, **of) for order, one_ms in enumerate(works_ms))
    of_cell = cell("t.py::test", "3.14t", "threads", 8)
    sides: dict[str, Any] = {"locks": launches, "memory": launches, "reference": reference}
    return sample_of(launches, of_cell, interpreter=FREE_THREADED, **sides)


class TestMovements:
    def test_what_moved_is_there_and_what_did_not_is_not(self) -> None:
        before = sample(work_ms=10.0, gil=0.05, waited=0.01)
        after = sample(before, work_ms=20.0, gil=0.4, waited=0.3, start_ms=3.0)
        found = explain.moved(after, before)
        assert {each.name for each in found.shares} == {"gil", "running"}
        assert [each.name for each in found.sites] == ["work.py:7 Lock"]
        assert found.sites[0].after == pytest.approx(0.3)
        assert [(each.name, each.before, each.after) for each in found.phases] == [("start", 1e6, 3e6)]

    def test_a_function_of_native_code_that_waits_more_is_named(self) -> None:
        before = sample(work_ms=10.0)
        found = explain.moved(sample(before, work_ms=10.0, native=0.3), before)
        shares = {each.name: (each.before, each.after) for each in found.shares}
        assert shares == {"running": (1.0, 0.7), "unattributed": (0.0, 0.3), "in push (fast.so)": (0.0, 0.3)}

    @pytest.mark.parametrize(("samples", "told"), [(1, False), (2, False), (12, True), (100, True)])
    def test_a_state_that_few_samples_saw_has_not_moved(self, samples: int, told: bool) -> None:
        """All launches of a side may agree: each has seen the same few moments."""
        before = sample(work_ms=10.0, samples=samples)
        found = explain.moved(sample(before, work_ms=10.0, native=0.3, samples=samples), before)
        assert ("unattributed" in {each.name for each in found.shares}) is told

    def test_the_same_twice_has_no_movement(self) -> None:
        before = sample(work_ms=10.0, gil=0.05, waited=0.01)
        assert explain.moved(before, before) == Explanation()
        assert explain.moved(before, None) == Explanation()

    def test_time_grew_only_beyond_its_noise(self) -> None:
        before = sample(work_ms=10.0)
        slower = explain.added_time(sample(work_ms=12.0), before)
        assert slower is not None
        assert slower.grew
        assert slower.after_ns - slower.before_ns == pytest.approx(2e6, rel=0.1)
        noisy = explain.added_time(sample(work_ms=10.1, deviation=0.2), sample(work_ms=10.0, deviation=0.2))
        assert noisy is not None
        assert not noisy.grew
        assert explain.added_time(before, before.with_launches("time", [])) is None

    def test_the_time_of_roles_that_end_after_the_leader_is_that_of_the_work(self) -> None:
        def side(join: float, roles: tuple[tuple[str, int], ...]) -> Sample:
            launches = [
                Launch(order=order, iterations=(iteration(10 + join, start=0, join=join / (10 + join)),))
                for order in (0, 1)
            ]
            return sample_of(launches, msgspec.structs.replace(cell("t.py::test", "3.14t", "threads", 2), roles=roles))

        for roles, added in (((("producer", 1), ("writer", 1)), 5e6), ((), 0.0)):
            time = explain.added_time(side(6.0, roles), side(1.0, roles))
            assert time is not None
            assert time.after_ns - time.before_ns == pytest.approx(added)


# -- held memory, imports --------------------------------------------------------------------------------------------

MIB = float(1 << 20)


def loads(*lines: Held, modules: tuple[str, ...] = (), imports: tuple[Import, ...] = ()) -> Loads:
    return Loads(lines=lines, modules=modules, imports=imports)


def held(
    size: float, text: str = "BALLAST = load()", line: int = 3, *, error: float = 0.0, left: float | None = 0.0
) -> Held:
    return Held(file="work.py", line=line, text=text, bytes=size, error=error, left=left)


def imported(name: str, own_ms: float, all_ms: float, importer: str = "") -> Import:
    return Import(name=name, own_ns=round(own_ms * 1e6), all_ns=round(all_ms * 1e6), importer=importer)


class TestHeldLines:
    def test_the_line_that_holds_more_is_named_where_it_stands_now_and_others_are_not(self) -> None:
        before = loads(held(MIB), held(2 * MIB, "rest()", 9), modules=("json",))
        after = loads(held(8 * MIB, line=5), held(2.5 * MIB, "rest()", 11), modules=("json", "ssl"))
        found = explain.held_lines(before, after, "memory", 8 * MIB)
        assert found.parts == (
            Part(file="work.py", line=5, name="BALLAST = load()", before=MIB, after=8 * MIB, added=7 * MIB),
        )
        assert (found.of, found.added, found.modules, found.unknown) == ("memory", 8 * MIB, ("ssl",), "")

    def test_a_line_that_is_new_holds_all_that_it_holds(self) -> None:
        found = explain.held_lines(loads(), loads(held(8 * MIB)), "memory", 9 * MIB)
        assert [(each.before, each.added) for each in found.parts] == [(0.0, 8 * MIB)]

    @pytest.mark.parametrize("after", [held(MIB * 1.1), held(9 * MIB, error=4 * MIB)], ids=["little", "scatter"])
    def test_what_holds_little_more_or_scatters_is_not_named(self, after: Held) -> None:
        found = explain.held_lines(loads(held(MIB)), loads(after), "memory", 8 * MIB)
        assert found.parts == ()
        assert found.unknown.startswith("no line of Python holds a fifth of it")

    def test_growth_is_of_what_each_call_leaves_behind(self) -> None:
        before = loads(held(90 * MIB, "CACHE = fill()"), held(0, "HELD.append(x)", 8))
        after = loads(held(99 * MIB, "CACHE = fill()"), held(6e6, "HELD.append(x)", 8, left=65_000.0))
        found = explain.held_lines(before, after, "growth", 65_536.0)
        assert [(each.name, each.after) for each in found.parts] == [("HELD.append(x)", 65_000.0)]

    def test_growth_that_was_not_traced_is_not_known(self) -> None:
        side = loads(held(MIB, left=None))
        assert "was not traced" in explain.held_lines(side, side, "growth", 65_536.0).unknown


class TestImports:
    def test_what_came_is_named_once_with_all_that_it_imports(self) -> None:
        before = loads(imports=(imported("work", 20, 50), imported("json", 30, 30, "work")))
        after = loads(
            imports=(
                imported("work", 21, 300),
                imported("json", 31, 31, "work"),
                imported("asyncio", 90, 240, "work"),
                imported("ssl", 150, 150, "asyncio"),
            )
        )
        found = explain.slower_imports(before, after, 252e6)
        assert [(each.name, each.file, each.added) for each in found.parts] == [("asyncio", "work", 240e6)]
        assert found.modules == ("asyncio", "ssl")

    def test_a_module_that_takes_longer_by_itself_is_named_and_one_above_it_is_not(self) -> None:
        before = loads(imports=(imported("work", 20, 50), imported("tables", 30, 30, "work")))
        after = loads(imports=(imported("work", 21, 251), imported("tables", 230, 230, "work")))
        found = explain.slower_imports(before, after, 210e6)
        assert [(each.name, each.before, each.after) for each in found.parts] == [("tables", 30e6, 230e6)]

    def test_without_one_it_is_said(self) -> None:
        side = loads(imports=(imported("work", 20, 50),))
        assert explain.slower_imports(side, side, 100e6).unknown == "no import takes a fifth of it"


# -- the pages of a parent ---------------------------------------------------------------------------------------------


class TestUnshared:
    def test_the_copies_of_the_workers_count_with_what_is_left_to_their_parent(self) -> None:
        before, after = forked(2.0, 2.1), forked(12.0, 12.1, parents_mib=14.5)
        (found,) = explain.unshared(after, before, 15.0 * MIB)
        assert (found.name, found.file, found.line) == ("unshared", "", 0)
        assert (found.before, found.after) == pytest.approx((2.05 * MIB, 12.05 * MIB), abs=2)
        assert found.added == pytest.approx(14.5 * MIB, abs=2)

    def test_of_its_growth_the_parent_was_left_with_no_more_than_a_worker_has_copied(self) -> None:
        (found,) = explain.unshared(forked(12.0, 12.0, parents_mib=60.0), forked(2.0, 2.0), 60.0 * MIB)
        assert found.added == pytest.approx(15.0 * MIB, abs=2)
        (found,) = explain.unshared(forked(12.0, 12.0, parents_mib=1.0), forked(2.0, 2.0), 12.0 * MIB)
        assert found.added == pytest.approx(10.0 * MIB, abs=2), "a parent that shrank takes nothing off"

    @pytest.mark.parametrize(
        ("after", "before", "added_mib"),
        [
            (forked(2.2, 2.1), forked(2.0, 2.1), 0.2),  # within the noise
            (forked(2.0, 2.0), forked(12.0, 12.0), 10.0),  # fewer
            (forked(12.0, 12.0), forked(2.0, 2.0), 80.0),  # not a fifth
            (forked(None, None), forked(None, None), 10.0),  # another system
            (forked(12.0, 12.0), forked(2.0, 2.0), -1.0),  # nothing was added
        ],
    )
    def test_it_is_silent_where_they_do_not_explain_it(self, after: Sample, before: Sample, added_mib: float) -> None:
        assert explain.unshared(after, before, added_mib * MIB) == ()

    def test_of_what_is_stored_the_copies_of_the_workers_count_alone(self) -> None:
        before = entry(forked(2.0, 2.0))
        (found,) = explain.unshared(forked(12.0, 12.0, parents_mib=15.0), before, 15.0 * MIB)
        assert (found.before, found.after, found.added) == pytest.approx((2.0 * MIB, 12.0 * MIB, 10.0 * MIB), rel=1e-4)

    def test_a_side_that_forks_nothing_shares_nothing(self) -> None:
        for before in (None, forked(None, None)):
            (found,) = explain.unshared(forked(12.0, 12.0), before, 12.0 * MIB)
            assert (found.before, found.after) == (0.0, 12.0 * MIB)


# -- of which kind ---------------------------------------------------------------------------------------------------


def test_each_metric_is_explained_by_its_own_kind_and_nothing_of_time_is_said_of_memory() -> None:
    kinds = {name: explain.kind_of(name) for name in metrics.NAMES}
    assert {name for name, kind in kinds.items() if kind == "memory"} == {"uss", "pss", "rss", "unshared", "peak"}
    assert {"wall", "tail", "cpu", "work", "scaling"} <= {name for name, kind in kinds.items() if kind == "time"}
    assert {"lock_wait", "queue_wait", "gil_wait"} <= {name for name, kind in kinds.items() if kind == "waits"}
    assert (kinds["growth"], kinds["start"]) == ("growth", "start")
    assert (kinds["payload"], kinds["dispatch_p95"], kinds["task_work"]) == ("payload", "dispatch", "time")
    before = sample(work_ms=10.0, gil=0.05, waited=0.01)
    moved = explain.moved(sample(before, work_ms=20.0, gil=0.4, waited=0.3, start_ms=3.0), before)
    assert explain.of_kinds(moved, ["memory", "growth"]) == Explanation()
    assert explain.of_kinds(moved, ["waits"]) == Explanation(sites=moved.sites, shares=moved.shares)
    assert explain.of_kinds(moved, ["time"]) == moved


@pytest.mark.parametrize(
    ("decision", "expected"), [(Decision.REGRESSED, ["memory"]), (Decision.BROKEN, ["time", "growth"])]
)
def test_what_fails_has_its_kinds(decision: Decision, expected: list[str]) -> None:
    judged = [
        MetricVerdict(metric="uss", decision=Decision.REGRESSED),
        MetricVerdict(metric="wall", decision=Decision.PASSED),
        MetricVerdict(metric="contract", decision=Decision.BROKEN, contract="scaling >= 1.5"),
        MetricVerdict(metric="contract", decision=Decision.BROKEN, contract="growth < 1 KiB"),
        MetricVerdict(metric="contract", decision=Decision.BROKEN, contract="gil == off"),
    ]
    assert explain.kinds_of(Verdict(decision=decision, metrics=tuple(judged))) == expected


# -- what a pool carries ---------------------------------------------------------------------------------------------


def pooled(to_us: float = 100.0, **counters: float) -> Sample:
    """Observed launches of ten tasks, whose way back takes 50 us; launches differ by 1 %."""

    def timer(us: float, order: int) -> Timer:
        ns = round(us * (1000 + 10 * (order % 2)))
        return Timer(count=1, total_ns=ns, max_ns=ns)

    of = {"payload": 10 * sum(counters.values()), "payload tasks": 10.0}
    of |= {f"payload {name}": 10 * size for name, size in counters.items()}
    return sample_of(
        observed=[
            Launch(
                order=order, counters=of, timers={"dispatch to": timer(to_us, order), "dispatch back": timer(50, order)}
            )
            for order in range(4)
        ],
    )


def test_the_argument_that_grew_is_named_with_its_types_also_where_the_function_is_another() -> None:
    before = pooled(**{"argument 1 of count: int": 5, "result of count: int": 5, "function of count: function": 30})
    now = {"argument 1 of count_in: tuple": 1e6, "argument 1 of count_in: int": 5, "result of count_in: int": 6}
    found = explain.carried(pooled(**now), before)
    assert found.added == pytest.approx(1e6 - 29)
    (part,) = found.parts
    assert (part.name, part.before, part.after) == ("argument 1 of count_in, int -> tuple", 5, 1e6 + 5)
    (alone,) = explain.carried(pooled(**now), None).parts
    assert (alone.name, alone.before) == ("argument 1 of count_in, tuple", 0)
    assert explain.carried(before, before).unknown


def test_the_way_that_takes_longer_is_named() -> None:
    (leg,) = explain.slower_legs(pooled(to_us=200), pooled()).parts
    assert (leg.name, round(leg.before), round(leg.after)) == ("dispatch to", 100_500, 201_000)
    assert explain.slower_legs(pooled(), pooled()).unknown
    assert len(explain.slower_legs(pooled(), None).parts) == 2
