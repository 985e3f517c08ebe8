from collections import Counter

from pytest_ftgate import ftgate, threads

TEXT = "the quick brown fox jumps over the lazy dog " * 50


@ftgate.compare(threads, workers=2)
def test_words(worker):  # runs in each worker; all of them start at one moment
    counts, lock = worker.shared
    for _ in range(50):
        words = Counter(TEXT.split())
        with lock:
            counts.update(words)


@test_words.shared  # what the workers share
def counts(context):
    return Counter(), context.Lock()
