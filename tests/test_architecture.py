"""The layout: each wing imports only from wings below it, and keeps to what it may do."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_ftgate.judge import metrics

PACKAGE = "pytest_ftgate"
ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / PACKAGE

# Top first: a wing imports only from wings below it. Inside a wing, modules import each other without circles.
WINGS = (
    "cli",
    "features",
    "hookspec",
    "plugin",
    "run",
    "declare",
    "report",
    "judge",
    "measure",
    "store",
    "targets",
    "__init__",
    "model",
    "stats",
    "kit",
    "runner",
)
STRANGERS = {("judge", "measure"), ("report", "measure")}
"""Wings with wings below them that they must not know, although the order would allow it."""
PURE = (
    *(
        "stats/",
        "judge/",
        "report/",
        "model/",
        "kit/text",
        "kit/units",
        "kit/values",
        "declare/plan",
        "measure/round_plan",
    ),
    *(
        "features/xfail",
        "features/history/series",
        "features/history/drawing",
        "features/decide/rank",
        "features/decide/sentences",
        "features/html/",
        "features/markdown",
    ),
    "features/exports",
)
PYTEST = ("plugin/", "features/", "hookspec", "kit/plugins")
# Besides launches: provisioning runs uv and compilers, git tells commits, `doctor` asks a child,
# a plain test run gives the runner's workers a context, as the runner itself does, and `bisect` runs pytest.
PROCESSES = (
    "measure/",
    "targets/",
    "kit/git",
    "kit/waiting",
    "run/sides/",
    "run/plain",
    "features/",
)
PRINTING = ("cli", "features/")


class Import(NamedTuple):
    """One import: the whole dotted name, and where it stands."""

    name: str
    line: int
    typing_only: bool


class Module:
    """One source file: its name below the package with slashes, and its tree."""

    def __init__(self, path: Path, source: Path = SOURCE) -> None:
        self.name = path.relative_to(source).with_suffix("").as_posix()
        self.tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        self.path = path

    def __repr__(self) -> str:
        return self.name

    def within(self, places: Iterable[str]) -> bool:
        return any(self.name == place or (place.endswith("/") and self.name.startswith(place)) for place in places)

    def imports(self, late: bool = True) -> Iterator[Import]:
        """Every import in it, also inside functions if `late`; `from a import b` as `a.b`."""
        guarded = {id(node) for test in ast.walk(self.tree) if _is_typing_only(test) for node in ast.walk(test)}
        for node in ast.walk(self.tree) if late else self.tree.body:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{self._base(node)}.{alias.name}" for alias in node.names]
            else:
                continue
            yield from (Import(name, node.lineno, id(node) in guarded) for name in names)

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        folders = [PACKAGE, *self.name.split("/")[:-1]]
        parts = folders[: len(folders) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def calls(self) -> Iterator[tuple[str, int]]:
        """What is called, as it is written: `print`, `path.write_text`, `subprocess.run`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield ast.unparse(node.func), node.lineno


def _is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING"


def modules_of(source: Path) -> list[Module]:
    return [Module(path, source) for path in sorted(source.rglob("*.py"))]


MODULES = modules_of(SOURCE)
OBSERVERS = {row.observer for row in metrics.TABLE.values() if row.observer}
NAMES = {module.name for module in MODULES}


def own(name: str, known: set[str]) -> str | None:
    """The module of ours that an import reaches; None for somebody else's."""
    parts = name.split(".")
    if parts[0] != PACKAGE:
        return None
    for end in range(len(parts), 0, -1):
        path = "/".join(parts[1:end])
        for found in (path, f"{path}/__init__" if path else "__init__"):
            if found in known:
                return found
    return None


def wing_of(name: str) -> str:
    """The wing of a module: the first folder, or the module itself."""
    return name.partition("/")[0]


def crossings(modules: list[Module]) -> Iterator[tuple[Module, Import, str]]:
    """Each import from one wing by a module of another, with the module that it reaches."""
    known = {module.name for module in modules}
    for module in modules:
        for used in module.imports():
            target = own(used.name, known)
            if target is not None and wing_of(target) != wing_of(module.name):
                yield module, used, target


def against_the_direction(modules: list[Module]) -> list[str]:
    """Each import of a wing from one above it, or from one that it must not know."""
    found = []
    for module, used, target in crossings(modules):
        mine, theirs = wing_of(module.name), wing_of(target)
        if mine in WINGS and theirs in WINGS and WINGS.index(theirs) < WINGS.index(mine):
            found.append(f"{module}:{used.line} imports {target}")
        elif (mine, theirs) in STRANGERS:
            found.append(f"{module}:{used.line} imports {target}, which it must not know")
    return found


