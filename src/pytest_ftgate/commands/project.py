"""What can be found out about a user's project without asking: its root, package, tests, git and CI."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..declare.options import install_step
from ..kit.errors import FtgateError
from ..kit.git import AgainstError, Repository
from ..kit.values import Struct
from ..targets.environments import Steps, default_install, required_python
from ..targets.find import default_pair
from . import inifile, requirements
from .requirements import Needs

MARKS: Final = ("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "pytest.ini", "pytest.toml")
FILES: Final = ("test_*.py", "*_test.py")
"""What pytest collects where nothing is said."""
_BENCHMARKS: Final = re.compile(r"bench|perf|concurren", re.IGNORECASE)
_TESTS: Final = re.compile(r"test", re.IGNORECASE)


class Git(Struct, frozen=True, kw_only=True):
    """The repository that a project stands in: its top, the branch that changes go to, its remote's address."""

    top: Path
    branch: str
    url: str = ""


class Project(Struct, frozen=True, kw_only=True):
    """A project as it is. Folders are absolute; `tests` is where its first workload goes, and may not be there yet.

    `ini` are the keys of its pytest configuration. `name` is the distribution's, "" where there is none; `targets` are
    those of the configuration, else both builds of the newest version here that `requires-python` allows, for the
    reason `why`, and `allowed` is whether there is one; `install` is what is installed for each target. `options`
    switch off what its `addopts` switch on and a measuring run has no use for; `strict` names the setting that makes
    an error of an unknown key or a warning, "" for none. `ours` is this plugin as a requirement, without a marker.
    """

    root: Path
    ini: Mapping[str, Any]
    git: Git | None
    name: str
    requires_python: str
    targets: tuple[str, ...]
    why: str
    allowed: bool
    install: Steps
    tests: Path
    files: tuple[str, ...]
    functions: tuple[str, ...]
    needs: Needs
    options: tuple[str, ...] = ()
    ours: str = "pytest-ftgate"
    strict: str = ""
    locked: bool = False
    pypy: bool = False


def look(folder: Path) -> Project:
    """Everything about the project that `folder` is in. Raises FtgateError for a file that cannot be read."""
    git = _git(folder)
    root, ini = _root(folder, None if git is None else git.top)
    tables, older = inifile.parse(root / "pyproject.toml"), inifile.parse(root / "setup.cfg")
    named = tuple(inifile.words(ini.get("ftgate_python")))
    requires_python = required_python(root)
    usual = default_pair(requires_python)
    tests = tests_folder(root, inifile.words(ini.get("testpaths")))
    return Project(
        root=root,
        ini=ini,
        git=git,
        name=str(tables.get("project", {}).get("name") or older.get("metadata", {}).get("name", "")),
        requires_python=requires_python,
        targets=named or usual.targets,
        why="" if named else usual.why,
        allowed=bool(named) or usual.allowed,
        install=_install(root, ini),
        tests=tests,
        files=tuple(name.rpartition("/")[2] for name in inifile.words(ini.get("python_files"))) or FILES,
        functions=tuple(inifile.words(ini.get("python_functions")) or ("test",)),
        needs=requirements.needs_of(root, tables, older, ini),
        options=_options(ini),
        strict=_strict(ini),
        locked=(root / "uv.lock").is_file(),
        pypy=_names_pypy(root, git),
    )


def tests_folder(root: Path, testpaths: Sequence[str]) -> Path:
    """The folder of the first workload: of those that pytest looks into one for benchmarks, else one for tests."""
    named = list(_folders(root, testpaths))
    usual = [root / name for name in ("tests", "test") if (root / name).is_dir()]
    if not usual:  # those in a package
        inside = (path for glob in ("*/test*", "src/*/test*") for path in sorted(root.glob(glob)))
        usual = [path for path in inside if path.name in ("tests", "test") and (path.parent / "__init__.py").is_file()]
    if not named or named == [root]:
        named = usual or [root / "tests"]
    for pattern in (_BENCHMARKS, _TESTS):
        found = next((folder for folder in named if pattern.search(folder.name)), None)
        if found is not None:
            return found
    return named[0]


def name_for(patterns: Sequence[str], wanted: str, *, prefixes: bool) -> str:
    """`wanted`, or what pytest would collect in its place: `bench_x.py` for `test_x.py` where `bench_*.py` is asked.

    `prefixes`: a pattern without a wildcard is the beginning of a name.
    """
    globs = [f"{pattern}*" if prefixes and not re.search(r"[*?\[]", pattern) else pattern for pattern in patterns]
    if any(fnmatch.fnmatchcase(wanted, pattern) for pattern in globs):
        return wanted
    word = wanted.removeprefix("test_").removesuffix(".py")
    ending = "_" if prefixes and globs[0].endswith("*") and not globs[0].endswith("_*") else ""
    return globs[0].replace("*", f"{ending}{word}", 1).replace("*", "") if "*" in globs[0] else globs[0]


