"""The errors of a launch that hangs or crashes, with the stacks of its threads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import stacks
from ..launch import THREADS_FIX, LaunchFailed, Request, setup_of
from ..watch.processes import marked
from .process import Process


class LaunchErrors:
    """Says where a launch was; `folder` is where its processes write their stacks."""

    def __init__(self, process: Process, folder: Path, request: Request) -> None:
        self.process = process
        self.folder = folder
        self.request = request

    def hung(self, reason: str) -> LaunchFailed:
        """The error of a launch that takes too long, with the stacks of all its threads."""
        others = [each.pid for each in marked(self.process.mark) if each.pid != self.process.pid]
        found = stacks.at_work(self._asked(others))
        return self.process.failure(reason + stacks.where(found), last=stacks.shown(found))

    def crashed(self, reason: str, detail: str = "") -> LaunchFailed:
        """The error of a launch that ended early; of a crash, such as a segmentation fault, with its Python line."""
        fatal, found = stacks.crashed(self.folder)
        if not fatal:
            return self.process.failure(reason, detail)
        return self.process.failure(reason + stacks.at_line(found), detail, last=f"{fatal}\n{stacks.shown(found)}")

    def look_for_threads(self, waited_s: float) -> None:
        """Raise LaunchFailed where, after `waited_s`, only threads of the workload keep the process from ending."""
        found = self._asked([])
        if stacks.awaits_threads(found):
            held = stacks.at_work(found)
            named = stacks.lines(held)
            reason = f"its process did not end within {waited_s:g} s: a thread of the workload still runs"
            text = "\n".join((stacks.shown(held), THREADS_FIX))
            raise self.process.failure(f"{reason} ({named})" if named else reason, last=text)

    def _asked(self, others: Sequence[int]) -> list[stacks.Stack]:
        """Of the launch's own process and these others."""
        setup = setup_of(self.request.cell, self.request.spec, stand_in=self.request.stand_in)
        return stacks.asked([self.process.pid, *others], self.folder, setup)
