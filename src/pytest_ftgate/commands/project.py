"""What can be found out about a user's project without asking: its root, package, tests, git and CI."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..model import Struct
from ..pythons import default_install, default_pair
from ..run.git import AgainstError, Repository
from . import inifile
from .inifile import IniFile

MARKS: Final = ("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "pytest.ini", "pytest.toml")
REQUIREMENTS: Final = "requirements.txt"
FILES: Final = ("test_*.py", "*_test.py")
"""What pytest collects where nothing is said."""
TEST_NAMES: Final = ("test", "tests", "testing", "dev")
_BENCHMARKS: Final = re.compile(r"bench|perf|concurren", re.IGNORECASE)
_TESTS: Final = re.compile(r"test", re.IGNORECASE)


class Git(Struct, frozen=True, kw_only=True):
    """The repository that a project stands in: its top, the branch that changes go to, its remote's address."""

    top: Path
    branch: str
    url: str = ""


class Project(Struct, frozen=True, kw_only=True):
    """A project as it is. Folders are absolute; `tests` is where its first workload goes, and may not be there yet.

    `name` is the distribution's, "" where there is none; `targets` are those of the configuration, else both builds of
    the newest version here that `requires-python` allows, for the reason `why`; `install` what `ftgate_install` should
    say, None where its default will do; `extras` and `groups` are the dependencies of its tests; `declares_us` is
    whether pytest-ftgate is among its dependencies.
    """

    root: Path
    ini: IniFile
    git: Git | None
    name: str
    requires_python: str
    targets: tuple[str, ...]
    why: str
    install: tuple[str, ...] | None
    tests: Path
    files: tuple[str, ...]
    functions: tuple[str, ...]
    baselines: str = ""
    packaged: bool = False
    locked: bool = False
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    declares_us: bool = False


def look(folder: Path) -> Project:
    """Everything about the project that `folder` is in. Raises FtgateError for a file that cannot be read."""
    git = _git(folder)
    root, ini = _root(folder, None if git is None else git.top)
    tables = _pyproject(root)
    project = tables.get("project", {})
    named = tuple(inifile.words(ini.values.get("ftgate_python")))
    usual = default_pair(str(project.get("requires-python", "")))
    tests = tests_folder(root, inifile.words(ini.values.get("testpaths")))
    return Project(
        root=root,
        ini=ini,
        git=git,
        name=str(project.get("name", "")),
        requires_python=str(project.get("requires-python", "")),
        targets=named or usual.targets,
        why="" if named else usual.why,
        install=_install(root, tables, usual.allowed),
        tests=tests,
        files=tuple(name.rpartition("/")[2] for name in inifile.words(ini.values.get("python_files"))) or FILES,
        functions=tuple(inifile.words(ini.values.get("python_functions")) or ("test",)),
        baselines=f"{tests.relative_to(root).as_posix()}/baselines" if _discovers_packages(root, tables) else "",
        packaged=_installs(root, tables),
        locked=(root / "uv.lock").is_file(),
        **_dependencies(tables),
    )


def tests_folder(root: Path, testpaths: Sequence[str]) -> Path:
    """The folder of the first workload: of those that pytest looks into one for benchmarks, else one for tests."""
    named = list(_folders(root, testpaths))
    usual = [root / name for name in ("tests", "test") if (root / name).is_dir()]
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
    places = _folders(project.root, inifile.words(project.ini.values.get("testpaths")))
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


def _root(folder: Path, top: Path | None) -> tuple[Path, IniFile]:
    """The rootdir of pytest where it is configured; else the nearest folder with a project file, or git's top."""
    places = [folder, *folder.parents]
    if top is not None:
        places = places[: places.index(top) + 1]
    marked = next((place for place in places if any((place / mark).is_file() for mark in MARKS)), None)
    # Outside of a repository nothing above the project is its own.
    ini = inifile.find(folder, top or marked or folder)
    if ini is not None:
        return ini.path.parent, ini
    root = marked or top or folder
    return root, inifile.to_make(root)


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


def _pyproject(root: Path) -> dict[str, Any]:
    path = root / "pyproject.toml"
    return inifile.parse(path, inifile.read(path)) if path.is_file() else {}


def _installs(root: Path, tables: Mapping[str, Any]) -> bool:
    """Whether it is a package. One without a build system is none to uv, and setuptools may well refuse it."""
    uv = tables.get("tool", {}).get("uv", {}).get("package") is None and (root / "uv.lock").is_file()
    only_listed = uv and "build-system" not in tables and not (root / "setup.py").is_file()
    return bool(default_install(root)) and not only_listed


def _install(root: Path, tables: Mapping[str, Any], allowed: bool) -> tuple[str, ...] | None:
    """What to install where the default is not it: what the project needs, where it is no package itself."""
    if _installs(root, tables):
        return None if allowed else ()
    if tables.get("project", {}).get("dependencies"):
        return ("-r", "pyproject.toml")
    if default_install(root):
        return ()
    return ("-r", REQUIREMENTS) if (root / REQUIREMENTS).is_file() else None


def _discovers_packages(root: Path, tables: Mapping[str, Any]) -> bool:
    """Whether setuptools looks for packages at the root: a folder of baselines there would be a second one to it."""
    if (root / "src").is_dir() or not _installs(root, tables):
        return False
    backend = str(tables.get("build-system", {}).get("build-backend", "setuptools"))
    told = tables.get("tool", {}).get("setuptools", {})
    return backend.startswith("setuptools") and not {"packages", "py-modules"} & set(told)


def _dependencies(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The extras and groups of the tests, and whether the plugin is among them or required anyway."""
    project, groups = tables.get("project", {}), tables.get("dependency-groups", {})
    extras = project.get("optional-dependencies", {})
    chosen = {
        "extras": tuple(name for name in TEST_NAMES if name in extras),
        "groups": tuple(name for name in TEST_NAMES if name in groups),
    }
    held = [project.get("dependencies", [])]
    held += [extras[name] for name in chosen["extras"]] + [groups[name] for name in chosen["groups"]]
    listed = [re.sub(r"[-_.]+", "-", each).lower() for some in held for each in some if isinstance(each, str)]
    return {**chosen, "declares_us": any(re.match(r"\s*pytest-ftgate\b", each) for each in listed)}


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
