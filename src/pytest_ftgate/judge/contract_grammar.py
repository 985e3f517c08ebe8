"""The grammar of contracts, and the dimensions of their terms. Nothing is ever evaluated as Python. Pure.

contract   = sum ("<" | "<=" | ">" | ">=") sum | [cell] "gil" "==" ("on" | "off")
sum        = product {("+" | "-") product}
product    = part {("*" | "/") part}
part       = number [unit] | [cell] metric | "(" sum ")"
metric     = word | ("timer" | "counter" | "peak") "." name in the workload
cell       = executor ["[" qualifier {"," qualifier} "]"] "."
qualifier  = start method | "w" worker count | "wcores" | role with its worker count | program's name | target
           | variable (":" | "=") value
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NoReturn, TypeAlias, get_args

from ..kit.errors import FtgateError
from ..kit.text import did_you_mean, listed
from ..kit.values import Metric, Struct
from ..model.spec import ExecutorKind
from ..runner.signatures import StartMethod
from . import metrics
from .limits import SIZES_BYTES, TIMES_S

Dimension: TypeAlias = tuple[int, int]
"""Powers of time and of bytes."""
PLAIN: Final = (0, 0)
TIME: Final = (1, 0)
SIZE: Final = (0, 1)
NAMED: Final[Mapping[Dimension, str]] = {PLAIN: "a plain number", TIME: "a time", SIZE: "a size"}
ITS_UNITS: Final[Mapping[Dimension, str]] = {TIME: "ns, us, ms or s", SIZE: "B, KB, KiB, MB, MiB, GB or GiB"}
UNITS: Final[Mapping[str, tuple[float, Dimension]]] = {
    **{unit: (size, TIME) for unit, size in TIMES_S.items()},
    **{unit: (size, SIZE) for unit, size in SIZES_BYTES.items()},
    "%": (0.01, PLAIN),
}
_DIMENSIONS: Final[Mapping[metrics.Unit, Dimension]] = {
    "time": TIME,
    "size": SIZE,
    "share": PLAIN,
    "ratio": PLAIN,
    "number": PLAIN,
}
METRICS: Final[Mapping[str, Dimension]] = {row.name: _DIMENSIONS[row.unit] for row in metrics.TABLE.values()} | {
    Metric.CEILING.value: PLAIN,
    "gil": PLAIN,
}
OWN: Final[Mapping[str, Dimension]] = {kind: _DIMENSIONS[own.unit] for kind, own in metrics.OWN.items()}
PROGRAMS = ("command", "server")
"""Kinds of executors whose cells have a program's name."""
NAMED_KINDS = ("executor", "tasks")
"""Their brackets may hold the name of a factory in the test."""
SHARES = tuple(row.name for row in metrics.TABLE.values() if row.unit == "share")
SCALINGS = ("scaling", "efficiency", "ceiling", "lock_ceiling")
KINDS: tuple[str, ...] = get_args(ExecutorKind)
METHODS: tuple[str, ...] = get_args(StartMethod)
COMPARISONS = ("<", "<=", ">", ">=", "==")
LONGEST = 400
"""A contract's length, far below what Python's parser and its limit of recursion take."""


class ContractError(FtgateError):
    """An expression that is not a contract, or does not fit its test.

    The text has three lines: what is wrong, the expression, and a caret under the place; `column` counts from 0.
    """

    def __init__(self, problem: str, expression: str, column: int) -> None:
        self.problem = problem
        self.expression = "".join(char if char.isprintable() else " " for char in expression)
        self.column = column
        super().__init__(f"{problem}\n  {self.expression}\n  {' ' * column}^")


class Where(Struct, frozen=True, kw_only=True):
    """The cell that a metric is of; None leaves a part to the cell at hand, and a method to the only one there is.

    `roles` are words such as `writer4`. `words` are the words in the brackets of a program: its name, target, or both.
    `cores` is set by `wcores`. `variables` are environment variables as in the ids of cells: `OMP_NUM_THREADS:1`.
    """

    kind: str
    method: str | None = None
    workers: int | None = None
    cores: bool = False
    target: str | None = None
    roles: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


class Number(Struct, frozen=True, kw_only=True):
    """A number in base units (s, bytes), at its column."""

    value: float
    dimension: Dimension
    at: int


class Name(Struct, frozen=True, kw_only=True):
    """A metric of a named cell or of the cell at hand; `columns` maps each part of `where` to its column."""

    metric: str
    where: Where | None
    at: int
    columns: Mapping[str, int]


