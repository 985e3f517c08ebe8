from types import SimpleNamespace

from pytest_ftgate import ftgate, threads


def make_state(context, producers, writers):
    return SimpleNamespace(inboxes=[context.Queue() for _ in range(writers)])


@ftgate.compare(threads, processes=["fork"], workers=[{"producer": 8, "writer": m} for m in (1, 2, 4)], duration=5)
def test_sharded(worker):  # a producer: sends, and waits for the acknowledgement
    writers = worker.counts["writer"]
    ...


@test_sharded.role("writer")  # called once per iteration, released together with the producers
def writer(worker):
    inbox = worker.shared.inboxes[worker.index]
    while (message := inbox.get()) is not None:
        ...


@test_sharded.stop  # called once, after all producers have ended: makes the writers return
def stop(state):
    for inbox in state.inboxes:
        inbox.put(None)


@test_sharded.shared
def make(context):
    return make_state(context, context.counts["producer"], context.counts["writer"])
