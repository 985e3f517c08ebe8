"""Explains regressed cells: what their launches show, and which functions take the added time."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..errors import FtgateError
from ..judge import explain, figures, metrics
from ..judge.judge import ComparedWith
from ..measure.profile_round import NoProfile, ProfileRound
from ..model import Decision, Explanation, Launch, Metric, Profile, Row, Sample, TestSamples, Verdict
from .git import Checkout, mapped
from .phase import ActivePhase
from .references import portable

FAILED = (Decision.REGRESSED, Decision.SUSPECT)
EXPLAINED = (*FAILED, Decision.ACCEPTED)
"""What is accepted says what its launches show, and costs no launches for its functions."""
NO_MORE_TIME = "its work takes no more time than before"
_LIBRARY = re.compile(r"^lib(?:64)?/python\d+\.\d+t?/(?:(?:site|dist)-packages/)?")


class Explainer:
    """Explains the cells of one test that regress, each once; `found` is by node id.

    It starts a pair of profile launches for each whose work takes more time. What fails in them is said in the
    explanation.
    """

    def __init__(self, marked: Callable[[Row], Verdict], root: Path) -> None:
        """`marked` gives the verdict of a row in which what is accepted or known to fail is marked as such."""
        self.marked = marked
        self.root = root
        self.found: dict[str, Explanation] = {}
        self._followed: set[str] = set()

    def follow(self, active: ActivePhase, left_s: float) -> None:
        """After a round of a phase: explain the cells that are decided, at the cost of the phase's time."""
        settled = {each.cell.nodeid for each in active.run.cell_runs if each.alive and not each.needs}
        settled = (settled & active.phase.judged) - self._followed
        if not active.phase.pair or not settled:
            return
        self._followed |= settled
        samples = TestSamples(active.run.samples_so_far())
        for sample in samples:
            if sample.cell.nodeid in settled:
                verdict = active.judge.verdict(sample, samples, figures.figures(sample, reference=None))
                self.explain(Row(cell=sample.cell, verdict=verdict, sample=sample), active, left_s)

    def explain(self, row: Row, active: ActivePhase, left_s: float) -> None:
        """Explain a cell if it has regressed in this phase, within `left_s` seconds."""
        nodeid, sample = row.cell.nodeid, row.paired or row.sample
        if nodeid in self.found or nodeid not in active.phase.judged:
            return
        decision = self.marked(row).decision
        if decision not in EXPLAINED or sample is None or sample.reference is None:
            return
        moved = _moved(sample, sample.reference, active, self.root)
        if decision is Decision.ACCEPTED:
            self.found[nodeid] = moved
            return
        clock = active.run.budget.clock
        began_s = clock()
        self.found[nodeid] = _with_functions(moved, row, sample, active, self.root, left_s)
        active.run.budget.spend(clock() - began_s)


def of_stored(row: Row, compared_with: ComparedWith) -> Explanation:
    """The explanation of a regressed cell whose reference was not measured: what its recordings hold, no functions."""
    assert row.sample is not None
    same_machine = compared_with.basis != "portable"
    moved = explain.moved(row.sample, compared_with.entry if same_machine else None)
    why = row.verdict.why or "its reference was not measured"
    refused = why if _is_slower(row) and row.verdict.decision is not Decision.ACCEPTED else ""
    return msgspec.structs.replace(moved, refused=refused)


def _naming(ended: ActivePhase, root: Path) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """How the files of the reference and those of the change are named."""
    pair = ended.phase.pair
    assert pair is not None
    return _named(pair.reference, root), _named(pair.changed, root)


def _moved(sample: Sample, reference: Sample, ended: ActivePhase, root: Path) -> Explanation:
    before, after = _naming(ended, root)
    return explain.moved(_sites_named(sample, after), _sites_named(reference, before))


def _with_functions(
    moved: Explanation, row: Row, sample: Sample, ended: ActivePhase, root: Path, left_s: float
) -> Explanation:
    """With the functions that take the added time, or why they are not known."""
    before, after = _naming(ended, root)
    added = explain.added_time(sample)
    if added is None or not added.grew:
        return msgspec.structs.replace(moved, refused=NO_MORE_TIME if _is_slower(row) else "")
    cell_run = next(each for each in ended.run.cell_runs if each.cell == sample.cell)
    try:
        then, now = ProfileRound(ended.run.context, cell_run, left_s).measure()
        found = explain.slower_functions(_functions_named(then, before), _functions_named(now, after), added)
    except (NoProfile, FtgateError) as error:
        found = str(error)
    refused, functions = (found, ()) if isinstance(found, str) else ("", found)
    added_ns = added.after_ns - added.before_ns
    return msgspec.structs.replace(moved, functions=functions, refused=refused, added_ns=added_ns)


def _is_slower(row: Row) -> bool:
    """Whether a time is among what regressed, or a figure that is made of times."""
    failed = [each.metric for each in row.verdict.metrics if each.decision in FAILED]
    made_of_time = (Metric.RATIO, Metric.SCALING)
    return any(metric in made_of_time or metrics.row(metric).unit == "time" for metric in failed)


# ---- files as people know them, and alike on both sides


def _named(checkout: Checkout, root: Path) -> Callable[[str], str]:
    """What gives a file of a side the name that it has below the project's root, or in its library."""

    def named(file: str) -> str:
        return _LIBRARY.sub("", portable(mapped(file, checkout.project, root), root))

    return named


def _sites_named(sample: Sample, named: Callable[[str], str]) -> Sample:
    replace = msgspec.structs.replace

    def launch_named(launch: Launch) -> Launch:
        if launch.locks is None:
            return launch
        sites = tuple(replace(site, file=named(site.file)) for site in launch.locks.sites)
        return replace(launch, locks=replace(launch.locks, sites=sites))

    return replace(sample, locks=tuple(map(launch_named, sample.locks)))


def _functions_named(profile: Profile, named: Callable[[str], str]) -> Profile:
    replace = msgspec.structs.replace
    return replace(profile, functions=tuple(replace(each, file=named(each.file)) for each in profile.functions))
