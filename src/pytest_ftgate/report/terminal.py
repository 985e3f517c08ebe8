"""The report for a terminal: one table per test, and below it the cells that need attention."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from ..judge import decide, metrics
from ..kit import units
from ..kit.text import listed, plain
from ..kit.values import Interval, Metric
from ..model.report import Machine, Report, Row, Table
from ..model.spec import Interpreter
from ..model.verdict import Decision, Verdict
from . import said as budgets
from . import said as findings
from . import said as headlines
from .details import GAP, Style, detail_lines, entry, printable, wrapped

Value = TypeVar("Value")


START_SHARE = 0.9
"""The share of start and join in the time from which a report says how to leave them out."""
SUMMED = 10
"""Cells that fail and are named again at the end of a report."""
FEW_CELLS = 4
"""Of more cells the report gives the range of what they rule out."""
LAYOUTS = tuple(
    tuple(layout.split())
    for layout in (
        "cell time ends ratio cores scaling uss pss lock ops verdict",
        "cell time ends ratio cores scaling uss lock ops verdict",
        "cell time ends ratio cores scaling uss lock verdict",
        "short time ends ratio cores scaling uss lock verdict",
        "short time half ratio cores scaling uss lock verdict",
        "short time half ratio cores uss lock verdict",
        "short time half ratio uss lock verdict",
        "short time half ratio uss locks verdict",
        "short time half ratio locks verdict",
        "short time ratio locks verdict",
        "short time ratio verdict",
    )
)
"""Columns of the table, from the widest layout to the narrowest."""


class Column(NamedTuple):
    """One column: its heading, one text per row, and its alignment."""

    head: str
    texts: tuple[str, ...]
    left: bool = False

    @property
    def width(self) -> int:
        """Columns that the widest of its texts takes."""
        return max(len(self.head), *map(len, self.texts))

    def padded(self, text: str) -> str:
        """A text of this column at the column's width."""
        return text.ljust(self.width) if self.left else text.rjust(self.width)


def render(report: Report, *, width: int, color: bool, unicode: bool, verbosity: int = 0) -> str:
    """The report as lines of at most `width` columns where that is possible; commands are never broken.

    `verbosity` below 0 leaves the machine and interpreters out; above 0 every cell's phases and metrics are shown.
    """
    style = Style(max(width, 40), color, unicode, verbosity)
    blocks = [] if verbosity < 0 else [_header(report, style)]
    blocks += [_table(report, table, style) for table in report.tables]
    blocks.append(_footer(report, style))
    text = "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks if block) + "\n"
    return printable(text, style)


def verdict_lines(row: Row, *, width: int, color: bool, unicode: bool, verbosity: int = 0) -> str:
    """What the report says under the table about one cell, for pytest's own failure section; may be empty."""
    style = Style(max(width, 40), color, unicode, verbosity)
    return printable("\n".join(_finding(row, style)), style)


def cell_text(row: Row, verbosity: int = 0) -> str:
    """What pytest's FAILURES and a JUnit file say of one cell: also the output of one with an error; may be empty."""
    if row.verdict.decision is Decision.ERROR:
        return headlines.failure_text(row)
    text = verdict_lines(row, width=100, color=False, unicode=True, verbosity=verbosity).strip()
    return text or row.verdict.reason


# ---- header and footer


def _header(report: Report, style: Style) -> list[str]:
    run = [f"pytest-ftgate {report.version}", report.started_at]
    if report.commit:
        run.append(f"commit {findings.commit(report.commit)}")
    if report.shard:
        run.append(report.shard.name)
    entries = [("run", style.separator.join(filter(None, run)))]
    for number, (names, machine) in enumerate(findings.machines(report)):
        text = ": ".join(filter(None, (plain(names), _machine(machine, style))))
        entries.append(("" if number else "machine", text))
    for number, interpreter in enumerate(report.interpreters):
        entries.append(("" if number else "python", _interpreter(interpreter, style)))
    if not report.command:
        entries.append(("seed", f"{report.seed} (repeat with --ftgate-seed {report.seed})"))
    lines = [line for name, text in entries for line in entry(name, text, style, indent=0, column=9)]
    repeat = [f"{style.paint('repeat', 'dim')}   {plain(report.command)}"]  # never wrapped, so that it can be copied
    return lines + repeat if report.command else lines