class Operation(Struct, frozen=True, kw_only=True):
    """Two parts with an operator between them."""

    operator: str
    left: Node
    right: Node
    at: int


Node: TypeAlias = Number | Name | Operation


class Contract(Struct, frozen=True, kw_only=True):
    """A comparison of two sums, checked for its dimensions. Of `gil == off` the right side is 0, of `gil == on` 1."""

    text: str
    left: Node
    operator: str
    right: Node

    @property
    def is_gil(self) -> bool:
        """Whether it is about the GIL, whose state is known exactly and needs no statistical test."""
        return self.operator == "=="


# ---- the text

_WORD = r"[^\W\d]\w*"
_OURS = "|".join((*METRICS, *OWN, *KINDS))
_PIECE = re.compile(
    r"(?P<number>(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    rf"(?:\s*(?P<unit>%|(?!(?:{_OURS})\b){_WORD}))?"
    rf"|(?P<first>{_WORD})"
    r"(?:\s*(?P<brackets>\[(?:[^\[\]]|\[[^\[\]]*\])*\]))?"  # a target has brackets of its own: `[3.14t[gil=on]]`
    rf"(?P<dotted>(?:\s*\.\s*{_WORD})*(?:\s*\.)?)"
)
"""A number with its unit, or a name with its cell."""
_COMPARING = "=!\u2264\u2265\u2260"
_UNREADABLE = re.compile(r"(?<![<>=])=(?!=)|[^N_ ()<>=*/+-]")
_MISPLACED = re.compile(r"(?:^|[-+*/(]|[<>]=?+|==)\s*(?P<part>[-+*/<>=)]|$)|[N_)]\s*(?P<sign>[N(])")
"""What is wrong once numbers and names are replaced: characters, then the order of names and signs."""
_SIGN = re.compile(r"[-+*/<>=]+")
_STATE = re.compile(r"\s*(on|off)\b\s*")
_WORDS = re.compile(_WORD)
_COMMA = re.compile(r",(?![^\[\]]*\])")
_WORKERS = re.compile(r"w([0-9]+|cores)")
_ROLE = re.compile(r"[^\W\d]\w*[0-9]")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)[:=](?!\\)(.*)", re.ASCII)
_TARGET = re.compile(r"[0-9]|.*[/\\]|~", re.DOTALL)
VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?t?(?:\[.*\])?|.*[/\\].*|~.*", re.DOTALL)
"""A word that can only be a target: a program may be called `2x5`."""
FIELDS: Final = {"method": "start method", "workers": "worker count", "target": "target"}
"""The parts of a cell that stand once in its brackets."""