def has_workload(project: Project) -> Path | None:
    """A test file of the project's that already uses the plugin."""
    places = _folders(project.root, inifile.words(project.ini.get("testpaths")))
    for place in dict.fromkeys((project.tests, *places)):
        for folder, names, files in os.walk(place):
            names[:] = sorted(name for name in names if not _is_foreign(Path(folder, name)))
            tests = (name for name in sorted(files) if any(fnmatch.fnmatchcase(name, glob) for glob in project.files))
            found = next((name for name in tests if _uses_us(Path(folder, name))), None)
            if found is not None:
                return Path(folder, found)
    return None


def _is_foreign(folder: Path) -> bool:
    """Whether a folder holds what others wrote: hidden ones, virtual environments, packages of other languages."""
    return folder.name.startswith(".") or folder.name == "node_modules" or (folder / "pyvenv.cfg").exists()


def ci_of(git: Git | None) -> str:
    """`github` or `gitlab`, by what lies at the repository's top or by its remote; "" where neither tells."""
    if git is None:
        return ""
    on_gitlab, on_github = (git.top / ".gitlab-ci.yml").is_file(), (git.top / ".github").is_dir()
    if on_gitlab != on_github:
        return "gitlab" if on_gitlab else "github"
    return next((name for name in ("github", "gitlab") if name in git.url.lower()), "")


def _root(folder: Path, top: Path | None) -> tuple[Path, Mapping[str, Any]]:
    """The rootdir of pytest, with its ini keys, where it is configured; else the project's folder, or git's top."""
    places = [folder, *folder.parents]
    if top is not None:
        places = places[: places.index(top) + 1]
    marked = next((place for place in places if any((place / mark).is_file() for mark in MARKS)), None)
    # Outside of a repository nothing above the project is its own.
    ini = inifile.find(folder, top or marked or folder)
    return (marked or top or folder, {}) if ini is None else (ini.path.parent, ini.values)


def _git(folder: Path) -> Git | None:
    try:
        repository = Repository(folder)
        remote = repository.remote
        url = repository.git("config", "--get", f"remote.{remote}.url", allowed=(0, 1)).strip()
        top = repository.root.parents[len(Path(repository.prefix).parts) - 1] if repository.prefix else repository.root
        return Git(top=top, branch=_branch(repository), url=url)
    except AgainstError:
        return None


def _branch(repository: Repository) -> str:
    """The remote's default branch, else main or master, else the branch at hand."""
    head = f"refs/remotes/{repository.remote}/HEAD"
    told = repository.git("symbolic-ref", "--quiet", "--short", head, allowed=(0, 1)).strip()
    if told:
        return told.partition("/")[2]
    usual = next((name for name in ("main", "master") if repository.named(name)), "")
    return usual or repository.git("symbolic-ref", "--quiet", "--short", "HEAD", allowed=(0, 1)).strip() or "main"


def _install(root: Path, ini: Mapping[str, Any]) -> Steps:
    try:
        return tuple(install_step(line) for line in inifile.lines(ini["ftgate_install"]) if line)
    except KeyError:
        return default_install(root)
    except ValueError as error:
        raise FtgateError(f"ini option ftgate_install: takes {error}") from None


def _options(ini: Mapping[str, Any]) -> tuple[str, ...]:
    """Coverage of a few tests may be below its limit; measurements of several workers wait for each other."""
    addopts = inifile.words(ini.get("addopts"))
    covered = any(re.match(r"--cov(=|$)", word) for word in addopts)
    distributed = any(re.match(r"-n|--numprocesses", word) for word in addopts)
    return (*(["--no-cov"] if covered else []), *(["-n0"] if distributed else []))


def _strict(ini: Mapping[str, Any]) -> str:
    """The setting by which an unknown ini key, or the warning of one, is an error."""
    addopts = inifile.words(ini.get("addopts"))
    warnings = [line for line in inifile.lines(ini.get("filterwarnings")) if re.match(r"error(::|$)", line)]
    keys = [key for key in ("strict", "strict_config") if str(ini.get(key, "")).lower() in ("true", "1", "yes", "on")]
    options = [word for word in addopts if word == "--strict-config" or re.match(r"(-W|--pythonwarnings=)error", word)]
    return next(iter((*options, *keys, *(f"filterwarnings = {line}" for line in warnings))), "")


def _names_pypy(root: Path, git: Git | None) -> bool:
    """Whether its CI or its metadata names PyPy, for which this plugin's requirements have no wheels."""
    workflows = (root if git is None else git.top) / ".github" / "workflows"
    files = [*(root / name for name in MARKS), root / "noxfile.py", *workflows.glob("*.y*ml")]
    return any("pypy" in path.read_text(encoding="utf-8", errors="replace").lower() for path in files if path.is_file())


def _folders(root: Path, testpaths: Sequence[str]) -> Iterator[Path]:
    """The folders that `testpaths` names; one that is not there yet is named as well, a file by its folder."""
    for pattern in testpaths:
        if re.search(r"[*?\[]", pattern):
            yield from (path for path in sorted(root.glob(pattern)) if path.is_dir())
        else:
            path = root / pattern
            if path.is_relative_to(root) and ".." not in path.parts:
                yield path.parent if path.is_file() else path


def _uses_us(path: Path) -> bool:
    try:
        return "pytest_ftgate" in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
