"""Reads a decorator's arguments one by one; each fault names the file, the line and a fix."""

from __future__ import annotations

import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, get_args

from .. import text as text_module
from ..errors import FtgateError
from ..model import (
    PLACEHOLDERS,
    Executor,
    ExecutorKind,
    Generator,
    Load,
    Program,
    Reuse,
    RoleCounts,
    Service,
    Spec,
    StartMethod,
)
from ..model.targets import TargetError, parse_target
from ..runner.api import CommandToken, Declaration, ExecutorToken
from ..runner.api import Load as LoadToken
from ..runner.loading import shape_of
from ..text import did_you_mean, listed

KINDS: tuple[str, ...] = tuple(kind for kind in get_args(ExecutorKind) if kind not in ("command", "server"))
METHODS: tuple[str, ...] = get_args(StartMethod)
REUSES: tuple[str, ...] = get_args(Reuse)
BOTH = ("workers", "pythons", "duration", "window", "warmup", "timeout", "requires", "needs")
OPTIONS = {"compare": ("reuse", "iterations", *BOTH), "serve": ("ready", "load", *BOTH)}
PROGRAM_OPTIONS = ("build", "pythons", "environment")
SERVE_DURATION_S, SERVE_WINDOW_S, CONNECTIONS = 6.0, 1.0, 10
DEFAULT_WORKERS = 2
EXAMPLE = "@ftgate.compare(threads, processes=['fork', 'spawn'])"
SERVE_EXAMPLE = (
    "@ftgate.serve(['gunicorn', '--bind', '127.0.0.1:{port}', 'app:app'], "
    "ready='http://127.0.0.1:{port}/', load=load('/'))"
)
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
ROLE = re.compile(r"[A-Za-z_]*[A-Za-z_]")
OWN = ("worker", "executor", "server")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class DeclarationError(FtgateError):
    """A decorated test that cannot be gated; the text names the file, the line and the mend."""


