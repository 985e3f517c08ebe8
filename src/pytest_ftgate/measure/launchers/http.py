"""Single HTTP requests to a server on this machine."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import urllib.parse
from collections.abc import Mapping
from functools import cache
from typing import Final

from .output import shortly

HOST: Final = "127.0.0.1"


def ask(
    url: str, timeout_s: float, method: str = "GET", body: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Status, its word and the body; no proxy is asked. Raises OSError, http.client.HTTPException."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or HOST
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=_unverified())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    )
    with contextlib.closing(connection):
        path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        connection.request(method, path, body or None, {**(headers or {}), "Connection": "close"})
        response = connection.getresponse()
        return response.status, response.reason, response.read().decode("utf-8", "replace")


@cache
def _unverified() -> ssl.SSLContext:
    """For servers that the plugin has started on this machine: their certificates are their own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


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
