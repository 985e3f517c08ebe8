"""Explains regressed cells: what their launches show, and which functions take the added time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from ..judge import explain, metrics
from ..judge.judge import ComparedWith
from ..kit.errors import FtgateError
from ..kit.git import mapped
from ..kit.text import listed
from ..kit.values import Metric
from ..measure.memory_round import measure_profiles
from ..model.report import Explanation, FunctionTime, Moved, Row
from ..model.sample import Launch, Profile, Sample
from ..model.spec import Cell
from ..model.verdict import Decision
from .phase import Phase
from .sides.checkout import Checkout
from .sides.references import shown_path

EXPLAINED = (Decision.REGRESSED, Decision.SUSPECT, Decision.ACCEPTED)
"""What is accepted says what its launches show, and costs no launches for its functions."""
UNKNOWN = "not known"
MORE_PAIRS = 2
"""Of a cell whose functions one pair of profile launches did not show: so many more at the end, while there is time."""
_LIBRARY = re.compile(r"^lib(?:64)?/python\d+\.\d+t?/(?:(?:site|dist)-packages/)?")


class Explainer:
    """Explains the cells of one test that regress, each once; `found` is by node id.

    It starts a pair of profile launches for each whose work takes more time, and more at the end where that did not
    show its functions. What fails in them is said in the explanation.
    """

    def __init__(self, by_people: Callable[[Row], Row], root: Path) -> None:
        """`by_people` gives the row in whose verdict what is accepted or known to fail is marked as such."""
        self.by_people = by_people
        self.root = root
        self.found: dict[str, Explanation] = {}
        self._cells: dict[str, Cell] = {}
        self._sampled: dict[str, list[tuple[Profile, Profile]]] = {}
        """By node id: the profiles of a cell whose functions they do not show yet."""
        self._followed: set[str] = set()

    def follow(self, phase: Phase, left_s: float) -> None:
        """After a round: explain the cells that are decided, at the cost of the test's time."""
        settled = {each.cell.nodeid for each in phase.measurement.cell_runs if each.alive and not each.needs}
        settled = {each for each in settled - self._followed if phase.references[each].pair}
        self._followed |= settled
        for cell in phase.cells:
            if cell.nodeid in settled:
                self.explain(self.by_people(phase.judge.so_far(cell)), phase, left_s)

    def end(self, rows: Sequence[Row], ended: Phase, left_s: Callable[[], float]) -> None:
        """At the end: explain what has regressed, then sample on where that did not show the functions."""
        for _ in range(1 + MORE_PAIRS):
            for row in rows:
                self.explain(row, ended, left_s())

    def of(self, nodeid: str) -> Explanation | None:
        """A cell's explanation; where its functions are not known, with those of the cell that is most like it."""
        own = self.found.get(nodeid)
        if own is None or not own.refused.startswith(UNKNOWN):
            return own
        cell = self._cells[nodeid]
        named = [self._cells[other] for other, each in self.found.items() if each.functions]
        if not named:
            return own
        like = max(named, key=lambda each: (each.executor == cell.executor, each.target == cell.target))
        functions, added_ns = self.found[like.nodeid].functions, self.found[like.nodeid].added_ns
        return replace(own, functions=functions, added_ns=added_ns, like=like.label)

    def explain(self, row: Row, phase: Phase, left_s: float) -> None:
        """Explain a cell if it has regressed, within `left_s` seconds: again if samples may show more."""
        nodeid, sample = row.cell.nodeid, row.sample
        if nodeid in self.found and nodeid not in self._sampled:
            return
        decision = row.verdict.decision
        if decision not in EXPLAINED or sample is None or sample.reference is None:
            return
        self._cells[nodeid] = row.cell
        before, after = _naming(phase, row.cell, self.root)
        moved = explain.moved(_sites_named(sample, after), _sites_named(sample.reference, before))
        if decision is Decision.ACCEPTED:
            self.found[nodeid] = moved
            return
        clock = phase.measurement.plan.clock
        began_s = clock()
        with phase.measurement.spent.on("explaining"):
            self.found[nodeid] = self._with_functions(moved, row, sample, phase, left_s)
        phase.measurement.plan.spend(clock() - began_s)

    def _with_functions(self, moved: Explanation, row: Row, sample: Sample, phase: Phase, left_s: float) -> Explanation:
        """With the functions that take the added time, or why they are not known."""
        before, after = _naming(phase, row.cell, self.root)
        added = explain.added_time(sample)
        if added is None or not added.grew:
            return replace(moved, refused=outside(moved.phases) if _is_slower(row) else "")
        cell_run = next(each for each in phase.measurement.cell_runs if each.cell == sample.cell)
        sampled = self._sampled.pop(row.cell.nodeid, [])
        found: tuple[FunctionTime, ...] | str = ""
        try:
            then, now = measure_profiles(phase.measurement, cell_run, left_s)
            sampled.append((_functions_named(then, before), _functions_named(now, after)))
        except FtgateError as error:
            found = str(error)
        if sampled:  # what earlier launches show stays, where no more can be had
            trouble = found
            then, now = (explain.joined([pair[side] for pair in sampled]) for side in (0, 1))
            moved = replace(moved, part=then.cut or now.cut)
            found = explain.slower_functions(then, now, added, phase.changed)
            if isinstance(found, str) and not trouble:
                self._sampled[row.cell.nodeid] = sampled
        refused, functions = (f"{UNKNOWN} ({found})", ()) if isinstance(found, str) else ("", found)
        added_ns = added.after_ns - added.before_ns
        return replace(moved, functions=functions, refused=refused, added_ns=added_ns)


def of_stored(row: Row, compared_with: ComparedWith) -> Explanation:
    """The explanation of a regressed cell whose reference was not measured: what its recordings hold, no functions."""
    assert row.sample is not None
    moved = explain.moved(row.sample, compared_with.entry)
    why = row.verdict.why or "its reference was not measured"
    refused = f"{UNKNOWN} ({why})" if _is_slower(row) and row.verdict.decision is not Decision.ACCEPTED else ""
    return replace(moved, refused=refused)


def _naming(phase: Phase, cell: Cell, root: Path) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """How the files of a cell's reference and those of the change are named."""
    pair = phase.references[cell.nodeid].pair
    assert pair is not None
    return _named(pair.reference, root), _named(pair.changed, root)


def outside(phases: Iterable[Moved]) -> str:
    """Where the added time is if it is not in the work; `phases` are start and join, if they moved."""
    longer = [each.name for each in phases if each.after > each.before]
    if longer:
        return f"none of its body: it is added to {listed(longer, 'and')}"
    return f"{UNKNOWN} (how much longer its body takes lies within the noise of its launches)"


def _is_slower(row: Row) -> bool:
    """Whether a time is among what regressed, or a figure that is made of times."""
    failed = [each.metric for each in row.verdict.metrics if each.decision.worse]
    return any(metric == Metric.SCALING or metrics.row(metric).unit == "time" for metric in failed)


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
        sites = tuple(replace(site, file=named(site.file)) for site in launch.locks.sites)
        return replace(launch, locks=replace(launch.locks, sites=sites))

    return sample.with_launches("locks", map(launch_named, sample.of("locks")))


def _functions_named(profile: Profile, named: Callable[[str], str]) -> Profile:
    return replace(profile, functions=tuple(replace(each, file=named(each.file)) for each in profile.functions))
