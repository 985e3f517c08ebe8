"""Decorator arguments -> Spec: everything that the light decorator left unchecked, with the place and the mend."""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, get_args

from .errors import FtgateError
from .model import BodyKind, Executor, ExecutorKind, Param, Reuse, Source, Spec, StartMethod
from .runner.api import Declaration, ExecutorToken
from .runner.loading import shape_of

KINDS: tuple[str, ...] = get_args(ExecutorKind)
METHODS: tuple[str, ...] = get_args(StartMethod)
REUSES: tuple[str, ...] = get_args(Reuse)
OPTIONS = ("workers", "reuse", "pythons", "iterations", "duration", "warmup", "timeout")
DEFAULT_WORKERS = 2


class DeclarationError(FtgateError):
    """A decorated test that cannot be gated; the text names the file, the line and the mend."""


class Reader:
    """Reads one declaration; every complaint carries its place."""

    def __init__(self, declared: Declaration, path: str, name: str) -> None:
        self.declared = declared
        self.kwargs = declared.kwargs
        self.place = f"{path}:{declared.line}: @ftgate.compare of {name}"

    def fail(self, text: str) -> NoReturn:
        """Raise what is wrong, at its place."""
        raise DeclarationError(f"{self.place}: {text}")

    # -- executors ---------------------------------------------------------------------------------------------

    def executors(self) -> tuple[Executor, ...]:
        """All executors, in the order written, each once."""
        found: list[Executor] = []
        for token in self.declared.args:
            if not isinstance(token, ExecutorToken):
                self.fail(f"{_shown(token)} is no executor; use {_listed(KINDS)} from pytest_ftgate")
            found += self._expand(token.kind, token.methods or True)
        for kind in KINDS:
            if kind in self.kwargs:
                found += self._expand(kind, self.kwargs[kind])
        if not found:
            self.fail("names no executor; write for example @ftgate.compare(threads, processes=['fork', 'spawn'])")
        return tuple(dict.fromkeys(found))

    def _expand(self, kind: Any, value: Any) -> list[Executor]:
        if value is False or value is None:
            return []
        if kind != "processes":
            if value is not True:
                self.fail(f"{kind}= takes True or False, not {value!r}")
            return [Executor(kind=kind)]
        if value is True:
            return [Executor(kind="processes", method=default_method())]
        methods = [value] if isinstance(value, str) else value
        if not isinstance(methods, (list, tuple)) or not methods:
            self.fail(f"processes= takes True, a start method or a list of them ({_listed(METHODS)}), not {value!r}")
        return [Executor(kind="processes", method=self._method(method)) for method in methods]

    def _method(self, method: Any) -> StartMethod:
        if method not in METHODS:
            self.fail(f"{method!r} is no start method; use {_listed(METHODS)}{_close(method, METHODS)}")
        return method  # type: ignore[no-any-return]

    # -- numbers -----------------------------------------------------------------------------------------------

    def known_arguments(self) -> None:
        """Complain about keywords that nothing reads."""
        known = (*OPTIONS, *KINDS)
        for name in self.kwargs:
            if name not in known:
                self.fail(f"unknown argument {name!r}{_close(name, known)}; it takes {_listed(known)}")

    def workers(self) -> tuple[int, ...]:
        """The worker counts, each once."""
        value = self.kwargs.get("workers", DEFAULT_WORKERS)
        counts = list(value) if isinstance(value, (list, tuple)) else [value]
        if not counts or not all(_is_count(count) for count in counts):
            self.fail(f"workers= takes a whole number from 1, or a list of them, not {value!r}")
        return tuple(dict.fromkeys(counts))

    def positive(self, name: str, *, whole: bool = False, zero: bool = False) -> Any:
        """A number above zero (or from zero), or None where it is not given."""
        value = self.kwargs.get(name)
        if value is None:
            return None
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            kind = "a whole number" if whole else "a number of seconds"
            self.fail(f"{name}= takes {kind} {'from 0' if zero else 'above 0'}, not {value!r}")
        return value

    def reuse(self, duration: float | None) -> Reuse:
        """`fresh` unless told otherwise; a duration keeps its workers."""
        value = self.kwargs.get("reuse")
        if value is None:
            return "fresh" if duration is None else "pool"
        if value not in REUSES:
            self.fail(f"reuse= takes {_listed(REUSES)}, not {value!r}")
        if duration is not None and value == "fresh":
            self.fail("duration= keeps its workers from window to window; drop reuse='fresh', or use iterations=")
        return value  # type: ignore[no-any-return]

    def pythons(self) -> tuple[str, ...] | None:
        """The targets named, or None where the options decide."""
        value = self.kwargs.get("pythons")
        if value is None:
            return None
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
            self.fail(f"pythons= takes a list of targets such as ['3.14', '3.14t'], not {value!r}")
        return tuple(dict.fromkeys(names))

    # -- bodies ------------------------------------------------------------------------------------------------

    def bodies(self, executors: Sequence[Executor]) -> None:
        """Every executor has a body of a fitting shape."""
        for function in (self.declared.body, *(body for _, body in self.declared.variants)):
            if not shape_of(function):
                self.fail(
                    f"{function.__name__} names neither worker nor executor: a body that every worker runs takes `worker`, "
                    "one that drives a pool takes `executor`"
                )
        for executor in executors:
            function = self.declared.body_for(executor.kind, executor.method)
            is_async = inspect.iscoroutinefunction(function)
            if executor.kind == "tasks" and not (is_async and shape_of(function) == "worker"):
                self.fail(
                    "tasks run coroutines: make the body `async def ...(worker)`, or give one with "
                    f"@{self.declared.body.__name__}.variant(tasks)"
                )
            if is_async and shape_of(function) == "executor":
                self.fail(f"{function.__name__} drives a pool, so it cannot be `async def`; take `worker` in its place")
        self._variants(executors)

    def _variants(self, executors: Sequence[Executor]) -> None:
        named = {executor.kind for executor in executors}
        for tokens, function in self.declared.variants:
            for token in tokens:
                if not isinstance(token, ExecutorToken):
                    self.fail(f"variant {function.__name__} is for {_shown(token)}, which is no executor; use {_listed(KINDS)}")
                if token.kind not in named:
                    self.fail(f"variant {function.__name__} is for {token!r}, which the comparison does not name; add it or drop the variant")

    def importable(self, qualname: str) -> None:
        """The target must find the test by its name."""
        if "<locals>" in qualname:
            self.fail("the test is defined inside a function, where the measured interpreter cannot import it; move it to the module")

    def fixtures(self, names: Iterable[str], parametrized: Iterable[str]) -> None:
        """No argument but the cell's own and plain parameters."""
        allowed = {"self", "worker", "executor", *parametrized}
        for name in names:
            if name not in allowed:
                self.fail(
                    f"fixture {name!r} cannot travel: the workload runs in another interpreter; "
                    "make what it needs in the body or in @test.shared, or pass plain values with pytest.mark.parametrize"
                )


