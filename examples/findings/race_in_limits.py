"""The same race without pytest-ftgate: python race_in_limits.py, with limits 5.8.0 on CPython 3.14t."""

import threading

from limits import parse, storage, strategies

WORKERS = 4
ROUNDS = 500
HITS = 200

limiter = strategies.FixedWindowRateLimiter(storage.MemoryStorage())
limit = parse("1000000000/minute")
together = threading.Barrier(WORKERS)
errors = []


def hit():
    for _ in range(ROUNDS):
        together.wait()
        try:
            for _ in range(HITS):
                limiter.hit(limit, "user")
        except RuntimeError as error:
            errors.append(str(error))


if __name__ == "__main__":
    workers = [threading.Thread(target=hit) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{len(errors)} errors", *sorted(set(errors)), sep="\n")