class _Reader:
    """Reads an expression: `ast` parses it once each number and each name is replaced by a plain name."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            too_long = f"a contract has at most {LONGEST} characters, this one {len(text)}"
            raise ContractError(too_long, f"{text[:40]}...", 40)
        self.text = text
        self.pieces = {piece.start(): piece for piece in _PIECE.finditer(text)}
        # Each by a name of its length, so that columns stay: `N___ < N____`.
        replaced = _PIECE.sub(lambda piece: "N".ljust(len(piece[0]), "_"), text)
        self.replaced = re.sub(r"\s", " ", replaced)

    def fail(self, problem: str, at: int) -> NoReturn:
        raise ContractError(problem, self.text, at)

    def next_at(self, at: int) -> int:
        """The column of what follows the blanks at a column."""
        return len(self.text) - len(self.text[at:].lstrip())

    def contract(self) -> Contract:
        tree = self.tree()
        if not isinstance(tree, ast.Compare) or tree.col_offset:  # none, or it is in parentheses
            self.node(tree)
            self.fail(f"expected {listed(COMPARISONS)}", len(self.text))
        if len(tree.ops) > 1:
            self.fail("a contract has one comparison", self.sign_after(tree.comparators[0]).start())
        left, sign = self.node(tree.left), self.sign_after(tree.left)
        right = self.state(left, sign) if sign[0] == "==" else self.node(tree.comparators[0])
        return Contract(text=self.text, left=left, operator=sign[0], right=right)

    def state(self, left: Node, sign: re.Match[str]) -> Node:
        """What the GIL is compared with; nothing else is compared with `==`."""
        if not isinstance(left, Name) or left.metric != "gil":
            self.fail("== is for the GIL alone: measured figures are never equal; write <= or >=", sign.start())
        state = _STATE.match(self.text, sign.end())
        if state is None:
            self.fail("the GIL is on or off", self.next_at(sign.end()))
        if state.end() < len(self.text):
            self.fail("expected an operator or the end", state.end())
        return Number(value=float(state[1] == "on"), dimension=PLAIN, at=state.start(1))

    def tree(self) -> ast.expr:
        """What Python makes of the names, signs and parentheses."""
        # 1. What Python would say in other words, or would take.
        if wrong := _UNREADABLE.search(self.replaced):
            char, at = wrong[0], wrong.start()
            if char in _COMPARING:
                self.fail(f"a comparison is {listed(COMPARISONS)}", at)
            unclosed = char == "[" and "]" not in self.text[at:]
            self.fail("this bracket is never closed" if unclosed else f"{char!r} has no meaning here", at)
        if wrong := _MISPLACED.search(self.replaced):
            at = wrong.start(wrong.lastgroup or "")
            for piece in self.pieces.values():  # a word that means nothing is the nearer reason
                if piece.start() < at:
                    self.leaf(piece)
            if wrong["part"] is not None:
                self.fail("expected a metric, a number or a parenthesis", at)
            word = self.pieces[at]["first"] or self.pieces[at]["number"] if at in self.pieces else "("
            self.fail(f"expected an operator such as * before {word}", at)
        # 2. Names and signs alternate: only a parenthesis can be wrong.
        try:
            return ast.parse(self.replaced, mode="eval").body
        except SyntaxError as error:
            at = (error.offset or 1) - 1
            closes = self.replaced[at] == ")"
            self.fail("expected an operator or the end" if closes else "this parenthesis is never closed", at)

    def sign_after(self, left: ast.expr) -> re.Match[str]:
        sign = _SIGN.search(self.replaced, left.end_col_offset or 0)
        assert sign  # every part but the last has one
        return sign

    def node(self, tree: ast.expr) -> Node:
        if isinstance(tree, ast.Name):
            return self.leaf(self.pieces[tree.col_offset])
        if isinstance(tree, ast.Compare):
            self.fail("expected )", self.sign_after(tree.left).start())
        assert isinstance(tree, ast.BinOp), tree
        sign = self.sign_after(tree.left)
        return Operation(operator=sign[0], left=self.node(tree.left), right=self.node(tree.right), at=sign.start())

    def leaf(self, piece: re.Match[str]) -> Number | Name:
        return self.number(piece) if piece["number"] else self.name(piece)

    def number(self, piece: re.Match[str]) -> Number:
        """`20 ms`."""
        text, unit = piece["number"], piece["unit"]
        if unit and unit not in UNITS:
            units = f"{ITS_UNITS[TIME]}, {ITS_UNITS[SIZE]}".replace(" or", ",")
            self.fail(f"{unit!r} is not a unit{did_you_mean(unit, list(UNITS))}; use {units} or %", piece.start("unit"))
        size, dimension = UNITS[unit] if unit else (1.0, PLAIN)
        try:
            value = size * float(text)
        except ValueError:  # `1__0` matches the pattern
            value = math.inf
        if not math.isfinite(value):
            self.fail(f"{text} is not a finite number", piece.start())
        return Number(value=value, dimension=dimension, at=piece.start())

    def name(self, piece: re.Match[str]) -> Name:
        """`wall`, `threads.wall` or `processes[spawn, w8].timer.ack_wait`."""
        first, at, after = piece["first"], piece.start(), self.next_at(piece.end())
        words = [(word[0], word.start()) for word in _WORDS.finditer(self.text, *piece.span("dotted"))]
        dots = piece["dotted"].count(".")
        where, columns = None, dict[str, int]()
        if first in OWN or not (piece["brackets"] or dots):
            words.insert(0, (first, at))
        else:
            where, columns = self.where(piece)
            if not dots:
                self.fail(f"expected . and a metric, as in {first}.wall", after)
            if not words:
                self.fail(f"expected a metric: {metrics.WHICH}", after)
            dots -= 1
        metric, metric_at = words.pop(0)
        if metric in OWN and (dots or metric not in METRICS):  # of the workload's own; `peak` alone is a metric
            if not dots:
                self.fail(f"say which {metric}: {metric}.NAME, as the workload calls it", metric_at)
            if not words:
                self.fail(f"expected the name of a {metric}", after)
            metric, dots = f"{metric}.{words.pop(0)[0]}", dots - 1
        else:
            self.check_metric(metric, metric_at)
        if dots:
            self.fail("expected an operator or the end", words[0][1] if words else after)
        return Name(metric=metric, where=where, at=at, columns=columns)

    def check_metric(self, word: str, at: int) -> None:
        if word in KINDS:
            self.fail(f"{word} is an executor: say which of its figures, as in {word}.wall", at)
        if word in METHODS:
            self.fail(self.no_executor(word), at)
        if word not in METRICS:
            self.fail(f"{word!r} is not a metric{did_you_mean(word, [*METRICS, *OWN, *KINDS])}; {metrics.WHICH}", at)

    @staticmethod
    def no_executor(word: str) -> str:
        if word in METHODS:
            return f"{word} is a start method: write processes[{word}].wall"
        near = did_you_mean(word, KINDS)
        of_program = "" if near else f" (a program's name stands in brackets: command[{word}].wall)"
        return f"{word!r} is not an executor{near}; there are {listed(KINDS)}{of_program}"

    def where(self, piece: re.Match[str]) -> tuple[Where, dict[str, int]]:
        """The cell of a name, and the column of each of its parts."""
        kind = piece["first"]
        if kind not in KINDS:
            self.fail(self.no_executor(kind), piece.start())
        fields: dict[str, str] = {}
        columns = {"kind": piece.start()}
        begin = piece.start("brackets") + 1
        for written in _COMMA.split(piece["brackets"][1:-1]) if piece["brackets"] else ():
            item, at = written.strip(), begin + len(written) - len(written.lstrip())
            field, value = self.qualifier(kind, item, at)
            if field in fields:
                second = f"is a second {FIELDS[field]}" if field in FIELDS else "stands there twice"
                self.fail(f"{item} {second}; one is enough", at)
            fields[field], columns[field] = value, at
            begin += len(written) + 1
        roles, words, variables = (
            tuple(value for field, value in fields.items() if field.startswith(kind))
            for kind in ("role ", "word ", "variable ")
        )
        workers = fields.get("workers", "cores")
        where = Where(
            kind=kind,
            method=fields.get("method"),
            workers=None if workers == "cores" else int(workers),
            cores=fields.get("workers") == "cores",
            target=fields.get("target"),
            roles=roles,
            words=words,
            variables=variables,
        )
        return where, columns

    def qualifier(self, kind: str, item: str, at: int) -> tuple[str, str]:
        workers = _WORKERS.fullmatch(item)
        if workers:
            if workers[1].isdigit() and not int(workers[1]):
                self.fail("a cell has one worker at least", at)
            return "workers", workers[1]
        if item in METHODS:
            if kind != "processes":
                self.fail(f"{item} is a start method, which {kind} have not; it goes with processes", at)
            return "method", item
        variable = _VARIABLE.fullmatch(item)
        if variable:
            word = f"{variable[1]}:{variable[2]}"
            return f"variable {word}", word
        if kind in PROGRAMS and item:
            return f"word {item}", item.replace(" ", "")
        if kind in NAMED_KINDS and item and not _TARGET.match(item) and not (kind == "tasks" and _ROLE.fullmatch(item)):
            return "method", item
        if _ROLE.fullmatch(item):
            return f"role {item}", item
        if not _TARGET.match(item):
            known = METHODS if kind == "processes" else ()
            self.fail(
                f"expected {'a start method, ' if known else ''}a worker count such as w8, or a target such as 3.14t"
                f"{did_you_mean(item, known)}",
                at,
            )
        return "target", item.replace(" ", "")


def dimension_of(metric: str) -> Dimension:
    """The dimension of a metric of the table, or of one of the workload's own."""
    return METRICS[metric] if metric in METRICS else OWN[metric.partition(".")[0]]


