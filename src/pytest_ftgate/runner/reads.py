"""Notes what a check launch runs and reads: its processes and interpreters append to one file, before they go on.

The start hook installs it where the environment names that file. `sys.monitoring` tells of each function that is
called, once: later calls cost nothing. An audit hook hears of files, folders, programs and
connections; questions about files (`os.stat`) and the search for modules raise no event and are wrapped. What C code of
extension modules opens is not heard of here.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any

READS = "FTGATE_READS"
"""The environment variable that names the file of notes."""
MOST = 100_000
"""Notes of one interpreter; it notes no more, but that they are not all."""

# Kinds of notes. A line of the file is a kind, a space, and a Python literal of the text.
STARTED = "started"
FILE = "file"
"""A path that was opened for reading."""
ASKED = "asked"
"""A path that was asked about."""
RAN = "ran"
"""A path, a colon and the qualified name of code that ran; of the standard library none."""
FOLDER = "folder"
"""A folder that was listed."""
NAMES = "names"
"""A folder that was listed for its names alone."""
MODULE = "module"
"""A folder and a name, joined, that the import system looked for in it."""
SUFFIX = "suffix"
"""A suffix of such a name: `.py`, or one of bytecode and extension modules."""
WRITTEN = "written"
"""A path that was opened for writing, made, moved or removed."""
BOUND, CONNECTED = "bound", "connected"
"""The address of a local socket."""
UNKNOWN = "unknown"
"""Something whose reads cannot be noted, in words."""
TRACER = "a tracer"
"""It hears of each line that runs, or keeps us from hearing of each function."""

_IMPORT = "<frozen importlib._bootstrap_external>"
_METADATA = os.path.join("importlib", "metadata", "__init__.py")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_readlink, _open = os.readlink, os.open
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = os.path.join(_LIBRARY, "site-packages") + os.sep
_RUNNER = os.path.dirname(__file__) + os.sep
_monitoring: Any = getattr(sys, "monitoring", None)
_TOOL, _TOOLS = 4, 6
"""An id that no kind of tool has by convention, and how many there are."""

_file = ""
_noted: set[tuple[str, str]] = set()


def install(file: str) -> None:
    """Note in `file` from now on; call it before the workload is imported. A second call does nothing."""
    global _file
    if _file:
        return
    _file = os.path.abspath(file)
    note(STARTED, sys.executable)
    for module in tuple(sys.modules.values()):  # those that a .pth file has imported
        origin = getattr(module, "__file__", None)
        if isinstance(origin, str):
            note(FILE, _place(origin))
    for name in ("stat", "lstat", "access", "readlink"):
        setattr(os, name, _Asked(getattr(os, name)))
    os.open = _Opened(_open)
    # The import system's search for modules raises no event.
    from importlib.machinery import FileFinder, all_suffixes

    for suffix in all_suffixes():
        note(SUFFIX, suffix)
    find = FileFinder.find_spec

    def find_spec(self: Any, fullname: str, target: Any = None) -> Any:
        note(MODULE, _place(os.path.join(self.path, fullname.rpartition(".")[2])))
        return find(self, fullname, target)

    FileFinder.find_spec = find_spec  # type: ignore[method-assign]
    _watch_calls()
    sys.addaudithook(_heard)


def note(kind: str, text: str) -> None:
    """Append a note unless it is there. Raises OSError: what cannot be noted must not happen."""
    if len(_noted) >= MOST:
        kind, text = UNKNOWN, f"more than {MOST} files and functions"
    if (kind, text) in _noted:
        return
    _noted.add((kind, text))
    # Opened each time: a workload may close all descriptors.
    descriptor = _open(_file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(descriptor, f"{kind} {text!a}\n".encode())
    finally:
        os.close(descriptor)


def _place(path: Any, folder: Any = None) -> str:
    """An absolute path, not normalized: `..` after a link leads elsewhere. `folder` is a descriptor, None or -1."""
    if isinstance(path, int):
        return _path_of(path)
    text = os.fsdecode(path)
    if os.path.isabs(text):
        return text
    return os.path.join(os.getcwd() if folder is None or folder < 0 else _path_of(folder), text)


def _path_of(descriptor: int) -> str:
    return os.fsdecode(_readlink(f"/proc/self/fd/{descriptor}"))


# ---- what raises no event


class _Asked:
    """`os.stat` and its like; an object, since a function would become a method where a class keeps it."""

    def __init__(self, original: Any) -> None:
        self._original = original
        for supported in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if original in supported:
                supported.add(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __call__(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        kind = self._kind(path, args, kwargs)
        if kind:
            try:
                note(kind, _place(path, kwargs.get("dir_fd")))
            except (TypeError, ValueError):
                pass  # the call fails as well
            except FileNotFoundError:
                note(UNKNOWN, "a path below a descriptor")
        return self._original(path, *args, **kwargs)

    def _kind(self, path: Any, args: Any, kwargs: Any) -> str:
        """The kind of note for this call; empty for none."""
        return "" if isinstance(path, int) else ASKED


class _Opened(_Asked):
    """`os.open`, whose event does not tell below which folder it opens."""

    def _kind(self, path: Any, args: Any, kwargs: Any) -> str:
        if kwargs.get("dir_fd") is None:
            return ""
        flags = args[0] if args else kwargs.get("flags", 0)
        return WRITTEN if flags & _WRITING else FILE


def _watch_calls() -> None:
    if _monitoring is None or sys.gettrace() or any(map(_monitoring.get_tool, range(_TOOLS))):
        note(UNKNOWN, TRACER)
        return
    started = _monitoring.events.PY_START
    _monitoring.use_tool_id(_TOOL, "pytest-ftgate")
    _monitoring.register_callback(_TOOL, started, _called)
    _monitoring.set_events(_TOOL, started)


def _called(code: CodeType, _: int) -> Any:
    path = code.co_filename
    ours = path.startswith(("<", _RUNNER)) or (path.startswith(_LIBRARY) and not path.startswith(_INSTALLED))
    if not ours:
        note(RAN, f"{_place(path)}:{code.co_qualname}")
    return _monitoring.DISABLE


# ---- events


def _heard(event: str, args: Any) -> None:
    heard = EVENTS.get(event)
    if heard is None:
        return
    try:
        heard(*args)
    except (TypeError, ValueError, LookupError, AttributeError, FileNotFoundError):
        note(UNKNOWN, f"{event} of something else than a path")


def _opening(path: Any, mode: str | None = None, flags: int = 0, *_: Any) -> None:
    if isinstance(path, int):
        return
    place = _place(path)
    writes = any(letter in mode for letter in "wax+") if mode else bool(flags & _WRITING)
    if place != _file and not _is_run(sys._getframe(1).f_back):
        note(WRITTEN if writes else FILE, place)


def _is_run(opener: FrameType | None) -> bool:
    """Whether the import system opens a module for its code: what runs of it is noted."""
    user = opener and opener.f_back
    if opener is None or user is None or user.f_code.co_qualname != "SourceLoader.get_code":
        return False
    return opener.f_code.co_filename == user.f_code.co_filename == _IMPORT


def _listing(path: Any, *_: Any) -> None:
    # The import system lists whole folders, but what it looks for in them is noted by name.
    caller = sys._getframe(2).f_code.co_filename
    if caller != _IMPORT:
        # importlib.metadata lists each entry of sys.path for the names of distributions.
        note(NAMES if caller.endswith(_METADATA) else FOLDER, _place("." if path is None else path))


def _importing(_: Any, filename: str | None = None, path: Any = None, *__: Any) -> None:
    if filename:
        note(FILE, _place(filename))
    for entry in path or ():
        if isinstance(entry, str):
            note(FILE, _place(entry))


def _loading(name: Any, *_: Any) -> None:
    if name is not None and os.sep in (text := os.fsdecode(name)):
        note(FILE, _place(text))


def _changing(*places: tuple[int, int]) -> Callable[..., None]:
    """For an event whose arguments hold paths, and the descriptors of the folders that these are relative to."""

    def change(*args: Any) -> None:
        for path, folder in places:
            note(WRITTEN, _place(args[path], args[folder] if folder < len(args) else None))

    return change


def _database(path: Any, *_: Any) -> None:
    if isinstance(path, (str, bytes)) and path not in ("", b"", ":memory:", b":memory:"):
        note(WRITTEN, _place(path))


def _starting(program: Any, *_: Any) -> None:
    shown = program[0] if isinstance(program, (list, tuple)) and program else program
    note(UNKNOWN, f"the program {os.path.basename(os.fsdecode(shown))}")


def _binding(socket: Any, address: Any) -> None:
    if isinstance(address, (str, bytes)):
        note(BOUND, os.fsdecode(address))


def _connecting(socket: Any, address: Any, *_: Any) -> None:
    if isinstance(address, (str, bytes)):
        note(CONNECTED, os.fsdecode(address))
    elif address is not None:
        note(UNKNOWN, f"a connection to {address[0] if isinstance(address, tuple) and address else address}")


EVENTS: dict[str, Callable[..., None]] = {
    "open": _opening,
    "os.listdir": _listing,
    "os.scandir": _listing,
    "import": _importing,
    "ctypes.dlopen": _loading,
    "sqlite3.connect": _database,
    "os.rename": _changing((0, 2), (1, 3)),
    "os.link": _changing((1, 3)),
    "os.symlink": _changing((1, 2)),
    "os.mkdir": _changing((0, 2)),
    "os.remove": _changing((0, 1)),
    "os.rmdir": _changing((0, 1)),
    "os.truncate": _changing((0, 2)),
    "os.chmod": _changing((0, 2)),
    "os.utime": _changing((0, 3)),
    "subprocess.Popen": _starting,
    "os.exec": _starting,
    "os.posix_spawn": _starting,
    "os.spawn": lambda _, program, *__: _starting(program),
    "os.system": _starting,
    "pty.spawn": _starting,
    "sys.settrace": lambda *_: note(UNKNOWN, TRACER),
    "sys.monitoring.register_callback": lambda *_: note(UNKNOWN, TRACER),
    "socket.bind": _binding,
    "socket.connect": _connecting,
    "socket.sendto": _connecting,
    "socket.sendmsg": _connecting,
}
