from pytest_ftgate import ftgate, threads


@ftgate.compare(threads, processes=["fork", "spawn"])
def test_words(worker):  # runs in each worker; all of them start at one moment
    text, seen, lock = worker.shared
    for _ in range(50):
        words = dict.fromkeys(text.split())
        with lock:
            seen.update(words)


@test_words.shared  # the workers share these; processes get the dict of a Manager
def shared(context):
    return "the quick brown fox " * 250, context.dict(), context.Lock()
