"""The report as Markdown for GitHub and GitLab: a comment, or the summary of a job. Pure.

What fails comes first. Names and errors are text in any case: no markup, no mention, no reference to an issue.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from ..hookspec import hookimpl
from ..kit import units
from ..kit.text import plain, plural
from ..kit.values import Metric
from ..model.report import Format, Report, Row, Table
from ..model.verdict import Decision
from ..report import errors, said
from ..report.measured import COLUMNS, wall_change

MARKER = "<!-- ftgate -->"
"""The first line: by it a comment is found that is to be edited in place."""
LIMIT = 65_000
"""Characters of a report. GitHub refuses a comment of more than 65 536."""
ERROR_LINES = 12
"""So many last lines of an error's output are shown."""
HEADING = 150
"""Characters of the headline that are shown."""
SHORT_NAME = 60
"""Characters of a name where there is no room."""
NOTE = 120
"""Characters that are kept for the line that says what is left out."""
BREAK = "\u200b"
"""A space without width: it stands where GitHub would read a mention, a reference or a link."""


class Piece(NamedTuple):
    """A part of the report, of `holds` things, in several forms, the longest first; without room the last is used."""

    forms: tuple[str, ...]
    holds: int = 1


class Section(NamedTuple):
    """Lines before its pieces, the pieces, and lines after them; `named` says what the pieces are."""

    head: str
    pieces: tuple[Piece, ...]
    tail: str = ""
    named: str = "cells"


@hookimpl
def ftgate_formats() -> Mapping[str, Format]:
    return {"md": Format(render)}


def render(report: Report, *, limit: int = LIMIT) -> str:
    """The report in at most `limit` characters: where it is longer, first passed cells are left out, then details.

    A cell that fails is always named with its figure, where `limit` has room for that; else it is said how many are
    left out.
    """
    sections = list(_sections(report))
    shown = [[piece.forms[-1] for piece in section.pieces] for section in sections]
    head = _head(report)
    left = limit - len(head) - sum(len(each.head) + len(each.tail) + NOTE for each in sections)
    left -= sum(len(text) for texts in shown for text in texts)
    # Where not even the shortest forms fit, the last ones are left out.
    for texts in reversed(shown):
        for number in reversed(range(len(texts))):
            if left < 0:
                left += len(texts[number])
                texts[number] = ""
    # The first ones get the longest forms that there is room for.
    for section, texts in zip(sections, shown, strict=True):
        for number, piece in enumerate(section.pieces):
            fits = (form for form in piece.forms if len(form) - len(texts[number]) <= left)
            form = next(fits, texts[number])
            left -= len(form) - len(texts[number])
            texts[number] = form
    whole = head
    for section, texts in zip(sections, shown, strict=True):
        missing = sum(piece.holds for piece, each in zip(section.pieces, texts, strict=True) if not each)
        total = sum(piece.holds for piece in section.pieces)
        note = f"\n… {missing} of {total} {section.named} left out: a JSON report has all.\n" if missing else ""
        whole += "".join((section.head, *texts, note, section.tail))
    return whole if len(whole) <= limit else head


# ---- sections


def _head(report: Report) -> str:
    """The marker, the headline, why the report is partial, what was compared, and how many cells of each decision."""
    counts = said.counts(report)
    headline, undecided = said.first_line(report), said.undecided(report)
    part = f"{report.shard.name}: " if report.shard else ""
    first = ("partial report, " if report.partial else "") + headline
    warnings = [f"This report is partial: {report.partial}"] if report.partial else []
    warnings += filter(None, ["; ".join(undecided[1:])])  # after what the headline says
    warned = "".join(f"\n> [!WARNING]\n> {text(each)}\n" for each in warnings)
    about, every = said.about(report), f": {said.counted(counts)}" if len(counts) > 1 else ""
    result = said.result(report)
    lines = [f"{text(about)}\n\n" if about else "", "" if undecided or result == headline else f"{text(result)}. "]
    lines += [f"{plural(counts.total(), 'cell')} in {units.span(report.wall_s)}{every}.\n"]
    return f"{MARKER}\n## ftgate: {part}{text(_short_name(first, HEADING))}\n{warned}\n{''.join(lines)}"


