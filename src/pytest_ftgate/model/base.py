"""The base of every frozen value."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

LARGEST = 1e30
"""No figure is larger: sums of squares of such are still finite."""
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
Figure = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every value here: immutable, keyword-only, strict when decoded."""


def to_builtins(value: Struct) -> Any:
    """Plain dicts, lists and scalars of a value, fit for JSON and for another process."""
    return msgspec.to_builtins(value)
