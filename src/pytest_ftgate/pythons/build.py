"""Build CPython from the distribution's source package: both builds with the same compiler and flags."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import filelock

from ..errors import FtgateError
from ..model import Struct
from ..model.targets import series
from .describe import MARKER, scrubbed_environment
from .find import built_folder
from .source_package import OnProgress, SourcePackage, extract, fetch, known_package

# Position-independent objects fit both the static executable and the shared library, so that each file is compiled
# once. Debug information would take a quarter of the time. Extensions that users build later do not get these flags.
CORE_FLAGS: Final = "-fPIC -g0"
APT_PACKAGES: Final = (
    "build-essential pkg-config libssl-dev zlib1g-dev libffi-dev libbz2-dev liblzma-dev libsqlite3-dev "
    "libreadline-dev libncurses-dev uuid-dev"
)
NEEDED_MODULES: Final = ("ssl", "zlib", "ctypes", "multiprocessing.synchronize", "_interpreters")
_HEADERS: Final = {"openssl/ssl.h": "libssl-dev", "zlib.h": "zlib1g-dev", "ffi.h": "libffi-dev"}
_TAIL: Final = 25


class BuildError(FtgateError):
    """A build from source that could not start or failed; the message has the last lines of the log and a fix."""


class Recipe(Struct, frozen=True):
    """What is built: a source package, which build of it, and how."""

    package: SourcePackage
    free_threaded: bool
    pgo: bool
    jobs: int

    @property
    def tag(self) -> str:
        """`3.14t`, as in the names of installed files."""
        return series(self.package.version) + ("t" if self.free_threaded else "")

    @property
    def name(self) -> str:
        """The name of its folder in the cache."""
        kind = "freethreaded" if self.free_threaded else "gil"
        return f"cpython-{self.package.version}-{kind}{'-pgo' if self.pgo else ''}"


def build_from_source(
    version: str, *, free_threaded: bool, cache: Path, jobs: int, pgo: bool, progress: OnProgress
) -> Path:
    """Build and install the newest known release of `version` (`3.14`); the executable's path.

    An existing build is kept. A file lock is held; the installation appears complete, at the end. `progress` gets a
    line about the current step, several times a second. Raises BuildError, SourceUnavailable.
    """
    package = known_package(version)
    if package is None:
        raise BuildError(f"no source package of CPython {version} is known; 3.14 and 3.13 are")
    recipe = Recipe(package=package, free_threaded=free_threaded, pgo=pgo, jobs=jobs)
    prefix = built_folder(cache) / recipe.name
    work = cache / "build"
    work.mkdir(parents=True, exist_ok=True)
    with _alone(cache / "build.lock", progress):
        if not (prefix / MARKER).is_file():
            _require_tools()
            tarball = fetch(package, cache / "sources", progress)
            for left_over in work.glob("python-*"):  # of a build that was killed
                shutil.rmtree(left_over, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix="python-", dir=work, ignore_cleanup_errors=True) as folder:
                _build(recipe, prefix, tarball, Path(folder), progress)
    return executable_of(prefix, recipe.tag)


@contextlib.contextmanager
def _alone(path: Path, progress: OnProgress) -> Iterator[None]:
    """Hold the lock; report to `progress` while another build holds it."""
    lock = filelock.FileLock(path)
    while not lock.is_locked:
        try:
            lock.acquire(timeout=1.0)
        except filelock.Timeout:
            progress("waiting for another build to end")
    try:
        yield
    finally:
        lock.release()


def executable_of(prefix: Path, tag: str) -> Path:
    """The executable of an installed build."""
    return prefix / "bin" / f"python{tag}"


def missing_headers() -> tuple[str, ...]:
    """The distribution's packages whose headers the compiler does not find: a build would lack modules."""
    compiler = _compiler()
    if compiler is None:
        return ()
    return tuple(package for header, package in _HEADERS.items() if not _has_header(compiler, header))


def _require_tools() -> None:
    missing = [tool for tool in ("make",) if shutil.which(tool) is None]
    compiler = _compiler()
    if compiler is None:
        missing.insert(0, "a C compiler")
    elif not _has_header(compiler, "stdio.h"):
        missing.append("the C library's headers")
    if missing:
        raise BuildError(f"cannot build CPython here without {' and '.join(missing)}: apt install {APT_PACKAGES}")


def _compiler() -> str | None:
    return os.environ.get("CC") or next((name for name in ("gcc", "cc") if shutil.which(name)), None)


def _has_header(compiler: str, header: str) -> bool:
    try:
        done = subprocess.run(
            [*compiler.split(), "-E", "-x", "c", "-"], input=f"#include <{header}>\n", text=True, capture_output=True
        )
    except OSError:
        return False
    return done.returncode == 0


