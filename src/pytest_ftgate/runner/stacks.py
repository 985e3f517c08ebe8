"""Where threads are: faulthandler writes it to a file, at a crash or when the controller asks with a signal.

It costs nothing before that, and needs neither the GIL nor a thread that runs Python code.
"""

from __future__ import annotations

import faulthandler
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread
    from typing import Any

    from .loading import Setup

THREADS_S = 5.0
"""How long threads of the workload may go on after the rest of their process has ended."""
TASKS = -1
"""Added to the signal that asks for stacks: the one that asks for those of asyncio's tasks."""


def stack_file(setup: Setup, name: str) -> int:
    """Open the file of stacks of a process of this launch; its descriptor."""
    return os.open(os.path.join(setup["stacks"][0], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def install(setup: Setup, file: int) -> None:
    """Let this process write its stacks to this descriptor.

    On Linux the signal goes to each thread, which writes its own stack: a free-threaded build cannot write others.
    """
    faulthandler.enable(file)
    faulthandler.register(setup["stacks"][1], file, all_threads=sys.platform != "linux")


def task_stacks(tasks: dict[Any, str]) -> bytes:
    """The awaited calls of each of these tasks, by name, in faulthandler's format."""
    lines = []
    for task, name in tasks.items():
        calls, awaited = [], task.get_coro()
        while awaited is not None:
            frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
            if frame is not None:
                calls.append(
                    f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_qualname}'
                )
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        lines += [f"Thread 0x0 [{name}] (most recent call first):", *reversed(calls)]
    return "\n".join([*lines, ""]).encode("utf-8", "backslashreplace")


def exit_if_hung(threads: list[Thread], report: Callable[[tuple[str, str]], None]) -> None:
    """End this process, which waits for these threads, if they go on: `report` gets the reason and their stacks."""
    from threading import Thread

    def exit_with_stacks() -> None:
        import time
        import traceback

        time.sleep(THREADS_S)
        frames = sys._current_frames()
        held = {thread.name: frames[thread.ident] for thread in threads if thread.ident in frames}
        if held:
            reason = f"its process did not end within {THREADS_S:g} s: a thread of the workload still runs"
            stacks = (f"thread {name}:\n{''.join(traceback.format_stack(frame))}" for name, frame in held.items())
            report((f"{reason} ({', '.join(held)})", "".join(stacks)))
            os._exit(1)

    Thread(target=exit_with_stacks, daemon=True).start()
