"""Results in a form that can be compared across processes and interpreter versions."""

from __future__ import annotations

import sys

from .protocol import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHORT = 200
MANY = 1000
"""Elements of a larger array are compared by the hash of their bytes."""
REPR_BITS = 2000
"""A longer integer is written in hexadecimal: the interpreter may limit decimal digits, to 640 at least."""


def written(value: Any) -> str:
    """The repr of a value; of a large integer its hexadecimal digits."""
    return hex(value) if isinstance(value, int) and int.bit_length(value) > REPR_BITS else repr(value)


def canonical(value: Any) -> str:
    """A text that is the same for equal plain values in any process, with any hash seed, on any interpreter.

    Arrays and scalars of numpy are written with their dtype. Raises Failure for a value that is not plain: its repr may
    hold an address, or its order may vary.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return _of_numpy(value, numpy)
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return written(value) if type(value) in _EXACT else f"{type(value).__name__}:{written(value)}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(canonical, value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(canonical, value))) + "}"
    if isinstance(value, dict):
        pairs = sorted((canonical(key), canonical(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    if isinstance(value, (bytearray, memoryview)):
        return repr(bytes(value))
    raise Failure(
        f"the result holds a {type(value).__module__}.{type(value).__qualname__}, which cannot be compared between "
        "cells: return plain values (numbers, text, lists, dicts, sets), or nothing, or assert with @test.check"
    )


def _of_numpy(value: Any, numpy: Any) -> str:
    """`<i8:3` of a scalar, `array(<f8, [1.0, 2.0])` of an array, of a large one its shape and a hash."""
    kind = value.dtype.descr if value.dtype.names else value.dtype.str
    if value.dtype.kind in "mM":
        value = value.astype("i8")
    if isinstance(value, numpy.generic):
        item = value.item()
        return f"{kind}:{repr(item) if isinstance(item, numpy.generic) else canonical(item)}"
    # Objects, records and long doubles have bytes that say nothing about their values.
    if value.size > MANY and value.dtype.kind in "biufcSU" and value.dtype.char not in "gG":
        from hashlib import sha256

        return f"array({kind}, {value.shape}, sha256 {sha256(value.tobytes()).hexdigest()})"
    return f"array({kind}, {canonical(value.tolist())})"


_EXACT = frozenset((type(None), bool, int, float, complex, str, bytes))


def digest(value: Any) -> str:
    """The canonical text of a result; of a long text its beginning, length and SHA-256."""
    text = canonical(value)
    if len(text) <= SHORT:
        return text
    import hashlib

    hashed = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
    return f"{text[:80]}... ({len(text)} characters, sha256 {hashed})"
