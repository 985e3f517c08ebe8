"""The lock probe of multiprocessing: real processes by each start method, on both builds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from bench import BUILDS
from lock_script import PROCESSES_HEAD, START_METHODS, Script, brief

from physical import confirm, confirmed
from pytest_ftgate.runner.locks.sites import COUNT, OFF, RECORD

EACH = list(itertools.product(BUILDS, START_METHODS))

each = pytest.mark.parametrize(("build", "method"), EACH)
# What the build has no part in: each method once, each build somewhere.
each_method = pytest.mark.parametrize(
    ("build", "method"), [("3.14", "fork"), ("3.14t", "forkserver"), ("3.14", "spawn")]
)

PRIMITIVES = (
    PROCESSES_HEAD
    + """
    import queue
    H = 0.03

    def child(kit, here):
        here.send(1)
        with kit["semaphore"], kit["bounded"]:
            pass
        with kit["rlock"]:
            with kit["rlock"]:
                assert kit["rlock"].acquire(False)
                kit["rlock"].release()
        lock = kit["lock"]
        assert not lock.acquire(False)
        assert not lock.acquire(True, 0)
        assert not lock.acquire(timeout=H)
        with kit["condition"]:
            kit["ready"].set()
            assert kit["condition"].wait(60)
        assert kit["event"].wait(60) and kit["event"].wait()
        kit["barrier"].wait(60)
        assert kit["queue"].get() == 1
        assert kit["queue"].get(timeout=60) == 2
        try:
            kit["queue"].get(timeout=H)
        except queue.Empty:
            pass
        else:
            raise AssertionError
        assert kit["simple"].get() == 3
        assert kit["joinable"].get() == 4
        time.sleep(H)
        kit["joinable"].task_done()
        with kit["own"], kit["value"].get_lock():
            kit["value"].value += 1

    def release(kit, name):
        time.sleep(H)
        kit[name].release()

    def main(ctx):
        kit = dict(
            lock=ctx.Lock(),
            rlock=ctx.RLock(),
            semaphore=ctx.Semaphore(1),
            bounded=ctx.BoundedSemaphore(1),
            condition=ctx.Condition(),
            own=ctx.Condition(ctx.Lock()),
            event=ctx.Event(),
            ready=ctx.Event(),
            barrier=ctx.Barrier(2),
            queue=ctx.Queue(),
            simple=ctx.SimpleQueue(),
            joinable=ctx.JoinableQueue(1),
            value=ctx.Value("i", 0),
        )
        for name in ("lock", "rlock", "semaphore", "bounded", "own"):
            kit[name].acquire()
        kit["value"].get_lock().acquire()
        there, here = ctx.Pipe()
        process = ctx.Process(target=child, args=(kit, here))
        process.start()
        there.recv()
        for name in ("semaphore", "bounded", "rlock"):
            release(kit, name)
        kit["ready"].wait()
        time.sleep(H)
        with kit["condition"]:
            kit["condition"].notify()
            time.sleep(H)
        for give in (kit["event"].set, kit["barrier"].wait, *(lambda n=n: kit["queue"].put(n) for n in (1, 2))):
            time.sleep(H)
            give()
        time.sleep(4 * H)
        kit["simple"].put(3)
        time.sleep(H)
        kit["joinable"].put(4)
        kit["joinable"].join()
        release(kit, "own")
        time.sleep(H)
        kit["value"].get_lock().release()
        process.join()
        assert process.exitcode == 0 and kit["value"].value == 1
        kit["lock"].release()

    start()
