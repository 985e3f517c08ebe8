"""The JUnit form of a report: a suite for each test, a case for each cell. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..hookspec import hookimpl
from ..model.report import Format, Report, Row, Table
from ..model.verdict import Decision
from ..report import said, terminal
from ..report.measured import properties, writable

_TEXT = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_ATTRIBUTE = _TEXT | {ord('"'): "&quot;", ord("\r"): "&#13;", ord("\n"): "&#10;", ord("\t"): "&#09;"}


@hookimpl
def ftgate_formats() -> Mapping[str, Format]:
    return {"junit": Format(render)}


def render(report: Report) -> str:
    """The report as JUnit XML.

    A cell that fails the run is a failure, or an error where it could not be measured. One that is unsupported or
    undecided is skipped, as are a known failure and what --ftgate-fail-on leaves out.
    """
    # By hand: a library takes ten times as long for the sixty properties of a cell.
    undecided, suites = said.undecided(report), []
    for table in report.tables or [Table(title="ftgate", rows=(), reference="")]:  # without one nothing would say why
        machine = report.machine_of(table)
        about = {"headline": said.first_line(report, table.rows), "result": said.result(report, table.rows)}
        about |= {"undecided": undecided, "version": report.version, "seed": str(report.seed)}
        about |= {"commit": report.commit, "command": report.command, "partial": report.partial}
        known = ((f"ftgate.{name}", writable(text)) for name, text in about.items() if text)
        kinds = [_kind(row, fails=said.fails(report, row)) for row in table.rows]
        counts: dict[str, float] = {
            "tests": len(table.rows),
            "errors": kinds.count("error"),
            "failures": kinds.count("failure"),
            "skipped": kinds.count("skipped"),
            "time": round(sum(map(_measured_s, table.rows)), 3),
        }
        cases = (_case(row, kind) for row, kind in zip(table.rows, kinds, strict=True))
        named = {"name": table.title, "timestamp": report.started_at, "hostname": machine.fingerprint}
        texts = {name: writable(text) for name, text in named.items()}
        suites.append((counts, _element("testsuite", {**texts, **counts}, _properties(known), *cases)))
    order = ("tests", "failures", "errors", "skipped")
    totals: dict[str, float] = {name: sum(counts[name] for counts, _ in suites) for name in order}
    totals["time"] = round(sum(float(counts["time"]) for counts, _ in suites), 3)
    return _element("testsuites", totals, *(text for _, text in suites))


def _measured_s(row: Row) -> float:
    return round(row.sample.measured_ns / 1e9, 3) if row.sample else 0.0


def _kind(row: Row, *, fails: bool) -> str:
    """The element that says why it did not pass; empty if it did."""
    decision = row.verdict.decision
    return "error" if decision is Decision.ERROR else "failure" if fails else "skipped" if decision.skipped else ""


def _case(row: Row, kind: str) -> str:
    # The class name and the name as pytest's own JUnit file has them.
    place, bracket, label = row.cell.nodeid.partition("[")
    path, *names = place.split("::")
    classname = ".".join([path.replace("/", ".").removesuffix(".py"), *names[:-1]])
    name = (names or [""])[-1] + bracket + label
    about: dict[str, object] = {"name": writable(name), "classname": writable(classname), "time": _measured_s(row)}
    about["file"] = writable(row.cell.nodeid.partition("::")[0])
    if row.line:
        about["line"] = row.line
    decision, message, text = row.verdict.decision, writable(said.headline(row)), writable(terminal.cell_text(row))
    result = ""
    if kind:
        result = _element(kind, {"message": message or decision, "type": decision}, text.translate(_TEXT))
    elif text:
        result = _element("system-out", {}, text.translate(_TEXT))
    return _element("testcase", about, _properties(properties(row)), result)


def _properties(known: Iterable[tuple[str, str]]) -> str:
    return _element("properties", {}, *(_element("property", {"name": name, "value": text}) for name, text in known))


def _element(tag: str, attributes: Mapping[str, object], *content: str) -> str:
    """An element as XML; `content` is XML, too."""
    head = tag + "".join(f' {name}="{str(text).translate(_ATTRIBUTE)}"' for name, text in attributes.items())
    inner = "".join(content)
    return f"<{head}>{inner}</{tag}>" if inner else f"<{head} />"