@lru_cache  # asked for after each round
def parse(text: str) -> Contract:
    """The contract that `text` spells. Raises ContractError, which points at the column."""
    contract = _Reader(text.strip()).contract()
    if not all_names(contract):
        raise ContractError("it names no metric", contract.text, 0)
    if not contract.is_gil:
        left, right = (dimension_in(contract, side) for side in (contract.left, contract.right))
        problem = f"{_named(right)} cannot be compared with {_named(left)}"
        _check_alike(contract, (contract.left, left), (contract.right, right), _start(contract.right), problem)
        # What no measurement can decide.
        product, at = product_of(contract), _start(contract.right)
        if product is not None and not product[1]:
            raise ContractError("it compares a figure with itself", contract.text, at)
        if product is not None and not 0 < product[0] < math.inf:
            raise ContractError("its factors come to nothing that can be measured", contract.text, at)
    return contract


def keyword_text(metric: str, text: str) -> str:
    """The expression that a keyword means: `scaling=">= 1.6"`, `gil="off"`."""
    limit = text.strip()
    return f"{metric} {limit}" if limit.startswith(("<", ">", "=", "!")) else f"{metric} == {limit}"


# ---- dimensions


def dimension_in(contract: Contract, node: Node) -> Dimension:
    """The dimension of a part. Raises ContractError where there is none."""
    if isinstance(node, Number):
        return node.dimension
    if isinstance(node, Name):
        if node.metric == "gil":
            raise ContractError("the GIL is compared alone: gil == off", contract.text, node.at)
        return dimension_of(node.metric)
    left, right = dimension_in(contract, node.left), dimension_in(contract, node.right)
    if node.operator == "/" and _constant(node.right) == 0:
        raise ContractError("this divides by zero", contract.text, _start(node.right))
    constant = _constant(node)
    if constant is not None and not math.isfinite(constant):
        raise ContractError("this is not a finite number", contract.text, _start(node))
    if node.operator in "*/":
        sign = 1 if node.operator == "*" else -1
        return left[0] + sign * right[0], left[1] + sign * right[1]
    problem = f"{_named(left)} and {_named(right)} have no sum or difference"
    _check_alike(contract, (node.left, left), (node.right, right), node.at, problem)
    return left


