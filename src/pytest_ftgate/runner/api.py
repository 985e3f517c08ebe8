"""The decorators of a workload's module. They check nothing: the controller does that at collection."""

from __future__ import annotations

import sys

from . import state
from .tokens import CommandToken, ExecutorToken, FactoryToken, LoadToken, MethodsToken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager
    from typing import Any, Literal, TypeVar, Unpack

    from .signatures import (
        Body,
        CommandOptions,
        CompareOptions,
        Count,
        ExecutorOptions,
        LoadOptions,
        P,
        R,
        ServeOptions,
        StartMethods,
        Words,
        Workload,
    )

    Named = TypeVar("Named")
    Decorator = TypeVar("Decorator")
    Factory = Callable[[int], Executor | AbstractContextManager[Executor]]
    Share = float | str
    Declared = Literal["compare", "serve"]
    Noted = Literal["contract", "limit", "xfail"]


def _executors(positional: tuple[Any, ...], processes: Any, others: dict[str, Any] | None = None) -> tuple[Any, ...]:
    """The executors of a decorator as written: with `processes=` where it is given, and keywords that it has not."""
    return (*positional, *([] if processes is None else [MethodsToken(processes)]), *([others] if others else []))


def executor(name: str, factory: Factory, **options: Unpack[ExecutorOptions]) -> FactoryToken:
    """An executor of the user's own, under a name, for bodies that take `executor`.

    `factory(workers)` returns a `concurrent.futures.Executor`, or a context manager that gives one. It is called in the
    measured process, within the timed start; at the end its `with` block is left, which shuts an executor down. Option:
    `processes=True` if its workers are processes. A wrong argument is an error at collection.
    """
    return FactoryToken("executor", name, factory, dict(options))


def command(name: str, argv: Words, **options: Unpack[CommandOptions]) -> CommandToken:
    """A program as an executor of `@ftgate.compare`, or a server's command line under a name in `@ftgate.serve`.

    `argv` is a list of words, which may hold `{python}`, `{folder}`, `{workers}`, `{seconds}` (commands), `{port}` and
    `{scratch}` (servers), and parameters of the test. Options: `build` (a command line to run once before),
    `pythons` (the targets it is for; servers only), `env` (a dict). A wrong argument is an error at collection.
    """
    return CommandToken(name, argv, dict(options))


def load(path: str | Words | dict[str, int], **options: Unpack[LoadOptions]) -> LoadToken:
    """The load of `@ftgate.serve`: requests for `path` over `connections` (10) at once.

    `path` may be a list of paths, or a dict of paths and how often each comes. `method` is GET, or POST with a `body`
    (text or bytes); `headers` is a dict. With `rate`, that many are sent each second, however long answers take.
    `generator` is "wrk" or "oha" (default: the first one that is installed; `rate` needs oha).
    """
    return LoadToken(path, dict(options))