"""
)


@each
def test_each_primitive_at_its_line_and_no_inner_semaphore(
    tmp_path: Path, executables: dict[str, str], build: str, method: str
) -> None:
    script = Script(tmp_path, PRIMITIVES)
    queues = {"semaphore": "Semaphore", "bounded": "BoundedSemaphore", "condition": "Condition", "event": "Event"}
    queues |= {"barrier": "Barrier", "queue": "Queue", "simple": "SimpleQueue", "joinable": "JoinableQueue"}
    locks = {"lock": "Lock", "rlock": "RLock", "own": "Lock", "value": "RLock"}
    line = {name: script.line(f" {name}=ctx.") for name in (*queues, *locks, "ready")}
    ours = {(line[name], f"multiprocessing.{kind}", "queue") for name, kind in queues.items()}
    ours |= {(line[name], f"multiprocessing.{kind}", "lock") for name, kind in locks.items()}
    # Whether main came to it before the child is the machine's to say.
    late = {(line["ready"], "multiprocessing.Event", "queue")}

    def sample() -> None:
        sites = script.run(executables[build], method)
        assert brief(sites) - late == ours  # the child came to each before main did
        by_line = {site.line: site for site in sites}
        for name in ("lock", "rlock", "semaphore", "bounded", "condition", "own", "barrier", "value"):
            assert by_line[line[name]].contended == 1, name
        assert by_line[line["lock"]].total_ns >= 30e6  # it timed out
        assert by_line[line["condition"]].total_ns > 2 * 0.9 * 30e6  # with taking the lock back

    confirm(sample)


INNER = (
    PROCESSES_HEAD
    + """
    from concurrent.futures import ProcessPoolExecutor

    def task(number):
        return os.getpid()

    def fill(queue, taken):
        for number in range(200):
            if number == 100:
                taken.recv()
                time.sleep(0.1)  # main waits for the second half
            queue.put(number)

    def serve(executor):
        return {executor.submit(task, number).result() for number in range(30)}

    def main(ctx):
        queue = ctx.Queue()
        taken, take = ctx.Pipe(False)
        process = ctx.Process(target=fill, args=(queue, taken))
        process.start()
        assert [queue.get() for _ in range(100)] == list(range(100))
        take.send("the first half")
        assert [queue.get() for _ in range(100)] == list(range(100, 200))
        process.join()
        with ProcessPoolExecutor(2, mp_context=ctx) as executor:
            serve(executor)
        with ctx.Pool(2) as pool:
            pool.map(task, range(30))
        with ctx.Manager() as manager:
            assert manager.dict(a=1)["a"] == 1

    start()
"""
)


@each_method
def test_semaphores_that_multiprocessing_makes_for_itself_are_left_alone(
    tmp_path: Path, executables: dict[str, str], build: str, method: str
) -> None:
    script = Script(tmp_path, INNER)
    sites = [site for site in script.run(executables[build], method) if not site.file.endswith("managers.py")]
    assert brief(tuple(sites)) == {(script.line("queue = ctx"), "multiprocessing.Queue", "queue")}


WORKERS = (
    PROCESSES_HEAD
    + """
    from concurrent.futures import ProcessPoolExecutor

    def prepare(given, meet):
        global lock
        lock = given
        meet.wait()  # until both workers are there

    def task(number):
        with lock:
            time.sleep(0.01)
        return os.getpid()

    def main(ctx):
        made = ctx.Lock()
        meet = ctx.Barrier(2)
        with ProcessPoolExecutor(2, ctx, prepare, (made, meet)) as executor:
            pids = set(executor.map(task, range(8)))
        pool = ctx.Pool(2, prepare, (made, meet))
        pids.update(pool.map(task, range(8), 1))
        pool.close()
        pool.join()
        with ctx.Pool(2, prepare, (ctx.Lock(), meet)) as terminated:
            terminated.map(task, range(8), 1)
        run(ctx, again, ctx, made, meet)
        print(json.dumps(sorted(pids)))

    def again(ctx, given, meet):
        run(ctx, wait, given, meet, count=2)

    def wait(given, meet):
        meet.wait()
        with given:
            time.sleep(0.05)

    start()
