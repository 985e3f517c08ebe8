"""Stands in for oha in the tests of servers: real requests for the time asked, its report in the words of oha.

`FTGATE_FAKE` in its environment says how it behaves.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

HOW = os.environ.get("FTGATE_FAKE", "")


def requests(url: str, seconds: float) -> tuple[dict[str, int], list[float]]:
    """Answers by status, and how long each took in s."""
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    codes: dict[str, int] = {}
    spans = []
    with socket.create_connection((name, int(port)), timeout=5) as connection:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            began = time.perf_counter()
            connection.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            answer = connection.recv(65536)  # short ones come whole
            if not answer:
                raise ConnectionResetError("the connection was closed")
            code = answer.split()[1].decode()
            codes[code] = codes.get(code, 0) + 1
            spans.append(time.perf_counter() - began)
    return codes, sorted(spans)


def report(codes: dict[str, int], spans: list[float], total_s: float) -> dict[str, Any]:
    """As oha prints it, as far as it is read."""
    spans = spans or [0.0]
    at = {f"p{share}": spans[min(len(spans) - 1, len(spans) * share // 100)] for share in (50, 95, 99)}
    return {
        "summary": {"total": total_s, "average": sum(spans) / len(spans), "slowest": spans[-1]},
        "latencyPercentiles": at,
        "statusCodeDistribution": codes,
        "errorDistribution": {"aborted due to deadline": 1},
    }


def main() -> None:
    words = sys.argv[1:]
    seconds = float(words[words.index("-z") + 1].removesuffix("ms")) / 1e3
    if told := os.environ.get("FTGATE_FAKE_SAYS"):
        seen = {"argv": words, "cpus": sorted(os.sched_getaffinity(0)), "threads": os.environ["TOKIO_WORKER_THREADS"]}
        Path(told).write_text(json.dumps(seen), encoding="utf-8")
    if HOW == "fails":
        print("no such option", file=sys.stderr)
        raise SystemExit(2)
    if HOW == "hangs":
        time.sleep(60)
    try:
        codes, spans = ({}, []) if HOW == "silent" else requests(words[-1], seconds)
    except OSError as error:
        print(error)
        raise SystemExit(1) from error
    if HOW == "silent":
        time.sleep(seconds)
    print("rubbish" if HOW == "rubbish" else json.dumps(report(codes, spans, 1000 if HOW == "clock" else seconds)))


if __name__ == "__main__":
    main()
