"""The decorators in a measured process: they take any name and any argument.

What is measured may be another commit's, written for another version: `@ftgate.require`, `processes("fork")`. Its
functions are measured. Which cells there are and how they are judged says the working tree, which was checked.
"""

from __future__ import annotations

from . import api

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Decorate = Callable[[Any, tuple[Any, ...]], Any]


class Anything:
    """A name, or what it gives where it is called. As a decorator it has the function decorated, with its arguments."""

    def __init__(self, name: str, decorate: Decorate, args: tuple[Any, ...] = ()) -> None:
        self._name = name
        self._decorate = decorate
        self._args = args

    def __call__(self, *args: Any, **options: Any) -> Any:
        if len(args) == 1 and not options and hasattr(args[0], "__code__"):
            return self._decorate(args[0], self._args)
        return Anything(self._name, self._decorate, args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f"{self._name}.{name}", self._decorate)

    def __repr__(self) -> str:
        return self._name


class Decorated:
    """A decorated test: the function, and decorators of any name."""

    def __init__(self, function: Any) -> None:
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(self, name, getattr(function, name))
        self.__wrapped__ = function
        self.__ftgate__ = api.Declaration(function, (), {})

    def __call__(self, *args: Any, **params: Any) -> Any:
        return self.__wrapped__(*args, **params)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else self.__wrapped__.__get__(instance, owner)

    def __reduce__(self) -> str:  # as a function, by its name
        return str(self.__qualname__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return getattr(self.__wrapped__, name)
        declaration = self.__ftgate__

        def unknown(function: Any, *_: Any) -> Any:
            declaration.unknown = f"@{self.__name__}.{name} of {getattr(function, '__name__', function)!s}"
            return function

        if name not in api.DECORATORS:
            return Anything(name, unknown)

        def known(*args: Any, **options: Any) -> Any:
            # A registered function may be a class or any other callable, not only a plain function.
            try:
                return getattr(declaration, api.DECORATORS[name])(*args, **options)
            except (LookupError, TypeError, AttributeError):
                return unknown(args[0]) if len(args) == 1 and callable(args[0]) else unknown

        return known


def _declare(function: Any, args: tuple[Any, ...]) -> Any:
    """A test with what any decorators of it name, such as its own executors; their other words count elsewhere."""
    test = function if hasattr(function, "__ftgate__") else Decorated(function)
    test.__ftgate__.args += args
    return test


class AnyFtgate:
    """The namespace `ftgate`."""

    named, shared = api.Ftgate.named, api.Ftgate.shared

    def __getattr__(self, name: str) -> Any:
        return Anything(name, _declare)


def anything(name: str) -> Anything:
    """A name that this version does not export."""
    return Anything(name, lambda function, args: function)


def _taking_anything(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **options: Any) -> Any:
        try:
            return make(*args, **options)
        except TypeError:  # of its arguments: it does nothing but keep them
            return anything(f"{make.__name__}(...)")

    return made


ftgate = AnyFtgate()
executor, command, load = _taking_anything(api.executor), _taking_anything(api.command), _taking_anything(api.load)
