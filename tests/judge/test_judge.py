"""What a decision still needs, the verdict on each basis, and what the machine puts in doubt."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_launcher import MIB, MS, group_of, spec_of
from report_by_hand import told
from values import entry, held, probed, read, sample_of, timed

from pytest_ftgate.judge import judge as judge_module
from pytest_ftgate.judge import metrics
from pytest_ftgate.judge.figures import figures
from pytest_ftgate.judge.judge import (
    HOPELESS_ROUNDS,
    LEAST_ROUNDS,
    ComparedWith,
    Judge,
    Policy,
    hypotheses,
)
from pytest_ftgate.judge.values import TestValues, Values, figure_of
from pytest_ftgate.kit.values import Interval, Metric, Threshold
from pytest_ftgate.model.sample import EVERYTHING, IN_PAIRS, Barrier, Launch, LockWaits, Need, Sample, WorkloadError
from pytest_ftgate.model.spec import Cell, DeclaredContract, Spec
from pytest_ftgate.model.verdict import BasisKind, Decision, MetricVerdict, Verdict
from pytest_ftgate.report.reasons import of_cell, of_metric
from pytest_ftgate.stats import alpha_spending

POLICY = Policy(metrics=metrics.GATING, cli=(), ini=(), alpha=0.01 / 4, beta=alpha_spending.BETA, probe_cost=0.25)
THREADS, FORK = group_of("threads", "fork").cells
AGAINST = ComparedWith(basis="paired", why="--ftgate-against main", baseline="main (1eb3b87)", commit="1eb3b87")


def cells_of(
    *counts: int, executors: tuple[str, ...] = ("threads",), targets: tuple[str, ...] = ("3.14",)
) -> list[Cell]:
    groups = [group_of(spec=spec_of(*executors, workers=count), targets=targets) for count in counts]
    return [cell for group in groups for cell in group.cells]


def declared(*texts: str, executors: tuple[str, ...] = ("threads", "fork"), counts: tuple[int, ...] = (2,)) -> Spec:
    """A test with these contracts."""
    return msgspec.structs.replace(
        spec_of(*executors), workers=counts, contracts=tuple(DeclaredContract(text=text) for text in texts)
    )


class Side:
    """The launches of one side of a cell; every figure scatters by `noise` between launches."""

    def __init__(self, seed: str, workers: int) -> None:
        self.rng = random.Random(seed)
        self.workers = workers

    def times(self, rounds: int, wall_ns: float, noise: float, iterations: int = 12) -> list[Launch]:
        walls = [wall_ns * self.rng.lognormvariate(0, noise) for _ in range(rounds)]
        return [
            timed(order, [round(wall * self.rng.lognormvariate(0, 1e-4)) for _ in range(iterations)])
            for order, wall in enumerate(walls)
        ]

    def memory(self, rounds: int, uss_bytes: float, noise: float) -> list[Launch]:
        return [held(order, round(uss_bytes * self.rng.lognormvariate(0, noise))) for order in range(rounds)]

    def locks(self, rounds: int, share: float, noise: float) -> list[Launch]:
        return [probed(order, share * self.rng.lognormvariate(0, noise), self.workers) for order in range(rounds)]


def measured(
    cell: Cell = THREADS,
    rounds: int = 6,
    *,
    wall: float = 1.0,
    uss: float = 1.0,
    share: float = 0.0,
    noise: float = 0.002,
    seed: str = "new",
    control: bool = False,
    memory: int | None = None,
    locks: int | None = None,
    **fields: Any,
) -> Sample:
    """A sample of so many rounds: `wall` and `uss` are factors; `memory` and `locks` are other numbers of rounds."""
    side = Side(f"{seed}/{cell.nodeid}", cell.workers)
    return sample_of(
        side.times(rounds, 20 * MS * wall, noise),
        cell,
        control=side.times(rounds, 10 * MS, 1e-4) if control else [],
        memory=side.memory(rounds if memory is None else memory, 20 * MIB * uss, noise),
        locks=side.locks(rounds if locks is None else locks, share, noise),
        **fields,
    )


def with_reference(sample: Sample, **fields: Any) -> Sample:
    """The sample with its reference, of as many rounds."""
    rounds = {"rounds": len(sample.launches), "memory": len(sample.of("memory")), "locks": len(sample.of("locks"))}
    reference = measured(sample.cell, **{"seed": "reference", **rounds, **fields})
    return msgspec.structs.replace(sample, reference=reference)


def judge_of(
    *samples: Sample,
    spec: Spec | None = None,
    policy: Policy = POLICY,
    compared_with: ComparedWith = AGAINST,
    all_compared: Mapping[str, ComparedWith] | None = None,
    fixed: int | None = None,
) -> Judge:
    known = all_compared or {sample.cell.nodeid: compared_with for sample in samples}
    return Judge(spec or declared(), policy, known, fixed)


def need(*samples: Sample, **fields: Any) -> list[frozenset[str]]:
    """What each of the samples still needs."""
    needs = judge_of(*samples, **fields).needs(samples)
    assert set(needs) == {sample.cell.nodeid for sample in samples}
    return [needs[sample.cell.nodeid] for sample in samples]


def stored(sample: Sample | Values) -> ComparedWith:
    """A standing at what is stored of a cell, as on three days: one says little of what computes."""
    return ComparedWith(
        basis="stored", entry=entry(sample, sample, sample), baseline="baselines/x.json (monday)", commit="1eb3b87"
    )


def by_metric(verdict: Verdict) -> dict[str, MetricVerdict]:
    return {each.metric: each for each in verdict.metrics}


NOTHING: frozenset[str] = frozenset()
OBSERVED: frozenset[Need] = frozenset({"observed"})
PAIRED, ALONE = IN_PAIRS - OBSERVED, EVERYTHING - OBSERVED
"""What gates by default needs."""


# -- while measuring -----------------------------------------------------------------------------------------------


class TestNeeds:
    def test_each_kind_of_launch_stops_when_its_metrics_are_decided(self) -> None:
        # Memory and shares that are alike pass at three rounds, times at five.
        assert need(with_reference(measured(rounds=2))) == [PAIRED]
        assert need(with_reference(measured(rounds=3))) == [{"time"}]
        assert need(with_reference(measured(rounds=5))) == [NOTHING]

    def test_what_is_obvious_stops_after_a_few_rounds(self) -> None:
        """A lock wait of 45 % against none needs no twelve launches, and a time that has doubled no five."""

        def worse(rounds: int) -> list[frozenset[str]]:
            return need(with_reference(measured(rounds=rounds, wall=2.0, uss=1.5, share=0.45), share=0.0))

        assert worse(3) == [{"memory", "locks"}]
        assert worse(5) == [NOTHING]
        better = with_reference(measured(rounds=3, wall=0.5, uss=0.5, share=0.0), share=0.45)
        assert need(better) == [NOTHING]

    def test_memory_between_its_limits_goes_on_alone(self) -> None:
        assert need(with_reference(measured(rounds=8, uss=1.042))) == [{"memory"}]

    def test_waits_between_their_limits_go_on_alone(self) -> None:
        assert need(with_reference(measured(rounds=8, share=0.157), share=0.10)) == [{"locks"}]

    def test_time_between_its_limits_goes_on_alone(self) -> None:
        assert need(with_reference(measured(rounds=8, wall=1.035))) == [{"time"}]

    def test_a_metric_that_does_not_gate_needs_nothing(self) -> None:
        time_alone = msgspec.structs.replace(POLICY, metrics=(Metric.WALL,))
        assert need(with_reference(measured(rounds=8, uss=1.042)), policy=time_alone) == [NOTHING]

    def test_nothing_is_needed_after_the_most(self) -> None:
        # At seven rounds nothing of this is decided, whatever level may be spent.
        undecided = with_reference(measured(rounds=7, wall=1.035, uss=1.042, share=0.157), share=0.10)
        assert need(undecided) == need(undecided, fixed=20) == [PAIRED - {"growth"}]
        assert need(undecided, fixed=7) == [NOTHING]

    def test_stored_figures_need_fewer_rounds_than_pairs(self) -> None:
        """One test may have both."""
        alone = measured(rounds=12, wall=1.12, noise=0.05, control=True)
        beside = with_reference(measured(FORK, 12, wall=1.035, noise=0.05))
        known = {THREADS.nodeid: stored(measured(rounds=5, control=True)), FORK.nodeid: AGAINST}
        of_stored, of_pairs = need(alone, beside, all_compared=known)
        assert of_stored == NOTHING
        assert "time" in of_pairs

    def test_a_cell_without_a_launch_needs_all_that_gates(self) -> None:
        compared_with = stored(measured(rounds=5, control=True))
        assert need(sample_of(), compared_with=compared_with) == [ALONE]
        assert need(msgspec.structs.replace(sample_of(), reference=sample_of())) == [PAIRED]

    def test_memory_launches_count_where_they_are_more(self) -> None:
        held_long = with_reference(measured(rounds=6, memory=7, uss=1.042))
        assert need(held_long, fixed=20) == [{"memory"}]
        assert need(held_long, fixed=7) == [NOTHING]

    def test_a_cell_that_failed_needs_nothing(self) -> None:
        young = with_reference(measured(rounds=2))
        failed = msgspec.structs.replace(young, error=WorkloadError(reason="ValueError"))
        other = with_reference(measured(FORK, 2))
        assert need(failed, other) == [NOTHING, PAIRED]
        assert need(msgspec.structs.replace(young, unsupported="no fork"), other) == [NOTHING, PAIRED]

    @pytest.mark.parametrize(
        "reference", [{"error": WorkloadError(reason="old")}, {"unsupported": "too old"}], ids=["error", "unsupported"]
    )
    def test_with_nothing_to_compare_there_are_enough_rounds_for_figures(self, reference: dict[str, Any]) -> None:
        bare = measured(rounds=LEAST_ROUNDS - 1)
        more = measured(rounds=LEAST_ROUNDS)
        for nothing in (ComparedWith(why="nothing is stored for it"), AGAINST):
            ended = {} if nothing.why != AGAINST.why else {"reference": sample_of(**reference)}
            young, old = (msgspec.structs.replace(sample, **ended) for sample in (bare, more))
            shown = EVERYTHING if young.reference is None else IN_PAIRS
            assert need(young, compared_with=nothing) == [shown]
            assert need(old, compared_with=nothing) == [NOTHING]
            contract = declared("wall < 1 s", executors=("threads",))
            assert need(young, compared_with=nothing, spec=contract) == [NOTHING], "figures of the rounds there are"

    def test_what_would_change_no_figure_is_not_repeated(self) -> None:
        """Without a comparison: locks that nobody waits for, growth after three launches, memory that is steady."""

        def repeated(
            rounds: int, *, rests: float = 0.7, apart: float = 0.0, share: float = 0.0, **policy: Any
        ) -> set[str]:
            alone, memory = measured(rounds=rounds, noise=1e-4, locks=0), list[Launch]()
            for number, each in enumerate(alone.of("memory")):
                point = held(0, round(20 * MIB * rests * (1 + apart * number))).memory[0]
                memory.append(msgspec.structs.replace(each, barriers=(Barrier(ops=2, point=point),)))
            unwaited = [msgspec.structs.replace(each, locks=LockWaits(work_ns=1, ops=1)) for each in alone.of("memory")]
            locks = [probed(order, share) for order in range(rounds)] if share else unwaited
            shown = alone.with_launches("memory", memory).with_launches("growth", memory).with_launches("locks", locks)
            judge = judge_of(shown, compared_with=nothing, policy=msgspec.structs.replace(POLICY, **policy))
            (found,) = judge.needs([shown]).values()
            assert judge.needs_of_figures([shown]) == {shown.cell.nodeid: found}
            return set(found & {"memory", "growth", "locks"})

        nothing = ComparedWith(why="nothing is stored for it")
        assert repeated(1) == repeated(2) == {"memory", "growth"}
        assert repeated(3) == set()
        assert repeated(3, rests=1.4) == repeated(3, apart=0.009) == set(), "less at rest than at work, as in forks"
        assert repeated(3, apart=0.011) == repeated(4, apart=-0.01) == {"memory"}
        assert repeated(3, share=0.2) == {"locks"}
        assert repeated(3, metrics=(Metric.WALL, "gil_wait")) == {"memory"}, "its samples are of the same launches"

    def test_an_entry_of_something_else_is_nothing_to_compare(self) -> None:
        pooled = entry(msgspec.structs.replace(measured(control=True), reuse="pool"))
        other = ComparedWith(basis="stored", entry=pooled)
        assert need(measured(rounds=4, control=True), compared_with=other) == [EVERYTHING]
        assert need(measured(rounds=5, control=True), compared_with=other) == [NOTHING]

    def test_a_metric_that_never_comes_is_given_up(self) -> None:
        compared_with = stored(measured(rounds=12, control=True, seed="old"))

        def unseen(rounds: int) -> list[frozenset[str]]:
            return need(measured(rounds=rounds, memory=0, control=True), compared_with=compared_with)

        assert unseen(HOPELESS_ROUNDS - 1) == [ALONE - {"growth"}]
        assert "memory" not in unseen(HOPELESS_ROUNDS)[0]
        assert "time" in unseen(HOPELESS_ROUNDS)[0]

    def test_one_that_comes_on_neither_side_is_given_up_too(self) -> None:
        def unseen(rounds: int) -> list[frozenset[str]]:
            return need(with_reference(measured(rounds=rounds, memory=0)))

        assert unseen(HOPELESS_ROUNDS - 1) == [PAIRED]
        assert "memory" not in unseen(HOPELESS_ROUNDS)[0]

    def test_what_is_open_beside_a_regression_needs_nothing(self) -> None:
        assert need(with_reference(measured(rounds=8, wall=2.0, uss=1.042))) == [NOTHING]

    def test_beside_a_time_that_is_about_to_regress_only_what_is_worse_is_measured_on(self) -> None:
        policy = msgspec.structs.replace(POLICY, metrics=(Metric.WALL, Metric.USS))

        def after_one(wall: float, uss: float = 1.0) -> list[frozenset[str]]:
            return need(with_reference(measured(rounds=1, wall=wall, uss=uss)), policy=policy)

        assert after_one(10.0) == [{"time"}]
        assert after_one(10.0, uss=3.0) == [{"time", "memory"}]
        assert after_one(1.2) == [{"time", "memory"}], "which may be noise"

    def test_what_has_probably_regressed_too_is_measured_on(self) -> None:
        """Memory had, and was accepted; the next run failed by the time, which had been 22 % slower all along."""

        def beside(rounds: int, wall: float, noise: float = 0.03) -> list[frozenset[str]]:
            sample = with_reference(measured(rounds=rounds, wall=wall, uss=3.0, noise=noise, seed="newb"))
            judge = judge_of(sample)
            (needed,) = judge.needs([sample]).values()
            decisions = {each.metric: each.decision for each in judge.so_far(sample.cell).verdict.metrics}
            assert decisions[Metric.USS] is Decision.REGRESSED
            assert (decisions[Metric.WALL] is Decision.REGRESSED) == (wall == 1.22 and rounds == 5)
            return [needed]

        assert beside(3, 1.22) == [{"time"}], "the estimate is beyond the effect"
        assert beside(5, 1.22) == [NOTHING]
        assert beside(3, 1.02) == [NOTHING], "it is not"
        assert beside(3, 1.3, noise=0.2) == [NOTHING], "a few rounds do not decide it"


class TestNeedsOfScaling:
    ONE, FOUR, OTHER = cells_of(1, 4)[0], cells_of(1, 4)[1], cells_of(1, executors=("fork",))[0]

    def scaled(self, rounds: int, single: float) -> list[Sample]:
        """A cell of four workers whose scaling is `single` times what it was; all other figures are as they were."""
        side, before = (Side(f"{seed}/single", 1) for seed in ("new", "old"))
        reference = measured(self.ONE, rounds).with_launches("time", before.times(rounds, 20 * MS, 0.002))
        one = measured(self.ONE, rounds, reference=reference)
        one = one.with_launches("time", side.times(rounds, 20 * MS * single, 0.002))
        return [one, with_reference(measured(self.FOUR, rounds)), with_reference(measured(self.OTHER, rounds))]

    def test_the_one_worker_cell_stays_for_the_scaling_of_another(self) -> None:
        spec = declared(executors=("threads", "fork"), counts=(1, 4))
        policy = msgspec.structs.replace(POLICY, metrics=(*metrics.GATING, Metric.SCALING))
        assert need(*self.scaled(8, 1.0), spec=spec, policy=policy) == [NOTHING] * 3
        assert need(*self.scaled(8, 0.965), spec=spec, policy=policy) == [{"time"}, {"time"}, NOTHING]
        assert need(*self.scaled(8, 0.965), spec=spec, policy=policy, fixed=8) == [NOTHING] * 3

    def test_not_where_scaling_does_not_gate(self) -> None:
        """As by default: it explains."""
        assert need(*self.scaled(8, 0.965)) == [NOTHING] * 3


class TestNeedsOfContracts:
    def test_one_keeps_the_cells_that_it_names(self) -> None:
        spec = declared("threads.wall < 1.0005 * processes[fork].wall")
        samples = [with_reference(measured(cell, 6)) for cell in (THREADS, FORK)]
        assert need(*samples, spec=declared()) == [NOTHING, NOTHING]
        assert need(*samples, spec=spec) == [{"time"}, {"time"}]
        assert need(*samples, spec=declared("threads.wall < 2 * processes[fork].wall")) == [NOTHING, NOTHING]

    def test_one_about_memory_needs_memory(self) -> None:
        samples = [with_reference(measured(cell, 6)) for cell in (THREADS, FORK)]
        assert need(*samples, spec=declared("threads.uss < 1.0005 * processes[fork].uss")) == [{"memory"}] * 2
        assert need(*samples, spec=declared("processes[fork].uss < 20 MiB")) == [NOTHING, {"memory"}]

    def test_one_takes_as_many_rounds_as_a_paired_cell_where_stored_figures_have_few(self) -> None:
        compared_with = stored(measured(rounds=12, control=True, seed="old"))
        samples = [measured(cell, 20, control=True) for cell in (THREADS, FORK)]
        all_compared = {THREADS.nodeid: compared_with, FORK.nodeid: ComparedWith(why="nothing is stored for it")}
        spec = declared("threads.wall < 1.0005 * processes[fork].wall")
        assert need(*samples, spec=spec, all_compared=all_compared) == [{"time"}, {"time"}]
        assert need(*samples, spec=declared(), all_compared=all_compared) == [NOTHING, NOTHING]
        assert need(*samples, spec=spec, all_compared=all_compared, fixed=20) == [NOTHING, NOTHING]

    def test_one_about_a_scaling_keeps_the_one_worker_cell(self) -> None:
        one, four = cells_of(1, 4)
        single = Side("single", 1).times(6, 20 * MS, 0.002)
        samples = [measured(one, 6).with_launches("time", single), measured(four, 6)]
        nothing = ComparedWith(why="nothing is stored for it")
        spec = declared("scaling > 4", executors=("threads",), counts=(1, 4))
        assert need(*samples, spec=spec, compared_with=nothing) == [{"time"}, {"time"}]
        easy = declared("scaling > 2", executors=("threads",), counts=(1, 4))
        assert need(*samples, spec=easy, compared_with=nothing) == [NOTHING, NOTHING]

    def test_one_with_a_cell_that_failed_is_given_up(self) -> None:
        spec = declared("threads.wall < 2 * processes[fork].wall")
        failed = sample_of(cell=FORK, error=WorkloadError(reason="ValueError"))
        nothing = ComparedWith(why="nothing is stored for it")
        assert need(measured(rounds=5), failed, spec=spec, compared_with=nothing) == [NOTHING, NOTHING]

    def test_one_whose_figure_never_comes_is_given_up(self) -> None:
        sample = with_reference(measured(rounds=6))
        assert need(sample, spec=declared("efficiency > 0.1", "cold < 1 s")) == [NOTHING]

    def test_one_about_memory_ends_with_its_launches(self) -> None:
        samples = [with_reference(measured(cell, 6, memory=7)) for cell in (THREADS, FORK)]
        spec = declared("threads.uss < 1.0005 * processes[fork].uss")
        assert need(*samples, spec=spec, fixed=8) == [{"memory"}, {"memory"}]
        assert need(*samples, spec=spec, fixed=7) == [NOTHING, NOTHING]

    def test_one_about_the_gil_is_settled_by_the_first_launch(self) -> None:
        sample = with_reference(measured(rounds=6))
        assert need(sample, spec=declared("gil == off", executors=("threads",))) == [NOTHING]


class TestFirst:
    def test_the_first_round_has_what_may_gate(self) -> None:
        def first(spec: Spec, *names: str, compared_with: ComparedWith = AGAINST) -> frozenset[Need]:
            policy = msgspec.structs.replace(POLICY, metrics=names)
            judge = judge_of(measured(), spec=spec, policy=policy, compared_with=compared_with)
            return judge.first([THREADS])[THREADS.nodeid]

        bare = declared()
        assert first(bare, *metrics.GATING) == PAIRED
        assert first(bare, *metrics.GATING, compared_with=stored(measured())) == ALONE
        assert first(bare, Metric.LOCK_WAIT, compared_with=stored(measured())) == {"time", "locks"}
        assert first(bare, "gap", compared_with=stored(measured())) == {"time", "observed", "control"}
        assert first(bare, Metric.WALL, Metric.SCALING) == {"time"}
        assert first(bare, Metric.USS) == {"time", "memory"}  # a memory launch's length is that of an iteration
        assert first(bare) == {"time"}
        assert first(declared("lock_wait < 0.2"), Metric.TAIL) == {"time", "locks"}
        assert first(declared("uss < 1 MiB", "threads.wall < 1 s")) == {"time", "memory"}

    def test_a_cell_is_observed_for_the_metrics_that_are_asked_for_and_that_it_can_have(self) -> None:
        def names(*wanted: str, contract: str = "wall < 1 s") -> list[str]:
            judge = judge_of(spec=declared(contract), policy=msgspec.structs.replace(POLICY, metrics=wanted))
            files, _ = judge.observers(THREADS)
            return [Path(file).stem for file in files]

        assert names(*metrics.GATING) == []
        assert names("gap", "collections", "neighbour_wait") == ["counts", "observer"]
        assert names("lag") == []  # threads have none
        assert names("wall", contract="threads.gc_pause < 1 ms") == ["pauses"]

    def test_a_pool_is_observed_at_a_glance_unless_its_times_are_asked_for(self) -> None:
        threads, fork = (msgspec.structs.replace(cell, body="executor") for cell in (THREADS, FORK))

        def observed(cell: Cell, *more: str, compared_with: ComparedWith = AGAINST) -> tuple[list[str], bool]:
            policy = msgspec.structs.replace(POLICY, metrics=(*metrics.GATING, *more))
            files, at_a_glance = judge_of(policy=policy, all_compared={cell.nodeid: compared_with}).observers(cell)
            return [Path(file).stem for file in files], at_a_glance

        assert observed(fork) == (["payload"], True)
        assert observed(fork, "dispatch") == (["legs", "payload"], False)
        assert observed(threads)[0] == []  # they pickle nothing
        assert observed(threads, compared_with=ComparedWith()) == (["legs", "payload"], False)

    def test_all_kinds_of_a_cell_that_is_compared_with_nothing_and_of_no_other(self) -> None:
        policy = msgspec.structs.replace(POLICY, metrics=(Metric.WALL,))
        all_compared = {THREADS.nodeid: AGAINST, FORK.nodeid: ComparedWith(why="the reference has no such test")}
        found = judge_of(policy=policy, all_compared=all_compared).first([THREADS, FORK])
        assert found == {THREADS.nodeid: {"time"}, FORK.nodeid: EVERYTHING}

    @pytest.mark.parametrize(
        ("contract", "threads", "fork"),
        [
            ("threads.wall < 2 * processes[fork].wall", {"time"}, {"time"}),
            ("processes[fork].uss < 20 MiB", {"time"}, {"time", "memory"}),
            ("threads.lock_wait < 0.2", {"time", "locks"}, {"time"}),
            ("processes[fork].growth < 1 MiB", {"time"}, {"time", "memory", "growth"}),
            ("threads.gil == off", {"time"}, {"time"}),
        ],
    )
    def test_in_a_test_with_contracts_what_those_name_and_the_time(
        self, contract: str, threads: set[Need], fork: set[Need]
    ) -> None:
        nothing = dict.fromkeys((THREADS.nodeid, FORK.nodeid), ComparedWith(why="nothing is stored for it"))
        judge = judge_of(spec=declared(contract), all_compared=nothing)
        assert judge.first([THREADS, FORK]) == {THREADS.nodeid: threads, FORK.nodeid: fork}

    def test_a_control_workload_where_a_contract_compares_with_it(self) -> None:
        one, four, other = *cells_of(1, 4), cells_of(1, executors=("fork",))[0]
        nothing = {cell.nodeid: ComparedWith(why="nothing is stored for it") for cell in (one, four, other)}
        spec = declared("threads.scaling > 0.5 * threads.ceiling", counts=(1, 4))
        found = judge_of(spec=spec, all_compared=nothing).first([one, four, other])
        assert [found[cell.nodeid] for cell in (one, four, other)] == [{"time", "control"}] * 2 + [{"time"}]


# -- verdicts ------------------------------------------------------------------------------------------------------


def verdict(sample: Sample, *others: Sample, **fields: Any) -> Verdict:
    samples = [sample, *others]
    return judge_of(*samples, **fields).verdict(TestValues(samples)[0])


class TestVerdict:
    def test_paired_with_its_reference(self) -> None:
        found = verdict(with_reference(measured(rounds=26, wall=1.2)))
        assert (found.decision, found.basis, found.why) == (Decision.REGRESSED, "paired", "--ftgate-against main")
        assert (found.baseline, found.commit) == (AGAINST.baseline, AGAINST.commit)
        assert of_cell(found).startswith("wall: +2")
        assert set(by_metric(found)) == {Metric.WALL, Metric.TAIL, Metric.USS, Metric.LOCK_WAIT}
        assert by_metric(found)[Metric.USS].decision is Decision.PASSED
        assert verdict(with_reference(measured(rounds=26))).decision is Decision.PASSED

    def test_each_side_has_its_own_figure_read_in_the_same_way(self) -> None:
        """Also of what is stored, whose times are compared over those of the control workload."""
        sample, old = with_reference(measured(rounds=26, wall=1.2)), measured(rounds=12, control=True, seed="old")
        assert sample.reference is not None
        new = measured(rounds=12, wall=3.0, control=True)
        for found, here, there in (
            (verdict(sample), sample, sample.reference),
            (verdict(new, compared_with=stored(old)), new, old),
        ):
            for metric, each in by_metric(found).items():
                assert each.now == pytest.approx(figure_of(metric, [read(here)]))
                assert each.was == pytest.approx(figure_of(metric, [read(there)]))
            wall = by_metric(found)[Metric.WALL]
            shown = figures(read(here), reference=None).wall_ns
            assert shown is not None
            assert wall.now == shown.value

    def test_beside_a_reference_stands_what_is_stored(self) -> None:
        sample, old = with_reference(measured(rounds=8)), measured(rounds=12, control=True, seed="old", wall=1.5)
        basis = msgspec.structs.replace(AGAINST, entry=entry(old))
        found = by_metric(verdict(sample, compared_with=basis))[Metric.WALL]
        assert found.decision is Decision.PASSED
        assert found.stored == pytest.approx(figure_of(Metric.WALL, [read(old)]))
        assert found.was == pytest.approx(figure_of(Metric.WALL, [read(sample.reference)]))  # type: ignore[arg-type]
        other = msgspec.structs.replace(AGAINST, entry=entry(msgspec.structs.replace(old, reuse="pool")))
        assert by_metric(verdict(sample, compared_with=other))[Metric.WALL].stored is None
        assert verdict(sample, compared_with=other).decision is Decision.PASSED, "pairs measure the same on both sides"
        alone = verdict(measured(rounds=12, control=True), compared_with=stored(old))
        assert by_metric(alone)[Metric.WALL].stored is None

    def test_the_written_part_of_one_side_never_stands_beside_the_whole_of_the_other(self) -> None:
        sample, old = (measured(rounds=12, control=True, seed=seed) for seed in ("new", "old"))
        part = [
            msgspec.structs.replace(
                launch,
                memory=tuple(msgspec.structs.replace(each, written_bytes=1000) for each in launch.memory),
            )
            for launch in sample.of("memory")
        ]
        found = by_metric(verdict(sample.with_launches("memory", part), compared_with=stored(old)))
        assert found[Metric.USS].now == pytest.approx(figure_of(Metric.USS, [read(sample)]))

    def test_an_executor_that_cannot_and_a_workload_that_fails(self) -> None:
        young = with_reference(measured(rounds=8))
        found = verdict(msgspec.structs.replace(young, unsupported="no fork here"))
        assert (found.decision, found.reason, found.metrics) == (Decision.UNSUPPORTED, "no fork here", ())
        error = WorkloadError(reason="ValueError: nine", detail="Traceback")
        found = verdict(msgspec.structs.replace(young, error=error))
        assert (found.decision, found.reason, found.metrics) == (Decision.ERROR, "ValueError: nine", ())

    @pytest.mark.parametrize(
        ("compared_with", "begun", "decision"),
        [
            (AGAINST, 1, Decision.ERROR),
            (AGAINST, 0, Decision.NOT_MEASURED),
            (ComparedWith(why="nothing is stored for it"), 1, Decision.NOT_MEASURED),
        ],
    )
    def test_without_a_launch_more_time_is_asked_for(
        self, compared_with: ComparedWith, begun: int, decision: Decision
    ) -> None:
        """What is compared and was begun fails: code that takes all the time by itself would pass the gate."""
        found = verdict(msgspec.structs.replace(sample_of(), begun=begun), compared_with=compared_with)
        assert found.decision is decision
        assert ("before the end of its first round" if begun else "before its turn came") in found.reason
        assert "--ftgate-time" in found.reason
        assert (found.metrics, found.why) == ((), compared_with.why)

    def test_no_baseline_says_why(self) -> None:
        sample = measured()
        reasons = {
            "nothing is stored for it": verdict(sample, compared_with=ComparedWith(why="nothing is stored for it")),
            "the reference cannot run it: needs 3.14": verdict(
                msgspec.structs.replace(sample, reference=sample_of(unsupported="needs 3.14"))
            ),
            "the reference fails: ValueError": verdict(
                msgspec.structs.replace(sample, reference=sample_of(error=WorkloadError(reason="ValueError")))
            ),
            "--ftgate-against main": verdict(msgspec.structs.replace(sample, reference=sample_of())),
            "the reference has no figures to compare": verdict(
                msgspec.structs.replace(sample, reference=sample_of()), compared_with=ComparedWith(basis="paired")
            ),
        }
        for reason, found in reasons.items():
            assert (found.decision, found.reason, found.basis) == (Decision.NO_BASELINE, reason, "")
            assert found.metrics == ()

    def test_what_was_decided_before_the_reference_failed_stays(self) -> None:
        def failing(rounds: int) -> Verdict:
            sample = with_reference(measured(rounds=rounds, wall=1.2))
            assert sample.reference is not None
            failed = msgspec.structs.replace(sample.reference, error=WorkloadError(reason="ValueError"))
            return verdict(msgspec.structs.replace(sample, reference=failed))

        assert failing(26).decision is Decision.REGRESSED
        assert failing(5).decision is Decision.REGRESSED
        young = failing(1)
        assert Metric.WALL not in by_metric(young)
        assert young.decision is Decision.NO_BASELINE
        assert young.reason == "the reference fails: ValueError"

    def test_what_more_pairs_take_is_said_at_the_pace_so_far(self) -> None:
        sample = with_reference(measured(rounds=2))
        began = (f"2026-01-02T03:04:{2 * launch.order:02}+00:00" for launch in sample.launches)
        dated = [msgspec.structs.replace(each, started_at=at) for each, at in zip(sample.launches, began, strict=True)]
        wall = by_metric(verdict(sample.with_launches("time", dated)))[Metric.WALL]
        assert wall.more is not None
        assert of_metric(wall).endswith(f" needs about {wall.more} more pairs, {2 * wall.more} s")
        assert of_metric(by_metric(verdict(sample))[Metric.WALL]).endswith(f" needs about {wall.more} more pairs")
        third = msgspec.structs.replace(dated[0], order=2, started_at="2026-01-02T03:04:04+00:00")
        paces = [read(sample.with_launches("time", each)).round_s for each in (dated[:1], dated, [*dated, third])]
        assert paces == [0.0, 2.0, 2.0]

    @pytest.mark.parametrize(
        ("body", "slow", "decision"),
        [
            (1.79, 3.0, Decision.PASSED),  # all of it is the body's own
            (1.79, 6.4, Decision.REGRESSED),
            (1.0, 6.4, Decision.REGRESSED),
            (1.79, 2.0, Decision.PASSED),  # shorter beside its body, and longer than before
            (0.6, 3.0 / 0.6, Decision.PASSED),  # the body alone became faster
            (1.05, 1.0, Decision.IMPROVED),
        ],
    )
    @pytest.mark.parametrize("basis", ["paired", "stored"])
    def test_a_tail_is_judged_for_what_it_adds_to_its_body(
        self, basis: BasisKind, body: float, slow: float, decision: Decision
    ) -> None:
        """Every fifth iteration takes `slow` times as long as the others, before it 3 times."""
        rng = random.Random(85)

        def launches(body: float, slow: float) -> list[Launch]:
            walls = ([body * rng.lognormvariate(0, 0.01) for _ in range(30)] for _ in range(12))
            slowed = ([wall * (1 if at % 5 else slow) for at, wall in enumerate(each)] for each in walls)
            return [timed(order, [round(20 * MS * wall) for wall in each]) for order, each in enumerate(slowed)]

        control = launches(0.5, 1.0)
        old, new = (sample_of(launches(*each), control=control) for each in ((1.0, 3.0), (body, slow)))
        if basis == "paired":
            found = verdict(msgspec.structs.replace(new, reference=old.with_launches("control", ())))
        else:
            found = verdict(new, compared_with=stored(old))
        tail = by_metric(found)[Metric.TAIL]
        if basis == "paired" or decision is Decision.PASSED:
            assert tail.decision is decision
        assert (tail.wall_growth > 1.03) == (body > 1)
        assert tail.decision is not Decision.IMPROVED or body * slow < 2.8

    def test_a_tail_that_is_decided_asks_for_no_more_iterations(self) -> None:
        def decided(rounds: int) -> bool:
            sample = with_reference(measured(rounds=rounds))
            judge = judge_of(sample)
            judge.needs([sample])
            return judge.tails_decided

        assert not decided(1)
        assert decided(8)

    def test_a_tail_of_too_few_turns_is_said(self) -> None:
        compared_with = stored(measured(rounds=12, control=True, seed="old"))
        sample = measured(rounds=12, control=True)
        short = [msgspec.structs.replace(launch, iterations=launch.iterations[:9]) for launch in sample.launches]
        found = verdict(sample.with_launches("time", short), compared_with=compared_with)
        assert Metric.TAIL not in by_metric(found)
        assert found.why.startswith("the tail was not judged: the budget allows fewer than 10 iterations")
        assert verdict(sample, compared_with=compared_with).why == ""

    def test_an_entry_of_something_else_is_no_baseline(self) -> None:
        pooled = entry(msgspec.structs.replace(measured(control=True), reuse="pool"))
        found = verdict(measured(control=True), compared_with=ComparedWith(basis="stored", entry=pooled))
        assert found.decision is Decision.NO_BASELINE
        assert "reuse was pool, is fresh" in found.reason

    def test_a_time_that_is_not_stored_does_not_pass_by_the_other_metrics(self) -> None:
        compared_with = stored(measured(rounds=12, seed="old"))
        found = verdict(measured(rounds=12, control=True), compared_with=compared_with)
        assert found.decision is Decision.INCONCLUSIVE
        wall = by_metric(found)[Metric.WALL]
        assert wall.launches == 12
        assert of_metric(wall).startswith("nothing is stored of it")
        assert by_metric(found)[Metric.USS].decision is Decision.PASSED

    def test_a_cell_that_is_its_reference_is_unchanged_and_its_contracts_are_judged(self) -> None:
        same = ComparedWith(same=True, why="it is the same as its reference")
        assert verdict(measured(), compared_with=same).decision is Decision.UNCHANGED
        broken = verdict(measured(rounds=20), compared_with=same, spec=declared("wall < 15 ms"))
        assert broken.decision is Decision.BROKEN

    def test_by_what_is_stored(self) -> None:
        compared_with = stored(measured(rounds=12, control=True, seed="old"))
        found = verdict(measured(rounds=12, control=True), compared_with=compared_with)
        assert (found.decision, found.basis, found.why) == (Decision.PASSED, "stored", "")
        assert (found.baseline, found.commit) == (compared_with.baseline, compared_with.commit)
        slower = verdict(measured(rounds=12, control=True, wall=2.0), compared_with=compared_with)
        assert slower.decision is Decision.REGRESSED

    def test_a_figure_that_is_gone_does_not_pass(self) -> None:
        compared_with = stored(measured(rounds=12, control=True, seed="old"))
        for name, metric, why in (
            ("memory", Metric.USS, "no sample was taken while all of its workers were held"),
            ("locks", Metric.LOCK_WAIT, "no launch of this run gave one"),
        ):
            lost = measured(rounds=12, control=True, **{name: 0})  # type: ignore[arg-type]
            found = verdict(lost, compared_with=compared_with)
            assert found.decision is Decision.INCONCLUSIVE
            assert of_cell(found) == f"{metric}: the reference has figures and this run has none: {why}"
            assert by_metric(found)[Metric.WALL].decision is Decision.PASSED

    def test_a_scaling_that_cannot_be_had_is_not_judged(self) -> None:
        four = cells_of(1, 4)[1]
        single = Side("single", 1).times(12, 20 * MS, 0.002)
        compared_with = stored(read(measured(four, 12, control=True, seed="old"), one_worker=single))
        policy = msgspec.structs.replace(POLICY, metrics=(*metrics.GATING, Metric.SCALING))
        named: dict[str, Any] = {"compared_with": compared_with, "policy": policy}
        one = sample_of(single, cells_of(1)[0])
        with_one = verdict(measured(four, 12, control=True), one, **named)
        alone = verdict(measured(four, 12, control=True), **named)
        assert set(by_metric(with_one)) - set(by_metric(alone)) == {Metric.SCALING}
        assert alone.decision is Decision.PASSED

    @pytest.mark.parametrize(
        ("new", "reference", "regressed"),
        [
            ([(20.1, 20.2)] * 4, [(17.4, 17.3)] * 4, True),
            # Seen of unchanged code that allocates and frees 3 MiB in each call, on a busy machine.
            ([(20.1, 18.8), (19.6, 20.9), (20.1,), (20.9, 20.8)], [(17.1, 20.1), (17.3,), (18.2,), (18.2,)], False),
        ],
    )
    def test_memory_that_moves_within_a_body_needs_more_samples(
        self, new: list[tuple[float, ...]], reference: list[tuple[float, ...]], regressed: bool
    ) -> None:
        new_side, old_side = (
            [held(order, *(round(MIB * each) for each in sampled)) for order, sampled in enumerate(side)]
            for side in (new, reference)
        )
        other = measured(rounds=4, seed="reference").with_launches("memory", old_side)
        sample = msgspec.structs.replace(measured(rounds=4).with_launches("memory", new_side), reference=other)
        found = by_metric(verdict(sample))[Metric.USS]
        assert found.decision.fails == regressed

    def test_what_looking_cost_refuses_its_metric_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        dear = Interval(value=1.4, low=1.35, high=1.45, level=0.95)
        sample = with_reference(measured(rounds=26, uss=1.5, share=0.3), share=0.1)
        for cost, metric in (("memory_cost", Metric.USS), ("lock_cost", Metric.LOCK_WAIT)):
            with monkeypatch.context() as patch:
                patch.setattr(Values, cost, dear)
                found = by_metric(verdict(sample))
            assert found[metric].decision is Decision.INCONCLUSIVE
            assert "ftgate_probe_cost" in of_metric(found[metric])
            others = {each.decision for each in found.values() if each.metric in (Metric.USS, Metric.LOCK_WAIT)}
            assert Decision.REGRESSED in others
        monkeypatch.setattr(Values, "memory_cost", dear)
        lenient = msgspec.structs.replace(POLICY, probe_cost=0.5)
        assert by_metric(verdict(sample, policy=lenient))[Metric.USS].decision is Decision.REGRESSED

    @pytest.mark.parametrize("basis", ["paired", "stored"])
    def test_a_lock_launch_that_failed_leaves_the_other_metrics_judged(self, basis: BasisKind) -> None:
        error = WorkloadError(reason="with the lock probe: hung")
        sample = msgspec.structs.replace(
            measured(rounds=26, uss=1.5, locks=0, control=basis == "stored"), locks_error=error
        )
        if basis == "paired":
            sample = with_reference(sample, locks=26)
        named: dict[str, Any] = {}
        if basis == "stored":
            named["compared_with"] = stored(measured(seed="old", control=True))
        found = by_metric(verdict(sample, **named))
        assert found[Metric.LOCK_WAIT].decision is Decision.INCONCLUSIVE
        assert of_metric(found[Metric.LOCK_WAIT]) == error.reason
        assert Metric.WALL in found
        assert found[Metric.USS].decision is not Decision.PASSED
        gone = msgspec.structs.replace(measured(rounds=26, locks=0), locks_error=error)
        other = msgspec.structs.replace(measured(rounds=26), reference=gone)
        assert of_metric(by_metric(verdict(other))[Metric.LOCK_WAIT]) == f"the reference: {error.reason}"

    def test_a_contract_about_lock_wait_says_that_a_lock_launch_failed(self) -> None:
        error = WorkloadError(reason="with the lock probe: hung")
        sample = msgspec.structs.replace(measured(locks=0), locks_error=error)
        texts = ("lock_wait < 20 %", "wall < 1 s")
        spec = msgspec.structs.replace(declared(), contracts=tuple(DeclaredContract(text=text) for text in texts))
        waits, wall = verdict(sample, spec=spec).metrics
        assert (waits.decision, waits.more) == (Decision.INCONCLUSIVE, 0)
        assert of_metric(waits) == f"{sample.cell.label}: {error.reason}"
        assert wall.decision is Decision.PASSED

    def test_thresholds_of_the_decorator_hold_below_those_of_the_command_line(self) -> None:
        sample = with_reference(measured(rounds=26, wall=1.08))
        lenient = Threshold(metric=Metric.WALL, margin=0.10, effect=0.15)
        spec = msgspec.structs.replace(declared(), thresholds=(lenient,))
        strict = msgspec.structs.replace(POLICY, cli=(Threshold(metric=Metric.WALL, margin=0.0, effect=0.03),))
        assert by_metric(verdict(sample))[Metric.WALL].decision is Decision.REGRESSED
        assert by_metric(verdict(sample, spec=spec))[Metric.WALL].decision is Decision.PASSED
        assert by_metric(verdict(sample, spec=spec, policy=strict))[Metric.WALL].decision is Decision.REGRESSED

    @pytest.mark.parametrize("basis", ["paired", "stored"])
    def test_a_floor_of_time_is_in_seconds_on_every_road(self, basis: BasisKind) -> None:
        """20 ms that become 22: more than a floor of 1 ms, much less than one of 8."""
        old = measured(rounds=26, control=True, seed="old")
        compared_with = stored(old) if basis == "stored" else AGAINST
        new = measured(rounds=26, wall=1.1, control=basis == "stored")
        sample = new if basis == "stored" else msgspec.structs.replace(new, reference=old)

        def decided(floor_s: float) -> Decision:
            cli = (Threshold(metric=Metric.WALL, margin=0.0, effect=0.05, floor=floor_s),)
            found = verdict(sample, compared_with=compared_with, policy=msgspec.structs.replace(POLICY, cli=cli))
            return by_metric(found)[Metric.WALL].decision

        # One recording does not fail +10 %.
        assert decided(0.001) is (Decision.INCONCLUSIVE if basis == "stored" else Decision.REGRESSED)
        assert decided(0.008) is Decision.PASSED


class TestContracts:
    def test_one_is_judged_without_a_baseline(self) -> None:
        nothing = ComparedWith(why="nothing is stored for it")
        holds = verdict(measured(rounds=20), compared_with=nothing, spec=declared("wall < 30 ms"))
        assert (holds.decision, holds.basis, holds.why) == (Decision.PASSED, "", nothing.why)
        broken = verdict(measured(rounds=20), compared_with=nothing, spec=declared("wall < 15 ms"))
        assert broken.decision is Decision.BROKEN
        assert of_cell(broken).startswith("wall < 15 ms: ")
        assert "20 ms against 15 ms; it did not hold in 13 of 13 rounds: p = " in of_cell(broken)

    def test_one_about_memory_needs_few_rounds_near_its_limit(self) -> None:
        """Memory varies less from round to round than time: 5 % over the limit are seen in a few."""
        nothing = ComparedWith(why="nothing is stored for it")
        for text, decision in (("uss < 19 MiB", Decision.BROKEN), ("uss < 21 MiB", Decision.PASSED)):
            found = verdict(measured(rounds=20), compared_with=nothing, spec=declared(text))
            assert found.decision is decision
            assert found.metrics[0].launches <= 8
        for text in ("wall < 19 ms", "uss / 20 MiB * wall < 19 ms"):
            time = verdict(measured(rounds=20), compared_with=nothing, spec=declared(text))
            assert time.metrics[0].launches == 20

    def test_one_is_judged_where_the_reference_gave_nothing(self) -> None:
        sample = msgspec.structs.replace(
            measured(rounds=20), reference=sample_of(error=WorkloadError(reason="ValueError"))
        )
        found = verdict(sample, spec=declared("wall < 30 ms"))
        assert (found.decision, found.basis) == (Decision.PASSED, "")
        assert found.why == "the reference fails: ValueError"

    def test_one_is_judged_with_the_metrics(self) -> None:
        found = verdict(with_reference(measured(rounds=20)), spec=declared("wall < 15 ms", "uss < 64 MiB"))
        assert [each.contract for each in found.metrics if each.contract] == ["wall < 15 ms", "uss < 64 MiB"]
        assert (found.decision, found.basis) == (Decision.BROKEN, "paired")
        slower = verdict(with_reference(measured(rounds=26, wall=1.2)), spec=declared("wall < 15 ms"))
        assert slower.decision is Decision.REGRESSED  # the worse of the two

    def test_one_belongs_to_the_cell_that_is_named_first(self) -> None:
        spec = declared("threads.wall < 0.5 * processes[fork].wall")
        samples = [measured(cell, 20) for cell in (THREADS, FORK)]
        nothing = ComparedWith(why="nothing is stored for it")
        judge = judge_of(*samples, spec=spec, compared_with=nothing)
        threads, fork = map(judge.verdict, TestValues(samples))
        assert (threads.decision, fork.decision) == (Decision.BROKEN, Decision.NO_BASELINE)

    def test_one_with_a_cell_that_failed_says_which(self) -> None:
        samples = [measured(cell, 30) for cell in (THREADS, FORK)]
        spec = declared("threads.wall < 0.5 * processes[fork].wall")
        nothing = ComparedWith(why="nothing is stored for it")
        failed = msgspec.structs.replace(samples[1], error=WorkloadError(reason="ValueError"))
        assert verdict(*samples, spec=spec, compared_with=nothing).decision is Decision.BROKEN
        found = verdict(samples[0], failed, spec=spec, compared_with=nothing)
        assert found.decision is Decision.INCONCLUSIVE
        assert of_cell(found).endswith(f"{FORK.label} could not be measured")

    def test_a_name_that_no_launch_has_is_named(self) -> None:
        found = verdict(measured(rounds=20), spec=declared("timer.ack_wait < 1 s"))
        assert found.decision is Decision.INCONCLUSIVE
        assert of_cell(found) == "timer.ack_wait < 1 s: no launch has a timer ack_wait"


# -- doubts -------------------------------------------------------------------------------------------------------


def judged(
    metric: Metric, decision: Decision, *, launches: int = 12, reason: str = "+30 %", contract: str = ""
) -> MetricVerdict:
    return MetricVerdict(metric=metric, decision=decision, launches=launches, reasons=told(reason), contract=contract)


class TestDoubted:
    WAITING, UNSTEADY = "the CPU quota stopped the run", "the machine became 1.4x slower"
    CROWDED = "other processes kept 0.9 of 2 cores busy"

    def doubted(
        self,
        *metrics: MetricVerdict,
        paired: str = WAITING,
        alone: str = UNSTEADY,
        crowded: str = CROWDED,
        basis: BasisKind = "paired",
    ) -> Verdict:
        before = Verdict(
            decision=Decision.REGRESSED,
            metrics=metrics,
            baseline="x",
            commit="1eb3b87",
            basis=basis,
            why="y",
        )
        found = judge_module.doubted(before, paired, alone, crowded)
        assert (found.baseline, found.commit, found.basis, found.why) == ("x", "1eb3b87", basis, "y")
        return found

    @pytest.mark.parametrize("metric", [Metric.WALL, Metric.TAIL, Metric.LOCK_WAIT, Metric.SCALING])
    def test_a_paired_regression_is_suspect_and_one_by_stored_figures_stands(self, metric: Metric) -> None:
        found = self.doubted(judged(metric, Decision.REGRESSED))
        assert of_metric(found.metrics[0]).startswith(f"+30 %; in doubt: {self.WAITING}")
        derived = metric == Metric.SCALING  # alone it explains nothing
        assert found.decision is (Decision.INCONCLUSIVE if derived else Decision.SUSPECT)
        one = judged(metric, Decision.REGRESSED)
        assert self.doubted(one, paired="").metrics == (one,)
        assert self.doubted(one, basis="stored").metrics == (one,)

    def test_others_move_no_memory(self) -> None:
        found = self.doubted(judged(Metric.USS, Decision.REGRESSED), judged(Metric.WALL, Decision.REGRESSED))
        assert found.decision is Decision.REGRESSED
        assert [each.decision for each in found.metrics] == [Decision.REGRESSED, Decision.SUSPECT]

    def test_a_contract_about_a_cell_by_itself_is_not_believed_where_the_machine_is_not(self) -> None:
        broken = judged(Metric.CONTRACT, Decision.BROKEN, contract="wall < 15 ms")
        found = self.doubted(broken, paired="", crowded="")
        assert (found.decision, of_metric(found.metrics[0])) == (
            Decision.INCONCLUSIVE,
            f"+30 %; in doubt: {self.UNSTEADY}",
        )
        assert self.doubted(broken, alone="").metrics == (broken,)

    @pytest.mark.parametrize(
        "text", ["threads.wall < 0.5 * processes[fork].wall", "scaling > 2", "threads.cores > 1.5 * serial.cores"]
    )
    def test_a_contract_between_neighbours_is_not_believed_where_others_take_their_cores(self, text: str) -> None:
        broken = judged(Metric.CONTRACT, Decision.BROKEN, contract=text)
        found = self.doubted(broken, paired="", alone="")
        assert (found.decision, of_metric(found.metrics[0])) == (
            Decision.INCONCLUSIVE,
            f"+30 %; in doubt: {self.CROWDED}",
        )
        assert self.doubted(broken, crowded="").metrics == (broken,)

    @pytest.mark.parametrize("text", ["uss < 1 MiB", "threads.uss < processes[fork].uss", "gil == off"])
    def test_a_contract_about_memory_is_believed(self, text: str) -> None:
        broken = judged(Metric.CONTRACT, Decision.BROKEN, contract=text)
        assert self.doubted(broken).metrics == (broken,)

    @pytest.mark.parametrize("decision", [Decision.PASSED, Decision.IMPROVED, Decision.INCONCLUSIVE])
    def test_what_does_not_fail_stays_as_it_is(self, decision: Decision) -> None:
        fine = judged(Metric.WALL, decision), judged(Metric.CONTRACT, decision, contract="wall < 15 ms")
        assert self.doubted(*fine).metrics == fine

    def test_a_verdict_without_metrics_stays(self) -> None:
        early = Verdict(decision=Decision.ERROR, reason="ValueError")
        assert judge_module.doubted(early, self.WAITING, self.UNSTEADY, self.CROWDED) is early


class TestStart:
    """The start of workers gates where each starts an interpreter, which imports what they need."""

    SPAWN, INTERPRETERS = group_of("spawn", "interpreters").cells
    LIMITED = msgspec.structs.replace(declared(), thresholds=(Threshold(metric="start", margin=0.1, floor=0.0),))

    def started(self, cell: Cell, start_ns: float, seed: str, rounds: int = 8, noise: float = 0.26) -> Sample:
        """Workers that are kept: as far as spawned ones were seen to vary, at most."""
        rng, sample = random.Random(seed), measured(cell, rounds, seed=seed)
        starts = (round(start_ns * rng.lognormvariate(0, noise / 2**0.5)) for _ in sample.launches)
        launches = [
            msgspec.structs.replace(launch, start_ns=start)
            for launch, start in zip(sample.launches, starts, strict=True)
        ]
        return sample.with_launches("time", launches)

    def judged(self, cell: Cell, now_ns: float, was_ns: float = 196 * MS, seed: str = "", **fields: Any) -> Verdict:
        new, reference = (self.started(cell, ns, f"{seed}{ns}{side}") for side, ns in enumerate((now_ns, was_ns)))
        return verdict(msgspec.structs.replace(new, reference=reference), **fields)

    @pytest.mark.parametrize("cell", [SPAWN, INTERPRETERS], ids=["spawn", "interpreters"])
    def test_what_imports_longer_regresses_by_its_start_alone(self, cell: Cell) -> None:
        found = self.judged(cell, 448 * MS)
        assert found.decision is Decision.REGRESSED
        failed = [name for name, each in by_metric(found).items() if each.decision is Decision.REGRESSED]
        assert failed == [Metric.START]
        assert of_cell(found).startswith("start: +")

    def test_unchanged_code_never_regresses(self) -> None:
        decisions = [self.judged(self.SPAWN, 196 * MS, seed=str(seed)).decision for seed in range(40)]
        assert set(decisions) <= {Decision.PASSED, Decision.INCONCLUSIVE}
        assert decisions.count(Decision.PASSED) >= 36

    def test_less_than_20_ms_is_no_change_however_many_times_longer_it_is(self) -> None:
        assert by_metric(self.judged(self.SPAWN, 12 * MS, 4 * MS))[Metric.START].decision is Decision.PASSED

    def test_against_what_is_stored(self) -> None:
        old, new, same = (
            measured(self.SPAWN, 5, control=True, seed=seed).with_launches(
                "time", self.started(self.SPAWN, ns * MS, seed, 5, noise=0.1).launches
            )
            for seed, ns in (("old", 196), ("new", 448), ("same", 196))
        )
        found, fine = (by_metric(verdict(each, compared_with=stored(old)))[Metric.START] for each in (new, same))
        assert (found.decision, fine.decision) == (Decision.REGRESSED, Decision.PASSED)

    def test_it_asks_for_no_launch_once_the_time_is_decided(self) -> None:
        """Its pass limit lies as many deviations away as that of shares, which three pairs decide."""
        new, reference = (self.started(self.SPAWN, 196 * MS, side, 5, noise=0.1) for side in ("new", "reference"))
        assert need(msgspec.structs.replace(new, reference=reference)) == [NOTHING]
        judges = [
            judge_of(measured(), policy=msgspec.structs.replace(POLICY, metrics=names))
            for names in (metrics.GATING, tuple(name for name in metrics.GATING if name != Metric.START))
        ]
        assert judges[0].least_rounds() == judges[1].least_rounds()

    def test_other_workers_start_at_no_cost_of_a_hypothesis_unless_the_test_has_a_limit(self) -> None:
        for cell in (THREADS, FORK):
            assert Metric.START not in by_metric(self.judged(cell, 448 * MS))
            assert self.judged(cell, 448 * MS).decision is Decision.PASSED
            assert self.judged(cell, 448 * MS, spec=self.LIMITED).decision is Decision.REGRESSED
            bare, limited = (
                hypotheses(spec, metrics.GATING, cell, (cell,), True) for spec in (declared(), self.LIMITED)
            )
            assert limited == bare + 1
        spawned, forked = (hypotheses(declared(), metrics.GATING, cell, (cell,), True) for cell in (self.SPAWN, FORK))
        assert spawned == forked + 1
        # Nor does it wait for a start in rounds to come.
        assert need(with_reference(measured(rounds=5))) == [NOTHING]


class TestHypotheses:
    ONE, FOUR = cells_of(1, 4)

    def count(
        self,
        cell: Cell,
        *texts: str,
        counts: tuple[int, ...] = (1, 4),
        compared: bool = True,
        names: tuple[str, ...] = metrics.GATING,
    ) -> int:
        spec = declared(*texts, executors=("threads",), counts=counts)
        return hypotheses(spec, names, cell, (self.ONE, self.FOUR), compared)

    def test_scaling_counts_where_it_can_be(self) -> None:
        named = (*metrics.GATING, Metric.SCALING)
        assert self.count(self.FOUR, names=named) == 6
        assert self.count(self.ONE, names=named) == 5
        assert self.count(self.FOUR, counts=(4, 8), names=named) == 5
        assert self.count(self.FOUR) == 5

    def test_nothing_to_compare_raises_no_alarm(self) -> None:
        assert self.count(self.FOUR, compared=False) == 0
        assert self.count(self.FOUR, "wall < 1 s", compared=False) == 1

    def test_contracts_count_where_they_are_judged(self) -> None:
        assert self.count(self.FOUR, "wall < 1 s", "scaling > 2") == 7
        assert self.count(self.ONE, "wall < 1 s", "scaling > 2") == 6  # one worker has no scaling
        assert self.count(self.FOUR, "gil == off") == 5  # no chance is taken there

    def test_a_contract_counts_for_one_cell_of_those_it_names(self) -> None:
        spec = declared("threads.wall < 0.5 * processes[fork].wall")
        cells = (THREADS, FORK)
        assert [hypotheses(spec, (Metric.WALL,), cell, cells, True) for cell in cells] == [2, 1]
        assert hypotheses(spec, (Metric.WALL,), THREADS, (THREADS,), True) == 1