def _machine(machine: Machine, style: Style) -> str:
    parts = [
        machine.fingerprint,
        machine.cpu or machine.arch,
        f"{machine.cores} core" + ("s" if machine.cores != 1 else ""),
        f"{machine.system} {machine.kernel} {machine.arch}",
    ]
    if machine.governor:
        parts.append(f"governor {machine.governor}")
    if machine.cpu_quota is not None:
        parts.append(f"limited to {machine.cpu_quota:g} cores")
    if machine.memory_limit_bytes is not None:
        parts.append(f"limited to {units.size(machine.memory_limit_bytes)}")
    return style.separator.join(parts)


def _interpreter(interpreter: Interpreter, style: Style) -> str:
    gil = "GIL on" if interpreter.gil_enabled else "GIL off"
    parts = [f"{interpreter.name:<8} {gil}"]
    parts += [
        word
        for applies, word in (
            (interpreter.jit_enabled, "JIT on"),
            (interpreter.debug, "debug build: times are not representative"),
        )
        if applies
    ]
    parts += [interpreter.build, interpreter.executable]
    return style.separator.join(parts)


def _footer(report: Report, style: Style) -> list[str]:
    lines: list[str] = []
    for update in report.updates:
        lines += entry("updated", update, style, indent=0, column=9)
    if report.unused_baselines:
        count = len(report.unused_baselines)
        text = f"{count} baseline{'s' if count > 1 else ''} of cells that no longer exist, remove them with"
        lines += [*entry("unused", text, style, indent=0, column=9), " " * 9 + "ftgate baseline prune"]
        lines += [" " * 9 + name for name in report.unused_baselines]
    counts = findings.counts(report)
    for why in findings.new_since(report):
        lines += entry("new", why, style, indent=0, column=9)
    if (count := findings.unrecorded(report)) and not report.updates:
        text = (
            f"{count} cell{'s have' if count > 1 else ' has'} no baseline: compare with a commit, or store the figures"
        )
        roads = [*(["pytest --ftgate --ftgate-against=REV"] if report.commit else []), "ftgate baseline accept"]
        lines += [*entry("new", text, style, indent=0, column=9), *(" " * 9 + road for road in roads)]
    if said := findings.limits_text(report):
        lines += entry("limits", said, style, indent=0, column=9)
    lines += [*([""] if lines else []), *_failed(report, style), *_totals(counts, report.wall_s, style)]
    undecided = findings.undecided(report)
    for text in dict.fromkeys((*([] if undecided else [findings.first_line(report)]), findings.result(report))):
        lines += [style.paint(line, "bold") for line in wrapped(text, style, indent=0)]
    partial = f"this report is partial: {plain(report.partial)}" if report.partial else ""
    for text in (undecided, partial):
        lines += [style.paint(line, "red") for line in wrapped(text, style, indent=0)]
    return lines


def _failed(report: Report, style: Style) -> list[str]:
    """The cells that fail, worst first, each with its figure and the first of its explanation; of one test nothing.

    The tables of many tests stand above it, and pytest's own summary cuts its lines at the terminal's width.
    """
    rows = [row for row in findings.worst_first(report) if findings.fails(report, row)]
    if not rows or len(report.tables) < 2:
        return []
    lines = []
    blocks = headlines.blocks(rows)
    for row, *others in blocks[:SUMMED]:
        names = headlines.cells(each.cell.nodeid for each in (row, *others))
        lines += _worded(row.verdict.decision, names, style, indent=0)
        why = findings.finding(row, unicode=style.unicode).explanation[:1]
        for text in (headlines.headline(row, unicode=style.unicode), *why):
            lines += wrapped(plain(text), style, indent=4)
    more = sum(map(len, blocks[SUMMED:]))
    return [*lines, *([f"and {more} more cell{'' if more == 1 else 's'}, above"] if more > 0 else []), ""]


def _totals(counts: Counter[Decision], wall_s: float, style: Style) -> list[str]:
    """How many cells there were of each kind, on as many lines as that takes."""
    total = counts.total()
    line = plain = f"{total} cell{'s' if total != 1 else ''} in {units.span(wall_s)}:"
    lines: list[str] = []
    shown = [decision for decision in Decision if counts[decision]]
    for decision in shown:
        plural = "s" if decision is Decision.ERROR and counts[decision] != 1 else ""
        phrase = f"{counts[decision]} {decision}{plural}" + ("," if decision is not shown[-1] else "")
        if len(plain) + 1 + len(phrase) > style.width:
            lines.append(line)
            line = plain = " " * 8
        line += " " + style.paint(phrase, *_colors(decision))
        plain += " " + phrase
    return [*lines, line if shown else line.rstrip(":")]


