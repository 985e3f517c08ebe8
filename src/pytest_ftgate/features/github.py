"""GitHub Actions: the report in the job's summary, and annotations on the lines of tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..hookspec import hookimpl
from ..kit.text import plain
from ..kit.values import grouped
from ..model.report import Report, Row
from ..report import said
from . import markdown

SUMMARY_BYTES = 1024 * 1024
"""GitHub takes no more of a step; what is longer is lost as a whole."""
ANNOTATIONS = 10
"""GitHub shows no more of a step."""
CELLS = 10
"""Cells of one annotation that have a line."""
TITLE = 200
OTHER_PLUGIN = "annotate_errors"
"""The name that pytest-github-actions-annotate-failures registers: it annotates each test that fails."""


@hookimpl
def ftgate_finish(config: pytest.Config, report: Report) -> Iterator[str]:
    """Append the report to GITHUB_STEP_SUMMARY, and annotate the tests of cells that fail; elsewhere nothing."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            append(Path(path), report)
        except OSError as error:
            yield f"ftgate: GITHUB_STEP_SUMMARY cannot be written: {error}"
    if os.environ.get("GITHUB_ACTIONS") == "true" and not config.pluginmanager.hasplugin(OTHER_PLUGIN):
        workspace = Path(os.environ.get("GITHUB_WORKSPACE") or config.rootpath)
        yield from commands(report, config.rootpath, workspace)


def append(path: Path, report: Report) -> None:
    """Append the report, shortened to the room that is left; nothing if that is too little. Raises OSError."""
    room = SUMMARY_BYTES - (path.stat().st_size if path.exists() else 0)
    for limit in (markdown.LIMIT, room // 4):  # a character has at most four bytes
        text = f"\n{markdown.render(report, limit=limit)}".encode()
        if len(text) <= room:
            with path.open("ab") as file:
                file.write(text)
            return


def commands(report: Report, rootdir: Path, workspace: Path) -> list[str]:
    """Commands for the runner, one for each test: errors, worst first, then warnings of what does not fail the run.

    `::error file=tests/test_a.py,line=12,title=ftgate%3A 1 of 1 decided%2C 1 regressed::test_put[w4]: wall +9 %`.
    """
    rows = said.worst_first(report)
    errors = grouped((_place(row), row) for row in rows if said.fails(report, row))
    others = (row for row in rows if row.verdict.decision.needs_attention or row.verdict.beyond)
    warnings = grouped((_place(row), row) for row in others if not said.fails(report, row))
    found = [("error", place, failing) for place, failing in errors.items()]
    found += [("warning", place, open_ones) for place, open_ones in warnings.items() if place not in errors]
    undecided = plain("; ".join(said.undecided(report)))
    commands = [f"::error title=ftgate::{_data(undecided)}"] if undecided else []
    for level, place, rows in found[: ANNOTATIONS - len(commands)]:
        result = said.result(report, [row for row in report.rows if _place(row) == place])
        blocks = said.blocks(rows)
        names = (said.cells(" ".join(said.name(row).split()) for row in block) for block in blocks)
        texts = [f"{name}: {said.headline(row)}" for name, (row, *_) in zip(names, blocks[:CELLS], strict=False)]
        if more := sum(map(len, blocks[CELLS:])):
            texts.append(f"and {more} more cells of this test")
        # The path from the repository's root, by which GitHub finds the line; as it is where it lies outside.
        path = rootdir / place[0]
        here, top = Path(os.path.realpath(path)), Path(os.path.realpath(workspace))
        file = (here.relative_to(top) if here.is_relative_to(top) else path).as_posix()
        line = f",line={place[1]}" if place[1] else ""
        title = _property(f"ftgate: {result}"[:TITLE])
        commands.append(
            f"::{level} file={_property(plain(file))}{line},title={title}::{_data(plain(chr(10).join(texts)))}"
        )
    return commands


def _place(row: Row) -> tuple[str, int]:
    return row.cell.nodeid.partition("::")[0], row.line


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
