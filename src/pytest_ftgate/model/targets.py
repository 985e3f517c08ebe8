"""Targets as users write them: an interpreter and its settings, `3.14t[gil=on]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from ..errors import FtgateError
from .spec import Settings, Target

OLDEST: Final = (3, 13)

_VERSION = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)(?P<patch>\.\d+(?:(?:a|b|rc)\d+)?)?(?P<threaded>t?)")
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?|\.\d+)(?P<unit>ns|us|µs|ms|s)")
_UNIT_NS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


class TargetError(FtgateError):
    """A target that cannot be parsed; the message names it and a fix."""


def parse_target(spec: str) -> Target:
    """Parse a target: `3.14`, `3.14.7t`, `3.14t[gil=on,switchinterval=0.1ms]`, or a path.

    `request` of the result is the spec without its settings. Raises TargetError.
    """
    request, listed = _split(spec.strip())
    if not request:
        raise TargetError(f"target {spec!r} names no interpreter: write a version such as 3.14t, or a path")
    if not is_path(request):
        _check_version(spec, request)
    return Target(spec=spec.strip(), request=request, settings=_settings(spec, listed))


def is_path(request: str) -> bool:
    """Whether a target's request is a path to an executable rather than a version."""
    return request.startswith("~") or "/" in request


def parse_version(request: str) -> tuple[str, bool]:
    """The version prefix, and whether it is the free-threaded build: `3.14.7t` -> (`3.14.7`, True).

    Raises TargetError if `request` is not a version.
    """
    match = _VERSION.fullmatch(request)
    if match is None:
        raise TargetError(f"target {request!r} is not a version: write 3.14, 3.14t, 3.14.7 or a path with a '/'")
    return request.removesuffix("t"), bool(match["threaded"])


def series(version: str) -> str:
    """`3.14` of `3.14.7`."""
    return ".".join(version.split(".")[:2])


def _split(spec: str) -> tuple[str, str | None]:
    if not spec.endswith("]") or "[" not in spec:
        return spec, None
    request, _, listed = spec[:-1].rpartition("[")
    return request.strip(), listed


def _check_version(spec: str, request: str) -> None:
    match = _VERSION.fullmatch(request)
    if match is None:
        raise TargetError(
            f"target {spec!r}: {request!r} is neither a version (3.14, 3.14t, 3.14.7) nor a path; "
            f"settings follow in brackets, as in 3.14t[gil=on]"
        )
    if (int(match["major"]), int(match["minor"])) < OLDEST:
        raise TargetError(f"target {spec!r} is too old: targets are CPython {OLDEST[0]}.{OLDEST[1]} and newer")


def _settings(spec: str, listed: str | None) -> Settings:
    if listed is None:
        return Settings()
    settings: dict[str, Any] = {}
    for item in listed.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        known = _PARSERS.get(name)
        if known is None or not equals:
            raise TargetError(
                f"target {spec!r}: unknown setting {item.strip()!r}; known are gil=on|off, jit=on|off and "
                f"switchinterval=DURATION such as 0.1ms"
            )
        field, parse = known
        if field in settings:
            raise TargetError(f"target {spec!r}: {name} is set twice; keep one")
        settings[field] = parse(spec, name, value)
    return Settings(**settings)


def _on_off(spec: str, name: str, value: str) -> str:
    if value not in ("on", "off"):
        raise TargetError(f"target {spec!r}: {name}={value} is not understood; write {name}=on or {name}=off")
    return value


def _duration_ns(spec: str, name: str, value: str) -> int:
    match = _DURATION.fullmatch(value)
    if match is None:
        raise TargetError(
            f"target {spec!r}: {name}={value} is not a duration; write a number and its unit (us, ms, s), such as 0.1ms"
        )
    nanoseconds = round(float(match["number"]) * _UNIT_NS[match["unit"]])
    if nanoseconds < 1_000:  # the interpreter keeps whole microseconds
        raise TargetError(f"target {spec!r}: {name}={value} is too short; the interpreter's minimum is 1us")
    return nanoseconds


_PARSERS: Final[dict[str, tuple[str, Callable[[str, str, str], str | int]]]] = {
    "gil": ("gil", _on_off),
    "jit": ("jit", _on_off),
    "switchinterval": ("switchinterval_ns", _duration_ns),
}
