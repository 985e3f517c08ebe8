"""Contracts, where tests are collected: checked against a test, the cells and the launches that they concern."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn, TypeAlias

from msgspec.structs import replace

from ..kit.text import did_you_mean, listed
from ..model.sample import Need, one_worker_cell
from ..model.spec import BodyKind, Cell, Environment, Executor, Spec, Target, cells_of
from . import metrics
from .contract_grammar import (
    PROGRAMS,
    SCALINGS,
    SIZE,
    VERSION,
    Contract,
    ContractError,
    Name,
    Where,
    all_names,
    dimension_of,
    product_of,
)

BodyOf: TypeAlias = Callable[[Executor], BodyKind]


def check(contract: Contract, spec: Spec, body_of: BodyOf = lambda _: "worker") -> None:
    """Raise ContractError if the test does not have the cells that the contract is about, on any machine.

    `body_of` says what the body takes under an executor.
    """
    # 1. As on a machine with more cores than it names: whether a contract is right is the same everywhere.
    if spec.cores:
        cores = max(spec.numbers, default=1) + 1
        spec = replace(spec, workers=(*spec.numbers, cores), cores=cores, cores_named=True)
    # 2. Each name by itself: the cell that it names, and a metric that such cells have.
    for name in all_names(contract):
        if name.where is not None:
            _check_where(contract, spec, name, name.where)
        if name.metric in SCALINGS and not (1 in spec.workers and max(spec.workers) > 1):
            problem = f"{name.metric} compares with the same cell with one worker: give the test workers=[1, 8]"
            raise ContractError(problem, contract.text, name.at)
    # A cell of every kind that the test may have; a test without targets gets them from the options.
    wheres = [name.where for name in all_names(contract) if name.where]
    named = [word for where in wheres for word in (where.target or "3", *where.words)]
    own = [target for each in spec.executors if each.program for target in each.program.pythons or ()]
    targets = list(spec.pythons) if spec.pythons is not None else [*named, *own, "3"]
    cells = [
        replace(cell, body=body_of(cell.executor))
        for cell in cells_of(spec, [Target(spec=target, request=target) for target in dict.fromkeys(targets)])
        if (program := cell.executor.program) is None
        or program.pythons is None
        or _among(cell.target.spec, program.pythons)
    ]
    for name in all_names(contract):
        meant = [cell for cell in cells if name.where is None or fits(cell, name.where, cell)]
        if meant and not any(_has(cell, name.metric) for cell in meant):
            whose = f"{_spelled(meant[0].executor)} has" if name.where else "the cells of this test have"
            raise ContractError(f"{whose} no {name.metric}: {_why_none(name.metric)}", contract.text, name.at)
    # 3. All names together.
    if not any(concerns(contract, cell, cells) for cell in cells):
        raise ContractError("it is about no cell of this test", contract.text, 0)


def lacking(metric: str, spec: Spec, body_of: BodyOf = lambda _: "worker") -> str:
    """Why no cell of a test can have a metric; empty where one can."""
    cells = [replace(cell, body=body_of(cell.executor)) for cell in cells_of(spec, [Target(spec="", request="")])]
    return "" if any(_has(cell, metric) for cell in cells) else _why_none(metric)


def _why_none(metric: str) -> str:
    return metrics.NOT_INSPECTED if metric == "gil" else metrics.row(metric).why_none


def _has(cell: Cell, metric: str) -> bool:
    return cell.executor.program is None if metric == "gil" else metrics.row(metric).applies(cell)


def _check_where(contract: Contract, spec: Spec, name: Name, where: Where) -> None:
    def fail(problem: str, field: str) -> NoReturn:
        raise ContractError(problem, contract.text, name.columns[field])

    of_kind = [executor for executor in spec.executors if executor.kind == where.kind]
    there = f"it has {listed([*map(_spelled, spec.executors)], 'and')}"
    if not of_kind:
        fail(f"the test does not run under {where.kind}: {there}", "kind")
    if where.kind in PROGRAMS:
        labels = [executor.label for executor in of_kind]
        named, others = ([word for word in where.words if (word in labels) is known] for known in (True, False))
        for word in others:
            if not VERSION.fullmatch(word):
                fail(f"the test has no {where.kind} {word!r}{did_you_mean(word, labels)}: {there}", f"word {word}")
        if not named and len(labels) > 1:
            fail(f"which {where.kind}? {there}", "kind")
        for second in (*named[1:], *others[1:]):
            what = "program" if second in named else "target"
            fail(f"{second} is a second {what}; one is enough", f"word {second}")
        executor = next(each for each in of_kind if each.label in (named or labels))
        if (where.workers is not None or where.cores) and not any(map(executor.counted, spec.environments)):
            fail(f"{executor.label} does not take a number of workers", "workers")
        if others and where.kind == "command":
            fail("a command has no target: it runs once for all targets", f"word {others[0]}")
        for pythons in (executor.program.pythons if executor.program else None, spec.pythons):
            if others and pythons is not None and not _among(others[0], pythons):
                on = f"it is on {listed(pythons, 'and')}"
                fail(f"{executor.label} is not measured on {others[0]}: {on}", f"word {others[0]}")
    elif where.method is None and len(of_kind) > 1:
        fail(f"which {where.kind}? {there}", "kind")
    if where.method is not None and where.method not in [executor.qualifier for executor in of_kind]:
        fail(f"the test has no {where.kind}[{where.method}]: {there}", "method")
    if where.workers is not None and spec.workers.count(where.workers) > 1:
        fail(f"several cells have {where.workers} workers: name a role with its number", "workers")
    if where.workers is not None and where.workers not in spec.numbers:
        there = listed([*map(str, spec.numbers), *(["cores"] if spec.cores else [])], "and")
        fail(f"no cell has {where.workers} workers: there are {there}", "workers")
    if where.cores and not spec.cores:
        fail("no cell has wcores: give the test workers=[1, 'cores']", "workers")
    if where.workers == 1 and name.metric in SCALINGS:
        fail(f"{name.metric} is of cells with more than one worker", "workers")
    if where.target is not None and spec.pythons is not None and not _among(where.target, spec.pythons):
        fail(f"the test is not measured on {where.target}: it is on {listed(spec.pythons, 'and')}", "target")
    counts = list(dict.fromkeys(f"{role}{count}" for role_count in spec.role_counts for role, count in role_count))
    for word in where.roles:
        if word not in counts:
            known = (
                f"there are {listed(counts, 'and')}" if counts else "its workers have no roles; a worker count is w8"
            )
            fail(f"no cell has {word}{did_you_mean(word, counts)}: {known}", f"role {word}")
    variables = list(dict.fromkeys(word for environment in spec.environments for word in environment.words))
    for word in where.variables:
        if word not in variables:
            known = f"there are {listed(variables, 'and')}" if variables else "env= is no list of several"
            fail(f"no cell has {word}{did_you_mean(word, variables)}: {known}", f"variable {word}")
    for hand in spec.environments if where.variables else ():
        if sum(_has_variables(each, where, hand) for each in spec.environments) > 1:
            fail("several environments have these variables: name another one", f"variable {where.variables[0]}")


def _among(target: str, specs: Iterable[str]) -> bool:
    return any(_same_target(target, spec) for spec in specs)


def _same_target(target: str, spec: str) -> bool:
    return target == spec.replace(" ", "")


def _spelled(executor: Executor) -> str:
    return executor.kind if executor.label == executor.kind else f"{executor.kind}[{executor.label}]"


def concerns(contract: Contract, cell: Cell, cells: Iterable[Cell]) -> bool:
    """Whether the contract is judged at this cell, one of the `cells` of its test.

    A metric without a cell belongs to the cell at hand. If every metric names a cell, the first one is the cell at
    hand. What a name leaves open (workers, target, variables, always the parameters) is taken from the cell at hand; a
    command serves all targets. A contract is not judged if a cell is missing, if two names mean the same cell, or if a
    cell has no such figure: a cell with one worker has no scaling, a command no GIL, and only servers have latencies.
    """
    return bool(involved(contract, cell, cells))


def absolute(contract: Contract) -> bool:
    """Whether it limits a cell's own time, waits or rate, which depend on what else runs on the machine.

    A ratio of interleaved cells does not depend on it, nor does memory.
    """
    product = product_of(contract)
    names = [name for name in all_names(contract) if dimension_of(name.metric) != SIZE]
    if contract.is_gil or not names or all(name.metric in SCALINGS for name in names):
        return False
    return product is None or sorted(product[1].values()) != [-1, 1]


def involved(contract: Contract, cell: Cell, cells: Iterable[Cell]) -> list[Cell]:
    """The cells that the contract compares if it is judged at this one, else none, see `concerns`.

    They include the cells with one worker that a scaling refers to.
    """
    names, there = all_names(contract), list(cells)
    if all(name.where is not None for name in names) and not fits(cell, names[0].where, cell):
        return []
    found = {name.where: next((other for other in there if fits(other, name.where, cell)), None) for name in names}
    if any((of := found[name.where]) is None or not _has(of, name.metric) for name in names):
        return []
    meant = [other for other in found.values() if other is not None]
    scaled = [of for name in names if name.metric in SCALINGS and (of := found[name.where]) is not None]
    alone = [None if of.workers == 1 else one_worker_cell(of, there) for of in scaled]
    if any(meant.count(other) > 1 for other in meant) or None in alone:
        return []
    return [other for other in there if other in meant or other in alone]


def fits(cell: Cell, where: Where | None, hand: Cell) -> bool:
    """Whether `where` means this cell when `hand` is the cell at hand."""
    if where is None:
        return cell == hand
    return (
        cell.executor.kind == where.kind
        and where.method in (None, cell.executor.qualifier)
        and _has_workers(cell, where, hand)
        and _is_on(cell, where, hand)
        and _has_variables(cell.environment, where, hand.environment)
        and cell.params == hand.params
    )


def _has_workers(cell: Cell, where: Where, hand: Cell) -> bool:
    """Whether it has the named workers, and the workers of the cell at hand where none are named."""
    if where.workers is not None:
        return cell.workers == where.workers
    if where.cores:
        return cell.cores
    if not cell.counted:
        return True
    if not where.roles:
        return (cell.workers, cell.roles) == (hand.workers, hand.roles)
    open_ones = [role for role in cell.roles if f"{role[0]}{role[1]}" not in where.roles]
    return len(cell.roles) - len(open_ones) == len(where.roles) and all(role in hand.roles for role in open_ones)


def _has_variables(environment: Environment, where: Where, hand: Environment) -> bool:
    """Whether it has the named variables, and else nothing that the environment of the cell at hand has differently."""
    if not where.variables:
        return environment == hand
    words, at_hand = (dict(word.split(":", 1) for word in each.words) for each in (environment, hand))
    named = dict(word.split(":", 1) for word in where.variables)
    rest = {name: value for name, value in words.items() if name not in named}
    return named.items() <= words.items() and all(at_hand.get(name, value) == value for name, value in rest.items())


def _is_on(cell: Cell, where: Where, hand: Cell) -> bool:
    """Whether its program and target are the named ones; a command has no target, and a program for a single target
    needs no name for it."""
    program = cell.executor.program
    words = (word for word in where.words if not program or word != program.name)
    target = where.target or next(words, "")
    if cell.executor.kind == "command":
        return not target
    if target:
        return _same_target(target, cell.target.spec)
    alone = program is not None and program.pythons is not None and len(program.pythons) == 1
    return alone or _same_target(hand.target.spec.replace(" ", ""), cell.target.spec)


def metrics_needed(contract: Contract) -> set[Need]:
    """The kinds of launch that the contract needs."""
    names = [name.metric for name in all_names(contract)]
    return {"time"} if contract.is_gil else set[Need]().union(*(metrics.row(name).needs for name in names))
