"""Contracts: a small grammar over the figures of cells, and one number a round that says by how much one is broken.

    contract   = sum ("<" | "<=" | ">" | ">=") sum | cell "gil" "==" ("on" | "off")
    sum        = product {("+" | "-") product}
    product    = part {("*" | "/") part}
    part       = number [unit] | [cell] metric | "(" sum ")"
    metric     = word | ("timer" | "counter" | "peak") "." name of the workload's
    cell       = executor ["[" qualifier {"," qualifier} "]"] "."
    qualifier  = start method | "w" worker count | role with its worker count | program's name | target

Nothing is ever evaluated as Python. Pure.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final, Literal, NoReturn, TypeAlias, get_args

from pytest_ftgate import figures, stats
from pytest_ftgate.errors import FtgateError
from pytest_ftgate.model import (
    Cell,
    Decision,
    Executor,
    ExecutorKind,
    Latency,
    MemoryPoint,
    Metric,
    MetricVerdict,
    Program,
    Sample,
    Spec,
    StartMethod,
    Struct,
    Target,
    Turn,
    WaitsFor,
)
from pytest_ftgate.thresholds import SIZES_BYTES, TIMES_S, did_you_mean, listed, percent

Needed = Literal["time", "locks", "memory"]
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
METRICS: Final[Mapping[str, Dimension]] = {
    "wall": TIME,
    "tail": TIME,
    "cold": TIME,
    "start": TIME,
    "work": TIME,
    "join": TIME,
    "uss": SIZE,
    "pss": SIZE,
    "rss": SIZE,
    "lock_wait_share": PLAIN,
    "queue_wait_share": PLAIN,
    "scaling": PLAIN,
    "efficiency": PLAIN,
    "cores": PLAIN,
    "ops_per_s": PLAIN,
    "latency_mean": TIME,
    "latency_p50": TIME,
    "latency_p95": TIME,
    "latency_p99": TIME,
    "gil_wait_p95": TIME,
    "gil": PLAIN,
}
OWN: Final[Mapping[str, Dimension]] = {"timer": TIME, "counter": PLAIN, "peak": PLAIN}
"""What a workload measures of itself, under names of its own: a timer's mean, a counter per second, a peak."""
LATENCIES = ("latency_mean", "latency_p50", "latency_p95", "latency_p99")
PROGRAMS = ("command", "server")
"""Executors that have a name in the test."""
SHARES = ("lock_wait_share", "queue_wait_share")
SCALINGS = ("scaling", "efficiency")
KINDS: tuple[str, ...] = get_args(ExecutorKind)
METHODS: tuple[str, ...] = get_args(StartMethod)
COMPARISONS = ("<", "<=", ">", ">=", "==")
TAIL_QUANTILE = 0.9
NS_PER_S = 1e9
LONGEST = 400
DEEPEST = 40
"""Longer or deeper is no contract, and must not reach the limits of recursion."""


class ContractError(FtgateError):
    """An expression that is no contract, or none of its test.

    The text has three lines: what is wrong, the expression, and a caret under the place; `column` counts from 0.
    """

    def __init__(self, problem: str, expression: str, column: int) -> None:
        self.problem = problem
        self.expression = "".join(char if char.isprintable() else " " for char in expression)
        self.column = column
        super().__init__(f"{problem}\n  {self.expression}\n  {' ' * column}^")


class Where(Struct, frozen=True, kw_only=True):
    """The cell that a metric is of; None leaves a part to the cell at hand, and a method to the only one there is.

    `roles` are words such as `writer4`. `words` are what stands beside a program: its name, its target, or both.
    """

    kind: str
    method: str | None = None
    workers: int | None = None
    target: str | None = None
    roles: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


class Number(Struct, frozen=True, kw_only=True):
    """A number in base units (s, bytes), at its column."""

    value: float
    dimension: Dimension
    at: int


class Name(Struct, frozen=True, kw_only=True):
    """A metric, of a cell that is named or of the one at hand; `columns` are those of what `where` says."""

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
        """Whether it is about the GIL, which is told exactly and needs no test."""
        return self.operator == "=="


# ---- tokens


class Token(Struct, frozen=True, kw_only=True):
    """A piece of an expression; `kind` is number, name, brackets (with what is between them), sign, or end."""

    kind: str
    text: str
    at: int


_NUMBER = re.compile(r"(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[^\W\d]\w*")
_SIGN = re.compile(r"<=|>=|==|[-+*/()<>%.]")
_WORKERS = re.compile(r"w([0-9]+)")
_ROLE = re.compile(r"[^\W\d]\w*[0-9]")
_TARGET = re.compile(r"[0-9]|.*[/\\]|~", re.DOTALL)
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?t?(?:\[.*\])?|.*[/\\].*|~.*", re.DOTALL)
"""A target for sure: a program may be called `2x5`."""


