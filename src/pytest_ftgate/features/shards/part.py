"""Which tests a part of a run has, and the plugin that deselects all others."""

from __future__ import annotations

import hashlib
import heapq
import statistics
from collections.abc import Generator, Iterator, Mapping, Sequence

import msgspec
import pytest

from ...declare import plan
from ...declare.options import table
from ...hookspec import hookimpl
from ...kit.files import write_whole
from ...kit.hiding import HIDDEN, sealed
from ...kit.text import split_nodeid
from ...model.report import Shard
from ...model.spec import Plan
from ...plugin.collection import CELL
from ...plugin.options import options_of
from ...run.rows import positions_of
from ...run.run import Run
from ...run.stored import StoredBaselines


def take_part(run: Run, whole: Plan, part: int, parts: int, given: Mapping[str, str]) -> Plan:
    """The part of the whole plan that a run measures, before `collect`; `given` are the options that are set.

    Its tests are in the order of the whole one.
    """
    config, stored = run.config, run.stored
    of = split(costs_of(whole, stored), parts)
    own = tuple(group for group, one in zip(whole, of, strict=True) if one == part)
    planned = positions_of(whole)
    reference = {"reference": run.references.requested().reference.commit} if config.against else {}
    shard = Shard(
        part=part,
        parts=parts,
        planned=tuple(planned),
        places=tuple(planned[cell.nodeid] for group in own for cell in group.cells),
        alpha=config.alpha,
        hypotheses=max(1, stored.hypotheses(whole, in_parts=True)),
        own=stored.hypotheses(own, in_parts=True),
        options={**given, **reference},
    )
    with run.folder.locked("shard"):  # the controller of pytest-xdist, which collects nothing, reads it
        write_whole(run.folder.shared("shard", ""), [msgspec.json.encode(shard)])
    return own


def shown(name: str, value: object) -> str:
    """The value of an option, to be compared with that of another machine; a text may hold a secret."""
    harmless = value is None or isinstance(value, (bool, int, float))
    return str(value) if harmless else f"{HIDDEN} {sealed(str(value), name)}"


def part_of(run: Run) -> Shard | None:
    """The part that a run measures, as the process that collects has said; None before it was split."""
    file = run.folder.shared("shard", "")
    return msgspec.json.decode(file.read_bytes(), type=Shard) if file.exists() else None


def costs_of(plan: Plan, stored: StoredBaselines) -> dict[str, float]:
    """The first cell of each group -> what its measurement costs: seconds as recorded, else the median of these.

    If nothing is recorded at all, the numbers of cells. The same on every machine that has the same baselines.
    """
    recorded = {group.cells[0].nodeid: stored.took_s(group) for group in plan}  # the key has numbers of cores
    known = [seconds for seconds in recorded.values() if seconds]
    if not known:
        return {group.cells[0].nodeid: float(len(group.cells)) for group in plan}
    usual = statistics.median(known)
    return {key: seconds or usual for key, seconds in recorded.items()}


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


class Sharding:
    """Splits what is selected: cells by what their tests cost, other tests by their names."""

    def __init__(self, config: pytest.Config, run: Run, part: int, parts: int) -> None:
        self.part, self.parts = part, parts
        self.config = config
        self.run = run
        self.tests = self.kept = 0

    @property
    def name(self) -> str:
        """`shard 2/5`."""
        return f"shard {self.part}/{self.parts}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Deselect the tests of other parts, after all others have selected theirs."""
        yield
        if not items:
            return
        whole = plan.plan_of(item.stash[CELL] for item in items if CELL in item.stash)
        # Of the options that all parts must share, what the command line, the environment or the project set.
        values = ((option, option.of(options_of(self.config))) for option in table() if not option.shard_own)
        given = {
            option.dest if option.ini_only else option.cli: shown(option.dest, value)
            for option, value in values
            if value != option.default
        }
        part = take_part(self.run, whole, self.part, self.parts, given)
        cells = {cell.nodeid for group in part for cell in group.cells}
        kept: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            if CELL in item.stash:
                own = item.stash[CELL][1].nodeid in cells
            else:  # all parameter sets of a test have the same part
                name = split_nodeid(item.nodeid)[0].encode(errors="surrogatepass")
                own = int(hashlib.sha256(name).hexdigest(), 16) % self.parts + 1 == self.part
            (kept if own else others).append(item)
        self.tests = len(whole) + len(plain_of(items))
        self.kept = len(part) + len(plain_of(kept))
        if others:
            self.config.hook.pytest_deselected(items=others)
            items[:] = kept

    def pytest_report_collectionfinish(self) -> str:
        """How many tests are this part's."""
        return f"ftgate: {self.name} has {self.kept} of {self.tests} tests" if self.tests else ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A part without a test is no failure: there are more parts than tests."""
        split = self.tests or part_of(self.run) is not None
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and split:
            session.exitstatus = pytest.ExitCode.OK

    @hookimpl
    def ftgate_part(self) -> Shard | None:
        return part_of(self.run)

    @hookimpl
    def ftgate_finish(self) -> Iterator[str]:
        """Say that there was nothing to do."""
        shard = part_of(self.run)
        if not self.kept and not (shard and shard.places) and (self.tests or shard):
            yield f"ftgate: {self.name} is empty: there are fewer tests than shards"


def plain_of(items: Sequence[pytest.Item]) -> set[str]:
    """The tests without cells, each once whatever parameters it has."""
    return {split_nodeid(item.nodeid)[0] for item in items if CELL not in item.stash}
