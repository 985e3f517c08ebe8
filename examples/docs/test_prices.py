from prices import Cache

from pytest_ftgate import ftgate, processes, threads

CACHE = Cache()


@ftgate.compare(threads, processes)
def test_prices(worker):
    return sum(CACHE.price(f"item {number}") for number in range(10))
