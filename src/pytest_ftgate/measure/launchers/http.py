"""Whether a server answers."""

from __future__ import annotations

import http.client
from typing import Final

from ...runner.client import ask
from .output import shortly
from .within import Late, within

HOST: Final = "127.0.0.1"


def no_answer(url: str, timeout_s: float) -> str:
    """Why it is not ready yet; empty when it is. An answer counts once all of it has come, in `timeout_s`."""
    try:
        status, reason, _ = within(timeout_s, lambda: ask(url, timeout_s), "request")
    except (Late, TimeoutError):
        return f"gave no whole answer within {timeout_s:.3g} s"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"gave no answer ({shortly(error)})"
    return f"was answered with {status} {reason}" if status >= 400 else ""
