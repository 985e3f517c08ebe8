"""The subcommands of `ftgate`; each module has `register(subparsers)`, which sets `run`."""

from __future__ import annotations