def _tokens(text: str) -> list[Token]:
    """All tokens and the end. Raises ContractError."""
    if len(text) > LONGEST:
        raise ContractError(f"a contract has at most {LONGEST} characters, this one {len(text)}", text[:40] + "...", 40)
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found.append(_token(text, at))
        at += len(found[-1].text)
    return [*found, Token(kind="end", text="", at=len(text.rstrip()))]


def _token(text: str, at: int) -> Token:
    if text[at] == "[":
        return Token(kind="brackets", text=text[at : _closing(text, at) + 1], at=at)
    for kind, pattern in (("number", _NUMBER), ("name", _NAME), ("sign", _SIGN)):
        match = pattern.match(text, at)
        if match:
            return Token(kind=kind, text=match[0], at=at)
    if text[at] in "=!\u2264\u2265\u2260":
        raise ContractError(f"a comparison is {listed(COMPARISONS)}", text, at)
    raise ContractError(f"{text[at]!r} has no meaning here", text, at)


def _closing(text: str, at: int) -> int:
    """The bracket that closes the one at `at`: a target has brackets of its own."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"[": 1, "]": -1}.get(text[place], 0)
        if not depth:
            return place
    raise ContractError("this bracket is never closed", text, at)


# ---- parsing


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.next = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def fail(self, problem: str, at: int) -> NoReturn:
        raise ContractError(problem, self.text, at)

    def taken(self, *texts: str) -> Token | None:
        """The token at hand if it is a sign among `texts`, which is then behind."""
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
        right = self.switch(left, comparison) if comparison.text == "==" else self.sum()
        if self.token.kind != "end":
            more = self.token.text in COMPARISONS
            self.fail("a contract has one comparison" if more else "expected an operator or the end", self.token.at)
        return Contract(text=self.text, left=left, operator=comparison.text, right=right)

    def switch(self, left: Node, comparison: Token) -> Node:
        """`on` or `off`, with which the GIL alone is compared."""
        if not isinstance(left, Name) or left.metric != "gil":
            self.fail("== is for the GIL alone: measured figures are never equal; write <= or >=", comparison.at)
        word = self.token
        if word.text not in ("on", "off"):
            self.fail("the GIL is on or off", word.at)
        self.next += 1
        return Number(value=float(word.text == "on"), dimension=PLAIN, at=word.at)

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
        try:
            value = float(token.text)
        except ValueError:
            value = math.inf
        size, dimension = self.unit()
        if not math.isfinite(value * size):
            self.fail(f"{token.text} is no finite number", token.at)
        return Number(value=value * size, dimension=dimension, at=token.at)

    def unit(self) -> tuple[float, Dimension]:
        token = self.token
        if token.kind != "name" and token.text != "%":
            return 1.0, PLAIN
        if token.text not in UNITS:
            if token.text in (*METRICS, *OWN, *KINDS):
                self.fail(f"expected an operator such as * before {token.text}", token.at)
            self.fail(f"{token.text!r} is no unit{did_you_mean(token.text, list(UNITS))}; use {_all_units()}", token.at)
        self.next += 1
        return UNITS[token.text]

    # -- names

    def name(self, token: Token) -> Name:
        """`wall`, `threads.wall` or `processes[spawn, w8].wall`, whose first word is `token`."""
        bare = self.token.kind != "brackets" and self.token.text != "."
        if bare or token.text in OWN:
            return Name(metric=self.metric(token), where=None, at=token.at, columns={})
        if token.text not in KINDS:
            self.fail(self.no_executor(token.text), token.at)
        said: dict[str, str] = {}
        columns = {"kind": token.at}
        if self.token.kind == "brackets":
            for item, at in self.items(self.token):
                field, value = self.qualifier(token.text, item, at)
                if field in said:
                    second = f"is a second {FIELDS[field]}" if field in FIELDS else "stands there twice"
                    self.fail(f"{item} {second}; one is enough", at)
                said[field], columns[field] = value, at
            self.next += 1
        if not self.taken("."):
            self.fail(f"expected . and a metric, as in {token.text}.wall", self.token.at)
        metric = self.token
        if metric.kind != "name":
            self.fail(f"expected a metric: {_all_metrics()}", metric.at)
        self.next += 1
        return Name(metric=self.metric(metric), where=_where(token.text, said), at=token.at, columns=columns)

    def metric(self, token: Token) -> str:
        word = token.text
        if word in OWN:
            return self.own(token)
        if word in KINDS:
            self.fail(f"{word} is an executor: say which of its figures, as in {word}.wall", token.at)
        if word in METHODS:
            self.fail(self.no_executor(word), token.at)
        if word not in METRICS:
            near = did_you_mean(word, [*METRICS, *OWN, *KINDS])
            self.fail(f"{word!r} is no metric{near}; there are {_all_metrics()}", token.at)
        return word

    def own(self, token: Token) -> str:
        """`timer.ack_wait`, a metric of the workload's own."""
        if not self.taken("."):
            self.fail(f"say which {token.text}: {token.text}.NAME, as the workload calls it", token.at)
        name = self.token
        if name.kind != "name":
            self.fail(f"expected the name of a {token.text}", name.at)
        self.next += 1
        return f"{token.text}.{name.text}"

    @staticmethod
    def no_executor(word: str) -> str:
        if word in METHODS:
            return f"{word} is a start method: write processes[{word}].wall"
        near = did_you_mean(word, KINDS)
        of_program = "" if near else f" (a program's name stands in brackets: command[{word}].wall)"
        return f"{word!r} is no executor{near}; there are {listed(KINDS)}{of_program}"

    def items(self, brackets: Token) -> Iterator[tuple[str, int]]:
        """What stands between the commas of a pair of brackets, each with its column."""
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
            if not int(workers[1]):
                self.fail("a cell has one worker at least", at)
            return "workers", workers[1]
        if item in METHODS:
            if kind != "processes":
                self.fail(f"{item} is a start method, which {kind} have not; it goes with processes", at)
            return "method", item
        if kind in PROGRAMS and item:
            return f"word {item}", item.replace(" ", "")
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