# ---- the table of a test


def _table(report: Report, table: Table, style: Style) -> list[str]:
    lines = _heading(report, table, style)
    if table.rows:
        lines += _grid(table, style)
    lines_below: list[str] = []
    for decision in Decision:
        rows = [row for row in table.rows if row.verdict.decision is decision]
        if decision is Decision.ERROR:
            lines_below += _errors(report, table, style)
        elif decision.skipped and (style.verbosity <= 0 or decision is Decision.UNSUPPORTED):
            lines_below += _by_reason(rows, style)
        else:
            # An inconclusive cell without figures has its reason alone, which all cells of a test may share.
            bare = [row for row in rows if decision is Decision.INCONCLUSIVE and not row.verdict.metrics]
            lines_below += _by_reason(bare, style)
            lines_below += [line for row in rows if row not in bare for line in _finding(row, style)]

    def basis(verdict: Verdict) -> str:
        """That of a cell, which with -v names its own."""
        return findings.basis(verdict) if verdict.basis and style.verbosity <= 0 else ""

    named = (
        ("unchanged", _once(table, Decision.UNCHANGED, lambda verdict: verdict.reason)),
        ("passed by", _once(table, Decision.PASSED, basis)),
        ("judged by", _once(table, Decision.INCONCLUSIVE, basis)),
        ("ruled out", _ruled_out(table)),
        ("budget", budgets.remarks(table.rows)),
        ("hint", _hints(table)),
        ("machine", _remarks(table)),
    )
    remarks = [
        line for name, texts in named for text in texts for line in entry(name, text, style, indent=2, column=11)
    ]
    return [*lines, *([""] if lines_below or remarks else []), *lines_below, *remarks]


def _once(table: Table, decision: Decision, said: Callable[[Verdict], str]) -> list[str]:
    """What is said of the cells of a decision: each text once, with those that it holds for unless it holds for all."""
    labels: dict[str, list[str]] = {}
    for row in table.rows:
        if row.verdict.decision is decision and (text := said(row.verdict)):
            labels.setdefault(text, []).append(row.cell.label)
    every = len(table.rows)
    return [text if len(cells) == every else f"{text}: {', '.join(cells)}" for text, cells in labels.items()]


def _ruled_out(table: Table) -> list[str]:
    """What change of the wall time is ruled out for the cells that did not fail; of many cells the range."""
    found = {}
    for row in table.rows:
        for each in row.verdict.metrics:
            if each.metric == Metric.WALL and (text := findings.rules_out(each)):
                found[row.cell.label] = each.ruled_out, text
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


def _remarks(table: Table) -> list[str]:
    """The conditions while the test was measured, each remark once."""
    measured = (row for row in table.rows if row.conditions is not None)
    return list(dict.fromkeys(text for row in measured for text in decide.remarks(row.conditions, row.cell.workers)))


def _heading(report: Report, table: Table, style: Style) -> list[str]:
    """The title, how many cells were decided, and what `ratio` refers to at the right end of the line that has room."""
    aside = f"ratio to {table.reference}" if any(row.figures.ratio is not None for row in table.rows) else ""
    result = findings.result(report, table.rows)
    title, below = f"{table.title}: {result}", list[str]()
    if len(title) + (len(GAP + aside) if aside else 0) > style.width:
        title, below = table.title, wrapped(result, style, indent=2)
    room = style.width - len(title) - len(aside)
    if aside and room >= len(GAP):
        lines = [style.paint(title, "bold") + " " * room + style.paint(aside, "dim")]
    else:
        lines = [style.paint(title, "bold")] + ([GAP + style.paint(aside, "dim")] if aside else [])
    note = textwrap.wrap(table.note, style.width - len(GAP))
    return lines + below + [GAP + style.paint(line, "dim") for line in note]


def _grid(table: Table, style: Style) -> list[str]:
    columns = _columns(table, style)
    head = GAP.join([""] + [column.padded(column.head) for column in columns])
    lines = [style.paint(head.rstrip(), "dim")]
    for number, row in enumerate(table.rows):
        texts = [column.padded(column.texts[number]) for column in columns]
        texts[-1] = style.paint(texts[-1].rstrip(), *_colors(row.verdict.decision))
        lines += [GAP.join(["", *texts]), *detail_lines(row, style)]
    return lines


