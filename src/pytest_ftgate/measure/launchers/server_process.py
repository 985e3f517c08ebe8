"""A running server process: started, awaited and ended as a tree."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from ...model import Spec
from ...text import expanded
from ..launch import CellUnsupported, Request
from ..watch.proc import Proc
from ..watch.processes import described, kill_all, kill_marked, marked, tree
from . import program_words
from .command import program_environment
from .cpus import on
from .http import HOST
from .load_generators import Tool
from .output import FLOOD_BYTES, TAIL_BYTES


def _known(request: Request, **more: object) -> dict[str, str]:
    return program_words.values_of(request.cell, request.spec, request.python, **more)


GRACE_S: Final = 5.0
"""How long a server may take to end once it was told to, before its whole tree is killed."""
LATE_S: Final = 30.0
"""How much longer than its window a generator may take: wrk reads its last answers, oha sorts what it has kept."""
TRIES: Final = 3
POLL_S: Final = 0.02
PORT_TAKEN: Final = re.compile(
    r"address (?:is )?already in use|EADDRINUSE|could not bind|\[Errno (?:98|48)\]", re.IGNORECASE
)
GIL_ON: Final = re.compile(r"global interpreter lock \(GIL\) has been enabled to load module '([^']*)'")


class Running:
    """A server's processes, with the port, the scratch folder and the file of what they print."""

    def __init__(self, ports: set[int], request: Request, mark: str, folder: Path, tool: Tool | None) -> None:
        """Start them. Raises CellUnsupported where its program is not there, OSError."""
        program = request.cell.executor.program
        assert program is not None
        home = program_words.folder_of(request.spec)
        (name,) = expanded(program.argv[:1], _known(request))
        found = program_words.found(name, request.python, home)
        if found is None:
            raise CellUnsupported(program_words.absent(name, request.spec.needs))
        self.mark = mark
        self.ports = ports
        self.port = free_port(self.ports)
        # Short, wherever the project is: a socket in it has a name of 107 bytes at most.
        self.scratch = Path(tempfile.mkdtemp(prefix="ftgate-"))
        self.values = _known(request, port=self.port, scratch=self.scratch)
        self.printed = folder / "output"
        self.known: set[psutil.Process] = set()
        self.clocks = Proc()
        self.said = ""
        self.closed = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.printed.unlink(missing_ok=True)  # what the last try said, on another port
            words = [found, *expanded(program.argv[1:], self.values)]
            environment = program_environment(request, mark, self.values)
            with self.printed.open("ab") as output, on(tool.server_cpus if tool else frozenset()):
                self.process = subprocess.Popen(
                    words,
                    env=environment,
                    cwd=home,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.guard = _guard(self.process.pid, self.scratch)
        except BaseException:
            kill_marked(mark)  # an interrupt may come once the process is there
            if hasattr(self, "process"):
                self.process.wait()
            self.ports.discard(self.port)
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise

    # -- what it is at -----------------------------------------------------------------------------------------

    def cpu_s(self) -> dict[int, float]:
        """CPU time of each live process so far, in s; what one has used that ended is lost with it."""
        spent = {process.pid: self.clocks.cpu_s(process.pid) for process in self._tree()}
        return {pid: seconds for pid, seconds in spent.items() if seconds is not None}

    def strangers(self) -> str:
        """Who else listens on its port; empty when nobody does, or nobody can be asked."""
        with contextlib.suppress(psutil.Error, OSError):
            heard = psutil.net_connections("tcp")
            listening = {each.pid for each in heard if each.status == psutil.CONN_LISTEN and each.laddr[1] == self.port}
            others = {pid for pid in listening if pid is not None}
            for find in (self._tree, self._marked):
                others -= {process.pid for process in find()} if others else set()
            return f"process {min(others)} listens on {self.port} too" if others else ""
        return ""

    def output(self) -> str:
        """The last of what it printed."""
        try:
            with self.printed.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                return self.said + file.read().decode("utf-8", "replace")
        except OSError:
            return self.said

    def trim(self) -> None:
        """Let what it prints, such as a line a request, not fill the disk."""
        with contextlib.suppress(OSError):
            if self.printed.stat().st_size > FLOOD_BYTES:
                said = self.output()[-TAIL_BYTES:]
                os.truncate(self.printed, 0)
                self.said = said

    # -- ending ------------------------------------------------------------------------------------------------

    def end(self) -> list[str]:
        """Ask it to end, then what is left of it, then kill; what could not be killed."""
        self._tree()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)
            rest = [process for process in self._marked() | self.known if _runs(process)]
            for process in rest:
                with contextlib.suppress(psutil.Error):
                    process.terminate()
            psutil.wait_procs(rest, timeout=GRACE_S)
        self.close()
        return [described(process) for process in self.known if _runs(process)]

    def close(self) -> None:
        """Kill all that is left, remove the scratch folder, give back the port. Safe to call again."""
        if self.closed:
            return
        self.closed = True
        self._tree()
        kill_all(self.process.pid, self.mark)
        left = [process for process in self.known if _runs(process) and process.pid != self.process.pid]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait()
        psutil.wait_procs(left, timeout=GRACE_S)
        kill_group(self.guard)
        self.clocks.close()
        self.ports.discard(self.port)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _tree(self) -> set[psutil.Process]:
        """What is below it now; a process that leaves its parent and clears its environment is known from before."""
        found = set(tree(self.process.pid))
        self.known |= found
        return found

    def _marked(self) -> set[psutil.Process]:
        """What carries its mark, wherever it went in the tree."""
        found = set(marked(self.mark))
        self.known |= found
        return found


# -- small parts ---------------------------------------------------------------------------------------------------


def free_port(taken: set[int]) -> int:
    """A loopback port that nobody listens on and that is not in `taken`, to which it is added.

    Between now and the server's own bind another may take it: see ServerHandle.wait_until_ready.
    """
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            taken.add(port)
            return port


def _guard(group: int, scratch: Path) -> subprocess.Popen[str]:
    """What ends a server's processes, and removes its folder, where this process is killed before it could.

    It reads from a pipe whose other end is ours alone: it comes to the end of it when we do.
    """
    script = (
        'read line; kill -s TERM -- "-$1"; for turn in 1 2 3 4 5; do kill -s 0 -- "-$1" || break; sleep 1; done; '
        'kill -s KILL -- "-$1"; rm -rf "$2"'
    )
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "guard", str(group), str(scratch)],
        env={"PATH": os.defpath},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def traceback_in(error: BaseException, spec: Spec) -> str:
    """The frames of the test itself, and the error."""
    every = traceback.extract_tb(error.__traceback__)
    own: Sequence[traceback.FrameSummary] = [frame for frame in every if frame.filename == spec.source.path] or every
    lines = [*traceback.format_list(list(own)), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip()


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    return False


def kill_group(process: subprocess.Popen[str]) -> None:
    """End a generator or a guard, if it has not ended; its pipes come after it."""
    if process.poll() is None:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
