"""Three threads share an object of a published package. Prints what went wrong; the interpreter may crash instead.

uv run --python 3.14t --with multidict==6.8.0 benchmarks/races/shared.py multidict
uv run --python 3.14t --with propcache==0.5.4 benchmarks/races/shared.py propcache
uv run --python 3.14t --with zstandard==0.25.0 benchmarks/races/shared.py zstandard
"""

from __future__ import annotations

import argparse
import threading

WORKERS = 3


def multidict(made):
    """Two updates of one multidict, which 6.9.0 protects by a critical section."""
    shared = made.MultiDict(key=0)

    def use():
        shared.update({str(number): number for number in range(20)})
        shared.clear()

    return use


def propcache(made):
    """A cached property that two threads compute: each has a value of its own."""

    class Config:
        @made.cached_property
        def value(self):
            return object()

    shared = [Config() for _ in range(200_000)]
    seen = {}

    def use():
        for each in shared:
            value = each.value
            assert seen.setdefault(id(each), value) is value, "a thread has another value than the one before"

    return use


def zstandard(made):
    """One compressor: its documentation asks for one a thread, and with the GIL its calls come one by one."""
    shared, data = made.ZstdCompressor(), bytes(range(256)) * 100

    def use():
        assert made.ZstdDecompressor().decompress(shared.compress(data)) == data

    return use


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", choices=["multidict", "propcache", "zstandard"])
    parser.add_argument("--rounds", type=int, default=20_000, help="calls of each thread (default: 20 000)")
    options = parser.parse_args()
    use = globals()[options.package](__import__(options.package))
    together, ended = threading.Barrier(WORKERS), []

    def work():
        together.wait()
        for _ in range(options.rounds):
            use()
        ended.append(True)

    workers = [threading.Thread(target=work) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{WORKERS - len(ended)} of {WORKERS} threads failed")


if __name__ == "__main__":
    main()