def _where(kind: str, said: Mapping[str, str]) -> Where:
    """What the qualifiers of an executor say, by field."""
    return Where(
        kind=kind,
        method=said.get("method"),
        workers=int(said["workers"]) if "workers" in said else None,
        target=said.get("target"),
        roles=tuple(value for field, value in said.items() if field.startswith("role ")),
        words=tuple(value for field, value in said.items() if field.startswith("word ")),
    )


def _all_metrics() -> str:
    return listed([*METRICS, *(f"{kind}.NAME" for kind in OWN)])


def _dimension_of(metric: str) -> Dimension:
    return METRICS[metric] if metric in METRICS else OWN[metric.partition(".")[0]]


def _all_units() -> str:
    return f"{ITS_UNITS[TIME].replace(' or', ',')}, {ITS_UNITS[SIZE].replace(' or', ',')} or %"


def parse(text: str) -> Contract:
    """The contract that `text` spells. Raises ContractError, which points at the column."""
    contract = _Parser(text).contract()
    if not _all_names(contract):
        raise ContractError("it names no metric", contract.text, 0)
    if not contract.is_gil:
        _check_dimensions(contract)
        _check_sense(contract)
    return contract


def keyword_text(metric: str, text: str) -> str:
    """The expression that a keyword means: `scaling=">= 1.6"`, `gil="off"`."""
    said = text.strip()
    return f"{metric} {said}" if said.startswith(("<", ">", "=", "!")) else f"{metric} == {said}"


# ---- dimensions


def _check_dimensions(contract: Contract) -> None:
    left, right = (_dimension(contract, side) for side in (contract.left, contract.right))
    if left == right:
        return
    for side, other, own in ((contract.left, right, left), (contract.right, left, right)):
        if not _names(side):
            _fail_unit(contract, side, own, other)
    problem = f"{_named(right)} cannot be compared with {_named(left)}"
    raise ContractError(problem, contract.text, _start(contract.right))


def _dimension(contract: Contract, node: Node) -> Dimension:
    """The dimension of a part. Raises ContractError where there is none."""
    if isinstance(node, Number):
        return node.dimension
    if isinstance(node, Name):
        if node.metric == "gil":
            raise ContractError("the GIL is compared alone: gil == off", contract.text, node.at)
        return _dimension_of(node.metric)
    left, right = _dimension(contract, node.left), _dimension(contract, node.right)
    if node.operator == "/" and _constant(node.right) == 0:
        raise ContractError("this divides by zero", contract.text, _start(node.right))
    constant = _constant(node)
    if constant is not None and not math.isfinite(constant):
        raise ContractError("this is no finite number", contract.text, _start(node))
    if node.operator in "*/":
        sign = 1 if node.operator == "*" else -1
        return left[0] + sign * right[0], left[1] + sign * right[1]
    if left != right:
        for side, other, own in ((node.left, right, left), (node.right, left, right)):
            if not _names(side):
                _fail_unit(contract, side, own, other)
        problem = f"{_named(left)} and {_named(right)} have no sum or difference"
        raise ContractError(problem, contract.text, node.at)
    return left


def _fail_unit(contract: Contract, number: Node, own: Dimension, wanted: Dimension) -> NoReturn:
    """Complain about a number beside a metric of another dimension."""
    at = _start(number)
    if own == PLAIN and wanted in ITS_UNITS:
        raise ContractError(f"expected {NAMED[wanted]} with its unit: {ITS_UNITS[wanted]}", contract.text, at)
    raise ContractError(f"expected {_named(wanted)}; this is {_named(own)}", contract.text, at)


def _named(dimension: Dimension) -> str:
    if dimension in NAMED:
        return NAMED[dimension]
    powers = [f"{unit}^{power}" for unit, power in zip(("s", "byte"), dimension, strict=True) if power]
    return f"a figure in {' '.join(powers)}"


def _start(node: Node) -> int:
    """The column of the first number or name of a part."""
    return min(node.at, _start(node.left)) if isinstance(node, Operation) else node.at


# ---- what is named, and what it comes to


