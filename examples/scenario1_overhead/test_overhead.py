"""Scenario 1: the cost of workers: starting them, keeping them, sending them tasks, and the memory they share."""

import gc
import os

from pytest_ftgate import ftgate, interpreters, threads

WORK_ITERS = 20_000
HELD_BYTES = 16 * 2**20
PARENT = {}
"""Data of the process that starts the workers."""
METHODS = ["fork", "forkserver", "spawn"]


def work(iterations=WORK_ITERS):
    x = 0x12345678
    for _ in range(iterations):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x


@ftgate.contract(
    "threads.start < processes[fork].start",
    "interpreters.start > 2 * processes[fork].start",
    "processes[fork].start < processes[forkserver].start",
    "processes[forkserver].wall > 1.2 * processes[fork].wall",
    "processes[spawn].start > 2 * processes[forkserver].start",
    "processes[spawn].start > 20 * threads.start",
    "processes[spawn].wall > 2 * processes[forkserver].wall",
    "processes[spawn].wall > 3 * threads.wall",
    "processes[spawn, w8, 3.14t].wall > 7 * threads[w8, 3.14t].wall",
)
@ftgate.compare(threads, interpreters, processes=METHODS, workers=[2, 8], iterations=10, warmup=1, reuse="fresh")
def test_fresh_workers(worker):
    """Profile *overhead*: each iteration starts the workers, runs them, and joins them."""
    return work()


@ftgate.contract(
    "processes[spawn].wall < 0.5 * processes[spawn].start",
    "processes[spawn].wall < 2 * processes[fork].wall",
)
@ftgate.compare(threads, interpreters, processes=METHODS, workers=[2, 8], iterations=10, warmup=1)
def test_pool_of_workers(worker):
    """The same with workers that are kept: they start once in a launch."""
    return work()


# -- a pool that sends tasks: from which length on the tax of creating workers fades

TASKS = 16
TINY, CHUNKY = "20", "200000"
POOLS = ["fork", "spawn"]


@ftgate.contract(
    *(f"processes[{each}, ROUNDS={TINY}].dispatch > 3 * processes[{each}, ROUNDS={TINY}].task_work" for each in POOLS),
    *(
        f"processes[{each}, ROUNDS={CHUNKY}].dispatch < 0.5 * processes[{each}, ROUNDS={CHUNKY}].task_work"
        for each in POOLS
    ),
    f"threads[3.14t, ROUNDS={TINY}].dispatch < 0.5 * processes[fork, 3.14t, ROUNDS={TINY}].dispatch",
    f"processes[fork, 3.14t, ROUNDS={TINY}].wall > 2 * threads[3.14t, ROUNDS={TINY}].wall",
    f"processes[fork, 3.14t, ROUNDS={CHUNKY}].wall < 1.5 * threads[3.14t, ROUNDS={CHUNKY}].wall",
)
@ftgate.compare(threads, processes=POOLS, workers=2, env=[{"ROUNDS": TINY}, {"ROUNDS": CHUNKY}], iterations=3, warmup=1)
def test_tasks(executor):
    """A pool that is kept gets sixteen tasks of so many rounds."""
    return sum(executor.map(work, [int(os.environ["ROUNDS"])] * TASKS))


# -- memory


@ftgate.contract(
    "interpreters.uss > 1.5 * threads.uss",
    "processes[fork].uss < threads.uss",
    "processes[fork].pss > 1.2 * threads.pss",
    "processes[forkserver].uss > 1.5 * processes[fork].uss",
    "processes[spawn].uss > 3 * threads.uss",
)
@ftgate.compare(threads, interpreters, processes=METHODS, workers=8, duration=0.25, window=0.05, warmup=1)
def test_memory_profile(worker):
    """Profile *memory*: workers that keep working while memory is sampled; a footprint, not a timing."""
    work(1000)


@test_memory_profile.shared
def held(context):
    """Forked workers share the pages of their parent's data, others do not have it."""
    PARENT["held"] = bytes(range(256)) * (HELD_BYTES // 256)


# -- shared pages that shrink

USES = {
    "none": lambda: None,
    "read": lambda: sum(order["amount"] for order in PARENT["orders"]),
    "changed": lambda: [order.update(amount=0) for order in PARENT["orders"][::10]],
    "collected": gc.collect,
    "frozen": gc.collect,
}


@ftgate.contract(
    "processes[PAGES=read].unshared > 2 * processes[PAGES=none].unshared",
    "processes[PAGES=changed].unshared > 1.5 * processes[PAGES=read].unshared",
    "processes[PAGES=collected].unshared > 2 * processes[PAGES=frozen].unshared",
)
@ftgate.compare(processes=["fork"], workers=2, env=[{"PAGES": use} for use in USES])
def test_shared_pages(worker):
    """What forked workers do with 100 000 objects of their parent."""
    USES[os.environ["PAGES"]]()


@test_shared_pages.shared
def orders(context):
    PARENT["orders"] = [{"amount": number} for number in range(100_000)]
    if os.environ["PAGES"] == "frozen":
        gc.freeze()
