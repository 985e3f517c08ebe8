"""The subcommands of `ftgate`; each module has `register(subparsers)`, which sets `run`."""

from __future__ import annotations

import sys


def unicode() -> bool:
    """Whether standard output takes more than ASCII."""
    return (sys.stdout.encoding or "").lower().startswith("utf")
