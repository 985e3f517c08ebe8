"""Stacks that profile launches sample, on real interpreters of both builds: the functions and their shares."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import pytest
from bench import FORK, FORKSERVER, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench, each_on_a_build

from physical import confirmed
from pytest_ftgate.judge.explain import AddedTime, joined, slower_functions
from pytest_ftgate.measure import profiles
from pytest_ftgate.model.sample import Profile
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.profile import MOST_BYTES
from pytest_ftgate.runner.protocol import COLD, MEASURED

ALL = (SERIAL, THREADS, FORK, FORKSERVER, SPAWN, TASKS)
ENOUGH = 100
"""Samples of which a function that takes a fifth of the time has some: none in one of 5e9 draws."""
HELPERS = """
    import time

    def busy(ms):
        ends, total = time.perf_counter() + ms / 1000, 0
        while time.perf_counter() < ends:
            total = sum(range(200))
        return total

    class Parser:
        def fast(self):
            busy(5)

        def slow(self):
            busy(20)
"""


def profile_of(
    bench: Bench, executor: Executor, build: str, *, iterations: int = 12, least: int = 0, **options: object
) -> Profile:
    """The samples of one profile launch of `test_it`: of a longer one where a busy machine lets it take few."""
    while True:
        handle = bench.start(executor, build=build, side="profile", sampling_ns=500_000, **options)  # type: ignore[arg-type]
        handle.ready()
        handle.iteration(COLD)
        for _ in range(iterations):
            handle.iteration(MEASURED)
        profile = handle.finish().profile
        assert profile is not None
        if sum(sample.count for sample in profile.samples) >= least or iterations > 100:
            return profile
        iterations *= 2


def shares(profile: Profile) -> defaultdict[str, float]:
    """By qualified name: the share of samples in which a function of the workload's file was on a stack."""
    counts: Counter[str] = Counter()
    for sample in profile.samples:
        for index in sample.functions:
            if profile.functions[index].file.endswith("test_workload.py"):
                counts[profile.functions[index].name] += sample.count
    whole = sum(sample.count for sample in profile.samples)
    return defaultdict(float, {name: count / whole for name, count in counts.items()})


@each_on_a_build(ALL)
@confirmed
def test_every_kind_of_worker_is_sampled_in_its_body_alone(bench: Bench, executor: Executor, build: str) -> None:
    body = """
    @ftgate.compare(threads)
    {kind} test_it(worker):
        Parser().fast()
        Parser().slow()
    """
    bench.write(HELPERS + body.format(kind="async def" if executor == TASKS else "def"))
    profile = profile_of(bench, executor, build, least=ENOUGH, workers=1 if executor == SERIAL else 2)
    found = shares(profile)
    assert found["test_it"] > 0.95
    assert found["Parser.slow"] > 1.5 * found["Parser.fast"] > 0
    assert len({sample.block for sample in profile.samples}) >= 10
    first = {function.name: function.line for function in profile.functions}
    assert (first["busy"], first["Parser.slow"]) == (5, 15)


@each_on_a_build((THREADS, FORK, SPAWN), both=())
@confirmed
def test_the_workers_of_a_pool_are_sampled_and_what_waits_for_them_is_not(
    bench: Bench, executor: Executor, build: str
) -> None:
    bench.write(
        HELPERS
        + """
    def one(_):
        Parser().slow()

    @ftgate.compare(threads)
    def test_it(executor):
        list(executor.map(one, range(4)))
"""
    )
    found = shares(profile_of(bench, executor, build, body="executor", iterations=4, least=ENOUGH, reuse="pool"))
    assert found["one"] > 0.8
    assert found["test_it"] < 0.2


def test_nothing_is_sampled_beside_sub_interpreters_where_it_may_crash(bench: Bench) -> None:
    bench.write(
        HELPERS
        + """
    @ftgate.compare(threads)
    def test_it(worker):
        Parser().slow()
"""
    )
    assert not profile_of(bench, INTERPRETERS, "3.14t", iterations=2).samples


