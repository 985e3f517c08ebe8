"""Explains regressed cells: what their launches show, and which functions take the added time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from ..errors import FtgateError
from ..judge import explain, metrics
from ..judge.judge import ComparedWith
from ..measure.profile_round import NoProfile, ProfileRound
from ..model import Decision, Explanation, Launch, Metric, Profile, Row, Sample
from .git import Checkout, mapped
from .phase import ActivePhase
from .references import portable

EXPLAINED = (Decision.REGRESSED, Decision.SUSPECT)
NO_MORE_TIME = "its work takes no more time than before"
_LIBRARY = re.compile(r"^lib(?:64)?/python\d+\.\d+t?/(?:(?:site|dist)-packages/)?")


def of_paired(rows: Iterable[Row], ended: Sequence[ActivePhase], root: Path, left_s: float) -> dict[str, Explanation]:
    """By node id: the explanations of the regressed cells that were judged in one of these phases, with a reference.

    It starts a pair of profile launches for each whose work takes more time, within `left_s` seconds in all. What
    fails in them is said in the explanation.
    """
    found = {}
    ends_s = time.monotonic() + left_s
    phases = {nodeid: each for each in ended for nodeid in each.phase.judged}
    for row in rows:
        sample, phase = row.paired or row.sample, phases.get(row.cell.nodeid)
        if row.verdict.decision in EXPLAINED and phase and sample and sample.reference is not None:
            found[row.cell.nodeid] = _paired(row, sample, phase, root, ends_s - time.monotonic())
    return found


def of_stored(row: Row, compared_with: ComparedWith) -> Explanation | None:
    """The explanation of a regressed cell whose reference was not measured: what its recordings hold, and no functions.

    None for any other cell.
    """
    if row.verdict.decision not in EXPLAINED or row.sample is None:
        return None
    same_machine = compared_with.basis != "portable"
    moved = explain.moved(row.sample, compared_with.entry if same_machine else None)
    why = row.verdict.why or "its reference was not measured"
    return msgspec.structs.replace(moved, refused=why if _is_slower(row) else "")


def _paired(row: Row, sample: Sample, ended: ActivePhase, root: Path, left_s: float) -> Explanation:
    pair = ended.phase.pair
    assert pair is not None
    assert sample.reference is not None
    after, before = (_named(checkout, root) for checkout in (pair.changed, pair.reference))
    moved = explain.moved(_sites_named(sample, after), _sites_named(sample.reference, before))
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
    failed = [each.metric for each in row.verdict.metrics if each.decision in EXPLAINED]
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
