"""The JUnit form of a report: a suite for each test, a case for each cell. `xml.py` makes it."""

from __future__ import annotations

from collections.abc import Mapping

from ...hookspec import hookimpl
from ...model.report import Format, Report


@hookimpl
def ftgate_formats() -> Mapping[str, Format]:
    return {"junit": Format(render)}


def render(report: Report) -> str:
    from . import xml

    return xml.render(report)
