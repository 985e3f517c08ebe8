"""Scenario 2: shared mutable state under one lock, the native limit, and three designs without that lock."""

import ctypes
import os
from itertools import islice

from ids import IDS, random_ids

from pytest_ftgate import command, ftgate, interpreters, threads

METHODS = ["fork", "forkserver", "spawn"]
RUST = command(
    "rust",
    ["{folder}/native/target/release/shared-set", "--workers", "{workers}", "--seconds", "{seconds}"],
    build=["cargo", "build", "--release", "--quiet", "--manifest-path", "{folder}/native/Cargo.toml"],
)


@ftgate.contract(
    *(f"threads[w8].ops_per_s > 10 * processes[{method}, w8].ops_per_s" for method in METHODS),
    *(f"processes[{method}, w8].timer.lock_wait > 10 * threads[w8].timer.lock_wait" for method in METHODS),
    "processes[fork, w8].ops_per_s < 3 * processes[spawn, w8].ops_per_s",
    "processes[spawn, w8].ops_per_s < 3 * processes[fork, w8].ops_per_s",
    "threads[w8].ops_per_s < 2 * threads[w2].ops_per_s",
    "command[rust, w8].ops_per_s > threads[w8, 3.14t].ops_per_s",
    "command[rust, w8].cpu < 0.5 * threads[w8, 3.14t].cpu",
    "command[rust, w8].uss < 0.5 * threads[w8, 3.14t].uss",
)
@ftgate.compare(
    threads,
    interpreters,
    RUST,
    processes=METHODS,
    workers=[2, 8],
    pythons=["3.14t", "3.14"],  # the program is listed with the first: threads without the GIL
    duration=0.5,
    window=0.1,
    warmup=1,
    programs={"cargo": "apt install cargo"},
)
def test_shared_set(worker):
    """One operation: draw an id, take the lock, insert it if it is new."""
    uid = next(worker.local.ids)
    seen, lock = worker.local.seen, worker.local.lock
    with worker.timed("lock_wait"):
        lock.acquire()
    try:
        if uid in seen:
            worker.count("duplicates")
        else:
            seen.add(uid)
            worker.count("inserts")
    finally:
        lock.release()


@test_shared_set.setup("worker")
def prepare(worker):
    seen, lock = worker.shared
    if isinstance(seen, memoryview):
        seen, lock = BufferSet(seen), TokenLock(lock)
    worker.local.ids, worker.local.seen, worker.local.lock = random_ids(worker.index), seen, lock


@test_shared_set.shared
def set_and_lock(context):
    """By executor: a set, a Manager's dict or a buffer, and a lock or its replacement."""
    if context.name == "interpreters":
        token = context.Queue()
        token.put(None)
        return memoryview(bytearray(IDS)), token
    return (DictSet(context.dict()) if context.name == "processes" else context.set()), context.Lock()


class DictSet:
    """A set in a Manager's dict, which has no `add`: two proxy calls for each new id."""

    def __init__(self, ids):
        self.ids = ids

    def __contains__(self, uid):
        return uid in self.ids

    def add(self, uid):
        self.ids[uid] = True


class BufferSet(DictSet):
    """What sub-interpreters can share: a buffer with one byte per id."""

    def __contains__(self, uid):
        return self.ids[uid] != 0


class TokenLock:
    """A queue between sub-interpreters with one token: who has it holds the lock."""

    def __init__(self, queue):
        self.acquire = queue.get
        self.queue = queue

    def release(self):
        self.queue.put(None)


# -- the write-up's advice: three designs without the one lock -------------------------------------------------------

TASKS, EACH, SHARDS = 8, 200, 16


class State:
    """What the processes of all designs share."""

    def __init__(self, context):
        self.dict, self.lock = context.dict(), context.Lock()
        self.bytes, self.locks = context.Array("B", IDS, lock=False), [context.Lock() for _ in range(SHARDS)]
        self.inbox, self.replies = context.SimpleQueue(), [context.SimpleQueue() for _ in range(TASKS)]


def drawn(task):
    return islice(random_ids(task), EACH)


def manager(executor, state):
    """The design above: one dict of a Manager, under one lock."""
    return sum(executor.map(insert_in_dict, range(TASKS)))


def insert_in_dict(task):
    state, inserts = ftgate.shared(), 0
    for uid in drawn(task):
        with state.lock:
            if uid not in state.dict:
                state.dict[uid] = True
                inserts += 1
    return inserts


def local(executor, state):
    """Each task has a set of its own; they are joined at the end."""
    return len(set().union(*executor.map(own_set, range(TASKS))))


def own_set(task):
    return set(drawn(task))


def shards(executor, state):
    """Raw shared memory with one byte per id, and a lock for each shard."""
    return sum(executor.map(insert_in_shard, range(TASKS)))


def insert_in_shard(task):
    state, inserts = ftgate.shared(), 0
    for uid in drawn(task):
        with state.locks[uid % SHARDS]:
            if not state.bytes[uid]:
                state.bytes[uid] = 1
                inserts += 1
    return inserts


def messages(executor, state):
    """This process owns the set. A task sends each id and waits for its acknowledgement, as in scenario 3."""
    executor.map(send, range(TASKS))
    seen = set()
    for _ in range(TASKS * EACH):
        task, uid = state.inbox.get()
        seen.add(uid)
        state.replies[task].put(uid)
    return len(seen)


def send(task):
    state = ftgate.shared()
    for uid in drawn(task):
        state.inbox.put((task, uid))
        state.replies[task].get()


DESIGNS = {design.__name__: design for design in (manager, local, shards, messages)}


@ftgate.contract(
    "processes[DESIGN=local].wall < 0.1 * processes[DESIGN=manager].wall",
    "processes[DESIGN=shards].wall < 0.1 * processes[DESIGN=manager].wall",
    "processes[DESIGN=messages].wall < 0.7 * processes[DESIGN=manager].wall",
)
@ftgate.compare(processes=["fork"], workers=TASKS, env=[{"DESIGN": name} for name in DESIGNS])
def test_designs(executor):
    """Eight tasks draw 200 ids each. Returns how many ids differ, which is the same for each design."""
    return DESIGNS[os.environ["DESIGN"]](executor, ftgate.shared())


test_designs.shared(State)


@test_designs.setup
def clear(executor):
    state = ftgate.shared()
    state.dict.clear()
    ctypes.memset(state.bytes, 0, IDS)
