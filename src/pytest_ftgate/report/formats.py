"""The report files: each kind of `--ftgate-report KIND:PATH` and the module whose `render` makes its text."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from ..model import Report
from . import json

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


def pieces(kind: str, report: Report) -> Iterator[str]:
    """The report as text of that kind, piece by piece: one text of a large run would take too much memory."""
    if kind == "json":
        return json.pieces(report)
    module, _, function = FORMATS[kind].partition(".")
    return iter((str(getattr(importlib.import_module(f"{__package__}.{module}"), function or "render")(report)),))
