"""What `make demo` measures: a checksum over text, in threads and in forked processes, on both builds."""

import os

from pytest_ftgate import ftgate, threads

# `make demo` sets this in its last step, to show what a regression looks like.
ROUNDS = 120 if os.environ.get("DEMO_SLOWER") else 80
TEXT = "the quick brown fox jumps over the lazy dog " * 20


def checksum(text, rounds):
    total = 0
    for _ in range(rounds):
        for character in text:
            total = (total * 31 + ord(character)) & 0xFFFFFFFF
    return total


@ftgate.compare(threads, processes=["fork"], workers=2)
def test_checksum(worker):
    checksum(TEXT[worker.index :], ROUNDS)
