"""Four threads use one rate limiter of limits 5.8.0. Prints what was raised; on CPython 3.14t it may crash instead.

uv run --python 3.14t --with limits==5.8.0 benchmarks/races/limits.py
"""

from __future__ import annotations

import argparse
import os
import threading

WORKERS = 4
HITS = 200


def hit(limiter, limit, together, rounds, errors):
    """Use the limiter in bursts that all threads begin at once."""
    for _ in range(rounds):
        together.wait()
        try:
            for _ in range(HITS):
                limiter.hit(limit, "user")
        except RuntimeError as error:
            errors.append(str(error))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500, help="bursts of each thread (default: 500)")
    rounds = parser.parse_args().rounds
    from limits import parse, storage, strategies

    limiter = strategies.FixedWindowRateLimiter(storage.MemoryStorage())
    limit = parse("1000000000/minute")
    together, errors = threading.Barrier(WORKERS), []
    workers = [threading.Thread(target=hit, args=(limiter, limit, together, rounds, errors)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{len(errors)} errors in {rounds} bursts", *sorted(set(errors)), sep="\n", flush=True)
    os._exit(bool(errors))  # a timer that was started twice can keep the interpreter from ending


if __name__ == "__main__":
    main()
