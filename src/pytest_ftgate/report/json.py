"""The JSON form of a report: everything measured and judged, raw values included, and the way back."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal

import msgspec

from ..kit.errors import FtgateError
from ..kit.plugins import features
from ..kit.values import fault_of
from ..model.report import SCHEMA, Format, Report

AGAIN = "write it again with --ftgate-report json:PATH"
NOT_FINITE = tuple(b"\xcb" + struct.pack(">d", each)[:2] for each in (math.inf, -math.inf, math.nan, -math.nan))
"""How such numbers begin in MessagePack."""


NO_ROWS, NO_SAMPLE = '\n      "rows": []', '\n          "sample": null'
"""A table without its rows and a row without its sample in the text of a report, at the indentation that they have."""


class ReportError(FtgateError):
    """A text that is not a report of this schema."""


@cache
def formats() -> dict[str, Format]:
    """The forms of a report that are features: all but the JSON."""
    return {kind: form for forms in features("format").hook.ftgate_formats() for kind, form in forms.items()}


def rendered(kind: str, report: Report) -> Iterator[str]:
    """The report as text of that kind, piece by piece: one text of a large run would take too much memory."""
    if kind == "json":
        return pieces(report)
    return iter((formats()[kind].render(report),))


def render(report: Report) -> str:
    """The report as JSON text: keys sorted, two spaces of indentation, a newline at the end; each sample in one line.

    A number that JSON cannot write is the string "inf", "-inf" or "nan"; half of a surrogate pair, as a workload's
    stray bytes leave it, is spelled with a backslash. Both are rare and both would lose the whole report.
    """
    return "".join(pieces(report))


def pieces(report: Report) -> Iterator[str]:
    """The same piece by piece: the whole text of a large run takes more memory than all else."""
    replace = msgspec.structs.replace
    tables = tuple(replace(table, rows=()) for table in report.tables)
    head, *rest = _indented(replace(report, tables=tables)).split(NO_ROWS)
    yield head
    for table, after in zip(report.tables, rest, strict=True):
        between = NO_ROWS.removesuffix("]")
        for row in table.rows:
            # Samples are nearly all of a report: each is a line, and one that is packed was JSON before.
            begin, end = _indented(replace(row, sample=None)).replace("\n", "\n" + " " * 8).split(NO_SAMPLE)
            sample = row.sample and row.sample.raw()
            known = _encoded(sample) if sample is row.sample else msgspec.json.encode(sample)
            yield "".join((between, "\n" + " " * 8, begin, NO_SAMPLE.removesuffix("null"), known.decode(), end))
            between = ","
        yield f"\n      ]{after}" if table.rows else NO_ROWS + after
    yield "\n"


def _indented(value: object) -> str:
    return msgspec.json.format(_encoded(value, "sorted"), indent=2).decode()


def _encoded(value: object, order: Literal["sorted"] | None = None) -> bytes:
    """A value as JSON. Only one that may hold what JSON cannot write is looked through in Python."""
    with contextlib.suppress(UnicodeEncodeError):
        packed = msgspec.msgpack.encode(value)
        if not any(number in packed for number in NOT_FINITE):
            return msgspec.json.encode(value, order=order)
    return msgspec.json.encode(writable(msgspec.to_builtins(value)), order=order)


def parse(text: str | bytes, *, origin: str = "the report") -> Report:
    """The report that `render` wrote. `origin` names its file in the error.

    Raises ReportError for a text that is not JSON, another schema, and a field that is missing, unknown or mistyped.
    """
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ReportError(f"{origin} is not JSON: {error}; {AGAIN}") from None
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != SCHEMA:
        raise ReportError(
            f"{origin} has schema {schema!r}, this pytest-ftgate reads {SCHEMA}: "
            f"{AGAIN}, or install the version that wrote it"
        )
    try:
        # Not strict, so that "inf" and "nan" become the numbers they stand for.
        return msgspec.convert(raw, Report, strict=False)
    except msgspec.ValidationError as error:
        fault, place = fault_of(error)
        raise ReportError(f"{origin} is not a report: {place}: {fault}; {AGAIN}") from None


def _spelled(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def writable(value: Any, number: Callable[[float], Any] = str, text: Callable[[str], str] = _spelled) -> Any:
    """The same builtins without what JSON cannot hold: `number` and `text` say what stands for that."""
    if isinstance(value, dict):
        return {text(str(key)): writable(item, number, text) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [writable(item, number, text) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return number(value)
    return text(value) if isinstance(value, str) else value
