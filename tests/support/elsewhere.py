"""Runs pytest as on another platform: `elsewhere.py PLATFORM[,MODULE...] ARGS... [-- ARGS...]`, each ARGS one run.

What the platform lacks is taken away before the plugin is imported, but after what this platform's standard library
needs for itself; each MODULE stays, of those that plain runs of functions do without. Exits with the last run's code.
"""

# ruff: noqa: F401

import asyncio
import concurrent.futures.thread
import ctypes
import faulthandler
import importlib
import io
import multiprocessing.managers
import multiprocessing.pool
import os
import platform
import signal
import subprocess
import sys
import sysconfig
import tempfile

import filelock
import pytest

MODULES = ("fcntl", "resource", "termios", "tty", "pwd", "grp", "psutil", "numpy", "scipy", "uv", "_interpreters")
FUNCTIONS = {
    os: (
        "fork",
        "getloadavg",
        "getpgid",
        "getuid",
        "killpg",
        "register_at_fork",
        "sched_getaffinity",
        "sched_setaffinity",
        "setsid",
        "sysconf",
        "uname",
        "wait4",
    ),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGRTMAX", "SIGRTMIN", "SIGUSR1", "pthread_kill", "setitimer"),
    faulthandler: ("register", "unregister"),
}

if __name__ == "__main__":
    sysconfig.get_config_vars()  # reads a module that is named for the platform
    platform.node()  # asks a function that is taken away
    where, *words = sys.argv[1:]
    elsewhere, *kept = where.split(",")
    for module in kept:
        importlib.import_module(module)
    for killer in (subprocess.Popen, *([sys.modules["psutil"].Process] if "psutil" in kept else [])):
        killer.kill = lambda self, number=signal.SIGKILL: os.kill(self.pid, number)  # there they need no signal
    for module in {*MODULES} - {*kept}:
        sys.modules[module] = None  # type: ignore[assignment]
    for owner, names in FUNCTIONS.items():
        for name in names:
            if hasattr(owner, name):
                delattr(owner, name)
    io._WindowsConsoleIO = type("_WindowsConsoleIO", (), {})  # type: ignore[attr-defined]  # pytest looks for it
    sys.platform = elsewhere
    code: int = 0
    while words:
        end = words.index("--") if "--" in words else len(words)
        code = pytest.main(["-p", "no:cacheprovider", *words[:end]])
        words = words[end + 1 :]
    sys.exit(code)
