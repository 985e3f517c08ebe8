"""What can be found out about a user's project without asking: its root, package, tests, git and CI."""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ...declare.options import install_step
from ...kit.errors import FtgateError
from ...kit.git import AgainstError, NotTrusted, Repository
from ...kit.values import Struct
from ...targets.environments import Steps, default_install, required_python
from ...targets.find import default_pair
from .. import inifile

# What a project's tests need beside the project itself: extras, groups, requirements files, plugins of pytest.

NAMES: Final = ("test", "tests", "testing", "pytest", "ci", "dev")
"""Names of an extra, a group or a requirements file of the tests, the preferred one first."""
REQUIREMENT_FILES: Final = (
    "*.txt",
    "requirements/*.txt",
    "dependencies/*.txt",
    "dependencies/*.in",
    "tests/*.txt",
    "test/*.txt",
)


class Needs(Struct, frozen=True, kw_only=True):
    """What to install for the tests."""

    extras: tuple[str, ...]
    groups: tuple[str, ...]
    arguments: tuple[str, ...]
    """Of `uv pip install`, where the project has no such extra or group."""
    plugins: tuple[str, ...]
    """The `required_plugins` of pytest's configuration that nothing else here names."""
    place: tuple[str, ...]
    """The option of `uv add` for the group or extra that lists pytest; empty if none does."""
    declares_us: bool
    """Whether pytest-ftgate is among what is installed."""


def needs_of(root: Path, tables: Mapping[str, Any], older: Mapping[str, Any], ini: Mapping[str, Any]) -> Needs:
    """What the tests of the project in `root` need, by its pyproject.toml, setup.cfg and pytest's ini keys.

    Extras and groups are its own word; without them tox's dependencies are taken, else a requirements file.
    """
    project = tables.get("project", {})
    extras = {**older.get("options.extras_require", {}), **project.get("optional-dependencies", {})}
    groups = tables.get("dependency-groups", {})
    own_extras, own_groups = (tuple(name for name in NAMES if name in held) for held in (extras, groups))
    arguments = () if own_extras or own_groups else _of_tox(root, tables) or _of_files(root)
    # What these name is there already; a requirements file may include others.
    held: dict[tuple[str, ...], set[str]]
    held = {("--group", name): _names(words) for name, words in groups.items()}
    held |= {("--optional", name): _names(words) for name, words in extras.items()}
    taken = (held[place] for place in held if place[1] in (own_groups if place[0] == "--group" else own_extras))
    known = _names([*project.get("dependencies", []), *arguments]).union(*taken)
    known |= {name for file in _files_of(arguments) for name in _listed(root / file)}
    # Our requirement goes where pytest is listed, under any name; else into a place that has the name of one for tests.
    places = [place for place in held if place[1] in NAMES or "pytest" in held[place]]
    return Needs(
        extras=own_extras,
        groups=own_groups,
        arguments=arguments,
        plugins=tuple(name for name in inifile.words(ini.get("required_plugins")) if not _names([name]) <= known),
        place=min(places, key=lambda each: ("pytest" not in held[each], (*NAMES, each[1]).index(each[1])), default=()),
        declares_us="pytest-ftgate" in known,
    )


def _names(words: Any) -> set[str]:
    """The distributions that a list of requirements, or lines of setup.cfg, names."""
    listed = words.splitlines() if isinstance(words, str) else [word for word in words if isinstance(word, str)]
    return {match[0] for each in listed if (match := re.match(r"[a-z0-9-]+", _normal(each)))}


def _of_tox(root: Path, tables: Mapping[str, Any]) -> tuple[str, ...]:
    """The dependencies of tox's usual environment, without those of a factor and those with a `{name}` to fill in."""
    told = inifile.parse(root / "tox.ini").get("testenv", {}).get("deps", "")
    native = tables.get("tool", {}).get("tox", {}).get("env_run_base", {}).get("deps", [])
    words: list[str] = []
    for line in (*inifile.lines(told), *(each for each in native if isinstance(each, str))):
        dependency = re.sub(r"\{(toxinidir|tox_root)\}\{?/\}?", "", line.partition(" #")[0].strip()).replace("{/}", "/")
        if not dependency or "{" in dependency or re.match(r"[\w.,!-]+:\s", dependency):
            continue
        option = re.match(r"(-r|-c|--requirement|--constraint)[\s=]*(.+)", dependency)
        words += [option[1], option[2]] if option else [dependency]
    return tuple(words) if all((root / file).is_file() for file in _files_of(words)) else ()


