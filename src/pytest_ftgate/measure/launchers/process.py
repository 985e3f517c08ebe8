"""A started process of a launch: what it prints, how it ends, and the end of everything that it started."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

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
TAIL_BYTES = 16 << 10


class PipeOutput:
    """What a process prints into a pipe, drained while it is waited for; the last `kept_bytes` are kept."""

    def __init__(self, kept_bytes: int = TAIL_BYTES, shown_lines: int = 20) -> None:
        self.kept_bytes = kept_bytes
        self.shown_lines = shown_lines
        self.printed = 0
        self.kept = bytearray()

    def drain(self, descriptor: int) -> bool:
        """Take what is there, at most 64 KiB, without waiting; whether more may come."""
        try:
            chunk = os.read(descriptor, 65536)
        except BlockingIOError:
            return True
        self.printed += len(chunk)
        self.kept += chunk
        del self.kept[: -self.kept_bytes]
        return bool(chunk)

    @property
    def flooded(self) -> bool:
        return self.printed > FLOOD_BYTES

    @property
    def text(self) -> str:
        return self.kept.decode("utf-8", "replace")


class FileOutput:
    """What a process prints into a file. A pipe would stop a server that prints while nobody drains it."""

    shown_lines = 20
    flooded = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before = ""

    @property
    def text(self) -> str:
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                return self.before + file.read().decode("utf-8", "replace")
        except OSError:
            return self.before

    def trim(self) -> None:
        """Empty a long file, so that a line per request does not fill the disk; the last of it is kept."""
        try:
            if self.path.stat().st_size > FLOOD_BYTES:
                kept = self.text[-TAIL_BYTES:]
                os.truncate(self.path, 0)
                self.before = kept
        except OSError:
            pass  # it has been removed


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

_REST_S = 0.5
_REST_ROUNDS = 64  # of 64 KiB at most: what is printed without an end is not read to its end


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
        outputs: Sequence[PipeOutput | FileOutput],
        selector: selectors.BaseSelector,
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
        self._selector = selector
        self._readers: list[threading.Thread] = []
        """Those of streams that no selector can wait for."""
        self._waiter = threading.Thread(target=self._wait_for_exit, name=f"ftgate waits for {popen.pid}", daemon=True)

    @classmethod
    def start(
        cls,
        words: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: str | None = None,
        stdout: PipeOutput | FileOutput,
        stderr: PipeOutput | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Process:
        """Start one; `environment` holds the launch's mark. Without `stderr` both streams go to `stdout`.

        Raises OSError where it cannot be started.
        """
        guard.ensure()
        began_ns = now_ns()
        with contextlib.ExitStack() as stack:
            stack.enter_context(_named_limits())
            sink: IO[bytes] | int = subprocess.PIPE
            if isinstance(stdout, FileOutput):  # kept open here only while the process is started
                sink = stack.enter_context(stdout.path.open("ab"))
            stack.enter_context(tagged(environment[MARK]))
            popen = subprocess.Popen(
                words,
                cwd=folder,
                env=environment,
                pass_fds=pass_fds,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT if stderr is None else subprocess.PIPE,
                start_new_session=True,
            )
            try:
                selector = selectors.DefaultSelector()
                outputs = [output for output in (stdout, stderr) if output is not None]
                process = cls(popen, environment[MARK], began_ns, outputs, selector)
                for stream, output in ((popen.stdout, stdout), (popen.stderr, stderr)):
                    if stream is not None and isinstance(output, PipeOutput):
                        process._listen(stream, output)
                process._waiter.start()
                return process
            except BaseException:
                with popen:  # closes its streams, and waits for it
                    kill_all(popen.pid, environment[MARK])
                raise

    @property
    def wall_ns(self) -> int:
        return (self.exit.ended_ns if self.exit else now_ns()) - self.began_ns

    @property
    def flooded(self) -> bool:
        return any(output.flooded for output in self.outputs)

    # -- waiting -----------------------------------------------------------------------------------------------

    def wake_on(self, descriptor: int) -> None:
        """Let `drain` return once something can be read from `descriptor`."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def wake_no_more_on(self, descriptor: int) -> None:
        """Undo `wake_on`: a descriptor whose other end is closed can always be read from."""
        self._selector.unregister(descriptor)

    def drain(self, wait_s: float) -> None:
        """Take what it prints; returns after `wait_s`, or as soon as there was something."""
        if not self._selector.get_map():  # it has closed its streams: its end is near, or it prints no more
            self._waiter.join(wait_s)
            return
        self._take(self._selector.select(wait_s))

    def over(self, wait_s: float = 0.0) -> bool:
        """Whether it has ended; waits for that at most `wait_s`, and drains what it prints meanwhile."""
        ends = now_ns() + wait_s * 1e9
        self.drain(0.0)
        while self.exit is None and (left_ns := ends - now_ns()) > 0:
            self.drain(min(0.1, left_ns / 1e9))
        return self.exit is not None

    def wait(self, timeout_s: float, what: str = "") -> Exit:
        """Wait for its end; `what` begins the reason of an error.

        Raises LaunchFailed when it floods its output or takes longer than `timeout_s`; then it is killed.
        """
        while self.exit is None:
            self.drain(0.1)
            if self.flooded:
                raise self._killed_for(f"{what}printed more than {FLOOD_BYTES >> 20} MiB")
            if self.wall_ns > timeout_s * 1e9:
                raise self._killed_for(f"{what}did not end within {timeout_s:g} s (its whole process tree was ended)")
        self._drain_rest()
        return self.exit

    def terminate(self) -> None:
        """Ask it to end. Popen's own method asks for its exit code, which is for the thread that waits for it."""
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    # -- its end -----------------------------------------------------------------------------------------------

    def tail(self) -> str:
        """The last lines that it printed, under a heading; empty where it printed nothing."""
        self._drain_rest()
        tails = []
        for output in self.outputs:
            # Without the C stack of a Python that crashed, which is longer than what is shown.
            lines = [line for line in output.text.splitlines() if not line.startswith(C_CALL)]
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
            self._selector.close()
            for reader in self._readers:
                reader.join(_REST_S)
            for stream in (self.popen.stdout, self.popen.stderr):
                if stream is not None and not any(reader.is_alive() for reader in self._readers):
                    stream.close()

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

    def _listen(self, stream: IO[bytes], output: PipeOutput) -> None:
        """Drain a stream: when it is waited for, or on Windows, whose selectors know no pipes, in a thread."""

        def drain() -> None:
            while output.drain(stream.fileno()):
                pass

        if sys.platform == "win32":
            self._readers.append(threading.Thread(target=drain, name=f"ftgate reads from {self.pid}", daemon=True))
            self._readers[-1].start()
        else:
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, output)

    def _take(self, ready: Sequence[tuple[selectors.SelectorKey, int]]) -> bool:
        """Drain the streams that are `ready`; whether one was."""
        streams = [key for key, _ in ready if key.data is not None]
        for key in streams:
            if not key.data.drain(key.fd):
                self._selector.unregister(key.fileobj)
        return bool(streams)

    def _drain_rest(self) -> None:
        """What is there by now. It does not wait for the end of a stream, which a child may hold open for long."""
        for reader in self._readers:
            reader.join(_REST_S)
        for _ in range(_REST_ROUNDS):
            if self.closed or not self._selector.get_map() or not self._take(self._selector.select(0)):
                return


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
