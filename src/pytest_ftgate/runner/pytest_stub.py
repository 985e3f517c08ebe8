"""A stub of pytest for the measured process, which must not load the real one.

A workload's module may use `pytest.mark`, `pytest.param`, `pytest.fixture`, `pytest.skip` and `pytest.importorskip` at
import; any other function raises Failure when it is called.
"""

from __future__ import annotations

import sys
from types import ModuleType

from .protocol import Failure, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


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


def _identity(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs and callable(args[0]):
        return args[0]
    return lambda function: function


def _param(*values: Any, **_: Any) -> tuple[Any, ...]:
    return values


def _importorskip(name: str, *_: Any, **__: Any) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unsupported(f"pytest.importorskip: {error}") from error


def _skip(reason: str = "", **_: Any) -> None:
    raise Unsupported(f"pytest.skip: {reason}")


def _missing(name: str) -> Callable[..., Any]:
    def absent(*args: Any, **kwargs: Any) -> Any:
        raise Failure(
            f"pytest.{name} was called inside the measured process, where pytest is not loaded: use plain asserts"
        )

    return absent


def _nothing(*_: Any, **__: Any) -> None:
    """For calls that have no effect in the measured process."""


def _class(name: str) -> type:
    """An empty class that annotations may subscript."""
    return type(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})


def install() -> None:
    """Make `import pytest` find the stub, unless the real pytest is already loaded."""
    if "pytest" in sys.modules:
        return
    module = ModuleType("pytest", __doc__)
    module.__dict__.update(
        mark=_Marks(),
        param=_param,
        fixture=_identity,
        hookimpl=_identity,
        importorskip=_importorskip,
        skip=_skip,
        register_assert_rewrite=_nothing,
    )

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _class(name) if name[:1].isupper() else _missing(name)

    module.__dict__["__getattr__"] = __getattr__
    sys.modules["pytest"] = module
