"""Finds the code of a Python source that the interpreter executes, given the names of the functions that ran.

Code is compared: instructions, constants and names. Lines do not count, nor do functions that were not called.
"""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from types import CodeType
from typing import Final, TypeAlias

from ...runner.results import written

Parts: TypeAlias = Mapping[str, list[tuple[object, ...]]]
"""The executed forms of the code objects by qualified name, in the order of the source."""
MODULE: Final = "<module>"
_OF_A_FUNCTION: Final = 0x1
"""A flag of code: it is no module's and no class body's."""
_MARKS: Final = frozenset(("staticmethod", "classmethod", "property", "ftgate", "pytest"))
"""Decorators, or modules with decorators, that do no more than mark a function."""


def parts(source: bytes, ran: Collection[str] | None) -> Parts:
    """The executed parts of a source in which these functions were called, by qualified name; None: all of them.

    Of the others nothing is left but that a function that was called defines them. A source that this interpreter
    cannot compile counts as it is.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
            called = tree if ran is None else _Called(ran).visit(tree)
            code = compile(_without_lines(called), "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {MODULE: [(0, source)]}
    found = defaultdict(list)
    for name, form in _forms(code, ran):
        found[name].append(form)
    return found


def differing(mine: Parts, other: Parts) -> list[str]:
    """The parts that differ, in words: functions; where none does, class bodies or the module."""
    names = [name for name in {**mine, **other} if mine.get(name) != other.get(name)]
    functions = [name for name in names if (mine.get(name) or other[name])[0][0]]
    classes = [name for name in names if name != MODULE]
    return [f"{name}()" for name in functions] or [f"the class {name}" for name in classes] or names


def _forms(code: CodeType, ran: Collection[str] | None) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The name and the executed form of this code, and of the code in it that ran.

    Code without a name, such as a comprehension, and annotations count with what they stand in: whether they run by
    themselves depends on the version.
    """
    within = [
        each
        for each in code.co_consts
        if isinstance(each, CodeType)
        and (ran is None or each.co_qualname in ran or each.co_name.endswith(">") or each.co_name == "__annotate__")
    ]
    constants = [
        (each.co_qualname if each in within else None) if isinstance(each, CodeType) else _constant(each)
        for each in code.co_consts
    ]
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    executed = (code.co_code, constants, code.co_exceptiontable)
    yield code.co_qualname, (code.co_flags & _OF_A_FUNCTION, code.co_flags, arguments, names, *executed)
    for each in within:
        yield from _forms(each, ran)


def _constant(value: object) -> object:
    """A form that is equal for equal constants of one type: those of 1, 1.0 and True differ."""
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    return sorted(map(written, value)) if isinstance(value, frozenset) else written(value)


class _Called(ast.NodeTransformer):
    """Takes out of the code of modules and classes what defines functions that were not called."""

    def __init__(self, ran: Collection[str]) -> None:
        self.ran = ran
        self.within = ""
        """The qualified name of the class and a dot."""
        self.taken_out = set[str]()

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self.within = self.within, f"{self.within}{node.name}."
        self.generic_visit(node)
        self.within = outer
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST | None:
        """None if it was not called and its definition does nothing but bind its name: what it calls are marks."""
        # A special method counts where it is not called, too: the interpreter asks whether there is one.
        if f"{self.within}{node.name}" in self.ran or node.name.startswith("__"):
            return node
        evaluated = filter(None, (*node.decorator_list, node.args, node.returns))
        calls = (each for part in evaluated for each in ast.walk(part) if isinstance(each, ast.Call))
        roots = {_root(each) for each in (*node.decorator_list, *calls)}
        if not all(root in _MARKS or f"{self.within}{root}" in self.taken_out for root in roots):
            return node
        self.taken_out.add(f"{self.within}{node.name}")
        return None

    visit_AsyncFunctionDef = visit_FunctionDef


def _root(called: ast.expr) -> str:
    """The name that a decorator or a call begins with."""
    while isinstance(called, (ast.Attribute, ast.Call)):
        called = called.func if isinstance(called, ast.Call) else called.value
    return called.id if isinstance(called, ast.Name) else ""


def _without_lines(tree: ast.Module) -> ast.Module:
    """The tree as if it stood on one line; where nothing is left, `pass` does."""
    for node in ast.walk(tree):
        for place in node._attributes:
            vars(node).pop(place, None)
        if getattr(node, "body", None) == []:
            node.body.append(ast.Pass())  # type: ignore[attr-defined]
    return ast.fix_missing_locations(tree)
