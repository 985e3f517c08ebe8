"""Executors and loads as users write them. They check nothing: the controller does that at collection."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from typing import Any


class ExecutorToken:
    """An executor as users write it, such as `threads`. `methods` are the start methods, or the name, that select some
    executors of its kind; none: all of them."""

    __slots__ = ("kind", "methods")

    def __init__(self, kind: str, methods: tuple[Any, ...] = ()) -> None:
        self.kind = kind
        self.methods = methods

    if not TYPE_CHECKING:

        def __call__(self, *arguments: Any, **options: Any) -> CalledToken:
            return CalledToken(self.kind, (*arguments, options) if options else arguments)

    def names(self, kind: str, qualifier: str | None) -> bool:
        """Whether it stands for an executor, which has a start method or a name to tell it from others of its kind."""
        return self.kind == kind and (not self.methods or qualifier in self.methods)

    def __repr__(self) -> str:
        return self.kind


class CalledToken(ExecutorToken):
    """An executor that is called, as `processes("fork")`: an error at collection. It names what it says."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(map(repr, self.methods))})"


class MethodsToken(ExecutorToken):
    """The start methods of a decorator's `processes=`, as written; they are checked at collection."""

    __slots__ = ("written",)

    def __init__(self, written: Any) -> None:
        several = isinstance(written, (list, tuple))
        super().__init__("processes", tuple(written) if several else (written,))
        self.written = written

    def __repr__(self) -> str:
        return f"processes={self.written!r}"


class FactoryToken(ExecutorToken):
    """An executor or an event loop that a function of the user's makes; see `executor` and `tasks`."""

    __slots__ = ("factory", "options")

    def __init__(self, kind: str, name: Any, factory: Any, options: dict[str, Any]) -> None:
        super().__init__(kind, (name,))
        self.factory = factory
        self.options = options


class TasksToken(ExecutorToken):
    """`tasks`, or `tasks(name, loop_factory)`: tasks of another event loop, such as uvloop's."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __call__(self, name: str, loop_factory: Callable[[], AbstractEventLoop]) -> ExecutorToken:
            """Tasks of the loop that `loop_factory()` returns, under a name."""
            ...
    else:

        def __call__(self, *arguments: Any, **options: Any) -> ExecutorToken:
            if len(arguments) == 2 and not options:
                return FactoryToken("tasks", *arguments, {})
            return super().__call__(*arguments, **options)


class CommandToken(ExecutorToken):
    """A program as users write it; see `command`."""

    __slots__ = ("argv", "name", "options")

    def __init__(self, name: Any, argv: Any, options: dict[str, Any]) -> None:
        super().__init__("command")
        self.name = name
        self.argv = argv
        self.options = options

    def names(self, kind: str, qualifier: str | None) -> bool:
        """Whether it stands for an executor: a program of this name."""
        return kind in ("command", "server") and self.name == qualifier

    def __repr__(self) -> str:
        return f"command({self.name!r})"


class LoadToken:
    """The load on a server, as users write it; see `load`."""

    __slots__ = ("options", "path")

    def __init__(self, path: Any, options: dict[str, Any]) -> None:
        self.path = path
        self.options = options


serial = ExecutorToken("serial")
threads = ExecutorToken("threads")
processes = ExecutorToken("processes")
interpreters = ExecutorToken("interpreters")
tasks = TasksToken("tasks")
