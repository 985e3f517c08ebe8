"""The report as one HTML page that opens offline: `page.py` is what it says, `plots.py` what its plots are drawn from.

`assets/` holds the template, its style and script, and the plot library with its licences.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...hookspec import hookimpl
from ...model.report import Format, Report


@hookimpl
def ftgate_formats() -> Mapping[str, Format]:
    return {"html": Format(render, needs=("jinja2", "markupsafe"))}


def render(report: Report) -> str:
    from . import page

    return page.render(report)
