"""Mutations of JSON, of its values and of its text; `choose(n)` is a number below n: random, drawn, or a fuzzer's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Choose = Callable[[int], int]
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-308, 5e-324, 1e30, 1e300, -1e300, 2**31, 2**53, 2**63, 2**64),
    *(10**400, float("inf"), float("-inf"), float("nan"), "inf", "nan", "-inf"),
    *("", " ", "0", "HEAD", "main", "../../x", "/etc/passwd", "\x00", "\x1b[31m", "\u202e", "\udc80", "x" * 5000),
    *("2026-01-02", "9999-12-31T23:59:59+00:00", "f" * 40, "a/b", "]", "x.py::test[", "%s{0}"),
    *([], {}, [[]], [None], [0], [1e300, 5e-324], {"": 0}),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every item of every object and list in a value: its container and its key."""
    found: list[tuple[Any, Any]] = []
    open_ones = [value]
    while open_ones:
        container = open_ones.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], (dict, list)):
                open_ones.append(container[key])
    return found


def mutate(value: Any, choose: Choose, most: int = 3) -> Any:
    """Change a decoded JSON value in place, in up to `most` places; the value."""
    for _ in range(1 + choose(most)):
        there = places(value)
        if not there:
            return value
        container, key = there[choose(len(there))]
        _change(container, key, there, choose)
    return value


def _change(container: Any, key: Any, there: list[tuple[Any, Any]], choose: Choose) -> None:
    item = container[key]
    what = choose(8)
    if what == 0:
        del container[key]
    elif what == 1 and isinstance(item, list):
        container[key] = item[: choose(len(item) + 1)]
    elif what == 2 and isinstance(item, list):
        container[key] = [_copy(HOSTILE[choose(len(HOSTILE))]) for _ in item[:1]] * len(item)
    elif what == 3 and isinstance(container, dict):
        container[str(HOSTILE[choose(len(HOSTILE))])[:80]] = item
    elif what == 4:
        other, place = there[choose(len(there))]
        container[key] = _copy(other[place]) if place in _keys(other) else None
    elif what == 5 and isinstance(item, (int, float)) and abs(item) < 1e200:
        container[key] = item * (-1, 0, 1e3, 1e-3, 1e15)[choose(5)]
    else:
        container[key] = _copy(HOSTILE[choose(len(HOSTILE))])


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _keys(container: Any) -> Any:
    return container if isinstance(container, dict) else range(len(container))


def mutate_text(content: bytes, choose: Choose) -> bytes:
    """Cut, double, flip or insert bytes of a text."""
    if not content:
        return bytes((choose(256),))
    at = choose(len(content))
    end = min(len(content), at + 1 + choose(40))
    what = choose(5)
    if what == 0:
        return content[:at]
    if what == 1:
        return content[:at] + content[end:]
    if what == 2:
        return content[:end] + content[at:]
    if what == 3:
        return content[:at] + bytes((choose(256),)) + content[at + 1 :]
    return content[:at] + json.dumps(HOSTILE[choose(len(HOSTILE))]).encode() + content[end:]
