"""What an install depends on: a digest of the files and variables that its steps read."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from .project import VERSIONS, project_name
from .steps import WHEEL, Steps, arguments, is_command, path_of

VARIABLES: Final = (
    *("CC", "CXX", "CPP", "LD", "AR", "CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", "FC", "FFLAGS", "FCFLAGS"),
    *("RUSTFLAGS", "CARGO_BUILD_TARGET", "MATURIN_PEP517_ARGS", "CMAKE_ARGS", "SKBUILD_CMAKE_ARGS"),
    *dict.fromkeys(VERSIONS.values()),
)
"""Environment variables by which compilers are called differently, or a project's version is another."""
_METADATA: Final = (
    *("pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in", "uv.lock", "poetry.lock", "pdm.lock"),
    *("CMakeLists.txt", "meson_options.txt", "Makefile"),
)
_NATIVE: Final = (
    *(".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".ipp", ".tcc"),
    *(".pyx", ".pxd", ".pxi", ".tp", ".src", ".tmpl", ".rs", ".go", ".zig", ".s", ".S", ".asm", ".i", ".y", ".l"),
    *(".f", ".f90", ".f95", ".F", ".F90", ".toml", ".lock", ".build", ".options", ".cmake", ".in"),
)
_BESIDE: Final = frozenset({"tests", "test", "benchmarks", "docs", "doc", "examples"})
_BUILT: Final = (".so", ".pyd", ".dylib", ".dll", ".o", ".a", ".pyc")
_SKIPPED: Final = frozenset({"build", "dist", "target", "node_modules", "__pycache__", "baselines"})


class Inputs(NamedTuple):
    """A `digest` of what steps read; whether the result is `bound` to the project's folder; local distributions.

    An editable install or a command leaves something in the folder that it was made from, or points there. `local` are
    the distributions of folders that requirements files name, or whose build is given variables: uv takes a build of
    these from its cache.
    """

    digest: str
    bound: bool
    local: tuple[str, ...]


def inputs_of(steps: Steps, project: Path, given: Mapping[str, str]) -> Inputs:
    """What the steps read. Paths count relative to the project: the same files in two checkouts are the same.

    `given` are variables of these steps alone.
    """
    files: set[Path] = set()
    bound, local = False, set[str]()
    for step in steps:
        if is_command(step):
            bound = True
            files.update(_project_files(project, editable=False))
            continue
        for path, kind in _paths(project, step):
            if path.is_dir():
                bound = bound or kind.startswith("editable")
                files.update(_project_files(path, editable=kind.startswith("editable")))
                if kind.endswith("listed"):
                    local.add(project_name(path))
            else:
                files.add(path)
    variables = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ] if steps else []
    if given:
        local.add(project_name(project))
        variables += [f"{name}={value}" for name, value in given.items()]
    return Inputs(_digest(files, project, variables), bound, tuple(sorted(local - {""})))


def _digest(paths: Iterable[Path], project: Path, variables: Iterable[str]) -> str:
    digest = hashlib.sha256("\0".join(variables).encode())
    for name, path in sorted((os.path.relpath(path, project), path) for path in paths):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _paths(folder: Path, words: Iterable[str], listed: str = "") -> Iterator[tuple[Path, str]]:
    """(path, kind) of each file and folder that arguments name; the kind ends with `listed`."""
    for kind, value in arguments(words):
        path = path_of(folder, value.rpartition("file://")[2] if "file://" in value else value)
        if kind == "requirements":
            yield from _requirements(path)
        elif path.is_dir() or path.is_file():
            yield path, kind + listed
        elif path.name.endswith(WHEEL):
            yield from ((each, kind) for each in sorted(path.parent.glob(path.name)))


def _requirements(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[tuple[Path, str]]:
    """A requirements file, the files that it includes, and its local projects."""
    if path in seen or not path.is_file():
        return
    yield path, "requirements"
    if path.suffix == ".toml":
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = tuple(line.split(" #")[0].split())
        if not words or words[0].startswith("#"):
            continue
        if words[0].startswith(("-r", "-c", "--requirement", "--constraint")):
            for _, value in arguments(words):
                yield from _requirements(path.parent / value, seen | {path})
        else:
            yield from _paths(path.parent, words, " listed")


def _project_files(project: Path, *, editable: bool) -> Iterator[Path]:
    """The files that a build may read: what git does not ignore, of which an editable one needs no Python sources."""
    for path in _listed(project):
        parts = path.relative_to(project).parts
        native = path.name.endswith(_NATIVE) or path.name in _METADATA
        beside = parts[0] in _BESIDE or "baselines" in parts
        if native or not (editable or beside):
            yield path


def _listed(folder: Path) -> Iterator[Path]:
    """The files below a folder that git does not ignore, those of submodules too; outside of git all but usual ones."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or "CONFIG" in name}
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, cwd=folder, env=kept, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        yield from _walked(folder)
        return
    names = dict.fromkeys(os.fsdecode(done.stdout).split("\0"))
    if len(names) == 1:  # an ignored folder, to git
        yield from _walked(folder)
    for path in (folder / name for name in names if name and ".ftgate" not in Path(name).parts):
        if path.is_dir() and not path.is_symlink():
            yield from _listed(path) if (path / ".git").exists() else ()
        else:
            yield path


def _walked(project: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(project):
        names[:] = [name for name in names if not _is_skipped(Path(folder, name))]
        yield from (Path(folder, name) for name in files if not name.startswith(".") and not name.endswith(_BUILT))


def _is_skipped(folder: Path) -> bool:
    name = folder.name
    usual = name.startswith(".") or name.endswith(".egg-info") or name in _SKIPPED
    return usual or (folder / "pyvenv.cfg").exists()
