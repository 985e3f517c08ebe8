"""Scenario 1: the tax of creating workers. Threads against processes by each start method, fresh and from a pool."""

from pytest_ftgate import ftgate, threads

WORK_ITERS = 20_000
METHODS = ["fork", "forkserver", "spawn"]


def work(iterations=WORK_ITERS):
    x = 0x12345678
    for _ in range(iterations):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x


@ftgate.compare(threads, processes=METHODS, workers=8, iterations=1000, warmup=5)
def test_fresh_workers(worker):
    """Profile *overhead*: each iteration starts eight workers, lets them work, and joins them."""
    return work()


@ftgate.compare(threads, processes=METHODS, workers=8, iterations=1000, warmup=5, reuse="pool")
def test_pool_of_workers(worker):
    """The same with workers that stay: what is left is dispatch."""
    return work()


@ftgate.compare(threads, processes=METHODS, workers=8, duration=6, warmup=0.4)
def test_memory_profile(worker):
    """Profile *memory*: workers that keep working while they are looked at; a footprint, not a timing."""
    work(1000)
