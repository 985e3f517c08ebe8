"""A small web server of the standard library for the tests of servers; its first argument says how it behaves."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import ssl
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

MODE, PORT = sys.argv[1], int(sys.argv[2])
SCRATCH = Path(sys.argv[3])
GIL_WARNING = (
    "RuntimeWarning: The global interpreter lock (GIL) has been enabled to load module 'old_module', "
    "which has not declared that it can run safely without the GIL."
)
asked = itertools.count(1)
seen: Counter[tuple[str, str, str, str]] = Counter()


class Answers(BaseHTTPRequestHandler):
    """`/` says ok, `/about` what the server knows of itself.

    `/burn` takes CPU, `/slow` 50 ms, `/bad` is an error, `/die` ends it. `/seen` says which requests came how often,
    with their bodies and one of their headers, but for those of `/`.
    """

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        number = next(asked)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode("latin-1")
        if self.path not in ("/", "/seen"):
            seen[self.command, self.path, body, self.headers.get("X-Kind", "")] += 1
        if MODE == "dies under load" and number > 3:
            print("out of luck", flush=True)
            os._exit(5)
        if self.path == "/die":
            os._exit(7)
        if MODE == "chatty":
            os.write(1, b"x" * 10_000 + b"\n")
        self.answer(*self.said(number))

    do_POST = do_GET

    def said(self, number: int) -> tuple[int, str]:
        if self.path == "/bad" or (MODE == "late" and number < 3) or (MODE == "fails" and number % 10 == 0):
            return 503, "not yet"
        if self.path == "/slow":
            time.sleep(0.05)
        if self.path == "/burn":
            return 200, str(sum(range(100_000)))
        if self.path == "/seen":
            return 200, json.dumps([(*request, times) for request, times in sorted(seen.items())])
        if self.path == "/about":
            about = {"argv": sys.argv, "environ": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid()}
            return 200, json.dumps(about)
        return 200, "ok"

    def answer(self, status: int, text: str) -> None:
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} {'OK' if status == 200 else 'Service Unavailable'}\r\nContent-Length: {len(body)}\r\n"
        )
        self.wfile.write(head.encode() + b"\r\n" + body)  # at once: in two parts, the second would be delayed

    def log_message(self, *args: Any) -> None:
        pass


class Listening(ThreadingHTTPServer):
    """Takes a socket that is bound already."""

    daemon_threads = True

    def __init__(self, bound: socket.socket) -> None:
        super().__init__(("127.0.0.1", PORT), Answers, bind_and_activate=False)
        self.socket.close()
        self.socket = bound


def listening() -> socket.socket:
    bound = socket.socket()
    if MODE == "shares its port":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", PORT))
    bound.listen(64)
    if MODE == "encrypts":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.environ["CERTIFICATE"])
        return context.wrap_socket(bound, server_side=True)
    return bound


def serve_by_children(bound: socket.socket) -> NoReturn:
    """Two forked children answer; the parent ends them with it, or leaves them behind."""
    children = []
    for _ in range(2):
        child = os.fork()
        if not child:
            if MODE == "orphans":
                os.setsid()
            Listening(bound).serve_forever()
        children.append(child)

    def end(*_: object) -> NoReturn:
        if MODE != "orphans":
            for child in children:
                os.kill(child, signal.SIGTERM)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        signal.pause()


def main() -> None:
    print(f"{MODE} on its port", flush=True)
    (SCRATCH / "left here").write_text("by the server", encoding="utf-8")
    if MODE == "dies":
        print("no module named app", flush=True)
        raise SystemExit(3)
    if MODE == "goes to the background":
        raise SystemExit(0)
    if MODE == "never ready":
        time.sleep(60)
    if MODE == "turns the GIL on":
        print(GIL_WARNING, file=sys.stderr, flush=True)
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    bound = listening()
    if MODE in ("forks", "orphans"):
        serve_by_children(bound)
    Listening(bound).serve_forever()


if __name__ == "__main__":
    main()
