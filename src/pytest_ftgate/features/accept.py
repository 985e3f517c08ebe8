"""Regressions that are meant: the trailers of commits, and what they make of a cell's verdict. Pure."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ..hookspec import Subparsers, hookimpl
from ..judge import decide, metrics
from ..judge.limits import at_least_worse, worse
from ..kit import units
from ..kit.errors import FtgateError
from ..kit.git import DEEPEN, AgainstError, Repository, shown
from ..kit.text import COMMIT_DIGITS, listed, plain, split_nodeid
from ..kit.values import Metric, grouped
from ..model.report import Row
from ..model.verdict import Acceptance, Decision, MetricVerdict, Reason, Verdict, Why
from ..report import said
from ..run.sides import worktrees
from ..store.names import matches, named
from .baseline import NAMES
from .last_run import FINE, last_run, no_run, nothing, project, read

if TYPE_CHECKING:
    from ..run.run import Run


KEY: Final = "Ftgate-Accept"
FORM: Final = f"{KEY}: CELLS METRIC+N%: REASON"
_LINE: Final = re.compile(rf"{KEY}:(.*)", re.IGNORECASE)
_ENDS: Final = re.compile(r"\s*$|[A-Z][\w-]*: |\* ")
"""A line that continues none: an empty one, another trailer, the next commit in a squashed message."""
_METRIC: Final = re.compile(r"\s(\S+):(?=\s|$)")
_AMOUNT: Final = re.compile(r"(.+?)\+(\d+(?:\.\d+)?)(%|[A-Za-z]*)")


# ---- trailers


def trailers(message: str) -> list[str]:
    """The text behind the key on each line of a commit's message that begins with it; wrapped lines are joined.

    Any line counts, not only those of git's trailer block: a squash merge puts the messages of a branch one after the
    other, and only the last block would be trailers. What a terminal or a page must not get is left out.
    """
    found: list[str] = []
    inside = False
    for line in message.split("\n"):
        if match := _LINE.match(line):
            found.append(match[1])
            inside = True
        elif inside := inside and not _ENDS.match(line):
            found[-1] += f" {line}"
    return ["".join(filter(str.isprintable, " ".join(each.split()))) for each in found]


def parsed(trailer: str, commit: str) -> tuple[Acceptance, ...]:
    """An acceptance for each metric of a trailer, `CELLS METRIC+N%: REASON` or `CELLS METRIC,METRIC: REASON`.

    Without an amount any change is accepted. CELLS may contain spaces and colons: the first word before a colon that
    is a metric ends it. Raises FtgateError, which names the commit.
    """
    # In a node id, `::` and `a:b` are no ends.
    ends = list(_METRIC.finditer(trailer))
    end = next((each for each in ends if all(map(metrics.known, _amounts(each[1])))), None)
    if end is not None:
        cells, reason = trailer[: end.start()].strip(), trailer[end.end() :].strip()
        if reason:
            return tuple(
                Acceptance(cells=cells, metric=name, reason=reason, commit=commit, most=most)
                for name, most in _amounts(end[1]).items()
            )
        why = "it has no reason"
    else:
        word = next((each for each in _amounts(ends[0][1]) if not metrics.known(each)), "") if ends else ""
        why = metrics.no_metric(word) if word else "it names no metric"
        if word == Metric.CONTRACT:
            why = (
                "a broken contract is not accepted: mark the test with @ftgate.xfail('broken'), or change its contract"
            )
    raise FtgateError(f"{quoted(commit, trailer)}: {why}; write `{FORM}`")


def _amounts(words: str) -> dict[str, float | None]:
    """Metric -> the largest change that is accepted, of `wall+14%,growth+48KiB,tail`; None for any."""
    return dict(map(_amount, words.split(",")))


def _amount(word: str) -> tuple[str, float | None]:
    """A metric and the largest change that is accepted; the word itself if its unit is not that of the metric."""
    match = _AMOUNT.fullmatch(word)
    size = dict(_scales(match[1])).get(match[3]) if match and metrics.known(match[1]) else None
    return (match[1], float(match[2]) * size) if match and size else (word, None)


def _scales(metric: str) -> units.Scales:
    """The units of what is accepted of a metric, each with its size in what `worse` gives."""
    of = metrics.row(metric)
    if of.scale != "difference" or of.unit == "share":
        return (("%", 0.01),)
    times = tuple((name.replace("\u00b5", "u"), size) for name, size in units.TIMES)
    return {"time": times, "size": units.SIZES}.get(of.unit, (("", 1.0),))


def _scale(metric: str, change: float) -> tuple[str, float]:
    """The largest unit in which a change is at least one."""
    scales = _scales(metric)
    return next((each for each in reversed(scales) if change >= each[1]), scales[0])


def _with_amount(metric: str, most: float | None) -> str:
    """`wall+14%`, `growth+48KiB`: a metric and the largest change that is accepted of it."""
    if most is None:
        return metric
    name, size = _scale(metric, most)
    return f"{metric}+{most / size:.12g}{name}"


def _rounded_up(metric: str, change: float) -> float | None:
    """A change as it is written: in whole percents, else with three digits; None if it is not known."""
    if change <= 0:
        return None
    name, size = _scale(metric, change)
    least = 1.0 if name == "%" else 10.0 ** (math.floor(math.log10(change / size)) - 2)
    return math.ceil(round(change / size / least, 6)) * least * size


def written(cells: str, names: Mapping[str, float | None], reason: str) -> str:
    """The trailer that `parsed` reads, of metrics and what is accepted of each.

    Raises FtgateError for what no trailer can say.
    """
    words = (_with_amount(name, most) for name, most in names.items())
    trailer = " ".join(f"{cells} {','.join(words)}: {reason}".split())
    found = parsed(trailer, "")
    if [(each.cells, each.metric) for each in found] != [(" ".join(cells.split()), name) for name in names]:
        raise FtgateError(f"{cells!r} cannot be written as a trailer, {FORM}: use ? for the space before the colon")
    return f"{KEY}: {trailer}"


def quoted(commit: str, trailer: str) -> str:
    """A trailer and its commit, for messages."""
    return f"{f'commit {commit[:COMMIT_DIGITS]}: ' if commit else ''}`{KEY}: {trailer}`"


# ---- verdicts


def with_accepted(verdict: Verdict, nodeid: str, acceptances: Iterable[Acceptance]) -> Verdict:
    """The verdict of a cell in which each metric that a trailer accepts is accepted; the first trailer counts.

    The cell is accepted where nothing worse is left: what else regressed or is broken still decides, and what became
    worse than was accepted. Where only its interval reaches down to that it is inconclusive: the same change, measured
    again, has another estimate.
    """
    known = [each for each in acceptances if matches(each.cells, nodeid)]
    judged: list[MetricVerdict] = []
    found: list[Acceptance] = []
    for each in verdict.metrics:
        of_metric = [one for one in known if one.metric == each.metric] if each.acceptable else []
        acceptance = next((one for one in of_metric if one.most is None or worse(each) <= one.most), None)
        if acceptance is not None:
            why = (Reason(code=Why.ACCEPTED, name=acceptance.commit, text=acceptance.reason),)
            judged.append(msgspec.structs.replace(each, decision=Decision.ACCEPTED, reasons=why, beyond=False))
            found.append(acceptance)
        elif of_metric:
            largest = max(of_metric, key=lambda one: one.most or 0.0)
            most = largest.most or 0.0
            less = Reason(code=Why.ACCEPTED_LESS, name=largest.commit, limit=_as_change(each, most))
            decision = Decision.INCONCLUSIVE if at_least_worse(each) <= most else each.decision
            judged.append(msgspec.structs.replace(each, decision=decision, reasons=(*each.reasons, less)))
        else:
            judged.append(each)
    if judged == list(verdict.metrics):
        return verdict
    return msgspec.structs.replace(decide.again(verdict, judged), accepted=tuple(found))


def _as_change(judged: MetricVerdict, most: float) -> float:
    """The largest change that is accepted, as the verdict has its change."""
    if judged.points is not None:
        return most
    return 1 / (1 + most) if metrics.is_gain(judged.metric) else 1 + most


# The regressions that the commits of a branch accept by their trailers, as git has them.

FIX = "correct it with `git commit --amend` or `git rebase --interactive`"
_DEFAULTS = ("HEAD", "main", "master")


@hookimpl
def ftgate_begin(run: Run) -> None:
    """Read the branch once for the whole run."""
    run.plugins.register(Acceptances(run))


class Acceptances:
    """Reads the trailers of a run's branch; outside of git there are none."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._read: dict[str, tuple[Acceptance, ...]] = {}
        self._warned = False

    @hookimpl
    def ftgate_collected(self, run: Run, nodeids: Sequence[str]) -> None:
        """Refuse trailers of this branch that cannot be read."""
        if nodeids:
            self.check(run.references.requested().reference.commit if run.config.reference else "")

    @hookimpl(tryfirst=True)
    def ftgate_amend(self) -> Callable[[Row], Verdict]:
        """Accept what the commits since a row's reference accept."""

        def amended(row: Row) -> Verdict:
            if not any(each.acceptable for each in row.verdict.metrics):
                return row.verdict
            return with_accepted(row.verdict, row.cell.nodeid, self.since(row.verdict.commit))

        return amended

    def since(self, commit: str) -> tuple[Acceptance, ...]:
        """Acceptances in the commits after `commit`, newest first: of the whole branch if git does not have it.

        `commit` is the one that a cell is compared with, "" for none. A trailer that cannot be read accepts nothing.
        """
        if self._branch is None:
            return ()
        repository, head, base = self._branch
        start = (repository.commit(commit.removesuffix("+")) if commit else None) or base
        if start in self._read:
            return self._read[start]
        accepted: list[Acceptance] = []
        for sha, trailer in _trailers(repository, head, start):
            with contextlib.suppress(FtgateError):  # `check` reports it
                accepted += parsed(trailer, sha)
        self._read[start] = tuple(accepted)
        # A shallow clone may have no history from the head to the start.
        if repository.shallow and not self._warned:
            grafts = repository.root / repository.git("rev-parse", "--git-path", "shallow").rstrip("\n")
            ends = set(grafts.read_text(encoding="ascii").split()) if grafts.is_file() else set()
            reached = repository.git("rev-list", head, *([f"^{start}"] if start else [])).split()
            if not ends.isdisjoint(reached):
                self._warned = True
                where = f"before {shown(start)}, with which it is compared" if start else "at HEAD"
                self.run.listener.warn(
                    f"{KEY} trailers of this branch may be missing: this clone is shallow and its history ends "
                    f"{where}: {DEEPEN}"
                )
        return self._read[start]

    def check(self, reference: str) -> None:
        """Raise FtgateError for trailers of this branch that cannot be read.

        `reference` is the commit of `--ftgate-against`, "" without it. What is on the remote's default branch already
        is left alone: nobody can correct it.
        """
        if self._branch is None:
            return
        repository, head, base = self._branch
        published = (repository.commit(f"refs/remotes/{repository.remote}/{name}") for name in _DEFAULTS)
        wrong = []
        for commit, trailer in _trailers(repository, head, reference or base, *filter(None, published)):
            try:
                parsed(trailer, commit)
            except FtgateError as error:
                wrong.append(f"{error}; {FIX}")
        if wrong:
            raise FtgateError("\n".join(wrong))

    @cached_property
    def _branch(self) -> tuple[Repository, str, str] | None:
        """HEAD when the run began, and where its branch began: the merge base, else the commit before; "" for neither.

        The same for the whole run, whatever is committed meanwhile.
        """
        try:
            repository = Repository(self.run.folder.root)
            head = repository.commit("HEAD")
            if head is None:
                return None
            try:
                base = worktrees.merge_base(repository, os.environ)[1]
            except AgainstError:
                base = head
            # A push to the default branch brought what comes after its first parent, and so does the merge that CI
            # checks out.
            base = base if base != head else repository.commit("HEAD^1") or ""
            return repository, head, base
        except AgainstError:
            return None


