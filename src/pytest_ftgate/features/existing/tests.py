"""Makes cells of the undecorated tests that can be measured; the others are skipped with the reason."""

from __future__ import annotations

import fnmatch
import functools
import inspect
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Final

import pytest

from ...declare import tests
from ...kit.errors import FtgateError
from ...model.spec import Source
from ...plugin.collection import parametrized_names, written_around
from ...plugin.options import usage_errors
from ...plugin.xdist import found
from ...runner.loading import adapted
from . import adapter

MATCH: Final = "a test that --ftgate-existing names"
CASE: Final = pytest.StashKey[type[unittest.TestCase]]()
"""The class of `unittest` that a class of plain methods stands for."""
_WARNINGS: Final = "the filters of warnings are those of the process"
UNSAFE: Final = {
    "catch_warnings": _WARNINGS,
    "warns": _WARNINGS,
    "deprecated_call": _WARNINGS,
    "assertWarns": _WARNINGS,
    "assertWarnsRegex": _WARNINGS,
    "mock": "a patch holds for all threads",
    "redirect_stdout": "the streams are those of the process",
    "redirect_stderr": "the streams are those of the process",
    "gc collect": "a collection stops all threads, and finds what all of them left",
    "os chdir": "the working directory is that of the process",
    "signal signal": "only the main thread can do that",
}
"""Names in the code of a test, and why threads cannot do that at once: those of pytest-run-parallel, and more."""


