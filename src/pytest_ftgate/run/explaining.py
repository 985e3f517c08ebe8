"""Explains cells that fail: what their launches show, and what takes what was added to the metric that failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

from msgspec.structs import replace

from ..judge import contract_grammar, contracts, explain
from ..judge.judge import ComparedWith
from ..kit.errors import FtgateError
from ..kit.git import mapped
from ..kit.text import listed
from ..kit.values import Metric
from ..measure.cell_run import CellRun
from ..measure.explaining import measure_loads, measure_locks, measure_profiles
from ..measure.group import Measurement
from ..model.report import Cause, CauseOf, Explanation, Moved, Row
from ..model.sample import Launch, Loads, LockSite, Profile, Sample
from ..model.spec import Cell
from ..model.verdict import Decision
from .phase import Phase
from .sides.checkout import Checkout
from .sides.references import shown_path

OWN_S, ONE_S = 40.0, 15.0
"""The limits for the explanations of a test, and for one cause; they count towards the time of the run only."""
MORE_PAIRS = 2
"""Pairs of profile launches that follow if the first one did not show the functions, while time remains."""
METRICS: dict[CauseOf, str] = {"memory": Metric.USS, "growth": Metric.GROWTH, "start": Metric.START}
"""The metric whose change is what was added, if it is not what failed."""
ADDED: dict[CauseOf, str] = {
    "payload": "the larger payload",
    "time": "the added time",
    "start": "the longer start of its workers",
    "memory": "the added memory",
    "growth": "the growth",
    "dispatch": "the longer dispatch",
}
"""The words for a cause that is not known, in the order in which causes are shown."""
T = TypeVar("T")
_LIBRARY = re.compile(r"^lib(?:64)?/python\d+\.\d+t?/(?:(?:site|dist)-packages/)?")


class Explainer:
    """Explains the cells of one test that fail, each once; `found` is by node id.

    It starts launches of its own for each cause, of the cell and of what it is compared with, and more at the end where
    they did not show the functions. What fails in them is said in the explanation.
    """

    def __init__(self, by_people: Callable[[Row], Row], root: Path, left_s: Callable[[], float | None]) -> None:
        """`by_people` gives the row in whose verdict what is accepted or known to fail is marked as such.

        `left_s` is what is left of the time of the run; None: it has no limit.
        """
        self.by_people = by_people
        self.root = root
        self.spent_s = 0.0
        self.found: dict[str, Explanation] = {}
        self._left_s = left_s
        self._cells: dict[str, Cell] = {}
        self._sampled: dict[str, list[list[Profile]]] = {}
        """By node id: the profiles of a cell whose functions they do not show yet."""
        self._followed: set[str] = set()

    def follow(self, phase: Phase) -> None:
        """After a round: explain the cells that are decided."""
        settled = {each.cell.nodeid for each in phase.measurement.cell_runs if each.alive and not each.needs}
        settled -= self._followed
        self._followed |= settled
        for cell in phase.cells:
            if cell.nodeid in settled:
                self.explain(self.by_people(phase.judge.so_far(cell)), phase)

    def end(self, rows: Sequence[Row], ended: Phase) -> None:
        """At the end: explain what fails, then sample on where that did not show the functions."""
        for _ in range(1 + MORE_PAIRS):
            for row in rows:
                self.explain(row, ended)

    def of(self, nodeid: str) -> Explanation | None:
        """A cell's explanation; a cause that is not known is that of the cell that is most like it and has one."""
        own = self.found.get(nodeid)
        return own and replace(own, causes=tuple(self._borrowed(each, self._cells[nodeid]) for each in own.causes))

    def _borrowed(self, cause: Cause, cell: Cell) -> Cause:
        # Not from the pages that forked workers share: this one may fork none.
        others = {
            other: of
            for other, each in self.found.items()
            if (of := each.cause(cause.of)) and of.parts and of.parts[0].name != Metric.UNSHARED
        }
        if cause.parts or not others or not cause.unknown:
            return cause

        def alike(nodeid: str) -> tuple[bool, bool]:
            return self._cells[nodeid].executor == cell.executor, self._cells[nodeid].target == cell.target

        like = max(others, key=alike)
        return replace(others[like], unknown=cause.unknown, like=self._cells[like].label)

    def explain(self, row: Row, phase: Phase) -> None:
        """Explain a cell if it fails: again if samples may show more."""
        nodeid, sample, decision = row.cell.nodeid, row.sample, row.verdict.decision
        if nodeid in self.found and nodeid not in self._sampled:
            return
        if decision not in explain.WORSE or sample is None or not (sample.reference or decision is Decision.BROKEN):
            return
        self._cells[nodeid] = row.cell
        self.found[nodeid] = _Explaining(self, row, sample, phase).explanation()

    def in_time(self, phase: Phase, measure: Callable[[Measurement, float], list[T]]) -> list[T]:
        """Launches for one more cause, in what is left for it. Raises FtgateError."""
        own_s, run_s, clock = min(ONE_S, OWN_S - self.spent_s), self._left_s(), phase.measurement.plan.clock
        began_s = clock()
        try:
            with phase.measurement.spent.on("explaining"):
                return measure(phase.measurement, max(0.0, own_s if run_s is None else min(own_s, run_s)))
        finally:
            self.spent_s += clock() - began_s


