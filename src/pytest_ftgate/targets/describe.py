"""Run an interpreter, without the caller's Python settings, to learn what it is."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, get_args

import msgspec

from ..kit.errors import FtgateError
from ..model.spec import Interpreter, Settings, series
from ..runner.signatures import StartMethod

TIMEOUT_S: Final = 60.0

# Runs in the target: standard library of Python 3.13 and newer, in syntax that older versions can at least parse.
_COLLECTOR: Final = r"""
import json, os, platform, sys, sysconfig

def variable(name):
    return str(sysconfig.get_config_var(name) or "")

def jit():
    switch = getattr(sys, "_jit", None)
    return (switch.is_available(), switch.is_enabled()) if switch else (False, False)

def start_methods():
    try:
        import _multiprocessing
        import multiprocessing
        return list(multiprocessing.get_all_start_methods())
    except ImportError:
        return []

args = variable("CONFIG_ARGS")
flags = " ".join(variable(name) for name in ("PY_CORE_CFLAGS", "PY_CORE_LDFLAGS", "PGO_PROF_USE_FLAG", "CFLAGS"))
compiled = variable("PY_CORE_CFLAGS")
jit_available, jit_enabled = jit()
facts = {
    "executable": sys.executable,
    "base_executable": getattr(sys, "_base_executable", sys.executable) or sys.executable,
    "version": platform.python_version(),
    "implementation": sys.implementation.name,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "gil_enabled": bool(getattr(sys, "_is_gil_enabled", lambda: True)()),
    "jit_available": bool(jit_available),
    "jit_enabled": bool(jit_enabled),
    "pgo": "--enable-optimizations" in args or "-fprofile-use" in compiled or "-fprofile-instr-use" in compiled,
    "lto": ("--with-lto" in args and "--with-lto=no" not in args) or "-flto" in flags,
    "shared": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
    "debug": bool(sysconfig.get_config_var("Py_DEBUG")) or hasattr(sys, "gettotalrefcount"),
    "compiler": platform.python_compiler(),
    "config_args": args,
    "start_methods": start_methods(),
}
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(facts, file)
"""


_PLACES: Final = re.compile(r"--(?:exec-)?prefix|--\w+dir|--srcdir|--with-ensurepip|--disable-test-modules")


class InterpreterBroken(FtgateError):
    """An executable that did not describe itself: not a Python, a shim without a target, a crash or a hang."""


class Facts(Interpreter, frozen=True, kw_only=True):
    """The collector's output; `base_executable` is the interpreter behind a virtual environment."""

    base_executable: str
    found: str = ""
    build: str = ""
    start_methods: tuple[str, ...] = ()  # type: ignore[assignment]  # also those that are not ours


def describe(executable: str, *, found: str, settings: Settings = Settings()) -> Interpreter:
    """What `executable` is.

    `found` tells how it was found ("by name", "path"). A setting that the build does not support is left out, see
    `settings_unsupported`. Raises InterpreterBroken.
    """
    facts = collect(executable)
    if environment_variables(settings) and not settings_unsupported(facts, settings):
        facts = collect(executable, settings)
    build = [
        re.sub(r"^GCC\b", "gcc", facts.compiler),
        "PGO" if facts.pgo else "no PGO",
        "LTO" if facts.lto else "no LTO",
        *(["debug build"] if facts.debug else []),
        *(["with JIT"] if facts.jit_available else []),
    ]
    described = {
        "executable": executable,
        "found": found,
        "build": ", ".join(build),
        "start_methods": tuple(method for method in get_args(StartMethod) if method in facts.start_methods),
    }
    return Interpreter(**{name: getattr(facts, name) for name in Interpreter.__struct_fields__} | described)


@cache
def collect(executable: str, settings: Settings = Settings()) -> Facts:
    """The facts about `executable`, run with the variables of these settings: once in a process.

    Raises InterpreterBroken if it does not start, exits with an error, hangs or writes something else.
    """
    with tempfile.TemporaryDirectory(prefix="ftgate-") as folder:
        output = os.path.join(folder, "facts.json")
        try:
            done = subprocess.run(
                [executable, "-P", "-s", "-c", _COLLECTOR, output],
                env=scrubbed_environment() | environment_variables(settings),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
            )
        except OSError as error:
            raise InterpreterBroken(f"{executable} does not start: {error.strerror or error}") from error
        except subprocess.TimeoutExpired as error:
            raise InterpreterBroken(f"{executable} did not describe itself within {TIMEOUT_S:.0f} s") from error
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()
            ended = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
            # The last line of a traceback tells most; of the output of a shim or the shell it is the first.
            line = said[-1] if said[0].startswith("Traceback") else said[0]
            raise InterpreterBroken(f"{executable} does not run ({ended}): {line}")
        try:
            return msgspec.json.decode(Path(output).read_bytes(), type=Facts)
        except (OSError, msgspec.MsgspecError) as error:
            raise InterpreterBroken(f"{executable} did not describe itself: {error}") from error


def scrubbed_environment() -> dict[str, str]:
    """This process's environment without what would change another interpreter: PYTHON*, a venv's, coverage's."""
    changing = ("PYTHON", "__PYVENV", "_PYTHON", "COV_CORE_", "COVERAGE_PROCESS_")
    return {name: value for name, value in os.environ.items() if not name.startswith(changing)}


def settings_unsupported(interpreter: Interpreter, settings: Settings) -> str | None:
    """Why `interpreter` does not support `settings`, with a fix; None if it does."""
    name = interpreter.name
    version = series(interpreter.version)
    if settings.gil == "off" and not interpreter.free_threaded:
        return f"gil=off needs a free-threaded build and {name} is not one: use the target {version}t"
    if settings.jit == "on" and not interpreter.jit_available:
        return f"jit=on: {name} was built without the JIT (configure --enable-experimental-jit)"
    no_gil = settings.gil == "off" or (settings.gil is None and not interpreter.gil_enabled)
    if settings.switchinterval_ns is not None and interpreter.free_threaded and no_gil:
        return f"switchinterval has no effect without the GIL: use {version} or {version}t[gil=on,switchinterval=...]"
    return None


def environment_variables(settings: Settings) -> dict[str, str]:
    """The variables that set the GIL and the JIT at start-up; the runner sets the switch interval."""
    switches = {"PYTHON_GIL": settings.gil, "PYTHON_JIT": settings.jit}
    return {name: "1" if value == "on" else "0" for name, value in switches.items() if value is not None}


def build_key(interpreter: Interpreter) -> str:
    """A short key for baselines, such as `cpython-3.14.7t-nogil-1a2b3c4d`.

    It depends on the version, the state of GIL and JIT, and on what the build's speed depends on (compiler, flags, PGO,
    LTO); it does not depend on the place or the date of the build.
    """
    parts = [interpreter.implementation, interpreter.name, "gil" if interpreter.gil_enabled else "nogil"]
    if interpreter.jit_enabled:
        parts.append("jit")
    # The arguments of configure without places: prefixes, folders, and words of a flag that contain a path.
    try:
        arguments = shlex.split(interpreter.config_args)
    except ValueError:
        arguments = interpreter.config_args.split()
    flags = (argument.split() for argument in arguments if not _PLACES.match(argument))
    kept = (" ".join(word for word in words if "/" not in word and "\\" not in word) for words in flags)
    switches = [interpreter.pgo, interpreter.lto, interpreter.shared, interpreter.debug]
    digest = hashlib.sha256(json.dumps([interpreter.compiler, *switches, sorted(filter(None, kept))]).encode())
    return "-".join([*parts, digest.hexdigest()[:8]])
