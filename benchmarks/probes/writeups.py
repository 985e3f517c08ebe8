"""The write-ups' own scripts, rewritten: standard library only, run by the measured interpreters.

python writeups.py memory MODE SECONDS          prints "working" once all workers are, and ends by itself
python writeups.py lock MODE WORKERS SECONDS    prints the mean time from requesting the lock until holding it, in ns
"""

import sys
import threading
import time

WORKERS = 8
MASK = 0xFFFFFFFFFFFFFFFF


def work(iterations):
    x = 0x12345678
    for _ in range(iterations):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x


def memory_worker(ready, start, seconds):
    work(1000)
    ready.release()
    start.wait()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        work(1000)


def draws(index):
    state = (0xC0FFEE ^ ((index + 1) * 0x9E3779B97F4A7C15)) & MASK
    while True:
        state = z = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield (z ^ (z >> 31)) % 10_000_000


def lock_worker(index, seen, lock, barrier, seconds, out):
    draw = draws(index).__next__
    insert = seen.add if hasattr(seen, "add") else lambda uid: seen.__setitem__(uid, True)
    clock = time.perf_counter_ns
    count = total = 0
    barrier.wait()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        uid = draw()
        begin = clock()
        lock.acquire()
        total += clock() - begin
        try:
            if uid not in seen:
                insert(uid)
        finally:
            lock.release()
        count += 1
    out.put((count, total))


def context_of(mode):
    """The module or context with the workers and primitives of this mode."""
    import multiprocessing

    return threading if mode == "threads" else multiprocessing.get_context(mode)


def run_memory(mode, seconds):
    """Start the workers, and print when all are at work."""
    context = context_of(mode)
    ready, start = context.Semaphore(0), context.Event()
    make = context.Thread if mode == "threads" else context.Process
    workers = [make(target=memory_worker, args=(ready, start, seconds)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready.acquire()
    start.set()
    print("working", flush=True)
    for worker in workers:
        worker.join()


def run_lock(mode, workers, seconds):
    """Print the mean wait in ns."""
    import queue

    context = context_of(mode)
    threads = mode == "threads"
    manager = None if threads else context.Manager()
    seen = set() if threads else manager.dict()
    lock, barrier = context.Lock(), context.Barrier(workers)
    out = queue.Queue() if threads else context.Queue()
    make = context.Thread if threads else context.Process
    started = [make(target=lock_worker, args=(i, seen, lock, barrier, seconds, out)) for i in range(workers)]
    for worker in started:
        worker.start()
    counts = [out.get() for _ in started]
    for worker in started:
        worker.join()
    print(sum(total for _, total in counts) / sum(count for count, _ in counts))


if __name__ == "__main__":
    what, mode, *rest = sys.argv[1:]
    if what == "memory":
        run_memory(mode, float(rest[0]))
    else:
        run_lock(mode, int(rest[0]), float(rest[1]))