class Declaration:
    """The arguments of `decorator` ("compare" or "serve") as written, and the functions that belong to the test."""

    __slots__ = (
        "adapter",
        "args",
        "body",
        "check",
        "decorator",
        "kwargs",
        "line",
        "roles",
        "setups",
        "shared",
        "stop",
        "unknown",
        "variants",
    )

    def __init__(
        self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], decorator: Declared = "compare"
    ) -> None:
        self.decorator = decorator
        self.adapter = ""
        """The file that makes this declaration of a test without a decorator, see `loading.adapted`; else empty."""
        self.body = body
        self.args = args
        self.kwargs = kwargs
        self.line = body.__code__.co_firstlineno if hasattr(body, "__code__") else 0
        self.shared: Callable[..., Any] | None = None
        self.check: Callable[..., Any] | None = None
        self.stop: Callable[..., Any] | None = None
        self.variants: list[tuple[tuple[Any, ...], Callable[..., Any]]] = []
        self.roles: list[tuple[Any, tuple[Any, ...], Callable[..., Any]]] = []
        self.setups: list[tuple[str, Any, Callable[..., Any]]] = []
        """"setup" or "teardown", its scope, and the function."""
        self.unknown = ""
        """In a measured process, a decorator of the test that registers a function and is unknown to this version."""

    def attach(self) -> None:
        """Set this declaration and its decorators as attributes of the body."""
        body: Any = self.body
        body.__ftgate__ = self
        for name, method in DECORATORS.items():
            setattr(body, name, getattr(self, method))
        # Where the plugin is disabled nothing would provide its `worker`. Where pytest is not loaded nothing collects
        # tests, and it must not be loaded for this.
        pytest = sys.modules.get("pytest")
        if pytest is not None:
            pytest.mark.skipif("'ftgate' not in config.option", reason="pytest-ftgate is disabled")(body)

    def set_shared(self, body: Body) -> Body:
        """`@test.shared`: returns the state that the workers share; its argument is the cell's `Context`."""
        self.shared = _hidden(body)
        return body

    def set_check(self, body: Body) -> Body:
        """`@test.check`: asserts on the results; it replaces their comparison between cells."""
        self.check = _hidden(body)
        return body

    def set_stop(self, body: Body) -> Body:
        """`@test.stop`: makes the other roles return once the leading one has ended; gets the shared state."""
        self.stop = _hidden(body)
        return body

    def add_role(self, name: Any, *executors: Any, processes: Any = None, **others: Any) -> Callable[[Body], Body]:
        """`@test.role("writer")`: the body of a role, for all executors or for the given ones, as `@test.variant`."""
        given = _executors(executors, processes, others)

        def register(body: Body) -> Body:
            self.roles.append((name, given, _hidden(body)))
            return body

        return _with_or_without_parentheses(register, (name, *executors))

    def add_variant(self, *executors: Any, processes: Any = None, **others: Any) -> Callable[[Body], Body]:
        """`@test.variant(tasks, processes=["spawn"])`: another body for these executors.

        Plain `processes` is every start method of the test.
        """
        given = _executors(executors, processes, others)

        def register(body: Body) -> Body:
            self.variants.append((given, _hidden(body)))
            return body

        return _with_or_without_parentheses(register, executors)

    def add_setup(self, scope: Any) -> Any:
        """`@test.setup` before each iteration, `@test.setup("worker")` and `("launch")` once a worker or launch.

        None is timed. The function gets `worker` or `executor` as the body does, in a launch the shared state.
        """
        return self._scoped("setup", scope)

    def add_teardown(self, scope: Any) -> Any:
        """`@test.teardown`: as `@test.setup`, after the iteration, worker or launch, even if it failed."""
        return self._scoped("teardown", scope)

    def _scoped(self, what: str, scope: Any) -> Any:
        if hasattr(scope, "__code__"):
            return self._scoped(what, "iteration")(scope)

        def register(body: Body) -> Body:
            self.setups.append((what, scope, _hidden(body)))
            return body

        return register

    def body_for(self, kind: str, method: str | None) -> Callable[..., Any]:
        """The body that a cell of this executor runs: the last matching variant, else the test itself."""
        body: Callable[..., Any]
        for executors, body in reversed(self.variants):
            if self._names(executors, kind, method):
                return body
        return self.body

    def _names(self, executors: tuple[Any, ...], kind: str, method: str | None) -> bool:
        """Whether these stand for an executor. Raises Failure for one that is not known here: no body is guessed."""
        for token in executors:
            if not isinstance(token, ExecutorToken) or not all(isinstance(each, str) for each in token.methods):
                from .protocol import Failure

                raise Failure(f"{self.body.__name__} has a body for {token!r}, which is no executor here")
        return any(token.names(kind, method) for token in executors)

    def factory_for(self, kind: str, name: str) -> Callable[..., Any]:
        """The factory of an executor or event loop by its name. Raises Failure if there is none."""
        for token in self.args:
            if isinstance(token, FactoryToken) and (token.kind, token.methods) == (kind, (name,)):
                factory: Callable[..., Any] = token.factory
                return factory
        from .protocol import Failure

        raise Failure(f"{self.body.__name__} has no executor or event loop {name!r}")

    def role_for(self, name: str, kind: str, method: str | None) -> Callable[..., Any] | None:
        """The body of a role that does not lead: the last one for this executor, else the last one for all."""
        of_role = [(executors, body) for role, executors, body in reversed(self.roles) if role == name]
        fitting = (body for executors, body in of_role if self._names(executors, kind, method))
        return next(fitting, next((body for executors, body in of_role if not executors), None))