def _trailers(repository: Repository, head: str, *starts: str) -> Iterator[tuple[str, str]]:
    """(commit, trailer) of the commits that `head` has and no `starts` have, newest first; without one, of `head`."""
    excluded = [f"^{start}" for start in starts if start]
    wanted = ("-i", "-E", f"--grep=^{KEY}:", "--encoding=UTF-8", "-z", "--format=%H%n%B")
    text = repository.git("log", "--no-show-signature", *wanted, *(excluded or ["--no-walk"]), head)
    for entry in filter(None, text.split("\0")):
        commit, _, message = entry.partition("\n")
        for trailer in trailers(message):
            yield commit, trailer


# `ftgate accept`: write the trailer of a commit by which a regression passes review.

DESCRIPTION = (
    "Accept an intended regression of the last run: make an empty commit whose trailer names the cells, the metric and "
    "the reason. Reviewers see it in the commit and in every report. Nothing is stored: ftgate baseline update stores "
    "the last run's figures as the new baseline."
)


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    text = "accept a regression by a commit's trailer (ftgate baseline update stores figures)"
    parser = subparsers.add_parser("accept", help=text, description=DESCRIPTION, exits=(3,))
    parser.add_argument("cells", metavar="CELL", nargs="+", help=f"cells or tests: {NAMES}; [ and ] are plain")
    parser.add_argument("metric", metavar="METRIC", help="the metric that regressed, such as wall; several with commas")
    parser.add_argument("reason", metavar="REASON", help="why the change is intended, in one line")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--amend", action="store_true", help="add the trailer to the last commit, unless it was pushed")
    how.add_argument("--print", dest="only_print", action="store_true", help="print the trailer and commit nothing")
    parser.add_argument("--report", type=Path, metavar="FILE", help="a JSON report to read instead of the last run's")
    parser.set_defaults(run=accept)


