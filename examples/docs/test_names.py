from pytest_ftgate import ftgate, threads
from myproject import cache  # holds cache.lock, created on a line of its own


@ftgate.compare(threads, workers=[1, 8])
def test_lookup(worker):
    cache.lookup(KEYS[worker.index])


@test_lookup.shared
def state(context):
    ftgate.named(cache.lock, "cache")  # myproject/cache.py:12 Lock "cache"
    return [ftgate.named(context.Lock(), f"shard {i}") for i in range(4)]


KEYS = range(8)
