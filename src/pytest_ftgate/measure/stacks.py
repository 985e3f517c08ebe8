"""Where the threads of a launch are: asked for before it is killed, or read from what a crash left.

`runner/stacks.py` lets its processes write them to files; here they are asked for, read, and shortened for people.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from ..kit import proc
from ..kit.proc import children_of, handles_signal
from ..kit.values import grouped
from ..runner.stacks import TASKS
from ..runner.worker import worker_name

SIGNAL: Final = int(signal.SIGRTMAX) - 1 if hasattr(signal, "SIGRTMAX") else int(getattr(signal, "SIGINFO", 0))
"""What asks a process for its stacks; 0 where the system has no signal that workloads do without."""
MAIN: Final = "main thread"
SHUTDOWN: Final = "_shutdown"
"""The function of `threading` that waits for threads at the end of a process."""
MOST_S: Final = 5.0
ONE_S: Final = 0.5
SETTLED_S: Final = 0.02
MOST_STACKS: Final = 8
MOST_FRAMES: Final = 12
_DEBUGGERS: Final = ("bdb.py", "pdb.py", "pydevd.py")
_COMM: Final = 15  # bytes of a thread's name that the kernel keeps
_HEADER: Final = re.compile(r"(?:(Current thread|Thread) 0x\w+(?: \[(.*)\])?|Stack) \(most recent call first\):$")
_FRAME: Final = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_FATAL: Final = "Fatal Python error: "
_STANDARD: Final = re.compile(r"/lib(?:64)?/python3\.\d+t?/(?!site-packages|dist-packages)|^<frozen ")
_ENTRY: Final = re.compile(
    r"((?:concurrent/futures/(?:thread|process)|/loky/process_executor)\.py:(?:run|_worker|_process_worker)$"
    r"|(?:multiprocessing|/loky/backend)/queues\.py:_feed$)|/threading\.py:(?:run|_bootstrap\w*)$"
    r"|/multiprocessing/\w+\.py:(?:run|_bootstrap|main|_main|spawn_main)$|/runpy\.py:|^<string>:"
)
_POOL: Final = "/loky/"  # a pool that is not the standard library's, whose code is no work either
_WRAPPER: Final = re.compile(
    r"pytest_ftgate/runner/(?:locks/|primitives\.py|api\.py|profile\.py)"
)  # called by the workload
_OURS: Final = tuple(os.path.join("pytest_ftgate", wing, "") for wing in ("runner", "run"))


class Frame(NamedTuple):
    """One call: where it stands, innermost."""

    path: str
    line: str
    function: str

    @property
    def place(self) -> str:
        """`path:line in function`, which terminals make a link of."""
        return f"{self.path}:{self.line} in {self.function}"

    @property
    def standard(self) -> bool:
        return bool(_STANDARD.search(self.path))


class Stack(NamedTuple):
    """A thread with its calls, innermost first, without those that start it and without the runner's."""

    thread: str
    frames: tuple[Frame, ...]
    waits_in: str = ""
    """The native function that waits, where one is known."""

    @property
    def line(self) -> str:
        """`path:line` of the innermost call that is not the standard library's; empty where there is none."""
        return next((f"{frame.path}:{frame.line}" for frame in self.frames if not frame.standard), "")


# ---- asked for


def asked(
    pids: Sequence[int],
    folder: Path,
    setup: dict[str, object],
    threads: Mapping[int, str] | None = None,
    waits_in: Callable[[int, int], str] = lambda pid, thread: "",
) -> list[Stack]:
    """The stacks of these processes, which write to files in `folder`; the first is the one that started the workers.

    Of it only `threads`, by number, are asked, if they are given, with their names. Threads of the runner that wait for
    the workload have no stack. `waits_in` names what a thread of a process waits in. It takes `MOST_S` at most.
    """
    names = [worker_name(setup, index) for index in range(int(str(setup["workers"])))]
    deadline = time.monotonic() + MOST_S
    stacks = []
    if setup["kind"] == "tasks" and _listens(pids[0], SIGNAL + TASKS):
        _, text = _written(folder, pids[0], pids[0], SIGNAL + TASKS)
        stacks += [Stack(name, own(frames)) for _, name, frames in parsed(text)]
    for pid in pids:
        # The threads to ask, one after another; off Linux the process itself, which writes those of all.
        every = proc.threads(pid) if sys.platform == "linux" else [pid]
        for thread in sorted(every if threads is None or pid != pids[0] else threads):
            if time.monotonic() > deadline or not _listens(pid):
                break
            # First: the signal ends a wait in C, and perhaps the thread.
            comm = _comm(pid, thread) if threads is None else threads.get(thread, "")
            waits = waits_in(pid, thread)
            file, text = _written(folder, pid, thread)
            for _, name, frames in parsed(text):
                label = _label(pid, thread, pids[0], file, name or comm, names)
                stacks.append(Stack(label, own(frames), waits))
    return [stack for stack in stacks if stack.frames]