def _build(recipe: Recipe, prefix: Path, tarball: Path, work: Path, progress: OnProgress) -> None:
    """All steps from the tarball to the installation; unfinished files stay in `work`."""
    started = time.monotonic()
    progress("unpacking the source")
    extract(tarball, work)
    folder, staging = work / "build", work / "staging"
    folder.mkdir()
    steps = _Steps(folder, work / "build.log", progress)
    options = [f"--prefix={prefix}", "--without-ensurepip", "--disable-test-modules"]
    options += ["--disable-gil"] * recipe.free_threaded + ["--enable-optimizations"] * recipe.pgo
    steps.run("configuring", [str(work / recipe.package.folder / "configure"), *options, f"CFLAGS_NODIST={CORE_FLAGS}"])
    steps.run("compiling", ["make", f"-j{recipe.jobs}"])
    steps.run("installing", ["make", f"DESTDIR={staging}", "altinstall"])
    staged = staging / prefix.relative_to(prefix.anchor)
    python = executable_of(staged, recipe.tag)
    steps.run("linking the shared library", _link_command(recipe, python, staged))
    _alias_library(recipe, staged)
    steps.run("trying the shared library", _library_check(recipe, staged))
    missing = _missing_modules(python)
    _write_marker(recipe, staged, missing, time.monotonic() - started)
    shutil.rmtree(prefix, ignore_errors=True)  # an unfinished installation of this name
    prefix.parent.mkdir(parents=True, exist_ok=True)
    staged.rename(prefix)


def _library(recipe: Recipe) -> str:
    return f"libpython{recipe.tag}.so.1.0"


def _link_command(recipe: Recipe, python: Path, staged: Path) -> list[str]:
    """The command that links the whole static archive into a shared library next to the static executable."""
    variables = _ask(python, "import sysconfig; print(*map(sysconfig.get_config_var, ('MODLIBS', 'LIBS', 'SYSLIBS')))")
    archive = f"libpython{recipe.tag}.a"
    return [
        *(_compiler() or "cc").split(),
        "-shared",
        f"-Wl,-soname,{_library(recipe)}",
        "-o",
        str(staged / "lib" / _library(recipe)),
        "-Wl,--whole-archive",
        archive,
        "-Wl,--no-whole-archive",
        *(word for word in variables.split() if word != "None"),
    ]


def _alias_library(recipe: Recipe, staged: Path) -> None:
    (staged / "lib" / f"libpython{recipe.tag}.so").symlink_to(_library(recipe))


def _library_check(recipe: Recipe, staged: Path) -> list[str]:
    program = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); library.Py_GetVersion.restype = ctypes.c_char_p; "
        "sys.exit(not library.Py_GetVersion().decode().startswith(sys.argv[2]))"
    )
    return [sys.executable, "-c", program, str(staged / "lib" / _library(recipe)), recipe.package.version]


def _missing_modules(python: Path) -> tuple[str, ...]:
    """The needed modules that the new interpreter cannot import. Raises BuildError if it does not run."""
    program = (
        "import importlib\n"
        f"for name in {NEEDED_MODULES!r}:\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError: print(name)"
    )
    return tuple(_ask(python, program).split())


def _ask(python: Path, program: str) -> str:
    done = subprocess.run([str(python), "-c", program], env=_environment(), capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"the new interpreter does not run: {done.stderr.strip()[-500:]}")
    return done.stdout


def _write_marker(recipe: Recipe, staged: Path, missing: tuple[str, ...], took_s: float) -> None:
    without = f", without {', '.join(missing)}" if missing else ""
    marker = {
        "line": f"built from the source package {recipe.package.version}{without}",
        "version": recipe.package.version,
        "source": recipe.package.pool,
        "sha256": recipe.package.sha256,
        "free_threaded": recipe.free_threaded,
        "pgo": recipe.pgo,
        "core_flags": CORE_FLAGS,
        "missing_modules": list(missing),
        "took_s": round(took_s, 1),
    }
    (staged / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")


def missing_modules(prefix: Path) -> tuple[str, ...]:
    """The needed modules that a build from source lacks, according to its marker; empty for other interpreters."""
    try:
        return tuple(json.loads((prefix / MARKER).read_text(encoding="utf-8"))["missing_modules"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _environment() -> dict[str, str]:
    """The environment without variables that would change the build: the caller's Python, flags and make."""
    ignored = {"CFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR", "VIRTUAL_ENV"}
    kept = {name: value for name, value in scrubbed_environment().items() if name not in ignored}
    return {**kept, "LC_ALL": "C.UTF-8", "CC": _compiler() or "cc"}


class _Steps:
    """Runs the commands of a build in one folder, with one log, and reports their progress."""

    def __init__(self, folder: Path, log: Path, progress: OnProgress) -> None:
        self.folder = folder
        self.log = log
        self.progress = progress

    def run(self, label: str, command: list[str]) -> None:
        """Run one command to its end. Raises BuildError with the log's last lines; on any error ends its children."""
        with self.log.open("ab") as log:
            start = log.tell()
            process = self._start(label, command, log)
            try:
                self._follow(process, label, start)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
        if process.returncode:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:]
            raise BuildError(f"{label} failed (exit code {process.returncode}); the log ends:\n" + "\n".join(lines))

    def _start(self, label: str, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise BuildError(f"{label} failed: {command[0]} does not start ({error.strerror or error})") from error

    def _follow(self, process: subprocess.Popen[bytes], label: str, start: int) -> None:
        done = 0
        with self.log.open("rb") as reader:
            reader.seek(start)
            while True:
                done += reader.read().count(b"\n")
                self.progress(f"{label}, {done} lines of output")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.3)
                    return
