"""Reads `load(...)` of a server: paths and their mix, method, headers, body, connections and rate."""

from __future__ import annotations

import math
import re
from typing import Any, Final, get_args

from ..model import Generator, Load
from ..runner.api import LoadToken
from ..text import did_you_mean, listed
from .reader import SERVE_EXAMPLE, Reader, is_count

CONNECTIONS: Final = 10
OPTIONS: Final = ("method", "body", "headers", "connections", "rate", "generator")
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
LONGEST_MIX: Final = 1000
"""The most requests of a round of a mix."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_UNSAFE = re.compile(r"[\x00-\x20\x7f]")


def load_of(reader: Reader) -> Load:
    """The checked form of `load=`. Raises DeclarationError."""
    token = reader.kwargs.get("load")
    if not isinstance(token, LoadToken):
        reader.fail(f"load= takes load(path, connections=...), not {token!r}: {SERVE_EXAMPLE}")
    options = token.options
    for name in options:
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS)
            reader.fail(f"load(): unknown argument {name!r}{hint}; it takes {listed(OPTIONS)}")
    connections, body = options.get("connections", CONNECTIONS), options.get("body", b"")
    if not is_count(connections):
        reader.fail(f"load(): connections= takes a whole number from 1, not {connections!r}")
    if not isinstance(body, (str, bytes)):
        fix = "; json.dumps(...) makes a text of it" if isinstance(body, (dict, list)) else ""
        reader.fail(f"load(): body= takes a text or bytes, not {body!r}{fix}")
    method = options.get("method", "POST" if body else "GET")
    if method not in METHODS:
        reader.fail(f"load(): method= takes {listed(METHODS)}, not {method!r}")
    rate = _rate(reader, options.get("rate"))
    return Load(
        path=_path(reader, token.path),
        connections=connections,
        generator=_generator(reader, options.get("generator"), rate),
        method=method,
        body=body if isinstance(body, str) else "",
        body_bytes=body if isinstance(body, bytes) else b"",
        headers=_headers(reader, options.get("headers", {})),
        rate=rate,
    )


def _path(reader: Reader, given: Any) -> str | tuple[tuple[str, int], ...]:
    paths = list(given) if isinstance(given, (dict, list, tuple)) else [given]
    if not paths:
        reader.fail(f"load() takes a path, a list of paths, or a dict such as {{'/a': 3, '/b': 1}}, not {given!r}")
    for path in paths:
        if not isinstance(path, str) or not path or _UNSAFE.search(path):
            reader.fail(f"load(): a path is a text without spaces such as '/items?page=2', not {path!r}")
    if isinstance(given, str):
        return given
    if len(set(paths)) < len(paths):
        reader.fail(f"load(): a path is twice in {given!r}; a dict says how often each comes: {{'/a': 3, '/b': 1}}")
    times = list(given.values()) if isinstance(given, dict) else [1] * len(paths)
    if not all(map(is_count, times)):
        reader.fail(f"load(): each path comes a whole number of times from 1: {given!r}")
    divisor = math.gcd(*times)
    if sum(times) // divisor > LONGEST_MIX:
        reader.fail(f"load(): the numbers of {given!r} add up to more than {LONGEST_MIX}; make them smaller")
    return tuple((path, number // divisor) for path, number in zip(paths, times, strict=True))


def _headers(reader: Reader, headers: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(headers, dict):
        example = "{'Content-Type': 'application/json'}"
        reader.fail(f"load(): headers= takes a dict such as {example}, not {headers!r}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            reader.fail(f"load(): headers= takes names of headers such as 'Content-Type', not {name!r}")
        if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
            reader.fail(f"load(): the header {name} takes one line of ASCII text, not {value!r}")
    return tuple(headers.items())


def _rate(reader: Reader, rate: Any) -> float | None:
    if rate is None:
        return None
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 0 < rate < math.inf:
        reader.fail(f"load(): rate= takes requests per second above 0, not {rate!r}")
    return float(rate)


def _generator(reader: Reader, generator: Any, rate: float | None) -> Generator | None:
    if generator not in (None, *get_args(Generator)):
        reader.fail(f"load(): generator= takes {listed(get_args(Generator))}, not {generator!r}")
    if rate and generator == "wrk":
        reader.fail("load(): wrk cannot send at a constant rate=; take generator='oha', or drop rate=")
    return "oha" if rate else generator