SCOPES = ("iteration", "worker", "launch")
"""Scopes of setups and teardowns."""
DECORATORS = {
    "shared": "set_shared",
    "check": "set_check",
    "stop": "set_stop",
    "role": "add_role",
    "variant": "add_variant",
    "setup": "add_setup",
    "teardown": "add_teardown",
}
"""The decorators of a decorated test, and the methods of its declaration."""


class Note:
    """The arguments of `@ftgate.contract`, `@ftgate.limit` or `@ftgate.xfail` as written, and the decorator's line."""

    __slots__ = ("args", "decorator", "kwargs", "line")

    def __init__(self, decorator: Noted, args: tuple[Any, ...], kwargs: dict[str, Any], line: int) -> None:
        self.decorator = decorator
        self.args = args
        self.kwargs = kwargs
        self.line = line

    def __call__(self, body: Body) -> Body:
        """Add this note to the function, below or above other decorators, and return the function."""
        body.__ftgate_notes__ = [*vars(body).get("__ftgate_notes__", ()), self]  # type: ignore[attr-defined]
        return body


def _hidden(body: Body) -> Body:
    body.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it as a test
    return body


def _with_or_without_parentheses(
    decorate: Decorator, args: tuple[Any, ...], options: Mapping[str, Any] | None = None
) -> Decorator:
    """The decorator; written without parentheses, which is an error at collection, what it makes of the function."""
    if len(args) == 1 and not options and hasattr(args[0], "__code__"):
        return decorate(*args)  # type: ignore[operator, no-any-return]
    return decorate


