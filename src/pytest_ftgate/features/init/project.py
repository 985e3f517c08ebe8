"""What can be found out about a user's project without asking: its root, package, tests, git and CI."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ...declare.options import install_step
from ...kit.errors import FtgateError
from ...kit.git import AgainstError, Repository
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
PLUGINS: Final = {
    "asyncio": "pytest-asyncio",
    "benchmark": "pytest-benchmark",
    "codspeed": "pytest-codspeed",
    "cov": "pytest-cov",
    "no-cov": "pytest-cov",
    "dist": "pytest-xdist",
    "n": "pytest-xdist",
    "numprocesses": "pytest-xdist",
    "xdist": "pytest-xdist",
    "ds": "pytest-django",
    "django": "pytest-django",
    "doctest-plus": "pytest-doctestplus",
    "forked": "pytest-forked",
    "html": "pytest-html",
    "hypothesis": "hypothesis",
    "mpl": "pytest-mpl",
    "mypy": "pytest-mypy",
    "parallel-threads": "pytest-run-parallel",
    "random-order": "pytest-random-order",
    "randomly": "pytest-randomly",
    "remote-data": "pytest-remotedata",
    "reruns": "pytest-rerunfailures",
    "rerunfailures": "pytest-rerunfailures",
    "ruff": "pytest-ruff",
    "disable-socket": "pytest-socket",
    "snapshot": "syrupy",
    "timeout": "pytest-timeout",
}
"""What an option, an ini key or a module of a plugin begins with, and its distribution. No name is ever guessed."""


class Needs(Struct, frozen=True, kw_only=True):
    """What to install for the tests: extras and groups of the project, arguments of `uv pip install`, and plugins.

    `place` is the option of `uv add` for the group or extra that lists pytest, "" if none does.
    `plugins` are the distributions that pytest's configuration needs and nothing else here names; `declares_us` is
    whether pytest-ftgate is among the rest.
    """

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    declares_us: bool = False


def needs_of(root: Path, tables: Mapping[str, Any], older: Mapping[str, Any], ini: Mapping[str, Any]) -> Needs:
    """What the tests of the project in `root` need, by its pyproject.toml, setup.cfg and pytest's ini keys.

    Extras and groups are its own word; without them tox's dependencies are taken, else a requirements file.
    """
    project = tables.get("project", {})
    sections = older.get("options.extras_require", {})
    extras = {**sections, **project.get("optional-dependencies", {})}
    groups = tables.get("dependency-groups", {})
    chosen = {kind: tuple(name for name in NAMES if name in held) for kind, held in (("e", extras), ("g", groups))}
    arguments = () if chosen["e"] or chosen["g"] else _of_tox(root, tables) or _of_files(root)
    known = _names([*project.get("dependencies", []), *arguments])
    known.update(*(_names(extras[name]) for name in chosen["e"]), *(_names(groups[name]) for name in chosen["g"]))
    known |= {name for file in _files_of(arguments) for name in _listed(root / file)}
    return Needs(
        extras=chosen["e"],
        groups=chosen["g"],
        arguments=arguments,
        plugins=tuple(name for name in dict.fromkeys(_plugins(ini)) if _normal(name) not in known),
        place=_place(extras, groups),
        declares_us="pytest-ftgate" in known,
    )


def _place(extras: Mapping[str, Any], groups: Mapping[str, Any]) -> tuple[str, ...]:
    """The option of `uv add` for the group or extra of any name that lists pytest itself, else for one by its name."""
    held = {("--group", name): words for name, words in groups.items()}
    held |= {("--optional", name): words for name, words in extras.items()}

    def rank(place: tuple[str, str]) -> tuple[bool, int]:
        return "pytest" not in _names(held[place]), NAMES.index(place[1]) if place[1] in NAMES else len(NAMES)

    return min((each for each in held if each[1] in NAMES or not rank(each)[0]), key=rank, default=())


def _names(words: Any) -> set[str]:
    """The distributions that a list of requirements, or lines of setup.cfg, names."""
    listed = words.splitlines() if isinstance(words, str) else [word for word in words if isinstance(word, str)]
    return {match[0] for each in listed for match in [re.match(r"[a-z0-9-]+", _normal(each))] if match}


def _of_tox(root: Path, tables: Mapping[str, Any]) -> tuple[str, ...]:
    """The dependencies of tox's usual environment, without those of single factors; none of what it would fill in."""
    told = inifile.parse(root / "tox.ini").get("testenv", {}).get("deps", "")
    native = tables.get("tool", {}).get("tox", {}).get("env_run_base", {}).get("deps", [])
    words: list[str] = []
    for line in (*inifile.lines(told), *(each for each in native if isinstance(each, str))):
        dependency = re.sub(r"\{(toxinidir|tox_root)\}\{?/\}?", "", line.partition(" #")[0].strip()).replace("{/}", "/")
        if not dependency or "{" in dependency or re.match(r"[\w.,!-]+:\s", dependency):
            continue
        option = re.match(r"(-r|-c|--requirement|--constraint)[\s=]*(.+)", dependency)
        words += [option[1], option[2]] if option else [dependency]
    return tuple(words) if all((root / file).is_file() for file in _files_of(tuple(words))) else ()


def _of_files(root: Path) -> tuple[str, ...]:
    """The best requirements file of the tests."""
    found = {path.relative_to(root).as_posix() for pattern in REQUIREMENT_FILES for path in root.glob(pattern)}
    ranks = {name: rank for name in sorted(found) if (rank := _rank(name)) is not None}
    return ("-r", min(ranks, key=lambda name: ranks[name])) if ranks else ()


def _rank(name: str) -> int | None:
    """The place in NAMES of `requirements/test.txt`, `dev-requirements.txt`, `tests/requirements.txt` and such."""
    words = re.split(r"[/_.-]", name.lower())[:-1]
    rest = [word for word in words if word not in ("requirements", "requirement", "reqs", "dependencies")]
    return NAMES.index(rest[0]) if len(rest) == 1 and len(words) > 1 and rest[0] in NAMES else None


def _files_of(arguments: tuple[str, ...]) -> list[str]:
    return [value for option, value in pairwise(arguments) if option in ("-r", "--requirement")]


def _listed(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[str]:
    """The names that a requirements file lists, and those of the files that it includes."""
    if path in seen or not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        included = re.match(r"\s*(?:-r|--requirement)[\s=]*(\S+)", line)
        if included:
            yield from _listed(path.parent / included[1], seen | {path})
        elif name := re.match(r"\s*([A-Za-z0-9][\w.-]*)", line):
            yield _normal(name[1])


def _plugins(ini: Mapping[str, Any]) -> Iterator[str]:
    """The distributions that pytest's configuration needs: `required_plugins`, `-p`, options and keys of plugins."""
    for name in inifile.words(ini.get("required_plugins")):
        yield re.split(r"[\s<>=!~\[;]", name)[0]
    options = inifile.words(ini.get("addopts"))
    modules = [option[2:] or value for option, value in pairwise([*options, ""]) if option.startswith("-p")]
    named = [re.sub(r"^pytest_|\.plugin$", "", module) for module in modules]
    named += ["n" for option in options if re.fullmatch(r"-n(\d+|auto|logical)?", option)]
    named += [option[2:] for option in options if option.startswith("--")]
    for name in (*named, *ini):
        word = _normal(name.partition("=")[0])
        yield from (PLUGINS[start] for start in PLUGINS if word == start or word.startswith(f"{start}-"))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).strip().lower()


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
        needs=needs_of(root, tables, older, ini),
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
