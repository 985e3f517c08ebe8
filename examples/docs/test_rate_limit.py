from limits import parse, storage, strategies
from pytest_ftgate import ftgate, serial, threads


@ftgate.compare(serial, threads, workers=4, reuse="pool", packages=["limits==5.8.0"])
def test_rate_limit(worker):
    limiter, limit = worker.shared
    for _ in range(2000):
        limiter.hit(limit, "user")


@test_rate_limit.shared
def limiter(kind):
    return strategies.FixedWindowRateLimiter(storage.MemoryStorage()), parse("1000000000/minute")