def spec_of(declared: Declaration, source: Source, nodeid: str) -> Spec:
    """The checked form of a declaration. Raises DeclarationError."""
    reader = Reader(declared, source.path, source.qualname)
    reader.known_arguments()
    reader.importable(source.qualname)
    executors = reader.executors()
    reader.bodies(executors)
    duration = reader.positive("duration")
    iterations = reader.positive("iterations", whole=True)
    if duration is not None and iterations is not None:
        reader.fail("takes iterations= or duration=, not both")
    body: Any = shape_of(declared.body)
    return Spec(
        nodeid=nodeid,
        source=source,
        body=body,
        executors=executors,
        workers=reader.workers(),
        reuse=reader.reuse(duration),
        pythons=reader.pythons(),
        iterations=iterations,
        duration_s=None if duration is None else float(duration),
        warmup=reader.positive("warmup", whole=duration is None, zero=True),
        timeout_s=reader.positive("timeout"),
    )


def check_fixtures(declared: Declaration, source: Source, parametrized: Iterable[str]) -> None:
    """Raise DeclarationError for an argument that is neither the cell's own nor a plain parameter."""
    reader = Reader(declared, source.path, source.qualname)
    parametrized = tuple(parametrized)
    for function in (declared.body, *(body for _, body in declared.variants)):
        reader.fixtures(inspect.signature(function).parameters, parametrized)


def body_kind(declared: Declaration, executor: Executor) -> BodyKind:
    """What the body of this executor's cells is."""
    shape: Any = shape_of(declared.body_for(executor.kind, executor.method))
    return shape  # type: ignore[no-any-return]


def param_of(declared: Declaration, source: Source, name: str, value: Any) -> Param:
    """A parameter as a literal that is read back equal. Raises DeclarationError where it is not plain."""
    literal = repr(value)
    try:
        same = ast.literal_eval(literal) == value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        same = False
    if not same:
        Reader(declared, source.path, source.qualname).fail(
            f"parameter {name}={literal[:60]} cannot be sent to another interpreter; "
            "parametrize with plain values (numbers, text, lists, dicts) and make the object in the body"
        )
    return Param(name=name, literal=literal)


def default_method() -> StartMethod:
    """What `processes` alone means: the start method that CPython 3.14 takes by itself on this platform."""
    return "forkserver" if sys.platform not in ("darwin", "win32") and os.name == "posix" else "spawn"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" or {words[-1]}"


def _close(word: Any, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(str(word), known, 1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _shown(value: Any) -> str:
    return value.__name__ if isinstance(value, Callable) and hasattr(value, "__name__") else repr(value)  # type: ignore[arg-type]
