"""The report for a terminal: one table per test, and below it the cells that need attention."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ..judge import decide
from ..kit import units
from ..kit.text import plain, plural
from ..kit.values import Metric, grouped
from ..model.report import Report, Row, Table
from ..model.verdict import Decision
from . import errors, reasons, said
from .details import GAP, Style, detail_lines, entry, padded, printable, wrapped
from .measured import COLUMNS, interval_head, judged, moved, wall_change, wall_interval

START_SHARE = 0.9
"""The share of start and join in the time from which a report says how to leave them out."""
SUMMED = 10
"""Cells that fail and are named again at the end of a report."""
GIVE_WAY = ("pss", "ops_per_s", "cores", "lock_ceiling", "scaling", "interval", "ratio", "lock_wait", "uss", "change")
"""The columns of a table that are left out where there is no room for all, the first one first."""
BLANK = "not measured, or compared with nothing"
LEFT = ("cell", "verdict")
"""Those whose texts begin at the left."""


class Whole(NamedTuple):
    """What is found once of all cells of a report, and said in the table of each test."""

    tests: said.Tests
    against: str
    """What all were compared with; empty where a cell has to say that itself."""
    undecided: bool = False
    """The last line says what the time allowed."""
    errors: Mapping[int, Sequence[Row]] = {}
    """The cells of each error, by the identity of the first row, below whose test it is said."""


def render(report: Report, *, width: int, color: bool, unicode: bool, verbosity: int = 0) -> str:
    """The report as lines of at most `width` columns where that is possible; commands are never broken.

    `verbosity` below 0 leaves the machine and interpreters out; above 0 every cell's phases and metrics are shown.
    """
    style = Style(max(width, 40), color, unicode, verbosity)
    blocks = [] if verbosity < 0 else [_header(report, style)]
    unmeasured = [table for table in report.tables if style.verbosity <= 0 and _is_unmeasured(table)]
    together = unmeasured if len(unmeasured) > 1 else []
    failed = said.blocks(row for row in report.rows if row.verdict.decision is Decision.ERROR)
    whole = Whole(
        tests=said.by_test(report.rows),
        against=said.against(report),
        undecided=bool(said.undecided(report)),
        errors={id(block[0]): block for block in failed},
    )
    apart = set(map(id, together))
    blocks += [_table(report, table, style, whole) for table in report.tables if id(table) not in apart]
    blocks.append(_unmeasured(together, style))
    blocks.append(_footer(report, style))
    text = "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks if block) + "\n"
    return printable(text, style)


def cell_text(row: Row, verbosity: int = 0, *, decorated: bool = False) -> str:
    """What pytest's FAILURES and a JUnit file say of one cell: also the output of one with an error; may be empty.

    `decorated`: it is no existing test, so that a run without --ftgate has the cell, too.
    """
    if row.verdict.decision is not Decision.ERROR:
        style = Style(100, verbosity=verbosity)
        lines = _finding([row], style, Whole(said.by_test([row]), against=""))
        return printable("\n".join(lines), style).strip() or plain(reasons.of_cell(row.verdict))
    error = errors.error_of(row)
    raised = errors.RAISED.fullmatch(error.reason)
    lines = [errors.error_text(error), *filter(None, [errors.whose(row)])]
    # No assert of the measured process is rewritten.
    if decorated and raised is not None and raised[1] == "AssertionError":
        lines += [f"as a plain test, with pytest's own explanation: {shlex.join(['pytest', row.cell.nodeid])}"]
    return plain("\n".join(lines))


# ---- header and footer


def _header(report: Report, style: Style) -> list[str]:
    """What is measured against what, and on what; with -v all of the machine, and the command that repeats the run."""
    machines, every = said.machines(report), style.verbosity > 0
    if every:
        run = [f"pytest-ftgate {report.version}", report.started_at]
        run += [f"commit {said.commit(report.commit)}"] if report.commit else []
    else:
        run = [said.about(report)]
    entries = [("run", [*filter(None, run), *([report.shard.name] if report.shard else [])])]
    for number, machine in enumerate(machines):
        parts = said.machine_parts(machine)
        entries.append(("" if number else "machine", [machine.fingerprint, *parts] if every else parts[:2]))
    for number, interpreter in enumerate(report.interpreters):
        parts = [f"{interpreter.name:<8} {'GIL on' if interpreter.gil_enabled else 'GIL off'}"]
        parts += ["JIT on"] if interpreter.jit_enabled else []
        parts += ["debug build: times are not representative"] if interpreter.debug else []
        parts += [interpreter.untested] if interpreter.untested else []
        parts += [interpreter.build, interpreter.executable] if every else []
        entries.append(("" if number else "python", parts))
    found = ((name, style.separator.join(parts)) for name, parts in entries if parts)
    lines = [line for name, text in found for line in entry(name, text, style, indent=0, column=9)]
    repeat = [f"{style.paint('repeat', 'dim')}   {plain(report.command)}"]  # never wrapped, so that it can be copied
    return lines + repeat if report.command and every else lines


def _footer(report: Report, style: Style) -> list[str]:
    lines: list[str] = []
    for number, update in enumerate(report.updates):
        lines += entry("" if number else "updated", update, style, indent=0, column=9)
    if report.unused_baselines:
        text = f"{plural(len(report.unused_baselines), 'baseline')} of cells that no longer exist, remove them with"
        lines += [*entry("unused", text, style, indent=0, column=9), " " * 9 + "ftgate baseline prune"]
        lines += [" " * 9 + name for name in report.unused_baselines]
    new = [row for row in report.rows if row.verdict.decision is Decision.NO_BASELINE]
    for why in dict.fromkeys(plain(row.verdict.reason) for row in new if said.is_against(row) and row.verdict.reason):
        lines += entry("new", why, style, indent=0, column=9)
    for word, cells in grouped((said.stale_or_missing(row)[0], row) for row in report.rows).items():
        for why, count in Counter(plain(said.stale_or_missing(row)[1]) for row in cells if word).items():
            lines += entry(word, f"{plural(count, 'cell')}: {why}", style, indent=0, column=9)
        if word == "stale":
            lines += [" " * 9 + f"record it again: {command}" for command in said.recording_commands(cells)]
    count = sum(not (said.is_against(row) or said.stale_or_missing(row)[0]) for row in new)
    if count and not report.updates:
        text = plural(count, "cell has", "cells have") + " no baseline: compare with a commit, or store the figures"
        roads = [*(["pytest --ftgate-against=REV"] if report.commit else []), "ftgate baseline update"]
        lines += [*entry("new", text, style, indent=0, column=9), *(" " * 9 + road for road in roads)]
    if style.verbosity > 0 and (seconds := said.seconds_text(report)):
        lines += entry("seconds", seconds, style, indent=0, column=9)
    lines += [*([""] if lines else []), *_failed(report, style)]

    # How many cells there were of each kind, on as many lines as that takes; then the result, and why it is none.
    counts = said.counts(report)
    line = bare = f"{plural(counts.total(), 'cell')} in {units.span(report.wall_s)}" + (":" if counts else "")
    for number, decision in enumerate(sorted(counts, key=lambda each: each.severity), 1):
        phrase = said.count_text(decision, counts[decision]) + ("," if number < len(counts) else "")
        if len(bare) + 1 + len(phrase) > style.width:
            lines.append(line)
            line = bare = " " * 8
        line += " " + style.paint(phrase, decision.color)
        bare += " " + phrase
    lines.append(line)
    undecided = said.undecided(report)
    for text in dict.fromkeys([] if undecided else [said.first_line(report), said.result(report)]):
        lines += [style.paint(line, "bold") for line in wrapped(text, style, indent=0)]
    partial = f"this report is partial: {plain(report.partial)}" if report.partial else ""
    for text in ("; ".join(undecided), partial):
        lines += [style.paint(line, "red") for line in wrapped(text, style, indent=0)]
    return lines


def _failed(report: Report, style: Style) -> list[str]:
    """The cells that fail, worst first, each with its figure and the first of its explanation; of one test nothing.

    The tables of many tests stand above it, and pytest's own summary cuts its lines at the terminal's width.
    """
    rows = [row for row in said.worst_first(report) if said.fails(report, row)]
    if not rows or len(report.tables) < 2:
        return []
    lines = []
    blocks = said.blocks(rows)
    for block in blocks[:SUMMED]:
        lines += _worded(block[0].verdict.decision, said.cells(row.cell.nodeid for row in block), style, indent=0)
        why = said.finding(*block).explanation[:1]
        for text in (said.headline(block[0]), *why):
            lines += wrapped(plain(text), style, indent=4)
    more = sum(map(len, blocks[SUMMED:]))
    return [*lines, *([f"and {plural(more, 'more cell')}, above"] if more > 0 else []), ""]


# ---- the table of a test


def _table(report: Report, table: Table, style: Style, whole: Whole) -> list[str]:
    """A test."""
    # The title, how many cells were decided, which the last line says of the only test, and what `ratio` refers to at
    # the right end of the line that has room.
    columns = _columns(table, style)
    aside = f"ratio to {table.reference}" if "ratio" in columns else ""
    result = said.result(report, table.rows) if len(report.tables) > 1 else ""
    title, more = ": ".join(filter(None, (table.title, result))), list[str]()
    if len(title) + (len(GAP + aside) if aside else 0) > style.width:
        title, more = table.title, wrapped(result, style, indent=2)
    room = style.width - len(title) - len(aside)
    if aside and room >= len(GAP):
        lines = [style.paint(title, "bold") + " " * room + style.paint(aside, "dim")]
    else:
        lines = [style.paint(title, "bold")] + ([GAP + style.paint(aside, "dim")] if aside else [])
    note = textwrap.wrap(table.note, style.width - len(GAP))
    lines += [*more, *(GAP + style.paint(line, "dim") for line in note)]
    if columns:
        head, *texts = zip(*columns.values(), strict=True)
        lines.append(style.paint(GAP.join(["", *head]).rstrip(), "dim"))
        for row, (*figures, verdict) in zip(table.rows, texts, strict=True):
            decision = style.paint(verdict.rstrip(), row.verdict.decision.color)
            lines += [GAP.join(["", *figures, decision]), *detail_lines(row, style)]

    # The cells that need attention, worst first.
    below: list[str] = []
    for decision in Decision:
        rows = [row for row in table.rows if row.verdict.decision is decision]
        if not rows:
            continue
        if decision is Decision.ERROR:
            for row in rows:
                below += _error(whole.errors[id(row)], style) if id(row) in whole.errors else []
        elif decision.outcome in ("skipped", "xfailed") and (style.verbosity <= 0 or decision is Decision.UNSUPPORTED):
            below += _by_reason(rows, style)
        else:
            # An inconclusive cell without figures has its reason alone, which all cells of a test may share.
            bare = [row for row in rows if decision is Decision.INCONCLUSIVE and not row.verdict.metrics]
            below += _by_reason(bare, style)
            full = sorted((row for row in rows if row not in bare), key=lambda row: said.place(report, row))
            for block in said.blocks(full) if style.verbosity <= 0 else ([row] for row in full):
                below += _finding(block, style, whole)

    blank = columns and any(not text.strip() for texts in columns.values() for text in texts[1:])

    # What is said of several cells at once.
    def basis(row: Row) -> str:  # with -v a cell names its own
        return said.basis(row.verdict) if row.verdict.basis == "stored" and style.verbosity <= 0 else ""

    conditions = (text for row in table.rows for text in decide.remarks(row.conditions, row.cell.workers))
    named = (
        ("unchanged", _once(table, lambda row: row.verdict.reason * (row.verdict.decision is Decision.UNCHANGED))),
        ("passed", _once(table, lambda row: said.uncompared(row.verdict))),
        ("judged by", _once(table, basis)),
        ("locks", _once(table, said.locks_allow)),
        ("ratio", said.ratios_of_rounds(table.rows) if style.verbosity > 0 else []),
        ("blank", [BLANK] if blank and style.verbosity > 0 else []),
        ("budget", [] if whole.undecided else said.shortfalls(table.rows)),
        ("hint", _hints(table)),
        ("machine", dict.fromkeys(conditions)),
    )
    remarks = [
        line for name, texts in named for text in texts for line in entry(name, text, style, indent=2, column=11)
    ]
    return [*lines, *([""] if below or remarks else []), *below, *remarks]


def _is_unmeasured(table: Table) -> bool:
    """Whether no cell of a test had a launch: its table would be empty."""
    return not any(row.verdict.decision.measured or (row.sample and row.sample.launches) for row in table.rows)


def _unmeasured(tables: Sequence[Table], style: Style) -> list[str]:
    """Tests of which no cell was measured, each reason once."""
    found = grouped(((row.verdict.decision, row.verdict.reason), row) for table in tables for row in table.rows)
    lines: list[str] = []
    for (decision, reason), rows in found.items():
        tests = list(dict.fromkeys(map(said.test_of, rows)))
        lines += _worded(decision, f"{plural(len(rows), 'cell')} of {said.few(tests)}", style, indent=0)
        lines += wrapped(plain(reason), style, indent=4)
    return lines


def _once(table: Table, text_of: Callable[[Row], str]) -> list[str]:
    """What is said of cells: each text once, with those that it holds for unless it holds for all."""
    labels = grouped((text_of(row), row.cell.label) for row in table.rows)
    every = len(table.rows)
    return [f"{text}: {', '.join(cells)}" if len(cells) < every else text for text, cells in labels.items() if text]


def _hints(table: Table) -> list[str]:
    """How to measure a body that is short beside the start and the end of its workers in each iteration."""
    shares: dict[str, float] = {}
    for row in table.rows:
        start, work, join = row.figures.start_ns, row.figures.work_ns, row.figures.join_ns
        if row.sample is None or row.sample.reuse != "fresh" or start is None or work is None or join is None:
            continue
        if row.cell.roles:  # those that end after the leader do so in its join
            continue
        if (start + join) >= START_SHARE * (start + work + join) > 0:
            shares[row.cell.label] = (start + join) / (start + work + join)
    if not shares:
        return []
    share = units.whole_share(min(shares.values())).replace(">", "more than ")
    if len(shares) > 1 and share[0].isdigit():
        share = f"at least {share}"
    of = "the time" if len(shares) == len(table.rows) else f"the time of {', '.join(shares)}"
    return [f'{share} of {of} is start and join: leave out reuse="fresh"']


def _columns(table: Table, style: Style) -> dict[str, list[str]]:
    """All columns in which a row has a value, as far as there is room, each text at the width of its column."""
    rows, half = table.rows, partial(units.half_width, unicode=style.unicode)
    walls = [wall_interval(row) for row in rows]
    every = {"cell": ["", *(row.cell.label or row.cell.executor.label for row in rows)]}
    for name, column in COLUMNS.items():
        every[name] = [name, *column.texts(rows)]
        if name == Metric.WALL:
            every["change"] = ["change", *(wall_change(row, with_ends=style.verbosity > 0) for row in rows)]
            if style.verbosity > 0 or not any(every["change"][1:]):
                every["interval"] = [interval_head(rows), *(half(wall) if wall else "" for wall in walls)]
    every["verdict"] = ["verdict", *map(_verdict, rows)]
    waits = ((row.figures.lock_wait, judged(row, Metric.LOCK_WAIT)) for row in rows)
    if style.verbosity <= 0 and not any(now or (wait and moved(wait)) for now, wait in waits):
        del every[Metric.LOCK_WAIT]
    columns = {
        name: padded(texts, str.ljust if name in LEFT else str.rjust) for name, texts in every.items() if any(texts[1:])
    }
    for name in GIVE_WAY:
        if sum(len(GAP) + len(texts[0]) for texts in columns.values()) > style.width:
            columns.pop(name, None)
    return columns if rows else {}


def _verdict(row: Row) -> str:
    """`regressed: growth` where no column could show what failed."""
    decision = row.verdict.decision
    failed = [each.metric for each in row.verdict.metrics if each.decision is decision and not each.contract]
    unseen = decision.missed and failed and not any(name in COLUMNS for name in failed)
    return f"{decision}: {failed[0]}" if unseen else decision.value


# ---- what needs attention


def _finding(block: Sequence[Row], style: Style, whole: Whole) -> list[str]:
    """The lines about the cells of a block; without -v none for one that needs no attention."""
    row = block[0]
    match row.verdict.decision:
        case Decision.REGRESSED | Decision.SUSPECT | Decision.BROKEN:
            rerun, *others = said.commands(block, whole.tests)  # never wrapped, so that they can be copied
            commands = [f"      {style.paint('rerun', 'dim')}      {rerun}", *(" " * 17 + other for other in others)]
            if meant := said.meant(block, whole.tests):
                commands += [f"      {style.paint('meant?', 'dim')}     {meant}"]
            return [*_measured(block, style, whole), *commands]
        case Decision.ERROR:
            return _error(block, style)
        case Decision.INCONCLUSIVE if style.verbosity <= 0:
            return _worded(row.verdict.decision, said.in_block(block, whole.tests), style) + wrapped(
                said.headline(row), style, 6
            )
        case Decision.INCONCLUSIVE | Decision.IMPROVED | Decision.ACCEPTED:
            return _measured(block, style, whole)
        case Decision.UNSUPPORTED:
            return _by_reason([row], style)
        case Decision.XPASSED | Decision.XFAILED:
            # What was expected, and with -v what was measured.
            heading, *measured = _measured(block, style, whole)
            expected = wrapped(said.known_text(row.verdict), style, indent=6)
            return [heading, *expected, *(measured if style.verbosity > 0 else [])]
        case Decision.PASSED if style.verbosity > 0:
            return _measured(block, style, whole)
    return []


def _measured(block: Sequence[Row], style: Style, whole: Whole) -> list[str]:
    """A heading, a line for each metric that led to the decision, the reason, why; the reference and the basis."""
    row, every = block[0], style.verbosity > 0
    alone = every or not whole.against
    found = said.finding(*block, every=every)
    lines = _worded(row.verdict.decision, said.in_block(block, whole.tests), style)
    for each in found.changes:
        first, *rest = filter(None, (each.text(), each.evidence if every else each.reason))
        lines += entry(each.metric, first, style, indent=6, column=11)
        lines += wrapped(" ".join(rest), style, indent=17)
    lines += wrapped(found.reason, style, indent=6)
    for number, text in enumerate(found.explanation):
        lines += entry("" if number else "why", text, style, indent=6, column=11)
    if found.against and alone:
        lines += entry("against", found.against, style, indent=6, column=11)
    if found.basis and (alone or not row.verdict.basis):
        name = "judged by" if row.verdict.basis else "baseline"
        lines += entry(name, found.basis, style, indent=6, column=11)
    return lines


def _error(block: Sequence[Row], style: Style) -> list[str]:
    """An error with the cells that have it; pytest's FAILURES show its output."""
    error = errors.error_of(block[0])
    shown = f"{errors.exception(error)} (see FAILURES)" if error.detail else errors.exception(error)
    lines = _worded(Decision.ERROR, said.cells(said.names(block)), style)
    return lines + wrapped(shown, style, indent=6) + wrapped(errors.whose(block[0]), style, indent=6)


def _by_reason(rows: Sequence[Row], style: Style) -> list[str]:
    """A line for each reason, with the cells it holds for."""
    cells: dict[tuple[Decision, str], list[str]] = {}
    for row in rows:
        reason = said.known_text(row.verdict) or row.verdict.reason or "it cannot run here"
        cells.setdefault((row.verdict.decision, reason), []).append(row.cell.label)
    lines: list[str] = []
    for (decision, reason), labels in cells.items():
        lines += _worded(decision, ", ".join(labels), style)
        for line in reason.splitlines():
            lines += wrapped(plain(line.strip()), style, indent=6)
    return lines


# ---- lines


def _worded(decision: Decision, text: str, style: Style, indent: int = 2) -> list[str]:
    """The decision in its colour, and what it is about."""
    first, *rest = wrapped(f"{decision}: {plain(text)}", style, indent=indent, hanging=indent + 4)
    return [first.replace(decision.value, style.paint(decision.value, decision.color), 1), *rest]