class Reader:
    """Reads one declaration; every complaint carries its place."""

    def __init__(self, declared: Declaration, path: str, name: str) -> None:
        self.declared = declared
        self.kwargs = declared.kwargs
        self.place = f"{path}:{declared.line}: @ftgate.{declared.decorator} of {name}"

    def fail(self, text: str) -> NoReturn:
        """Raise what is wrong, at its place."""
        raise DeclarationError(f"{self.place}: {text}")

    # -- executors ---------------------------------------------------------------------------------------------

    def executors(self) -> tuple[Executor, ...]:
        """All executors, in the order written, each once."""
        if self.declared.args == (self.declared.body,):
            self.fail(f"it needs parentheses and its executors: {EXAMPLE}")
        found: list[Executor] = []
        for token in self.declared.args:
            if not isinstance(token, ExecutorToken):
                self.fail(f"{_shown(token)} is no executor; use {listed((*KINDS, 'command'))} from pytest_ftgate")
            if isinstance(token, CommandToken):
                found.append(Executor(kind="command", program=self.program(token)))
                continue
            found += self._expand(token.kind, token.methods or True)
        for kind in KINDS:
            if kind in self.kwargs:
                found += self._expand(kind, self.kwargs[kind])
        if not found:
            self.fail(f"it names no executor; write for example {EXAMPLE}")
        return self._each_once(found)

    def _each_once(self, found: Sequence[Executor]) -> tuple[Executor, ...]:
        """Those written twice once; two programs of one name are a mistake."""
        once = tuple(dict.fromkeys(found))
        for label in (executor.label for executor in once):
            if sum(other.label == label for other in once) > 1:
                self.fail(f"two executors are called {label!r}; give each command a name of its own")
        return once

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
            self.fail(f"processes= takes True, a start method or a list of them ({listed(METHODS)}), not {value!r}")
        return [Executor(kind="processes", method=self._method(method)) for method in methods]

    def _method(self, method: Any) -> StartMethod:
        if method not in METHODS:
            self.fail(f"{method!r} is no start method; use {listed(METHODS)}{did_you_mean(method, METHODS)}")
        return method  # type: ignore[no-any-return]

    # -- programs ----------------------------------------------------------------------------------------------

    def servers(self) -> tuple[Executor, ...]:
        """The command lines of @ftgate.serve, in the order written; one without a name is called `server`."""
        args = self.declared.args
        if args == (self.declared.body,) or not args:
            self.fail(f"it needs a command line: {SERVE_EXAMPLE}")
        tokens = [arg if isinstance(arg, CommandToken) else CommandToken("server", arg, {}) for arg in args]
        return self._each_once([Executor(kind="server", program=self.program(token)) for token in tokens])

    def program(self, token: CommandToken) -> Program:
        """A program, its words checked."""
        name, options = token.name, token.options
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in (*KINDS, *METHODS):
            self.fail(f"command(...) takes a name of letters, digits, '.', '_' and '-' that is no executor's: {name!r}")
        for option in options:
            if option not in PROGRAM_OPTIONS:
                hint = did_you_mean(option, PROGRAM_OPTIONS)
                self.fail(f"command({name!r}): unknown argument {option!r}{hint}; it takes {listed(PROGRAM_OPTIONS)}")
        environment = options.get("environment") or {}
        if not isinstance(environment, dict) or not all(
            isinstance(part, str) for item in environment.items() for part in item
        ):
            self.fail(f"command({name!r}): environment= takes a dict of texts, not {environment!r}")
        if options.get("build") and self.declared.decorator == "serve":
            self.fail(f"command({name!r}): build= is for a command of a comparison: a server is started as it is")
        if options.get("pythons") is not None and self.declared.decorator == "compare":
            self.fail(
                f"command({name!r}): pythons= is for servers: a command of a comparison runs once, not a target each"
            )
        return Program(
            name=name,
            argv=self._words(name, token.argv),
            build=self._words(name, options["build"], "build=") if options.get("build") else (),
            pythons=self._targets(options.get("pythons"), f"command({name!r}): pythons="),
            environment=tuple(environment.items()),
        )

    def _words(self, name: str, words: Any, what: str = "it") -> tuple[str, ...]:
        if not isinstance(words, (list, tuple)) or not words or not all(isinstance(word, str) for word in words):
            self.fail(f"command {name!r}: {what} takes a command line as a list of words, not {words!r}")
        return tuple(words)

    def placeholders(self, spec: Spec, parametrized: Iterable[str]) -> None:
        """Complain about a word in braces that nothing fills in."""
        foreign = ("port", "scratch") if spec.service is None else ("seconds",)
        known = [name for name in PLACEHOLDERS if name not in foreign] + list(parametrized)
        programs = [executor.program for executor in spec.executors if executor.program]
        texts = [word for program in programs for word in (*_told(program), *program.build)]
        texts += [spec.service.ready, spec.service.load.path] if spec.service else []
        for text in texts:
            for name in text_module.placeholders(text):
                if name not in known:
                    hint = did_you_mean(name, known)
                    self.fail(f"{text!r}: nothing fills in {{{name}}}{hint}; what may stand there is {listed(known)}")
        for program in programs:
            if any("{seconds}" in word for word in program.build):
                self.fail(f"command {program.name!r}: build= is run once and for no window: {{seconds}} is not known")
            if spec.duration_s is None and any("{seconds}" in word for word in _told(program)):
                self.fail("{seconds} is the length of a turn of duration=, which is missing")
        if spec.service is not None:
            self._port(spec.service, programs)

    def _port(self, service: Service, programs: Iterable[Program]) -> None:
        """Complain where the free port that a server gets is not told to it, or not asked."""
        if "{port}" not in service.ready:
            self.fail(f"ready={service.ready!r} has no {{port}}: a server gets a free port of its own at each start")
        for program in programs:
            if not any("{port}" in word for word in _told(program)):
                self.fail(f"command {program.name!r} is not told its port: put {{port}} into its words or environment=")

    def service(self) -> Service:
        """When a server is ready, and the load on it."""
        ready, load = self.kwargs.get("ready"), self.kwargs.get("load")
        if not isinstance(ready, str) or not ready.startswith("http://"):
            self.fail(f"ready= takes the URL that answers when the server is ready, not {ready!r}: {SERVE_EXAMPLE}")
        if not isinstance(load, LoadToken) or not isinstance(load.path, str) or not load.path:
            self.fail(f"load= takes load(path, connections=...), not {load!r}: {SERVE_EXAMPLE}")
        for option in load.options:
            if option not in ("connections", "generator"):
                self.fail(f"load(): unknown argument {option!r}; it takes connections and generator")
        connections = load.options.get("connections", CONNECTIONS)
        if not _is_count(connections):
            self.fail(f"load(): connections= takes a whole number from 1, not {connections!r}")
        generator = load.options.get("generator")
        if generator not in (None, *get_args(Generator)):
            self.fail(f"load(): generator= takes {listed(get_args(Generator))}, not {generator!r}")
        return Service(ready=ready, load=Load(path=load.path, connections=connections, generator=generator))

    def requires(self) -> tuple[str, ...]:
        """Requirements that are installed beside the project."""
        value = self.kwargs.get("requires", ())
        if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) and word for word in value):
            self.fail(f"requires= takes a list of requirements such as ['flask>=3'], not {value!r}")
        for word in value:
            if word.startswith("-"):
                self.fail(
                    f"requires= takes requirements alone, and {word!r} is an option; those go into ftgate_install"
                )
        return tuple(value)

    def needs(self) -> tuple[tuple[str, str], ...]:
        """Programs that must be there, each with the command that installs it."""
        value = self.kwargs.get("needs", {})
        if not isinstance(value, dict) or not all(
            isinstance(word, str) and word for pair in value.items() for word in pair
        ):
            self.fail(f"needs= takes a dict such as {{'cargo': 'apt install cargo'}}, not {value!r}")
        return tuple(value.items())

    # -- numbers -----------------------------------------------------------------------------------------------

    def known_arguments(self) -> None:
        """Complain about keywords that nothing reads."""
        decorator = self.declared.decorator
        known = (*OPTIONS[decorator], *(KINDS if decorator == "compare" else ()))
        for name in self.kwargs:
            if name not in known:
                self.fail(f"unknown argument {name!r}{did_you_mean(name, known)}; it takes {listed(known)}")

    def workers(self) -> tuple[tuple[int, ...], tuple[RoleCounts, ...]]:
        """The worker counts, each once, and with roles the roles of each."""
        value = self.kwargs.get("workers", DEFAULT_WORKERS if self.declared.decorator == "compare" else 1)
        counts = list(value) if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(count, dict) for count in counts):
            role_counts = tuple(dict.fromkeys(self._role_counts(count, counts) for count in counts))
            return tuple(sum(number for _, number in role_count) for role_count in role_counts), role_counts
        if not counts or not all(_is_count(count) for count in counts):
            self.fail(f"workers= takes a whole number from 1, or a list of them, not {value!r}")
        return tuple(dict.fromkeys(counts)), ()

    def _role_counts(self, roles: Any, all_counts: Sequence[Any]) -> RoleCounts:
        """One dict of roles; every one of a test has the same names, since they have the same bodies."""
        first = next(count for count in all_counts if isinstance(count, dict))
        if not isinstance(roles, dict) or list(roles) != list(first):
            self.fail(f"workers= gives every cell the same roles in the same order: {roles!r} beside {first!r}")
        if len(roles) < 2 or not all(isinstance(name, str) and ROLE.fullmatch(name) for name in roles):
            self.fail(
                f"workers= takes two roles or more, named by letters, as {{'producer': 8, 'writer': 4}}: {roles!r}"
            )
        if not all(_is_count(count) for count in roles.values()):
            self.fail(f"workers= takes a whole number from 1 for each role, not {roles!r}")
        return tuple(roles.items())

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
            self.fail(f"reuse= takes {listed(REUSES)}, not {value!r}")
        if duration is not None and value == "fresh":
            self.fail("duration= keeps its workers from window to window; drop reuse='fresh', or use iterations=")
        return value  # type: ignore[no-any-return]

    def pythons(self) -> tuple[str, ...] | None:
        """The targets named, or None where the options decide."""
        return self._targets(self.kwargs.get("pythons"), "pythons=")

    def _targets(self, value: Any, what: str) -> tuple[str, ...] | None:
        if value is None:
            return None
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
            self.fail(f"{what} takes a list of targets such as ['3.14', '3.14t'], not {value!r}")
        for name in names:
            try:
                parse_target(name)
            except TargetError as error:
                self.fail(f"{what}{value!r}: {error}")
        return tuple(dict.fromkeys(names))

    # -- bodies ------------------------------------------------------------------------------------------------

    def bodies(self, executors: Sequence[Executor]) -> None:
        """Every executor has a body of a fitting shape."""
        self._variants(executors)
        for function in (self.declared.body, *(body for _, body in self.declared.variants)):
            if not shape_of(function):
                self.fail(
                    f"{function.__name__} names neither worker nor executor: "
                    "a body that every worker runs takes `worker`, "
                    "one that drives a pool takes `executor`"
                )
        for executor in executors:
            if executor.program is None:
                self._body(executor, self.declared.body_for(executor.kind, executor.method))

    def _body(self, executor: Executor, function: Callable[..., Any]) -> None:
        is_async = inspect.iscoroutinefunction(function)
        if executor.kind == "tasks" and not (is_async and shape_of(function) == "worker"):
            self.fail(
                "tasks run coroutines: make the body `async def ...(worker)`, or give one with "
                f"@{self.declared.body.__name__}.variant(tasks)"
            )
        if is_async and shape_of(function) == "executor":
            self.fail(f"{function.__name__} drives a pool, so it cannot be `async def`; take `worker` in its place")

    def roles(self, executors: Sequence[Executor], role_counts: Sequence[RoleCounts]) -> None:
        """Every role but the first has a body for each executor, and there is none beside."""
        name = self.declared.body.__name__
        names = [role for role, _ in role_counts[0]] if role_counts else []
        for role, tokens, function in self.declared.roles:
            if role not in names[1:]:
                leads = f"the test itself is the body of {role!r}, which leads" if role in names[:1] else "no such role"
                self.fail(f"@{name}.role({role!r}): {leads}; workers= says {listed(names) if names else 'no roles'}")
            for token in tokens:
                if not isinstance(token, ExecutorToken):
                    self.fail(
                        f"@{name}.role({role!r}) is for {_shown(token)}, which is no executor; use {listed(KINDS)}"
                    )
                if token.kind not in [executor.kind for executor in executors]:
                    self.fail(f"@{name}.role({role!r}) is for {token!r}, which the comparison does not name")
            if shape_of(function) != "worker":
                self.fail(f"{function.__name__} is the body of a role: it takes `worker`")
        if self.declared.stop is not None and not names:
            self.fail(f"@{name}.stop lets other roles return: it needs workers= with roles")
        for executor in executors if names else ():
            self._role_bodies(executor, names)

    def _role_bodies(self, executor: Executor, names: Sequence[str]) -> None:
        name = self.declared.body.__name__
        if executor.kind == "serial":
            self.fail("serial runs one worker after the other: roles that wait for each other need another executor")
        if executor.kind == "command":
            self.fail("a command has no roles; leave it out, or make a test of its own for it")
        if shape_of(self.declared.body_for(executor.kind, executor.method)) != "worker":
            self.fail("workers= with roles needs a body that takes `worker`; a body that drives a pool has no roles")
        for role in names[1:]:
            body = self.declared.role_for(role, executor.kind, executor.method)
            if body is None:
                self.fail(f"the role {role!r} has no body for {executor.label}; write one with @{name}.role({role!r})")
            if (executor.kind == "tasks") != inspect.iscoroutinefunction(body):
                self.fail(
                    f"{body.__name__} is the body of {role!r} for {executor.label}: "
                    "tasks take an `async def`, other executors a plain function"
                )

    def _variants(self, executors: Sequence[Executor]) -> None:
        named = {executor.kind for executor in executors}
        for tokens, function in self.declared.variants:
            for token in tokens:
                if not isinstance(token, ExecutorToken) or isinstance(token, CommandToken):
                    self.fail(
                        f"variant {function.__name__} is for {_shown(token)}, which is no executor; use {listed(KINDS)}"
                    )
                if token.kind not in named:
                    self.fail(
                        f"variant {function.__name__} is for {token!r}, which the comparison does not name; "
                        "add it or drop the variant"
                    )

    # -- parameters --------------------------------------------------------------------------------------------

    def arguments(self, function: Callable[..., Any], parametrized: Iterable[str], *, method: bool) -> None:
        """A body takes the cell's own argument and plain parameters, and no other."""
        parameters = list(inspect.signature(function).parameters.values())[method:]
        taken = [parameter.name for parameter in parameters if parameter.kind not in VARIADIC]
        own = [name for name in OWN if name in taken]
        if len(own) > 1:
            self.fail(
                f"{function.__name__} takes worker and executor; a body that every worker runs takes `worker` alone"
            )
        needed = [p.name for p in parameters if p.default is p.empty and p.kind not in VARIADIC]
        for name in needed:
            if name not in (*own, *parametrized):
                self.fixture(name)
        for name in parametrized:
            if name not in taken:
                self.fail(f"{function.__name__} does not take {name!r}, which the test is parametrized with; add it")

    def fixture(self, name: str, what: str = "fixture") -> NoReturn:
        """Complain about a value that only a fixture of this interpreter could make."""
        self.fail(
            f"{what} {name!r} cannot travel: the workload runs in another interpreter; "
            "make what it needs in the body or in @test.shared, or pass plain values with pytest.mark.parametrize"
        )

    def takes_one(self, function: Callable[..., Any] | None, role: str, given: str, *, method: bool) -> None:
        """`@test.shared` and `@test.check` are called with one argument."""
        if function is None:
            return
        parameters = list(inspect.signature(function).parameters.values())[method:]
        needed = [p for p in parameters if p.default is p.empty and p.kind not in VARIADIC]
        if len(needed) > 1 or not any(p.kind in POSITIONAL or p.kind is p.VAR_POSITIONAL for p in parameters):
            self.fail(f"{function.__name__} is @test.{role}, which takes one argument: {given}")


def default_method() -> StartMethod:
    """What `processes` alone means: the start method that CPython 3.14 takes by itself on this platform."""
    return "forkserver" if sys.platform not in ("darwin", "win32") and os.name == "posix" else "spawn"


def _told(program: Program) -> tuple[str, ...]:
    """All that may hold a placeholder each time a program is started."""
    return (*program.argv, *(value for _, value in program.environment))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _shown(value: Any) -> str:
    return value.__name__ if isinstance(value, Callable) and hasattr(value, "__name__") else repr(value)  # type: ignore[arg-type]