def private_imports(modules: list[Module]) -> list[str]:
    """Each import of a name of another module that begins with an underscore."""
    return [
        f"{module}:{used.line} imports {used.name}"
        for module in modules
        for used in module.imports()
        if used.name.startswith(f"{PACKAGE}.") and used.name.rpartition(".")[2].startswith("_")
    ]


def circles(modules: list[Module], late: bool = False) -> list[str]:
    """Modules that import each other, also inside functions and for types if `late`, with those that lead to such."""
    known = {module.name for module in modules}
    arrows = {
        module.name: {target for used in module.imports(late) if (target := own(used.name, known))}
        for module in modules
    }
    while leaves := [name for name, targets in arrows.items() if not targets & (arrows.keys() - {name})]:
        for name in leaves:
            del arrows[name]
    return sorted(arrows)


def against_the_standard_library(modules: list[Module]) -> list[str]:
    """Each import of the runner's, or of an observer, that is neither the standard library's nor the runner's own."""
    found = []
    for module in modules:
        measured = module.within(["runner/", "__init__"]) or str(module.path) in OBSERVERS
        for used in module.imports() if measured else ():
            if used.typing_only or used.name.startswith(f"{PACKAGE}.runner."):
                continue
            if used.name.partition(".")[0] not in sys.stdlib_module_names:
                found.append(f"{module.name}:{used.line} imports {used.name}")
    return found


def importing(modules: list[Module], tops: set[str]) -> list[str]:
    return [
        f"{module.name}:{used.line} imports {used.name}"
        for module in modules
        for used in module.imports()
        if used.name.partition(".")[0] in tops and not used.typing_only
    ]


READS_OR_WRITES = re.compile(
    r"(^|\.)(open|fdopen|read_text|read_bytes|write_text|write_bytes|mkdir|unlink|touch|rmdir|rename|replace_file"
    r"|stat|exists|is_file|is_dir|glob|rglob|iterdir|cwd|home|input|print|getenv|sleep|perf_counter|monotonic(_ns)?)$"
)
IMPURE = {
    "os",
    "sys",
    "io",
    "pathlib",
    "subprocess",
    "time",
    "datetime",
    "random",
    "socket",
    "shutil",
    "tempfile",
    "logging",
}
STARTS = {"subprocess", "multiprocessing", "pty", "concurrent"}
STARTING = re.compile(
    r"^os\.(fork|forkpty|exec\w*|spawn\w*|posix_spawn\w*|system|popen)$|^asyncio\.create_subprocess_\w+$"
)


def calling(modules: list[Module], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{module.name}:{line} calls {name}"
        for module in modules
        for name, line in module.calls()
        if pattern.search(name)
    ]


def outside(*places: str) -> list[Module]:
    return [module for module in MODULES if not module.within(places)]


def inside(*places: str) -> list[Module]:
    found = [module for module in MODULES if module.within(places)]
    assert found
    return found


# -- the wings -----------------------------------------------------------------------------------------------------


def test_every_module_stands_in_a_wing_and_every_wing_has_a_module() -> None:
    assert {wing_of(name) for name in NAMES} == set(WINGS)


def test_each_wing_imports_only_from_wings_below() -> None:
    assert against_the_direction(MODULES) == []


def test_the_core_knows_no_feature() -> None:
    """`kit.plugins` loads what `features` lists; the command asks one of them what an error of a report means."""
    core = outside("features/", "cli")
    names = {own(used.name, NAMES) or "" for module in core for used in module.imports()}
    assert {name for name in names if wing_of(name) == "features"} == set()


def test_no_private_name_is_imported() -> None:
    assert private_imports(MODULES) == []


def test_a_wing_hands_nothing_on() -> None:
    """Each name has one place to import it from; the root's face is the user's, and the lock probe is one module."""
    packages = [module for module in outside("features/") if module.name.endswith("/__init__")]
    own_names = [module.name for module in packages if any(used.name.startswith(PACKAGE) for used in module.imports())]
    assert own_names == ["runner/locks/__init__", "runner/pytest/__init__"]


def test_no_modules_import_each_other() -> None:
    assert circles(MODULES) == []
    assert circles(inside("runner/", "kit/", "stats/"), late=True) == []


def test_no_two_classes_have_one_name() -> None:
    """A name says which class is meant wherever it is read."""
    homes = defaultdict[str, list[str]](list)
    for module in MODULES:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module.name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_the_runner_needs_the_standard_library_alone() -> None:
    assert against_the_standard_library(MODULES) == []
    assert inside("runner/")
    assert {str(module.path) for module in MODULES} > OBSERVERS


