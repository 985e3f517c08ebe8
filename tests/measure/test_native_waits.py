"""Names of native waits: which frame of a stack is told, and stacks of real threads."""

from __future__ import annotations

import subprocess
import time
from textwrap import dedent

import pytest

from pytest_ftgate.kit.proc import Proc
from pytest_ftgate.measure.watch.native import NativeWaits, extension, named

PYTHON = "python3.14t"


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        ("_PySemaphore_Wait _PyParkingLot_Park _PyMutex_LockTimed - - PyObject_Vectorcall", "lock (python3.14t)"),
        ("- - _PyEval_EvalFrameDefault _PyDict_SetItem_Take2", "lock (python3.14t)"),
        (
            "_PySemaphore_Wait _PyMutex_LockTimed _PyCriticalSection_BeginSlow - _PyDict_SetItem_Take2 PyObject_Call",
            "critical section of _PyDict_SetItem_Take2 (python3.14t)",
        ),
        ("_PyMutex_LockTimed _PyCriticalSection2_BeginSlow - PyObject_Vectorcall", "critical section (python3.14t)"),
        ("_PySemaphore_Wait _PyParkingLot_Park - _Py_HandlePending _PyEval_EvalFrameDefault", "stop-the-world pause"),
        ("_PySemaphore_Wait PyEvent_WaitTimed - PyImport_ImportModule", "PyImport_ImportModule (python3.14t)"),
        ("libsqlite3.so.0:sqlite3_column_name - _PyEval_EvalFrameDefault", "sqlite3_column_name (libsqlite3.so.0)"),
        ("fast.cpython-314t.so:- - PyObject_Call", "fast.cpython-314t.so"),
        (
            "_PyMutex_LockTimed _PyCriticalSection_BeginSlow fast.cpython-314t.so:push",
            "critical section of push (fast.cpython-314t.so)",
        ),
        (
            "_PySemaphore_Wait _mi_arena_free _PyCriticalSection_BeginSlow PyDict_Copy - PyObject_Call",
            "critical section of PyDict_Copy (python3.14t)",
        ),
        (
            "_PySemaphore_Wait drop_gil PyThread_acquire_lock_timed lock_PyThread_acquire_lock method_vectorcall_O",
            "lock (python3.14t)",
        ),
        ("", "lock ()"),
    ],
)
def test_the_innermost_function_that_does_more_than_to_wait_is_told(frames: str, name: str) -> None:
    words = (word.rpartition(":")[::2] for word in frames.split())
    assert named((module or PYTHON, symbol.strip("-")) for module, symbol in words) == name


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        ("_PyParkingLot_Park _PyObject_Old - fast.so:push PyObject_Vectorcall", "push (fast.so)"),
        ("fast.so:- PyObject_Vectorcall", "fast.so"),
        ("_PySemaphore_Wait _PyParkingLot_Park - _Py_HandlePending fast.so:old", "stop-the-world pause"),
        ("_PyParkingLot_Park _PyObject_Old - PyObject_Vectorcall fast.so:old", ""),
        ("", ""),
    ],
)
def test_of_a_hang_the_function_of_an_extension_is_told(frames: str, name: str) -> None:
    words = (word.rpartition(":")[::2] for word in frames.split())
    assert extension([(module or PYTHON, symbol.strip("-")) for module, symbol in words]) == name


WAITERS = {
    "lock": ("held = threading.Lock(); held.acquire()", "held.acquire()"),
    "critical section": ("big = dict.fromkeys(range(2_000_000))", "while True: big.copy()"),
}
SCRIPT = """
    import threading
    {setup}
    def work():
        {body}
    for _ in range(3): threading.Thread(target=work, daemon=True).start()
    print("ready", flush=True)
    input()
"""


@pytest.mark.parametrize(("kind", "build"), [("lock", "3.14"), ("lock", "3.14t"), ("critical section", "3.14t")])
def test_real_threads(kind: str, build: str, executables: dict[str, str]) -> None:
    setup, body = WAITERS[kind]
    script = dedent(SCRIPT).format(setup=setup, body=body)
    reader = Proc()
    seen = NativeWaits(reader)
    with subprocess.Popen(
        [executables[build], "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            count, ends = 0, time.monotonic() + 60
            while count < 900 and time.monotonic() < ends:
                for thread in reader.threads(process.pid):
                    call = reader.call(process.pid, thread) or b""
                    if thread != process.pid and not call.startswith(b"running"):
                        seen.see(process.pid, thread, call)
                        count += 1
                time.sleep(0.001)
            found = seen.names()
        finally:
            reader.close()
            process.kill()
    assert sum(found.values()) == pytest.approx(1)
    assert sum(share for name, share in found.items() if name.startswith(kind)) > 0.8, found