def _check_sense(contract: Contract) -> None:
    """Raise ContractError for a comparison that no measurement decides."""
    product = _product(contract)
    if product is not None and not product[1]:
        raise ContractError("it compares a figure with itself", contract.text, _start(contract.right))
    if product is not None and not 0 < product[0] < math.inf:
        raise ContractError("its factors come to nothing that can be measured", contract.text, _start(contract.right))


def _names(node: Node) -> list[Name]:
    """All metrics in a part, from the left."""
    if isinstance(node, Operation):
        return _names(node.left) + _names(node.right)
    return [node] if isinstance(node, Name) else []


def _all_names(contract: Contract) -> list[Name]:
    return _names(contract.left) + _names(contract.right)


def _value(node: Node, of: Callable[[Name], float]) -> float:
    """What a part comes to, NaN where it divides by zero."""
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Name):
        return of(node)
    left, right = _value(node.left, of), _value(node.right, of)
    if node.operator == "+":
        return left + right
    if node.operator == "-":
        return left - right
    if node.operator == "*":
        return left * right
    return left / right if right else math.nan


def _constant(node: Node) -> float | None:
    """What a part without metrics comes to; None for any other."""
    return None if _names(node) else _value(node, lambda name: math.nan)


Term: TypeAlias = tuple[str, Where | None]
Product: TypeAlias = tuple[float, Mapping[Term, int]]
"""A factor, and the powers (none of them zero) of the metrics that it stands before."""


def _product(contract: Contract) -> Product | None:
    """Left over right, where both are plain products; None where one has a sum of metrics."""
    left, right = _powers(contract.left), _powers(contract.right)
    return _times(left, right, -1) if left and right else None


def _powers(node: Node) -> Product | None:
    constant = _constant(node)
    if constant is not None:
        return constant, {}
    if isinstance(node, Name):
        return 1.0, {(node.metric, node.where): 1}
    if not isinstance(node, Operation) or node.operator in "+-":
        return None
    left, right = _powers(node.left), _powers(node.right)
    return _times(left, right, 1 if node.operator == "*" else -1) if left and right else None


def _times(left: Product, right: Product, sign: int) -> Product | None:
    if sign < 0 and not right[0]:
        return None
    powers = Counter(left[1])
    for term, power in right[1].items():
        powers[term] += sign * power
    factor = left[0] * right[0] if sign > 0 else left[0] / right[0]
    return factor, {term: power for term, power in powers.items() if power}


# ---- which cells


def check(contract: Contract, spec: Spec) -> None:
    """Raise ContractError where the test has not the cells that the contract is about."""
    for name in _all_names(contract):
        if name.where is not None:
            _check_where(contract, spec, name, name.where)
        if name.metric in SCALINGS and not (1 in spec.workers and max(spec.workers) > 1):
            problem = f"{name.metric} compares with the same cell with one worker: give the test workers=[1, 8]"
            raise ContractError(problem, contract.text, name.at)
    cells = _possible(contract, spec)
    for name in _all_names(contract):
        _check_metric(contract, name, cells)
    if not any(concerns(contract, cell, cells) for cell in cells):
        raise ContractError("it is about no cell of this test", contract.text, 0)


def _check_metric(contract: Contract, name: Name, cells: Sequence[Cell]) -> None:
    meant = [cell for cell in cells if name.where is None or _is(cell, name.where, cell)]
    if not meant or any(_has(cell, name.metric) for cell in meant):
        return
    whose = f"{_spelled(meant[0].executor)} has" if name.where else "the cells of this test have"
    raise ContractError(f"{whose} no {name.metric}: {_why_none(name.metric)}", contract.text, name.at)


def _why_none(metric: str) -> str:
    if metric in LATENCIES:
        return "it is of the answers of a server, see @ftgate.serve"
    if metric.partition(".")[0] in OWN:
        return "a server has no names of its own for what it does"
    if metric in SCALINGS:
        return "it is not told a number of workers"
    return "nobody can look into a program for it"


def _has(cell: Cell, metric: str) -> bool:
    """Whether there can be such a figure of the cell."""
    executor = cell.executor
    if metric in LATENCIES:
        return executor.kind == "server"
    if metric.partition(".")[0] in OWN:
        return executor.kind != "server"
    if metric in SHARES:
        return executor.program is None
    if metric in SCALINGS:
        return executor.program is None or executor.program.counted
    if metric == "gil":
        return executor.program is None
    return executor.kind != "command" or metric != "gil_wait_p95"


