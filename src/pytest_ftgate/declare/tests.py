"""Decorator arguments -> Spec: checks everything that the light decorator accepted; errors name the place and a fix."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn

import msgspec

from ..judge import contract_grammar, contracts, limits
from ..kit.text import did_you_mean, listed, placeholders
from ..kit.values import Threshold
from ..model.spec import PLACEHOLDERS, BodyKind, DeclaredContract, Executor, Param, Source, Spec, Xfail
from ..model.verdict import Decision
from ..runner import signatures
from ..runner.api import Declaration, Note
from ..runner.loading import imported, is_named, shape_of
from ..runner.tokens import CommandToken
from .arguments import (
    CORES,
    COUNT,
    EXAMPLE,
    FILTERS,
    KINDS,
    OWN,
    ParameterError,
    Reader,
    fault,
    fits,
    named,
)

KNOWN = {"compare": [*signatures.CompareOptions.__annotations__], "serve": [*signatures.ServeOptions.__annotations__]}
"""The arguments of each decorator."""
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ",)"), set: ("{", "}")}
EXPECTED = ("regressed", "broken")
NOTE_EXAMPLES = {
    "contract": "@ftgate.contract(scaling='>= 1.6')",
    "limit": "@ftgate.limit('wall', margin='3%')",
    "xfail": "@ftgate.xfail('broken', threads, reason='one lock for all')",
}
SERVE_DURATION_S, SERVE_WINDOW_S = 6.0, 1.0


def declaration_of(function: Any) -> Declaration | None:
    """The declaration that @ftgate.compare or @ftgate.serve attached to a function; None without one."""
    declared = getattr(function, "__ftgate__", None)
    return declared if isinstance(declared, Declaration) else None


def check_class(cls: type) -> None:
    """Raise DeclarationError for a class that is decorated itself, or whose decorated tests pytest cannot multiply."""
    declared = vars(cls).get("__ftgate__")
    path = getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__
    notes = notes_of(cls)
    if isinstance(declared, Declaration):
        declared.line = inspect.getsourcelines(cls)[1]  # a class has no code that knows it
    if isinstance(declared, Declaration) or notes:
        written = declared if isinstance(declared, Declaration) else notes[0]
        raise fault(path, written, cls.__qualname__, "it is a class; decorate its test methods")
    unittest = sys.modules.get("unittest")  # whoever derives from its TestCase has imported it
    if unittest is None or not issubclass(cls, unittest.TestCase):
        return
    for name, member in vars(cls).items():
        declared = declaration_of(member)
        if declared is not None:
            why = "tests of unittest.TestCase cannot have cells; move it to a plain class or to the module"
            raise fault(path, declared, f"{cls.__qualname__}.{name}", why)


def notes_of(function: Any) -> tuple[Note, ...]:
    """What @ftgate.contract, @ftgate.limit and @ftgate.xfail attached to a function, in the order of their lines."""
    try:
        kept = vars(function).get("__ftgate_notes__", ())
    except TypeError:  # an object without attributes of its own
        return ()
    return tuple(sorted(kept, key=lambda note: note.line))


def check_notes(function: Any, path: str) -> None:
    """Raise DeclarationError for a test that has another decorator of ours and no @ftgate.compare.

    `path` is that of its file.
    """
    notes = notes_of(function)
    if notes and declaration_of(function) is None:
        name = getattr(function, "__qualname__", repr(function))
        raise fault(path, notes[0], name, f"it has no cells; add {EXAMPLE} to the test")


class Notes:
    """Reads @ftgate.contract, @ftgate.limit and @ftgate.xfail of a declaration; every error names its place."""

    def __init__(self, declared: Declaration, source: Source) -> None:
        self.declared = declared
        self.source = source
        self.notes = notes_of(declared.body)
        for _, body in declared.variants:
            for note in notes_of(body):
                self.fail(note, f"it is on the variant {body.__name__}; put it on the test itself")

    def fail(self, note: Note, text: str) -> NoReturn:
        raise fault(self.source.path, note, self.source.qualname, text)

    def thresholds(self, spec: Spec) -> tuple[Threshold, ...]:
        """The thresholds of @ftgate.limit, checked against the test; each metric once."""
        found: dict[str, Threshold] = {}
        lines: dict[str, int] = {}
        for note in self._of("limit"):
            try:
                threshold = limits.threshold(note.args[0], note.kwargs)
            except ValueError as error:
                self.fail(note, str(error))
            metric = threshold.metric
            if why := contracts.lacking(metric, spec, self._body_kind):
                self.fail(note, f"the cells of this test have no {metric}: {why}")
            if metric in found:
                self.fail(note, f"{metric} has a limit in line {lines[metric]} already; merge the two")
            found[metric], lines[metric] = threshold, note.line
        return tuple(found.values())

    def contracts(self, spec: Spec) -> tuple[DeclaredContract, ...]:
        """The contracts, checked against the test; each once."""
        found: dict[str, DeclaredContract] = {}
        for note in self._of("contract"):
            for value in (*note.args, *note.kwargs.values()):
                if not isinstance(value, str) or not value.strip():
                    self.fail(note, f"it takes texts such as 'threads.wall < 20 ms' or scaling='>= 1.6', not {value!r}")
            texts = [*note.args, *(contract_grammar.keyword_text(name, text) for name, text in note.kwargs.items())]
            if not texts:
                self.fail(note, "it requires nothing; for example @ftgate.contract(scaling='>= 1.6')")
            for text in (" ".join(text.split()) for text in texts):  # in one line, as reports show it
                try:
                    contracts.check(contract_grammar.parse(text), spec, self._body_kind)
                except contract_grammar.ContractError as error:
                    self.fail(note, str(error))
                found.setdefault(text, DeclaredContract(text=text, line=note.line))
        return tuple(found.values())

    def _body_kind(self, executor: Executor) -> BodyKind:
        return body_kind(self.declared, executor)

    def xfails(self, spec: Spec) -> tuple[Xfail, ...]:
        """The known failures, checked against the test."""
        found = []
        for note in self._of("xfail"):
            decision, *tokens = note.args
            if decision not in EXPECTED:
                self.fail(note, f"it takes {listed(EXPECTED)}, not {decision!r}: {NOTE_EXAMPLES['xfail']}")
            if decision == "broken" and not spec.contracts:
                self.fail(note, f"the test has no contract that could be broken: add {NOTE_EXAMPLES['contract']}")
            reason, strict = note.kwargs["reason"], note.kwargs["strict"]
            if not isinstance(reason, str) or not reason.strip():
                self.fail(note, f"it needs a reason, such as an issue: {NOTE_EXAMPLES['xfail']}")
            if not isinstance(strict, bool):
                self.fail(note, f"strict= takes True or False, not {strict!r}")
            texts = {name: self._several(note, name) for name in ("pythons", "cells")}
            executors = named(tokens, spec.executors, (*KINDS, "command"), partial(self.fail, note))
            counts = self._several(note, "workers")
            known = [*spec.numbers, *([CORES] if spec.cores else [])]
            if unknown := [each for each in counts if each not in known]:
                there = listed([str(each) for each in known])
                self.fail(note, f"workers={unknown[0]} is no number of workers of the test: it has {there}")
            found.append(
                Xfail(
                    decision=Decision(decision),
                    reason=" ".join(reason.split()),
                    strict=strict,
                    line=note.line,
                    executors=tuple(executors),
                    workers=tuple(spec.cores if each == CORES else each for each in counts),
                    **texts,
                )
            )
        return tuple(found)

    def _several(self, note: Note, name: str) -> tuple[Any, ...]:
        """One value or a list of them; nothing where it is not given."""
        value = note.kwargs[name]
        if value is None:
            return ()
        if not fits(value, FILTERS[name].type):
            self.fail(note, f"{name}= takes {FILTERS[name].words}, one or a list of them, not {value!r}")
        return tuple(value) if isinstance(value, (list, tuple)) else (value,)

    def _of(self, decorator: str) -> list[Note]:
        notes = [note for note in self.notes if note.decorator == decorator]
        for note in notes:
            if any(hasattr(value, "__code__") for value in note.args):
                self.fail(note, f"it needs parentheses and arguments: {NOTE_EXAMPLES[decorator]}")
        return notes


def check_function(declared: Declaration, source: Source, function: object, name: str, cls: type | None) -> None:
    """Raise DeclarationError if the measured interpreter would not import the function that pytest collected."""
    reader = Reader(declared, source)
    if hasattr(declared.body, "hypothesis"):
        reader.fail(
            "@given of hypothesis draws values in pytest's process, and the body runs in another: remove @given, and "
            "take the values from pytest.mark.parametrize, or from random.Random(SEED) in the body"
        )
    if "<locals>" in source.qualname or "<locals>" in declared.body.__qualname__:
        reader.fail(
            "the test is defined inside a function, where the measured interpreter cannot import it; "
            "move it to the module"
        )
    if function is not declared.body:
        reader.fail(
            "another decorator above it would be ignored; "
            f"put @ftgate.{declared.decorator} above all others but pytest's marks"
        )
    if cls is not None and isinstance(inspect.getattr_static(cls, name, None), (staticmethod, classmethod)):
        reader.fail("a static or class method cannot be compared; make it a plain method that takes self")


def spec_of(declared: Declaration, source: Source, nodeid: str) -> Spec:
    """The checked form of a declaration. Raises DeclarationError."""
    reader = Reader(declared, source)
    for kind in KINDS:
        if declared.decorator == "compare" and kind in declared.kwargs:
            reader.fail(f"{kind} is no keyword: write {kind} as in {EXAMPLE}")
    reader.only(KNOWN[declared.decorator])
    own = _compared(reader) if declared.decorator == "compare" else _served(reader)
    pythons, timeout_s = reader.targets(), reader.take("timeout")
    # Requirements to install together with the project, and programs, each with the command that installs it.
    packages, programs = reader.take("packages", ()), reader.take("programs", {})
    for word in packages:
        if word.startswith("-"):
            reader.fail(f"packages= takes requirements only, and {word!r} is an option; options go into ftgate_install")
    spec = Spec(
        nodeid=nodeid,
        source=source,
        pythons=pythons,
        timeout_s=timeout_s,
        packages=tuple(packages),
        programs=tuple(programs.items()),
        environments=reader.environments(),
        min_cores=reader.take("min_cores"),
        **own,
    )
    notes = Notes(declared, source)
    spec = msgspec.structs.replace(spec, thresholds=notes.thresholds(spec), contracts=notes.contracts(spec))
    return msgspec.structs.replace(spec, xfails=notes.xfails(spec))


def _compared(reader: Reader) -> dict[str, Any]:
    """What a Spec has of @ftgate.compare alone."""
    chosen = reader.executors()
    reader.bodies(chosen)
    workers = reader.workers()
    reader.roles(chosen, workers.get("role_counts", ()))
    reader.setups(chosen)
    duration, window = reader.take("duration"), reader.take("window")
    iterations = reader.take("iterations")
    if duration is not None and iterations is not None:
        reader.fail("it takes iterations= or duration=, not both")
    if window is not None and duration is None:
        reader.fail("window= is the length of an iteration of duration=, which is missing")
    # Workers are kept by default, and always with duration=.
    reuse = reader.take("reuse")
    if duration is not None and reuse == "fresh":
        reader.fail("duration= keeps its workers between windows; drop reuse='fresh', or use iterations=")
    warmup = reader.take("warmup", takes=None if duration is None else COUNT)
    # Threads and processes of ours can have cores of their own.
    pin = reader.take("pin", False)
    for executor in chosen if pin else ():
        if executor.kind == "tasks":
            reader.fail("pin=True: tasks share one thread, so none can have a core of its own; remove tasks")
        if executor.program is not None:
            reader.fail(f"pin=True: {executor.label} is a program, which starts its workers itself; remove it")
        if shape_of(reader.declared.body_for(executor.kind, executor.method)) == "executor":
            reader.fail("pin=True: a body that takes `executor` has no workers that wait to be pinned; take `worker`")
    return workers | {
        "body": shape_of(reader.declared.body),
        "executors": chosen,
        "reuse": reuse or "pool",
        "iterations": iterations,
        "one_call": duration is None and any(scope == "iteration" for _, scope, _ in reader.declared.setups),
        "duration_s": duration,
        "window_s": window,
        "warmup": warmup,
        "pin": pin,
    }


def _served(reader: Reader) -> dict[str, Any]:
    """What a Spec has of @ftgate.serve alone."""
    chosen = reader.servers()
    declared = reader.declared
    used = {name: getattr(declared, name) for name in ("shared", "check", "stop")}
    used |= {"role": declared.roles, "variant": declared.variants}
    used |= {what: True for what, _, _ in declared.setups}
    for name in (name for name, value in used.items() if value):
        reader.fail(f"@{declared.body.__name__}.{name} is for @ftgate.compare; a server is a program")
    if shape_of(declared.body) != "server":
        reader.fail(f"{declared.body.__name__} takes `server` and checks an answer, such as server.get('/')")
    if inspect.iscoroutinefunction(declared.body):
        reader.fail(f"{declared.body.__name__} is a coroutine, which is never awaited; make it a plain function")
    workers = reader.workers()
    if "role_counts" in workers:
        reader.fail("workers= of a server takes whole numbers, the values of {workers}")
    environments = reader.environments()
    if "workers" in reader.kwargs and not any(each.counted(other) for each in chosen for other in environments):
        reader.fail("workers= is the value of {workers}, which no command line has, nor env=")
    duration, window = reader.take("duration", SERVE_DURATION_S), reader.take("window", SERVE_WINDOW_S)
    return workers | {
        "body": "server",
        "executors": chosen,
        "reuse": "pool",
        "duration_s": duration,
        "window_s": window,
        "warmup": reader.take("warmup", takes=COUNT),
        "service": reader.service(),
    }


def check_arguments(
    declared: Declaration, source: Source, parametrized: Mapping[str, bool], requested: Iterable[str] = ()
) -> None:
    """Raise DeclarationError for an argument that is neither an argument of the cell nor a plain parameter.

    `parametrized` holds each name that parametrize gives and whether it is indirect; `requested` the fixtures of
    pytest.mark.usefixtures on the test, its class or its module.
    """
    reader, test = Reader(declared, source), declared.body.__name__
    after_self = "self and " if "." in source.qualname else ""

    def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
        return list(inspect.signature(function).parameters.values())[bool(after_self) :]

    # 0. In a class all of them take self.
    functions = [body for _, body in declared.variants] + [body for _, _, body in (*declared.roles, *declared.setups)]
    for method in filter(None, (declared.body, *functions, declared.shared, declared.check, declared.stop)):
        written = [*inspect.signature(method).parameters.values()] if after_self else []
        alone = method not in (declared.body, *functions) and len(written) == 1 and written[0].kind not in VARIADIC
        if after_self and (not written or written[0].name in OWN or (alone and written[0].name != "self")):
            fixed = ", ".join(["self", *(str(each) for each in written)])
            reader.fail(f"{method.__name__} is in a class and takes self first: def {method.__name__}({fixed})")
    # 1. What is parametrized or requested is neither of the cell nor made by a fixture.
    for name in requested:
        reader.fixture(name)
    programs = declared.decorator == "serve" or any(isinstance(token, CommandToken) for token in declared.args)
    of_programs = PLACEHOLDERS if programs or declared.kwargs.get("env") else ()
    for name, indirect in parametrized.items():
        if name in (*OWN, *of_programs):
            reader.fail(f"{name!r} is an argument of the cell itself; rename the parameter")
        if indirect:
            reader.fixture(name, "the indirect parameter")
    # 2. A body takes an argument of the cell, plain parameters, and nothing else.
    for body in (declared.body, *(body for _, body in declared.variants), *(body for _, _, body in declared.roles)):
        given = [parameter for parameter in parameters(body) if parameter.kind not in VARIADIC]
        taken = [parameter.name for parameter in given]
        own = [name for name in OWN if name in taken]
        if len(own) > 1:
            reader.fail(f"{body.__name__} takes worker and executor; a body that every worker runs takes only `worker`")
        for parameter in given:
            if parameter.default is parameter.empty and parameter.name not in (*own, *parametrized):
                reader.fixture(parameter.name)
        for name in parametrized:
            if name not in taken:
                reader.fail(f"{body.__name__} does not take {name!r}, which the test is parametrized with; add it")
    # 3. What is called once takes one argument.
    calls = ((declared.stop, "stop", "the shared state"), (declared.shared, "shared", "the executor's context"))
    for function, role, what in (*calls, (declared.check, "check", "the results")):
        given = [] if function is None else parameters(function)
        needed = [each for each in given if each.default is each.empty and each.kind not in VARIADIC]
        one = any(each.kind in (*POSITIONAL, each.VAR_POSITIONAL) for each in given)
        if function is not None and (len(needed) > 1 or not one):
            reader.fail(f"{function.__name__} is @test.{role}, which takes {after_self}one argument: {what}")
    # 4. A setup or teardown takes what it gets first, then parameters of the test.
    for what, scope, function in declared.setups:
        given, shape = parameters(function), shape_of(function)
        first = next((each.name for each in given if each.kind in POSITIONAL), None)
        if first in (None, *parametrized) or (scope != "launch" and first != shape):
            gets = "the shared state" if scope == "launch" else f"`{shape}`"
            which = "the first parameter after self" if after_self else "its first parameter"
            reader.fail(f"{function.__name__} is @{test}.{what}: {which} is {gets}")
        for other in given[1:]:
            if other.default is other.empty and other.kind not in VARIADIC and other.name not in parametrized:
                reader.fixture(other.name)


def check_surroundings(declared: Declaration, source: Source, around: Iterable[tuple[str, str, str]]) -> None:
    """Raise DeclarationError for fixtures of the test's file that pytest would run where the body is not.

    `around` has their names, kinds and words: see `plugin.collection.written_around`. A class that tests a server may
    have all but its methods: its test runs where pytest does.
    """
    served, test = declared.decorator == "serve", declared.body.__name__
    ways = "do it in the test itself" if served else f"use @{test}.setup and @{test}.teardown, or @{test}.shared"
    for _, kind, words in around:
        for_other_tests = kind == "function" and "." in source.qualname
        if not for_other_tests and (not served or kind in ("method", "class")):
            by = words if kind else f"{words} of its file"
            Reader(declared, source).fail(
                f"{by} would run in pytest's process, not where the body runs; {ways} (other tests: another file)"
            )


def check_placeholders(declared: Declaration, spec: Spec, parametrized: Iterable[str]) -> None:
    """Raise DeclarationError for a program whose command line has a placeholder without a value."""
    reader, service = Reader(declared, spec.source), spec.service
    programs = [executor.program for executor in spec.executors if executor.program]
    # By program the texts that it gets at each start; all have the environments of the cells.
    shared = [value for environment in spec.environments for _, value in environment.variables]
    started = {each.name: [*each.argv, *(value for _, value in each.environment), *shared] for each in programs}
    texts = [*shared, *(word for program in programs for word in (*started[program.name], *program.build))]
    if service is not None:  # braces in the body of its load may be its own
        texts += [service.ready, *(path for path, _ in service.load.mix)]
        texts += [value for _, value in service.load.headers]
    foreign = ("port", "scratch") if service is None else ("seconds",)
    known = [name for name in PLACEHOLDERS if name not in foreign] + list(parametrized)
    for text in texts:
        for name in placeholders(text):
            if name not in known:
                hint = did_you_mean(name, known)
                reader.fail(f"nothing fills in {{{name}}}{hint}; the known placeholders are {listed(known)}")
    for program in programs:
        if any("{seconds}" in word for word in program.build):
            reader.fail(f"command {program.name!r}: build= runs once, before any window, so {{seconds}} has no value")
    at_start = [*shared, *(word for words in started.values() for word in words)]
    if spec.duration_s is None and any("{seconds}" in word for word in at_start):
        reader.fail("{seconds} is the length of an iteration of duration=, which is missing")
    if service is not None and "{port}" not in service.ready:
        reader.fail(f"ready={service.ready!r} has no {{port}}: a server gets a new free port at each start")
    for name, words in started.items() if service is not None else ():
        if not any("{port}" in word for word in words):
            reader.fail(f"command {name!r} does not get its port: put {{port}} into its words or env=")


def body_kind(declared: Declaration, executor: Executor) -> BodyKind:
    """What the body takes in this executor's cells: `worker`, `executor` or `server`."""
    if executor.kind == "command":
        return "worker"
    shape: Any = shape_of(declared.body_for(executor.kind, executor.qualifier))
    return shape  # type: ignore[no-any-return]


