"""Reads the keyword arguments of a decorator."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, get_args

import msgspec
from msgspec import Meta

from ..kit.errors import FtgateError
from ..kit.hiding import is_secret, without_secrets
from ..kit.text import did_you_mean, listed
from ..model.spec import (
    Environment,
    Executor,
    ExecutorKind,
    Generator,
    Load,
    Program,
    Reuse,
    RoleCounts,
    Service,
    Source,
    TargetError,
    parse_target,
)
from ..runner import signatures
from ..runner.api import SCOPES, Declaration, Note
from ..runner.loading import shape_of
from ..runner.signatures import StartMethod
from ..runner.tokens import CalledToken, CommandToken, ExecutorToken, FactoryToken, LoadToken, MethodsToken

KINDS: tuple[str, ...] = tuple(kind for kind in get_args(ExecutorKind) if kind not in ("executor", "command", "server"))
METHODS: tuple[str, ...] = get_args(StartMethod)
SERVE_EXAMPLE = (
    "@ftgate.serve(['gunicorn', '--bind', '127.0.0.1:{port}', 'app:app'], "
    "ready='http://127.0.0.1:{port}/', load=load('/'))"
)
OWN = ("worker", "executor", "server")
"""The argument that a body takes from its cell; parametrize carries the cell to pytest under the same name."""
EXAMPLE = "@ftgate.compare(threads, processes=['fork', 'spawn'])"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
CONNECTIONS: Final = 10
LONGEST_MIX: Final = 1000
"""The most requests of a round of a mix."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_UNSAFE = re.compile(r"[\x00-\x20\x7f]")
DEFAULT_WORKERS = 2
CORES = "cores"
ROLE = re.compile(r"[A-Za-z_]*[A-Za-z_]")
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
SETTINGS = {"PYTHON_GIL": "3.14t[gil=on]", "PYTHON_JIT": "3.14[jit=on]"}
"""Variables that are settings of a target."""
LAUNCHES = {
    "PYTHONPATH": "belongs to the launch: use pytest's `pythonpath` ini",
    "PYTHONHASHSEED": "differs in each launch, so that no figure depends on it",
}
"""Variables of a workload in Python that a test cannot set."""


class Takes(NamedTuple):
    """The values that a keyword takes: as a type for msgspec, and in words."""

    type: Any
    words: str


def _one_of(literal: Any) -> Takes:
    return Takes(literal, listed(get_args(literal)))


_COUNT = Annotated[int, Meta(ge=1)]
_POSITIVE = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
_WORD = Annotated[str, Meta(min_length=1)]
_WORDS = Annotated[list[str], Meta(min_length=1)]
_WORKERS = _COUNT | Literal["cores"] | Annotated[list[_COUNT | Literal["cores"]], Meta(min_length=1)]
COUNT = Takes(_COUNT, "a whole number from 1")
SECONDS = Takes(_POSITIVE, "a number of seconds above 0")
ARGV = Takes(_WORDS, "a command line as a list of strings")
VARIABLES = Takes(dict[str, str], "a dict of strings")
KEYWORDS: Mapping[str, Takes] = {
    "duration": SECONDS,
    "window": SECONDS,
    "timeout": SECONDS,
    "iterations": COUNT,
    "min_cores": COUNT,
    "connections": COUNT,
    "warmup": Takes(Annotated[int, Meta(ge=0)], "a whole number from 0"),
    "pin": Takes(bool, "True or False"),
    "processes": Takes(bool, "True or False"),  # those of executor()
    "reuse": _one_of(Reuse),
    "pythons": Takes(str | _WORDS, "a list of targets such as ['3.14', '3.14t']"),
    "packages": Takes(list[_WORD], "a list of requirements such as ['flask>=3']"),
    "programs": Takes(dict[_WORD, _WORD], "a dict such as {'cargo': 'apt install cargo'}"),
    "env": Takes(
        dict[str, str] | list[dict[str, str]],
        "a dict of strings such as {'OMP_NUM_THREADS': '1'}, or a list of them",
    ),
    "ready": Takes(Annotated[str, Meta(pattern="^https?://")], "the URL that answers once the server is ready"),
    "rate": Takes(_POSITIVE, "requests per second above 0"),
    "generator": _one_of(Generator),
    "method": _one_of(signatures.HttpMethod),
    "headers": Takes(dict[Any, Any], "a dict such as {'Content-Type': 'application/json'}"),
}
"""What each keyword of a decorator takes; `command(env=)` takes one dict, and `warmup=` of windows at least one."""
_CELLS = Takes(_WORD | Annotated[list[_WORD], Meta(min_length=1)], "texts such as '3.14t'")
FILTERS = {"pythons": _CELLS, "cells": _CELLS, "workers": Takes(_WORKERS, "whole numbers or 'cores'")}
"""What chooses the cells of @ftgate.xfail."""