def of_frame(thread: str, frame: FrameType | None) -> Stack:
    """The stack of a thread of this process, from its innermost frame."""
    calls = []
    while frame is not None:
        calls.append(Frame(frame.f_code.co_filename, str(frame.f_lineno), frame.f_code.co_name))
        frame = frame.f_back
    return Stack(thread, own(calls))


def debugged(*threads: int) -> bool:
    """Whether somebody looks at one of these threads with a debugger, and may take all the time in the world.

    Without an identifier, at any thread of this process.
    """
    frames = sys._current_frames()
    for thread in threads or frames:
        frame = frames.get(thread)
        while frame is not None:
            if os.path.basename(frame.f_code.co_filename) in _DEBUGGERS:
                return True
            frame = frame.f_back
    return False


def below(pid: int) -> list[int]:
    """All processes that this one and its children have started; none where the system has no list of them."""
    found: list[int] = []
    latest = {pid}
    while latest:
        latest = children_of(sorted(latest)) or set()
        found += sorted(latest)
    return found


def _listens(pid: int, number: int = SIGNAL) -> bool:
    """Whether the signal would not kill it: no other program listens to it. Off Linux it is ignored by default."""
    return bool(handles_signal(pid, number)) or sys.platform != "linux"


def _send(pid: int, thread: int, number: int) -> None:
    if sys.platform == "linux":
        import ctypes

        send = getattr(ctypes.CDLL(None), "tgkill", None)
        if send is not None:
            send(pid, thread, number)
            return
    with contextlib.suppress(OSError):  # it has just ended
        os.kill(pid, number)


def _written(folder: Path, pid: int, thread: int, number: int = SIGNAL) -> tuple[str, str]:
    """What a process writes when a thread of it is asked, and the name of the file; empty where none answers."""
    before = _sizes(folder)
    _send(pid, thread, number)
    ends = time.monotonic() + ONE_S
    latest, since = before, 0.0
    while time.monotonic() < ends:
        sizes = _sizes(folder)
        if sizes != latest:
            latest, since = sizes, time.monotonic()
        elif since and time.monotonic() - since > SETTLED_S:
            break
        time.sleep(0.001)
    for name, size in latest.items():
        if size > before.get(name, 0):
            with (folder / name).open("rb") as file:
                file.seek(before.get(name, 0))
                return name, file.read().decode("utf-8", "replace")
    return "", ""


def _sizes(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries}


def _label(pid: int, thread: int, main: int, file: str, comm: str, names: Sequence[str]) -> str:
    known = [each for each in names if comm in (each, each.encode()[:_COMM].decode("utf-8", "replace"))]
    if pid == main:
        if thread == pid and not known:
            return MAIN
        return known[0] if len(known) == 1 else f"thread {comm or thread}"
    process = file if file != "main" else f"process {pid}"
    return process if thread == pid else f"{process}, thread {comm or thread}"


def _comm(pid: int, thread: int) -> str:
    """The name of a thread; empty where it has none of its own."""
    try:
        own, whole = (Path(f"/proc/{pid}/{place}comm").read_text().strip() for place in (f"task/{thread}/", ""))
    except (OSError, UnicodeDecodeError):
        return ""
    return own if own != whole else ""


# ---- read


