from pytest_ftgate import ftgate, threads

from myproject import cache

KEYS = range(8)


@ftgate.contract(
    "threads[3.14t].gil == off",
    "threads[3.14t].scaling >= 1.6",
    "threads.wall < 0.8 * processes[spawn].wall",
    uss="< 64 MiB",
    lock_wait="< 20 %",
)
@ftgate.compare(threads, processes=["spawn"], workers=[1, 8])
def test_lookup(worker):
    return cache.lookup(KEYS[worker.index])
