"""Scenario 2: shared mutable state under one lock. Threads, processes, sub-interpreters, and the native limit."""

from pytest_ftgate import command, ftgate, interpreters, processes, threads

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
IDS = 10_000_000
RUST = command(
    "rust",
    ["{folder}/native/target/release/shared-set", "--workers", "{workers}", "--seconds", "{seconds}"],
    build=["cargo", "build", "--release", "--quiet", "--manifest-path", "{folder}/native/Cargo.toml"],
)


class SplitMix64:
    """The random generator of a worker, seeded by its index."""

    __slots__ = ("state",)

    def __init__(self, index):
        self.state = (0xC0FFEE ^ ((index + 1) * GOLDEN)) & MASK

    def next(self):
        self.state = z = (self.state + GOLDEN) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)


@ftgate.contract("threads[w8].ops_per_s > 10 * processes[fork, w8].ops_per_s")
@ftgate.contract("threads[w8].ops_per_s > 10 * processes[forkserver, w8].ops_per_s")
@ftgate.contract("threads[w8].ops_per_s > 10 * processes[spawn, w8].ops_per_s")
@ftgate.contract("processes[fork, w8].timer.lock_wait > 10 * threads[w8].timer.lock_wait")
@ftgate.contract("processes[forkserver, w8].timer.lock_wait > 10 * threads[w8].timer.lock_wait")
@ftgate.contract("processes[spawn, w8].timer.lock_wait > 10 * threads[w8].timer.lock_wait")
@ftgate.contract("processes[fork, w8].ops_per_s < 3 * processes[spawn, w8].ops_per_s")
@ftgate.contract("processes[spawn, w8].ops_per_s < 3 * processes[fork, w8].ops_per_s")
@ftgate.contract("threads[w8].ops_per_s < 2 * threads[w2].ops_per_s")
@ftgate.contract("command[rust, w8].ops_per_s > threads[w8, 3.14t].ops_per_s")
@ftgate.contract("command[rust, w8].uss < 0.5 * threads[w8, 3.14t].uss")
@ftgate.compare(
    threads,
    interpreters,
    RUST,
    processes=["fork", "forkserver", "spawn"],
    workers=[2, 8],
    pythons=["3.14t", "3.14"],  # the program is listed with the first: threads without the GIL
    duration=0.5,
    window=0.1,
    warmup=1,
    programs={"cargo": "apt install cargo"},
)
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
    """The same with a Manager's dict, which has no `add`: two proxy calls per operation."""
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


@test_shared_set.variant(interpreters)
def shared_bytes(worker):
    """What sub-interpreters can share: a buffer with one byte per id, and a queue whose one token is the lock."""
    uid = next_id(worker)
    seen, token = worker.shared
    wait = worker.timed("lock_wait")
    with wait:
        token.get()
    try:
        if not seen[uid]:
            seen[uid] = 1
            worker.count("inserts")
    finally:
        token.put(None)


@test_shared_set.shared
def state(context):
    """By executor: a set, a Manager's dict or a buffer, and a lock or its replacement."""
    if context.name == "interpreters":
        token = context.Queue()
        token.put(None)
        return memoryview(bytearray(IDS)), token
    return (context.dict() if context.name == "processes" else context.set()), context.Lock()


def next_id(worker):
    draw = getattr(worker.local, "draw", None)
    if draw is None:
        draw = worker.local.draw = SplitMix64(worker.index).next
    return draw() % IDS
