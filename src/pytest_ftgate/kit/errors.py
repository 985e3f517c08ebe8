"""Errors for users: each message names the place and a fix."""

from __future__ import annotations


class FtgateError(Exception):
    """Base of every error that a user can fix; its text is shown without a traceback."""
