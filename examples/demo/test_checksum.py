"""The workload of `make demo`: a checksum over text, in threads and in forked processes, on both builds."""

from pytest_ftgate import ftgate, threads

# The last step of `make demo` changes this to 120, to show a regression.
ROUNDS = 80
TEXT = "the quick brown fox jumps over the lazy dog " * 20


def checksum(text, rounds):
    total = 0
    for _ in range(rounds):
        for character in text:
            total = (total * 31 + ord(character)) & 0xFFFFFFFF
    return total


@ftgate.compare(threads, processes=["fork"], workers=2)
@ftgate.contract("threads[3.14t].gil == off", uss="< 64 MiB")
def test_checksum(worker):
    checksum(TEXT[worker.index :], ROUNDS)