class _Explaining:
    """Explains one cell, against its reference; of a broken contract against the other cell that it names."""

    def __init__(self, explainer: Explainer, row: Row, sample: Sample, phase: Phase) -> None:
        self.explainer = explainer
        self.row = row
        self.sample = sample
        self.phase = phase
        self.own = next(each for each in phase.measurement.cell_runs if each.cell.nodeid == row.cell.nodeid)
        self.broken = row.verdict.decision is Decision.BROKEN
        self.other = self._other() if self.broken else self.own.reference
        self.runs = [self.own] if self.other is None else [self.other, self.own]
        self.cut = False

    def _other(self) -> CellRun | None:
        """The first other cell of the contract that is broken, such as the one with one worker."""
        runs = {each.cell.nodeid: each for each in self.phase.measurement.cell_runs}
        cells = [each.cell for each in runs.values()]
        for each in self.row.verdict.metrics:
            if each.contract and each.decision is Decision.BROKEN:
                involved = contracts.involved(contract_grammar.parse(each.contract), self.own.cell, cells)
                for cell in involved:
                    if cell.nodeid != self.own.cell.nodeid:
                        return runs[cell.nodeid]
        return None

    def explanation(self) -> Explanation:
        kinds = explain.kinds_of(self.row.verdict)
        # 1. What its launches show.
        earlier = self.explainer.found.get(self.row.cell.nodeid)
        moved = earlier or explain.of_kinds(self._moved(kinds), kinds)
        if self.row.verdict.decision is Decision.ACCEPTED:
            return moved
        # 2. A cause of each kind; a start that makes a time longer has one as well.
        also = {"start": "start" in longer(moved.phases), "dispatch": "time" in kinds and bool(self._legs.parts)}
        wanted = [of for of in ADDED if of in kinds or also.get(of)]
        causes = []
        for of in wanted:
            known = earlier and of != "time" and earlier.cause(of)
            try:
                causes.append(known or self._cause(of, moved))
            except FtgateError as error:
                causes.append(Cause(of=of, unknown=f"{ADDED[of]} is unexplained: {error}"))
        return replace(moved, causes=tuple(causes), part=self.cut)

    def _moved(self, kinds: Sequence[explain.Kind]) -> Explanation:
        """What the launches show of both sides; of a contract, lock launches are made for it."""
        before, after = self._sides()
        sample, other = self.sample, self._before()
        if self.broken:
            if not {"time", "waits"} & set(kinds):
                return Explanation()
            try:
                found = self._in_time(lambda measurement, left_s: measure_locks(measurement, self.runs, left_s))
            except FtgateError:  # its functions say the same, or why nothing is known
                return Explanation()
            sample = _sites_named(sample.with_launches("locks", found[-1]), after)
            if other is not None:
                other = _sites_named(other.with_launches("locks", found[0]), before)
            return Explanation(sites=explain.sites(sample, other))
        return explain.moved(_sites_named(sample, after), other and _sites_named(other, before))

    def _in_time(self, measure: Callable[[Measurement, float], list[T]]) -> list[T]:
        return self.explainer.in_time(self.phase, measure)

    def _cause(self, of: CauseOf, moved: Explanation) -> Cause:
        if of == "time":
            return self._functions(moved)
        if of == "payload":
            return explain.carried(self.sample, self._before())
        if of == "dispatch":
            return self._legs
        # 1. What the launches that were compared show: how much more it is, of one side all of it, and shared pages.
        reference = self._before()
        added = explain.added(self.sample, reference, METRICS[of])
        unshared = explain.unshared(self.sample, reference, added) if of == "memory" else ()
        if sum(each.added for each in unshared) >= explain.COVERED * added > 0:
            return Cause(of=of, added=added, parts=unshared)
        # 2. What launches for it show.
        known: Literal["lines", "imports"] = "imports" if of == "start" else "lines"
        try:
            found = self._in_time(lambda measurement, left_s: measure_loads(measurement, self.runs, left_s, known))
        except FtgateError as error:
            if not unshared:
                raise
            return Cause(of=of, added=added, parts=unshared, unknown=f"the rest is unexplained: {error}")
        then, now = (
            _loads_named(each, named) for each, named in zip([Loads(), *found][-2:], self._sides(), strict=True)
        )
        if of == "start":
            return explain.slower_imports(then, now, added)
        cause = explain.held_lines(then, now, of, added)
        if of == "growth" and not cause.parts and self.row.cell.executor.in_processes:
            raise FtgateError("the workers of a pool are not traced call by call, and no line of what drives it")
        return replace(cause, parts=unshared + cause.parts)

    @cached_property
    def _legs(self) -> Cause:
        return explain.slower_legs(self.sample, self._before())

    def _before(self) -> Sample | None:
        return None if self.other is None else self.other.sample()

    def _functions(self, moved: Explanation) -> Cause:
        """The functions that take the added time, or why they are not known."""
        nodeid = self.row.cell.nodeid
        added = None if self.other is None else explain.added_time(self.sample, self.other.sample())
        if self.other is None or added is None:
            raise FtgateError("there is nothing to compare its functions with")
        if not added.grew:
            shorter = f"its body takes no longer than that of {self.other.cell.label}" if self.broken else ""
            return Cause(of="time", unknown=shorter or outside(moved.phases))
        sampled, trouble = self.explainer._sampled.pop(nodeid, []), ""
        try:
            found = self._in_time(lambda measurement, left_s: measure_profiles(measurement, self.runs, left_s))
            sampled.append([_functions_named(each, named) for each, named in zip(found, self._sides(), strict=True)])
        except FtgateError as error:
            if not sampled:  # what earlier launches show stays, where no more can be had
                raise
            trouble = str(error)
        then, now = (explain.joined([pair[side] for pair in sampled]) for side in (0, 1))
        self.cut = then.cut or now.cut
        cause = explain.slower_functions(then, now, added, self.phase.changed)
        if not cause.parts and not trouble:
            self.explainer._sampled[nodeid] = sampled
        return cause

    def _sides(self) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """How the files of what it is compared with and its own are named."""
        pair, root = self.phase.references[self.row.cell.nodeid].pair, self.explainer.root
        if pair is None:
            return (lambda file: shown_path(file, root),) * 2
        changed = _named(pair.changed, root)
        return (changed, changed) if self.broken else (_named(pair.reference, root), changed)