def _of_files(root: Path) -> tuple[str, ...]:
    """The best of `requirements/test.txt`, `dev-requirements.txt`, `tests/requirements.txt` and such."""
    ranks: dict[str, int] = {}
    for name in sorted({path.relative_to(root).as_posix() for glob in REQUIREMENT_FILES for path in root.glob(glob)}):
        words = re.split(r"[/_.-]", name.lower())[:-1]
        rest = [word for word in words if word not in ("requirements", "requirement", "reqs", "dependencies")]
        if len(rest) == 1 < len(words) and rest[0] in NAMES:
            ranks[name] = NAMES.index(rest[0])
    return ("-r", min(ranks, key=lambda name: ranks[name])) if ranks else ()


def _files_of(arguments: Sequence[str]) -> list[str]:
    return [value for option, value in pairwise(arguments) if option in ("-r", "--requirement")]


def _listed(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[str]:
    """The names that a requirements file lists, and those of the files that it includes."""
    for line in content(path).splitlines() if path not in seen else ():
        if included := re.match(r"\s*(?:-r|--requirement)[\s=]*(\S+)", line):
            yield from _listed(path.parent / included[1], seen | {path})
        elif name := re.match(r"\s*([A-Za-z0-9][\w.-]*)", line):
            yield _normal(name[1])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).strip().lower()


