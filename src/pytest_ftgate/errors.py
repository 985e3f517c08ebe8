"""Errors meant for users: each message names the place at fault and the mend."""

from __future__ import annotations


class FtgateError(Exception):
    """Base of every error that a user can mend; its text is shown without a traceback."""
