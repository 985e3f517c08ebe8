"""Scenario 3: message passing instead of shared state. Producers send ids to the writer that owns their shard."""

from time import perf_counter_ns, thread_time_ns

from ids import random_ids

from pytest_ftgate import ftgate, threads

PRODUCERS = 8
WRITERS = (1, 2, 4, 8)
METHODS = ["fork", "spawn"]


@ftgate.contract(
    *(
        f"processes[{method}, writer{writers}].timer.put_cpu < 3 * processes[{method}, writer1].timer.put_cpu"
        for method in METHODS
        for writers in WRITERS[1:]
    ),
    "processes[fork].timer.put_wait < processes[fork].timer.ack_wait",
    "processes[fork, writer8].ops_per_s > 0.5 * processes[fork, writer1].ops_per_s",
    "processes[spawn].ops_per_s > 0.1 * processes[fork].ops_per_s",
)
@ftgate.compare(
    threads,
    processes=METHODS,
    workers=[{"producer": PRODUCERS, "writer": writers} for writers in WRITERS],
    duration=0.5,
    window=0.1,
    warmup=3,
)
def test_sharded_writers(worker):
    """One operation of a producer: draw an id, send it to its shard's writer, wait for the acknowledgement.

    `put_cpu` is `put_wait` without the wait for a core: a writer that wakes up may take the producer's.
    """
    inboxes, replies = worker.shared
    uid = next(worker.local.ids)
    begin, cpu = perf_counter_ns(), thread_time_ns()
    inboxes[uid % len(inboxes)].put((worker.index, uid))
    worker.timed("put_cpu").add(thread_time_ns() - cpu)
    sent = perf_counter_ns()
    replies[worker.index].get()
    worker.timed("put_wait").add(sent - begin)
    worker.timed("ack_wait").add(perf_counter_ns() - sent)


@test_sharded_writers.role("writer")
def write(worker):
    """Owns the ids of one shard, which no other worker uses: it needs no lock."""
    inboxes, replies = worker.shared
    seen = worker.local.seen
    while (message := inboxes[worker.index].get()) is not None:
        producer, uid = message
        worker.count("duplicates" if uid in seen else "inserts")
        seen.add(uid)
        replies[producer].put(uid)


@test_sharded_writers.setup("worker")
def prepare(worker):
    worker.local.ids, worker.local.seen = random_ids(worker.index), set()


@test_sharded_writers.stop
def close_inboxes(shared):
    """All producers have their acknowledgements, so the inboxes are empty: end the writers."""
    for inbox in shared[0]:
        inbox.put(None)


@test_sharded_writers.shared
def queues(context):
    """An inbox for each writer, and one for each producer's acknowledgements.

    Processes get simple queues: a `multiprocessing.Queue` wakes a thread of its own for each message.
    """
    make = context.SimpleQueue if context.name == "processes" else context.Queue
    return [[make() for _ in range(context.counts[role])] for role in ("writer", "producer")]
