"""The subcommands of `ftgate`; each module has `register(subparsers)`, which sets `run`."""

from __future__ import annotations

import sys

from ..kit.text import takes_unicode


def unicode() -> bool:
    """Whether standard output takes more than ASCII."""
    return takes_unicode(sys.stdout)