def _check_alike(
    contract: Contract, left: tuple[Node, Dimension], right: tuple[Node, Dimension], at: int, problem: str
) -> None:
    """Raise ContractError if two parts are not of one dimension: for a number, with what it should be."""
    if left[1] == right[1]:
        return
    for (side, own), (_, wanted) in ((left, right), (right, left)):
        if not _names(side):
            at, problem = _start(side), f"expected {_named(wanted)}; this is {_named(own)}"
            if own == PLAIN and wanted in ITS_UNITS:
                problem = f"expected {NAMED[wanted]} with its unit: {ITS_UNITS[wanted]}"
            break
    raise ContractError(problem, contract.text, at)


def _named(dimension: Dimension) -> str:
    if dimension in NAMED:
        return NAMED[dimension]
    powers = [f"{unit}^{power}" for unit, power in zip(("s", "byte"), dimension, strict=True) if power]
    return f"a figure in {' '.join(powers)}"


def _start(node: Node) -> int:
    """The column of the first number or name of a part."""
    return min(node.at, _start(node.left)) if isinstance(node, Operation) else node.at


# ---- names and values of terms


def _names(node: Node) -> list[Name]:
    if isinstance(node, Operation):
        return _names(node.left) + _names(node.right)
    return [node] if isinstance(node, Name) else []


def all_names(contract: Contract) -> list[Name]:
    """The names on both sides of a contract."""
    return _names(contract.left) + _names(contract.right)


def number_of(node: Node, of: Callable[[Name], float]) -> float:
    """The value of a part, NaN if it divides by zero."""
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Name):
        return of(node)
    left, right = number_of(node.left, of), number_of(node.right, of)
    if node.operator == "+":
        return left + right
    if node.operator == "-":
        return left - right
    if node.operator == "*":
        return left * right
    return left / right if right else math.nan


def _constant(node: Node) -> float | None:
    """The value of a part without metrics; None for any other."""
    return None if _names(node) else number_of(node, lambda name: math.nan)


Term: TypeAlias = tuple[str, Where | None]
Product: TypeAlias = tuple[float, Mapping[Term, int]]
"""A factor, and the powers (none of them zero) of the metrics that it multiplies."""


def product_of(contract: Contract) -> Product | None:
    """Left over right, where both are plain products; None where one has a sum of metrics."""
    left, right = powers_of(contract.left), powers_of(contract.right)
    return _times(left, right, -1) if left and right else None


def powers_of(node: Node) -> Product | None:
    """A part as a constant times powers of names; None where it is a sum."""
    constant = _constant(node)
    if constant is not None:
        return constant, {}
    if isinstance(node, Name):
        return 1.0, {(node.metric, node.where): 1}
    if not isinstance(node, Operation) or node.operator in "+-":
        return None
    left, right = powers_of(node.left), powers_of(node.right)
    return _times(left, right, 1 if node.operator == "*" else -1) if left and right else None


def _times(left: Product, right: Product, sign: int) -> Product | None:
    if sign < 0 and not right[0]:
        return None
    powers = Counter(left[1])
    for term, power in right[1].items():
        powers[term] += sign * power
    factor = left[0] * right[0] if sign > 0 else left[0] / right[0]
    return factor, {term: power for term, power in powers.items() if power}
