"""What a workload's module says with the decorator. Nothing is checked here: the controller does that at collection."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    Body = TypeVar("Body", bound=Callable[..., Any])
    Named = TypeVar("Named")

    class Registrar(Protocol):
        """Takes a function, remembers it, and gives it back."""

        def __call__(self, body: Body, /) -> Body:
            """Register `body`."""
            ...

    class Workload(Protocol):
        """A decorated test: the function itself with three registrars."""

        __ftgate__: Declaration
        shared: Registrar
        check: Registrar

        def variant(self, *executors: ExecutorToken) -> Registrar:
            """Another body for the given executors."""
            ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """The body, unchanged."""
            ...


class ExecutorToken:
    """An executor as users name it; `processes("fork", "spawn")` narrows to start methods."""

    __slots__ = ("kind", "methods")

    def __init__(self, kind: str, methods: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.methods = methods

    def __call__(self, *methods: str) -> ExecutorToken:
        """The same executor with the given start methods."""
        return ExecutorToken(self.kind, methods)

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.methods))
        return f"{self.kind}({inner})" if inner else self.kind


serial = ExecutorToken("serial")
threads = ExecutorToken("threads")
processes = ExecutorToken("processes")
interpreters = ExecutorToken("interpreters")
tasks = ExecutorToken("tasks")


class Declaration:
    """What stands beside a decorated function, as written."""

    __slots__ = ("args", "body", "check", "kwargs", "line", "shared", "variants")

    def __init__(self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.body = body
        self.args = args
        self.kwargs = kwargs
        self.line = body.__code__.co_firstlineno if hasattr(body, "__code__") else 0
        self.shared: Callable[..., Any] | None = None
        self.check: Callable[..., Any] | None = None
        self.variants: list[tuple[tuple[Any, ...], Callable[..., Any]]] = []

    def set_shared(self, body: Body) -> Body:
        """`@test.shared`: makes the state that the workers share; gets the executor's kind."""
        self.shared = _hidden(body)
        return body

    def set_check(self, body: Body) -> Body:
        """`@test.check`: asserts on the results in place of the comparison between cells."""
        self.check = _hidden(body)
        return body

    def add_variant(self, *executors: Any) -> Callable[[Body], Body]:
        """`@test.variant(tasks)`: another body for these executors."""

        def register(body: Body) -> Body:
            self.variants.append((executors, _hidden(body)))
            return body

        return register

    def body_for(self, kind: str, method: str | None) -> Callable[..., Any]:
        """The body that a cell of this executor runs: the last fitting variant, else the test itself."""
        body: Callable[..., Any]
        for executors, body in reversed(self.variants):
            for token in executors:
                if token.kind == kind and (not token.methods or method in token.methods):
                    return body
        return self.body


class Note:
    """What `@ftgate.require` or `@ftgate.gate` said, as written, and the line that it stands on."""

    __slots__ = ("args", "decorator", "kwargs", "line")

    def __init__(self, decorator: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int) -> None:
        self.decorator = decorator
        self.args = args
        self.kwargs = kwargs
        self.line = line

    def __call__(self, body: Body) -> Body:
        """Lie on the function, whatever else decorates it, and give it back."""
        body.__ftgate_notes__ = [*vars(body).get("__ftgate_notes__", ()), self]  # type: ignore[attr-defined]
        return body


def _hidden(body: Body) -> Body:
    body.__test__ = False  # type: ignore[attr-defined]  # keeps pytest from collecting it as a test
    return body


class Ftgate:
    """The namespace `ftgate`."""

    __slots__ = ()

    def compare(self, *executors: Any, **options: Any) -> Callable[[Callable[..., Any]], Workload]:
        """Run the decorated body under every executor named, on every target interpreter.

        Arguments: executors as tokens (`threads`, `processes("fork")`) or by keyword (`threads=True`,
        `processes=["fork", "spawn"]`); `workers` (int or list), `reuse` ("fresh" or "pool"), `pythons`
        (list of targets), `iterations` (turns a launch) or `duration` (s a launch), `warmup` (iterations,
        or s with `duration`), `timeout` (s an iteration). A wrong argument is an error at collection.
        """

        def decorate(body: Callable[..., Any]) -> Workload:
            declaration = Declaration(body, executors, options)
            body.__ftgate__ = declaration  # type: ignore[attr-defined]
            body.shared = declaration.set_shared  # type: ignore[attr-defined]
            body.check = declaration.set_check  # type: ignore[attr-defined]
            body.variant = declaration.add_variant  # type: ignore[attr-defined]
            return body  # type: ignore[return-value]

        if len(executors) == 1 and not options and hasattr(executors[0], "__code__"):
            decorate(executors[0])  # written without parentheses: collection says so
            return executors[0]  # type: ignore[no-any-return]
        return decorate

    def require(self, *expressions: str, **metrics: str) -> Callable[[Body], Body]:
        """Contracts that hold on any machine and need no baseline; usable several times.

        Expressions such as `"threads.wall < 0.8 * processes[spawn].wall"`, or metrics by keyword: `scaling=">= 1.6"`,
        `gil="off"`. Put it above or below `@ftgate.compare`. A bad expression is an error at collection.
        """
        note = Note("require", expressions, metrics, sys._getframe(1).f_lineno)
        if len(expressions) == 1 and not metrics and hasattr(expressions[0], "__code__"):
            return note(expressions[0])  # type: ignore[type-var,return-value]  # written without parentheses: collection says so
        return note

    def gate(self, metric: str, *, margin: Any = None, effect: Any = None, floor: Any = None) -> Callable[[Body], Body]:
        """What counts as a change of one metric of this test; usable once a metric.

        `metric` is wall, tail, uss, lock_wait_share, scaling or ratio. A slowdown up to `margin` is no regression, a
        pass excludes one of `effect` (shares: 0.05 or "5%"), and a difference below `floor` is no change ("1ms",
        "1MiB", or a number of s, bytes, a share of the time, x). What is not given is the options' to say. A wrong
        argument is an error at collection.
        """
        note = Note("gate", (metric,), {"margin": margin, "effect": effect, "floor": floor}, sys._getframe(1).f_lineno)
        if hasattr(metric, "__code__"):
            return note(metric)  # type: ignore[type-var,return-value]  # written without parentheses: collection says so
        return note

    def named(self, lock: Named, name: str) -> Named:
        """The same lock, event or queue; in reports of lock waits it stands under `name` in place of its line alone."""
        probe = sys.modules.get("pytest_ftgate.runner.locks")
        if probe is not None:
            probe.named(lock, name)
        return lock

    def shared_state(self) -> Any:
        """What `@test.shared` made, inside a task of an `executor` body; None where there is none."""
        from . import worker

        return worker.shared_state


ftgate = Ftgate()
