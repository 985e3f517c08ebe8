"""The lock probe of asyncio: real scripts on both builds."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import BUILDS
from lock_script import ONE_ASYNCIO_LOCK, Script, brief

from pytest_ftgate.runner.locks.sites import COUNT, OFF

HOLD_NS = 20e6

pytestmark = pytest.mark.parametrize("build", BUILDS)


def test_counting_counts_all_acquisitions_and_no_waits(tmp_path: Path, executables: dict[str, str], build: str) -> None:
    script = Script(tmp_path, ONE_ASYNCIO_LOCK)
    (site,) = script.run(executables[build], window=COUNT)
    assert (site.acquisitions, site.contended) == (4, 0)
    assert script.run(executables[build], window=OFF) == ()


PRIMITIVES = """
    import asyncio

    async def after(what):
        await asyncio.sleep(0.02)
        what()

    async def hold(lock):
        async with lock:
            await asyncio.sleep(0.02)

    async def pair(lock):
        await asyncio.gather(hold(lock), hold(lock))

    async def condition():
        cond = asyncio.Condition()
        await pair(cond)

        async def notify():
            await asyncio.sleep(0.02)
            async with cond:
                cond.notify_all()
                await asyncio.sleep(0.02)

        async def wait():
            async with cond:
                await cond.wait()

        await asyncio.gather(wait(), wait(), notify())

    async def queue(q):
        def take():
            q.get_nowait()
            q.task_done()

        await asyncio.gather(q.get(), after(lambda: q.put_nowait(1)))
        q.task_done()
        await q.put(1)
        await asyncio.gather(q.put(2), after(take))
        await asyncio.gather(q.join(), after(take))
        await q.join()

    async def main():
        await pair(asyncio.Semaphore(1))
        await pair(asyncio.BoundedSemaphore(1))
        await condition()
        event = asyncio.Event()
        await asyncio.gather(event.wait(), after(event.set))
        await event.wait()
        barrier = asyncio.Barrier(2)
        await asyncio.gather(*(barrier.wait() for _ in range(2)))
        await queue(asyncio.Queue(1))
        await queue(asyncio.PriorityQueue(1))
        await queue(asyncio.LifoQueue(1))

    asyncio.run(main())
"""


def test_each_primitive_at_its_line_and_no_inner_lock(tmp_path: Path, executables: dict[str, str], build: str) -> None:
    script = Script(tmp_path, PRIMITIVES)
    sites = script.run(executables[build])
    kinds = ("Semaphore", "BoundedSemaphore", "Condition", "Event", "Barrier", "Queue", "PriorityQueue", "LifoQueue")
    places = {(script.line(f"asyncio.{kind}("), f"asyncio.{kind}", "queue") for kind in kinds}
    assert brief(sites) == places | {(script.line("asyncio.Condition("), "asyncio.Condition", "lock")}
    waits = {(site.kind, site.waits_for): site for site in sites}
    for kind in ("Semaphore", "BoundedSemaphore", "Event", "Barrier"):
        assert waits[f"asyncio.{kind}", "queue"].contended == 1
    for kind in ("Queue", "PriorityQueue", "LifoQueue"):
        assert waits[f"asyncio.{kind}", "queue"].contended == 3  # get, put and join, once each
    # Two wait, also for the notifier who keeps the lock; taking it back is part of that and counted once.
    condition = waits["asyncio.Condition", "queue"]
    assert condition.contended == 2
    assert condition.total_ns > 2 * 1.9 * HOLD_NS
    assert waits["asyncio.Condition", "lock"].contended == 1


STRADDLING = """
    import asyncio
    from pytest_ftgate.runner.locks import RECORD, set_window

    async def main():
        lock, event, items, full = asyncio.Lock(), asyncio.Event(), asyncio.Queue(), asyncio.Queue(1)
        condition = asyncio.Condition()
        await lock.acquire()
        full.put_nowait(1)

        async def wait():
            async with condition:
                await condition.wait()

        async def notify():
            async with condition:
                condition.notify()

        waiting = [asyncio.create_task(wait) for wait in
                   (lock.acquire(), event.wait(), items.get(), full.put(1), full.join(), wait())]
        await asyncio.sleep(0.02)
        set_window(RECORD)
        lock.release()
        event.set()
        items.put_nowait(1)
        for _ in range(2):
            full.get_nowait()
            full.task_done()
            await asyncio.sleep(0)
        await notify()
        await asyncio.gather(*waiting)

    asyncio.run(main())
"""


def test_no_wait_that_straddles_two_windows_is_kept(tmp_path: Path, executables: dict[str, str], build: str) -> None:
    kept = Script(tmp_path, STRADDLING.replace("        set_window(RECORD)\n", "")).run(executables[build])
    assert sum(site.contended for site in kept) == 6
    assert Script(tmp_path / "again", STRADDLING).run(executables[build]) == ()


SEMANTICS = """
    import asyncio, copy, inspect, pickle

    async def main():
        for make in (asyncio.Lock, asyncio.Condition):
            for again in (pickle.loads(pickle.dumps(made := make())), copy.deepcopy(made)):
                async with again:
                    pass
        lock = asyncio.Lock()
        assert inspect.iscoroutinefunction(lock.acquire)
        async with lock:
            waiter = asyncio.create_task(lock.acquire())
            await asyncio.sleep(0.02)
            waiter.cancel("enough")
            try:
                await waiter
            except asyncio.CancelledError as error:
                assert error.args == ("enough",)
            else:
                raise AssertionError
        assert not lock.locked()
        order = []

        async def take(number):
            async with lock:
                order.append(number)

        await lock.acquire()
        tasks = [asyncio.create_task(take(number)) for number in range(5)]
        await asyncio.sleep(0)
        lock.release()
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3, 4], order

        condition = asyncio.Condition()
        try:
            await condition.wait()
        except RuntimeError:
            pass
        else:
            raise AssertionError
        queue = asyncio.Queue(1)
        queue.put_nowait(1)
        queue.shutdown(immediate=True)
        for call in (queue.get(), queue.put(2)):
            try:
                await call
            except asyncio.QueueShutDown:
                pass
            else:
                raise AssertionError

    asyncio.run(main())
"""


def test_cancelling_fairness_and_errors_are_as_without(tmp_path: Path, executables: dict[str, str], build: str) -> None:
    script = Script(tmp_path, SEMANTICS)
    (site,) = script.run(executables[build])
    assert site.line == script.line("lock = asyncio.Lock()")
    assert site.contended == 1 + 5  # the one that was cancelled waited too


NAMED = """
    import asyncio
    from pytest_ftgate.runner.locks import named

    async def hold(lock):
        async with lock:
            await asyncio.sleep(0.005)

    async def main():
        for lock in [asyncio.Lock() for _ in range(2)] + [named(asyncio.Lock(), "cache")]:
            await asyncio.gather(hold(lock), hold(lock))
        condition = named(asyncio.Condition(), "turn")
        await asyncio.gather(hold(condition), hold(condition))

    asyncio.run(main())
"""


def test_a_named_lock_has_a_site_of_its_own(tmp_path: Path, executables: dict[str, str], build: str) -> None:
    script = Script(tmp_path, NAMED)
    found = [(site.name, site.kind, site.contended) for site in script.run(executables[build])]
    assert found == [("", "asyncio.Lock", 2), ("cache", "asyncio.Lock", 1), ("turn", "asyncio.Condition", 1)]
