"""Reads the executors, programs and servers that a decorator names."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from .. import text as text_module
from ..model import PLACEHOLDERS, Executor, Program, Service, Spec, StartMethod
from ..runner.api import CommandToken, ExecutorToken, FactoryToken
from ..text import did_you_mean, listed
from .reader import KINDS, METHODS, SERVE_EXAMPLE, Reader, shown

EXAMPLE = "@ftgate.compare(threads, processes=['fork', 'spawn'])"
PROGRAM_OPTIONS = ("build", "pythons", "environment")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Executors(Reader):
    """Reads executors and programs."""

    def executors(self) -> tuple[Executor, ...]:
        """All executors, in the order written, each once."""
        if self.declared.args == (self.declared.body,):
            self.fail(f"it needs parentheses and its executors: {EXAMPLE}")
        found: list[Executor] = []
        for token in self.declared.args:
            if not isinstance(token, ExecutorToken):
                self.fail(
                    f"{shown(token)} is not an executor; use {listed((*KINDS, 'executor', 'command'))} "
                    "from pytest_ftgate"
                )
            if isinstance(token, CommandToken):
                found.append(Executor(kind="command", program=self.program(token)))
                continue
            if isinstance(token, FactoryToken):
                made = self._made(token)
                if made in found:  # it does not hold its factory, so the second one would be dropped
                    self.fail(f"two executors are named {made.label!r}; give each its own name")
                found.append(made)
                continue
            found += self._expand(token.kind, token.methods or True)
        for kind in KINDS:
            if kind in self.kwargs:
                found += self._expand(kind, self.kwargs[kind])
        if not found:
            self.fail(f"it names no executor; for example {EXAMPLE}")
        return self._each_once(found)

    def _each_once(self, found: Sequence[Executor]) -> tuple[Executor, ...]:
        """Drop duplicates; refuse two programs with one name."""
        once = tuple(dict.fromkeys(found))
        for label in (executor.label for executor in once):
            if sum(other.label == label for other in once) > 1:
                self.fail(f"two executors are named {label!r}; give each its own name")
        return once

    def _expand(self, kind: Any, value: Any) -> list[Executor]:
        if value is False or value is None:
            return []
        if kind != "processes":
            if value is not True:
                loop = " (an event loop of another kind is written tasks(name, loop_factory))" * (kind == "tasks")
                self.fail(f"{kind}= takes True or False, not {value!r}{loop}")
            return [Executor(kind=kind)]
        if value is True:
            return [Executor(kind="processes", method=default_method())]
        methods = [value] if isinstance(value, str) else value
        if not isinstance(methods, (list, tuple)) or not methods:
            self.fail(f"processes= takes True, a start method or a list of them ({listed(METHODS)}), not {value!r}")
        return [Executor(kind="processes", method=self._method(method)) for method in methods]

    def _made(self, token: FactoryToken) -> Executor:
        """An executor or an event loop of the user's own."""
        (name,), word = token.methods, token.kind
        self._name(name, word)
        if not callable(token.factory):
            given = "the number of workers and returns an Executor" if word == "executor" else "nothing, returns a loop"
            self.fail(f"{word}({name!r}) takes a function that gets {given}, not {token.factory!r}")
        for option in token.options:
            if option != "processes":
                hint = did_you_mean(option, ["processes"])
                self.fail(f"executor({name!r}): unknown argument {option!r}{hint}; it takes processes")
        in_processes = token.options.get("processes", False)
        if not isinstance(in_processes, bool):
            self.fail(f"executor({name!r}): processes= takes True or False, not {in_processes!r}")
        return Executor(kind=word, name=name, in_processes=in_processes)  # type: ignore[arg-type]

    def _name(self, name: Any, word: str) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in (*KINDS, *METHODS):
            self.fail(
                f"{word}(...) takes a name made of letters, digits, '.', '_' and '-' "
                f"that is not an executor's: {name!r}"
            )

    def _method(self, method: Any) -> StartMethod:
        if method not in METHODS:
            self.fail(f"{method!r} is not a start method; use {listed(METHODS)}{did_you_mean(method, METHODS)}")
        return method  # type: ignore[no-any-return]

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
        for option in options:
            if option not in PROGRAM_OPTIONS:
                hint = did_you_mean(option, PROGRAM_OPTIONS)
                self.fail(f"command({name!r}): unknown argument {option!r}{hint}; it takes {listed(PROGRAM_OPTIONS)}")
        environment = options.get("environment") or {}
        if not isinstance(environment, dict) or not all(
            isinstance(part, str) for item in environment.items() for part in item
        ):
            self.fail(f"command({name!r}): environment= takes a dict of strings, not {environment!r}")
        if options.get("build") and self.declared.decorator == "serve":
            self.fail(f"command({name!r}): build= is for commands of @ftgate.compare; a server has no build step")
        if options.get("pythons") is not None and self.declared.decorator == "compare":
            self.fail(
                f"command({name!r}): pythons= is for servers; a command of @ftgate.compare runs once for all targets"
            )
        return Program(
            name=name,
            argv=self._words(name, token.argv),
            build=self._words(name, options["build"], "build=") if options.get("build") else (),
            pythons=self.targets(options.get("pythons"), f"command({name!r}): pythons="),
            environment=tuple(environment.items()),
        )

    def _words(self, name: str, words: Any, what: str = "it") -> tuple[str, ...]:
        if not isinstance(words, (list, tuple)) or not words or not all(isinstance(word, str) for word in words):
            self.fail(f"command {name!r}: {what} takes a command line as a list of strings, not {words!r}")
        return tuple(words)

    def placeholders(self, spec: Spec, parametrized: Iterable[str]) -> None:
        """Refuse a placeholder that has no value."""
        foreign = ("port", "scratch") if spec.service is None else ("seconds",)
        known = [name for name in PLACEHOLDERS if name not in foreign] + list(parametrized)
        programs = [executor.program for executor in spec.executors if executor.program]
        shared = [value for environment in spec.environments for _, value in environment.variables]
        texts = [*shared, *(word for program in programs for word in (*_texts(program), *program.build))]
        if spec.service is not None:
            load = spec.service.load  # braces in its body may be its own
            texts += [spec.service.ready, *(path for path, _ in load.mix), *(value for _, value in load.headers)]
        for text in texts:
            for name in text_module.placeholders(text):
                if name not in known:
                    hint = did_you_mean(name, known)
                    self.fail(
                        f"{text!r}: nothing fills in {{{name}}}{hint}; the known placeholders are {listed(known)}"
                    )
        for program in programs:
            if any("{seconds}" in word for word in program.build):
                self.fail(f"command {program.name!r}: build= runs once, before any window, so {{seconds}} has no value")
        started = [*shared, *(word for program in programs for word in _texts(program))]
        if spec.duration_s is None and any("{seconds}" in word for word in started):
            self.fail("{seconds} is the length of an iteration of duration=, which is missing")
        if spec.service is not None:
            self._port(spec.service, programs, shared)

    def _port(self, service: Service, programs: Iterable[Program], shared: Sequence[str]) -> None:
        """Refuse a server that does not get its port, and a `ready` URL without it."""
        if "{port}" not in service.ready:
            self.fail(f"ready={service.ready!r} has no {{port}}: a server gets a new free port at each start")
        for program in programs:
            if not any("{port}" in word for word in (*_texts(program), *shared)):
                self.fail(
                    f"command {program.name!r} does not get its port: put {{port}} into its words or environment="
                )


def default_method() -> StartMethod:
    """The start method of plain `processes`: CPython 3.14's default on this platform."""
    return "forkserver" if sys.platform not in ("darwin", "win32") and os.name == "posix" else "spawn"


def _texts(program: Program) -> tuple[str, ...]:
    """The texts of a program that may have placeholders at each start."""
    return (*program.argv, *(value for _, value in program.environment))
