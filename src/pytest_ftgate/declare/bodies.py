"""Reads the functions of a test: its body, variants, roles, and what they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from ..model import Executor, RoleCounts
from ..runner.api import CommandToken, ExecutorToken
from ..runner.loading import shape_of
from ..text import listed
from .reader import KINDS, OWN, Reader, shown

SCOPES = ("iteration", "worker", "launch")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Bodies(Reader):
    """Checks the functions against the executors and the parameters."""

    def bodies(self, executors: Sequence[Executor]) -> None:
        """Check that every executor has a body that takes what the executor gives."""
        self._variants(executors)
        for function in (self.declared.body, *(body for _, body in self.declared.variants)):
            if not shape_of(function):
                self.fail(
                    f"{function.__name__} takes neither worker nor executor: "
                    "a body that every worker runs takes `worker`, "
                    "one that drives a pool takes `executor`"
                )
        for executor in executors:
            if executor.program is None:
                self._body(executor, self.declared.body_for(executor.kind, executor.qualifier))

    def _body(self, executor: Executor, function: Callable[..., Any]) -> None:
        if executor.kind == "executor" and shape_of(function) != "executor":
            self.fail(
                f"{function.__name__} takes `worker`: only our own workers can be released together; for "
                f"{executor.label} make a body that takes `executor` and submits to it, or add one with "
                f"@{self.declared.body.__name__}.variant(...)"
            )
        is_async = inspect.iscoroutinefunction(function)
        if executor.kind == "tasks" and not (is_async and shape_of(function) == "worker"):
            self.fail(
                "tasks run coroutines: make the body `async def ...(worker)`, or add one with "
                f"@{self.declared.body.__name__}.variant(tasks)"
            )
        if is_async and shape_of(function) == "executor":
            self.fail(f"{function.__name__} drives a pool, so it cannot be `async def`; take `worker` instead")

    def roles(self, executors: Sequence[Executor], role_counts: Sequence[RoleCounts]) -> None:
        """Check that every role but the first has a body for each executor, and that there are no other roles."""
        name = self.declared.body.__name__
        names = [role for role, _ in role_counts[0]] if role_counts else []
        for role, tokens, function in self.declared.roles:
            if role not in names[1:]:
                leads = (
                    f"the test itself is the body of {role!r}, the leading role"
                    if role in names[:1]
                    else "no such role"
                )
                self.fail(f"@{name}.role({role!r}): {leads}; workers= has {listed(names) if names else 'no roles'}")
            for token in tokens:
                if not isinstance(token, ExecutorToken):
                    self.fail(
                        f"@{name}.role({role!r}) is for {shown(token)}, which is not an executor; use {listed(KINDS)}"
                    )
                if token.kind not in [executor.kind for executor in executors]:
                    self.fail(f"@{name}.role({role!r}) is for {token!r}, which the comparison does not name")
            if shape_of(function) != "worker":
                self.fail(f"{function.__name__} is the body of a role: it takes `worker`")
        if self.declared.stop is not None and not names:
            self.fail(f"@{name}.stop ends the other roles: it needs workers= with roles")
        for executor in executors if names else ():
            self._role_bodies(executor, names)

    def _role_bodies(self, executor: Executor, names: Sequence[str]) -> None:
        name = self.declared.body.__name__
        if executor.kind == "serial":
            self.fail("serial runs one worker after another: roles that wait for each other need another executor")
        if executor.kind == "command":
            self.fail("a command has no roles; remove it, or give it its own test")
        if shape_of(self.declared.body_for(executor.kind, executor.qualifier)) != "worker":
            self.fail("workers= with roles needs a body that takes `worker`; a body that takes `executor` has no roles")
        for role in names[1:]:
            body = self.declared.role_for(role, executor.kind, executor.qualifier)
            if body is None:
                self.fail(f"the role {role!r} has no body for {executor.label}; write one with @{name}.role({role!r})")
            if (executor.kind == "tasks") != inspect.iscoroutinefunction(body):
                self.fail(
                    f"{body.__name__} is the body of {role!r} for {executor.label}: "
                    "tasks take an `async def`, other executors a plain function"
                )

    def setups(self, executors: Sequence[Executor]) -> None:
        """Check that setups and teardowns fit the bodies, and that no body is left without one that others have."""
        bodies = [self.declared.body_for(each.kind, each.qualifier) for each in executors if each.program is None]
        for what, scope, function in self.declared.setups:
            place = f"@{self.declared.body.__name__}.{what}"
            if scope not in SCOPES:
                self.fail(f"{place}({shown(scope)}): no such scope; use {listed([repr(each) for each in SCOPES])}")
            if not inspect.isfunction(function):
                self.fail(f"{place}: {shown(function)} is no function")
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                self.fail(f"{function.__name__} is {place} and has a yield: make what comes after it a teardown")
            self._around(place, what, scope, function, bodies)

    def _around(
        self, place: str, what: str, scope: str, function: Callable[..., Any], bodies: Sequence[Callable[..., Any]]
    ) -> None:
        name, shape = function.__name__, shape_of(function)
        if scope == "launch" and shape in ("worker", "executor"):
            self.fail(f"{name} is {place}('launch'), where there is no {shape}: it takes the shared state")
        if scope == "worker" and "executor" in (shape, *map(shape_of, bodies)):
            self.fail(
                f"{place}('worker') is for bodies that take `worker`: a pool starts its workers by itself; "
                f"give it an initializer, or do it in {place}, which takes `executor`"
            )
        around = [body for body in bodies if scope == "launch" or shape_of(body) == shape]
        if not around:
            takes = listed(sorted({f"`{shape_of(body)}`" for body in bodies}))
            self.fail(f"{name} is {place} and takes what the body does: {takes}")
        same = {shape_of(each) for *kind, each in self.declared.setups if kind == [what, scope]}
        for body in bodies:
            if scope != "launch" and shape_of(body) not in same:
                self.fail(
                    f"{body.__name__} takes `{shape_of(body)}`: it needs a {place} of its own that takes that too"
                )
        plain = next((body for body in around if not inspect.iscoroutinefunction(body)), None)
        if inspect.iscoroutinefunction(function) and plain is not None:
            self.fail(
                f"{name} is a coroutine, but {plain.__name__} is not and has no event loop: make it a plain function"
            )

    def _variants(self, executors: Sequence[Executor]) -> None:
        named = {executor.kind for executor in executors}
        for tokens, function in self.declared.variants:
            for token in tokens:
                if not isinstance(token, ExecutorToken) or isinstance(token, CommandToken):
                    self.fail(
                        f"variant {function.__name__} is for {shown(token)}, which is not an executor; "
                        f"use {listed(KINDS)}"
                    )
                if token.kind not in named:
                    self.fail(
                        f"variant {function.__name__} is for {token!r}, which the comparison does not name; "
                        "add it or remove the variant"
                    )

    def parameters(self, function: Callable[..., Any], parametrized: Iterable[str], *, method: bool) -> None:
        """Check that a body takes an argument of the cell, plain parameters, and nothing else."""
        parameters = list(inspect.signature(function).parameters.values())[method:]
        taken = [parameter.name for parameter in parameters if parameter.kind not in VARIADIC]
        own = [name for name in OWN if name in taken]
        if len(own) > 1:
            self.fail(
                f"{function.__name__} takes worker and executor; a body that every worker runs takes only `worker`"
            )
        needed = [p.name for p in parameters if p.default is p.empty and p.kind not in VARIADIC]
        for name in needed:
            if name not in (*own, *parametrized):
                self.fixture(name)
        for name in parametrized:
            if name not in taken:
                self.fail(f"{function.__name__} does not take {name!r}, which the test is parametrized with; add it")

    def setup_parameters(
        self, what: str, scope: str, function: Callable[..., Any], parametrized: Iterable[str], *, method: bool
    ) -> None:
        """Check that a setup or teardown takes what it gets first, then parameters of the test."""
        given = "the shared state" if scope == "launch" else f"`{shape_of(function)}`"
        parameters = list(inspect.signature(function).parameters.values())[method:]
        first = next((p.name for p in parameters if p.kind in POSITIONAL), None)
        if first in (None, *parametrized) or (scope != "launch" and first != shape_of(function)):
            self.fail(f"{function.__name__} is @{self.declared.body.__name__}.{what}: its first parameter is {given}")
        for other in parameters[1:]:
            if other.default is other.empty and other.kind not in VARIADIC and other.name not in parametrized:
                self.fixture(other.name)

    def fixture(self, name: str, what: str = "fixture") -> NoReturn:
        """Refuse a value that a fixture makes: fixtures exist in this interpreter only."""
        self.fail(
            f"{what} {name!r} cannot be used: the workload runs in another interpreter; "
            "make what it needs in the body, in @test.shared or in @test.setup, or pass plain values with "
            "pytest.mark.parametrize"
        )

    def surrounded(self, by: str) -> NoReturn:
        """Refuse what pytest would run around the test, but in this interpreter and with another instance."""
        name = self.declared.body.__name__
        ways = f"use @{name}.setup and @{name}.teardown, or @{name}.shared"
        if self.declared.decorator == "serve":
            ways = "do it in the test itself"
        self.fail(f"{by} would run in pytest's process, not where the body runs; {ways} (other tests: another file)")

    def takes_one(self, function: Callable[..., Any] | None, role: str, given: str, *, method: bool) -> None:
        """Check that `@test.shared`, `@test.check` or `@test.stop` can be called with one argument."""
        if function is None:
            return
        parameters = list(inspect.signature(function).parameters.values())[method:]
        needed = [p for p in parameters if p.default is p.empty and p.kind not in VARIADIC]
        if len(needed) > 1 or not any(p.kind in POSITIONAL or p.kind is p.VAR_POSITIONAL for p in parameters):
            self.fail(f"{function.__name__} is @test.{role}, which takes one argument: {given}")