def of_stored(row: Row, compared_with: ComparedWith) -> Explanation:
    """The explanation of a regressed cell whose reference was not measured: what its recordings hold."""
    sample, entry = row.sample, compared_with.entry
    assert sample is not None
    kinds = explain.kinds_of(row.verdict)
    moved = explain.of_kinds(explain.moved(sample, entry), kinds)
    if row.verdict.decision is Decision.ACCEPTED:
        return moved
    why = row.verdict.why or "its reference was not measured"
    causes = [Cause(of=of, unknown=f"{ADDED[of]} is unexplained: {why}") for of in ADDED if of in kinds]
    added = explain.added(sample, entry, METRICS["memory"]) if entry else 0.0
    if parts := explain.unshared(sample, entry, added):
        rest = f"the rest is unexplained: {why}"
        causes = [
            replace(each, added=added, parts=parts, unknown=rest) if each.of == "memory" else each for each in causes
        ]
    return replace(moved, causes=tuple(causes))


def longer(phases: Iterable[Moved]) -> list[str]:
    """Those of start and join that take longer."""
    return [each.name for each in phases if each.after > each.before]


def outside(phases: Iterable[Moved]) -> str:
    """Where the added time is if it is not in the work; `phases` are start and join, if they moved."""
    if named := longer(phases):
        return f"the time is added to {listed(named, 'and')}, none of it to the body"
    return "the added time of its body lies within the noise of its launches"


# ---- files as people know them, and alike on both sides


def _named(checkout: Checkout, root: Path) -> Callable[[str], str]:
    """What gives a file of a side the name that it has below the project's root, or in its library."""

    def named(file: str) -> str:
        return _LIBRARY.sub("", shown_path(mapped(file, checkout.project, root), root))

    return named


def _sites_named(sample: Sample, named: Callable[[str], str]) -> Sample:
    def launch_named(launch: Launch) -> Launch:
        if launch.locks is None:
            return launch
        return replace(launch, locks=replace(launch.locks, sites=tuple(map(site_named, launch.locks.sites))))

    def site_named(site: LockSite) -> LockSite:
        holders = tuple(replace(each, file=named(each.file)) for each in site.holders)
        return replace(site, file=named(site.file), holders=holders)

    return sample.with_launches("locks", map(launch_named, sample.of("locks")))


def _functions_named(profile: Profile, named: Callable[[str], str]) -> Profile:
    return replace(profile, functions=tuple(replace(each, file=named(each.file)) for each in profile.functions))


def _loads_named(loads: Loads, named: Callable[[str], str]) -> Loads:
    return replace(loads, lines=tuple(replace(each, file=named(each.file)) for each in loads.lines))
