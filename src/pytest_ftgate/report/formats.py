"""The report files: each kind of `--ftgate-report KIND:PATH` and the module whose `render` makes its text."""

from __future__ import annotations

import importlib

from ..model import Report

FORMATS = {
    "html": "html",
    "json": "json",
    "md": "markdown",
    "junit": "junit",
    "bmf": "exports.bmf",
    "gha-benchmark": "exports.gha_benchmark",
    "benchstat": "exports.benchstat",
    "otava": "exports.otava",
    "openmetrics": "exports.openmetrics",
}
"""Kinds and modules of this package, with the function where that is not `render`."""


def rendered(kind: str, report: Report) -> str:
    """The report as text of that kind."""
    module, _, function = FORMATS[kind].partition(".")
    return str(getattr(importlib.import_module(f"{__package__}.{module}"), function or "render")(report))