def accept(args: argparse.Namespace) -> int:
    """Write the trailers; 3 without a run, or if they would accept nothing in it. Raises FtgateError."""
    names = _amounts(args.metric)
    written(args.cells[0], names, args.reason)

    # What regressed in the run.
    report = read(args.report) if args.report else last_run()
    if report is None:
        return no_run()
    rows = report.rows
    accepted: dict[str, dict[str, float | None]] = {}
    """CELLS of a trailer -> its metrics, each with the largest change that is accepted."""
    for cells in dict.fromkeys(pattern for name in args.cells for pattern in _patterns(name, rows)):
        regressed = _regressed(row for row in rows if matches(cells, row.cell.nodeid))
        # Accept the change that was seen plus the effect: a larger change is another one.
        accepted[cells] = {
            name: most if most is not None else _rounded_up(name, max(map(_most, regressed[name])))
            for name, most in names.items()
            if name in regressed
        }
    if not accepted:
        return nothing(f"the run has no cell {' or '.join(args.cells)}; nothing was written")
    if missed := [name for name in names if not any(name in each for each in accepted.values())]:
        chosen = [row for row in rows if any(matches(cells, row.cell.nodeid) for cells in accepted)]
        did, where = [*_regressed(chosen)], "it" if len(chosen) == 1 else "them"
        others = [row.cell.nodeid for row in rows if missed[0] in _regressed([row])][:3]
        hint = f": {listed(did, 'and')} did" if did else f"; it did in {listed(others, 'and')}" if others else ""
        return nothing(f"{listed(missed, 'and')} did not regress in {where}{hint}; nothing was written")
    accepted = {cells: of_cells for cells, of_cells in accepted.items() if of_cells}
    trailers = [written(cells, of_cells, args.reason) for cells, of_cells in accepted.items()]
    trailer = "\n".join(trailers)
    if args.only_print:
        print(trailer)
        return FINE

    # The commit, made by the user's own git: with their name, their hooks and their signature.
    root = project().rootpath
    try:
        repository = Repository(root)
    except AgainstError:
        raise FtgateError(f"{root} is in no git repository; with --print the trailer is printed") from None
    how = ["-m", f"Accept the change of {listed([*names], 'and')} in {said.cells(accepted)}", "-m", trailer]
    if args.amend:
        how = ["--amend", "--no-edit", *(word for each in trailers for word in ("--trailer", each))]
        holding = repository.git("for-each-ref", "--contains=HEAD", "--format=%(refname:short)", "refs/remotes").split()
        if holding:
            raise FtgateError(
                f"--amend: the last commit is on {holding[0]} already, and amending it would rewrite what was pushed; "
                "leave --amend out, and an empty commit has the trailer"
            )
    before = repository.commit("HEAD")
    # --only: staged changes stay staged.
    done = subprocess.run(["git", "commit", "--quiet", "--only", "--allow-empty", *how], cwd=root)
    after = repository.commit("HEAD")
    if done.returncode or after is None or after == before:
        raise FtgateError("git made no commit, see above; with --print the trailer is printed, for a commit of yours")

    # Say which changes are accepted from now on, and which still fail.
    for each in trailers:
        print(plain(f"commit {said.commit(after)}: {each}"))
    for row in rows:
        meant = {name for cells, names in accepted.items() if matches(cells, row.cell.nodeid) for name in names}
        for judged in row.verdict.metrics:
            accepts = judged.metric in meant and judged.acceptable
            if accepts or judged.decision.missed:
                found = said.metric_text(judged, row)
                word = "accepts" if accepts else "still fails"
                named = "" if judged.contract else f"{found.metric} "
                print(plain(f"{word} {row.cell.nodeid}: {named}{found.change}".rstrip()))
    return FINE


def _patterns(name: str, rows: Iterable[Row]) -> list[str]:
    """The patterns that a trailer has for a CELL: a node id or a pattern stays as it is, a part of a name becomes the
    whole name. Empty if the run has no such cell; raises FtgateError if a part fits several tests.
    """
    found = named(name, [row.cell.nodeid for row in rows])
    if any(matches(name, nodeid) for nodeid in found):
        return [name]
    return found if name.endswith("]") else [*dict.fromkeys(split_nodeid(nodeid)[0] for nodeid in found)]


def _regressed(rows: Iterable[Row]) -> dict[str, list[MetricVerdict]]:
    """The acceptable verdicts of these cells by metric."""
    return grouped((each.metric, each) for row in rows for each in row.verdict.metrics if each.acceptable)


def _most(judged: MetricVerdict) -> float:
    """The change that was seen plus the effect."""
    return worse(judged) + worse(judged, pass_limit=True)
