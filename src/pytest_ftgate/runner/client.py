"""Single HTTP requests to a server on this machine; what a test of `@ftgate.serve` gets.

Here, because its module is imported in the measured interpreter, too, where it may name `Server` in an annotation.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from ssl import SSLContext


class Server:
    """A server that is ready, as the test's check gets it: `url` is its address without a path."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    def get(self, path: str = "/", *, timeout_s: float = 30.0) -> str:
        """The body of its answer as text. Raises AssertionError if the answer is an error, OSError if there is none."""
        return self.request("GET", path, timeout_s=timeout_s)

    def post(
        self, path: str, body: str | bytes, headers: Mapping[str, str] | None = None, *, timeout_s: float = 30.0
    ) -> str:
        """Like `get`, for a POST with this body; text is sent as UTF-8."""
        return self.request("POST", path, body, headers, timeout_s=timeout_s)

    def request(
        self,
        method: str,
        path: str,
        body: str | bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> str:
        """Like `get`, for a request with any method, body and headers."""
        sent = body.encode() if isinstance(body, str) else body
        status, reason, answer = ask(below(self.url, path), timeout_s, method, sent, headers)
        if status >= 400:
            raise AssertionError(f"{method} {path} was answered with {status} {reason}: {answer[:500]}")
        return answer


def ask(
    url: str, timeout_s: float, method: str = "GET", body: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Status, its word and the body; no proxy is asked. Raises OSError, http.client.HTTPException."""
    import http.client
    from contextlib import closing
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(url)
    host = parts.hostname or "127.0.0.1"
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=_unverified())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    )
    with closing(connection):
        path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        connection.request(method, path, body or None, {**(headers or {}), "Connection": "close"})
        with connection.getresponse() as response:
            return response.status, response.reason, response.read().decode("utf-8", "replace")


def _unverified() -> SSLContext:
    """For servers that the plugin has started on this machine: their certificates are their own."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def below(url: str, path: str) -> str:
    """The URL of a path below another URL."""
    return f"{url}{'' if path.startswith('/') else '/'}{path}"
