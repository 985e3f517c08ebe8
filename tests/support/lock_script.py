"""A script under the lock probe, as a launch starts one: the start hook on PYTHONPATH, a window that is open."""

from __future__ import annotations

import os
import subprocess
import tempfile
import textwrap
from pathlib import Path

from bench import runner_home

from pytest_ftgate.measure.watch.lock_waits import read
from pytest_ftgate.model.sample import LockSite
from pytest_ftgate.runner.locks.sites import FOLDER, RECORD, WAITS, WINDOW

START_METHODS = ("fork", "forkserver", "spawn")

# What each script of processes begins with: its first argument is the start method.
PROCESSES_HEAD = """
    import multiprocessing as mp
    import json, os, sys, time

    def run(ctx, target, *args, count=1):
        started = [ctx.Process(target=target, args=args) for _ in range(count)]
        for process in started:
            process.start()
        for process in started:
            process.join()
        assert [process.exitcode for process in started] == [0] * count

    def start():
        if __name__ == "__main__":
            main(mp.get_context(sys.argv[1]))
"""

# Four tasks that come to one lock at once.
ONE_ASYNCIO_LOCK = """
    import asyncio, json, time

    visits = []

    async def hold(lock):
        came = time.perf_counter_ns()
        async with lock:
            began = time.perf_counter_ns()
            await asyncio.sleep(0.02)
            visits.append((came, time.perf_counter_ns() - began))

    async def main():
        lock = asyncio.Lock()
        await asyncio.gather(*(hold(lock) for _ in range(4)))

    asyncio.run(main())
    print(json.dumps(visits))
"""


class Script:
    """One script in a folder of its own, run by real interpreters with the probe on."""

    def __init__(self, folder: Path, source: str) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / "workload.py"
        self.path.write_text(textwrap.dedent(source), encoding="utf-8")
        self.home = runner_home()
        self.folder = folder
        self.said = ""

    def run(self, executable: str, *args: str, window: int = RECORD) -> tuple[LockSite, ...]:
        """The sites of one run that ends well and says nothing on stderr; `said` is what it printed.

        Where acquisitions are counted, locks that the standard library's modules make for themselves are left out.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="waits", dir=self.path.parent))
        (self.folder / WINDOW).write_bytes(bytes([window]))
        hook = self.home / "pytest_ftgate" / "runner" / "starthook"
        path = os.pathsep.join(map(str, (hook, self.home)))
        environment = {**os.environ, FOLDER: str(self.folder), "PYTHONPATH": path}
        command = [executable, "-W", "ignore::DeprecationWarning", str(self.path), *args]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        self.said = done.stdout
        return tuple(site for site in read(self.folder)[0] if site.acquisitions is None or site.file == str(self.path))

    def processes(self) -> set[int]:
        """The processes that left a file in the last run."""
        return {int(path.name.partition("-")[0]) for path in self.folder.glob("*" + WAITS)}

    def line(self, text: str) -> int:
        """The number of the one line that holds `text`."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        (found,) = [number for number, line in enumerate(lines, 1) if text in line]
        return found


def brief(sites: tuple[LockSite, ...]) -> set[tuple[int, str, str]]:
    """Line, kind and what is waited for, of each site; all in the script."""
    assert {Path(site.file).name for site in sites} <= {"workload.py"}
    return {(site.line, site.kind, site.waits_for) for site in sites}
