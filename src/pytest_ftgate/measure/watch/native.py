"""What native code waits for in a futex: functions on the stack of a sleeping thread, read from outside. Linux only."""

from __future__ import annotations

import bisect
import os
import platform
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from ...kit.proc import CALLS, NO_CALLS, Proc
from ...model.sample import NATIVE_LOCK
from .system_calls import Mapping, mappings

_STACK_BYTES: Final = 2048  # above the stack pointer: some twelve frames
_FRAMES: Final = 12
_MOST: Final = 400  # stacks of a launch that are kept; of more, every second one goes
_PYTHON: Final = ("python", "libpython")
_PAUSE: Final = "stop-the-world pause"
# Functions of CPython that only wait, or only look for how to call: who called them is told.
_WAITERS: Final = (
    *("_PySemaphore", "_PyParkingLot", "_PyMutex", "PyMutex", "_PyRawMutex", "_PyRWMutex", "_PyRecursiveMutex"),
    *("_PyEvent", "PyEvent", "_PyOnceFlag", "_PyCriticalSection", "PyCriticalSection", "PyTime", "_PyTime"),
    *("_PyDeadline", "_PyThreadState", "PyThread_", "_PyThread_", "lock_PyThread_", "acquire_timed", "drop_gil"),
)
_CALLERS: Final = (
    *("_PyEval_EvalFrame", "PyEval_", "PyObject_Vectorcall", "_PyObject_MakeTpCall", "PyObject_Call"),
    *("method_vectorcall", "cfunction_", "vectorcall_", "_PyVectorcall", "slot_tp_", "specialize_"),  # static ones
)
_PAUSERS: Final = ("_Py_HandlePending", "_PyEval_StopTheWorld")


Frame: TypeAlias = tuple[str, str]
"""A function on a stack: its module, and its symbol, which is empty where the module does not name it."""


class NativeWaits:
    """The stacks of threads that were seen in a futex, named once the launch is over."""

    def __init__(self, reader: Proc) -> None:
        self._reader = reader
        self._stacks: list[tuple[int, int, bytes]] = []
        self._maps: dict[int, str] = {}
        self._every = 1
        self._seen = 0

    def see(self, pid: int, thread: int, call: bytes) -> None:
        """A thread waits in a futex, as its line of `syscall` says."""
        self._seen += 1
        words = call.split()
        if self._seen % self._every or len(words) < 9:
            return
        if pid not in self._maps:
            self._maps[pid] = self._reader.maps(pid)
        self._stacks.append((pid, thread, self._reader.read_memory(pid, int(words[7], 16), _STACK_BYTES)))
        if len(self._stacks) == _MOST:
            del self._stacks[::2]
            self._every *= 2

    def names(self, without: Collection[int] = ()) -> dict[str, float]:
        """What threads waited for, as parts of these waits; the processes may have mapped more code meanwhile."""
        stacks = [(pid, stack) for pid, thread, stack in self._stacks if thread not in without]
        codes = {pid: _codes(self._reader.maps(pid) or self._maps[pid]) for pid in {pid for pid, _ in stacks}}
        found = Counter(named(_frames(stack, codes[pid])) for pid, stack in stacks)
        return {name: count / len(stacks) for name, count in found.most_common()}


def waits_in(pid: int, thread: int) -> str:
    """The function of an extension in which a thread waits in a futex now; empty where none does, or none is told."""
    reader = Proc()
    try:
        words = (reader.call(pid, thread) or b"").split()
        if len(words) < 9 or int(words[0]) != CALLS.get(platform.machine(), NO_CALLS).futex:
            return ""
        stack = reader.read_memory(pid, int(words[7], 16), _STACK_BYTES)
        return extension(_frames(stack, _codes(reader.maps(pid))))
    except OSError:  # it may not be read
        return ""
    finally:
        reader.close()


def extension(frames: Sequence[Frame]) -> str:
    """`push (fast.cpython-314t.so)`, of a stack that was looked at once, or `stop-the-world pause`; else empty.

    A function of CPython's may have returned already, so none is told.
    """
    for module, symbol in frames:
        inner = module.startswith(_PYTHON)
        if inner and symbol.startswith(_PAUSERS):
            return _PAUSE
        if inner and symbol.startswith(_CALLERS):
            break
        if not inner:
            return f"{symbol} ({module})" if symbol else module
    return ""