def named(bench: Bench, executor: Executor, build: str, before: str, after: str, ratio: float) -> list[str]:
    """The functions that take the added time of a body that became `ratio` times as slow, most first."""
    then, now = (
        _relative(profile_of(_side(bench, source), executor, build, least=ENOUGH)) for source in (before, after)
    )
    found = slower_functions(then, now, AddedTime(20e6, ratio * 20e6, 0.01))
    assert found.parts, found
    return [each.name for each in found.parts]


def _side(bench: Bench, source: str) -> Bench:
    """A folder of its own with this workload."""
    folder = bench.folder / f"side {len(list(bench.folder.iterdir()))}"
    folder.mkdir()
    side = Bench(folder, bench.executables)
    side.write(HELPERS + source)
    return side


def _relative(profile: Profile) -> Profile:
    replace = msgspec.structs.replace
    return replace(profile, functions=tuple(replace(each, file=Path(each.file).name) for each in profile.functions))


@each_on_a_build((THREADS, FORK), both=())
@confirmed
def test_a_function_that_is_called_more_often_is_named(bench: Bench, executor: Executor, build: str) -> None:
    body = """
    def write():
        busy(4)

    @ftgate.compare(threads)
    def test_it(worker):
        Parser().fast()
        write()
"""
    more = body.replace("        write()\n", "        write()\n        Parser().slow()\n")
    assert "Parser.slow" in named(bench, executor, build, body, more, 3.0)[:2]  # `busy` beneath it takes the same


@confirmed
def test_added_sleep_is_named_by_the_line_s_function(bench: Bench) -> None:
    body = """
    def pause(ms):
        time.sleep(ms / 1000)

    @ftgate.compare(threads)
    def test_it(worker):
        busy(5)
        pause(AFTER)
"""
    before, after = body.replace("AFTER", "0"), body.replace("AFTER", "15")
    assert named(bench, THREADS, "3.14", before, after, 4.0) == ["pause"]


@each_on_a_build((TASKS,), both=(TASKS,))
@confirmed
def test_a_task_s_function_is_named_and_not_the_event_loop_s_question_for_events(
    bench: Bench, executor: Executor, build: str
) -> None:
    bench.write("""
        import asyncio

        def step():
            return sum(range(1500))  # far shorter than the interval after which threads switch

        @ftgate.compare(tasks)
        async def test_it(worker):
            for _ in range(400):
                step()
                await asyncio.sleep(0)
    """)
    found = shares(profile_of(bench, executor, build, least=ENOUGH))
    assert found["step"] > 0.3


@pytest.mark.parametrize("space", [1 << 10, MOST_BYTES])
def test_stacks_that_fill_their_space_are_known_to_be_cut(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, space: int
) -> None:
    monkeypatch.setattr(profiles, "MOST_BYTES", space)
    bench.write(
        HELPERS
        + """
    @ftgate.compare(threads)
    def test_it(worker):
        Parser().slow()
"""
    )
    profile = profile_of(bench, THREADS, "3.14", iterations=2)
    assert profile.cut == joined([Profile(), profile]).cut == (space == 1 << 10)


def test_a_process_that_serves_others_does_not_count_whatever_it_asks_through(tmp_path: Path) -> None:
    through = '  File "/env/pytest_ftgate/runner/profile.py", line 9 in seldom\n'
    for name, between in (("direct", ""), ("seldom", through)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "1").write_text(
            "Current thread 0x00007f0000000000 (most recent call first):\n"
            '  File "/usr/lib/python3.14/selectors.py", line 452 in select\n'
            f"{between}"
            '  File "/usr/lib/python3.14/multiprocessing/forkserver.py", line 250 in main\n'
            '  File "<string>", line 1 in <module>\n'
            "sampled at 50\n"
        )
        assert profiles.read(folder, [(0, 100)]).samples == (), name
