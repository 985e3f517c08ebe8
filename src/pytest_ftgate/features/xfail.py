"""Known failures: what @ftgate.xfail makes of a cell's verdict. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ..hookspec import hookimpl
from ..judge import decide
from ..kit.text import matches
from ..model.report import Row
from ..model.spec import Cell, Group, Xfail
from ..model.verdict import Decision, Expected, MetricVerdict, Verdict

_MET = {Decision.PASSED, Decision.IMPROVED}
_PASSED = (Decision.ACCEPTED, Decision.INCONCLUSIVE, Decision.IMPROVED, Decision.PASSED)


@hookimpl
def ftgate_amend(group: Group) -> Callable[[Row], Verdict]:
    """Mark what a test is known to fail."""
    return lambda row: with_known(row.verdict, row.cell, group.spec.xfails)


def with_known(verdict: Verdict, cell: Cell, expectations: Iterable[Xfail]) -> Verdict:
    """The verdict in the light of the known failures of its cell; of two for one decision the first one counts.

    Xfailed: all that regressed or is broken was expected to; a suspect metric counts as regressed, a suspect contract
    as broken. Xpassed: what was expected passed or improved. Anything else that failed stays as it is, and so does a
    cell that was not measured, or whose expected failure was not decided.
    """
    known: dict[Decision, Xfail] = {}
    for each in expectations:
        if _is_for(each, cell):
            known.setdefault(each.decision, each)
    unknown = any(each.decision is Decision.ERROR for each in verdict.metrics)
    if not known or unknown or not (verdict.decision.missed or verdict.decision in _PASSED):
        return verdict
    failed = {_of(each) for each in verdict.metrics if each.decision.missed}
    if foreign := [each for each in verdict.metrics if each.decision.missed and _of(each) not in known]:
        if not failed & known.keys():
            return verdict
        found = decide.worst_of(foreign)  # what no mark expects fails, whatever else was known to
        return msgspec.structs.replace(verdict, decision=found.decision)
    # What could have failed in this way passed if all of it was judged and did not.
    judged = {kind: {each.decision for each in verdict.metrics if _of(each) is kind} for kind in known}
    passed = [known[kind] for kind, all_of in judged.items() if all_of and all_of <= _MET]
    met = [each for decision, each in known.items() if decision in failed]
    for decision, found_of in ((Decision.XPASSED, passed), (Decision.XFAILED, met)):
        if found_of:
            mark = max(found_of, key=lambda each: each.strict)
            expected = Expected(decision=mark.decision, reason=mark.reason, strict=mark.strict, line=mark.line)
            return msgspec.structs.replace(verdict, decision=decision, expected=expected)
    return verdict


def _is_for(expectation: Xfail, cell: Cell) -> bool:
    return (
        (not expectation.executors or cell.executor in expectation.executors)
        and (not expectation.pythons or cell.target.spec in expectation.pythons)
        and (not expectation.workers or cell.workers in expectation.workers)
        and (not expectation.cells or any(matches(pattern, cell.label) for pattern in expectation.cells))
    )


def _of(judged: MetricVerdict) -> Decision:
    """The decision that has to be expected for a metric or a contract to be a known failure."""
    return Decision.BROKEN if judged.contract else Decision.REGRESSED
