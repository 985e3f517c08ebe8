"""What the interpreter executes of two sources: which differences count, given what was called."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_ftgate.features.unchanged.code import MODULE, differing, parts


class Case(NamedTuple):
    """Two sources, what was called of either, and the parts that differ."""

    changed: str
    reference: str
    called: str = "f"
    differs: tuple[str, ...] = ()


def found(case: Case) -> list[str]:
    ran = {MODULE, *case.called.split()}
    sources = (textwrap.dedent(source).encode() for source in (case.changed, case.reference))
    return differing(*(parts(source, ran) for source in sources))


MODULE_DIFFERS = (MODULE,)

SAME = {
    "a comment": Case("def f(): return 1\n", "# why\n\ndef f():\n    return 1  # one\n"),
    "the layout": Case("def f(): return g(1, 2), 'a' 'b'\n", 'def f():\n    return (\n g(1,\n 2), "ab")\n'),
    "the layout of loops": Case(
        "def f():\n while True:\n  if x: pass\n  else: continue\n",
        "def f():\n while True:\n  if x:\n   pass\n  else:\n   continue\n",
    ),
    "a string that is no docstring": Case("x = 1\n", 'x = 1\n"""Why."""\n'),
    "a constant that is computed": Case("def f(): return 60 * 60\n", "def f(): return 3600\n"),
    "a constant of many digits": Case(f"def f(): return {10**5000:#x}\n", f"def f(): return 0X{10**5000:x}\n"),
    "a new function": Case("def f(): return 1\n", "def g(a, b=1): return a\n\ndef f(): return 1\n"),
    "a new coroutine": Case("def f(): return 1\n", "async def g(): pass\n\ndef f(): return 1\n"),
    "a function that is not called": Case(
        "def f(): return 1\ndef g(): return 1\n", "def f(): return 1\ndef g(a): return 2\n"
    ),
    "its decorated kin": Case(
        "class A:\n def f(self): return 1\n",
        """
        class A:
            @property
            def g(self): return self._g
            @g.setter
            def g(self, value): self._g = value
            @staticmethod
            def h(): pass
            def f(self): return 1
        """,
        "A A.f",
    ),
    "a test beside": Case(
        "@ftgate.compare(threads)\ndef test_f(worker): f()\n",
        """
        @ftgate.compare(threads)
        def test_f(worker): f()
        @ftgate.compare(threads, processes=["fork"])
        def test_g(worker): f()
        @test_g.check
        def check_g(results): assert results
        """,
        "f test_f",
    ),
    "a method under an if": Case(
        "if x:\n def g(): pass\ndef f(): pass\n", "if x:\n def g(): return 2\ndef f(): pass\n"
    ),
    "a nested function that never ran": Case(
        "def f(a):\n def g(): return 1\n return a\n", "def f(a):\n def g(): return 2\n return a\n"
    ),
    "annotations in a function": Case("def f():\n a = 1\n return a\n", "def f():\n a: int = 1\n return a\n"),
    "annotations of a function that is not called": Case(
        "def f(): pass\n", "def g(a: int) -> str: return a\ndef f(): pass\n"
    ),
}

DIFFERENT = {
    "a string": Case("def f(): return 'a'\n", "def f(): return 'b'\n", differs=("f()",)),
    "a kind of number": Case("def f(): return 1\n", "def f(): return 1.0\n", differs=("f()",)),
    "a truth": Case("def f(): return (1, 2)\n", "def f(): return (True, 2)\n", differs=("f()",)),
    "a sign": Case("def f(): return 0.0\n", "def f(): return -0.0\n", differs=("f()",)),
    "a set": Case("def f(a): return a in {1, 2}\n", "def f(a): return a in {1, 2.0}\n", differs=("f()",)),
    "a digit of many": Case(f"x = {10**5000:#x}\n", f"x = {10**5000 + 1:#x}\n", differs=MODULE_DIFFERS),
    "a name": Case("def f(): return a\n", "def f(): return b\n", differs=("f()",)),
    "a jump": Case("def f(a):\n if a: return 1\n", "def f(a):\n if not a: return 1\n", differs=("f()",)),
    "what is caught": Case("def f():\n try: g()\n finally: h()\n", "def f():\n g()\n h()\n", differs=("f()",)),
    "a generator": Case("def f(): return 1\n", "def f():\n return 1\n yield\n", differs=("f()",)),
    "a cell": Case("def f(a):\n def g(): return 1\n", "def f(a):\n def g(): return a\n", differs=("f()",)),
    "a nested function that ran": Case(
        "def f():\n def g(): return 1\n return g()\n",
        "def f():\n def g(): return 2\n return g()\n",
        "f f.<locals>.g",
        ("f.<locals>.g()",),
    ),
    "a comprehension": Case("def f(a): return [x for x in a]\n", "def f(a): return [x + 1 for x in a]\n"),
    "a generator expression": Case(
        "def f(a): return sum(x for x in a)\n",
        "def f(a): return sum(x + 1 for x in a)\n",
        "f f.<locals>.<genexpr>",
        ("f.<locals>.<genexpr>()",),
    ),
    "a docstring, which may be a grammar": Case(
        "def f(p):\n 'sum : sum PLUS term'\n", "def f(p):\n 'sum : term PLUS sum'\n", differs=("f()",)
    ),
    "a docstring of a class": Case("class A:\n 'Usage: a'\n", "class A:\n 'Usage: b'\n", "A", ("the class A",)),
    "a docstring of a module": Case("'Usage: a'\n", "'Usage: b'\n", differs=MODULE_DIFFERS),
    "a lambda that never ran": Case(
        "def f(a): return a or (lambda: 1)\n", "def f(a): return a or (lambda: 2)\n", differs=("f.<locals>.<lambda>()",)
    ),
    "a lambda": Case("f = lambda: 1\ng = lambda: 2\n", "f = lambda: 1\ng = lambda: 3\n", "<lambda>", ("<lambda>()",)),
    "a default": Case("def f(a=1): return a\n", "def f(a=2): return a\n", differs=MODULE_DIFFERS),
    "a default that is computed": Case(
        "def f(): pass\n", "def g(a=h()): pass\ndef f(): pass\n", differs=MODULE_DIFFERS
    ),
    "a decorator": Case("def f(): return 1\n", "@cache\ndef f(): return 1\n", differs=MODULE_DIFFERS),
    "an argument of a mark that is computed": Case(
        "@pytest.mark.parametrize('n', made(1))\ndef test_g(n): pass\ndef f(): pass\n",
        "@pytest.mark.parametrize('n', made(9))\ndef test_g(n): pass\ndef f(): pass\n",
        differs=MODULE_DIFFERS,
    ),
    "a decorator of what is not called": Case(
        "def f(): pass\n", "@register\ndef g(): pass\ndef f(): pass\n", differs=MODULE_DIFFERS
    ),
    "a decorator that has a neighbour's name": Case(
        "class B:\n def f(self): pass\n",
        "class A:\n def register(self): pass\nclass B:\n @register\n def g(self): pass\n def f(self): pass\n",
        "A B B.f",
    ),
    "a class body": Case("class A:\n x = 1\n", "class A:\n x = 2\n", "A", ("the class A",)),
    "a base": Case("class A(B): pass\n", "class A(C): pass\n", "A", MODULE_DIFFERS),
    "a special method": Case(
        "class A: pass\n", "class A:\n def __getattr__(self, name): pass\n", "A", ("the class A",)
    ),
    "a new class": Case("def f(): pass\n", "class A: pass\ndef f(): pass\n", "f A", ("the class A",)),
    "an order": Case("a()\nb()\n", "b()\na()\n", differs=MODULE_DIFFERS),
    "a constant": Case("SIZE = 1\ndef f(): return SIZE\n", "SIZE = 2\ndef f(): return SIZE\n", differs=MODULE_DIFFERS),
    "a function that is gone": Case("def f(): return 1\n", "", differs=("f()",)),
    "annotations": Case("def f(a: int): return a\n", "def f(a: str): return a\n"),
    "annotations that are strings": Case("def f(a: 'int'): return a\n", "def f(a: 'str'): return a\n"),
    "an annotation that calls something": Case(
        "def f(): pass\n", "def g(a: made(1)): pass\ndef f(): pass\n", differs=MODULE_DIFFERS
    ),
    "a field of a class": Case("class A:\n x: int\n", "class A:\n x: int\n y: int\n", "A"),
    "an overload": Case("def f(a): return a\n", "@overload\ndef f(a: int) -> int: ...\ndef f(a): return a\n"),
    "an import": Case("def f(): pass\n", "import a\ndef f(): pass\n", differs=MODULE_DIFFERS),
    "no Python": Case("x = (\n", "x = (  # open\n", differs=MODULE_DIFFERS),
    "another encoding": Case("# coding: latin-1\nx = 'é'\n", "# coding: utf-8\nx = 'é'\n", differs=MODULE_DIFFERS),
}


@pytest.mark.parametrize("case", SAME.values(), ids=SAME)
def test_what_is_not_executed_is_no_difference(case: Case) -> None:
    assert case.changed != case.reference
    assert found(case) == []
    assert found(case._replace(changed=case.reference, reference=case.changed)) == []


@pytest.mark.parametrize("case", DIFFERENT.values(), ids=DIFFERENT)
def test_what_is_executed_is_one_and_has_a_name(case: Case) -> None:
    differs = found(case)
    assert differs
    assert differs == list(case.differs or differs)
    assert sorted(found(case._replace(changed=case.reference, reference=case.changed))) == sorted(differs)


def test_of_all_functions_those_that_differ_are_known() -> None:
    sources = (b"def f(): return 1\ndef g(): return 1\n", b"def f(): return 1\ndef g(): return 2\ndef h(): pass\n")
    assert differing(*(parts(source, None) for source in sources)) == ["g()", "h()"]


def test_a_source_for_a_later_python_counts_as_it_is() -> None:
    source = b"def f[T](a: T): return (yield from a, ) in ~\n"
    ran = {MODULE}
    assert differing(parts(source, ran), parts(source, ran)) == []
    assert differing(parts(source, ran), parts(source + b"# more", ran)) == [MODULE]


def test_the_standard_library_is_the_same_as_itself_with_a_comment() -> None:
    """Sources with everything in them: whatever ran, lines do not count."""
    for module in (textwrap, subprocess, pytest):
        source = Path(str(module.__file__)).read_bytes()
        moved = source.replace(b"\n\n\ndef ", b"\n\n# a comment\n\n\ndef ")
        assert moved != source or module is pytest
        for ran in (set[str](), None):
            assert differing(parts(source, ran), parts(moved, ran)) == []
