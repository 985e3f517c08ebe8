"""The report for a terminal: one table per test, and below it the cells that need attention."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from ..judge import decide
from ..kit import units
from ..kit.text import listed, plain, plural
from ..kit.values import Metric, grouped
from ..model.report import Report, Row, Table
from ..model.verdict import Decision, Verdict
from . import said
from .details import GAP, Style, detail_lines, entry, padded, printable, wrapped
from .measured import COLUMNS, interval_head, judged_wall, wall_interval

START_SHARE = 0.9
"""The share of start and join in the time from which a report says how to leave them out."""
SUMMED = 10
"""Cells that fail and are named again at the end of a report."""
FEW_CELLS = 4
"""Of more cells the report gives the range of what they rule out."""
GIVE_WAY = ("pss", "ops_per_s", "scaling", "cores", "interval", "uss", "lock_wait")
"""The columns of a table that are left out where there is no room for all, the first one first."""
LEFT = ("cell", "verdict")
"""Those whose texts begin at the left."""


def render(report: Report, *, width: int, color: bool, unicode: bool, verbosity: int = 0) -> str:
    """The report as lines of at most `width` columns where that is possible; commands are never broken.

    `verbosity` below 0 leaves the machine and interpreters out; above 0 every cell's phases and metrics are shown.
    """
    style = Style(max(width, 40), color, unicode, verbosity)
    blocks = [] if verbosity < 0 else [_header(report, style)]
    unmeasured = [table for table in report.tables if style.verbosity <= 0 and _is_unmeasured(table)]
    together = unmeasured if len(unmeasured) > 1 else []
    blocks += [_table(report, table, style) for table in report.tables if table not in together]
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
        return printable("\n".join(_finding(row, style)), style).strip() or plain(row.verdict.reason)
    error = said.error_of(row)
    raised = said.RAISED.fullmatch(error.reason)
    lines = [said.error_text(error), *filter(None, [said.whose(row)])]
    # No assert of the measured process is rewritten.
    if decorated and raised is not None and raised[1] == "AssertionError":
        lines += [f"as a plain test, with pytest's own explanation: {shlex.join(['pytest', row.cell.nodeid])}"]
    return plain("\n".join(lines))


# ---- header and footer


def _header(report: Report, style: Style) -> list[str]:
    run = [f"pytest-ftgate {report.version}", report.started_at]
    run += [f"commit {said.commit(report.commit)}"] if report.commit else []
    run += [report.shard.name] if report.shard else []
    entries = [("run", style.separator.join(filter(None, run)))]
    for number, machine in enumerate(said.machines(report)):
        text = style.separator.join([machine.fingerprint, *said.machine_parts(machine)])
        entries.append(("" if number else "machine", text))
    for number, interpreter in enumerate(report.interpreters):
        parts = [f"{interpreter.name:<8} {'GIL on' if interpreter.gil_enabled else 'GIL off'}"]
        parts += ["JIT on"] if interpreter.jit_enabled else []
        parts += ["debug build: times are not representative"] if interpreter.debug else []
        parts += [interpreter.build, interpreter.executable]
        entries.append(("" if number else "python", style.separator.join(parts)))
    lines = [line for name, text in entries for line in entry(name, text, style, indent=0, column=9)]
    repeat = [f"{style.paint('repeat', 'dim')}   {plain(report.command)}"]  # never wrapped, so that it can be copied
    return lines + repeat if report.command else lines


def _footer(report: Report, style: Style) -> list[str]:
    lines: list[str] = []
    for update in report.updates:
        lines += entry("updated", update, style, indent=0, column=9)
    if report.unused_baselines:
        text = f"{plural(len(report.unused_baselines), 'baseline')} of cells that no longer exist, remove them with"
        lines += [*entry("unused", text, style, indent=0, column=9), " " * 9 + "ftgate baseline prune"]
        lines += [" " * 9 + name for name in report.unused_baselines]
    new = [row for row in report.rows if row.verdict.decision is Decision.NO_BASELINE]
    for why in dict.fromkeys(plain(row.verdict.reason) for row in new if said.is_against(row) and row.verdict.reason):
        lines += entry("new", why, style, indent=0, column=9)
    for word, cells in grouped((said.not_there(row)[0], row) for row in report.rows).items():
        for why, count in Counter(plain(said.not_there(row)[1]) for row in cells if word).items():
            lines += entry(word, f"{plural(count, 'cell')}: {why}", style, indent=0, column=9)
        if word == "stale":
            lines += [" " * 9 + f"record it again: {command}" for command in said.recording_commands(cells)]
    if (count := sum(not (said.is_against(row) or said.not_there(row)[0]) for row in new)) and not report.updates:
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
    for text in dict.fromkeys((*([] if undecided else [said.first_line(report)]), said.result(report))):
        lines += [style.paint(line, "bold") for line in wrapped(text, style, indent=0)]
    partial = f"this report is partial: {plain(report.partial)}" if report.partial else ""
    for text in (undecided, partial):
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
    for row, *others in blocks[:SUMMED]:
        names = said.cells(each.cell.nodeid for each in (row, *others))
        lines += _worded(row.verdict.decision, names, style, indent=0)
        why = said.finding(row).explanation[:1]
        for text in (said.headline(row), *why):
            lines += wrapped(plain(text), style, indent=4)
    more = sum(map(len, blocks[SUMMED:]))
    return [*lines, *([f"and {plural(more, 'more cell')}, above"] if more > 0 else []), ""]


# ---- the table of a test


def _table(report: Report, table: Table, style: Style) -> list[str]:
    # The title, how many cells were decided, and what `ratio` refers to at the right end of the line that has room.
    aside = f"ratio to {table.reference}" if any(row.figures.ratio is not None for row in table.rows) else ""
    result = said.result(report, table.rows)
    title, more = f"{table.title}: {result}", list[str]()
    if len(title) + (len(GAP + aside) if aside else 0) > style.width:
        title, more = table.title, wrapped(result, style, indent=2)
    room = style.width - len(title) - len(aside)
    if aside and room >= len(GAP):
        lines = [style.paint(title, "bold") + " " * room + style.paint(aside, "dim")]
    else:
        lines = [style.paint(title, "bold")] + ([GAP + style.paint(aside, "dim")] if aside else [])
    note = textwrap.wrap(table.note, style.width - len(GAP))
    lines += [*more, *(GAP + style.paint(line, "dim") for line in note)]
    if table.rows:
        lines += _grid(table, style)

    # The cells that need attention, worst first.
    below: list[str] = []
    for decision in Decision:
        rows = [row for row in table.rows if row.verdict.decision is decision]
        if not rows:
            continue
        if decision is Decision.ERROR:
            # Each error once in a report, below the first table that has it.
            for block in said.blocks(row for row in report.rows if row.verdict.decision is decision):
                if any(row is block[0] for row in rows):
                    below += _error(block, style)
        elif decision.outcome in ("skipped", "xfailed") and (style.verbosity <= 0 or decision is Decision.UNSUPPORTED):
            below += _by_reason(rows, style)
        else:
            # An inconclusive cell without figures has its reason alone, which all cells of a test may share.
            bare = [row for row in rows if decision is Decision.INCONCLUSIVE and not row.verdict.metrics]
            below += _by_reason(bare, style)
            below += [line for row in rows if row not in bare for line in _finding(row, style)]

    # What is said of several cells at once.
    def basis(verdict: Verdict) -> str:
        return said.basis(verdict) if verdict.basis and style.verbosity <= 0 else ""  # with -v a cell names its own

    conditions = (text for row in table.rows for text in decide.remarks(row.conditions, row.cell.workers))
    named = (
        ("unchanged", _once(table, Decision.UNCHANGED, lambda verdict: verdict.reason)),
        ("passed", _once(table, Decision.PASSED, said.uncompared)),
        ("passed by", _once(table, Decision.PASSED, basis)),
        ("judged by", _once(table, Decision.INCONCLUSIVE, basis)),
        ("ruled out", _ruled_out(table)),
        ("ratio", said.ratios_of_rounds(table.rows)),
        ("budget", said.shortfalls(table.rows)),
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


def _once(table: Table, decision: Decision, text_of: Callable[[Verdict], str]) -> list[str]:
    """What is said of the cells of a decision: each text once, with those that it holds for unless it holds for all."""
    said_of = ((text_of(row.verdict), row.cell.label) for row in table.rows if row.verdict.decision is decision)
    labels = grouped((text, label) for text, label in said_of if text)
    every = len(table.rows)
    return [text if len(cells) == every else f"{text}: {', '.join(cells)}" for text, cells in labels.items()]


def _ruled_out(table: Table) -> list[str]:
    """What change of the wall time is ruled out for the cells that did not fail; of many cells the range."""
    found = {}
    for row in table.rows:
        wall = judged_wall(row)
        if wall and (text := said.rules_out(wall)):
            found[row.cell.label] = wall.ruled_out, text
    if not found:
        return []
    if len(found) <= FEW_CELLS:
        changes = ", ".join(f"{text} ({label})" for label, (_, text) in found.items())
    else:
        (_, low), (_, high) = (bound(found.values()) for bound in (min, max))
        changes = low if low == high else f"{low} to {high}"
    return [f"a wall time of {changes}"]


def _hints(table: Table) -> list[str]:
    """How to measure a body that is short beside the start and the end of its workers in each iteration."""
    shares: dict[str, float] = {}
    for row in table.rows:
        start, work, join = row.figures.start_ns, row.figures.work_ns, row.figures.join_ns
        if row.sample is None or row.sample.reuse != "fresh" or start is None or work is None or join is None:
            continue
        if (start + join) >= START_SHARE * (start + work + join) > 0:
            shares[row.cell.label] = (start + join) / (start + work + join)
    if not shares:
        return []
    share = units.whole_share(min(shares.values())) + ("" if len(shares) == 1 else " or more")
    of = "the time" if len(shares) == len(table.rows) else f"the time of {', '.join(shares)}"
    return [f'{share} of {of} is start and join: leave out reuse="fresh"']


def _grid(table: Table, style: Style) -> list[str]:
    """All columns in which a row has a value, as far as there is room; details below each row."""
    rows, half = table.rows, partial(units.half_width, unicode=style.unicode)
    walls = [wall_interval(row) for row in rows]
    every = {"cell": ["", *(row.cell.label or row.cell.executor.label for row in rows)]}
    for name, column in COLUMNS.items():
        every[name] = [name, *column.texts(rows)]
        if name == Metric.WALL:
            every["interval"] = [interval_head(rows), *(half(wall) if wall else "" for wall in walls)]
    every["verdict"] = ["verdict", *(row.verdict.decision.value for row in rows)]
    columns = {
        name: padded(texts, str.ljust if name in LEFT else str.rjust) for name, texts in every.items() if any(texts[1:])
    }
    for name in GIVE_WAY:
        if sum(len(GAP) + len(texts[0]) for texts in columns.values()) > style.width:
            columns.pop(name, None)
    head, *lines = zip(*columns.values(), strict=True)
    found = [style.paint(GAP.join(["", *head]).rstrip(), "dim")]
    for row, (*texts, verdict) in zip(rows, lines, strict=True):
        decision = style.paint(verdict.rstrip(), row.verdict.decision.color)
        found += [GAP.join(["", *texts, decision]), *detail_lines(row, style)]
    return found


# ---- what needs attention


def _finding(row: Row, style: Style) -> list[str]:
    """The lines about one cell; without -v none for a cell that needs no attention."""
    match row.verdict.decision:
        case Decision.REGRESSED | Decision.SUSPECT | Decision.BROKEN:
            rerun, *others = said.commands(row)  # never wrapped, so that they can be copied
            commands = [f"      {style.paint('rerun', 'dim')}      {rerun}", *(" " * 17 + other for other in others)]
            if meant := said.meant(row):
                commands += [f"      {style.paint('meant?', 'dim')}     {meant}"]
            return [*_measured(row, style), *commands]
        case Decision.ERROR:
            return _error([row], style)
        case Decision.INCONCLUSIVE if style.verbosity <= 0:
            return _open(row, style)
        case Decision.INCONCLUSIVE | Decision.IMPROVED | Decision.ACCEPTED:
            return _measured(row, style)
        case Decision.UNSUPPORTED:
            return _by_reason([row], style)
        case Decision.XPASSED | Decision.XFAILED:
            # What was expected, and with -v what was measured.
            heading, *measured = _measured(row, style)
            expected = wrapped(said.known_text(row.verdict), style, indent=6)
            return [heading, *expected, *(measured if style.verbosity > 0 else [])]
        case Decision.PASSED if style.verbosity > 0:
            return _measured(row, style)
    return []


def _measured(row: Row, style: Style) -> list[str]:
    """A heading, a line for each metric that led to the decision, the reason, the reference and the basis."""
    found = said.finding(row, every=style.verbosity > 0)
    limits = {each.metric: said.allowed(each) for each in row.verdict.metrics if not each.contract}
    lines = _named(row, style)
    for each in found.changes:
        evidence = each.evidence if style.verbosity > 0 else ""  # the reason has what decided
        limit = limits.get(each.metric, "") if each.decision.fails else ""
        text = ", ".join(filter(None, (each.text, limit, evidence)))
        first, *rest = [text for text in (text, each.reason) if text] or [""]
        lines += entry(each.metric, first, style, indent=6, column=11)
        lines += wrapped(" ".join(rest), style, indent=17)
    lines += wrapped(found.reason, style, indent=6)
    for number, text in enumerate(found.explanation):
        lines += entry("" if number else "changed", text, style, indent=6, column=11)
    if found.against:
        lines += entry("against", found.against, style, indent=6, column=11)
    if found.basis:
        name = "judged by" if row.verdict.basis else "baseline"
        lines += entry(name, found.basis, style, indent=6, column=11)
    return lines


def _open(row: Row, style: Style) -> list[str]:
    """An inconclusive cell in few lines: the first open metric, the names of the others, and what would settle them.

    What has no figures, a contract too, says why.
    """
    compared, bare, settles = said.open_metrics(row)
    lines = _named(row, style)
    for each in compared[:1]:
        others = [other.metric for other in compared[1:]]
        more = f"; {listed(others, 'and')} too (-v)" if others else ""
        found = said.metric_text(each, row)
        lines += entry(found.metric, found.text + more, style, indent=6, column=11)
    for each in bare:
        text = ": ".join(filter(None, (each.contract, each.reason)))
        lines += entry(each.metric, text, style, indent=6, column=11)
    return lines + wrapped(plain(settles), style, indent=6)


def _error(block: Sequence[Row], style: Style) -> list[str]:
    """An error with the cells that have it; pytest's FAILURES show its output."""
    error = said.error_of(block[0])
    shown = f"{said.exception(error)} (see FAILURES)" if error.detail else said.exception(error)
    lines = _worded(Decision.ERROR, said.cells(said.names(block)), style)
    return lines + wrapped(shown, style, indent=6) + wrapped(said.whose(block[0]), style, indent=6)


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


def _named(row: Row, style: Style) -> list[str]:
    return _worded(row.verdict.decision, row.cell.label or row.cell.nodeid, style)


def _worded(decision: Decision, text: str, style: Style, indent: int = 2) -> list[str]:
    """The decision in its colour, and what it is about."""
    first, *rest = wrapped(f"{decision}: {plain(text)}", style, indent=indent, hanging=indent + 4)
    return [first.replace(decision.value, style.paint(decision.value, decision.color), 1), *rest]
