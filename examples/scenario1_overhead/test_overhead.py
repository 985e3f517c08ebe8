"""Scenario 1: the cost of starting workers: threads, processes by start method, sub-interpreters; fresh and pooled."""

from pytest_ftgate import ftgate, interpreters, threads

WORK_ITERS = 20_000
HELD_BYTES = 16 * 2**20
HELD = []
METHODS = ["fork", "forkserver", "spawn"]


def work(iterations=WORK_ITERS):
    x = 0x12345678
    for _ in range(iterations):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x


@ftgate.contract("threads.start < processes[fork].start")
@ftgate.contract("processes[fork].start < processes[forkserver].start")
@ftgate.contract("processes[spawn].start > 2 * processes[forkserver].start")
@ftgate.contract("processes[spawn].start > 20 * threads.start")
@ftgate.contract("interpreters.start > 2 * processes[fork].start")
@ftgate.contract("processes[forkserver].wall > 1.2 * processes[fork].wall")
@ftgate.contract("processes[spawn].wall > 2 * processes[forkserver].wall")
@ftgate.contract("processes[spawn].wall > 3 * threads.wall")
@ftgate.contract("processes[spawn, w8, 3.14t].wall > 7 * threads[w8, 3.14t].wall")
@ftgate.compare(threads, interpreters, processes=METHODS, workers=[2, 8], iterations=10, warmup=1, reuse="fresh")
def test_fresh_workers(worker):
    """Profile *overhead*: each iteration starts the workers, runs them, and joins them."""
    return work()


@ftgate.contract("processes[spawn].wall < 0.5 * processes[spawn].start")
@ftgate.contract("processes[spawn].wall < 2 * processes[fork].wall")
@ftgate.compare(threads, interpreters, processes=METHODS, workers=[2, 8], iterations=10, warmup=1)
def test_pool_of_workers(worker):
    """The same with workers that are kept: they start once in a launch."""
    return work()


@ftgate.contract("processes[fork].uss < threads.uss", "processes[fork].pss > 1.2 * threads.pss")
@ftgate.contract("processes[forkserver].uss > 1.5 * processes[fork].uss")
@ftgate.contract("processes[spawn].uss > 3 * threads.uss")
@ftgate.contract("interpreters.uss > 1.5 * threads.uss")
@ftgate.compare(threads, interpreters, processes=METHODS, workers=8, duration=0.25, window=0.05, warmup=1)
def test_memory_profile(worker):
    """Profile *memory*: workers that keep working while memory is sampled; a footprint, not a timing."""
    work(1000)


@test_memory_profile.shared
def held(context):
    """Data of the process that starts the workers: forked workers share its pages, others do not have them."""
    HELD[:] = [bytes(range(256)) * (HELD_BYTES // 256)]
