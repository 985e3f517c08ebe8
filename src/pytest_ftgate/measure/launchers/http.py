"""Whether a server answers."""

from __future__ import annotations

import http.client
from typing import Final

from ...runner.client import ask
from .output import shortly

HOST: Final = "127.0.0.1"


def no_answer(url: str, timeout_s: float) -> str:
    """Why it is not ready yet; empty when it is."""
    try:
        status, reason, _ = ask(url, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        return f"gave no answer ({shortly(error)})"
    return f"was answered with {status} {reason}" if status >= 400 else ""
