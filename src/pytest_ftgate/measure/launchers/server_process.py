"""A running server: started, asked, and ended as a whole process tree."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import tempfile
import urllib.parse
from pathlib import Path
from typing import Final

import psutil

from ...text import expanded
from ..launch import CellUnsupported, LaunchFailed, Request
from ..watch.proc import Proc
from ..watch.process_map import ProcessMap
from ..watch.processes import alive, described, kill_marked, marked, tree
from . import guard, program_words
from .command import program_environment
from .cpus import on
from .http import HOST
from .load_generators import Tool
from .output import FileOutput, exit_text
from .process import Process

GRACE_S: Final = 5.0
"""How long a server may take to end once it was told to, before its whole tree is killed."""
GIL_ON: Final = re.compile(r"global interpreter lock \(GIL\) has been enabled to load module '([^']*)'")


class ServerProcess:
    """A server's process tree, with its port, its scratch folder and the file that it prints into.

    `start` makes one. `known` are all processes that were ever seen in its tree or with its mark.
    """

    def __init__(
        self,
        request: Request,
        values: dict[str, str],
        ports: set[int],
        scratch: Path,
        process: Process,
    ) -> None:
        self.request = request
        self.values = values
        self.ports = ports
        self.port = int(values["port"])
        self.scratch = scratch
        self.process = process
        self.known: set[psutil.Process] = set()
        self.reader = Proc()
        self.closed = False

    @classmethod
    def start(cls, request: Request, mark: str, folder: Path, ports: set[int], tool: Tool | None) -> ServerProcess:
        """Start one on a free port, which is added to `ports`; it prints into `folder`.

        Raises CellUnsupported where its program is missing, OSError.
        """
        program = request.cell.executor.program
        assert program is not None
        home = program_words.folder_of(request.spec)
        (name,) = expanded(program.argv[:1], _values_of(request))
        path = program_words.which(name, request.python, home)
        if path is None:
            raise CellUnsupported(program_words.absent(name, request.spec.needs))
        port = free_port(ports)
        # Not below the project: the name of a socket in it has 107 bytes at most.
        scratch = Path(tempfile.mkdtemp(prefix=f"{guard.SCRATCH}{mark}-"))
        values = _values_of(request, port=port, scratch=scratch)
        output = FileOutput(folder / "output")
        process: Process | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            output.path.unlink(missing_ok=True)  # that of the last try, on another port
            words = [path, *expanded(program.argv[1:], values)]
            environment = program_environment(request, mark, values)
            with on(tool.server_cpus if tool else frozenset()):
                process = Process.start(words, environment, folder=home, stdout=output)
            return cls(request, values, ports, scratch, process)
        except BaseException:
            if process is not None:
                process.kill()
            kill_marked(mark)  # an interrupt may come before the process is ours
            ports.discard(port)
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    @property
    def mark(self) -> str:
        """What its processes carry in their environment."""
        return self.process.mark

    # -- what it is, and what it does --------------------------------------------------------------------------

    def filled(self, text: str) -> str:
        """`text` with its placeholders filled in."""
        return expanded([text], self.values)[0]

    @property
    def url(self) -> str:
        """Its address without a path."""
        assert self.request.spec.service is not None
        parts = urllib.parse.urlsplit(self.filled(self.request.spec.service.ready))
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def process_map(self) -> ProcessMap:
        """The process that was started: all below it are the server's too, whenever they come."""
        return ProcessMap(main=self.process.pid, all_work=True)

    @property
    def output(self) -> FileOutput:
        """What it prints."""
        (output,) = self.process.outputs
        assert isinstance(output, FileOutput)
        return output

    def cpu_s(self) -> dict[int, float]:
        """CPU time of each live process so far, in s; that of a process that has ended is lost."""
        spent = {process.pid: self.reader.cpu_s(process.pid) for process in self._tree()}
        return {pid: seconds for pid, seconds in spent.items() if seconds is not None}

    def strangers(self) -> str:
        """Who else listens on its port; empty when nobody does, or the system does not say."""
        with contextlib.suppress(psutil.Error, OSError):
            connections = psutil.net_connections("tcp")
            pids = {
                each.pid for each in connections if each.status == psutil.CONN_LISTEN and each.laddr[1] == self.port
            }
            others = {pid for pid in pids if pid is not None}
            for find in (self._tree, self._marked):
                others -= {process.pid for process in find()} if others else set()
            return f"process {min(others)} listens on {self.port} too" if others else ""
        return ""

    # -- what must hold ----------------------------------------------------------------------------------------

    def must_run(self, when: str) -> None:
        """Raises LaunchFailed where it has ended."""
        if self.process.exit is not None:
            raise self.died(when)

    def died(self, when: str) -> LaunchFailed:
        """The error of a server that has ended by itself."""
        assert self.process.exit is not None
        code = self.process.exit.code
        hint = "" if code else "; it has to stay in the foreground"
        return self.process.failure(f"its server {exit_text(code)} {when}{hint}")

    def must_keep_the_gil_off(self) -> None:
        """Raises LaunchFailed where an import turned the GIL on.

        A server's interpreter cannot be asked from outside, but CPython warns on stderr.
        """
        named = None if self.request.expect_gil else GIL_ON.search(self.output.text)
        if named:
            target = self.request.cell.target.request
            fix = f"Use a version of it that can run without the GIL, or measure this interpreter as {target}[gil=on]."
            raise self.process.failure(f"the GIL came back on: module {named[1]!r} turned it on", fix)

    # -- its end -----------------------------------------------------------------------------------------------

    def end(self) -> list[str]:
        """Ask it to end, then what is left of it, then kill; what could not be killed."""
        self._tree()
        if self.process.exit is None:
            self.process.popen.terminate()
        if self.process.over(GRACE_S):
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
        self.process.kill()
        left = [process for process in self.known if _runs(process)]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=GRACE_S)
        self.reader.close()
        self.ports.discard(self.port)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _tree(self) -> set[psutil.Process]:
        """What is below it now. It is kept: a process may leave its parent and clear its environment later."""
        below = set(tree(self.process.pid))
        self.known |= below
        return below

    def _marked(self) -> set[psutil.Process]:
        """What carries its mark, wherever it went in the tree."""
        carrying = set(marked(self.mark))
        self.known |= carrying
        return carrying


def free_port(taken: set[int]) -> int:
    """A loopback port that nobody listens on and that is not in `taken`, to which it is added.

    Another process may take it before the server binds it: see ServerHandle.wait_until_ready.
    """
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            taken.add(port)
            return port


def _values_of(request: Request, **more: object) -> dict[str, str]:
    return program_words.values_of(request.cell, request.spec, request.python, **more)


def _runs(process: psutil.Process) -> bool:
    """Whether it is still the process that was seen, and no other with its pid, and has not ended."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and alive(process)
    return False