def _sections(report: Report) -> Iterator[Section]:
    """Cells that fail or need attention, in full or in a line each; all tests as tables; the run."""
    undecided = bool(said.undecided(report))  # the head says what the time allowed
    run, against = said.by_test(report.rows), said.against(report)
    for (passes, _), group in groupby(said.worst_first(report), key=lambda row: said.place(report, row)[:2]):
        rows = list(group)
        decision = rows[0].verdict.decision
        head = f"\n### {said.counted({decision: len(rows)})}"
        if passes and decision in (Decision.ACCEPTED, Decision.IMPROVED):
            pieces = []
            for row in rows:
                words = "; ".join([said.in_one_line(row), *said.accepted_texts(row.verdict.accepted)])
                pieces.append(Piece((f"- {code(row.cell.nodeid)}: {text(words)}\n", "")))
            yield Section(f"{head}\n\n", tuple(pieces))
        elif decision.needs_attention or not passes:
            yield Section(
                head + ": no failure in this run" * passes + "\n", tuple(_in_full(rows, run, against, undecided))
            )
    if report.updates:
        updates = tuple(Piece((f"- {text(line)}\n", "")) for line in report.updates)
        yield Section("\n### Baselines\n\n", updates, named="lines")
    if report.tables:
        total = sum(len(table.rows) for table in report.tables)
        tables = []
        for table in report.tables:
            counts = Counter(row.verdict.decision for row in table.rows)
            tables.append(
                Piece((_table(report, table, undecided), f"\n- {code(table.title)}: {said.counted(counts)}\n", ""))
            )
        yield Section(f"\n<details><summary>All cells ({total})</summary>\n", tuple(tables), END, "tests")
    lines = [f"pytest-ftgate {text(report.version)}, {text(report.started_at)}, seed {report.seed}"]
    machines = said.machines(report)
    for machine in machines:
        parts = said.machine_parts(machine)
        lines += map(text, [", ".join(parts)] if len(machines) > 1 else parts)
    for each in report.interpreters:
        lines.append(text(f"{each.name}, GIL {'on' if each.gil_enabled else 'off'}, {each.build}"))
    lines += [f"repeat it: {code(report.command)}"] if report.command else []
    head = "\n<details><summary>Machine and interpreters</summary>\n\n"
    yield Section(head, tuple(Piece((f"- {line}\n", "")) for line in lines), END, "lines")


END = "\n</details>\n"


# ---- cells


def _in_full(rows: Sequence[Row], run: said.Tests, against: str, undecided: bool) -> Iterator[Piece]:
    """Each block, below the name of its test: in full, as its figures, and as its figure with short names."""
    test, order = "", {name: place for place, name in enumerate(dict.fromkeys(map(said.test_of, rows)))}
    for block in sorted(said.blocks(rows), key=lambda block: order[said.test_of(block[0])]):
        tests = list(dict.fromkeys(map(said.test_of, block)))
        of = code(tests[0]) if len(tests) == 1 else f"{len(tests)} tests"
        short_of = code(_short_name(tests[0])) if len(tests) == 1 else of
        name, short_name = (f"\n**{each}**\n\n" if of != test else "" for each in (of, short_of))
        test = of
        line = f"- {said.in_block(block, run, code)}: **{text(said.in_one_line(block[0]))}**\n"
        if block[0].verdict.decision is not Decision.ERROR:  # the others of an error have the same one
            for row in block[1:]:
                line += f"  - {code(_label(row))}: {text(said.headline(row))}\n"
        details = "".join(f"  - {each}\n" for each in _details(run, block, against, undecided))
        if block[0].verdict.decision is Decision.ERROR:
            details += _output(block[0])
        few = said.cells(code(_short_name(label)) for label in said.names(block))
        short = f"- {few} {text(_short_name(said.in_one_line(block[0])))}\n"
        yield Piece((name + line + details, name + line, short_name + short), len(block))


def _label(row: Row) -> str:
    return row.cell.label or row.cell.executor.label


def _details(run: said.Tests, block: Sequence[Row], against: str, undecided: bool) -> Iterator[str]:
    """The lines below the figure of a block: causes, other metrics, reasons, the reference, the command to rerun it."""
    row = block[0]
    found, line = said.finding(*block), said.in_one_line(row)
    yield from (f"why: {text(each)}" for each in found.explanation)
    for each in found.changes:
        other = "" if each.text(row.verdict.decision) in line else f"{each.metric} {each.text()}"
        if parts := "; ".join(filter(None, (other, "" if each.reason in line else each.reason))):
            yield text(parts if other else f"{each.metric}: {parts}")
    if found.reason and found.reason not in line and row.verdict.decision is not Decision.ERROR:
        yield text(found.reason)
    if row.verdict.decision is Decision.ERROR and (whose := errors.whose(row)):
        yield text(whose)
    yield from map(text, [] if undecided else said.shortfalls([row]))
    by = f"judged by {found.basis}" if row.verdict.basis else found.basis
    beside = [found.against and f"against {found.against}", by]
    if against and row.verdict.basis == "paired":  # the head says it
        beside = []
    if any(beside):
        yield text("; ".join(filter(None, beside)))
    yield f"rerun {' then '.join(map(code, said.commands(block, run)))}"
    if meant := said.meant(block, run):
        yield f"meant? {code(meant)}"


