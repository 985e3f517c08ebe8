"""A started process of a launch: what it prints, how it ends, and the end of everything that it started."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ...kit.killing import group_lives, kill_all
from ...kit.marks import MARK, tagged
from ...kit.processes import leftovers
from ...kit.text import plural
from ...kit.values import grouped
from ...model.sample import WorkloadError
from ...runner.clock import now_ns
from .. import stacks
from ..launch import LaunchFailed
from . import guard

C_CALL = '  Binary file "'
REAPERS = "an os.wait() for any child, or SIGCHLD ignored, in a conftest.py or a plugin"
FLOOD_BYTES = 4 << 20
KEPT_BYTES = 1 << 20
"""How much of what a process prints is read: the JSON of oha, which has many lines, is among the last of it."""
TAIL_BYTES = 16 << 10


class Output:
    """What a process prints: into a file without a name, since a pipe would stop it while nobody reads."""

    def __init__(self, shown_lines: int) -> None:
        self.shown_lines = shown_lines
        self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 -- open as long as the process runs
        if sys.platform != "win32":
            import fcntl

            # Where it is read from is not where the process goes on.
            fcntl.fcntl(self.file, fcntl.F_SETFL, os.O_APPEND)
        self._last = b""

    @property
    def flooded(self) -> bool:
        return os.fstat(self.file.fileno()).st_size > FLOOD_BYTES

    @property
    def text(self) -> str:
        return self._read(KEPT_BYTES).decode("utf-8", "replace")

    def trim(self) -> None:
        """Empty a long file, so that a line per request does not fill the disk; the last of it is kept."""
        if self.flooded:
            last = self._read(TAIL_BYTES)
            self.file.truncate(0)
            self.file.write(last)

    def close(self) -> None:
        """Close the file; what was printed last can still be read."""
        self._last = self._read(KEPT_BYTES)
        self.file.close()

    def _read(self, most_bytes: int) -> bytes:
        if self.file.closed:
            return self._last[-most_bytes:]
        self.file.seek(max(0, os.fstat(self.file.fileno()).st_size - most_bytes))
        return self.file.read()


def exit_text(code: int | None) -> str:
    """How a process ended, for people; a negative code is a signal."""
    if code is None:
        return f"ended, and something else in pytest's process took its exit code ({REAPERS})"
    if code >= 0:
        return f"exited with code {code}"
    names = {int(each): each.name for each in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"


def left_behind(mark: str, fix: str) -> WorkloadError | None:
    """The error of a launch that has exited and left processes behind; `fix` says what to do about it."""
    left = leftovers(mark)
    return left_error(left, fix) if left else None


def left_error(left: Sequence[str], fix: str = "") -> WorkloadError:
    reason = f"left {plural(len(left), 'process', 'processes')} behind"
    alike = grouped((words, pid) for pid, _, words in (each.partition(": ") for each in left))
    shown = [f"{pids[0]}{f' and {len(pids) - 1} more' * (len(pids) > 1)}: {words}" for words, pids in alike.items()]
    return WorkloadError(reason=reason, detail="\n".join(filter(None, (*shown, fix))))


def shortly(error: BaseException) -> str:
    """`AssertionError: it said no`, on one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# ---- the process


class Exit(NamedTuple):
    """How a process ended: its exit code, negative for a signal, and CPU time with that of its children, in ns.

    Without a code somebody else has waited for it, who has both.
    """

    code: int | None
    ended_ns: int
    cpu_ns: int