"""
)


@each_method
@confirmed
def test_workers_of_pools_and_children_of_children_leave_their_files(
    tmp_path: Path, executables: dict[str, str], build: str, method: str
) -> None:
    script = Script(tmp_path, WORKERS)
    lines = [script.line(text) for text in ("made = ctx.Lock()", "with ctx.Pool(2, prepare, (ctx.Lock(), meet))")]
    meeting = (script.line("meet = ctx.Barrier(2)"), "multiprocessing.Barrier", "queue")
    sites = script.run(executables[build], method)
    assert brief(sites) - {meeting} == {(line, "multiprocessing.Lock", "lock") for line in lines}
    assert all(site.contended >= 2 for site in sites if site.waits_for == "lock")
    if method != "fork":  # there a worker that never waited has nothing to say: all know the line
        assert set(json.loads(script.said)) <= script.processes()


NAMED = (
    PROCESSES_HEAD
    + """
    def wait(go, *locks):
        for lock in locks:
            go.wait()
            with lock:
                time.sleep(0.03)

    def main(ctx):
        from pytest_ftgate.runner.locks import named
        locks = [ctx.Lock() for _ in range(2)]
        condition = ctx.Condition()
        assert named(locks[1], "cache") is locks[1]
        named(condition, "turn")
        run(ctx, wait, ctx.Barrier(3), *locks, condition, count=3)

    start()
"""
)


@each_method
@confirmed
def test_a_name_is_known_in_every_process(tmp_path: Path, executables: dict[str, str], build: str, method: str) -> None:
    script = Script(tmp_path, NAMED)
    sites = script.run(executables[build], method)
    assert {(site.line, site.kind, site.name) for site in sites if site.waits_for == "lock"} == {
        (script.line("locks = [ctx.Lock()"), "multiprocessing.Lock", ""),
        (script.line("locks = [ctx.Lock()"), "multiprocessing.Lock", "cache"),
        (script.line("ctx.Condition()"), "multiprocessing.Condition", "turn"),
    }


SERVED = (
    PROCESSES_HEAD
    + """
    def hold(lock, go):
        go.wait()
        with lock:
            time.sleep(0.15)

    def main(ctx):
        with ctx.Manager() as manager:
            for make in (manager.RLock, manager.Semaphore, manager.Condition, manager.BoundedSemaphore):
                with make():
                    pass
            manager.Event().set()
            manager.Queue().put(1)
            run(ctx, hold, manager.Lock(), manager.Barrier(2), count=2)

    start()
"""
)


@each_method
@confirmed
def test_a_manager_works_and_its_server_times_its_locks(
    tmp_path: Path, executables: dict[str, str], build: str, method: str
) -> None:
    script = Script(tmp_path, SERVED)
    sites = script.run(executables[build], method)
    assert {Path(site.file).name for site in sites} == {"managers.py"}
    (lock,) = [site for site in sites if site.waits_for == "lock" and site.kind == "Manager.Lock"]
    assert lock.contended >= 1
    assert {site.kind.partition(".")[0] for site in sites} == {"Manager"}


STRADDLING = """
    import multiprocessing as mp
    import threading, time
    from pytest_ftgate.runner.locks import RECORD, set_window

    def main():
        lock, event, items = mp.Lock(), mp.Event(), mp.SimpleQueue()
        condition = mp.Condition()

        def wait():
            with condition:
                condition.wait()

        def notify():
            with condition:
                condition.notify()

        lock.acquire()
        for wait, end in (
            (lock.acquire, lock.release),
            (event.wait, event.set),
            (items.get, lambda: items.put(1)),
            (wait, notify),
        ):
            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(0.05)
            set_window(RECORD)
            end()
            thread.join()

    main()
