"""Scenario 3: message passing instead of shared state. Producers send ids to the writer that owns their shard."""

import os
from time import perf_counter_ns

from pytest_ftgate import ftgate, interpreters, threads

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
IDS = 10_000_000
PRODUCERS = 8
WRITERS = (1, 2, 4, 8)


class SplitMix64:
    """The random generator of a producer, seeded by its index, as in scenario 2."""

    __slots__ = ("state",)

    def __init__(self, index):
        self.state = (0xC0FFEE ^ ((index + 1) * GOLDEN)) & MASK

    def next(self):
        self.state = z = (self.state + GOLDEN) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)


@ftgate.contract("processes.timer.put_wait < processes.timer.ack_wait")
@ftgate.contract("processes[writer8].ops_per_s > 0.5 * processes[writer1].ops_per_s")
@ftgate.contract("interpreters[writer1].timer.ack_wait > 3 * threads[writer1].timer.ack_wait")
@ftgate.compare(
    threads,
    interpreters,
    processes=["fork"],
    workers=[{"producer": PRODUCERS, "writer": writers} for writers in WRITERS],
    reuse="pool",
    duration=0.5,
    window=0.1,
    warmup=3,
)
def test_sharded_writers(worker):
    """One operation of a producer: draw an id, send it to its shard's writer, wait for the acknowledgement."""
    inboxes, replies = worker.shared
    uid = next_id(worker)
    begin = perf_counter_ns()
    inboxes[uid % len(inboxes)].put((worker.index, uid))
    sent = perf_counter_ns()
    replies[worker.index].get()
    worker.timed("put_wait").add(sent - begin)
    worker.timed("ack_wait").add(perf_counter_ns() - sent)


@test_sharded_writers.role("writer")
def write(worker):
    """Owns the ids of one shard, which no other worker uses: it needs no lock."""
    inboxes, replies, *_ = worker.shared
    receive = inboxes[worker.index].get
    seen = worker.local.__dict__.setdefault("seen", set())  # kept between iterations
    inserts = 0
    while (message := receive()) is not None:
        producer, uid = message
        if uid not in seen:
            seen.add(uid)
            inserts += 1
        replies[producer].put(uid)
    worker.count("inserts", inserts)


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


# -- what the writers replace ----------------------------------------------------------------------------------------


@ftgate.contract("processes[IDS=writer].ops_per_s > 2 * processes[IDS=manager].ops_per_s")
@ftgate.compare(
    processes=["fork"],
    workers={"producer": PRODUCERS, "writer": 1},
    env=[{"IDS": "writer"}, {"IDS": "manager"}],
    reuse="pool",
    duration=0.5,
    window=0.1,
    warmup=3,
)
def test_one_writer(worker):
    """One writer beside the design of scenario 2: the same ids in one dict of a Manager, under one lock."""
    inboxes, replies, seen, lock = worker.shared
    uid = next_id(worker)
    if seen is None:
        inboxes[0].put((worker.index, uid))
        replies[worker.index].get()
        return
    with lock:
        if uid not in seen:
            seen[uid] = True
            worker.count("inserts")


@test_one_writer.role("writer")
def write_alone(worker):
    """As above; beside the dict it has nothing to do."""
    write(worker)


@test_one_writer.shared
def queues_or_dict(context):
    """The queues, and where the dict has the ids the dict with its lock: two proxy calls per operation."""
    manager = os.environ["IDS"] == "manager"
    return [*queues(context), context.dict() if manager else None, context.Lock()]


@test_one_writer.stop
def close(shared):
    """Ends the writer."""
    close_inboxes(shared)


def next_id(worker):
    draw = getattr(worker.local, "draw", None)
    if draw is None:
        draw = worker.local.draw = SplitMix64(worker.index).next
    return draw() % IDS
