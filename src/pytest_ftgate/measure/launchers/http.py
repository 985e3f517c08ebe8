"""A first HTTP answer from a server on this machine."""

from __future__ import annotations

import contextlib
import http.client
import urllib.parse
from typing import Final

from .output import shortly

HOST: Final = "127.0.0.1"


def ask(url: str, timeout_s: float) -> tuple[int, str, str]:
    """Status, its word and the body; no proxy is asked. Raises OSError, http.client.HTTPException."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or HOST, parts.port, timeout=timeout_s)
    with contextlib.closing(connection):
        path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        return response.status, response.reason, response.read().decode("utf-8", "replace")


def below(url: str, path: str) -> str:
    """The URL of a path below another URL."""
    return f"{url}{'' if path.startswith('/') else '/'}{path}"


def no_answer(url: str, timeout_s: float) -> str:
    """Why it is not ready yet; empty when it is."""
    try:
        status, reason, _ = ask(url, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        return f"gave no answer ({shortly(error)})"
    return f"was answered with {status} {reason}" if status >= 400 else ""
