"""Reads what a launch has marshalled: messages, its result, the files of its lock probe."""

from __future__ import annotations

import marshal
import sys
from typing import Any, Final

from ..runner.protocol import LENGTH_BYTES

WIDTHS: Final = {**dict.fromkeys(b"NTF0{", 0), ord("i"): 4, ord("g"): 8}
"""The bytes after the first of what marshal writes of a value without a length."""
UNITS: Final = {ord("["): 0, ord("("): 0, ord("u"): 1, ord("s"): 1, ord("l"): 2}
"""The bytes of one unit of a length: the items of a container follow as values of their own."""


class BrokenMessage(Exception):
    """What a launch has sent or written is not ours: the workload can write there, too."""


def unmarshalled(content: bytes) -> Any:
    """Plain values of a launch. Raises BrokenMessage for anything else."""
    try:
        _check_lengths(content)
        if sys.version_info >= (3, 13):
            return marshal.loads(content, allow_code=False)
        return marshal.loads(content)
    except Exception as error:  # of bytes that are nothing, also MemoryError
        raise BrokenMessage(f"{len(content):,} bytes that cannot be read: {type(error).__name__}: {error}") from error


def _check_lengths(content: bytes) -> None:
    """Raise ValueError for lengths that exceed the content: marshal allocates what a container claims to hold."""
    at = items = 0
    while at < len(content):
        kind, at = content[at], at + 1
        width = WIDTHS.get(kind)
        if width is None:
            if kind not in UNITS:
                raise ValueError(f"a value of kind {kind:#x}")
            length = int.from_bytes(content[at : at + LENGTH_BYTES], "little", signed=True)
            width = LENGTH_BYTES + UNITS[kind] * abs(length)
            items += 0 if UNITS[kind] else max(0, length)
        at += width
        if max(at, items) > len(content):
            raise ValueError("a length that exceeds them")
