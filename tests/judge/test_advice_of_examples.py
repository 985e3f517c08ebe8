"""The advice of the write-ups comes out of what the examples recorded: stored baselines, and a report of the pipeline.

Both are of machines with 2 cores; where such a machine says something else than the write-ups, the test says so.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_ftgate.features.decide import rank, sentences
from pytest_ftgate.features.decide.rank import Advice, Choice, Ranked, Ranking
from pytest_ftgate.report import json
from pytest_ftgate.store.folder import Store
from pytest_ftgate.store.schema import TestBaseline

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "recorded" / "pipeline.json"
OVERHEAD = "examples/scenario1_overhead/test_overhead.py::"
SHARED_SET = "examples/scenario2_shared_set/test_shared_set.py::test_shared_set"
DESIGNS = "examples/scenario2_shared_set/test_shared_set.py::test_designs"
SHARDED = "examples/scenario3_sharded_writers/test_sharded_writers.py::"
GRANIAN = "examples/granian/test_granian.py::"
MOD_WSGI = "examples/mod_wsgi/test_mod_wsgi.py::"
PIPELINE = "examples/trading_pipeline/test_pipeline.py::"


@cache
def stored(test: str) -> Advice:
    """The advice from the committed baselines of a test."""
    baseline = Store(ROOT / "baselines").load(test)
    assert baseline is not None
    return advice_of(baseline)


def advice_of(baseline: TestBaseline) -> Advice:
    """That of the machine with 2 cores that recorded last, whatever other machines have recorded."""
    recorded = (
        (cell.recordings[-1].recorded_at, key.partition("/")[0])
        for builds in baseline.cells.values()
        for key, cell in builds.items()
    )
    _, fingerprint = max(each for each in recorded if baseline.machines[each[1]].cores == 2)
    found = rank.of_stored(baseline, fingerprint)
    assert found is not None
    return found


def test_what_another_machine_records_changes_no_advice() -> None:
    baseline = Store(ROOT / "baselines").load(SHARED_SET)
    assert baseline is not None
    ((name, machine),) = [each for each in baseline.machines.items() if each[1].cores == 2][-1:]
    cells = {
        label: builds | {key.replace(name, "large"): cell for key, cell in builds.items()}
        for label, builds in baseline.cells.items()
    }
    machines = baseline.machines | {"large": replace(machine, fingerprint="large", cores=64)}
    assert advice_of(replace(baseline, cells=cells, machines=machines)) == stored(SHARED_SET)


@cache
def recorded(test: str) -> Advice:
    """The advice from the recorded run of the pipeline."""
    report = json.parse(RECORDED.read_bytes())
    return {each.test: each for each in rank.of_report(report)}[test]


def choice(found: Advice, workers: str = "", setting: str = "") -> Choice:
    return next(each for each in found.choices if (each.workers, each.setting) == (workers, setting))


def times(ranking: Ranking, name: str) -> Ranked:
    return next(each for each in ranking.ranked if each.name == name)


def text(found: Advice, topic: str) -> str:
    return "\n".join(each.text for each in sentences.said(found).sentences if each.topic == topic)


def alike(one: Ranked, other: Ranked) -> bool:
    """Whether the intervals of two candidates overlap."""
    assert one.times is not None
    assert other.times is not None
    return one.times.low <= other.times.high and other.times.low <= one.times.high


# ---- scenario 1: the tax of creating workers


def test_threads_are_for_fine_grained_tasks() -> None:
    found = stored(f"{OVERHEAD}test_fresh_workers")
    eight = choice(found, "w8")
    assert eight.time.tied == ("threads on 3.14t",)
    assert {name.partition(" ")[0] for each in found.choices for name in each.pareto} == {"threads"}
    assert "threads on 3.14t" in text(found, "advice")
    slowest = eight.time.ranked[-1]
    assert slowest.name == "interpreters on 3.14t"
    assert times(eight.time, "spawn on 3.14t").times.low > 7  # type: ignore[union-attr]


def test_the_memory_of_spawn_grows_with_each_worker_and_that_of_threads_hardly() -> None:
    memory = {each.name: each for each in stored(f"{OVERHEAD}test_fresh_workers").memory}
    for build in ("3.14", "3.14t"):
        threads, fork, spawn = (memory[f"{name} on {build}"] for name in ("threads", "fork", "spawn"))
        assert spawn.total.low > 3 * threads.total.high
        assert threads.total.high < fork.total.low < spawn.total.low
        for use in (threads, fork, spawn):
            assert use.further is not None
            assert use.further_of == "counts"
        assert spawn.further.low > 4 * fork.further.low  # type: ignore[union-attr]
        assert fork.further.low > threads.further.high  # type: ignore[union-attr]


# ---- scenario 2: shared mutable state under one lock


def test_one_lock_erases_parallelism_whatever_the_executor() -> None:
    found = stored(SHARED_SET)
    # Four times the workers bring at most half as much again; most of them nothing.
    assert all(scaled.high < 1.6 for each in found.scaling for _, scaled in each.points)
    assert sum(each.enough == 2 for each in found.scaling) >= 9
    shares = {each.name: each for each in found.contention}
    for build in ("3.14", "3.14t"):
        assert (shares[f"threads on {build}"].lock or 0) > 0.3  # with the GIL, the holder waits for that, too
        for name in ("fork", "forkserver", "spawn"):  # of their time and that of the Manager's threads, one for each
            assert 0.4 < (shares[f"{name} on {build}"].lock or 0) < 0.5
    # What would be won without the lock is bounded by the cores that are idle.
    threads = shares["threads on 3.14t"]
    assert threads.by_waits is not None
    assert threads.by_cores is not None
    assert threads.by_cores < threads.by_waits
    assert "the lock cancels the gain of more workers" in text(found, "contention")


def test_threads_win_over_a_manager_by_ten_times() -> None:
    found = stored(SHARED_SET)
    # On 2 cores the GIL build is not the slower one: under the lock nothing can be done in parallel. With two workers
    # sub-interpreters are smaller.
    for workers, best in (("w2", ("threads on 3.14", "interpreters on 3.14")), ("w8", ("threads on 3.14",))):
        here = choice(found, workers)
        assert here.pareto == best
        assert here.advised == (best if workers == "w8" else ())
        assert [each.name.partition(" ")[0] for each in here.time.ranked[:2]] == ["threads", "threads"]
        for name in ("fork", "forkserver", "spawn"):
            for build in ("3.14", "3.14t"):
                assert times(here.time, f"{name} on {build}").times.low > 10  # type: ignore[union-attr]
        assert [each.name for each in here.limits] == ["rust"]
        assert here.limits[0].times is not None
        assert here.limits[0].times.high < 1
    assert found.unknown == ()
    assert "unattributed" not in text(found, "contention")  # a baseline does not keep those


# ---- scenario 3: one writer for each shard


def test_each_other_design_beats_the_shared_dict() -> None:
    found = stored(DESIGNS)
    designs = {name: choice(found, "w8", f"DESIGN:{name}").time for name in ("manager", "local", "shards", "messages")}
    for build in ("fork on 3.14", "fork on 3.14t"):
        manager = times(designs["manager"], build).value.value
        assert times(designs["messages"], build).value.value < 0.7 * manager
        assert 10 * times(designs["shards"], build).value.value < manager
        assert 10 * times(designs["local"], build).value.value < manager
    assert all((each.lock or 0) < 0.05 for each in stored(f"{SHARDED}test_sharded_writers").contention)


def test_more_writers_do_not_pay_on_two_cores() -> None:
    # The write-up has 16 cores, and gains 2.2x with 8 writers.
    scaling = stored(f"{SHARDED}test_sharded_writers").scaling
    assert {each.enough for each in scaling} <= {9, 10}


# ---- scenario 4: Granian


def test_the_free_threaded_server_needs_less_memory_for_two_workers() -> None:
    json, wait = (choice(stored(f"{GRANIAN}test_asgi_two_workers"), "w2", setting) for setting in ("/json", "/wait"))
    for two in (json, wait):
        assert two.memory is not None
        assert two.memory.tied == ("server on 3.14t",)
    assert wait.advised == ("server on 3.14t",)
    assert len(wait.time.tied) == 2  # in time it does not matter
    # In the write-up, 3.14 answers more requests that need not wait; with two cores they hardly differ.
    assert "server on 3.14t" in json.pareto
    second = json.time.ranked[-1].times
    assert second is not None
    assert second.low < 1.05
    one = choice(stored(f"{GRANIAN}test_asgi"), "w1", "/json")
    assert one.time.ranked[-1].times is not None
    assert one.time.ranked[-1].times.low < 1.05
    assert one.advised == ("server on 3.14",)  # for a few per cent of memory
    assert "no other is clearly faster or smaller" in text(stored(f"{GRANIAN}test_asgi"), "advice")


def test_wsgi_uses_more_than_one_core_without_the_gil() -> None:
    found = stored(f"{GRANIAN}test_wsgi")
    cores = choice(found, "w1").cores
    # 3.14 has one core of Python, and a thread of Granian's own beside it; the load takes much of the two cores.
    assert cores["server on 3.14t"] > 1.1 > cores["server on 3.14"]
    assert f"{cores['server on 3.14t']:.2f} cores" in text(found, "time")
    # The write-up's 3.8 times the requests need more cores than the 2 that the load generator shares here.
    slower = choice(found, "w1").time.ranked[-1].times
    assert slower is not None
    assert slower.high < 2


def test_more_blocking_threads_pay_only_where_requests_wait() -> None:
    assert choice(stored(f"{GRANIAN}test_blocking_threads")).time.ranked[-1].name == "blocking128 on 3.14"
    waiting = choice(stored(f"{GRANIAN}test_blocking_threads_wait"))
    assert waiting.time.tied == ("blocking128 on 3.14",)
    assert waiting.time.ranked[-1].name == "blocking1 on 3.14"


# ---- scenario 5: mod_wsgi


def test_one_free_threaded_process_reaches_as_many_processes_as_cores() -> None:
    found = choice(stored(f"{MOD_WSGI}test_fixed_work"))
    assert alike(times(found.time, "free-1xN on 3.14t"), times(found.time, "Nx1 on 3.14"))
    assert {"free-1x10 on 3.14t", "free-2x5 on 3.14t"} <= {*found.time.tied}
    assert found.time.ranked[-1].name == "1x10-fast on 3.14"  # no switch interval reduces fixed work
    assert found.cores["free-1x10 on 3.14t"] > 1.8 > 1.1 > found.cores["1x10 on 3.14"]
    assert not found.advised  # ten processes aside, each has its price in time or in memory
    assert "10x1 on 3.14" not in found.pareto


def test_a_wall_timed_burn_would_have_advised_the_trap() -> None:
    assert "1x10-fast on 3.14" in choice(stored(f"{MOD_WSGI}test_wall_timed")).time.tied


# ---- scenario 6: the trading pipeline

ROLES = "receiver1-processor1-evaluator1"
MATRIX = f"{PIPELINE}test_pipeline"


def test_asyncio_and_threads_are_equal_at_the_light_cell() -> None:
    for found in (recorded(MATRIX), stored(MATRIX)):
        light = choice(found, ROLES, "PROC_MS:0.5-EVAL_MS:1")
        assert len(light.time.tied) == 2
    rows = {each.metric: each for each in choice(recorded(MATRIX), ROLES, "PROC_MS:0.5-EVAL_MS:1").own}
    assert len(rows["counter.ticks"].tied) == 2


def test_threads_on_the_free_threaded_build_win_the_heavy_cell() -> None:
    found = recorded(MATRIX)
    own = {each.metric: each for each in choice(found, ROLES, "PROC_MS:5-EVAL_MS:50").own}
    for metric in ("timer.receive_to_processed", "timer.processed_to_evaluated", "peak.queue_depth"):
        assert own[metric].tied == ("threads on 3.14t",)
        assert times(own[metric], "tasks on 3.14t").times.low > 2  # type: ignore[union-attr]
    assert "is least with threads on 3.14t" in text(found, "advice")


@pytest.mark.parametrize("test", sorted(each.test for each in Store(ROOT / "baselines").baselines()))
def test_every_sentence_carries_its_figures(test: str) -> None:
    for sentence in sentences.said(stored(test)).sentences:
        # That something is not known has no figure.
        assert sentence.topic == "not known" or any(letter.isdigit() for letter in sentence.text), sentence
