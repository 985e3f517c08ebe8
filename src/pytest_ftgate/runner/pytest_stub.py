"""The module that `import pytest` gives in the measured process, which must not load the real one.

A workload's module may use `pytest.mark`, `pytest.param` and `pytest.fixture` at import, and `skip`, `importorskip`,
`fail`, `xfail`, `raises` and `approx` anywhere. Any other function loads the real pytest when it is called, where the
target's environment has it, and else raises Failure.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock

from .protocol import Failure, Unsupported

STANDS_FOR = "8.4.0"
PARTS = ("approx", "fail", "raises")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


_loading = allocate_lock()


class _Mark:
    """`pytest.mark.anything(...)`: as a decorator it returns the function unchanged."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else self


class _Marks:
    def __getattr__(self, name: str) -> _Mark:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Mark(name)


def fixture(*args: Any, **kwargs: Any) -> Any:
    """The function unchanged."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return args[0]
    return lambda function: function


hookimpl = fixture


def param(*values: Any, **_: Any) -> tuple[Any, ...]:
    """Its values."""
    return values


def importorskip(name: str, minversion: str | None = None, reason: str | None = None, **_: Any) -> ModuleType:
    """The module. Raises Unsupported where it is missing or too old."""
    import importlib

    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise Unsupported(f"pytest.importorskip: {reason or error}") from error
    version = getattr(module, "__version__", "0")
    if minversion is not None and _numbers(version) < _numbers(minversion):
        raise Unsupported(reason or f"pytest.importorskip: {name} {version} is installed, {minversion} is required")
    return module


def _numbers(version: str) -> list[int]:
    import re

    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]


def skip(reason: str = "", **_: Any) -> None:
    raise Unsupported(f"pytest.skip: {reason}")


def xfail(reason: str = "") -> None:
    raise Unsupported(f"pytest.xfail: {reason}")


def _load() -> ModuleType:
    """The real pytest in place of the stub. Raises ImportError where the target's environment has none."""
    import importlib

    this = sys.modules[__name__]
    with _loading:
        if sys.modules["pytest"] is this:
            del sys.modules["pytest"]
            try:
                importlib.import_module("pytest")
            finally:
                sys.modules.setdefault("pytest", this)
        if sys.modules["pytest"] is this:
            raise ImportError("the environment has no pytest")
        return sys.modules["pytest"]


def _real(name: str) -> Callable[..., Any]:
    """A function of the real pytest, which is loaded when it is called."""

    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            real = _load()
        except ImportError:
            raise Failure(
                f"pytest.{name} was called inside the measured process, whose environment has no pytest: use plain "
                "asserts, or add packages=['pytest'], which the workload then loads as part of what is measured"
            ) from None
        return getattr(real, name)(*args, **kwargs)

    return called


def _version() -> str:
    """The version of the pytest that is installed for the target; without one the oldest that the plugin runs with."""
    import importlib

    try:
        return str(importlib.import_module("_pytest._version").version)
    except ImportError:
        return STANDS_FOR


def register_assert_rewrite(*_: Any) -> None:
    """Has no effect in the measured process."""


def _class(name: str) -> type:
    """An empty class that annotations may subscript."""
    return type(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})


def __getattr__(name: str) -> Any:
    if name in PARTS:
        from . import pytest_parts

        return getattr(pytest_parts, name)
    if name == "__version__":
        return _version()
    if name == "version_tuple":
        return tuple(int(part) if part.isdigit() else part for part in _version().split("."))
    if name.startswith("__"):
        raise AttributeError(name)
    return _class(name) if name[:1].isupper() else _real(name)


mark = _Marks()
for _function in (skip, xfail):
    _function.Exception = Unsupported  # type: ignore[attr-defined]