def _check_where(contract: Contract, spec: Spec, name: Name, where: Where) -> None:
    def fail(problem: str, field: str) -> NoReturn:
        raise ContractError(problem, contract.text, name.columns[field])

    of_kind = [executor for executor in spec.executors if executor.kind == where.kind]
    there = f"it has {_and(map(_spelled, spec.executors))}"
    if not of_kind:
        fail(f"the test does not run under {where.kind}: {there}", "kind")
    if where.kind in PROGRAMS:
        _check_program([executor.program for executor in of_kind if executor.program], spec, where, there, fail)
    elif where.method is None and len(of_kind) > 1:
        fail(f"which processes? {there}", "kind")
    if where.method is not None and where.method not in [executor.method for executor in of_kind]:
        fail(f"the test does not {where.method}: {there}", "method")
    if where.workers is not None and spec.workers.count(where.workers) > 1:
        fail(f"several cells have {where.workers} workers: name a role with its number", "workers")
    if where.workers is not None and where.workers not in spec.workers:
        fail(f"no cell has {where.workers} workers: there are {_and(spec.workers)}", "workers")
    if where.workers == 1 and name.metric in SCALINGS:
        fail(f"{name.metric} is of cells with more than one worker", "workers")
    if where.target is not None and spec.pythons is not None and not _among(where.target, spec.pythons):
        fail(f"the test is not measured on {where.target}: it is on {_and(spec.pythons)}", "target")
    counts = list(dict.fromkeys(f"{role}{count}" for crew in spec.crews for role, count in crew))
    for word in where.roles:
        if word not in counts:
            known = f"there are {_and(counts)}" if counts else "its workers have no roles; a worker count is w8"
            fail(f"no cell has {word}{did_you_mean(word, counts)}: {known}", f"role {word}")


def _check_program(
    programs: Sequence[Program], spec: Spec, where: Where, there: str, fail: Callable[[str, str], NoReturn]
) -> None:
    names = [program.name for program in programs]
    said = [word for word in where.words if word in names]
    others = [word for word in where.words if word not in names]
    for word in others:
        if not _VERSION.fullmatch(word):
            fail(f"the test has no {where.kind} {word!r}{did_you_mean(word, names)}: {there}", f"word {word}")
    if not said and len(names) > 1:
        fail(f"which {where.kind}? {there}", "kind")
    for second in (*said[1:], *others[1:]):
        fail(f"{second} is a second {'program' if second in said else 'target'}; one is enough", f"word {second}")
    program = next(each for each in programs if each.name in (said or names))
    if where.workers is not None and not program.counted:
        fail(f"{program.name} is not told a number of workers", "workers")
    if others and where.kind == "command":
        fail("a command has no target: it runs once, beside all of them", f"word {others[0]}")
    for known in (program.pythons, spec.pythons):
        if others and known is not None and not _among(others[0], known):
            fail(f"{program.name} is not measured on {others[0]}: it is on {_and(known)}", f"word {others[0]}")


def _among(target: str, specs: Iterable[str]) -> bool:
    return any(_same_target(target, spec) for spec in specs)


def _same_target(target: str, spec: str) -> bool:
    return target == spec.replace(" ", "")


def _spelled(executor: Executor) -> str:
    return executor.kind if executor.label == executor.kind else f"{executor.kind}[{executor.label}]"


def _and(words: Iterable[object]) -> str:
    texts = list(map(str, words))
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _possible(contract: Contract, spec: Spec) -> list[Cell]:
    """A cell of every kind that the test may have: its targets are the options' to choose where it names none."""
    programs = [executor.program for executor in spec.executors if executor.program]
    names = [program.name for program in programs]
    wheres = [name.where for name in _all_names(contract) if name.where]
    named = [word for where in wheres for word in (where.target or "", *where.words) if word and word not in names]
    own = [target for program in programs for target in program.pythons or ()]
    targets = list(spec.pythons) if spec.pythons is not None else [*named, *own, "3"]
    crews = spec.crews or ((),) * len(spec.workers)
    return [
        Cell(
            nodeid="",
            target=Target(spec=target, request=target),
            executor=executor,
            workers=workers,
            roles=roles,
            body="server" if executor.kind == "server" else "worker",
        )
        for target in dict.fromkeys(targets)
        for workers, roles in zip(spec.workers, crews, strict=True)
        for executor in spec.executors
        if executor.program is None or executor.program.pythons is None or _among(target, executor.program.pythons)
    ]


def concerns(contract: Contract, cell: Cell, cells: Iterable[Cell]) -> bool:
    """Whether the contract is judged at this cell, one of the `cells` of its test.

    A metric without a cell is of the cell at hand. Where all are named, the first of them is the cell at hand. What a
    name leaves open (workers, target, always the parameters) is as at hand; a command runs beside all targets. A
    contract is not judged where a cell is missing, nor where two names mean the same cell, nor where a cell has no such
    figure: one with one worker has no scaling, a command no GIL, and only servers have latencies.
    """
    return bool(involved(contract, cell, cells))


def absolute(contract: Contract) -> bool:
    """Whether it asks for a cell's own time, waits or rate, which what else runs on the machine moves.

    Neighbours in time see the same machine, and memory is what it is.
    """
    product = _product(contract)
    names = [name for name in _all_names(contract) if _dimension_of(name.metric) != SIZE]
    if contract.is_gil or not names or all(name.metric in SCALINGS for name in names):
        return False
    return product is None or sorted(product[1].values()) != [-1, 1]