class Process:
    """A process in a session of its own, with a launch's mark in its environment; `start` makes one.

    A thread of ours waits for its end, so that the time of the end is right whatever is sampled meanwhile.
    """

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        mark: str,
        began_ns: int,
        outputs: Sequence[Output],
    ) -> None:
        self.popen = popen
        self.pid = popen.pid
        """Its process id, which is also that of its process group."""
        self.mark = mark
        self.began_ns = began_ns
        self.outputs = outputs
        self.exit: Exit | None = None
        self.closed = False
        self._leads = True
        """Whether its process group is its own: another process may get the number of one that is empty."""
        self._waiter = threading.Thread(target=self._wait_for_exit, name=f"ftgate waits for {popen.pid}", daemon=True)

    @classmethod
    def start(
        cls,
        words: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: str | None = None,
        shown_lines: Sequence[int] = (20,),
        pass_fds: Sequence[int] = (),
    ) -> Process:
        """Start one; `environment` holds the launch's mark. Raises OSError where it cannot be started.

        Both streams have one output, or each its own with two numbers of `shown_lines`: those of the end that an error
        shows.
        """
        guard.ensure()
        with _named_limits(), tagged(environment[MARK]), contextlib.ExitStack() as undone:
            outputs = [Output(lines) for lines in shown_lines]
            for output in outputs:
                undone.callback(output.close)
            began_ns = now_ns()
            popen = subprocess.Popen(
                words,
                cwd=folder,
                env=environment,
                pass_fds=pass_fds,
                stdin=subprocess.DEVNULL,
                stdout=outputs[0].file,
                stderr=outputs[-1].file,
                start_new_session=True,
            )
            undone.callback(popen.wait)
            undone.callback(kill_all, popen.pid, environment[MARK])
            process = cls(popen, environment[MARK], began_ns, outputs)
            process._waiter.start()
            undone.pop_all()
            return process

    @property
    def wall_ns(self) -> int:
        return (self.exit.ended_ns if self.exit else now_ns()) - self.began_ns

    @property
    def flooded(self) -> bool:
        return any(output.flooded for output in self.outputs)

    # -- waiting -----------------------------------------------------------------------------------------------

    def over(self, wait_s: float = 0.0) -> bool:
        """Whether it has ended; waits for that at most `wait_s`."""
        self._waiter.join(wait_s)
        return self.exit is not None

    def wait(self, timeout_s: float, what: str = "") -> Exit:
        """Wait for its end; `what` begins the reason of an error.

        Raises LaunchFailed when it floods its output or takes longer than `timeout_s`; then it is killed.
        """
        while not self.over(0.1):
            if self.flooded:
                raise self._killed_for(f"{what}printed more than {FLOOD_BYTES >> 20} MiB")
            if self.wall_ns > timeout_s * 1e9:
                raise self._killed_for(f"{what}did not end within {timeout_s:g} s (its whole process tree was ended)")
        assert self.exit is not None
        return self.exit

    def terminate(self) -> None:
        """Ask it to end. Popen's own method asks for its exit code, which is for the thread that waits for it."""
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    # -- its end -----------------------------------------------------------------------------------------------

    def tail(self) -> str:
        """The last lines that it printed, under a heading; empty where it printed nothing."""
        tails = []
        for output in self.outputs:
            # Without the C stack of a Python that crashed, which is longer than what is shown.
            lines = [line for line in output.text[-TAIL_BYTES:].splitlines() if not line.startswith(C_CALL)]
            tails.append("\n".join(lines[-output.shown_lines :]))
        printed = "\n".join(filter(None, tails))
        return f"the last lines it printed:\n{printed}" if printed else ""

    def failure(self, reason: str, detail: str = "", last: str = "") -> LaunchFailed:
        """The error of a process that failed: `detail`, the last lines that it printed, `last`."""
        return LaunchFailed(WorkloadError(reason=reason, detail="\n".join(filter(None, (detail, self.tail(), last)))))

    def kill(self) -> None:
        """End it and everything that it started. Safe at any time, also twice."""
        if not self.closed:
            kill_all(self.pid if self._leads else None, self.mark)
            self._close()

    def release(self) -> None:
        """Let go of it; it is killed if it has not ended. What an ended one left behind is not looked for."""
        if self.exit is None:
            self.kill()
        else:
            self._close()

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            self._waiter.join()
            for output in self.outputs:
                output.close()

    def _killed_for(self, reason: str) -> LaunchFailed:
        """The error of a process that is killed at once: others would be measured beside it."""
        failure = self.failure(reason)
        self.kill()
        return failure

    def _wait_for_exit(self) -> None:
        code: int | None = None
        cpu_s = 0.0
        if hasattr(os, "wait4"):
            with contextlib.suppress(ChildProcessError):
                _, status, usage = os.wait4(self.pid, 0)
                code, cpu_s = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        else:  # on Windows, where nothing is measured
            code = self.popen.wait()
        ended_ns = now_ns()
        # Its pid may be another process's from now on: Popen must not wait for that, nor may it be killed.
        self.popen.returncode = 0 if code is None else code
        self._leads = group_lives(self.pid)
        self.exit = Exit(code, ended_ns, round(cpu_s * 1e9))


@contextlib.contextmanager
def _named_limits() -> Iterator[None]:
    """Turn a failure to start a process or a thread into an OSError that names the limit."""
    fixes = {
        errno.EAGAIN: "no more processes and threads can be started: raise `ulimit -u` or the container's limit",
        errno.EMFILE: "no more files can be opened: raise `ulimit -n`",
        errno.ENOMEM: "there is not enough memory to start a process",
    }
    try:
        yield
    except RuntimeError as error:  # of a thread
        raise OSError(errno.EAGAIN, fixes[errno.EAGAIN]) from error
    except OSError as error:
        if error.errno not in fixes:
            raise
        raise OSError(error.errno, fixes[error.errno]) from error


# ---- a call that must end in time, such as a test's check of its server

T = TypeVar("T")


class Late(Exception):
    """A call did not end in time; `stack` is where it was by then."""

    def __init__(self, seconds: float, stack: stacks.Stack) -> None:
        super().__init__(f"did not end within {seconds:g} s{stacks.where([stack])}")
        self.stack = stack


def within(seconds: float, act: Callable[[], T], name: str) -> T:
    """What `act` returns or raises. Raises Late after `seconds`, unless somebody looks at it with a debugger.

    It runs in a thread of its own, in this context; one that is late is left behind as a daemon.
    """
    outcome: list[tuple[T | None, BaseException | None]] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append((context.run(act), None))
        except BaseException as error:  # noqa: BLE001 -- raised where it was called
            outcome.append((None, error))

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    while not outcome and stacks.debugged(thread.ident or 0):
        thread.join(seconds)
    if not outcome:
        raise Late(seconds, stacks.of_frame(name, sys._current_frames().get(thread.ident or 0)))
    value, error = outcome[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
