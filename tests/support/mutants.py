"""Mutation tests: `make mutants` changes one operator of the source at a time, and says which changes no test notices.

    python tests/support/mutants.py FILES -- TESTS AND OPTIONS OF PYTEST

Each test runs once, and the lines of FILES that it reaches are noted. Then a fork of this process for each mutant takes
its code, and runs the tests that reach the line until one fails. FILE:LINE,LINE tries only what begins on these lines.
What is computed at import has no mutant.
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

SOURCE = Path(__file__).resolve().parents[2] / "src"
AT_MOST_S = 10.0
"""Of the tests that reach a line, so many run for its mutants as take this CPU time together: what survives is to be
tried by hand, too. The first rows of each test come first, and the quicker ones before others."""
ROWS = 3
OTHERS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.USub: (ast.UAdd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
"""What stands in place of each operator; `not x` becomes `not not x`."""
MONITORING: Any = getattr(sys, "monitoring", None)
"""Python 3.12 and newer."""
BROKEN = 3
TOOL = 4
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}

Key = tuple[str, int, int]


class Mutant(NamedTuple):
    """A change of a file: its lines, the text before and after, and the code of the functions that it changes."""

    path: str
    lines: range
    before: str
    after: str
    codes: dict[Key, CodeType]


def mutants_of(path: str) -> Iterator[Mutant]:
    """Each change of an operator in a function of the file."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    original = codes_of(compile(tree, path, "exec", dont_inherit=True))
    hints = [getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns")]
    types = {node for hint in hints if isinstance(hint, ast.AST) for node in ast.walk(hint)}
    for node in (node for node in ast.walk(tree) if node not in types):
        for holder, place, other in changes(node):
            before, kept = ast.unparse(node), getattr(holder, place)
            setattr(holder, place, other)
            codes = codes_of(compile(tree, path, "exec", dont_inherit=True))
            changed = {key: code for key, code in codes.items() if code != original[key]}
            if changed:
                lines: Any = node
                yield Mutant(path, range(lines.lineno, lines.end_lineno + 1), before, ast.unparse(node), changed)
            setattr(holder, place, kept)


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, str, object]]:
    """A node, its attribute, and another value of it, for each change of an expression or an assignment."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                for other in OTHERS[type(op)]:
                    yield node, "ops", [*ops[:at], other(), *ops[at + 1 :]]
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) | ast.UnaryOp(op=op):
            if isinstance(op, ast.Not):
                yield node, "operand", ast.copy_location(ast.UnaryOp(op, node.operand), node)  # type: ignore[union-attr]
            for other in OTHERS.get(type(op), ()):
                yield node, "op", other()
        case ast.Call(func=ast.Name(id=name) as called) if name in CALLS:
            yield called, "id", CALLS[name]


def codes_of(module: CodeType) -> dict[Key, CodeType]:
    """The code of each function, also within others, by its name and place."""
    found = {}
    for code in module.co_consts:
        if isinstance(code, CodeType):
            found[key_of(code)] = code
            found |= codes_of(code)
    return found


def key_of(code: CodeType) -> Key:
    """What tells a function from the others of its file; two lambdas of a line differ in the column."""
    return code.co_qualname, code.co_firstlineno, next((at for *_, at, _ in code.co_positions() if at), 0)


class Mutation:
    """The plugin that runs the tests for their lines, and then those of each mutant."""

    def __init__(self, paths: list[str]) -> None:
        parts = [path.partition(":") for path in paths]
        self.paths = {
            str(Path(path).resolve()): {int(each) for each in lines.split(",") if each} for path, _, lines in parts
        }
        self.survivors = 0
        self._reached: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._seconds: list[float] = []
        self._functions: dict[str, list[tuple[Key, FunctionType]]] = {path: [] for path in self.paths}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        for path in self.paths:  # after pytest has the plugin, whose assertions it rewrites
            importlib.import_module(".".join(Path(path).relative_to(SOURCE).with_suffix("").parts))
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename in self._functions:
                self._functions[each.__code__.co_filename].append((key_of(each.__code__), each))
        # 1. Which test reaches which line.
        events = MONITORING
        events.use_tool_id(TOOL, "mutants")
        for functions in self._functions.values():
            codes = {function.__code__ for _, function in functions}
            for code in codes.union(*(codes_of(each).values() for each in codes)):
                events.set_local_events(TOOL, code, events.events.LINE)
        for at, item in enumerate(items):
            forget()
            events.restart_events()
            events.register_callback(TOOL, events.events.LINE, functools.partial(self._reach, at))
            began = time.process_time()
            reports = runtestprotocol(item, log=False, nextitem=None)
            self._seconds.append(time.process_time() - began)
            if failed := [report for report in reports if report.failed]:
                raise pytest.UsageError(f"{item.nodeid} fails without a mutant:\n{failed[0].longreprtext}")
        events.free_tool_id(TOOL)
        print(f"{len(items)} tests took {sum(self._seconds):.0f} s")
        # 2. Each mutant.
        for path, wanted in self.paths.items():
            chosen = (each for each in mutants_of(path) if not wanted or each.lines[0] in wanted)
            killed = [self._is_killed(mutant, items) for mutant in chosen]
            self.survivors += killed.count(False)
            print(f"{os.path.relpath(path)}: {killed.count(False)} of {len(killed)} mutants survive", flush=True)
        return True

    def _reach(self, test: int, code: CodeType, line: int) -> object:
        self._reached[code.co_filename, line].add(test)
        disable: object = MONITORING.DISABLE
        return disable

    def _is_killed(self, mutant: Mutant, items: list[pytest.Item]) -> bool:
        functions = [each for each in self._functions[mutant.path] if each[0] in mutant.codes]
        if not functions:  # the body of a class
            return True
        reaching = set().union(*(self._reached[mutant.path, line] for line in mutant.lines))
        tests, takes_s = list[pytest.Item](), 0.0
        rows = Counter[str]()
        ranks = {}
        for at in sorted(reaching):
            test = items[at].nodeid.partition("[")[0]
            ranks[at] = (rows[test] // ROWS, self._seconds[at])
            rows[test] += 1
        for at in sorted(reaching, key=ranks.__getitem__):
            takes_s += self._seconds[at]
            if takes_s <= AT_MOST_S or not tests:
                tests.append(items[at])
        if tests:
            child = os.fork()
            if not child:
                self._mutate_and_run(mutant, functions, tests)
            _, status = os.waitpid(child, 0)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            if code := os.waitstatus_to_exitcode(status):
                assert code != BROKEN, f"this mutant cannot be tried: {mutant}"
                return True
        how = "survives" if tests else "is not reached"
        place = f"{os.path.relpath(mutant.path)}:{mutant.lines[0]}"
        print(f"{place}: {how}: {mutant.before}  ->  {mutant.after}", flush=True)
        return False

    def _mutate_and_run(
        self, mutant: Mutant, functions: list[tuple[Key, FunctionType]], tests: list[pytest.Item]
    ) -> None:
        """End this process with 1 if a test fails, BROKEN if it cannot run; a signal ends it after too long."""
        os.setsid()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10 + int(5 * AT_MOST_S))
        status = BROKEN
        try:
            for key, function in functions:
                function.__code__ = mutant.codes[key]
            forget()
            for item in tests:
                item._initrequest()  # type: ignore[attr-defined]
                if any(report.failed for report in runtestprotocol(item, log=False, nextitem=None)):
                    status = 1
                    break
            else:
                status = 0
        finally:
            os._exit(status)


def forget() -> None:
    """Empty the caches of our functions, which keep what another test computed."""
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper) and each.__module__.startswith("pytest_ftgate"):
            each.cache_clear()


def main() -> int:
    """Exit code 1 if a mutant survives."""
    if MONITORING is None:
        sys.exit("it needs Python 3.12 or newer: make mutants")
    at = sys.argv.index("--")
    mutation = Mutation(sys.argv[1:at])
    code = pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[at + 1 :]], plugins=[mutation])
    return int(code) or int(mutation.survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