def fits(value: Any, kind: Any) -> bool:
    """Whether msgspec converts a value to a type."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


class DeclarationError(FtgateError):
    """A decorated test that cannot be gated; the text names the file, the line and a fix."""


class ParameterError(DeclarationError):
    """A value of one set of parameters that cannot be sent: the other cells of the test can be gated."""


def fault(path: str, written: Declaration | Note, name: str, text: str) -> DeclarationError:
    """What is wrong with a decorator of the test `name`, at its place."""
    return DeclarationError(f"{path}:{written.line}: @ftgate.{written.decorator} of {name}: {text}")


class Reader:
    """Reads a declaration, with the place of its test. Every method raises DeclarationError."""

    def __init__(
        self, declared: Declaration, source: Source, what: str = "", given: Mapping[str, Any] | None = None
    ) -> None:
        """`what` and its keyword arguments `given`: `load(): ` within the decorator."""
        self.declared = declared
        self.source = source
        self.what = what
        self.kwargs = declared.kwargs if given is None else given

    def fail(self, text: str) -> NoReturn:
        raise fault(self.source.path, self.declared, self.source.qualname, self.what + text)

    def within(self, what: str, given: Mapping[str, Any], options: type) -> Reader:
        """The reader of the keyword arguments of `what`; refuses those that `options` has not."""
        inner = Reader(self.declared, self.source, f"{what}: ", given)
        inner.only([*options.__annotations__])
        return inner

    def only(self, known: Sequence[str]) -> None:
        """Refuse an unknown argument."""
        for name in self.kwargs:
            if name not in known:
                self.fail(f"unknown argument {name!r}{did_you_mean(name, known)}; it takes {listed(known)}")

    def take(self, name: str, default: Any = None, takes: Takes | None = None) -> Any:
        """A keyword argument, converted; the default where it is not given."""
        value = self.kwargs.get(name)
        return default if value is None else self.converted(f"{name}=", value, takes or KEYWORDS[name])

    def converted(self, what: str, value: Any, takes: Takes, example: str = "") -> Any:
        """A value as msgspec converts it: a tuple to a list, an integer to a float where that is taken."""
        try:
            return msgspec.convert(value, takes.type)
        except msgspec.ValidationError:
            self.fail(f"{what} takes {takes.words}, not {kinds(value)}{example}")

    def fixture(self, name: str, what: str = "fixture") -> NoReturn:
        """Refuse a value that a fixture makes: fixtures exist in this interpreter only."""
        self.fail(
            f"{what} {name!r} cannot be used: the workload runs in another interpreter; "
            "make what it needs in the body, in @test.shared or in @test.setup, or pass plain values with "
            "pytest.mark.parametrize"
        )

    def targets(self) -> tuple[str, ...] | None:
        """The targets of `pythons=`, each once; None where it is not given."""
        value = self.take("pythons")
        if value is None:
            return None
        names = [value] if isinstance(value, str) else value
        for name in names:
            try:
                parse_target(name)
            except TargetError as error:
                self.fail(f"pythons={value!r}: {error}")
        return tuple(dict.fromkeys(names))

    def bodies(self, executors: Sequence[Executor]) -> None:
        """Check that every executor has a body that takes what the executor gives."""
        test = self.declared.body.__name__
        for tokens, variant in self.declared.variants:
            self._named(tokens, executors, f"@{test}.variant of {variant.__name__}")
        for function in (self.declared.body, *(body for _, body in self.declared.variants)):
            if not shape_of(function):
                self.fail(
                    f"{function.__name__} takes neither worker nor executor: "
                    "a body that every worker runs takes `worker`, "
                    "one that drives a pool takes `executor`"
                )
        for executor in executors:
            if executor.program is not None:
                continue
            function = self.declared.body_for(executor.kind, executor.qualifier)
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
            self._named(tokens, executors, f"@{name}.role({role!r})")
            if shape_of(function) != "worker":
                self.fail(f"{function.__name__} is the body of a role: it takes `worker`")
        if self.declared.stop is not None and not names:
            self.fail(f"@{name}.stop ends the other roles: it needs workers= with roles")
        for executor in executors if names else ():
            if executor.kind == "serial":
                self.fail("serial runs one worker after another: roles that wait for each other need another executor")
            if executor.kind == "command":
                self.fail("a command has no roles; remove it, or give it its own test")
            if shape_of(self.declared.body_for(executor.kind, executor.qualifier)) != "worker":
                self.fail(
                    "workers= with roles needs a body that takes `worker`; a body that takes `executor` has no roles"
                )
            for role in names[1:]:
                body = self.declared.role_for(role, executor.kind, executor.qualifier)
                if body is None:
                    self.fail(
                        f"the role {role!r} has no body for {executor.label}; write one with @{name}.role({role!r})"
                    )
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
            # It takes what the bodies around it take.
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
                    f"{name} is a coroutine, but {plain.__name__} is not and has no event loop: "
                    "make it a plain function"
                )

    def executors(self) -> tuple[Executor, ...]:
        """All executors, in the order written, each once."""
        if self.declared.args == (self.declared.body,):
            self.fail(f"it needs parentheses and its executors: {EXAMPLE}")
        found: list[Executor] = []
        for token in self.declared.args:
            check_token(token, (*KINDS, "executor", "command"), self.fail)
            if isinstance(token, CommandToken):
                found.append(Executor(kind="command", program=self.program(token)))
                continue
            if isinstance(token, FactoryToken):
                (name,), word = token.methods, token.kind
                self._name(name, word)
                if not callable(token.factory):
                    of = (
                        "the number of workers and returns an Executor"
                        if word == "executor"
                        else "nothing, returns a loop"
                    )
                    self.fail(f"{word}({name!r}) takes a function that gets {of}, not {token.factory!r}")
                options = self.within(f"executor({name!r})", token.options, signatures.ExecutorOptions)
                own = options.take("processes", False)
                made = Executor(kind=word, name=name, in_processes=own)  # type: ignore[arg-type]
                if made in found:  # it does not hold its factory, so the second one would be dropped
                    self.fail(f"two executors are named {made.label!r}; give each its own name")
                found.append(made)
                continue
            # Plain `processes` has no start method here: each target has a default of its own.
            found += [Executor(kind=token.kind, method=method) for method in token.methods or (None,)]
        if not found:
            self.fail(f"it names no executor; for example {EXAMPLE}")
        return self._each_once(found)

    def _named(self, tokens: Sequence[Any], executors: Sequence[Executor], place: str) -> None:
        """Check that the executors of a decorator are executors of the test."""

        def fail(text: str) -> NoReturn:
            self.fail(f"{place}: {text}")

        named(tokens, executors, KINDS, fail)

    def _each_once(self, found: Sequence[Executor]) -> tuple[Executor, ...]:
        """Drop duplicates; refuse two programs with one name."""
        once = tuple(dict.fromkeys(found))
        for label in (executor.label for executor in once):
            if sum(other.label == label for other in once) > 1:
                self.fail(f"two executors are named {label!r}; give each its own name")
        return once

    def _name(self, name: Any, word: str) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in (*KINDS, *METHODS):
            self.fail(
                f"{word}(...) takes a name made of letters, digits, '.', '_' and '-' "
                f"that is not an executor's: {name!r}"
            )

    def servers(self) -> tuple[Executor, ...]:
        """The command lines of @ftgate.serve, in the order written; one without a name is called `server`."""
        args = self.declared.args
        if args == (self.declared.body,) or not args:
            self.fail(f"it needs a command line: {SERVE_EXAMPLE}")
        tokens = [arg if isinstance(arg, CommandToken) else CommandToken("server", arg, {}) for arg in args]
        return self._each_once([Executor(kind="server", program=self.program(token)) for token in tokens])

    def program(self, token: CommandToken) -> Program:
        """The program of a token, its arguments checked."""
        name, options = token.name, token.options
        self._name(name, "command")
        inner = self.within(f"command({name!r})", options, signatures.CommandOptions)
        environment = inner.take("env", {}, VARIABLES)
        if options.get("build") and self.declared.decorator == "serve":
            inner.fail("build= is for commands of @ftgate.compare; a server has no build step")
        if options.get("pythons") is not None and self.declared.decorator == "compare":
            inner.fail("pythons= is for servers; a command of @ftgate.compare runs once for all targets")
        return Program(
            name=name,
            argv=tuple(self.converted(f"command {name!r}: it", token.argv, ARGV)),
            build=tuple(inner.take("build", (), ARGV)) if options.get("build") else (),
            pythons=inner.targets(),
            environment=tuple(environment.items()),
        )

    def workers(self) -> dict[str, Any]:
        """The worker counts, each once, with roles the roles of each, and what "cores" stands for: see `Spec`."""
        value = self.kwargs.get("workers", DEFAULT_WORKERS if self.declared.decorator == "compare" else 1)
        counts = list(value) if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(count, dict) for count in counts):
            first = next(count for count in counts if isinstance(count, dict))
            for roles in counts:  # all have the same names, because the bodies are the same
                if not isinstance(roles, dict) or list(roles) != list(first):
                    self.fail(
                        f"workers= gives every cell the same roles in the same order, not {roles!r} and {first!r}"
                    )
                if len(roles) < 2 or not all(isinstance(name, str) and ROLE.fullmatch(name) for name in roles):
                    self.fail(
                        "workers= takes two or more roles whose names are letters, such as "
                        f"{{'producer': 8, 'writer': 4}}: {roles!r}"
                    )
                if not fits([*roles.values()], list[_COUNT]):
                    self.fail(f"workers= takes a whole number from 1 for each role, not {roles!r}")
            role_counts = tuple(dict.fromkeys(tuple(roles.items()) for roles in counts))
            totals = tuple(sum(number for _, number in role_count) for role_count in role_counts)
            return {"workers": totals, "role_counts": role_counts}
        if not fits(counts, _WORKERS):
            self.fail(f"workers= takes a whole number from 1, {CORES!r}, or a list of them, not {value!r}")
        # "cores": those of this process, with pin= those that can be pinned to.
        cores = 0
        if CORES in counts:
            from ..measure import machine  # plain runs of other tests do without

            cores = max(1, len(machine.worker_cpus())) if self.kwargs.get("pin") else machine.available_cores()
        numbers = tuple(dict.fromkeys(cores if count == CORES else count for count in counts))
        return {"workers": numbers, "cores": cores, "cores_named": CORES in counts and cores not in counts}

    def environments(self) -> tuple[Environment, ...]:
        """The environments of the cells, each once; a list of several multiplies them."""
        written = self.take("env") or {}
        dicts = written if isinstance(written, list) else [written]
        for each in dicts:
            for name, text in each.items():
                if not VARIABLE.fullmatch(name) or "\0" in text:
                    self.fail(f"env=: {name!r} is no variable (letters, digits and _), or its value has a zero byte")
                if name in SETTINGS:
                    self.fail(f"env=: {name} is a setting of the target, such as {SETTINGS[name]}")
                if name in LAUNCHES and self.declared.decorator == "compare":
                    self.fail(f"env=: {name} {LAUNCHES[name]}")
        given = list(dict.fromkeys(tuple(each.items()) for each in dicts))
        # What they do not share is in the id of a cell, in characters that `-k` takes: `OMP_NUM_THREADS:workers`. In
        # place of a secret stands the number of its environment.
        pairs = [set(variables) for variables in given]
        shared = set.intersection(*pairs)
        words = [
            tuple(
                f"{name}:{_in_id(str(number) if is_secret(name, text) else text)}"
                for name, text in variables
                if (name, text) not in shared
            )
            for number, variables in enumerate(given, 1)
        ]
        for named in words:
            if words.count(named) > 1:
                self.fail(f"env=: two environments would be called {'-'.join(named)!r} in the ids of cells")
        return tuple(Environment(variables=own, words=named) for own, named in zip(given, words, strict=True))

    def service(self) -> Service:
        """When a server is ready, and the load on it."""
        token = self.kwargs.get("load")
        ready = self.converted("ready=", self.kwargs.get("ready"), KEYWORDS["ready"], f": {SERVE_EXAMPLE}")
        if not isinstance(token, LoadToken):
            self.fail(f"load= takes load(path, connections=...), not {kinds(token)}: {SERVE_EXAMPLE}")
        given, several = token.path, isinstance(token.path, (dict, list, tuple))
        if several and not given:
            self.fail(f"load() takes a path, a list of paths, or a dict such as {{'/a': 3, '/b': 1}}, not {given!r}")
        # 1. What each request sends.
        inner = self.within("load()", token.options, signatures.LoadOptions)
        body = token.options.get("body", b"")
        if not isinstance(body, (str, bytes)):
            fix = "; json.dumps(...) makes a text of it" if isinstance(body, (dict, list)) else ""
            inner.fail(f"body= takes a text or bytes, not {kinds(body)}{fix}")
        rate, generator = inner.take("rate"), inner.take("generator")
        if rate and generator == "wrk":
            inner.fail("wrk cannot send at a constant rate=; take generator='oha', or drop rate=")
        headers = inner.take("headers", {})
        for name, value in headers.items():
            if not isinstance(name, str) or not _HEADER.fullmatch(name):
                inner.fail(f"headers= takes names of headers such as 'Content-Type', not {name!r}")
            if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
                inner.fail(f"the header {name} takes one line of ASCII text")
        # 2. The paths: one, or a mix in which each comes a number of times.
        paths = list(given) if several else [given]
        for path in paths:
            if not isinstance(path, str) or not path or _UNSAFE.search(path):
                inner.fail(f"a path is a text without spaces such as '/items?page=2', not {path!r}")
        if several and len(set(paths)) < len(paths):
            inner.fail(f"a path is twice in {given!r}; a dict says how often each comes: {{'/a': 3, '/b': 1}}")
        times = list(given.values()) if isinstance(given, dict) else [1] * len(paths)
        if not fits(times, list[_COUNT]):
            inner.fail(f"each path comes a whole number of times from 1: {given!r}")
        divisor = math.gcd(*times)
        if sum(times) // divisor > LONGEST_MIX:
            inner.fail(f"the numbers of {given!r} add up to more than {LONGEST_MIX}; make them smaller")
        mix = tuple((path, number // divisor) for path, number in zip(paths, times, strict=True))
        usual = "POST" if body else "GET"
        load = Load(
            path=mix if several else given,
            connections=inner.take("connections", CONNECTIONS),
            generator="oha" if rate else generator,
            method=inner.take("method", usual),
            body=body if isinstance(body, str) else "",
            body_bytes=body if isinstance(body, bytes) else b"",
            headers=tuple(headers.items()),
            rate=rate,
        )
        return Service(ready=ready, load=load)


def check_token(token: Any, kinds: Sequence[str], fail: Callable[[str], NoReturn]) -> None:
    """Refuse a token that is no executor, is called, or has an unknown start method."""
    if not isinstance(token, ExecutorToken) or (isinstance(token, CommandToken) and "command" not in kinds):
        fail(f"{shown(token)} is not an executor; use {listed(kinds)} from pytest_ftgate")
    if isinstance(token, CalledToken):
        fix = f"processes={[*token.methods]}" if token.kind == "processes" and token.methods else token.kind
        loop = "; an event loop of another kind is written tasks(name, loop_factory)" * (token.kind == "tasks")
        fail(f"{token!r} is no executor: write {fix}{loop}")
    if not isinstance(token, MethodsToken):
        return
    if not fits(token.methods, _WORDS):
        fail(f"processes= takes start methods such as ['fork', 'spawn'], not {token.written!r}")
    for method in token.methods:
        if method not in METHODS:
            hint = did_you_mean(method, METHODS)
            fail(f"processes=: {method!r} is not a start method; use {listed(METHODS)}{hint}")
        if token.methods.count(method) > 1:
            fail(f"processes= names {method!r} twice")


def named(
    tokens: Sequence[Any], executors: Sequence[Executor], kinds: Sequence[str], fail: Callable[[str], NoReturn]
) -> list[Executor]:
    """The executors of a test that these tokens stand for; a token without one is an error.

    One without a start method or name stands for all executors of its kind.
    """
    found: list[Executor] = []
    for token in tokens:
        check_token(token, kinds, fail)
        parts = [MethodsToken(method) for method in token.methods] if isinstance(token, MethodsToken) else [token]
        for part in parts:
            own = [each for each in executors if part.names(each.kind, each.qualifier)]
            if not own:
                fail(f"{part!r} is not among the executors of the test: add it there or remove it here")
            found += own
    return found


def shown(value: Any) -> str:
    """A value as its author would know it: a function by its name."""
    return value.__name__ if isinstance(value, Callable) and hasattr(value, "__name__") else repr(value)  # type: ignore[arg-type]


def kinds(value: Any) -> str:
    """A value; of a dict or list only the types, because its values may be secret: `{'A': str, 'B': NoneType}`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {type(each).__name__}" for name, each in value.items()) + "}"
    return f"[{', '.join(type(each).__name__ for each in value)}]" if isinstance(value, (list, tuple)) else repr(value)


def _in_id(text: str) -> str:
    """A variable's value in the characters that an id has."""
    return re.sub(r"[^A-Za-z0-9_.:+/-]", "_", re.sub(r"[{}]", "", without_secrets(text)))
