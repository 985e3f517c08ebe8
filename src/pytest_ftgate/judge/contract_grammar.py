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

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn, TypeAlias, get_args

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
SCALINGS = ("scaling", "efficiency", "ceiling")
KINDS: tuple[str, ...] = get_args(ExecutorKind)
METHODS: tuple[str, ...] = get_args(StartMethod)
COMPARISONS = ("<", "<=", ">", ">=", "==")
LONGEST = 400
DEEPEST = 40
"""Limits of a contract's length and depth, far below the interpreter's recursion limit."""


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


# ---- tokens


class Token(NamedTuple):
    """A piece of an expression; `kind` is number, name, brackets (with what is between them), sign, or end."""

    kind: str
    text: str
    at: int


_TOKEN = re.compile(
    r"(?P<number>(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<sign><=|>=|==|[-+*/()<>%.])"
)
_WORKERS = re.compile(r"w([0-9]+|cores)")
_ROLE = re.compile(r"[^\W\d]\w*[0-9]")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)[:=](?!\\)(.*)", re.ASCII)
_TARGET = re.compile(r"[0-9]|.*[/\\]|~", re.DOTALL)
VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?t?(?:\[.*\])?|.*[/\\].*|~.*", re.DOTALL)
"""A word that can only be a target: a program may be called `2x5`."""


def _tokens(text: str) -> Iterator[Token]:
    """All tokens and the end. Raises ContractError."""
    if len(text) > LONGEST:
        raise ContractError(f"a contract has at most {LONGEST} characters, this one {len(text)}", text[:40] + "...", 40)
    at = 0
    while at < len(text):
        if text[at] == "[":  # up to the bracket that closes it: a target has brackets of its own
            depths = itertools.accumulate({"[": 1, "]": -1}.get(char, 0) for char in text[at:])
            length = next((count for count, depth in enumerate(depths, 1) if not depth), None)
            if length is None:
                raise ContractError("this bracket is never closed", text, at)
            token = Token("brackets", text[at : at + length], at)
        elif match := _TOKEN.match(text, at):
            token = Token(match.lastgroup or "", match[0], at)
        elif text[at] in "=!\u2264\u2265\u2260":
            raise ContractError(f"a comparison is {listed(COMPARISONS)}", text, at)
        elif not text[at].isspace():
            raise ContractError(f"{text[at]!r} has no meaning here", text, at)
        else:
            at += 1
            continue
        yield token
        at += len(token.text)
    yield Token("end", "", len(text.rstrip()))


