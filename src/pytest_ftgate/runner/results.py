"""Results in a form that can be compared across processes and interpreter versions."""

from __future__ import annotations

from .protocol import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHORT = 200


def canonical(value: Any) -> str:
    """A text that is the same for equal plain values in any process, with any hash seed, on any interpreter.

    Raises Failure for a value that is not plain: its repr may hold an address, or its order may vary.
    """
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value) if type(value) in _EXACT else f"{type(value).__name__}:{value!r}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(canonical, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
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


_EXACT = frozenset((type(None), bool, int, float, complex, str, bytes))


def digest(value: Any) -> str:
    """The canonical text of a result; of a long text its beginning, length and SHA-256."""
    text = canonical(value)
    if len(text) <= SHORT:
        return text
    import hashlib

    hashed = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
    return f"{text[:80]}... ({len(text)} characters, sha256 {hashed})"
