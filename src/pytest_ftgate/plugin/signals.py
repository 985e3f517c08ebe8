"""SIGTERM and SIGHUP end a measuring run as Ctrl-C does: what was measured is judged, and the report is written."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Final

import pytest

from ..kit.proc import handles_signal

ENDING: Final = tuple(signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Ended(KeyboardInterrupt):
    """Raised in the main thread in place of a signal's death; its text is the signal's name."""


class Signals:
    """Turns the first signal into an `Ended`; while that ends the run, further ones are ignored."""

    def __init__(self) -> None:
        self.ending = False
        self.name = ""
        self._before: dict[signal.Signals, Any] = {}
        self._workers: list[Any] = []

    def install(self) -> None:
        """Take the signals that nobody else handles and that are not ignored, as nohup ignores SIGHUP."""
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                # C code may handle a signal, as faulthandler does, of which `signal.getsignal` knows nothing.
                if signal.getsignal(number) is signal.SIG_DFL and not handles_signal(os.getpid(), number):
                    self._before[number] = signal.signal(number, self._end)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remember the session, which the first signal stops."""
        self.session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """Remember the process of a worker that we have started ourselves. Source: xdist.newhooks."""
        process = getattr(getattr(node.gateway, "_io", None), "popen", None)
        if process is not None and node.gateway.spec.popen:
            self._workers.append(process)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """End the workers as well: xdist waits long for one that is at a test.

        Of the traceback one line is shown, without --full-trace; pytest renders all that there is, with its sources.
        """
        self.ending = True
        if hasattr(self, "session") and not self.session.config.getoption("fulltrace"):
            excinfo.traceback = (excinfo.traceback.filter(excinfo) or excinfo.traceback)[-1:]
        for process in self._workers:
            process.terminate()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Any:
        """A signal while the report is written changes the exit code, and nothing else."""
        self.ending = True
        result = yield
        if self.name and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.name = self.name or signal.Signals(number).name
        if not self.ending:
            self.ending = True
            if hasattr(self, "session"):  # should something catch what is raised here
                self.session.shouldstop = self.name
            raise Ended(self.name)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """A second Ctrl-C still ends what the first one waits for."""
        self.ending = True
        signal.default_int_handler(number, frame)