def content(path: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


MARKS: Final = ("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "pytest.ini", "pytest.toml")
FILES: Final = ("test_*.py", "*_test.py")
"""What pytest collects where nothing is said."""


class Git(Struct, frozen=True, kw_only=True):
    """The repository that a project stands in."""

    top: Path
    branch: str
    """The one that changes go to."""
    url: str = ""
    """The address of its remote."""


class Project(Struct, frozen=True, kw_only=True):
    """A project as it is. Folders are absolute."""

    root: Path
    ini: Mapping[str, Any]
    """The keys of its pytest configuration."""
    git: Git | None
    name: str
    """The distribution's; empty where there is none."""
    requires_python: str
    targets: tuple[str, ...]
    """Those of the configuration, else both builds of the newest version here that `requires-python` allows."""
    why: str
    """Why it is that version; empty for those of the configuration."""
    allowed: bool
    """Whether `requires-python` allows a version that can be measured."""
    install: Steps
    """What is installed for each target."""
    tests: Path
    """The folder of its first workload, which may not be there yet."""
    files: tuple[str, ...]
    functions: tuple[str, ...]
    needs: Needs
    options: tuple[str, ...]
    """They switch off what its `addopts` switch on and a measuring run has no use for."""
    locked: bool
    pypy: bool
    """Whether its CI or its metadata names PyPy, for which this plugin's requirements have no wheels."""
    ours: str = "pytest-ftgate"
    """This plugin as a requirement, without a marker."""


def look(folder: Path) -> Project:
    """Everything about the project that `folder` is in. Raises FtgateError for a file that cannot be read."""
    git = None
    try:
        repository = Repository(folder)
        asked = functools.partial(repository.git, allowed=(0, 1))
        remote = repository.remote
        url = asked("config", "--get", f"remote.{remote}.url").strip()
        # The remote's default branch, else main or master, else the branch at hand.
        branch = asked("symbolic-ref", "--quiet", "--short", f"refs/remotes/{remote}/HEAD").strip().partition("/")[2]
        branch = branch or next((name for name in ("main", "master") if repository.named(name)), "")
        branch = branch or asked("symbolic-ref", "--quiet", "--short", "HEAD").strip() or "main"
        git = Git(top=repository.top, branch=branch, url=url)
    except NotTrusted:
        raise
    except AgainstError:
        pass
    # The rootdir of pytest where it is configured, else the project's folder, or git's top. Outside of a repository
    # nothing above the project is its own.
    places = [folder, *folder.parents]
    if git is not None:
        places = places[: places.index(git.top) + 1]
    marked = next((place for place in places if any((place / mark).is_file() for mark in MARKS)), None)
    found = inifile.find(folder, git.top if git else marked or folder)
    root, ini = (found[0].parent, found[1]) if found else (marked or (git.top if git else folder), {})

    tables, older = inifile.parse(root / "pyproject.toml"), inifile.parse(root / "setup.cfg")
    requires_python = required_python(root)
    named, usual = tuple(inifile.words(ini.get("ftgate_python"))), default_pair(requires_python)
    try:
        steps = tuple(install_step(line) for line in inifile.lines(ini.get("ftgate_install")) if line)
    except ValueError as error:
        raise FtgateError(f"ini option ftgate_install: takes {error}") from None

    # Coverage of a few tests may be below its limit; measurements of several workers wait for each other.
    addopts = inifile.words(ini.get("addopts"))
    covered = any(re.match(r"--cov(=|$)", word) for word in addopts)
    distributed = any(re.match(r"-n|--numprocesses", word) for word in addopts)
    workflows = (git.top if git else root) / ".github" / "workflows"
    about = [*(root / name for name in MARKS), root / "noxfile.py", *workflows.glob("*.y*ml")]
    return Project(
        root=root,
        ini=ini,
        git=git,
        name=str(tables.get("project", {}).get("name") or older.get("metadata", {}).get("name", "")),
        requires_python=requires_python,
        targets=named or usual.targets,
        why="" if named else usual.why,
        allowed=bool(named) or usual.allowed,
        install=steps if "ftgate_install" in ini else default_install(root),
        tests=workload_folder(root, inifile.words(ini.get("testpaths"))),
        files=tuple(name.rpartition("/")[2] for name in inifile.words(ini.get("python_files"))) or FILES,
        functions=tuple(inifile.words(ini.get("python_functions")) or ("test",)),
        needs=needs_of(root, tables, older, ini),
        options=("--no-cov",) * covered + ("-n0",) * distributed,
        locked=(root / "uv.lock").is_file(),
        pypy=any("pypy" in content(path).lower() for path in about),
    )


def workload_folder(root: Path, testpaths: Sequence[str]) -> Path:
    """The folder of the first workload: of those that pytest looks into one for benchmarks, else one for tests."""
    named = list(_folders(root, testpaths))
    if not named or named == [root]:
        named = [root / name for name in ("tests", "test") if (root / name).is_dir()]
    if not named:  # those in a package
        inside = (path for glob in ("*/test*", "src/*/test*") for path in sorted(root.glob(glob)))
        named = [path for path in inside if path.name in ("tests", "test") and (path.parent / "__init__.py").is_file()]
    for pattern in ("bench|perf|concurren", "test"):
        if found := [folder for folder in named if re.search(pattern, folder.name, re.IGNORECASE)]:
            return found[0]
    return named[0] if named else root / "tests"


def name_for(patterns: Sequence[str], wanted: str, *, prefixes: bool) -> str:
    """`wanted`, or what pytest would collect in its place: `bench_x.py` for `test_x.py` where `bench_*.py` is asked.

    `prefixes`: a pattern without a wildcard is the beginning of a name.
    """
    globs = [f"{pattern}*" if prefixes and not re.search(r"[*?\[]", pattern) else pattern for pattern in patterns]
    if any(fnmatch.fnmatchcase(wanted, pattern) for pattern in globs):
        return wanted
    word = wanted.removeprefix("test_").removesuffix(".py")
    ending = "_" if prefixes and globs[0].endswith("*") and not globs[0].endswith("_*") else ""
    return globs[0].replace("*", f"{ending}{word}", 1).replace("*", "")


def workload_path(project: Project) -> Path:
    """The test file of the project's that already uses the plugin, else the path of the first one."""
    places = _folders(project.root, inifile.words(project.ini.get("testpaths")))
    for place in dict.fromkeys((project.tests, *places)):
        for folder, names, files in os.walk(place):
            # What others wrote is left out: hidden folders, virtual environments, packages of other languages.
            own = (name for name in sorted(names) if not name.startswith(".") and name != "node_modules")
            names[:] = [name for name in own if not Path(folder, name, "pyvenv.cfg").exists()]
            tests = (name for name in sorted(files) if any(fnmatch.fnmatchcase(name, glob) for glob in project.files))
            if found := next((name for name in tests if "pytest_ftgate" in content(Path(folder, name))), None):
                return Path(folder, found)
    return project.tests / name_for(project.files, "test_concurrency.py", prefixes=False)


def ci_of(git: Git | None) -> str:
    """The CI system by what lies at the repository's top or by its remote; one without a remote most often gets one."""
    if git is None:
        return "none"
    on_gitlab, on_github = (git.top / ".gitlab-ci.yml").is_file(), (git.top / ".github").is_dir()
    if on_gitlab != on_github:
        return "gitlab" if on_gitlab else "github"
    return next((name for name in ("github", "gitlab") if name in git.url.lower()), "none" if git.url else "github")


def _folders(root: Path, testpaths: Sequence[str]) -> Iterator[Path]:
    """The folders that `testpaths` names; one that is not there yet is named as well, a file by its folder."""
    for pattern in testpaths:
        if re.search(r"[*?\[]", pattern):
            yield from (path for path in sorted(root.glob(pattern)) if path.is_dir())
        else:
            path = root / pattern
            if path.is_relative_to(root) and ".." not in path.parts:
                yield path.parent if path.is_file() else path
