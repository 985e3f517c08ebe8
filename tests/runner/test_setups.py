"""Setups and teardowns: when they run under every executor, that no figure has them in it, and what an error does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from bench import FORK, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench, each_on_a_build

from pytest_ftgate.measure.launch import CellUnsupported, Handle, LaunchFailed
from pytest_ftgate.model.spec import Executor, Param
from pytest_ftgate.runner.protocol import CHECK, COLD, MEASURED, WARMUP

ALL = (SERIAL, THREADS, FORK, SPAWN, INTERPRETERS, TASKS)
BOTH = ("fresh", "pool")

NOTES = """
    import os, time

    def note(*words):
        file = os.open(__file__ + ".notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, (" ".join(map(str, words)) + "\\n").encode())
        os.close(file)

    def surround(test, act=lambda: None, also=lambda test: None):
        @test.shared
        def make(shared):
            return "state"

        for scope in ("launch", "worker", "iteration"):
            for what in ("setup", "teardown"):
                def of_launch(state, word=what + " " + scope):
                    act()
                    note(word, state)

                def of_worker(worker, word=what + " " + scope):
                    act()
                    note(word, worker.role, worker.index)

                getattr(test, what)(scope)(of_launch if scope == "launch" else of_worker)
"""

BODIES = """
    @ftgate.compare(threads)
    def test_it(worker):
        with worker.timed("body"):
            time.sleep(0.02)
        note("body", worker.role, worker.index)

    @test_it.variant(tasks)
    async def as_task(worker):
        import asyncio
        with worker.timed("body"):
            await asyncio.sleep(0.02)
        note("body", worker.role, worker.index)
"""


def notes(bench: Bench) -> list[str]:
    """What the functions of the workload wrote, in order."""
    path = bench.folder / "test_workload.py.notes"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def did(bench: Bench) -> Counter[str]:
    """How often each of them ran, whichever worker it was for."""
    return Counter(" ".join(line.split()[:2]) if not line.startswith("body") else "body" for line in notes(bench))


def ran(handle: Handle, *kinds: str) -> None:
    handle.ready()
    for kind in kinds:
        handle.iteration(kind)


# -- when they run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reuse", BOTH)
@each_on_a_build(ALL)
def test_each_runs_as_often_as_its_scope_begins(bench: Bench, executor: Executor, build: str, reuse: str) -> None:
    bench.write(NOTES + BODIES + "    surround(test_it)\n")
    handle = bench.start(executor, build=build, reuse=reuse, one_call=True)
    ran(handle, COLD, WARMUP, MEASURED, CHECK)
    assert handle.barrier(1, 0).point.processes > 0
    held = handle.measure_held(1_000_000, True, 20e6)
    assert held.memory
    handle.finish()
    iterations = did(bench)["body"] // 2
    assert iterations >= 4 + 1 + 1
    workers = 2 * iterations if reuse == "fresh" else 2
    times = {"launch": 1, "worker": workers, "iteration": 2 * iterations}
    expected = {f"{what} {scope}": count for scope, count in times.items() for what in ("setup", "teardown")}
    assert did(bench) == {**expected, "body": 2 * iterations}
    lines = notes(bench)
    assert (lines[0], lines[-1]) == ("setup launch state", "teardown launch state")


@each_on_a_build(ALL)
def test_bodies_wait_for_all_setups_and_teardowns_for_all_bodies(bench: Bench, executor: Executor, build: str) -> None:
    bench.write(NOTES + BODIES + "    surround(test_it, lambda: time.sleep(0.05))\n")
    handle = bench.start(executor, build=build, workers=3)
    ran(handle, MEASURED)
    handle.finish()
    words = [line.split()[0] for line in notes(bench)]
    assert words == ["setup"] * 7 + ["body"] * 3 + ["teardown"] * 7
    assert [line.split()[1] for line in notes(bench)[10:]] == ["iteration"] * 3 + ["worker"] * 3 + ["launch"]


@pytest.mark.parametrize("executor", [SERIAL, THREADS, FORK], ids=lambda executor: executor.label)
def test_a_body_that_drives_a_pool_has_them_too(bench: Bench, executor: Executor) -> None:
    bench.write(
        NOTES
        + """
    @ftgate.compare(threads)
    def test_it(executor):
        note("body", *executor.map(abs, [-1, -2]))

    @test_it.setup
    def up(executor):
        note("setup iteration", executor.submit(abs, -3).result())

    @test_it.teardown
    def down(executor):
        note("teardown iteration", executor.submit(abs, -4).result())

    @test_it.teardown("launch")
    def end(state):
        note("teardown launch", state)
    """
    )
    for reuse in BOTH:
        handle = bench.start(executor, body="executor", reuse=reuse, one_call=True)
        ran(handle, MEASURED, CHECK)
        assert handle.measure_held(1_000_000, True, 5e9).memory  # of one call
        handle.finish()
    once = ["setup iteration 3", "body 1 2", "teardown iteration 4"]
    assert notes(bench) == 2 * [*4 * once, "teardown launch None"]  # the hold has a call before it


@pytest.mark.parametrize("executor", [THREADS, SPAWN, TASKS], ids=lambda executor: executor.label)
def test_every_worker_of_every_role_has_its_own(bench: Bench, executor: Executor) -> None:
    source = """
    import asyncio
    @ftgate.compare(threads)
    def test_it(worker):
        note("body", worker.role, worker.index)

    @test_it.role("b")
    def serve(worker):
        note("body", worker.role, worker.index)

    @test_it.variant(tasks)
    async def as_task(worker):
        test_it(worker)

    @test_it.role("b", tasks)
    async def serve_as_task(worker):
        serve(worker)

    surround(test_it)
    """
    bench.write(NOTES + source)
    handle = bench.start(executor, roles=(("a", 2), ("b", 1)))
    ran(handle, MEASURED)
    handle.finish()
    places = ("a 0", "a 1", "b 0")
    words = ("setup worker", "setup iteration", "body", "teardown iteration", "teardown worker")
    assert sorted(notes(bench)[1:-1]) == sorted(f"{word} {place}" for word in words for place in places)


def test_a_window_has_one_setup_whatever_its_calls(bench: Bench) -> None:
    bench.write(NOTES + BODIES + "    surround(test_it)\n")
    handle = bench.ready(THREADS)
    handle.iteration(MEASURED, 1, 100_000_000)
    handle.finish()
    found = did(bench)
    assert found.pop("body") > 2
    assert set(found.values()) == {1, 2}
    assert found["setup iteration"] == 2


def test_they_get_the_parameters_that_they_name(bench: Bench) -> None:
    bench.write(
        NOTES
        + """
    @ftgate.compare(threads)
    def test_it(worker, n, text):
        return worker.local.items.sort() or worker.local.items[:2]

    @test_it.setup
    def fill(worker, n):
        worker.local.items = list(range(n, 0, -1))

    @test_it.setup("launch")
    def begin(state, text):
        note(state, text)
    """
    )
    params = (Param(name="n", literal="5"), Param(name="text", literal="'word'"))
    handle = bench.start(FORK, reuse="pool", params=params, one_call=True)
    ran(handle, MEASURED, CHECK)
    assert handle.finish().results == ("[1, 2]; [1, 2]",)
    assert notes(bench) == ["None word"]


@pytest.mark.parametrize("executor", [THREADS, FORK, TASKS, SERIAL], ids=lambda executor: executor.label)
def test_async_ones_run_in_the_loop_of_the_body(bench: Bench, executor: Executor) -> None:
    bench.write(
        NOTES
        + """
    import asyncio

    @ftgate.compare(tasks)
    async def test_it(worker):
        assert worker.local.loop is asyncio.get_running_loop()
        await worker.local.task
        return worker.local.task.result()

    @test_it.setup
    async def up(worker):
        worker.local.loop = asyncio.get_running_loop()
        worker.local.task = asyncio.create_task(asyncio.sleep(0, "slept"))

    @test_it.teardown("worker")
    async def down(worker):
        assert worker.local.loop is asyncio.get_running_loop()
        await asyncio.sleep(0)
        note("down")

    @test_it.teardown("launch")
    async def end(state):
        await asyncio.sleep(0)
        note("end")
    """
    )
    for reuse in BOTH:
        handle = bench.start(executor, reuse=reuse, one_call=True)
        ran(handle, MEASURED, CHECK)
        assert handle.finish().results == ("'slept'; 'slept'",)
    assert notes(bench) == [*4 * ["down"], "end", *2 * ["down"], "end"]


def test_the_functions_of_a_class_have_one_instance(bench: Bench) -> None:
    bench.write("""
        class TestIt:
            def __init__(self):
                self.seen = []

            @ftgate.compare(threads)
            def test_it(self, worker):
                return self.seen

            @test_it.shared
            def make(self, shared):
                self.seen.append("shared")

            @test_it.setup("launch")
            def begin(self, state):
                self.seen.append("launch")

            @test_it.check
            def right(self, results):
                assert results == [["shared", "launch"]] * 2 == [self.seen] * 2
    """)
    for executor in (THREADS, FORK):
        handle = bench.start(executor, test="TestIt.test_it")
        ran(handle, CHECK)
        handle.finish()


# -- nothing of them is measured -----------------------------------------------------------------------------------

LONG = """
    def long():
        until = time.thread_time() + 0.07
        while time.thread_time() < until:
            pass
        time.sleep(0.13)
"""
LONG_NS, LONG_CPU_NS = 200_000_000, 70_000_000


CASES = [*((executor, "fresh") for executor in ALL if executor != SPAWN), (THREADS, "pool"), (FORK, "pool")]


@pytest.mark.parametrize(("executor", "reuse"), CASES, ids=lambda each: each if isinstance(each, str) else each.label)
def test_no_figure_has_them_in_it(bench: Bench, executor: Executor, reuse: str) -> None:
    again = BODIES.replace("test_it", "test_bare").replace("as_task", "as_bare_task")
    bench.write(NOTES + LONG + BODIES + again + "    surround(test_it, long)\n")
    around, bare = (bench.start(executor, reuse=reuse, workers=1, test=name) for name in ("test_it", "test_bare"))
    ran(around)
    ran(bare)
    pairs = [(around.iteration(MEASURED), bare.iteration(MEASURED)) for _ in range(3)]
    # An iteration of fresh workers has four of them, of kept workers two: the figures have not even one.
    assert min(each.wall_ns for each, _ in pairs) < min(each.wall_ns for _, each in pairs) + LONG_NS
    assert min(each.cpu_ns for each, _ in pairs) < min(each.cpu_ns for _, each in pairs) + LONG_CPU_NS
    slowest, slowest_bare = (min(each[side].ops / each[side].rate for each in pairs) for side in (0, 1))
    assert slowest * 1e9 < slowest_bare * 1e9 + LONG_NS
    assert around.finish().timers["body"].total_ns < 3 * LONG_NS


@pytest.mark.parametrize("executor", [THREADS, FORK], ids=lambda executor: executor.label)
def test_the_lock_probe_records_nothing_of_them(bench: Bench, executor: Executor) -> None:
    bench.write(
        NOTES
        + """
    @ftgate.compare(threads)
    def test_it(worker):
        with worker.shared[1]:
            time.sleep(0.02)

    @test_it.shared
    def make(shared):
        return (
            shared.Lock(),  # of setups
            shared.Lock(),  # of bodies
        )

    def wait(worker):
        with worker.shared[0]:
            time.sleep(0.1)

    test_it.setup(wait)
    test_it.teardown(wait)
    test_it.setup("worker")(wait)
    """
    )
    lines = Path(bench.folder / "test_workload.py").read_text(encoding="utf-8").splitlines()
    line = {
        name: next(n for n, text in enumerate(lines, 1) if text.endswith(f"# of {name}"))
        for name in ("setups", "bodies")
    }
    handle = bench.start(executor, side="locks", one_call=True)
    ran(handle, WARMUP, MEASURED, MEASURED)
    locks = handle.finish().locks
    assert locks is not None
    contended = {site.line: (site.contended, site.acquisitions) for site in locks.sites}
    assert contended[line["bodies"]][0] > 0
    assert contended.get(line["setups"], (0, 0))[0] == 0


def test_samples_of_a_hold_see_nothing_of_them(bench: Bench) -> None:
    bench.write(
        NOTES
        + LONG
        + """
    @ftgate.compare(threads)
    def test_it(worker):
        time.sleep(0.15)

    def large(worker):
        block = bytearray(64 << 20)
        block[::4096] = b"x" * len(block[::4096])
        long()

    test_it.setup(large)
    test_it.teardown(large)
    """
    )
    handle = bench.ready(THREADS, one_call=True)
    held = handle.measure_held(1_000_000, True, 150e6)
    assert max(point.uss_bytes or 0 for point in held.memory) < 64 << 20
    assert held.waits is not None
    if not held.waits.unavailable:
        assert held.waits.gil_s < 0.2 * held.waits.span_s  # of bodies that sleep; setups wait for each other's GIL
    short = handle.measure_held(1_000_000, True, 1e6)
    assert short.memory
    assert max(point.uss_bytes or 0 for point in short.memory) < 64 << 20
    assert short.waits is not None
    assert "too short to be sampled" in short.waits.unavailable


def test_a_launch_without_them_does_not_import_their_code(bench: Bench) -> None:
    bench.write("""
        import sys
        @ftgate.compare(threads)
        def test_it(worker):
            return "pytest_ftgate.runner.setups" in sys.modules
    """)
    handle = bench.start(THREADS)
    ran(handle, CHECK)
    assert handle.finish().results == ("False; False",)


# -- errors --------------------------------------------------------------------------------------------------------

FAILING = """
    @ftgate.compare(threads)
    def test_it(worker):
        note("body")
        fails("body", worker.index)

    surround(test_it)

    @test_it.setup
    def late(worker):
        fails("setup", worker.index)

    @test_it.teardown
    def early(worker):
        fails("teardown", worker.index)

    @test_it.setup("launch")
    def begin(state):
        fails("launch", 1)

    def fails(where, index):
        if where in os.environ["FAILING"].split(",") and index == 1:
            raise ValueError("in " + where)
"""


@pytest.mark.parametrize(
    ("failing", "reason", "bodies"),
    [
        ("body", "worker 1: raised ValueError: in body", 2),
        ("body,teardown", "worker 1: raised ValueError: in body", 2),
        ("setup", "worker 1: setup 'late' raised ValueError: in setup", 0),
        ("teardown", "worker 1: teardown 'early' raised ValueError: in teardown", 2),
        ("launch", "setup 'begin' raised ValueError: in launch", 0),
    ],
)
@pytest.mark.parametrize("executor", [SERIAL, THREADS, FORK], ids=lambda executor: executor.label)
def test_after_an_error_all_is_torn_down(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, executor: Executor, failing: str, reason: str, bodies: int
) -> None:
    monkeypatch.setenv("FAILING", failing)
    bench.write(NOTES + FAILING)
    for reuse in BOTH:
        (bench.folder / "test_workload.py.notes").unlink(missing_ok=True)
        handle = bench.start(executor, reuse=reuse)
        with pytest.raises(LaunchFailed) as caught:
            ran(handle, MEASURED)
        assert caught.value.error.reason == reason
        assert f'"in {failing.partition(",")[0]}"' not in caught.value.error.detail
        assert "raise ValueError" in caught.value.error.detail
        begun = {f"{what} {scope}" for scope in ("worker", "iteration") for what in ("setup", "teardown")}
        expected = Counter(dict.fromkeys(begun, 0 if failing == "launch" else 2))
        expected |= Counter({"setup launch": 1, "teardown launch": 1, "body": bodies})
        assert did(bench) == +expected


def test_a_worker_that_dies_leaves_the_others_their_teardown(bench: Bench) -> None:
    source = """
    @ftgate.compare(threads)
    def test_it(worker):
        if worker.index:
            os._exit(3)

    surround(test_it)
    """
    bench.write(NOTES + source)
    handle = bench.start(FORK)
    with pytest.raises(LaunchFailed, match="worker 1 exited with code 3"):
        ran(handle, MEASURED)
    assert [line for line in notes(bench) if line.startswith("teardown")] == [
        "teardown iteration  0",
        "teardown worker  0",
        "teardown launch state",
    ]


def test_a_setup_may_skip_the_cell(bench: Bench) -> None:
    bench.write("""
        import pytest
        @ftgate.compare(threads)
        def test_it(worker):
            pass

        @test_it.setup
        def up(worker):
            pytest.skip("not on this machine")
    """)
    handle = bench.start(THREADS)
    with pytest.raises(CellUnsupported, match="not on this machine"):
        ran(handle, MEASURED)


def test_a_reference_without_the_setup_cannot_be_compared(bench: Bench) -> None:
    bench.write(NOTES + BODIES + "    surround(test_it)\n")
    handle = bench.ready(THREADS)
    with pytest.raises(LaunchFailed, match="both need the same setups"):
        handle.iteration(MEASURED, 100)


def test_a_server_of_the_shared_state_is_stopped(bench: Bench) -> None:
    bench.write("""
        import http.server, threading, urllib.request

        @ftgate.compare(threads)
        def test_it(worker):
            return urllib.request.urlopen("http://127.0.0.1:%d" % worker.shared.server_port).status

        @test_it.shared
        def serve(shared):
            handler = type("Handler", (http.server.BaseHTTPRequestHandler,), {
                "do_GET": lambda self: (self.send_response(204), self.end_headers()),
                "log_message": lambda *_: None,
            })
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            threading.Thread(target=server.serve_forever).start()
            return server

        @test_it.teardown("launch")
        def stop(server):
            server.shutdown()
            server.server_close()
    """)
    handle = bench.start(THREADS)
    ran(handle, MEASURED, CHECK)
    assert handle.finish().results == ("204; 204",)
