"""What the interpreter executes of a Python source, function by function, given the names of those that ran."""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from types import CodeType
from typing import Final, TypeAlias

Parts: TypeAlias = Mapping[str, list[tuple[object, ...]]]
"""By qualified name: what is executed of the code objects of that name, in the order of the source."""
MODULE: Final = "<module>"
_OF_A_FUNCTION: Final = 0x1
"""A flag of code: it is no module's and no class body's."""
_INLINED: Final = re.compile(r"<(list|set|dict)comp>$")
"""Code of its own up to 3.11: later interpreters do not start it."""
_ITSELF: Final = (b"__doc__", b"getdoc", b"doctest", b"__annotations__", b"get_type_hints")
"""A source with one of these may use its docstrings, and annotations that are strings."""
_MARKS: Final = frozenset(("staticmethod", "classmethod", "property", "ftgate", "pytest"))
"""Decorators, or modules with decorators, that do no more than mark a function."""


class Ran:
    """Which functions of a source were called, by qualified name; `names` None: all of them."""

    def __init__(self, names: Collection[str] | None, *, deferred: bool) -> None:
        self.names = names
        self.deferred = deferred
        """Annotations are functions of their own, as since 3.14: others are evaluated with the definition."""

    def __contains__(self, name: str) -> bool:
        if self.names is None or name in self.names or _INLINED.search(name):
            return True
        return not self.deferred and name.endswith("__annotate__")


def parts(source: bytes, ran: Ran) -> Parts:
    """What is executed of a source. One that this interpreter cannot compile counts as it is.

    Of functions that were not called nothing is left but that a function that was called defines them. Lines,
    docstrings and annotations that were not evaluated are left out.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            bare = not any(word in source for word in _ITSELF)
            tree = _Executed(ran, bare).visit(ast.parse(source))
            code = compile(_without_lines(tree, bare), "", "exec", dont_inherit=True)
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


def _forms(code: CodeType, ran: Ran) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Of this code and the code in it that ran: the name and what is executed."""
    within = [each for each in code.co_consts if isinstance(each, CodeType) and each.co_qualname in ran]
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
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


class _Executed(ast.NodeTransformer):
    """Takes out of the code of modules and classes what defines functions that were not called."""

    def __init__(self, ran: Ran, bare: bool) -> None:
        self.ran = ran
        self.bare = bare
        self.within = ""
        """The qualified name of the class and a dot."""
        self.strings = False
        """Annotations are strings."""
        self.taken_out = set[str]()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """The import, which may make annotations strings."""
        self.strings |= node.module == "__future__" and any(name.name == "annotations" for name in node.names)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self.within = self.within, f"{self.within}{node.name}."
        self.generic_visit(node)
        self.within = outer
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST | None:
        """None if it can be taken out: it was not called, and its definition does nothing but bind its name."""
        marks = {_root(each) for each in node.decorator_list}
        defaults = [each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None]
        calls = any(isinstance(each, ast.Call) for default in defaults for each in ast.walk(default))
        # A special method counts where it is not called, too: the interpreter asks whether there is one.
        called = f"{self.within}{node.name}" in self.ran or node.name.startswith("__")
        marking = all(mark in _MARKS or f"{self.within}{mark}" in self.taken_out for mark in marks)
        if marks == {"overload"} or (marking and not called and not calls):
            self.taken_out.add(f"{self.within}{node.name}")
            return None
        if self._are_hidden() if not self.strings else self.bare and not marks:
            node.returns = None
            for each in ast.walk(node.args):
                if isinstance(each, ast.arg):
                    each.annotation = None
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Without the annotation, if that was not evaluated: a class may be made of it."""
        if self.strings or not self._are_hidden():
            return node
        return None if node.value is None else ast.Assign([node.target], node.value)

    def visit_If(self, node: ast.If) -> ast.AST:
        """Without what is for type checkers alone."""
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            node.body = []
        return self.generic_visit(node)

    def _are_hidden(self) -> bool:
        """Whether annotations in this scope were not evaluated."""
        return self.ran.deferred and f"{self.within}__annotate__" not in self.ran


def _root(decorator: ast.expr) -> str:
    """The name that a decorator begins with; of `typing.overload` the last one."""
    while isinstance(decorator, (ast.Attribute, ast.Call)):
        if isinstance(decorator, ast.Attribute) and decorator.attr == "overload":
            return decorator.attr
        decorator = decorator.func if isinstance(decorator, ast.Call) else decorator.value
    return decorator.id if isinstance(decorator, ast.Name) else ""


def _without_lines(tree: ast.Module, bare: bool) -> ast.Module:
    """The tree as if it stood on one line, if `bare` without docstrings; where nothing is left, `pass` does."""
    for node in ast.walk(tree):
        for place in node._attributes:
            vars(node).pop(place, None)
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        while bare and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            del body[0]
        if not body:
            body.append(ast.Pass())
    return ast.fix_missing_locations(tree)