"""


@pytest.mark.parametrize("build", BUILDS)
@confirmed
def test_no_wait_that_straddles_two_windows_is_kept(tmp_path: Path, executables: dict[str, str], build: str) -> None:
    kept = Script(tmp_path, STRADDLING.replace("            set_window(RECORD)\n", "")).run(executables[build])
    assert len([site for site in kept if site.contended]) >= 4
    assert Script(tmp_path / "again", STRADDLING).run(executables[build]) == ()


SEMANTICS = (
    PROCESSES_HEAD
    + """
    import gc, weakref

    def raises(error, call, *args, **kwargs):
        try:
            call(*args, **kwargs)
        except error:
            return
        raise AssertionError(f"no {error}")

    def main(ctx):
        lock, rlock, semaphore = ctx.Lock(), ctx.RLock(), ctx.BoundedSemaphore(2)
        assert lock.acquire() is True and lock.acquire(block=False) is False and lock.acquire(True, -1) is False
        assert repr(lock) == "<Lock(owner=MainProcess)>", repr(lock)
        raises(TypeError, lock.acquire, True, "soon")
        raises(TypeError, semaphore.acquire, True, "soon")
        assert lock.release() is None
        raises(ValueError, lock.release)
        raises(AssertionError, rlock.release)
        raises(AssertionError, ctx.Condition().wait)
        with rlock as got:
            assert got is True
            for count in range(3):
                assert rlock.acquire()
            assert "count=1" not in repr(rlock) and ", 4)" in repr(rlock), repr(rlock)
            for count in range(3):
                rlock.release()
        assert semaphore.acquire() and semaphore.acquire() and not semaphore.acquire(timeout=0.01)
        assert semaphore.get_value() == 0
        semaphore.release()
        condition = ctx.Condition()
        with condition:
            assert condition.wait(0.01) is False
            assert condition.wait_for(lambda: True)
        gc.disable()
        for make in (ctx.Lock, ctx.Condition, ctx.Event):
            gone = weakref.ref(make())
            assert gone() is None, make  # no cycle keeps its semaphore in the kernel
        event = ctx.Event()
        assert event.wait(0.01) is False and not event.is_set()
        simple = ctx.SimpleQueue()
        simple.close()
        raises(OSError, simple.get)
        queue = ctx.Queue(1)
        queue.put(1)
        import queue as errors
        raises(errors.Full, queue.put, 2, timeout=0.01)
        raises(errors.Full, queue.put, 2, False)
        assert queue.get() == 1
        raises(errors.Empty, queue.get_nowait)
        queue.close()
        raises(ValueError, queue.get)

    start()
"""
)


@pytest.mark.parametrize(
    ("build", "method", "window"),
    [*((build, method, RECORD) for build, method in EACH), *itertools.product(BUILDS, ["spawn"], [OFF, COUNT])],
)
def test_semantics_are_as_without(
    tmp_path: Path, executables: dict[str, str], build: str, method: str, window: int
) -> None:
    script = Script(tmp_path, SEMANTICS)
    sites = script.run(executables[build], method, window=window)
    if window == OFF:
        assert sites == ()
    elif window == COUNT:
        counted = {site.kind: site.acquisitions for site in sites if site.line == script.line("lock, rlock, semaphore")}
        assert counted["multiprocessing.Lock"] == 1
        assert counted["multiprocessing.BoundedSemaphore"] == 2
        assert sum(site.contended for site in sites) == 0
    else:
        waits = [site for site in sites if site.line == script.line("lock, rlock, semaphore")]
        assert [(site.kind, site.contended) for site in waits] == [("multiprocessing.BoundedSemaphore", 1)]


TERMINATED = (
    PROCESSES_HEAD
    + """
    def wait(lock, here):
        here.send("here")
        with lock:
            time.sleep(60)

    def main(ctx):
        lock = ctx.Lock()
        with lock:
            there, here = ctx.Pipe(False)
            process = ctx.Process(target=wait, args=(lock, here))
            process.start()
            there.recv()
            time.sleep(0.1)  # it waits for the lock
            process.terminate()
            process.join()
        assert process.exitcode == -15, process.exitcode

    start()
"""
)


@pytest.mark.parametrize("method", START_METHODS)
def test_a_child_is_terminated_as_without(tmp_path: Path, executables: dict[str, str], method: str) -> None:
    script = Script(tmp_path, TERMINATED)
    assert script.run(executables["3.14"], method) == ()