def involved(contract: Contract, cell: Cell, cells: Iterable[Cell]) -> list[Cell]:
    """The cells that the contract compares when it is judged at this one; none where it is not, see `concerns`.

    Among them are the cells with one worker that a scaling refers to.
    """
    names, there = _all_names(contract), list(cells)
    if all(name.where is not None for name in names) and not _is(cell, names[0].where, cell):
        return []
    found = {name.where: _found(name.where, cell, there) for name in names}
    if any((of := found[name.where]) is None or not _has(of, name.metric) for name in names):
        return []
    meant = [other for other in found.values() if other is not None]
    alone = [_alone(found[name.where], there) for name in names if name.metric in SCALINGS]
    if any(meant.count(other) > 1 for other in meant) or None in alone:
        return []
    return [other for other in there if other in meant or other in alone]


def _is(cell: Cell, where: Where | None, hand: Cell) -> bool:
    """Whether a cell is the one that is meant when `hand` is at hand."""
    if where is None:
        return cell == hand
    return (
        cell.executor.kind == where.kind
        and where.method in (None, cell.executor.method)
        and _has_workers(cell, where, hand)
        and _is_on(cell, where, hand)
        and cell.params == hand.params
    )


def _has_workers(cell: Cell, where: Where, hand: Cell) -> bool:
    """Whether it has the workers that are said, the others as at hand."""
    program = cell.executor.program
    if where.workers is not None:
        return cell.workers == where.workers
    if program is not None and not program.counted:
        return True
    if not where.roles:
        return (cell.workers, cell.roles) == (hand.workers, hand.roles)
    open_ones = [role for role in cell.roles if f"{role[0]}{role[1]}" not in where.roles]
    return len(cell.roles) - len(open_ones) == len(where.roles) and all(role in hand.roles for role in open_ones)


def _is_on(cell: Cell, where: Where, hand: Cell) -> bool:
    """Whether its program and its target are those that are said; a command has no target, and one for a single target
    needs none said."""
    program = cell.executor.program
    targets = [where.target] if where.target else [word for word in where.words if not program or word != program.name]
    if cell.executor.kind == "command":
        return not targets
    if targets:
        return all(_same_target(target, cell.target.spec) for target in targets)
    alone = program is not None and program.pythons is not None and len(program.pythons) == 1
    return alone or _same_target(hand.target.spec.replace(" ", ""), cell.target.spec)


def _found(where: Where | None, hand: Cell, cells: Iterable[Cell]) -> Cell | None:
    return next((cell for cell in cells if _is(cell, where, hand)), None)


def _alone(cell: Cell | None, cells: Iterable[Cell]) -> Cell | None:
    """The same cell with one worker; None for that one itself, and where there is none."""
    if cell is None or cell.workers == 1:
        return None
    one = (cell.executor, cell.target, cell.params, 1)
    return next((other for other in cells if (other.executor, other.target, other.params, other.workers) == one), None)


# ---- values


def metrics_needed(contract: Contract) -> set[Needed]:
    """The kinds of launch that the contract needs."""
    return {_NEEDS.get(name.metric, "time") for name in _all_names(contract)}


_NEEDS: Final[Mapping[str, Needed]] = {
    "uss": "memory",
    "pss": "memory",
    "rss": "memory",
    "lock_wait_share": "locks",
    "queue_wait_share": "locks",
    "gil_wait_p95": "memory",
}


def values(contract: Contract, sample: Sample, samples: Iterable[Sample]) -> tuple[float, ...]:
    """One number a round, in their order, positive where the contract is broken in that round.

    It is log(left / right), or left - right in base units where a side may be zero or less: of shares, counters, peaks
    and waits for the GIL, and of anything that is subtracted; with > and >= its negative. Rounds in which any part has
    no value are left out. Where the time of two cells is compared, their ratio is the median of the ratios turn by
    turn, else each is its floor. `sample` is that of the cell at hand, among `samples` of its test. A contract about
    the GIL has no values, see `gil_verdict`.
    """
    if contract.is_gil:
        return ()
    sign = -1.0 if contract.operator in (">", ">=") else 1.0
    paired = _paired(contract, sample, list(samples))
    if paired is not None:
        return tuple(sign * value for value in paired)
    rounds = _rounds(contract, sample, samples)
    if _may_vanish(contract):
        return tuple(sign * (left - right) for left, right in rounds)
    known = ((left, right) for left, right in rounds if left > 0 and right > 0)
    return tuple(sign * (math.log(left) - math.log(right)) for left, right in known)


def _may_vanish(contract: Contract) -> bool:
    """Whether a side may be zero or less: by what it is made of, so that no later round changes what was looked at."""
    shares = any(
        name.metric in (*SHARES, "gil_wait_p95") or name.metric.startswith(("counter.", "peak."))
        for name in _all_names(contract)
    )
    return shares or any(map(_subtracts, (contract.left, contract.right)))


def _subtracts(node: Node) -> bool:
    if not isinstance(node, Operation):
        return False
    return node.operator == "-" or _subtracts(node.left) or _subtracts(node.right)


