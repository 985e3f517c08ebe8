"""An undecorated test as a body: this file runs in the measured process, see `runner.loading.adapted`."""

from __future__ import annotations

import os
from _thread import allocate_lock

from pytest_ftgate.runner.api import Declaration
from pytest_ftgate.runner.loading import load_module
from pytest_ftgate.runner.tokens import threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import ExitStack
    from typing import Any

WORKERS = [1, 2]
DURATION_S, WINDOW_S = 0.5, 0.1
"""Nobody knows how long a test takes: each worker repeats it for as long as a window lasts."""
GENERATOR = 0x20
"""CO_GENERATOR, without importing inspect."""


def declared(test: Callable[..., Any], owner: type | None) -> Declaration:
    """The declaration of `@ftgate.compare` for a test: each call has its own instance of the class, and fixtures.

    A class of `unittest` sets up and tears down its own.
    """
    function: Any = test
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    needed = required_parameters(function)[owner is not None :]
    debugged = hasattr(owner, "debug") and hasattr(owner, "setUpClass")

    def body(worker: Any, **params: Any) -> None:
        if debugged:
            owner(function.__name__).debug()  # type: ignore[misc]
            return
        instance = () if owner is None else (owner(),)
        fixtures = [name for name in needed if name not in params]
        if not fixtures:
            test(*instance, **params)
            return
        from contextlib import ExitStack

        with ExitStack() as stack:
            test(*instance, **params, **made(fixtures, function.__globals__, stack))

    body.__name__, body.__qualname__ = function.__name__, test.__qualname__
    options = {"workers": WORKERS, "duration": DURATION_S, "window": WINDOW_S}
    declaration = Declaration(body, (threads,), options)
    declaration.line = function.__code__.co_firstlineno
    return declaration


def required_parameters(function: Any) -> tuple[str, ...]:
    """The parameters of a function that have no default."""
    code, defaults = function.__code__, function.__defaults__ or ()
    by_name = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return (
        *code.co_varnames[: code.co_argcount - len(defaults)],
        *(name for name in by_name if name not in (function.__kwdefaults__ or ())),
    )


def made(names: Iterable[str], module: dict[str, Any], stack: ExitStack) -> dict[str, Any]:
    """New values of fixtures, and of `tmp_path`, until the stack ends."""
    values: dict[str, Any] = {}

    def make(name: str) -> Any:
        if name in values:
            return values[name]
        if name == "tmp_path" and name not in module:
            from pathlib import Path
            from tempfile import TemporaryDirectory

            values[name] = Path(stack.enter_context(TemporaryDirectory(prefix="ftgate-")))
            return values[name]
        function = fixture(name, module)
        value = function(**{each: make(each) for each in required_parameters(function)})
        if function.__code__.co_flags & GENERATOR:
            stack.callback(next, value, None)
            value = next(value)
        values[name] = value
        return value

    return {name: make(name) for name in names}


_loading = allocate_lock()


def fixture(name: str, module: dict[str, Any]) -> Callable[..., Any]:
    """The fixture of the test's file, or of the nearest conftest.py above it. Raises LookupError without one."""
    folder, package = os.path.dirname(os.path.abspath(module["__file__"])), module["__package__"] or ""
    found = module
    while name not in found:
        path = os.path.join(folder, "conftest.py")
        if os.path.isfile(path):
            with _loading:  # all workers come here at once
                known_as = f"{package}.conftest".lstrip(".")
                found = vars(load_module({"module": known_as, "path": path, "import_mode": "importlib"}))
        elif folder == os.path.dirname(folder):
            raise LookupError(f"no conftest.py above {module['__file__']} has a fixture {name!r}")
        folder, package = os.path.dirname(folder), package.rpartition(".")[0]
    function: Callable[..., Any] = found[name]
    return function