def crashed(folder: Path) -> tuple[str, list[Stack]]:
    """What a crash left: the error in Python's words, and the stacks of the threads that crashed."""
    reason, stacks = "", []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        text = path.read_text(encoding="utf-8", errors="replace")
        _, fatal, text = text.rpartition(_FATAL)
        if fatal:
            reason = text.partition("\n")[0].strip()
            whose = path.name if path.name != "main" else ""
            for current, name, frames in parsed(text):
                if current:
                    thread = MAIN if name.startswith("python") else name or "the thread that crashed"
                    stacks.append(Stack(whose or thread, own(frames)))
    return reason, [stack for stack in stacks if stack.frames]


def parsed(text: str) -> Iterable[tuple[bool, str, list[Frame]]]:
    """Each thread in what faulthandler wrote: whether it is the one that wrote it, its name, its calls."""
    current, name = False, ""
    frames: list[Frame] | None = None
    for line in text.splitlines():
        header, frame = _HEADER.match(line), _FRAME.match(line)
        if frame and frames is not None:
            frames.append(Frame(*frame.groups()))
        elif header:
            if frames is not None:
                yield current, name, frames
            current, name, frames = header[1] != "Thread", header[2] or "", []
        elif frames is not None and not line.startswith("  "):  # of C code, of extension modules
            yield current, name, frames
            frames = None
    if frames is not None:
        yield current, name, frames


def unwrapped(frames: Sequence[Frame]) -> list[Frame]:
    """Without what the plugin puts around calls of the workload."""
    return [frame for frame in frames if not _WRAPPER.search(frame.path)]


def own(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The workload's calls up to the runner's or what starts a thread or process; an idle pool's worker has none."""
    frames = unwrapped(frames)
    for index, frame in enumerate(frames):
        entry = _ENTRY.search(f"{frame.path}:{frame.function}")
        if entry and entry[1] and all(each.standard or _POOL in each.path for each in frames[:index]):
            return ()
        if entry or any(ours in frame.path for ours in _OURS):
            return tuple(frames[:index])
    return tuple(frames)


def at_work(stacks: Iterable[Stack]) -> list[Stack]:
    """Without a main thread that waits for the others."""
    return [stack for stack in stacks if stack.thread != MAIN or not all(frame.standard for frame in stack.frames)]


def awaits_threads(stacks: Iterable[Stack]) -> bool:
    """Whether the main thread has done all it had to, and other threads keep the process from ending."""
    return any(frame.function == SHUTDOWN for stack in stacks if stack.thread == MAIN for frame in stack.frames)


# ---- shown


def where(stacks: Iterable[Stack]) -> str:
    """`; worker 0 of 2 was at path:line`, of the first thread that has a line; empty where none has."""
    found = ((stack, f", in {stack.waits_in}" if stack.waits_in else "") for stack in stacks if stack.line)
    return next((f"; {stack.thread} was at {stack.line}{native}" for stack, native in found), "")


def at_line(stacks: Iterable[Stack]) -> str:
    """`, at path:line` of a crash; empty where no Python code crashed."""
    return next((f", at {stack.line}" for stack in stacks if stack.line), "")


def lines(stacks: Iterable[Stack]) -> str:
    """`thread pump at path:line, ...` of every thread, of bounded length."""
    return counted(f"{stack.thread} at {stack.line}" if stack.line else stack.thread for stack in stacks)


def counted(names: Iterable[str]) -> str:
    """`thread pump (3 of them), worker 0`: each name once, of bounded length."""
    times = Counter(names)
    each = [name if number == 1 else f"{name} ({number} of them)" for name, number in times.items()]
    more = f" and {len(each) - MOST_STACKS} more" if len(each) > MOST_STACKS else ""
    return ", ".join(each[:MOST_STACKS]) + more


def shown(stacks: Sequence[Stack]) -> str:
    """The stacks as text: threads with the same one together, of bounded length."""
    together = grouped(((stack.frames, stack.waits_in), stack.thread) for stack in stacks)
    text = []
    for (frames, waits), threads in list(together.items())[:MOST_STACKS]:
        text.append(f"{counted(threads)} (innermost call first):")
        text += [f"  native code that waits: {waits}"] if waits else []
        text += [f"  {frame.place}" for frame in frames[:MOST_FRAMES]]
        if len(frames) > MOST_FRAMES:
            text.append(f"  and {len(frames) - MOST_FRAMES} more calls")
    if len(together) > MOST_STACKS:
        text.append(f"and {len(together) - MOST_STACKS} more stacks")
    return "\n".join(text)