def sides(contract: Contract, sample: Sample, samples: Iterable[Sample]) -> tuple[float | None, float | None]:
    """The medians of left and right over the rounds, in base units (s, bytes); None without a round that has both."""
    rounds = [] if contract.is_gil else _rounds(contract, sample, samples)
    if not rounds:
        return None, None
    return median(left for left, _ in rounds), median(right for _, right in rounds)


def _paired(contract: Contract, sample: Sample, samples: Sequence[Sample]) -> list[float] | None:
    """The logs for a contract of the form A.wall < c B.wall; None for any other."""
    product = _product(contract)
    if product is None or product[0] <= 0 or sorted(product[1].values()) != [-1, 1]:
        return None
    (own, own_where), (other, other_where) = sorted(product[1], key=product[1].__getitem__, reverse=True)
    if (own, other) != ("wall", "wall"):
        return None
    upper, lower = (_sample_of(where, sample, samples) for where in (own_where, other_where))
    if upper is None or lower is None:
        return []
    beside = figures.side_by_side(upper.launches, lower.launches)
    ratios = [stats.turns_ratio(own, other, stats.PAIRED) for own, other in beside]
    return [math.log(product[0]) + math.log(ratio) for ratio in ratios]


def _rounds(contract: Contract, sample: Sample, samples: Iterable[Sample]) -> list[tuple[float, float]]:
    """Left and right in each round in which both are finite, in order."""
    there = list(samples)
    known: dict[Term, dict[int, float]] = {}
    for name in _all_names(contract):
        of = _sample_of(name.where, sample, there)
        known[name.metric, name.where] = {} if of is None else _by_order(name.metric, of)
    orders = set.intersection(*(set(by_order) for by_order in known.values()))
    found = []
    for order in sorted(orders):
        both = _both(contract, {term: by_order[order] for term, by_order in known.items()})
        if all(map(math.isfinite, both)):
            found.append(both)
    return found


def _both(contract: Contract, at: Mapping[Term, float]) -> tuple[float, float]:
    """Left and right, where the terms come to that."""

    def of(name: Name) -> float:
        return at[name.metric, name.where]

    return _value(contract.left, of), _value(contract.right, of)


def _sample_of(where: Where | None, sample: Sample, samples: Iterable[Sample]) -> Sample | None:
    return sample if where is None else next((each for each in samples if _is(each.cell, where, sample.cell)), None)


# ---- what a launch says


def _known(found: Iterable[tuple[int, float | None]]) -> dict[int, float]:
    return {order: float(value) for order, value in found if value is not None and math.isfinite(value)}


def _median(found: Iterable[float | None]) -> float | None:
    known = [value for value in found if value is not None]
    return float(median(known)) if known else None


def _floors(quantile: float) -> Callable[[Sample], dict[int, float]]:
    def read(sample: Sample) -> dict[int, float]:
        found = figures.launch_values(sample.launches, quantile=quantile)
        return {order: ns / NS_PER_S for order, ns in found.items()}

    return read


def _cold(sample: Sample) -> dict[int, float]:
    return _known(
        (launch.order, figures.turn_value(launch.cold, 1, launch.window_ns > 0) / NS_PER_S)
        for launch in sample.launches
        if launch.cold is not None
    )


def _phase(ns_of: Callable[[Turn], int]) -> Callable[[Sample], dict[int, float]]:
    def read(sample: Sample) -> dict[int, float]:
        return _known(
            (launch.order, _median(ns_of(turn) / max(1, launch.loops) / NS_PER_S for turn in launch.turns))
            for launch in sample.launches
        )

    return read


def _looks(bytes_of: Callable[[MemoryPoint], int | None]) -> Callable[[Sample], dict[int, float]]:
    def read(sample: Sample) -> dict[int, float]:
        return _known((launch.order, _median(map(bytes_of, launch.memory))) for launch in sample.memory)

    return read


def _waited(waits_for: WaitsFor) -> Callable[[Sample], dict[int, float]]:
    def read(sample: Sample) -> dict[int, float]:
        return figures.shares_by_order(sample, waits_for)

    return read


def _efficiency(sample: Sample) -> dict[int, float]:
    return {order: scaling / sample.cell.workers for order, scaling in figures.scaling_values(sample).items()}


def _cores(sample: Sample) -> dict[int, float]:
    spans = [(launch, sum(turn.wall_ns for turn in launch.turns)) for launch in sample.launches]
    return {launch.order: sum(turn.cpu_ns for turn in launch.turns) / span for launch, span in spans if span > 0}


def _rate(sample: Sample) -> dict[int, float]:
    return _known(
        (launch.order, _median(turn.rate for turn in launch.turns if turn.rate > 0)) for launch in sample.launches
    )


def _latency(ns_of: Callable[[Latency], float]) -> Callable[[Sample], dict[int, float]]:
    def read(sample: Sample) -> dict[int, float]:
        return _known(
            (launch.order, _median(ns_of(turn.latency) / NS_PER_S for turn in launch.turns if turn.latency))
            for launch in sample.launches
        )

    return read