def test_pytest_is_imported_by_the_plugin_alone() -> None:
    assert importing(outside(*PYTEST), {"pytest", "_pytest", "xdist", "pluggy"}) == []
    assert importing(inside("plugin/"), {"pytest"})


def test_processes_are_started_in_few_places() -> None:
    others = outside("runner/", *PROCESSES)
    assert importing(others, STARTS) == []
    assert calling(others, STARTING) == []


def test_what_is_pure_reads_and_writes_nothing_and_knows_no_time() -> None:
    pure = inside(*PURE)
    assert importing(pure, IMPURE | STARTS) == []
    assert calling(pure, READS_OR_WRITES) == []


def test_one_place_prints() -> None:
    printing = re.compile(r"^(print|sys\.(stdout|stderr)\.write(lines)?)$")
    assert calling(outside(*PRINTING), printing) == []
    assert calling(inside(*PRINTING), printing)


# -- the checks themselves -----------------------------------------------------------------------------------------

FAULTS = {
    "stats/estimators.py": "from ..judge import decide",
    "judge/decide.py": "def late() -> None:\n    import pytest_ftgate.run.run",
    "store/schema.py": "from ..judge import limits",
    "runner/worker.py": "from pytest_ftgate.targets import find",
    "model/spec.py": "from ..report import terminal",
}


def planted(tmp_path: Path, files: dict[str, str]) -> list[Module]:
    for module in MODULES:
        copy = tmp_path / f"{module.name}.py"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(files.get(f"{module.name}.py", ""), encoding="utf-8")
    return modules_of(tmp_path)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(tmp_path: Path, name: str) -> None:
    modules = planted(tmp_path, {name: FAULTS[name]})
    (found,) = against_the_direction(modules)
    assert found.startswith(name.removesuffix(".py"))
    assert bool(against_the_standard_library(modules)) is name.startswith("runner/")


def test_a_private_import_is_found(tmp_path: Path) -> None:
    files = {"run/run.py": "from __future__ import annotations\nfrom ..judge.judge import Policy, _worst"}
    (found,) = private_imports(planted(tmp_path, files))
    assert found.endswith("imports pytest_ftgate.judge.judge._worst")


def test_a_circle_is_found(tmp_path: Path) -> None:
    files = {"judge/limits.py": "from . import comparisons", "judge/comparisons.py": "from .limits import moved"}
    assert circles(planted(tmp_path, files)) == ["judge/comparisons", "judge/limits"]


def test_what_is_forbidden_is_found(tmp_path: Path) -> None:
    (tmp_path / "gate.py").write_text(
        "import time, subprocess\nfrom os import path\nprint(open('x'))\nPath('y').write_text('')\nos.execv('z', [])\n",
        encoding="utf-8",
    )
    module = modules_of(tmp_path)
    assert len(importing(module, IMPURE | STARTS)) == 3
    assert len(calling(module, READS_OR_WRITES)) == 3
    assert len(calling(module, STARTING)) == 1


# -- what no file of ours may name ---------------------------------------------------------------------------------

# In pieces, so that this file does not hold what it looks for.
PLACES = re.compile(
    "|".join(
        [
            r"(?<![\w.])/" + r"(?:work|root|home/\w+)/",
            "files[.]python" + "hosted",
            r"\bpypi" + r"\.org",
            r"--(?:extra-)?index" + r"-url",
            r"\bartifact" + r"ory\b",
            r"\bproxy" + r"\.golang",
            r"\b(?:10|127|192\.168|172\.(?:1[6-9]|2\d|3[01]))" + r"(?:\.\d{1,3}){2,3}\b",
        ]
    )
)
ALLOWED = re.compile(r"/home/me\b|==[\d.]+|/home/user/|\b127\.0\.0\.1(?!:\d)")  # every machine has a loopback


def committed() -> list[Path]:
    """What git has or would take; without git, what is here."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("no git tree to list")
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def places_in(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if PLACES.search(ALLOWED.sub("", line))]


def test_no_file_names_a_place_of_one_machine_or_a_registry() -> None:
    found = {}
    for path in committed():
        try:
            places = places_in(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue
        if places:
            found[str(path.relative_to(ROOT))] = places
    assert found == {}


@pytest.mark.parametrize("place", ["/wor" + "k/main", " /roo" + "t/.local", "https://pypi" + ".org/simple"])
def test_such_a_place_is_found(place: str) -> None:
    assert places_in(f"see {place}")
    assert not places_in(f"see a/{'work'}/b, https://docs.pytest.org/{'root'}/, 1.10.0 and ./{'root'}/")


def test_nothing_that_measures_reads_a_clock_that_may_step() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
                assert node.attr not in ("time", "time_ns"), f"{path}: time.{node.attr} steps; use time.monotonic"
