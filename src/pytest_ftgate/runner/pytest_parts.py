"""pytest's `raises`, `approx` and `fail` for bodies, small enough to be measured with them."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from numbers import Complex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn


class Failed(BaseException):
    """`pytest.fail` raises it; like the real one, it passes through `except Exception`."""


def fail(reason: str = "", pytrace: bool = True) -> NoReturn:
    raise Failed(reason)


fail.Exception = Failed  # type: ignore[attr-defined]


class Raised:
    """The error that `raises` caught, once its block has ended."""

    value: BaseException

    @property
    def type(self) -> type[BaseException]:
        return type(self.value)

    @property
    def typename(self) -> str:
        return type(self.value).__name__

    @property
    def tb(self) -> TracebackType | None:
        return self.value.__traceback__

    def match(self, regexp: Any) -> bool:
        """Assert that `regexp` is found in its text."""
        import re

        if not re.search(regexp, str(self.value)):
            fail(f"Regex pattern did not match: {regexp!r} is not found in {str(self.value)!r}")
        return True


class _Raises:
    def __init__(self, expected: Any, match: Any, check: Any) -> None:
        self.expected = expected
        self.pattern = match
        self.check = check
        self.raised = Raised()

    def __enter__(self) -> Raised:
        return self.raised

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            fail(f"DID NOT RAISE {self.expected!r}")
        if not isinstance(error, self.expected):
            return False
        self.raised.value = error
        if self.pattern is not None:
            self.raised.match(self.pattern)
        if self.check is not None and not self.check(error):
            fail(f"check {self.check!r} returned False for {error!r}")
        return True


def raises(expected: Any = BaseException, *args: Any, match: Any = None, check: Any = None, **kwargs: Any) -> Any:
    """As pytest.raises: a context manager, or with a function its call with the other arguments."""
    context = _Raises(expected, match, check)
    if not args:
        if kwargs:
            raise TypeError(f"pytest.raises takes match= and check=, not {', '.join(kwargs)}")
        return context
    with context as raised:
        args[0](*args[1:], **kwargs)
    return raised


class approx:
    """As pytest.approx: equal to numbers, and to sequences, mappings and arrays of numbers, within a tolerance.

    The tolerance is the larger of `rel` times the expected value (1e-6) and `abs` (1e-12); with `abs` alone it is that.
    """

    __array_ufunc__ = None  # an array leaves the comparison to this class
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expected: Any, rel: Any = None, abs: Any = None, nan_ok: bool = False) -> None:  # noqa: A002
        for name, tolerance in (("rel", rel), ("abs", abs)):
            if tolerance is not None and not tolerance >= 0:
                raise ValueError(f"pytest.approx takes a {name} of 0 or more, not {tolerance}")
        self.expected = expected
        self.rel = rel
        self.abs = abs
        self.nan_ok = nan_ok

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"

    def __bool__(self) -> bool:
        raise AssertionError("approx() is compared with ==, as in `assert value == approx(expected)`")

    def __ne__(self, actual: object) -> bool:
        return not self == actual

    def __eq__(self, other: object) -> bool:
        actual: Any = other
        expected = self.expected
        if isinstance(expected, Mapping):
            same = isinstance(actual, Mapping) and actual.keys() == expected.keys()
            return same and all(self._close(actual[key], value) for key, value in expected.items())
        if _is_array(expected):
            if _is_number(actual):
                return all(self._close(actual, each) for each in expected.flat)
            actual = actual if _is_array(actual) else sys.modules["numpy"].asarray(actual)
            return actual.shape == expected.shape and all(map(self._close, actual.flat, expected.flat))
        if isinstance(expected, Sequence) and not isinstance(expected, (str, bytes)):
            try:
                same = len(actual) == len(expected)
            except TypeError:
                return False
            return same and all(map(self._close, actual, expected))
        return self._close(actual, expected)

    def _close(self, actual: Any, expected: Any) -> bool:
        if isinstance(expected, (Mapping, set, frozenset, list, tuple)):
            raise TypeError(f"pytest.approx does not support nested data, such as {expected!r}")
        if _is_array(actual):
            return all(self._close(each, expected) for each in actual.flat)
        if isinstance(expected, bool):
            return isinstance(actual, bool) and actual == expected
        if isinstance(actual, (list, tuple)):
            return False  # numpy's scalars would compare with each item
        if not (_is_number(actual) and _is_number(expected)) or actual == expected:
            return bool(actual == expected)
        if _is_nan(expected):
            return self.nan_ok and _is_nan(actual)
        size = abs(expected)
        if math.isinf(size):
            return False
        as_size = type(size) if type(size).__name__ == "Decimal" else float
        tolerance = as_size("1e-12" if self.abs is None else str(self.abs))
        if self.rel is not None or self.abs is None:
            tolerance = max(as_size("1e-6" if self.rel is None else str(self.rel)) * size, tolerance)
        return bool(abs(expected - actual) <= tolerance)


def _is_number(value: Any) -> bool:
    return isinstance(value, Complex) or type(value).__name__ == "Decimal"


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_nan(value: Any) -> bool:
    return bool(value != value)
