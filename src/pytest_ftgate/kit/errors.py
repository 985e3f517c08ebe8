"""Errors for users: each message names the place and a fix."""

from __future__ import annotations


class FtgateError(Exception):
    """Base of every error that a user can fix; its text is shown without a traceback, and holds no secret."""

    def __init__(self, text: str = "") -> None:
        from .hiding import without_secrets  # every run of pytest imports this module

        super().__init__(without_secrets(text))