class Ftgate:
    """The namespace `ftgate`."""

    __slots__ = ()

    def compare(
        self, *executors: ExecutorToken, **options: Unpack[CompareOptions]
    ) -> Callable[[Callable[P, R]], Workload[P, R]]:
        """Run the decorated body under every given executor, on every target interpreter.

        Executors are `serial`, `threads`, `processes` (each target's default start method), `interpreters`, `tasks`,
        `executor(...)` and `command(...)`. A wrong argument is an error at collection. Options and their defaults:

        - `processes` (none): start methods, "fork", "forkserver" or "spawn", or a list of them; each is an executor.
        - `workers` (2): a number, "cores", or a list, of which [1, N] also measures scaling. A dict gives roles, the
          first of which leads: `{"producer": 8, "writer": 4}`.
        - `reuse` ("pool"): "pool" keeps the workers between iterations, "fresh" starts and joins them in each.
        - `pythons` (the option): a list of targets.
        - `iterations` (from the variance): the maximum per launch. `duration` (none): seconds per launch; the body is
          then one operation, repeated in iterations of `window` (0.2) seconds.
        - `warmup` (1): iterations before measuring.
        - `timeout` (60): the seconds that an iteration may take.
        - `packages`: requirements to install. `programs`: program -> the command that installs it.
        - `env`: variables, or a list of such dicts, which multiplies the cells.
        - `pin` (False): each worker on a core of its own. `min_cores`: with fewer cores the cells are unsupported.
        """

        kwargs: dict[str, Any] = dict(options)
        given = _executors(executors, kwargs.pop("processes", None))

        def decorate(body: Callable[P, R]) -> Workload[P, R]:
            Declaration(body, given, kwargs).attach()
            return body  # type: ignore[return-value]

        return _with_or_without_parentheses(decorate, executors, options)

    def serve(self, *commands: CommandToken | Words, **options: Unpack[ServeOptions]) -> Callable[[Body], Body]:
        """Start a server on every target interpreter, put load on it, and measure its responses and its processes.

        Arguments: a command line (a list of words, see `command`) or several as `command(name, words)`; `ready` (the
        URL that answers when it is ready), `load` (see `load`), `workers` (int, "cores" or a list, for `{workers}`),
        `pythons`, `duration` (s of load per launch, in windows of `window` s), `warmup` (windows), `timeout` (s
        until it is ready), `packages` (requirements to install), `programs` (program -> command that installs it),
        `env` (variables, or a list of such dicts), `min_cores` (int). The decorated test takes `server` and checks a
        response before anything is measured. A wrong argument is an error at collection.
        """

        def decorate(body: Body) -> Body:
            # To use one of its decorators is an error at collection.
            Declaration(body, commands, dict(options), "serve").attach()
            return body

        return _with_or_without_parentheses(decorate, commands, options)

    def contract(self, *expressions: str, **metrics: str) -> Callable[[Body], Body]:
        """Contracts, which hold on any machine and need no baseline. May be used several times.

        Expressions such as `"threads.wall < 0.8 * processes[spawn].wall"`, or metrics by keyword: `scaling=">= 1.6"`,
        `gil="off"`. Put it above or below `@ftgate.compare`. A bad expression is an error at collection.
        """
        note = Note("contract", expressions, metrics, sys._getframe(1).f_lineno)
        return _with_or_without_parentheses(note, expressions, metrics)

    def xfail(
        self,
        decision: Literal["regressed", "broken"],
        *executors: ExecutorToken,
        processes: StartMethods | None = None,
        reason: str = "",
        strict: bool = True,
        pythons: str | Words | None = None,
        workers: Count | Sequence[Count] | None = None,
        cells: str | Words | None = None,
    ) -> Callable[[Body], Body]:
        """A known failure: cells of this test are "regressed" or "broken" for the given `reason`, and fail no run.

        The cells are those of the given executors, `processes` (start methods), `pythons` (targets), `workers`
        (numbers) and `cells` (ids with `*` and `?`, such as "3.14t-threads-*"); all of them by default. A cell that
        passes anyway fails, unless `strict` is False. May be used several times; of two marks of a cell for one
        decision the first one counts. A wrong argument is an error at collection.
        """
        chosen = {"strict": strict, "pythons": pythons, "workers": workers, "cells": cells}
        given = (decision, *_executors(executors, processes))
        note = Note("xfail", given, {"reason": reason, **chosen}, sys._getframe(1).f_lineno)
        return _with_or_without_parentheses(note, (decision,))

    def limit(
        self, metric: str, *, margin: Share | None = None, effect: Share | None = None, floor: Share | None = None
    ) -> Callable[[Body], Body]:
        """Limits of one metric of this test. May be used once per metric.

        `metric` is a name such as wall, uss or timer.NAME; it gates in this test. A slowdown up to `margin` is not a
        regression, a pass rules out one of `effect` (shares: 0.05 or "5%"), and a difference below `floor` is no change
        ("1ms", "1MiB", or a number of s, bytes, a share of the time, x). Omitted arguments fall back to the options. A
        wrong argument is an error at collection.
        """
        note = Note("limit", (metric,), {"margin": margin, "effect": effect, "floor": floor}, sys._getframe(1).f_lineno)
        return _with_or_without_parentheses(note, (metric,))

    def named(self, lock: Named, name: str) -> Named:
        """Return the same lock, event or queue; reports of lock waits show `name` for it."""
        probe = sys.modules.get("pytest_ftgate.runner.locks")
        if probe is not None:
            probe.named(lock, name)
        return lock

    def shared(self) -> Any:
        """The value that `@test.shared` returned, inside a task of an `executor` body; None without `@test.shared`."""
        return state.shared


ftgate = Ftgate()
