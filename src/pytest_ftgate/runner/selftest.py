"""`python -P -s selftest.py`: threads and children in known states, to test that the thread sampler recognizes them.

Prints one line of JSON, `{"gil": bool, "states": [[pid, thread id, state], ...]}`, and ends with its standard input.
A state is the expected class and a name, such as `futex a lock`.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from multiprocessing import get_context
from queue import Empty, SimpleQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FOREVER_S = 60.0

# The busy threads of an interpreter report through a pipe: one `os.write` of a line is atomic.
_BUSY = """
import os, threading
def busy():
    os.write({pipe}, f"{{os.getpid()}} {{threading.get_native_id()}} {state}\\n".encode())
    while True:
        sum(range(1000))
"""
_IN_INTERPRETER = """
threading.Thread(target=busy).start()
busy()
"""


def _report(pipe: int, state: str) -> None:
    os.write(pipe, f"{os.getpid()} {threading.get_native_id()} {state}\n".encode())


def _child(pipe: int, state: str, wait: Callable[[], object]) -> int:
    """Fork a child that waits. Call it before there are threads."""
    pid = os.fork()
    if pid:
        return pid
    try:
        _report(pipe, state)
        wait()
    finally:
        os._exit(0)


def _thread(pipe: int, state: str, wait: Callable[[], object]) -> None:
    def live() -> None:
        _report(pipe, state)
        wait()

    threading.Thread(target=live, daemon=True).start()


def children(pipe: int) -> list[int]:
    """Start children that wait for a semaphore or a pipe; their pids."""
    taken = get_context("fork").Lock()
    taken.acquire()
    end, other = os.pipe()
    return [
        _child(pipe, "process a shared semaphore", taken.acquire),
        _child(pipe, "process a shared semaphore with a timeout", lambda: taken.acquire(timeout=FOREVER_S)),
        _child(pipe, "process a pipe", lambda: _read(end, other)),
        _child(pipe, "process a poll of a pipe", lambda: _poll(end)),
    ]


def _read(descriptor: int, other: int) -> None:
    os.close(other)
    os.read(descriptor, 1)


def _poll(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(FOREVER_S * 1000)


def _wait_for(condition: threading.Condition) -> None:
    with condition:
        condition.wait()


def _get(queue: SimpleQueue[int]) -> None:
    try:
        queue.get(timeout=FOREVER_S)
    except Empty:
        pass


def waiting(pipe: int) -> int:
    """Start threads that wait in each way that the standard library has; their number."""
    lock, again = threading.Lock(), threading.RLock()
    lock.acquire()
    again.acquire()
    waits: dict[str, Callable[[], object]] = {
        "futex a lock": lock.acquire,
        "futex a lock with a timeout": lambda: lock.acquire(timeout=FOREVER_S),
        "futex a re-entrant lock": again.acquire,
        "futex a condition": lambda: _wait_for(threading.Condition()),
        "futex an event with a timeout": lambda: threading.Event().wait(FOREVER_S),
        "futex a queue with a timeout": lambda: _get(SimpleQueue()),
        "asleep a sleep": lambda: time.sleep(FOREVER_S),
    }
    for state, wait in waits.items():
        _thread(pipe, state, wait)
    return len(waits)


def busy(pipe: int) -> int:
    """Start two busy threads; their number."""
    names: dict[str, Callable[[], None]] = {}
    exec(_BUSY.format(pipe=pipe, state="busy two threads"), names)
    for _ in range(2):
        threading.Thread(target=names["busy"], daemon=True).start()
    return 2


def interpreters(pipe: int) -> int:
    """Start two busy threads in a sub-interpreter, if the build has them; their number."""
    try:
        from concurrent.interpreters import create  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return 0
    code = _BUSY.format(pipe=pipe, state="busy two threads of a sub-interpreter") + _IN_INTERPRETER
    threading.Thread(target=create().exec, args=(code,), daemon=True).start()
    return 2


def main() -> None:
    """Bring all threads and children into their states, print them, and wait until the standard input ends."""
    sys.setswitchinterval(0.005)
    end, pipe = os.pipe()
    pids = children(pipe)
    try:
        # Those that take a core come last: each other one would wait for it.
        expected = len(pids) + waiting(pipe) + interpreters(pipe) + busy(pipe)
        reports = b""
        while reports.count(b"\n") < expected:
            reports += os.read(end, 65536)
        states = [line.split(" ", 2) for line in reports.decode().splitlines()]
        gil = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
        line = {"gil": gil, "states": [[int(pid), int(thread), state] for pid, thread, state in states]}
        os.write(1, json.dumps(line).encode() + b"\n")
        os.read(0, 1)
    finally:
        for pid in pids:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    os._exit(0)


if __name__ == "__main__":
    main()
