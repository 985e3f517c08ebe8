"""The report files: each kind of `--ftgate-report KIND:PATH` and the module whose `render` makes its text."""

from __future__ import annotations

import importlib

from ..model import Report

FORMATS = {
    "html": "html",
    "json": "json",
    "md": "markdown",
}
"""Kinds and modules of this package."""


def rendered(kind: str, report: Report) -> str:
    """The report as text of that kind."""
    return str(importlib.import_module(f"{__package__}.{FORMATS[kind]}").render(report))
