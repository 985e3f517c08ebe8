"""A suite for each test, a case for each cell, with its verdict's text and its metrics. Pure."""

from __future__ import annotations

from itertools import chain

from junitparser import (
    Attr,
    Error,
    Failure,
    IntAttr,
    JUnitXml,
    Properties,
    Property,
    Skipped,
    TestCase,
    TestSuite,
)

from ...model.report import Report, Row, Table
from ...model.verdict import Decision
from ...report import said, terminal
from ...report.measured import properties, writable


class Case(TestCase):
    """A case with its place in the source, as pytest's own file has it under `junit_family=xunit1`."""

    file = Attr()
    line = IntAttr()


def render(report: Report) -> str:
    """The report as JUnit XML.

    A cell that fails the run is a failure, or an error where it could not be measured; an unsupported cell, and a known
    failure, is skipped.
    """
    xml = JUnitXml()
    for table in report.tables or [Table(title="ftgate", rows=(), reference="")]:  # without one nothing would say why
        suite = TestSuite(writable(table.title))
        suite.timestamp = writable(report.started_at)
        machine = report.machine_of(table.rows[0]) if table.rows else report.machine
        suite.hostname = writable(machine.fingerprint)
        about = {"headline": said.first_line(report, table.rows), "result": said.result(report, table.rows)}
        about |= {"undecided": said.undecided(report), "version": report.version, "seed": str(report.seed)}
        about |= {"commit": report.commit, "command": report.command, "partial": report.partial}
        for name, text in about.items():
            if text:
                suite.add_property(f"ftgate.{name}", writable(text))
        for row in table.rows:
            suite.append(_case(row, fails=said.fails(report, row)))
        xml.append(suite)
    xml.update_statistics()
    return str(xml.tostring().decode())


def _case(row: Row, *, fails: bool) -> Case:
    # The class name and the name as pytest's own JUnit file has them.
    place, bracket, label = row.cell.nodeid.partition("[")
    path, *names = place.split("::")
    classname = ".".join([path.replace("/", ".").removesuffix(".py"), *names[:-1]])
    name = (names or [""])[-1] + bracket + label
    sample = row.sample
    # The time of all iterations of the cell in this run.
    launches = (
        chain(sample.launches, sample.of("locks"), sample.of("memory"), sample.of("growth"))
        if sample is not None
        else ()
    )
    walls = (each.wall_ns for launch in launches for each in (launch.cold, *launch.iterations) if each is not None)
    case = Case(writable(name), writable(classname), round(sum(walls) / 1e9, 3))
    case.file = writable(row.cell.nodeid.partition("::")[0])
    if row.line:
        case.line = row.line
    known = Properties()
    for key, value in properties(row):
        known.add_property(Property(key, value))
    case.append(known)
    decision, message, text = row.verdict.decision, writable(said.headline(row)), writable(terminal.cell_text(row))
    if decision is Decision.ERROR or fails or decision.skipped:
        kind = Error if decision is Decision.ERROR else Failure if fails else Skipped
        result = kind(message, decision)
        result.text = text
        case.append(result)
    elif text:
        case.system_out = text
    return case
