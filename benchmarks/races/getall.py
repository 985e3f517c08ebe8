# /// script
# requires-python = ">=3.14"
# dependencies = ["multidict"]
# ///
"""Threads that only read one multidict, and count what they are told: no pytest, no plugin.

    uv run --python 3.14t --with multidict==6.8.0 benchmarks/races/getall.py [SECONDS]

On free-threaded CPython with the C extension of multidict 6.5.0 to 6.8.0, getall() of a key that is always there gives
one value of two, none, three, or KeyError. With the GIL, with 6.4.4 or with 6.9.0 each answer is both values.
"""

import sys
import threading
import time
from collections import Counter

import multidict

HEADERS = multidict.CIMultiDictProxy(
    multidict.CIMultiDict([("Accept", "text/html"), ("Host", "example"), ("Accept", "text/plain")])
)
READERS = 2


def read(seconds: float, released: threading.Barrier, answers: list[Counter[str]]) -> None:
    """Ask for the same header again and again."""
    mine: Counter[str] = Counter()
    released.wait()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(1000):
            try:
                mine[repr(HEADERS.getall("Accept"))] += 1
            except KeyError as error:
                mine[repr(error)] += 1
    answers.append(mine)


def main() -> int:
    """Print each answer with its count; 1 if there was more than one."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    released, answers = threading.Barrier(READERS), list[Counter[str]]()
    readers = [threading.Thread(target=read, args=(seconds, released, answers)) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    counts = sum(answers, Counter())
    gil = "on" if sys._is_gil_enabled() else "off"
    print(f"CPython {sys.version.split()[0]}, GIL {gil}, multidict {multidict.__version__}, {READERS} readers")
    for answer, count in counts.most_common():
        print(f"{count:>10}  {answer}")
    return int(len(counts) > 1)


if __name__ == "__main__":
    sys.exit(main())
