"""What a thread that sleeps waits in, by its system call and what that is asked for."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

from ...kit.proc import Calls, Proc

Where = Literal["running", "gil", "futex", "process", "asleep"]
_PRIVATE = 0x80  # FUTEX_PRIVATE_FLAG
_HEADER_BYTES, _LOADED, _WRITABLE, _ANYWHERE = 64, 1, 2, 3  # of an ELF file; PT_LOAD, PF_W, ET_DYN
_STACK_BYTES = 16 << 10  # how far above the stack pointer a frame stands in which a thread waits in a futex
_GIL_BYTES = 256  # the two conditions of a GIL are this near to each other


class Sleepers:
    """Says what the sleeping threads of one process wait for."""

    def __init__(self, pid: int, reader: Proc, calls: Calls, *, own_gils: bool) -> None:
        self.pid = pid
        self._reader = reader
        self._calls = calls
        self._own_gils = own_gils
        self._known: dict[bytes, Where] = {}
        self._gils: set[int] = set()
        self._interpreter: list[tuple[int, int]] = []
        self._shared: list[tuple[int, int]] = []
        self._has_maps = False
        self._sockets: frozenset[str] | None = None

    def where(self, line: bytes) -> Where:
        """The state that a line of `syscall` means; one that stays the same is read once."""
        if line.startswith(b"running"):
            return "running"
        known = self._known.get(line)
        if known is None:
            known = self._known[line] = self._read(line.split())
        return known

    @staticmethod
    def stack(line: bytes) -> int:
        """The stack pointer of who waits in a futex with a timeout; 0 without one.

        A thread waits for the GIL with a timeout but for moments, in which it is somewhere else within the same wait.
        """
        words = line.split()
        return int(words[7], 16) if len(words) > 8 and words[4] != b"0x0" else 0

    def forget(self) -> None:
        """Drop what may have changed: descriptors are used again, and memory is mapped."""
        self._known.clear()
        self._has_maps = False
        self._sockets = None

    def _read(self, words: list[bytes]) -> Where:
        if len(words) < 9:  # -1: it sleeps outside of any call, in a page fault
            return "asleep"
        number, first, second = int(words[0]), int(words[1], 16), int(words[2], 16)
        if number == self._calls.futex:
            return self._futex(first, second, timed=words[4] != b"0x0", stack=int(words[7], 16))
        if number in self._calls.process:
            return "process"
        return "process" if any(map(self._is_local, self._descriptors(number, first, second))) else "asleep"

    def _futex(self, address: int, operation: int, *, timed: bool, stack: int) -> Where:
        """A private futex is the GIL's when it is in the interpreter's own static memory, where the runtime stands.

        One on the waiter's stack is a lock's (since 3.14), a queue's, an event's, or of the interpreter's inner
        mutexes. A GIL of a sub-interpreter is on the heap, always waited for with a timeout but for the short time in
        which a thread that was asked to drop it waits for the other to have it.
        """
        if not operation & _PRIVATE:
            if not _within(address, self._shared) and not self._has_maps:
                self._read_maps()
            return "process" if _within(address, self._shared) else "futex"
        if 0 <= address - stack < _STACK_BYTES:
            return "futex"
        if not self._interpreter:
            self._read_maps()
        if _within(address, self._interpreter):
            return "gil"
        if self._own_gils and timed:
            self._gils.add(address)
            return "gil"
        return "gil" if any(abs(address - gil) < _GIL_BYTES for gil in self._gils) else "futex"

    def _read_maps(self) -> None:
        self._has_maps = True
        text = self._reader.maps(self.pid)
        executable, header = self._reader.link(self.pid, "exe"), partial(self._reader.read_memory, self.pid, size=4096)
        self._interpreter = writable_statics(text, executable, header)
        self._shared = [each.span for each in mappings(text) if each.mode.endswith("s")]

    def _descriptors(self, number: int, first: int, second: int) -> Iterator[int]:
        if number in self._calls.descriptor:
            yield first
        elif number in self._calls.poll and first:
            table = self._reader.read_memory(self.pid, first, 8 * min(second, 64))
            yield from (row[0] for row in struct.iter_unpack("ihh", table[: len(table) // 8 * 8]))
        elif number in self._calls.select and second:
            table = self._reader.read_memory(self.pid, second, (min(first, 1024) + 7) // 8)
            yield from (bit for bit in range(8 * len(table)) if table[bit // 8] >> bit % 8 & 1)

    def _is_local(self, descriptor: int) -> bool:
        target = self._reader.link(self.pid, f"fd/{descriptor}")
        if target.startswith("socket:["):
            if self._sockets is None:
                self._sockets = self._reader.local_sockets(self.pid)
            return target[8:-1] in self._sockets
        return target.startswith("pipe:[")


def writable_statics(maps: str, executable: str, header: Callable[[int], bytes]) -> list[tuple[int, int]]:
    """The address ranges of the interpreter's own static memory: what its executable and its library map to write.

    What follows without a name and without a gap is the part of it that a file does not fill, up to its end as the
    `header` at an address says: memory that was mapped beside it may be the same range. Of a server that has the
    interpreter as a library, such as Apache, the executable's own memory is none of it.
    """
    embedded = "libpython" in maps and "python" not in os.path.basename(executable)
    spans: list[tuple[int, int]] = []
    ends: dict[str, int] = {}
    path = ""
    for mapping in mappings(maps):
        of_file = mapping.path == executable and not embedded
        own = of_file or os.path.basename(mapping.path).startswith("libpython")
        rest = not mapping.path and bool(spans) and mapping.start == spans[-1][1]
        if own:
            path = mapping.path
            if mapping.offset == 0:
                ends.setdefault(path, statics_end(header(mapping.start), mapping.start))
        if mapping.mode.startswith("rw") and (own or rest):
            end = mapping.end if own else min(mapping.end, ends.get(path) or mapping.end)
            spans.append((mapping.start, max(mapping.start, end)))
    return spans


def statics_end(header: bytes, base: int) -> int:
    """Where the writable memory ends of a program or library that is mapped at `base`; 0 if its header does not say."""
    if header[:5] != b"\x7fELF\x02" or len(header) < _HEADER_BYTES:  # of 64 bits
        return 0
    (programs,), (size, count) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
    ends = [0]
    for at in range(programs, min(programs + size * count, len(header) - size + 1), size or 1):
        loaded, flags, _, address, _, _, length = struct.unpack_from("<IIQQQQQ", header, at)
        if loaded == _LOADED and flags & _WRITABLE:
            ends.append(address + length)
    return max(ends) and max(ends) + (base if header[16] == _ANYWHERE else 0)


class Mapping(NamedTuple):
    """Addresses of a process from `start` on, with what is at `offset` in the file `path`, if they have one."""

    start: int
    end: int
    mode: str
    offset: int
    path: str

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end


def mappings(maps: str) -> Iterator[Mapping]:
    for line in maps.splitlines():
        span, mode, offset, _, _, *path = line.split(maxsplit=5)
        start, _, end = span.partition("-")
        yield Mapping(int(start, 16), int(end, 16), mode, int(offset, 16), path[0] if path else "")


def _within(address: int, spans: list[tuple[int, int]]) -> bool:
    return any(low <= address < high for low, high in spans)
