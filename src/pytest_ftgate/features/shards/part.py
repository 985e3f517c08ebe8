"""Splits the tests of a run into parts; the plugin deselects the tests of other parts."""

from __future__ import annotations

import hashlib
import heapq
import statistics
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from ...declare import plan
from ...declare.options import table
from ...hookspec import hookimpl
from ...kit.hiding import HIDDEN, slow_digest
from ...kit.text import split_nodeid
from ...model.report import Shard
from ...model.spec import Plan
from ...plugin.collection import CELL, cells_of
from ...plugin.options import options_of
from ...plugin.xdist import found
from ...run.rows import positions_of
from ...run.run import Run
from ...run.stored import StoredBaselines

if TYPE_CHECKING:
    from ...plugin.gate import Gate


def part_of(run: Run, whole: Plan, selected: Plan, part: int, parts: int, given: Mapping[str, str]) -> Shard:
    """The selected cells of a part; `given` are the options that are set.

    The whole plan is split, before any cell was deselected: what is deselected may differ between jobs.
    """
    config, stored = run.config, run.stored
    of = parts_of(whole, stored, parts)
    own = tuple(group for group in selected if of[group.cells[0].nodeid] == part)
    planned = positions_of(selected)
    reference = {"reference": run.references.requested().reference.commit} if config.reference else {}
    return Shard(
        part=part,
        parts=parts,
        planned=tuple(planned),
        places=tuple(planned[cell.nodeid] for group in own for cell in group.cells),
        alpha=config.alpha,
        hypotheses=max(1, stored.hypotheses(whole)),
        own=stored.hypotheses(own),
        options={**given, **reference},
    )


def shown(name: str, value: object) -> str:
    """The value of an option, to be compared with that of another machine; a text may hold a secret."""
    harmless = value is None or isinstance(value, (bool, int, float))
    return str(value) if harmless else f"{HIDDEN} {slow_digest(str(value), name)}"


def parts_of(whole: Plan, stored: StoredBaselines, parts: int) -> dict[str, int]:
    """The part, from 1, of each cell by node id; groups stay together."""
    of = split(costs_of(whole, stored), parts)
    return {cell.nodeid: part for group, part in zip(whole, of, strict=True) for cell in group.cells}


def costs_of(whole: Plan, stored: StoredBaselines) -> dict[str, float]:
    """The recorded seconds of each group, or their median for a group without a recording.

    If nothing is recorded at all, the numbers of cells. The same on every machine that has the same baselines, in
    whatever order the cells are: a group goes by the first of its node ids in the alphabet. The title of a group has
    numbers of cores.
    """
    recorded = {min(cell.nodeid for cell in group.cells): stored.took_s(group) for group in whole}
    known = [seconds for seconds in recorded.values() if seconds]
    if not known:
        return {name: float(len(group.cells)) for name, group in zip(recorded, whole, strict=True)}
    usual = statistics.median(known)
    return {name: seconds or usual for name, seconds in recorded.items()}


def split(costs: Mapping[str, float], parts: int) -> list[int]:
    """The part, from 1, of each item: the most costly first, each into the part with the least cost so far.

    Items of the same cost are taken by name, so the result does not depend on their order.
    """
    loads = [(0.0, part) for part in range(1, parts + 1)]
    of = {}
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        load, of[name] = heapq.heappop(loads)
        heapq.heappush(loads, (load + costs[name], of[name]))
    return [of[name] for name in costs]


TESTS = "tests to split"


class Sharding:
    """Splits what was collected: cells by what their tests cost, other tests by their names."""

    def __init__(self, config: pytest.Config, gate: Gate | None, part: int, parts: int) -> None:
        """There is no `gate` in a worker of pytest-xdist, which splits its tests; the controller splits the cells."""
        self.config, self.gate = config, gate
        self.part, self.parts = part, parts
        self.shard: Shard | None = None
        self.empty = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Deselect the tests of other parts, after all others have selected theirs."""
        yield
        if items:
            found(self.config).add(TESTS)
        if TESTS not in found(self.config):
            return
        cells = self._own(self.gate, items) if self.gate else cells_of(items)
        kept: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            if CELL in item.stash:
                own = item.stash[CELL][1].nodeid in cells
            else:  # all parameter sets of a test have the same part
                name = split_nodeid(item.nodeid)[0].encode(errors="surrogatepass")
                own = int(hashlib.sha256(name).hexdigest(), 16) % self.parts + 1 == self.part
            (kept if own else others).append(item)
        if others:
            self.config.hook.pytest_deselected(items=others)
            items[:] = kept

    def _own(self, gate: Gate, items: Sequence[pytest.Item]) -> Collection[str]:
        """The node ids of the cells of this part."""
        # Options that all parts must share, if the command line, the environment or the project set them.
        values = ((option, option.of(options_of(self.config))) for option in table() if not option.shard_own)
        given = {
            option.dest if option.ini_only else option.cli: shown(option.dest, value)
            for option, value in values
            if value != option.default
        }
        selected = plan.plan_of(item.stash[CELL] for item in items if CELL in item.stash)
        self.shard = part_of(gate.run, gate.whole, selected, self.part, self.parts, given)
        return {self.shard.planned[place] for place in self.shard.places}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """A part without a test is no failure, if there were some to split."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and TESTS in found(self.config):
            session.exitstatus = pytest.ExitCode.OK
            self.empty = True
        yield

    @hookimpl
    def ftgate_part(self) -> Shard | None:
        return self.shard

    @hookimpl
    def ftgate_finish(self) -> Iterator[str]:
        """Say that there was nothing to do."""
        if self.empty:
            yield f"ftgate: shard {self.part}/{self.parts} is empty: all tests are in other shards"
