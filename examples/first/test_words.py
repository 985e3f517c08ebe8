from collections import Counter

from pytest_ftgate import ftgate, threads

TEXT = "the quick brown fox jumps over the lazy dog " * 50


@ftgate.compare(threads, processes=["fork", "spawn"])
def test_words(worker):  # runs in each worker; all of them start at one moment
    counts, lock = worker.shared
    for _ in range(50):
        words = Counter(TEXT.split())
        with lock:
            counts.update(words)


@test_words.shared  # what the workers share: a dict, in processes one of a Manager
def counts(context):
    return context.dict(), context.Lock()
