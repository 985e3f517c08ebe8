"""Samples the stacks of a profile launch: a thread in each of its processes writes them to a file.

The start hook installs it where the environment says so. faulthandler writes the stacks of all threads of an
interpreter while it holds the GIL or, on a free-threaded build, while the world is stopped. The frames of
`sys._current_frames` run on while one goes through them: that may crash a free-threaded build. Sub-interpreters have
neither: theirs are of all interpreters. Nothing is sampled while there are any.
"""

from __future__ import annotations

import os
import sys
import time
from random import Random

from .beside import Beside
from .clock import now_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROFILE = "FTGATE_PROFILE"
"""The environment variable with the mean interval in ns, a colon, and the folder for the files."""
END = b"sampled at "
"""The prefix of the line after each sample; the rest is its time in ns, on the clock of iterations."""
MOST_BYTES = 32 << 20
"""The size of a file after which nothing more is sampled."""
SWITCH_S = 0.0001
"""How long a thread may keep the GIL when another asks for it.

With the 5 ms of the interpreter most samples would be of moments in which a thread lets go of the GIL by itself.
"""
POLL_S = 0.05
"""How often a selector that is asked without a wait asks the system.

An event loop asks after each step, and lets go of the GIL for it: with the GIL nearly all samples would be of that.
"""

_folder = ""
_interval_s = 0.0


def install(setting: str) -> None:
    """Sample from now on. A second call does nothing, nor does one in a sub-interpreter."""
    global _folder, _interval_s
    try:
        import faulthandler  # noqa: F401
    except ImportError:
        return
    if _folder:
        return
    interval_ns, _, _folder = setting.partition(":")
    _interval_s = int(interval_ns) / 1e9
    Beside("ftgate profile", _sample).begin()


def _sample(busy: Any) -> None:
    """Sample at random intervals, so that nothing in the workload is in step with it."""
    from faulthandler import dump_traceback

    path = os.path.join(_folder, str(os.getpid()))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    wait = Random()
    gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    while True:
        time.sleep(wait.expovariate(1 / _interval_s))
        if gil_enabled():
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
            _ask_less()
        with busy:
            at_ns = now_ns()
            # Beside a sub-interpreter that starts, 3.14t crashed in faulthandler in one launch of ten.
            if "_interpreters" in sys.modules and len(sys.modules["_interpreters"].list_all()) > 1:
                continue
            try:
                dump_traceback(file)
                os.write(file, b"%s%d\n" % (END, at_ns))
                if os.fstat(file).st_size > MOST_BYTES:
                    return
            except (OSError, RuntimeError):  # the workload has closed it
                return


def _ask_less() -> None:
    """See `POLL_S`; for the kind of selector that event loops take, once it is imported."""
    kind: Any = getattr(sys.modules.get("selectors"), "DefaultSelector", None)
    if kind is None or "select" not in vars(kind) or vars(kind)["select"].__module__ == __name__:
        return
    select = kind.select

    def seldom(self: Any, timeout: float | None = None) -> Any:
        if timeout is not None and timeout <= 0:
            now = now_ns()
            if now - vars(self).get("asked_ns", 0) < POLL_S * 1e9:
                return []
            self.asked_ns = now
        return select(self, timeout)

    kind.select = seldom
