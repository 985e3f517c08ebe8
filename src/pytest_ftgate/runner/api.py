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
        """A decorated test: the function itself with its registrars."""

        __ftgate__: Declaration
        shared: Registrar
        check: Registrar
        stop: Registrar

        def role(self, name: str, *executors: ExecutorToken) -> Registrar:
            """The body of another role."""
            ...

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


class CommandToken(ExecutorToken):
    """A program as users name it; see `command`."""

    __slots__ = ("argv", "name", "options")

    def __init__(self, name: Any, argv: Any, options: dict[str, Any]) -> None:
        super().__init__("command")
        self.name = name
        self.argv = argv
        self.options = options

    def __repr__(self) -> str:
        return f"command({self.name!r})"


def command(name: str, argv: Any, **options: Any) -> CommandToken:
    """A program as an executor of `@ftgate.compare`, or a server's command line under a name in `@ftgate.serve`.

    `argv` is a list of words, which may hold `{python}`, `{folder}`, `{workers}`, `{seconds}` (commands), `{port}` and
    `{scratch}` (servers), and parameters of the test. Options: `build` (a command line that is run once before),
    `pythons` (targets that it is for; servers), `environment` (a dict). A wrong argument is an error at collection.
    """
    return CommandToken(name, argv, options)


class Load:
    """The load on a server, as written; see `load`."""

    __slots__ = ("options", "path")

    def __init__(self, path: Any, options: dict[str, Any]) -> None:
        self.path = path
        self.options = options


def load(path: str, **options: Any) -> Load:
    """The load of `@ftgate.serve`: requests for `path` over `connections` (10) at once.

    `generator` is "wrk" or "oha"; without it the first of them that is there.
    """
    return Load(path, options)


class Declaration:
    """What stands beside a decorated function, as written by `decorator` ("compare" or "serve")."""

    __slots__ = ("args", "body", "check", "decorator", "kwargs", "line", "roles", "shared", "stop", "variants")

    def __init__(
        self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], decorator: str = "compare"
    ) -> None:
        self.decorator = decorator
        self.body = body
        self.args = args
        self.kwargs = kwargs
        self.line = body.__code__.co_firstlineno if hasattr(body, "__code__") else 0
        self.shared: Callable[..., Any] | None = None
        self.check: Callable[..., Any] | None = None
        self.stop: Callable[..., Any] | None = None
        self.variants: list[tuple[tuple[Any, ...], Callable[..., Any]]] = []
        self.roles: list[tuple[Any, tuple[Any, ...], Callable[..., Any]]] = []

    def attach(self) -> None:
        """Lie on the body, with the registrars."""
        found: Any = self.body
        found.__ftgate__ = self
        found.shared, found.check, found.stop = self.set_shared, self.set_check, self.set_stop
        found.role, found.variant = self.add_role, self.add_variant

    def set_shared(self, body: Body) -> Body:
        """`@test.shared`: makes the state that the workers share; gets the executor's kind."""
        self.shared = _hidden(body)
        return body

    def set_check(self, body: Body) -> Body:
        """`@test.check`: asserts on the results in place of the comparison between cells."""
        self.check = _hidden(body)
        return body

    def set_stop(self, body: Body) -> Body:
        """`@test.stop`: lets the other roles return once the leading one has ended; gets the shared state."""
        self.stop = _hidden(body)
        return body

    def add_role(self, name: Any, *executors: Any) -> Callable[[Body], Body]:
        """`@test.role("writer")`: the body of a role, of all executors or of those named."""

        def register(body: Body) -> Body:
            self.roles.append((name, executors, _hidden(body)))
            return body

        return register

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
            if any(_fits(token, kind, method) for token in executors):
                return body
        return self.body

    def role_for(self, name: str, kind: str, method: str | None) -> Callable[..., Any] | None:
        """The body of a role that does not lead: the last one for this executor, else the last one for all."""
        of_role = [(executors, body) for role, executors, body in reversed(self.roles) if role == name]
        fitting = (body for executors, body in of_role if any(_fits(token, kind, method) for token in executors))
        return next(fitting, next((body for executors, body in of_role if not executors), None))


def _fits(token: Any, kind: str, method: str | None) -> bool:
    fits: bool = token.kind == kind and (not token.methods or method in token.methods)
    return fits


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
        (list of targets), `iterations` (turns a launch) or `duration` (s a launch, in turns of `window` s), `warmup`
        (iterations, or s with `duration`), `timeout` (s an iteration), `requires` (requirements to install), `needs`
        (program -> command that installs it). `workers` may give roles: `{"producer": 8, "writer": 4}`, the first of
        which leads. A wrong argument is an error at collection.
        """

        def decorate(body: Callable[..., Any]) -> Workload:
            declaration = Declaration(body, executors, options)
            declaration.attach()
            return body  # type: ignore[return-value]

        if len(executors) == 1 and not options and hasattr(executors[0], "__code__"):
            decorate(executors[0])  # written without parentheses: collection says so
            return executors[0]  # type: ignore[no-any-return]
        return decorate

    def serve(self, *commands: Any, **options: Any) -> Callable[[Body], Body]:
        """Start a server on every target interpreter, put load on it, and measure its answers and its processes.

        Arguments: a command line (a list of words, see `command`) or several as `command(name, words)`; `ready` (the
        URL that answers when it is ready), `load` (see `load`), `workers` (int or list, for `{workers}`), `pythons`,
        `duration` (s of load a launch, in turns of `window` s), `warmup` (s), `timeout` (s until it is ready),
        `requires` (requirements to install), `needs` (program -> command that installs it). The decorated test takes
        `server` and checks an answer before anything is measured. A wrong argument is an error at collection.
        """

        def decorate(body: Body) -> Body:
            Declaration(body, commands, options, "serve").attach()  # collection complains where one is used
            return body

        if len(commands) == 1 and not options and hasattr(commands[0], "__code__"):
            return decorate(commands[0])  # type: ignore[no-any-return]  # written without parentheses: collection says so
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