# ---- parsing


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.next = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def fail(self, problem: str, at: int) -> NoReturn:
        raise ContractError(problem, self.text, at)

    def taken(self, *texts: str) -> Token | None:
        """The current token if it is a sign among `texts`, which is then consumed; else None."""
        token = self.token
        if token.kind != "sign" or token.text not in texts:
            return None
        self.next += 1
        return token

    def contract(self) -> Contract:
        left = self.sum()
        comparison = self.taken(*COMPARISONS)
        if comparison is None:
            self.fail(f"expected {listed(COMPARISONS)}", self.token.at)
        if comparison.text == "==":  # only the GIL is compared with `on` and `off`
            if not isinstance(left, Name) or left.metric != "gil":
                self.fail("== is for the GIL alone: measured figures are never equal; write <= or >=", comparison.at)
            word = self.token
            if word.text not in ("on", "off"):
                self.fail("the GIL is on or off", word.at)
            self.next += 1
            right: Node = Number(value=float(word.text == "on"), dimension=PLAIN, at=word.at)
        else:
            right = self.sum()
        if self.token.kind != "end":
            more = self.token.text in COMPARISONS
            self.fail("a contract has one comparison" if more else "expected an operator or the end", self.token.at)
        return Contract(text=self.text, left=left, operator=comparison.text, right=right)

    def sum(self) -> Node:
        return self.chain(self.product, "+", "-")

    def product(self) -> Node:
        return self.chain(self.part, "*", "/")

    def chain(self, part: Callable[[], Node], *operators: str) -> Node:
        left = part()
        while operator := self.taken(*operators):
            left = Operation(operator=operator.text, left=left, right=part(), at=operator.at)
        return left

    def part(self) -> Node:
        token = self.token
        self.next += token.kind != "end"
        if token.kind == "number":
            return self.number(token)
        if token.kind == "name":
            return self.name(token)
        if token.text != "(":
            self.fail("expected a metric, a number or a parenthesis", token.at)
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail("these parentheses are too deep", token.at)
        inner = self.sum()
        if not self.taken(")"):
            self.fail("expected )", self.token.at)
        self.depth -= 1
        return inner

    def number(self, token: Token) -> Number:
        unit, (size, dimension) = self.token, (1.0, PLAIN)
        if unit.text in UNITS:
            self.next += 1
            size, dimension = UNITS[unit.text]
        try:
            value = size * float(token.text)
        except ValueError:  # `1__0` matches the pattern
            value = math.inf
        if unit.kind == "name" and unit.text not in UNITS:
            if unit.text in (*METRICS, *OWN, *KINDS):
                self.fail(f"expected an operator such as * before {unit.text}", unit.at)
            units = f"{ITS_UNITS[TIME]}, {ITS_UNITS[SIZE]}".replace(" or", ",")
            near = did_you_mean(unit.text, list(UNITS))
            self.fail(f"{unit.text!r} is not a unit{near}; use {units} or %", unit.at)
        if not math.isfinite(value):
            self.fail(f"{token.text} is not a finite number", token.at)
        return Number(value=value, dimension=dimension, at=token.at)

    # -- names

    def name(self, token: Token) -> Name:
        """`wall`, `threads.wall` or `processes[spawn, w8].wall`, whose first word is `token`."""
        bare = self.token.kind != "brackets" and self.token.text != "."
        if bare or token.text in OWN:
            return Name(metric=self.metric(token), where=None, at=token.at, columns={})
        if token.text not in KINDS:
            self.fail(self.no_executor(token.text), token.at)
        fields: dict[str, str] = {}
        columns = {"kind": token.at}
        if self.token.kind == "brackets":
            for item, at in self.items(self.token):
                field, value = self.qualifier(token.text, item, at)
                if field in fields:
                    second = f"is a second {FIELDS[field]}" if field in FIELDS else "stands there twice"
                    self.fail(f"{item} {second}; one is enough", at)
                fields[field], columns[field] = value, at
            self.next += 1
        if not self.taken("."):
            self.fail(f"expected . and a metric, as in {token.text}.wall", self.token.at)
        metric = self.token
        if metric.kind != "name":
            self.fail(f"expected a metric: {metrics.WHICH}", metric.at)
        self.next += 1
        roles, words, variables = (
            tuple(value for field, value in fields.items() if field.startswith(kind))
            for kind in ("role ", "word ", "variable ")
        )
        workers = fields.get("workers", "cores")
        where = Where(
            kind=token.text,
            method=fields.get("method"),
            workers=None if workers == "cores" else int(workers),
            cores=fields.get("workers") == "cores",
            target=fields.get("target"),
            roles=roles,
            words=words,
            variables=variables,
        )
        return Name(metric=self.metric(metric), where=where, at=token.at, columns=columns)

    def metric(self, token: Token) -> str:
        word = token.text
        if word in OWN:  # `timer.ack_wait`, a metric of the workload's own
            if not self.taken("."):
                self.fail(f"say which {word}: {word}.NAME, as the workload calls it", token.at)
            name = self.token
            if name.kind != "name":
                self.fail(f"expected the name of a {word}", name.at)
            self.next += 1
            return f"{word}.{name.text}"
        if word in KINDS:
            self.fail(f"{word} is an executor: say which of its figures, as in {word}.wall", token.at)
        if word in METHODS:
            self.fail(self.no_executor(word), token.at)
        if word not in METRICS:
            near = did_you_mean(word, [*METRICS, *OWN, *KINDS])
            self.fail(f"{word!r} is not a metric{near}; {metrics.WHICH}", token.at)
        return word

    @staticmethod
    def no_executor(word: str) -> str:
        if word in METHODS:
            return f"{word} is a start method: write processes[{word}].wall"
        near = did_you_mean(word, KINDS)
        of_program = "" if near else f" (a program's name stands in brackets: command[{word}].wall)"
        return f"{word!r} is not an executor{near}; there are {listed(KINDS)}{of_program}"

    def items(self, brackets: Token) -> Iterator[tuple[str, int]]:
        """The comma-separated items of a pair of brackets, each with its column."""
        inner, depth, begin = brackets.text[1:-1] + ",", 0, 0
        for place, char in enumerate(inner):
            depth += {"[": 1, "]": -1}.get(char, 0)
            if char == "," and not depth:
                piece = inner[begin:place]
                yield piece.strip(), brackets.at + 1 + begin + len(piece) - len(piece.lstrip())
                begin = place + 1

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


FIELDS: Final = {"method": "start method", "workers": "worker count", "target": "target"}


def dimension_of(metric: str) -> Dimension:
    """The dimension of a metric of the table, or of one of the workload's own."""
    return METRICS[metric] if metric in METRICS else OWN[metric.partition(".")[0]]


@lru_cache  # asked for after each round
def parse(text: str) -> Contract:
    """The contract that `text` spells. Raises ContractError, which points at the column."""
    contract = _Parser(text).contract()
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