class ExistingTests:
    """The hook of pytest's that makes cells of them, in a run with `--ftgate-existing`."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = patterns

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse globs that match nothing: the run would be green. Of what workers found the controller is told."""
        is_worker = hasattr(session.config, "workerinput")
        if not (MATCH in found(session.config) or session.testsfailed or is_worker):
            given = f"--ftgate-existing={','.join(self.patterns)}"
            fix = "a glob is of a whole node id without parameters, such as 'tests/test_cache.py::*' or '*::test_get*'"
            with usage_errors():
                raise FtgateError(f"{given} matches none of the tests without a decorator: {fix}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: Any, name: str, obj: Any) -> object:
        """The cells of a test that matches, or its skip; nothing where it is not ours."""
        if isinstance(obj, type) and issubclass(obj, unittest.TestCase):
            return self._case(collector, name, obj)
        case = collector.stash.get(CASE, None)
        if inspect.isclass(obj) or (
            case is None and not (collector.istestfunction(obj, name) and getattr(obj, "__test__", True))
        ):
            return None
        if tests.declaration_of(obj) is not None or tests.notes_of(obj):
            return None
        if not self._matches(f"{collector.nodeid}::{name}"):
            return None if case is None else _skipped(collector, name, obj, "others of its class are measured")
        # 1. What says at once that it cannot be measured.
        found(collector.config).add(MATCH)
        owner = case or (collector.obj if isinstance(collector, pytest.Class) else None)
        if not inspect.isfunction(obj):
            return _skipped(collector, name, obj, "it is no plain function")
        test = pytest.Function.from_parent(collector, name=name, callobj=obj)
        if reason := _unmeasurable(test, obj, owner):
            return _skipped(collector, name, obj, reason)
        # 2. What pytest collects instead: the body, with the parameters that it needs to see.
        declared = adapted(adapter.__file__, obj, owner)
        body: Any = functools.update_wrapper(declared.body, obj)
        names = [*(["self"] if owner else []), "worker", *parametrized_names(test)]
        body.__signature__ = inspect.Signature(
            [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
        )
        body.__ftgate__ = declared
        setattr(collector.obj, name, body)
        return list(_sendable(collector, collector._genfunctions(name, body)))

    def _case(self, collector: Any, name: str, case: type[unittest.TestCase]) -> object:
        """A class of `unittest` as one of plain methods, if any of its tests matches."""
        methods = unittest.defaultTestLoader.getTestCaseNames(case)
        matches = any(self._matches(f"{collector.nodeid}::{name}::{each}") for each in methods)
        if not (matches and getattr(case, "__test__", True)):
            return None
        plain = {each: getattr(case, each) for each in methods}
        own = {
            each: getattr(case, each) for each in ("__module__", "__qualname__", "pytestmark") if hasattr(case, each)
        }
        made = pytest.Class.from_parent(collector, name=name)
        made.obj, made.stash[CASE] = type(name, (), {**plain, **own}), case
        return made

    def _matches(self, nodeid: str) -> bool:
        return any(fnmatch.fnmatchcase(nodeid, pattern) for pattern in self.patterns)


def _skipped(collector: Any, name: str, obj: Any, reason: str) -> list[pytest.Function]:
    """The test, for all its parameters, as an item that is skipped; its own marks come first."""

    def skipped() -> None: ...

    functools.update_wrapper(skipped, obj)
    vars(skipped).update(__signature__=inspect.Signature())
    item = pytest.Function.from_parent(collector, name=name, callobj=skipped)
    item.add_marker(pytest.mark.skip(reason=f"--ftgate-existing cannot measure it: {reason}"))
    return [item]


def _sendable(collector: Any, items: Iterator[Any]) -> Iterator[pytest.Function]:
    """The cells whose parameters can be sent to another process; of the others one item for each set of parameters."""
    refused = set[tuple[int, ...]]()
    for item in items:
        declared, params = item.function.__ftgate__, {**item.callspec.params}
        del params["worker"]
        source = Source(path=str(item.path), line=declared.line, module="", qualname=item.originalname)
        key = tuple(map(id, params.values()))
        try:
            for name, value in params.items():
                if type(value).__name__ != "NotSetType":  # an empty parametrize: pytest skips the item
                    tests.param_of(declared, source, name, value)
            yield item
        except FtgateError as error:
            if key not in refused:
                refused.add(key)
                reason = str(error).partition(f" of {source.qualname}: ")[2]
                yield from _skipped(collector, item.name, item.function, reason)


def _unmeasurable(test: pytest.Function, function: Any, owner: type | None) -> str:
    """Why a test cannot be a body; empty if it can."""
    # 1. What it is and how it is marked.
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "it is async"
    if hasattr(function, "hypothesis"):
        return "hypothesis runs it"
    for each in ("xfail", "thread_unsafe"):
        if test.get_closest_marker(each) is not None:
            return f"it is marked {each}"
    names, code = _names(function), inspect.unwrap(function).__globals__
    # 2. What a class of unittest does around it.
    if owner is not None and issubclass(owner, unittest.TestCase):
        if issubclass(owner, unittest.IsolatedAsyncioTestCase):
            return "it is async"
        if getattr(function, "__unittest_expecting_failure__", False):
            return "it is expected to fail"
        for each in ("setUpClass", "tearDownClass"):
            if getattr(owner, each).__func__ is not getattr(unittest.TestCase, each).__func__:
                return f"its class has {each}"
        for each in ("setUpModule", "tearDownModule"):
            if each in code:
                return f"its file has {each}"
        names |= _names(owner.setUp) | _names(owner.tearDown)
    # 3. What it calls.
    of_mock = [each for each in names & code.keys() if getattr(code[each], "__module__", None) == "unittest.mock"]
    names |= {"mock"} if of_mock or hasattr(function, "patchings") else set()
    if why := _unsafe(names):
        return f"it uses {why}"
    # 4. The fixtures around it, and those that it takes.
    for mark in test.iter_markers("usefixtures"):
        return f"fixture {mark.args[0]!r} of usefixtures runs in pytest's process"
    fixtures = test._fixtureinfo
    around = [name for name in fixtures.initialnames if name not in fixtures.argnames]
    for name, _, words in written_around(test):
        if name in around:
            return f"{words} runs in pytest's process"
    for name in around:
        for fixture in fixtures.name2fixturedefs.get(name, ())[-1:]:
            if inspect.unwrap(fixture.func).__code__.co_filename.endswith("conftest.py"):
                return f"the autouse fixture {name!r} of a conftest.py runs in pytest's process"
    parametrized = parametrized_names(test)
    for name, indirect in parametrized.items():
        if indirect:
            return f"fixture {name!r} is parametrized indirectly"
    needed = adapter.required_parameters(inspect.unwrap(function))[owner is not None :]
    return next(filter(None, (_of_fixture(test, name, ()) for name in needed if name not in parametrized)), "")


def _names(function: Any) -> set[str]:
    """The names in the code of a function and of the functions in it."""
    names, codes = set[str](), [inspect.unwrap(function).__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    return names


def _unsafe(names: set[str]) -> str:
    """The first of these names that threads cannot use at once, and why; empty without one."""
    used = (words for words in UNSAFE if names.issuperset(words.split()))
    return next((f"{words.replace(' ', '.')}: {UNSAFE[words]}" for words in used), "")


def _of_fixture(test: pytest.Function, name: str, within: tuple[str, ...]) -> str:
    """Why a fixture cannot be made where the test runs; empty if it can, as those of its file and of conftest.py."""
    fixtures = test._fixtureinfo.name2fixturedefs.get(name, ())
    what = f"fixture {name!r}"
    if not fixtures or name in within:
        return f"{what} exists in pytest alone"
    fixture, module = fixtures[-1], test.module
    if name == "tmp_path" and fixture.func.__module__.startswith("_pytest"):
        return ""
    function = inspect.unwrap(fixture.func)
    path = Path(function.__code__.co_filename)
    shared = path.name == "conftest.py" and path.parent in test.path.parents and name != "tmp_path"
    if not (shared or fixture.func.__module__ == module.__name__) or function.__qualname__ != name:
        return f"{what} is of neither the test's file nor a conftest.py"
    if fixture.scope != "function" or fixture.params:
        return f"{what} has {'parameters' if fixture.params else f'the scope {fixture.scope}'}"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"{what} is async"
    if why := _unsafe(_names(function)):
        return f"{what} uses {why}"
    needed = (_of_fixture(test, each, (*within, name)) for each in adapter.required_parameters(function))
    return next(filter(None, needed), "")
