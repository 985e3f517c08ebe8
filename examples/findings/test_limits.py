"""A rate limiter under threads: limits 5.8.0 starts one timer from two threads."""

import pytest

from pytest_ftgate import ftgate, serial, threads

pytest.importorskip("limits")
from limits import parse, storage, strategies

HITS = 200


@ftgate.compare(serial, threads, workers=4, reuse="pool", requires=["limits==5.8.0"])
def test_rate_limit(worker):
    limiter, limit = worker.shared
    for _ in range(HITS):
        limiter.hit(limit, "user")
    worker.count("hits", HITS)


@test_rate_limit.shared
def limiter(kind):
    return strategies.FixedWindowRateLimiter(storage.MemoryStorage()), parse("1000000000/minute")
