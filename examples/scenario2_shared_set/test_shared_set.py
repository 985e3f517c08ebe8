"""Scenario 2: shared mutable state under one lock. Threads with a set, processes with a Manager's dict."""

from pytest_ftgate import ftgate, processes, threads

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
IDS = 10_000_000


class SplitMix64:
    """The generator of every worker: seeded by its index."""

    __slots__ = ("state",)

    def __init__(self, index):
        self.state = (0xC0FFEE ^ ((index + 1) * GOLDEN)) & MASK

    def next(self):
        self.state = z = (self.state + GOLDEN) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)


@ftgate.compare(threads, processes=["fork", "forkserver", "spawn"], workers=[2, 8], duration=5, warmup=1)
def test_shared_set(worker):
    """One operation: draw an id, take the lock, insert it if it is new."""
    uid = next_id(worker)
    seen, lock = worker.shared
    wait = worker.timed("lock_wait")
    with wait:
        lock.acquire()
    try:
        if uid not in seen:
            seen.add(uid)
            worker.count("inserts")
    finally:
        lock.release()


@test_shared_set.variant(processes)
def shared_dict(worker):
    """The same over a Manager's dict, which has no `add`: two proxy calls an operation."""
    uid = next_id(worker)
    seen, lock = worker.shared
    wait = worker.timed("lock_wait")
    with wait:
        lock.acquire()
    try:
        if uid not in seen:
            seen[uid] = True
            worker.count("inserts")
    finally:
        lock.release()


@test_shared_set.shared
def state(kind):
    """The executor's own: a set and a lock, or a Manager's dict and the start method's lock."""
    return (kind.dict() if kind.name == "processes" else kind.set()), kind.Lock()


def next_id(worker):
    draw = getattr(worker.local, "draw", None)
    if draw is None:
        draw = worker.local.draw = SplitMix64(worker.index).next
    return draw() % IDS