def _columns(table: Table, style: Style) -> list[Column]:
    """The columns of the first layout that fits, without those in which no row has a value."""
    every = _every_column(table, style)
    for layout in LAYOUTS:
        columns = [every[name] for name in layout if any(every[name].texts)]
        if sum(column.width + len(GAP) for column in columns) <= style.width:
            break
    return columns


def _every_column(table: Table, style: Style) -> dict[str, Column]:
    figures = [row.figures for row in table.rows]
    walls = [each.wall_ns for each in figures]
    times = [None if wall is None else wall.value for wall in walls]
    known = [None if wall is None or wall.level <= 0 or wall.vague else wall for wall in walls]
    locks = [each.lock_wait_share for each in figures]
    interval = _interval_head(known)
    labels = tuple(row.cell.label or row.cell.executor.label for row in table.rows)
    return {
        "cell": Column("", labels, left=True),
        "short": Column("", _shortened(labels), left=True),
        "time": _column("time", times, lambda ns: units.time(ns, unicode=style.unicode)),
        "ends": _column(interval, known, units.time_ends),
        "half": _column(interval, known, lambda wall: units.half_width(wall, unicode=style.unicode)),
        "ratio": _column("ratio", (each.ratio for each in figures), units.ratio),
        "cores": _column("cores", (each.cores for each in figures), units.cores),
        "uss": _column("USS", (each.uss_bytes for each in figures), units.size),
        "pss": _column("PSS", (each.pss_bytes for each in figures), units.size),
        "lock": _column("lock wait", locks, units.share),
        "locks": _column("lock", locks, units.share),
        "scaling": _column("scaling", (each.scaling.value if each.scaling else None for each in figures), units.ratio),
        "ops": _column("ops/s", (each.ops_per_s for each in figures), units.rate),
        "verdict": Column("verdict", tuple(row.verdict.decision.value for row in table.rows), left=True),
    }


def _column(head: str, values: Iterable[Value | None], shown: Callable[[Value], str]) -> Column:
    return Column(head, tuple("" if value is None else shown(value) for value in values))


def _interval_head(intervals: Sequence[Interval | None]) -> str:
    """The level of the confidence intervals, where it is the same for every row."""
    levels = {units.level(interval.level) for interval in intervals if interval}
    return f"{levels.pop()} CI" if len(levels) == 1 else "CI"


