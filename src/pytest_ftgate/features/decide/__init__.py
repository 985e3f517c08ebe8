"""`ftgate decide`: which executor on which interpreter. `rank.py` compares them, `sentences.py` says it."""

from __future__ import annotations

from ...hookspec import Subparsers, hookimpl


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    from . import command

    command.add(subparsers)
