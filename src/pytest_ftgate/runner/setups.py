"""`@test.setup` and `@test.teardown` of a cell. Imported only where a test has them."""

from __future__ import annotations

from time import process_time_ns

from . import state
from .api import SCOPES
from .clock import ended_cpu_ns
from .orders import END, SETUP, TEARDOWN
from .protocol import Failure, explain, raise_first_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Runner
    from collections.abc import Callable, Coroutine
    from typing import Any

    Error = tuple[str, str] | None  # as `protocol.explain` gives it


class Setups:
    """The functions of a cell by what they are and by scope, with the test's parameters."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async
        """Whether the body is, and so its loop is there from setup to teardown."""
        self.functions: dict[tuple[str, str], list[Callable[[Any], Any]]] = {}

    def add(self, what: str, scope: str, function: Callable[..., Any], params: dict[str, Any]) -> None:
        """Take a function; setups run in the order in which they were written, teardowns in the reverse order."""
        if scope not in SCOPES:  # of another version, see any_version.py: it would never run
            raise Failure(f"{function.__name__} is a {what} for {scope!r}, which is no scope here")
        from functools import partial, update_wrapper

        named = update_wrapper(partial(function, **params), function)
        functions = self.functions.setdefault((what, scope), [])
        functions.insert(len(functions) if what == "setup" else 0, named)

    async def run(self, what: str, scope: str, given: Any) -> Error:
        """Run the functions; the first error, at which setups end, but teardowns do not."""
        first: Error = None
        for function in self.functions.get((what, scope), ()):
            try:
                result = function(given)
                if hasattr(result, "__await__"):
                    await result
            except BaseException as error:
                if isinstance(error, state.passed):
                    raise
                reason, detail = explain(error)
                named = reason if reason == "unsupported" else f"{what} {function.__name__!r} {reason}"
                first = first or (named, detail)
                if what == "setup":
                    break
        return first


class WorkerSetups:
    """Runs setups and teardowns of one worker, in the worker itself. A teardown runs if its setup has begun.

    `given` is what the functions get: the worker, or the executor that a body drives. An async body runs in `loop` too;
    without one, a loop is made and lives as long as the worker.
    """

    def __init__(self, setups: Setups, given: Any, loop: Runner | None) -> None:
        self.setups = setups
        self.given = given
        self.loop = loop
        self.owns_loop = setups.is_async and loop is None
        self.begun: list[str] = []

    def carry_out(self, flags: int, own_cpu: bool = False) -> Error:
        """Run the setups or teardowns of these flags; their CPU time is not the worker's. Returns the first error."""
        spent_ns = -process_time_ns() - ended_cpu_ns()
        if self.owns_loop and self.loop is None:
            self.loop = new_loop()
        error: Error = drive(self._steps(flags), self.loop)
        if self.owns_loop and self.loop is not None and flags & END:
            self.loop.close()
            self.loop = None
        if own_cpu:
            self.given._cpu_ns += spent_ns + process_time_ns() + ended_cpu_ns()
        return error

    async def _steps(self, flags: int) -> Error:
        if not flags & SETUP:
            ended = [scope for scope in reversed(self.begun) if flags & (TEARDOWN if scope == "iteration" else END)]
            errors = [await self._end(scope) for scope in ended]
            return next(filter(None, errors), None)
        for scope in ("worker", "iteration"):
            if scope not in self.begun:
                self.begun.append(scope)
                error = await self.setups.run("setup", scope, self.given)
                if error:
                    return error
        return None

    async def _end(self, scope: str) -> Error:
        self.begun.remove(scope)
        return await self.setups.run("teardown", scope, self.given)


class LaunchSetups:
    """Runs the setups and teardowns of a launch, in its main process.

    `loop` is that of the workers where they are tasks; it is closed at the end.
    """

    def __init__(self, setups: Setups, shared: Any, loop: Runner | None) -> None:
        self.setups = setups
        self.shared = shared
        self.loop = loop
        self.begun = False

    def begin(self) -> None:
        """Run the setups. Raises Failure or Unsupported."""
        if self.loop is None and self.setups.is_async:
            self.loop = new_loop()
        self.begun = True
        self._run("setup")

    def end(self) -> None:
        """Run the teardowns, once, also where a setup has failed. Raises Failure or Unsupported."""
        if not self.begun:
            return
        self.begun = False
        try:
            self._run("teardown")
        finally:
            if self.loop is not None:
                self.loop.close()

    def _run(self, what: str) -> None:
        raise_first_error([{"error": drive(self.setups.run(what, "launch", self.shared), self.loop)}])


def drive(steps: Coroutine[Any, Any, Any], loop: Runner | None) -> Any:
    """Run a coroutine to its end: in a loop, or at once where nothing in it waits."""
    if loop is not None:
        return loop.run(steps)
    try:
        steps.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("a coroutine of a plain body")  # refused at collection


def new_loop() -> Runner:
    """An event loop that is kept from setup to teardown."""
    from asyncio import Runner

    return Runner()