def param_of(declared: Declaration, source: Source, name: str, value: Any) -> Param:
    """A parameter as a Python literal, or as the name of what can be imported.

    Raises ParameterError where neither gives the value again, DeclarationError for a parameter of a fixture.
    """
    if name not in inspect.signature(declared.body).parameters:
        Reader(declared, source).fixture(name, "the parametrized fixture")
    literal = literal_of(value)
    try:
        same = ast.literal_eval(literal) == value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        same = False
    sent = literal if same else importable_name(value)
    if not sent:
        own = str(getattr(value, "__qualname__", ""))
        fix = (
            "parametrize with plain values (numbers, text, lists, dicts) or with classes and functions of a module, "
            "and make the object in the body"
        )
        if own.endswith("<lambda>"):
            fix = "a lambda has no name: define a function in a module and pass that"
        elif "<locals>" in own:
            fix = f"{own} is local to a function: define it in a module, where it can be imported"
        text = f"parameter {name}={literal[:60]} cannot be sent to another interpreter; {fix}"
        raise ParameterError(str(fault(source.path, declared, source.qualname, text)))
    return Param(name=name, literal=sent)


def literal_of(value: Any) -> str:
    """The repr of a value; where that needs more decimal digits than are converted, integers in hexadecimal."""
    try:
        return repr(value)
    except ValueError:
        if type(value) is dict:
            return f"{{{', '.join(f'{literal_of(key)}: {literal_of(each)}' for key, each in value.items())}}}"
        if type(value) in BRACKETS:
            begin, end = BRACKETS[type(value)]
            return f"{begin}{', '.join(map(literal_of, value))}{end}"
        return hex(value) if type(value) is int else object.__repr__(value)


def importable_name(value: Any) -> str:
    """`module:qualname` of a class, function, method or module that importing it by this name gives; else empty."""
    if inspect.ismodule(value):
        return f"{value.__name__}:"
    owners = (value, getattr(value, "__objclass__", None), getattr(value, "__self__", None))
    modules = (getattr(owner, "__module__", None) for owner in owners)
    text = f"{next(filter(None, modules), '')}:{getattr(value, '__qualname__', '')}"
    if not is_named(text) or text.endswith(":"):
        return ""
    try:
        found = imported(text)
    except (ImportError, AttributeError):
        return ""
    return text if found is value or (inspect.isroutine(value) and found == value) else ""
