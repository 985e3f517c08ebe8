"""The base of every frozen value."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

LARGEST = 1e30
"""No figure is larger: sums of squares of such are still finite."""
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
Figure = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
CommitId: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A(?:(?:[0-9a-f]{40}|[0-9a-f]{64})\+?)?\Z")]
"""A whole object id of git (SHA-1 or SHA-256), with `+` for uncommitted changes; empty: unknown."""


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every value here: immutable, keyword-only, strict when decoded."""


def to_builtins(value: Struct) -> Any:
    """Plain dicts, lists and scalars of a value, fit for JSON and for another process."""
    return msgspec.to_builtins(value)


def fault_of(error: msgspec.ValidationError) -> tuple[str, str]:
    """What is wrong with a decoded value, and the place of it: `$` is the whole."""
    fault, _, place = str(error).partition(" - at `")
    if "matching regex" in fault:  # the one that git writes says little to people
        fault = "is not of the form that is written there"
    return fault, place.removesuffix("`") or "$"