def _output(row: Row) -> str:
    """The last lines of an error's output, folded."""
    lines = [line for line in plain(errors.error_text(errors.error_of(row))).splitlines() if line.strip()]
    if len(lines) <= 1:
        return ""
    shown = ["…"] * (len(lines) > ERROR_LINES) + lines[-ERROR_LINES:]
    fence = _fence("\n".join(shown), 3)
    body = "".join(f"    {line}\n" for line in (fence, *shown, fence))
    return f"  - <details><summary>output</summary>\n\n{body}\n    </details>\n"


# ---- tables


def _table(report: Report, table: Table, undecided: bool) -> str:
    """All cells of a test with their figures, and why cells are open; columns without a value are left out."""
    columns = {
        "cell": [code(_label(row), in_table=True) for row in table.rows],
        "verdict": [row.verdict.decision.value for row in table.rows],
    }
    for name in (Metric.WALL, "ratio", Metric.SCALING, Metric.LOCK_CEILING, Metric.USS, Metric.LOCK_WAIT):
        columns[name] = COLUMNS[name].texts(table.rows)
        if name == Metric.WALL:
            columns["change"] = list(map(wall_change, table.rows))
    columns = {head: texts for head, texts in columns.items() if any(texts)}
    for head in columns.keys() & {"verdict", Metric.WALL, Metric.USS, Metric.LOCK_WAIT}:
        columns[head] = [each.replace(" ", "\u00a0") for each in columns[head]]  # no line ends there, on a phone too
    ratio = f"; ratio to {code(table.reference)}" if "ratio" in columns else ""
    lines = [
        f"\n**{code(table.title)}**: {said.result(report, table.rows)}{ratio}\n",
        *([f"{text(table.note)}\n"] if table.note else []),
        "| " + " | ".join(columns) + " |",
        "|" + "|".join("---" if head in ("cell", "verdict") else "--:" for head in columns) + "|",
        *("| " + " | ".join(row) + " |" for row in zip(*columns.values(), strict=True)),
    ]
    why: dict[str, list[str]] = {}
    for row in table.rows:
        if row.verdict.decision.open or row.verdict.decision.outcome in ("skipped", "xfailed"):
            why.setdefault(f"{row.verdict.decision}: {text(said.in_one_line(row))}", []).append(code(_label(row)))
        elif reason := said.uncompared(row.verdict):
            why.setdefault(f"passed: {text(reason)}", []).append(code(_label(row)))
    remarks = list(map(text, [] if undecided else said.shortfalls(table.rows)))
    remarks += [f"{', '.join(cells)} {reason}" for reason, cells in why.items()]
    return "\n".join(lines) + "\n" + "\n" * bool(remarks) + "".join(f"- {each}\n" for each in remarks)


# ---- text that others wrote


def text(words: str) -> str:
    """Words as one line of text, whatever they hold: no markup, and nothing that GitHub would make a link of."""
    inert = _LINKED.sub(lambda found: found[0][:-1] + BREAK + found[0][-1], _line_of(words))
    return _BLOCK.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", inert))


_LINKED = re.compile(r"@\w|#\d|GH-\d|:/(?=/)|www\.", re.IGNORECASE)
_MARKUP = re.compile(r"[\\`*_\[\]<|~$&]")
_BLOCK = re.compile(r"^(\d*)(>|[-+#=.)]+(?=\s|$))")
"""Begins a quotation, a heading or a list in Markdown."""


def code(words: str, *, in_table: bool = False) -> str:
    """Words as a code span, in which GitHub sees neither markup nor mentions."""
    line = _line_of(words) or " "
    if in_table:  # a cell ends at a pipe after an even number of backslashes
        line = re.sub(r"(\\*)\|", lambda found: found[1] + "\\" * (1 + len(found[1]) % 2) + "|", line)
    fence = _fence(line, 1)
    pad = " " if "`" in (line[0], line[-1]) else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _fence(words: str, least: int) -> str:
    """More backticks than any run of them in the words."""
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", words))])


def _line_of(words: str) -> str:
    return " ".join(plain(words).split())


def _short_name(name: str, most: int = SHORT_NAME) -> str:
    """The beginning and the end of a long name."""
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most // 2) :]}"
