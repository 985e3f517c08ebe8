"""Collection: decorated tests become one item for each cell."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ..declare import arguments, plan, tests
from ..judge import limits
from ..kit.errors import FtgateError
from ..kit.text import plain
from ..model.spec import Cell, Source, Spec, Target, parse_target
from ..runner.api import Declaration
from .options import options_of, usage_errors

if TYPE_CHECKING:
    from ..targets.find import DefaultPair


CELL = pytest.StashKey[tuple[Spec, Cell]]()


def cells_of(items: Iterable[pytest.Item]) -> dict[str, pytest.Item]:
    """The items that are cells, by node id: to that of an item, pytest-xdist may add a group."""
    return {item.stash[CELL][1].nodeid: item for item in items if CELL in item.stash}


DEFAULT = pytest.StashKey["DefaultPair"]()


@contextlib.contextmanager
def _as_collect_error() -> Iterator[None]:
    """Show an error that a user can fix without our frames."""
    try:
        yield
    except FtgateError as error:
        raise pytest.Collector.CollectError(str(error)) from None


def generate(metafunc: pytest.Metafunc) -> None:
    """Parametrize a decorated test with its cells."""
    declared = tests.declaration_of(metafunc.function)
    if declared is None:
        return
    _ignore_repetitions(metafunc)
    with _as_collect_error():
        spec = _spec(metafunc, declared)
        chosen = plan.choices(spec, targets(metafunc.config, spec))
    labels = tuple(choice.label for choice in chosen)
    spec = msgspec.structs.replace(spec, labels=labels)
    metafunc.parametrize(spec.body, [(spec, choice) for choice in chosen], ids=labels)


def _ignore_repetitions(metafunc: pytest.Metafunc) -> None:
    """Leave out a parameter that a plugin adds to all tests, as pytest-repeat does with its count.

    It comes with a fixture that the test did not have. A cell is repeated by itself, and known by its own name.
    """
    own, parametrize = set(metafunc.fixturenames), metafunc.parametrize

    def parametrized(argnames: str | Sequence[str], *args: Any, **named: Any) -> None:
        names = {name.strip() for name in (argnames.split(",") if isinstance(argnames, str) else argnames)}
        added = names & {*metafunc.fixturenames} - own
        if added:
            metafunc.fixturenames[:] = [name for name in metafunc.fixturenames if name not in added]
        else:
            parametrize(argnames, *args, **named)

    vars(metafunc).update(parametrize=parametrized)


def _spec(metafunc: pytest.Metafunc, declared: Declaration) -> Spec:
    definition, name = metafunc.definition, metafunc.definition.originalname
    source = Source(
        path=str(definition.path),
        line=declared.line,
        module=metafunc.module.__name__,
        qualname=name if metafunc.cls is None else f"{metafunc.cls.__qualname__}.{name}",
        import_mode=str(metafunc.config.getoption("importmode")),
        sys_path=tuple(workload_path(metafunc.config)),
        adapter=declared.adapter,
    )
    tests.check_function(declared, source, metafunc.function, name, metafunc.cls)
    spec = tests.spec_of(declared, source, definition.nodeid)
    options = options_of(metafunc.config)
    with usage_errors():
        limits.check(cli=options.thresholds, ini=options.ini_thresholds)
    try:
        limits.check(cli=options.thresholds, declared=spec.thresholds, ini=options.ini_thresholds)
    except FtgateError as error:
        raise arguments.DeclarationError(f"{source.path}:{source.line}: {source.qualname}: {error}") from None
    requested = [name for mark in definition.iter_markers("usefixtures") for name in mark.args]
    parametrized = parametrized_names(definition)
    tests.check_arguments(declared, source, parametrized, requested)
    tests.check_surroundings(declared, source, written_around(definition))
    tests.check_placeholders(declared, spec, parametrized)
    timeout_s = options.declared("timeout", spec.timeout_s)
    known = () if metafunc.config.getoption("runxfail") else spec.xfails
    return msgspec.structs.replace(spec, timeout_s=timeout_s, gated=gated_by(metafunc.config, spec), xfails=known)


AT_A_RATE = "latency_p50"
"""The metric that gates at a constant rate, because the rate stays the same until the server cannot keep it."""


def gated_by(config: pytest.Config, spec: Spec) -> tuple[str, ...]:
    """The metrics that a test lets gate itself; the command line selects without them."""
    named = [each.metric for each in spec.thresholds]
    if spec.service is not None and spec.service.load.rate:
        named = list(dict.fromkeys([*named, AT_A_RATE]))
    if not named:
        return ()
    options = options_of(config)
    declared = options.declared("metrics", named)
    return tuple(name for name in named if name not in options.metrics and name in declared)


def written_around(test: pytest.Function) -> Iterator[tuple[str, str, str]]:
    """The autouse fixtures that the test's own file defines for it: the name, the kind of pytest's own, and words.

    Pytest's for `setup_method` are named `_xunit_setup_method_fixture_` and more, and of the kind `method`. Those of a
    conftest.py and of plugins are for all tests, and do no harm: pytest runs them around the cell.
    """
    module, found = test.getparent(pytest.Module), test._fixtureinfo
    for name in found.initialnames:
        places = [fixture.baseid for fixture in found.name2fixturedefs.get(name, ())[-1:]]
        if module is not None and any(
            place == module.nodeid or place.startswith(f"{module.nodeid}::") for place in places
        ):
            kind = name.removeprefix("_xunit_setup_").partition("_fixture_")[0] if name.startswith("_xunit_") else ""
            yield name, kind, f"setup_{kind} or teardown_{kind}" if kind else f"the autouse fixture {name!r}"


def targets(config: pytest.Config, spec: Spec) -> list[Target]:
    """The targets of a test by precedence: command line, decorator, ini, default. Each once."""
    names: Iterable[str] = options_of(config).declared("python", spec.pythons) or default_pair(config).targets
    return list(dict.fromkeys(parse_target(name) for name in names))


def default_pair(config: pytest.Config) -> DefaultPair:
    """The targets of a run that names none, looked for once."""
    if DEFAULT not in config.stash:
        from ..targets import environments, find

        config.stash[DEFAULT] = find.default_pair(environments.required_python(config.rootpath))
    return config.stash[DEFAULT]


def parametrized_names(test: pytest.Function) -> dict[str, bool]:
    """The names that `parametrize` gives, each with whether a fixture makes its value (`indirect`)."""
    names: dict[str, bool] = {}
    for mark in test.iter_markers("parametrize"):
        argnames = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        split = argnames.split(",") if isinstance(argnames, str) else argnames
        indirect = mark.kwargs.get("indirect", mark.args[2] if len(mark.args) > 2 else False)
        for name in (given.strip() for given in split):
            names[name] = indirect if isinstance(indirect, bool) else name in indirect
    return names


def workload_path(config: pytest.Config) -> list[str]:
    """The entries of sys.path that belong to the user, in order.

    These are the entries before the standard library (from pytest, a conftest.py, PYTHONPATH or the `pythonpath`
    ini) and those under the rootdir. All others belong to this interpreter and must not be used by another.
    """
    named = [*map(str, config.getini("pythonpath")), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    roots = (config.rootpath, config.invocation_params.dir)
    return _users(roots, tuple(filter(None, named)), tuple(filter(None, sys.path)))


@functools.cache
def _users(roots: Sequence[Path], named: Sequence[str], entries: Sequence[str]) -> list[str]:
    """The entries that belong to the user: each test asks for them, and most tests find the same sys.path."""
    chosen = {Path(each).resolve() for each in named}
    stdlib, *others = (Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "scripts"))
    paths = [Path(entry).resolve() for entry in entries]
    front = paths.index(stdlib) if stdlib in paths else 0
    found: dict[str, None] = {}
    for position, path in enumerate(paths):
        users = position < front or any(path.is_relative_to(root) for root in roots)
        # What belongs to the interpreter or the environment that runs pytest.
        own = any(path.is_relative_to(folder) for folder in (stdlib, *others))
        own = own or not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
        own = own or (path.suffix == ".zip" and path.name.startswith("python"))
        if path in chosen or (users and not own):
            found.setdefault(str(path))
    ours = Path(__file__).resolve().parents[2]
    return [entry for entry in found if ours in roots or Path(entry) != ours]


def check_class(cls: type) -> None:
    """Refuse a class that cannot have cells."""
    with _as_collect_error():
        tests.check_class(cls)


def complete(item: pytest.Function) -> None:
    """Give an item of a decorated test its cell and its marks; refuse one that cannot have a cell."""
    with _as_collect_error():
        tests.check_notes(item.function, str(item.path))
        declared, callspec = tests.declaration_of(item.function), getattr(item, "callspec", None)
        if declared is None or callspec is None:
            return
        params = dict(callspec.params)
        if any(type(value).__name__ == "NotSetType" for value in params.values()):
            return  # an empty parametrize: pytest skips the item
        spec, choice = next(params.pop(name) for name in arguments.OWN if name in params)
        try:
            sent = tuple(tests.param_of(declared, spec.source, name, value) for name, value in params.items())
        except arguments.ParameterError as error:
            item.obj = _failing(str(error))
            item.add_marker("ftgate")
            return
        cell = msgspec.structs.replace(
            choice, nodeid=item.nodeid, params=sent, body=tests.body_kind(declared, choice.executor)
        )
    item.stash[CELL] = (spec, cell)
    test = item.obj
    if inspect.iscoroutinefunction(test):  # plugins that run what is `async` leave a plain function to us

        @functools.wraps(test)
        def run(*args: object, **named: object) -> object:
            return test(*args, **named)

        item.obj = run
    item.add_marker("ftgate")
    item.add_marker("thread_unsafe")


def _failing(text: str) -> Callable[..., None]:
    """Replaces a test that cannot have a cell: an error of collection would end the run for all tests."""

    def refused(**_: object) -> None:
        pytest.fail(plain(text), pytrace=False)

    return refused


# NumPy and SciPy for pytest's own process, where the project under test is one of them.

NEEDED = ("numpy", "scipy")
"""What the gate judges with."""

_BROKEN = (ImportError, AttributeError, ValueError)
"""What an import of a source folder, or of a build for another version of its dependency, raises."""


def import_needed(root: Path, needed: Sequence[str] = NEEDED) -> None:
    """Import them where `root`, the project's, has a source folder of one: its own build, else the installed one.

    Such a folder is on sys.path by a conftest.py, `pythonpath` or `python -m pytest`, and cannot be imported unless it
    was built in place. In any other project nothing is done: only a measurement needs them. Raises pytest.UsageError.
    """

    def has_sources(entry: Path) -> bool:
        installed = {"site-packages", "dist-packages"} & set(entry.parts)
        return not installed and entry.is_relative_to(root) and any((entry / name).is_dir() for name in needed)

    sources = [entry for entry in sys.path if has_sources(Path(entry or os.getcwd()))]
    for name in needed if sources else ():
        try:
            importlib.import_module(name)
            continue
        except _BROKEN as error:
            failure = str(error).strip().partition("\n")[0]
        for loaded in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
            del sys.modules[loaded]
        before = sys.path[:]
        sys.path[:] = [entry for entry in before if entry not in sources]
        try:
            importlib.import_module(name)
        except _BROKEN:
            raise pytest.UsageError(
                f"--ftgate judges with {name} in pytest's own process, where it is this project's source folder, which "
                f"cannot be imported ({failure}), and no other is installed. The measured processes have environments "
                f"of their own. Install {name} where pytest runs, a release or a build of this project, or run pytest "
                "from an environment of its own: uvx --with pytest-ftgate pytest --ftgate"
            ) from None
        finally:
            sys.path[:] = before