def named(frames: Iterable[Frame]) -> str:
    """`critical section of PyDict_SetItem (python3.14t)`: who waits, of a stack, the innermost frame first.

    A stack is all words that could be return addresses, so it may hold functions that have returned already, most of
    them between those that wait. So what is told is called by the outermost of these.
    """
    section, python, caller = False, "", ""
    for module, symbol in frames:
        inner = module.startswith(_PYTHON)
        python = python or (module if inner else "")
        if inner and not symbol:
            continue
        if inner and symbol.startswith(_WAITERS):
            section, caller = section or "CriticalSection" in symbol, ""
        elif inner and symbol.startswith(_PAUSERS):
            return _PAUSE
        elif inner and symbol.startswith(_CALLERS):
            break
        else:
            caller = caller or (f"{symbol} ({module})" if symbol else module)
            if not inner:
                break
    if caller:
        return f"critical section of {caller}" if section else caller
    return f"critical section ({python})" if section else f"{NATIVE_LOCK}{python})"


def _frames(stack: bytes, codes: Sequence[Mapping]) -> list[Frame]:
    """The functions that the words of a stack could return to, without those of the C library."""
    found: list[Frame] = []
    for (word,) in struct.iter_unpack("<Q", stack[: len(stack) // 8 * 8]):
        place = bisect.bisect(codes, (word, 1 << 64)) - 1
        if place < 0 or not codes[place].start <= word < codes[place].end or len(found) == _FRAMES:
            continue
        code = codes[place]
        module = os.path.basename(code.path)
        if not module.startswith(("libc.", "libc-", "ld-", "libpthread", "[")):
            # The function that has this offset of the file; empty where the file does not say.
            segments, functions = _symbols(code.path)
            offset = word - code.start + code.offset
            address = next((offset - at + start for at, start, size in segments if at <= offset < at + size), -1)
            start, end, symbol = (functions or [_NOWHERE])[bisect.bisect(functions, (address, 1 << 64)) - 1]
            found.append((module, symbol if start <= address < end else ""))
    return found


def _codes(maps: str) -> list[Mapping]:
    return sorted(each for each in mappings(maps) if each.path and "x" in each.mode)


# -- symbols of a file: ELF, 64 bits, little-endian --------------------------------------------------------------------

_LOAD, _SYMTAB, _DYNSYM, _FUNCTION = 1, 2, 11, 2
_NOWHERE: Final = (0, 0, "")


@lru_cache(maxsize=64)
def _symbols(path: str) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, str]]]:
    """The segments of a file, (offset, address, size), and its functions, (start, end, name).

    Of a file that cannot be read or is something else: nothing. Source: the ELF-64 specification.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
        if content[:6] != b"\x7fELF\x02\x01":
            return [], []
        segments_at, sections_at = struct.unpack_from("<QQ", content, 32)
        segment_size, segment_count, section_size, section_count = struct.unpack_from("<HHHH", content, 54)
        segments = [
            struct.unpack_from("<I4xQQ8xQ", content, segments_at + number * segment_size)
            for number in range(segment_count)
        ]
        sections = [
            struct.unpack_from("<4xI16xQQI", content, sections_at + number * section_size)
            for number in range(section_count)
        ]
        functions = set()
        for kind, at, size, names in sections:
            rows = content[at : at + size // 24 * 24] if kind in (_SYMTAB, _DYNSYM) else b""
            for name, info, value, length in struct.iter_unpack("<IB3xQQ", rows):
                if info & 15 == _FUNCTION and length:
                    begin = sections[names][1] + name
                    text = content[begin : content.index(b"\0", begin)].decode("ascii", "replace")
                    functions.add((value, value + length, text))
    except (OSError, struct.error, ValueError, IndexError):
        return [], []
    loads = [(at, start, size) for kind, at, start, size in segments if kind == _LOAD]
    return loads, sorted(functions)