def _shortened(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Labels without the parts that end all of them, such as the workers: the title has those."""
    parts = [label.split("-") for label in labels]
    while len(parts) > 1 and min(map(len, parts)) > 1 and len({part[-1] for part in parts}) == 1:
        parts = [part[:-1] for part in parts]
    return tuple(map("-".join, parts))


# ---- what needs attention


def _finding(row: Row, style: Style) -> list[str]:
    """The lines about one cell; without -v none for a cell that needs no attention."""
    match row.verdict.decision:
        case Decision.REGRESSED | Decision.SUSPECT | Decision.BROKEN:
            return [*_measured(row, style), *_commands(row, style)]
        case Decision.ERROR:
            return _error([row], style)
        case Decision.INCONCLUSIVE if style.verbosity <= 0:
            return _open(row, style)
        case Decision.INCONCLUSIVE | Decision.IMPROVED | Decision.ACCEPTED:
            return _measured(row, style)
        case Decision.UNSUPPORTED:
            return _by_reason([row], style)
        case Decision.XPASSED | Decision.XFAILED:
            return _known(row, style)
        case Decision.PASSED if style.verbosity > 0:
            return _measured(row, style)
    return []


def _measured(row: Row, style: Style) -> list[str]:
    """A heading, a line for each metric that led to the decision, the reason, the reference and the basis."""
    found = findings.finding(row, unicode=style.unicode, every=style.verbosity > 0)
    limits = {each.metric: headlines.allowed(each) for each in row.verdict.metrics if not each.contract}
    lines = _named(row, style)
    for each in found.changes:
        evidence = each.evidence if style.verbosity > 0 else ""  # the reason has what decided
        limit = limits.get(each.metric, "") if each.decision.fails else ""
        text = ", ".join(filter(None, (each.text, limit, evidence)))
        first, *rest = [text for text in (text, each.reason) if text] or [""]
        lines += entry(each.label, first, style, indent=6, column=11)
        lines += wrapped(" ".join(rest), style, indent=17)
    lines += wrapped(found.reason, style, indent=6)
    for number, text in enumerate(found.explanation):
        lines += entry("" if number else "changed", text, style, indent=6, column=11)
    if found.against:
        lines += entry("against", found.against, style, indent=6, column=11)
    return lines + _basis(row.verdict, style)


def _open(row: Row, style: Style) -> list[str]:
    """An inconclusive cell in few lines: the first open metric, the names of the others, and what would settle them.

    What has no figures, a contract too, says why.
    """
    left = [each for each in row.verdict.metrics if each.decision is Decision.INCONCLUSIVE]
    compared = [each for each in left if each.ratio or each.points]
    lines = _named(row, style)
    for each in compared[:1]:
        others = [metrics.row(other.metric).label for other in compared[1:]]
        more = f"; {listed(others, 'and')} too (-v)" if others else ""
        found = findings.change(each, row, unicode=style.unicode)
        lines += entry(found.label, found.text + more, style, indent=6, column=11)
    for each in [each for each in left if each not in compared]:
        text = ": ".join(filter(None, (each.contract, each.reason)))
        lines += entry(metrics.row(each.metric).label, text, style, indent=6, column=11)
    if compared or not left:
        most = max(compared, key=lambda each: each.more or math.inf, default=row.verdict)
        lines += wrapped(plain(most.reason), style, indent=6)
    return lines


def _basis(verdict: Verdict, style: Style) -> list[str]:
    """The basis of the verdict, and the reason for it."""
    text = findings.basis(verdict)
    return entry("judged by" if verdict.basis else "baseline", text, style, indent=6, column=11) if text else []


def _commands(row: Row, style: Style) -> list[str]:
    """The commands to rerun the cell; a command is never wrapped, so that it can be copied."""
    rerun, *others = findings.commands(row)
    return [f"      {style.paint('rerun', 'dim')}      {rerun}", *(" " * 17 + command for command in others)]


def _errors(report: Report, table: Table, style: Style) -> list[str]:
    """Each error once in a report, below the first table that has it."""
    lines: list[str] = []
    for block in headlines.blocks(row for row in report.rows if row.verdict.decision is Decision.ERROR):
        if any(row is block[0] for row in table.rows):
            lines += _error(block, style)
    return lines


def _error(block: Sequence[Row], style: Style) -> list[str]:
    """An error with the cells that have it; pytest's FAILURES show its output."""
    error = headlines.error_of(block[0])
    shown = f"{headlines.exception(error)} (see FAILURES)" if error.detail else headlines.exception(error)
    lines = _worded(Decision.ERROR, headlines.cells(headlines.names(block)), style)
    return lines + wrapped(shown, style, indent=6) + wrapped(headlines.whose(block[0]), style, indent=6)


def _by_reason(rows: Sequence[Row], style: Style) -> list[str]:
    """A line for each reason, with the cells it holds for."""
    cells: dict[tuple[Decision, str], list[str]] = {}
    for row in rows:
        reason = findings.known_text(row.verdict) or row.verdict.reason or "it cannot run here"
        cells.setdefault((row.verdict.decision, reason), []).append(row.cell.label)
    lines: list[str] = []
    for (decision, reason), labels in cells.items():
        lines += _worded(decision, ", ".join(labels), style)
        for line in reason.splitlines():
            lines += wrapped(plain(line.strip()), style, indent=6)
    return lines


def _known(row: Row, style: Style) -> list[str]:
    """A known failure: what was expected, and with -v what was measured."""
    heading, *measured = _measured(row, style)
    return [
        heading,
        *wrapped(findings.known_text(row.verdict), style, indent=6),
        *(measured if style.verbosity > 0 else []),
    ]


# ---- lines


def _named(row: Row, style: Style) -> list[str]:
    return _worded(row.verdict.decision, row.cell.label or row.cell.nodeid, style)


def _worded(decision: Decision, text: str, style: Style, indent: int = 2) -> list[str]:
    """The decision in its colour, and what it is about."""
    first, *rest = wrapped(f"{decision}: {plain(text)}", style, indent=indent, hanging=indent + 4)
    return [first.replace(decision.value, style.paint(decision.value, *_colors(decision)), 1), *rest]


def _colors(decision: Decision) -> tuple[str, ...]:
    return (decision.color,)
