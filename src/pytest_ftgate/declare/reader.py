"""What the readers of a declaration share: its place, which every error names with a fix, and the words it may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, get_args

from ..errors import FtgateError
from ..model import ExecutorKind, StartMethod
from ..model.targets import TargetError, parse_target
from ..runner.api import Declaration

KINDS: tuple[str, ...] = tuple(kind for kind in get_args(ExecutorKind) if kind not in ("executor", "command", "server"))
METHODS: tuple[str, ...] = get_args(StartMethod)
SERVE_EXAMPLE = (
    "@ftgate.serve(['gunicorn', '--bind', '127.0.0.1:{port}', 'app:app'], "
    "ready='http://127.0.0.1:{port}/', load=load('/'))"
)
OWN = ("worker", "executor", "server")
"""The argument that a body takes from its cell; parametrize carries the cell to pytest under the same name."""


class DeclarationError(FtgateError):
    """A decorated test that cannot be gated; the text names the file, the line and a fix."""


class Reader:
    """A declaration and its place. Every method of a reader raises DeclarationError."""

    def __init__(self, declared: Declaration, path: str, name: str) -> None:
        self.declared = declared
        self.kwargs = declared.kwargs
        self.place = f"{path}:{declared.line}: @ftgate.{declared.decorator} of {name}"

    def fail(self, text: str) -> NoReturn:
        """Raise what is wrong, at its place."""
        raise DeclarationError(f"{self.place}: {text}")

    def targets(self, value: Any, what: str) -> tuple[str, ...] | None:
        """The targets of an argument, each once; None where it is not given."""
        if value is None:
            return None
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
            self.fail(f"{what} takes a list of targets such as ['3.14', '3.14t'], not {value!r}")
        for name in names:
            try:
                parse_target(name)
            except TargetError as error:
                self.fail(f"{what}{value!r}: {error}")
        return tuple(dict.fromkeys(names))


def shown(value: Any) -> str:
    """A value as its author would know it: a function by its name."""
    return value.__name__ if isinstance(value, Callable) and hasattr(value, "__name__") else repr(value)  # type: ignore[arg-type]


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
