from cachelib import SimpleCache
from pytest_ftgate import ftgate, processes, threads

PAGE = [{"id": number, "name": f"user {number}"} for number in range(200)]
CACHE = SimpleCache()
CACHE.set("page", PAGE)


@ftgate.compare(threads, workers=2)
def test_evict(worker):  # the cache is full: each key that comes drops another
    for number in range(2000):
        worker.shared.set(f"{worker.index} {number}", number)


@test_evict.shared
def full(context):
    return SimpleCache(threshold=100)


@ftgate.compare(threads, processes, workers=2)
def test_get(worker):
    for _ in range(500):
        CACHE.get("page")