def _gil_waits(sample: Sample) -> dict[int, float]:
    return {order: ns / NS_PER_S for order, ns in figures.gil_wait_values(sample.memory).items()}


def _own(kind: str, name: str, sample: Sample) -> dict[int, float]:
    """A metric of the workload's own; a launch that never counted what another did counted 0."""
    if kind == "counter":
        return figures.counter_values(sample.launches, name)
    if kind == "peak":
        return _known((launch.order, launch.peaks.get(name)) for launch in sample.launches)
    timers = [(launch.order, launch.timers[name]) for launch in sample.launches if name in launch.timers]
    return {order: timer.total_ns / timer.count / NS_PER_S for order, timer in timers if timer.count}


def _by_order(metric: str, sample: Sample) -> dict[int, float]:
    """A metric of a sample: launch order -> value in base units."""
    kind, dot, name = metric.partition(".")
    return _own(kind, name, sample) if dot else _READ[metric](sample)


def unsaid(contract: Contract, sample: Sample, samples: Iterable[Sample]) -> str:
    """The names in the contract that the workloads have for none of their own figures; empty where there are none."""
    there = list(samples)
    found = []
    for name in _all_names(contract):
        of = _sample_of(name.where, sample, there)
        if "." in name.metric and of is not None and of.launches and not _by_order(name.metric, of):
            found.append(name.metric.replace(".", " "))
    return " or ".join(dict.fromkeys(found))


_READ: Final[Mapping[str, Callable[[Sample], dict[int, float]]]] = {
    "wall": _floors(figures.QUANTILE),
    "tail": _floors(TAIL_QUANTILE),
    "cold": _cold,
    "start": _phase(lambda turn: turn.start_ns),
    "work": _phase(lambda turn: turn.work_ns),
    "join": _phase(lambda turn: turn.join_ns),
    "uss": lambda sample: figures.uss_values(sample.memory),
    "pss": _looks(lambda point: point.pss_bytes),
    "rss": _looks(lambda point: point.rss_bytes),
    "lock_wait_share": _waited("lock"),
    "queue_wait_share": _waited("queue"),
    "scaling": figures.scaling_values,
    "efficiency": _efficiency,
    "cores": _cores,
    "ops_per_s": _rate,
    "latency_mean": _latency(lambda latency: latency.mean_ns),
    "latency_p50": _latency(lambda latency: latency.p50_ns),
    "latency_p95": _latency(lambda latency: latency.p95_ns),
    "latency_p99": _latency(lambda latency: latency.p99_ns),
    "gil_wait_p95": _gil_waits,
}


# ---- the GIL, and words


def gil_verdict(contract: Contract, sample: Sample, samples: Iterable[Sample]) -> MetricVerdict:
    """The verdict on `gil == off` or `gil == on`: every launch counts, one that is otherwise breaks it.

    Inconclusive where no launch has run.
    """
    (name,) = _all_names(contract)
    of = _sample_of(name.where, sample, samples)
    launches = [] if of is None else [launch for launch in of.launches if launch.turns]
    wanted = isinstance(contract.right, Number) and contract.right.value == 1
    others = sum(launch.gil_enabled is not wanted for launch in launches)
    decision, reason = Decision.PASSED, ""
    if not launches:
        decision, reason = Decision.INCONCLUSIVE, "no launch has told whether the GIL was on"
    elif others:
        decision = Decision.BROKEN
        reason = f"the GIL was {'off' if wanted else 'on'} in {others} of {len(launches)} launches"
    return MetricVerdict(
        metric=Metric.CONTRACT, decision=decision, reason=reason, launches=len(launches), contract=contract.text
    )


def value_text(contract: Contract, value: float) -> str:
    """A value of one of the contract's sides with its unit: `1.83 ms`, `64 MiB`, `12.5 %`, `1.21`."""
    dimension = _dimension(contract, contract.left)
    if dimension == TIME:
        return _in_units(value, {unit: TIMES_S[unit] for unit in ("s", "ms", "us", "ns")})
    if dimension == SIZE:
        return _in_units(value, {unit: SIZES_BYTES[unit] for unit in ("GiB", "MiB", "KiB", "B")})
    if _is_share(contract):
        return percent(float(f"{value:.3g}"))
    return _digits(value)


def _in_units(value: float, units: Mapping[str, float]) -> str:
    """In the largest of the units (which descend) in which the rounded value is at least one."""
    unit = next((unit for unit, size in units.items() if float(f"{abs(value) / size:.3g}") >= 1), list(units)[-1])
    return f"{_digits(value / units[unit])} {unit}"


def _digits(value: float) -> str:
    """Three significant digits, without an exponent where the number is large."""
    return f"{value:,.0f}" if math.isfinite(value) and abs(value) >= 999.5 else f"{value:.3g}"


def _is_share(contract: Contract) -> bool:
    """Whether a side is a share of the time, and not a ratio of two."""
    products = [_powers(side) for side in (contract.left, contract.right)]
    return any(
        product is not None and [(term[0] in SHARES, power) for term, power in product[1].items()] == [(True, 1)]
        for product in products
    )
